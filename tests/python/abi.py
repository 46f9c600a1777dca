#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""python/make_abi.py stops at what it does not understand, and at a struct that ctypes lays out otherwise than the compiler."""
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
ABI = (ROOT / "tests/install/abi.txt").read_text(encoding="utf-8")


def made(text, folder):
    (folder / "abi.txt").write_text(text, encoding="utf-8")
    words = [sys.executable, ROOT / "python/make_abi.py", folder / "abi.txt", folder / "out.py"]
    found = subprocess.run(words, capture_output=True, text=True, check=False)
    return found.returncode, found.stderr


def edited(old, new):
    assert old in ABI, old
    return ABI.replace(old, new, 1)


CASES = {
    "a line of no known form": (ABI + "union attn_either: 8 bytes\n", "what is this? union attn_either: 8 bytes"),
    "a macro without a number": (ABI + "macro ATTN_ODD sizeof(int)\n", "the value of the macro ATTN_ODD"),
    "a type that C has and ctypes has not": (ABI + "attn_status attn_odd(long double[2][2] x)\n", "what type is this?"),
    "a struct of another size": (edited("struct attn_error: ", "struct attn_error: 1"), "attn_error has "),
}

with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    status, said = made(ABI, folder)
    if status:
        sys.exit(f"the interface as it is: {said}")
    for what, (text, sentence) in CASES.items():
        status, said = made(text, folder)
        if status == 0 or sentence not in said:
            sys.exit(f"{what}: status {status}, not an error with {sentence!r}: {said}")
print(f"{len(CASES)} broken interfaces")
