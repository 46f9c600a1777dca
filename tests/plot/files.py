# SPDX-License-Identifier: MIT
"""Helpers of the tests of `attn plot`: files made by the other commands, reading and writing tensors."""

import json
import math
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import tensor_file

ATTN, MAKE, STREET = sys.argv[1:4]


def run(*words, out=None):
    """Standard output of a command that must succeed; `out` names a file for it."""
    done = subprocess.run([ATTN, *words], capture_output=True, text=True)
    if done.returncode:
        raise AssertionError(f"attn {' '.join(words)}: {done.returncode}: {done.stderr}")
    if out:
        with open(out, "w") as file:
            file.write(done.stdout)
    return done.stdout


def kinds():
    """The kinds of pictures that attn plot --help lists."""
    return re.findall(r"^  ([a-z]+) ", run("plot", "--help").split("\nKinds")[1], re.M)


def make(*words):
    subprocess.run([MAKE, *words], check=True)


def load(path):
    """{name: (shape, numbers)} of a .safetensors file."""
    return {name: (shape, numbers) for name, (_, shape, numbers) in tensor_file.read(path)[0].items()}


def save(file_name, **tensors):
    """Writes f64 tensors (shape, numbers)."""
    tensor_file.write(file_name, {name: ("F64", *t) for name, t in tensors.items()})


PATTERNS = [1.2, 1.0, -1.3, 0.8, -0.9, -1.2, 1.1, -1.0]
STATES = [0.3, 0.2, -0.2, 0.4, -1.5, -0.3, 0.5, -1.6]


def bench(lengths, times, **more):
    """The JSON of `attn bench --json` for problems of known times."""
    rows = [{"problem": f"{kind}:f32:hq8:sq{n}:d64", "seconds": {"p10": t(n), "median": t(n), "p90": 1.1 * t(n), "p99": 1.2 * t(n)},
             "workspace_bytes": 4096, "extra_bytes": 8192, "scores_bytes": 32 * n * n, **more}
            for kind, t in times.items() for n in lengths]
    return {"machine": {"cpu": "a test", "threads": 2}, "results": rows}


def make_all():
    """Makes the input files of every kind of picture in the current folder; returns {kind: arguments of attn plot}."""
    run("run", STREET, "-o", "out.safetensors", "--weights", "--scores=biased", "--entropy")
    run("run", STREET, "-o", "cosine.safetensors", "--weights", "--score=cosine")
    make("in.safetensors", "q:f32:4x12x32", "k:f32:2x12x32", "v:f32:2x12x24", "do:f32:4x12x24")
    run("run", "in.safetensors", "-o", "gradients.safetensors", "--backward", "--causal")
    run("analyze", "in.safetensors", "--gradients", "--json", out="analyze.json")
    run("analyze", STREET, "--roles", "--json", out="roles.json")
    run("mask", "longformer/8/2", "causal", "-n", "20", "-o", "mask.safetensors")
    run("mask", "causal", "-n", "80", "-o", "large.safetensors")
    save("memory.safetensors", patterns=([4, 2], PATTERNS), states=([4, 2], STATES))
    run("hopfield", "memory.safetensors", "-o", "ways.safetensors", "--beta=4", "--iterations=6", "--json", out="ways.json")
    save("close_patterns.safetensors", patterns=([2, 2], [1.0, 1.0, 1.01, 1.0]))  # energies that differ in the fifth digit
    run("hopfield", "close_patterns.safetensors", "-o", "close.safetensors", "--noise=0.01")
    save("loss.safetensors", loss=([400], [2.5 * math.exp(-n / 50) + 0.001 for n in range(400)]))
    save("few.safetensors", loss=([3], [1.0, 0.0, 0.5]))
    with open("bench.json", "w") as file:
        json.dump(bench([256, 512, 1024, 2048], {"fwd": lambda n: 1e-8 * n * n, "linear": lambda n: 2e-6 * n},
                        seconds_all=[0.001 * k for k in range(1, 11)]), file)
    with open("scaling.json", "w") as file:
        json.dump({"machine": {"cpu": "Some <CPU>", "mpi": "An MPI 1.2", "ranks": 4, "threads": 2},
                   "results": [{"problem": "fwd:f32:sq8:d8", "scaling": kind, "ranks": ranks, "speedup": ranks * part ** n,
                                "efficiency": part ** n, "efficiency_best": 1.1 * part ** n, "share_of_messages": 0.1 * n}
                               for kind, part in (("strong", 0.8), ("weak", 0.9)) for n, ranks in enumerate((1, 2, 4))]}, file)
    with open("peers.json", "w") as file:
        json.dump({"cpu": "Some <CPU>", "isa": "avx2", "threads": 2, "date": "2026-01-02", "command": "bench/peers.py", "versions": {"One": "1.2"},
                   "rows": [{"words": "forward `sq8`", "ratios": {"One": 2, "Other & more": 12.5}},
                            {"words": "one query", "ratios": {"Other & more": 0.5}}]}, file)
    return {"weights": ("weights", "out.safetensors", "--layer=3", "--head=1"),
            "heads": ("heads", "out.safetensors"),
            "steps": ("steps", "out.safetensors", STREET, "--layer=3", "--head=1"),
            "compare": ("compare", "out.safetensors", "cosine.safetensors", "--layer=3", "--head=1", "--query=9"),
            "entropy": ("entropy", "out.safetensors"),
            "temperature": ("temperature", "out.safetensors", "--layer=3", "--head=1", "--query=9"),
            "gradients": ("gradients", "gradients.safetensors", "--head=2"),
            "norms": ("gradients", "analyze.json"),
            "roles": ("roles", "roles.json"),
            "mask": ("mask", "mask.safetensors"),
            "large": ("mask", "large.safetensors"),
            "hopfield": ("hopfield", "ways.safetensors"),
            "close": ("hopfield", "close.safetensors"),
            "energies": ("hopfield", "ways.json"),
            "loss": ("loss", "loss.safetensors"),
            "few": ("loss", "few.safetensors"),
            "runtime": ("runtime", "bench.json"),
            "latency": ("latency", "bench.json"),
            "scaling": ("scaling", "scaling.json"),
            "peers": ("peers", "peers.json")}
