#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`attn merge`: two halves of the keys give what all of them give, and so do the gradients of the halves; rejected files.

usage: merge.py ATTN
"""
import json
import math
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import tensor_file
from one_command import done, rejects
from tap import check, finish, run_in_folder

B, H, N, M, D = 2, 3, 4, 10, 8
U = 2.0 ** -53


def rejected(status, message, *words):
    rejects("merge", status, message, *words)


def waves(count, seed):
    return [math.sin(seed + 1.7 * n) for n in range(count)]


def keys(numbers, first, last):
    """Tokens first .. last-1 of [B, H, M, D]."""
    return [x for n in range(B * H) for x in numbers[(n * M + first) * D:(n * M + last) * D]]


def main():
    q, k, v, do = waves(B * H * N * D, 1), waves(B * H * M * D, 2), waves(B * H * M * D, 3), waves(B * H * N * D, 4)
    dlse = waves(B * H * N, 5)
    given = {"q": ("F64", [B, H, N, D], q), "do": ("F64", [B, H, N, D], do), "dlse": ("F64", [B, H, N], dlse)}
    for name, first, last in (("all", 0, M), ("left", 0, 4), ("right", 4, M)):
        tensor_file.write(f"{name}_in.safetensors", {**given, **{x: ("F64", [B, H, last - first, D], keys(t, first, last)) for x, t in (("k", k), ("v", v))}})
        done("run", f"{name}_in.safetensors", "-o", f"{name}.safetensors", "--lse", "--backward", "--dtype=f64")
    done("merge", "left.safetensors", "right.safetensors", "-o", "whole.safetensors")
    whole, expected = (tensor_file.read(f"{name}.safetensors")[0] for name in ("whole", "all"))
    check("o and lse of all keys", set(whole) == {"o", "lse"})
    for name in ("o", "lse"):  # fewer than 64 roundings of numbers up to 4
        check(f"  {name}", whole[name][:2] == expected[name][:2] and all(abs(a - b) <= 64 * U * 4 for a, b in zip(whole[name][2], expected[name][2])))
    # Each half's gradients, carried through its own attention, are those of all keys.
    parts = [tensor_file.read(f"{name}.safetensors")[0] for name in ("left", "right")]
    for name, part in zip(("left", "right"), parts):
        tensor_file.write(f"{name}_do.safetensors", {"o": part["o"], "lse": part["lse"], **({"do": given["do"], "dlse": given["dlse"]} if name == "right" else {})})
    told = json.loads(done("merge", "left_do.safetensors", "right_do.safetensors", "-o", "gradients.safetensors", "--backward", "--json"))
    check("--json", told["parts"] == 2 and [row["name"] for row in told["results"]] == ["dlse_0", "dlse_1", "do_0", "do_1"], told)
    gradients = tensor_file.read("gradients.safetensors")[0]
    for n, (name, first, last) in enumerate((("left", 0, 4), ("right", 4, M))):
        tensors = tensor_file.read(f"{name}_in.safetensors")[0]
        tensor_file.write("part.safetensors", {**tensors, "do": gradients[f"do_{n}"], "dlse": gradients[f"dlse_{n}"]})
        done("run", "part.safetensors", "-o", "part_out.safetensors", "--backward", "--dtype=f64")
        found = tensor_file.read("part_out.safetensors")[0]
        for x in ("dk", "dv"):
            check(f"  {x} of the {name} keys", all(abs(a - b) <= 512 * U * 8 for a, b in zip(found[x][2], keys(expected[x][2], first, last))))
    tensor_file.write("single.safetensors", {"o": ("F32", [2, 3], [1.0] * 6), "lse": ("F32", [2], [0.0, 1.0])})
    done("merge", "single.safetensors", "single.safetensors", "-o", "twice.safetensors")
    twice = tensor_file.read("twice.safetensors")[0]
    check("a part twice: the same o, lse + log 2", twice["o"][2] == (1.0,) * 6 and abs(twice["lse"][2][0] - math.log(2)) <= 2 ** -24, twice)

    rejected(2, "no output file; for example: attn merge left.safetensors right.safetensors -o whole.safetensors", "single.safetensors")
    rejected(2, "no input file; for example: attn merge left.safetensors right.safetensors -o whole.safetensors", "-o", "out.npz")
    rejected(2, "gone.npz: cannot open: No such file or directory", "single.safetensors", "gone.npz", "-o", "out.npz")
    rejected(2, "single.safetensors: this output is an input, which would be replaced", "single.safetensors", "-o", "single.safetensors")
    rejected(2, "left.safetensors: tensor 'o' is [2, 3, 4, 8] of f64; the first file has [2, 3] of f32", "single.safetensors", "left.safetensors", "-o", "out.npz")
    rejected(2, "all_in.safetensors: no tensor 'o' (available: dlse, do, k, q, v)", "all_in.safetensors", "-o", "out.npz")
    rejected(2, "--backward needs a tensor 'do' in one of the files", "single.safetensors", "-o", "out.npz", "--backward")
    tensor_file.write("bad.safetensors", {"o": ("F32", [2, 3], [1.0] * 6), "lse": ("F32", [3], [0.0] * 3)})
    rejected(2, "bad.safetensors: tensor 'lse' is [3]; it must be that of o without its last axis", "bad.safetensors", "-o", "out.npz")
    tensor_file.write("bad.safetensors", {"o": ("F32", [2, 3], [1.0] * 6), "lse": ("F32", [2], [0.0] * 2), "do": ("F32", [3, 2], [1.0] * 6)})
    rejected(2, "bad.safetensors: tensor 'do' is [3, 2] of f32; the first file has [2, 3] of f32", "bad.safetensors", "-o", "out.npz", "--backward")
    return finish()


run_in_folder(main)
