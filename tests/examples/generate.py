#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""examples/generate on a small model: its tokens are those of a model in plain Python, and the same for any batch, chunk, page, drafts
and threads, for every type of cache.

usage: generate.py PROGRAM
"""
import os
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import small_model
from on_terminal import on_terminal
from tap import check, finish, run_in_folder

PROGRAM = os.path.abspath(sys.argv[1])
PROMPTS = ["the cat and the dog and the cat and the", "Why?", "12 and 34: the other  answer\n\n isn't é", "a " * 40 + "b", "er"]


def run(*words):
    done = subprocess.run([PROGRAM, "model.gguf", *words], capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        return done.stderr
    return done.stdout


def ids(*words):
    """The tokens of each prompt and those that were written."""
    found = []
    for line in run("--ids", "--quiet", *words).splitlines():
        before, after = re.sub(r"^\[\d+\] ", "", line).split(">")
        found.append(([int(word) for word in before.split()], [int(word) for word in after.split()]))
    return found


def expected(read, prompt, most):
    """The most likely tokens, and the least margin by which one is."""
    model, tokens, margin = small_model.Reference(read), small_model.encode(prompt), 1e9
    written = []
    for token in tokens:
        logits = model.logits(token)
    while len(written) < most:
        best, second = sorted(logits)[-1:-3:-1]
        written.append(logits.index(best))
        margin = min(margin, best - second)
        if written[-1] == 2:
            break
        logits = model.logits(written[-1])
    return tokens, written, margin


def test():
    read = small_model.write("model.gguf")
    for prompt in PROMPTS:
        tokens, written, margin = expected(read, prompt, 8)
        found = ids("--raw", "--most=8", "--cache=f32", prompt)
        check(f"the tokens of {prompt[:20]!r}", margin > 1e-3 and found == [(tokens, written)], f"{found}, not {tokens} > {written} ({margin})")
    chat = small_model.encode("<|im_start|>system\nBe brief<|im_end|>\n<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n")
    own = small_model.encode("<|im_start|>system\nRhyme<|im_end|>\n<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n")
    none = small_model.encode("<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n")
    check("a conversation", ids("--most=1", "Why?")[0][0] == chat and ids("--most=1", "--system=Rhyme", "Why?")[0][0] == own
          and ids("--most=1", "--system=", "Why?")[0][0] == none)

    drawn = ["--temperature=0.8", "--top-k=50", "--top-p=0.95", "--seed=7"]
    for kind in ("f32", "f16", "bf16", "i8"):
        for way in ([], drawn):
            first = ids("--raw", "--most=24", f"--cache={kind}", *way, *PROMPTS)
            for other in (["--batch=1"], ["--batch=2", "--chunk=5"], ["--page=1", "--threads=1"], ["--page=7", "--threads=3"],
                          ["--drafts=1", "--batch=3"], ["--drafts=6", "--page=16"]):
                again = ids("--raw", "--most=24", f"--cache={kind}", *way, *other, *PROMPTS)
                check(f"{kind} {'drawn ' if way else ''}{' '.join(other)}", len(first) == 5 and again == first, f"{again}, not {first}")
    one, two = ids("--raw", *drawn, *PROMPTS), ids("--raw", *drawn, "--seed=8", *PROMPTS)
    check("another seed, another text", one != two)
    check("of one token the most likely is drawn", ids("--raw", "--temperature=5", "--top-k=1", *PROMPTS) == ids("--raw", *PROMPTS))
    done = subprocess.run([PROGRAM, "model.gguf", "--raw", "--drafts=8", "--most=200", PROMPTS[0]], capture_output=True, check=True)
    drafts = re.search(rb"(\d+) of (\d+) drafts were right", done.stderr)
    check("some drafts are right", drafts and 0 < int(drafts[1]) <= int(drafts[2]), str(done.stderr))

    text = run("--raw", "--quiet", "--most=20", "Why?")
    words = small_model.VOCABULARY
    back = {character: byte for byte, character in small_model.CHARACTERS.items()}
    raw = bytes(back[c] for token in ids("--raw", "--most=20", "Why?")[0][1] if token > 2 for c in words[token])
    check("tokens are text", text == raw.decode(errors="replace") + "\n", f"{text!r}, not {raw}")
    status, shown = on_terminal([PROGRAM, "model.gguf", "--raw", "--most=9", *PROMPTS])
    check("a bar on a terminal", status == 0 and b"\rreading  [#" in shown and b"\rwriting  [#" in shown and b"read 93 tokens" in shown, str(shown))
    status, shown = on_terminal([PROGRAM, "model.gguf", "--raw", "--quiet", "--most=9", *PROMPTS])
    check("none with --quiet", status == 0 and b"\rreading" not in shown and b"a second" not in shown, str(shown))
    engines = pathlib.Path(__file__).resolve().parents[2] / "bench/engines.py"
    done = subprocess.run([sys.executable, engines, PROGRAM, "model.gguf", "--tokens=4", "--repeat=1"], capture_output=True, text=True,
                          errors="replace", check=False)
    check("bench/engines.py", re.search(r"^\| libattn, f32 cache \| \d+ \| \d+ \| 100% \|$", done.stdout, re.M), done.stdout + done.stderr)
    return finish()


run_in_folder(test)
