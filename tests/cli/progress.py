#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`attn run` on a terminal shows a progress bar, for which it computes in slices, with the same bits."""

import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from on_terminal import on_terminal
from tap import check, finish, run_in_folder

ATTN, MAKE = sys.argv[1:3]


def watched(*words, eager="1"):
    """Exit status, and the text on standard error, a terminal; eager: bar and slices even for short work."""
    status, printed = on_terminal([ATTN, *words], stdout=subprocess.DEVNULL, ATTN_PROGRESS=eager)
    return status, printed.decode()


def same(a, b):
    with open(a, "rb") as one, open(b, "rb") as two:
        return one.read() == two.read()


def main():
    # Enough queries for two slices of different sizes (compute.c), two key heads for slices of gradients.
    subprocess.run([MAKE, "in.safetensors", "q:f32:2x4x1100x40", "k:f32:2x2x300x40", "v:f32:2x2x300x32", "do:f32:2x4x1100x32", "dlse:f32:2x4x1100",
                    "mask:bool:2x1x1100x300:1", "lengths_kv:i64:2:280"], check=True)
    subprocess.run([MAKE, "bshd.safetensors", "q:f32:2x1100x4x40", "k:f32:2x300x2x40", "v:f32:2x300x2x32", "do:f32:2x1100x4x32"], check=True)
    backward = ("run", "in.safetensors", "--backward", "--threads=1")
    for name, words in (("plain", (*backward, "--ignore=mask")), ("mask", backward), ("window", (*backward, "--window=1000,200", "--ignore=mask")),
                        ("bshd", ("run", "bshd.safetensors", "--backward", "--layout=bshd"))):
        whole = subprocess.run([ATTN, *words, "-o", "whole.safetensors"], capture_output=True, text=True)
        status, printed = watched(*words, "-o", "sliced.safetensors")
        check(f"{name}: done", (whole.returncode, status, whole.stderr) == (0, 0, ""), whole.stderr + printed)
        check(f"{name}: the same bits", same("whole.safetensors", "sliced.safetensors"))
        check(f"{name}: a bar, taken away at the end", "gradients [" in printed and "%" in printed and printed.endswith("\r"), repr(printed[-200:]))
    status, printed = watched(*backward, "-o", "sliced.safetensors", eager="")
    check("no bar for short work", (status, printed) == (0, ""), repr(printed))
    status, printed = watched(*backward, "-o", "sliced.safetensors", "--quiet")
    check("none with --quiet", (status, printed) == (0, ""), repr(printed))
    status, printed = watched("train", "seq2seq", "--steps=3")
    if "unknown command" not in printed:  # a build without layers
        check("training shows its loss on the bar", status == 0 and "loss 2." in printed and " [" in printed and printed.endswith("\r"), repr(printed))
    return finish()


run_in_folder(main)
