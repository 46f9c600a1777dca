#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What a call from Python costs beyond the C kernel: one thread, a problem of a few microseconds.

    PYTHONPATH=build/release/python lab/python/calls.py build/release/attn [--json]

The kernel is timed by `attn bench`, the calls by loops of Python, in alternate rounds; times are the best of all rounds, since other
load only adds.  `over` is what a call takes beyond the kernel.  PyTorch and JAX are timed where they are installed.
"""
import argparse
import gc
import importlib.util
import inspect
import json
import os
import platform
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


def torch_calls():
    if not importlib.util.find_spec("torch"):
        return {}
    import torch
    import torch.nn.functional as F

    import libattn.torch
    torch.set_num_threads(1)
    q, k, v = torch.randn(3, *SHAPE)

    def stock():
        return F.scaled_dot_product_attention(q, k, v)

    def replaced():
        with libattn.torch.using():  # (entered once for a round)
            yield stock
    return {"torch: attention": lambda: libattn.torch.attention(q, k, v), "PyTorch's own": stock, "torch: F.sdpa, enabled": replaced}


def jax_calls():
    if not importlib.util.find_spec("jax"):
        return {}
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    import jax

    import libattn.jax
    q, k, v = (jax.numpy.asarray(x) for x in np.random.default_rng(0).standard_normal((3, *SHAPE)).astype("f"))
    ours = jax.jit(lambda q, k, v: libattn.jax.attention(q, k, v))
    theirs = jax.jit(lambda q, k, v: jax.nn.dot_product_attention(*(x.swapaxes(1, 2) for x in (q, k, v))))
    return {"JAX: attention, jitted": lambda: ours(q, k, v).block_until_ready(), "JAX's own, jitted": lambda: theirs(q, k, v).block_until_ready()}


AIMS = {"_core, out=": 1, "torch: attention": 2, "torch: F.sdpa, enabled": 2, "JAX: attention, jitted": 6}


def best_of(function, loops):
    best = float("inf")
    for _ in range(loops):
        start = time.perf_counter()
        for _ in range(LOOP):
            function()
        best = min(best, (time.perf_counter() - start) / LOOP)
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("attn", help="the command")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--json", action="store_true", help="print one JSON object, for bench/results.py")
    arguments = parser.parse_args()
    timed = calls() | torch_calls() | jax_calls()
    best = dict.fromkeys(["kernel", *timed], float("inf"))
    gc.disable()
    for _ in range(arguments.rounds):
        best["kernel"] = min(best["kernel"], kernel(arguments.attn))
        for name, function in timed.items():
            if inspect.isgeneratorfunction(function):
                for entered in function():
                    best[name] = min(best[name], best_of(entered, 100))
            else:
                best[name] = min(best[name], best_of(function, 100))
    rows = [{"words": name, "us": round(1e6 * seconds, 2), "over": round(1e6 * (seconds - best["kernel"]), 2)} for name, seconds in best.items()]
    if arguments.json:
        versions = {"libattn": libattn.__version__, "python": platform.python_version(), "numpy": np.__version__}
        versions |= {name: sys.modules[name].__version__ for name in ("torch", "jax") if name in sys.modules}
        for row in rows:
            row["aim"] = AIMS.get(row["words"])
        print(json.dumps({"kind": "calls", "threads": 1, "versions": versions, "results": rows}, indent=1))
        return 0
    print(f"| {PROBLEM} | us | over |\n|---|--:|--:|")
    for row in rows:
        print(f"| {row['words']} | {row['us']:.2f} | {row['over']:.2f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
