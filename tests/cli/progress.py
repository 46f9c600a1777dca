#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`attn run` on a terminal: a bar on long work, which is done in slices then and gives the same bits."""

import os
import pty
import subprocess
import sys
import tempfile
import time

ATTN, MAKE = sys.argv[1:3]
count = failed = 0


def check(name, good, why=""):
    global count, failed
    count, failed = count + 1, failed + (not good)
    print(f"{'ok' if good else 'not ok'} {count} - {name} {'' if good else why}")


def on_terminal(*words):
    """What the command wrote on standard error, which is a terminal."""
    mine, its = pty.openpty()
    with subprocess.Popen([ATTN, *words], stdout=subprocess.DEVNULL, stderr=its) as process:
        os.close(its)
        said = b""
        while True:
            try:
                part = os.read(mine, 4096)
            except OSError: # the other end is closed
                part = b""
            if not part:
                break
            said += part
    os.close(mine)
    return process.returncode, said.decode()


def same(a, b):
    with open(a, "rb") as one, open(b, "rb") as two:
        return one.read() == two.read()


def main():
    global count
    # Above the work that is short on any CPU (compute.c); scalar code takes more than the second after which a bar is shown.
    subprocess.run([MAKE, "in.safetensors", "q:f32:2x4x1408x40", "k:f32:2x2x1408x40", "v:f32:2x2x1408x32", "do:f32:2x4x1408x32", "dlse:f32:2x4x1408",
                    "mask:bool:2x1x1408x1408:1", "lengths_kv:i64:2:1380"], check=True)
    backward = ("run", "in.safetensors", "--backward", "--threads=1")
    subprocess.run([MAKE, "bshd.safetensors", "q:f32:2x1408x4x40", "k:f32:2x1408x2x40", "v:f32:2x1408x2x32", "do:f32:2x1408x4x32"], check=True)
    for name, words in (("plain", (*backward, "--ignore=mask")), ("mask", backward), ("window", (*backward, "--window=1400,900", "--ignore=mask")),
                        ("bshd", ("run", "bshd.safetensors", "--backward", "--layout=bshd"))):
        whole = subprocess.run([ATTN, *words, "-o", "whole.safetensors"], capture_output=True, text=True)
        status, said = on_terminal(*words, "-o", "sliced.safetensors")
        check(f"{name}: done", (whole.returncode, status, whole.stderr) == (0, 0, ""), whole.stderr + said)
        check(f"{name}: the same bits", same("whole.safetensors", "sliced.safetensors"))
    begin = time.monotonic()
    status, said = on_terminal(*backward, "--isa=scalar", "--dtype=f64", "--softcap=3", "--ignore=mask", "-o", "sliced.safetensors")
    if time.monotonic() - begin < 2 and not said:
        count += 1
        print(f"ok {count} - a bar # skip: this machine is done before one is shown")
    else:
        check("a bar, taken away at the end", "gradients [" in said and "%" in said and said.endswith("\r"), repr(said[-200:]))
    print(f"1..{count}")
    return failed > 0


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    status = main()
    os.chdir("/")
sys.exit(status)
