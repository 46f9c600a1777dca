#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Untrusted text that the command prints: every control and format character is replaced, whatever its source."""
import json
import os
import subprocess
import sys
import tempfile
import unicodedata

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import tensor_file  # noqa: E402
from on_terminal import on_terminal  # noqa: E402
from tap import check, finish  # noqa: E402

ATTN = os.path.abspath(sys.argv[1])
# Every control, format, line and paragraph separator character; and characters that must be printed unchanged.
HIDDEN = [chr(c) for c in range(1, 0x110000) if unicodedata.category(chr(c)) in ("Cc", "Cf", "Zl", "Zp")]
SHOWN = ["é", "ש", "中", "😀", "ᵀ", "Ġ", "▁", "\u00a0", "\u0301"]


def run(*words, status=0):
    p = subprocess.run([ATTN, *words], capture_output=True, check=False)
    check(" ".join(words)[:40].encode("ascii", "replace").decode(), p.returncode == status, f"{p.returncode} {p.stderr[-200:]}")
    return p.stdout, p.stderr


def terminal(*words):
    """Standard output and error, as one, of a command on a terminal."""
    status, printed = on_terminal([ATTN, *words])
    check(f"{words[0]} on a terminal", status == 0, printed[-200:])
    return printed


def clean(name, printed, lines=True):
    text = printed.decode("utf-8", "replace")
    bad = sorted({f"U+{ord(c):04X}" for c in text if c in set(HIDDEN) - ({"\n", "\t"} if lines else set())} | ({"broken"} if "\ufffd" in text else set()))
    check(f"{name}: nothing of it gets through", not bad, " ".join(bad))
    return text


def main():
    os.chdir(tempfile.mkdtemp(prefix="attn-terminal-"))
    tokens = [f"a{c}b" for c in HIDDEN + SHOWN]
    n = len(tokens)
    zeros = ("F32", (1, n, 1), [0.0] * n)
    tensor_file.write("tokens.safetensors", {"q": zeros, "k": zeros}, tokens=json.dumps(tokens))
    out, _ = run("top", "tokens.safetensors", "--token", "#0", "--count", str(n))
    text = clean("tokens", out)
    check("  they are seen", text.count("a?b") == len(HIDDEN) + n, text.count("a?b"))
    for c in SHOWN:
        check(f"  U+{ord(c):04X} is as it is", f"a{c}b" in text)
    out, _ = run("top", "tokens.safetensors", "--token", "#0", "--json")
    clean("JSON", out)
    check("  which says what they are", json.loads(out)["tokens"] == tokens)
    for c in HIDDEN:
        if c != "\0":
            out = subprocess.run([ATTN, "top", "tokens.safetensors", "--token", f"a{c}b", "-n1"], capture_output=True, check=False).stdout
            if "'a?b'".encode() not in out.split(b"\n")[0]:
                check(f"--token with U+{ord(c):04X}", False, out[:100])
    all_of = "".join(HIDDEN[1:])
    _, err = run("top", "tokens.safetensors", "--token", "zz" + all_of[:30], status=2)
    clean("an unknown token", err)

    one = ("F32", (2, 1), [1.0, 2.0])
    names = {f"n{c}": one for c in HIDDEN}
    tensor_file.write("shown.safetensors", {**names, "q": one, "k": one, "v": one}, **{f"m{c}": f"v{c}" for c in HIDDEN})
    for words in ([], ["--csv"], [f"n{HIDDEN[-1]}"], [f"--diff=none{HIDDEN[5]}"], ["--diff=tokens.safetensors"]):
        p = subprocess.run([ATTN, "show", "shown.safetensors", *words], capture_output=True, check=False)
        clean(f"show {' '.join(words)[:8]!r}", p.stdout + p.stderr)
    for words in (["run", "-o", "-", f"--q=1 {HIDDEN[7]}"], ["make", f"fwd:sq4:d{HIDDEN[9]}", "-o", "x.npz"], ["completions", HIDDEN[3]]):
        clean(words[0], subprocess.run([ATTN, *words], capture_output=True, check=False).stderr)
    tensor_file.write("names.safetensors", {"q": one, "k": one, "v": one, **names})
    text = clean("names of tensors", terminal("run", "names.safetensors", "-o", "o.safetensors"))
    check("  they are listed", text.count("n?") == len(names), text)
    text = clean("a path", terminal("run", "names.safetensors", "-o", "o\x9b\u202eo\x1b.safetensors"))
    check("  it is told", "o??o?.safetensors" in text, text)
    out, _ = run("run", "names.safetensors", "-o", "o.safetensors", "--json")
    clean("JSON of names", out)
    check("  is right", set(json.loads(out)["unused"]) == set(names))
    text = clean("view", terminal("view", "tokens.safetensors", "-o", "p\u202e.html"))
    check("  it is told", "wrote p?.html" in text, text)
    tensor_file.write("w.safetensors", {"weights": ("F32", (1, 1, 1), [1.0])})
    text = clean("plot", terminal("plot", "weights", "w.safetensors", "-o", "p\x9b.svg"))
    check("  it is told", "wrote p?.svg" in text, text)

    for c in HIDDEN:
        tensor_file.write("bad.safetensors", {f"bad{c}name": ("F32", (3,), b"")})
        p = subprocess.run([ATTN, "run", "bad.safetensors", "-o", "o.safetensors"], capture_output=True, check=False)
        if p.returncode != 2 or b"'bad?name'" not in p.stderr:
            check(f"a broken tensor with U+{ord(c):04X}", False, p.stderr)
    for words in (["run", "no\x9b\u202e"], ["ru\u202e"], ["top", "--tok\x9b"], ["explain", "fwd:\u2066sq"], ["mask", "\u202ecausal", "-n3"],
                  ["einsum", "b\x9b,b->b"], ["check", "fwd:\u202ef32"], ["plot", "wei\u202e", "x"], ["hopfield", "no\x9b"]):
        _, err = run(*words, status=2)
        clean(f"{words[0]!a} rejects", err)
    check("broken UTF-8", b"zz??'" in subprocess.run([ATTN, b"zz\x9b\xff"], capture_output=True, check=False).stderr)

    os.makedirs("suite")
    with open("suite/manifest.json", "w", encoding="utf-8") as file:
        json.dump({"suite": f"s{all_of}", "cases": [{"name": f"c{all_of}"}]}, file)
    out, _ = run("check", "--conformance", "suite", status=1)
    clean("a suite", out)
    return finish()


sys.exit(main())
