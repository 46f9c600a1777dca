#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What a call from Python costs beyond the C kernel: one thread, a problem of a few microseconds.

    PYTHONPATH=build/release/python lab/python/calls.py build/release/attn

The kernel is timed by `attn bench`, the calls by loops of Python, in alternate rounds; times are the best of all rounds, since other
load only adds.  `over` is what a call takes beyond the kernel.
"""
import argparse
import gc
import json
import subprocess
import sys
import time

import numpy as np

import libattn
from libattn import _core

PROBLEM, SHAPE = "fwd:f32:hq12:sq14:d32", (1, 12, 14, 32)
NAMES = ("q", "k", "v", "o", "threads")
LOOP = 100


def kernel(attn):
    """Seconds of one execution of a plan, the best of a round."""
    command = [attn, "bench", PROBLEM, "--threads=1", "--seconds=0.2", "--json", "--quiet"]
    found = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return found["results"][0]["seconds"]["min"]


def calls():
    """Functions to time, by what they are."""
    q, k, v = np.random.default_rng(0).standard_normal((3, *SHAPE)).astype("f")
    out, mask = np.empty_like(q), np.ones((14, 14), bool)
    return {
        "_core, out=": lambda: _core.compute(0, "bhsd", None, NAMES, q, k, v, out, 1),
        "attention, out=": lambda: libattn.attention(q, k, v, out=out, threads=1),
        "attention": lambda: libattn.attention(q, k, v, threads=1),
        "attention, causal=True": lambda: libattn.attention(q, k, v, causal=True, threads=1),
        "attention, mask=": lambda: libattn.attention(q, k, v, mask=mask, threads=1),
        "attention, return_lse=True": lambda: libattn.attention(q, k, v, return_lse=True, threads=1),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("attn", help="the command")
    parser.add_argument("--rounds", type=int, default=10)
    arguments = parser.parse_args()
    timed = calls()
    best = dict.fromkeys(["kernel", *timed], float("inf"))
    gc.disable()
    for _ in range(arguments.rounds):
        best["kernel"] = min(best["kernel"], kernel(arguments.attn))
        for name, function in timed.items():
            for _ in range(100):
                start = time.perf_counter()
                for _ in range(LOOP):
                    function()
                best[name] = min(best[name], (time.perf_counter() - start) / LOOP)
    print(f"| {PROBLEM} | us | over |\n|---|--:|--:|")
    for name, seconds in best.items():
        print(f"| {name} | {seconds * 1e6:.2f} | {(seconds - best['kernel']) * 1e6:.2f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
