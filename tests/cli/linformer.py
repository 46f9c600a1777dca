#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`attn run --linformer`: the bits of `attn run` over keys and values that are projected here, whose numbers are exact; gradients
within the bound of a sum; rejected files and flags.

usage: linformer.py ATTN
"""
import itertools
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import tensor_file
from tap import check, finish, run_in_folder

ATTN = os.path.abspath(sys.argv[1])
B, HQ, HKV, N, M, RANK, D, DV = 2, 4, 2, 3, 10, 4, 5, 6
U = {"F32": 2.0 ** -24, "F64": 2.0 ** -53}


def attn(*words):
    return subprocess.run([ATTN, "run", *words], capture_output=True, text=True, stdin=subprocess.DEVNULL)


def done(*words):
    made = attn(*words)
    check(" ".join(words), made.returncode == 0 and made.stdout == made.stderr == "", made.stderr)
    return tensor_file.read(words[words.index("-o") + 1])[0]


def rejected(status, message, *words):
    before = sorted(os.listdir("."))
    made = attn(*words)
    check(f"{' '.join(words)}: {message}", (made.returncode, made.stderr, made.stdout) == (status, f"attn run: {message}\n", ""), (made.returncode, made.stderr))
    check("  nothing written", sorted(os.listdir(".")) == before)


def numbers(count, seed):
    """Multiples of 1/8 below 1, whose products and sums are exact in f32."""
    return [((11 * n * n + 5 * n + seed) % 15 - 7) / 8 for n in range(count)]


class Tensor:
    def __init__(self, shape, values):
        self.shape, self.values = list(shape), list(values)

    def at(self, *place):
        offset = 0
        for size, n in zip(self.shape, place):
            offset = offset * size + n
        return self.values[offset]


def one(dtype, shared, per_head, layout):
    axes = (lambda b, h, t, c: (b, t, h, c)) if layout == "bshd" else (lambda *place: place)

    def make(h, tokens, width, seed):
        return Tensor(axes(B, h, tokens, width), numbers(B * h * tokens * width, seed))
    q, k, v, do = make(HQ, N, D, 1), make(HKV, M, D, 2), make(HKV, M, DV, 3), make(HQ, N, DV, 4)
    matrices = {}
    for n, name in enumerate(("projection",) if shared else ("projection_k", "projection_v")):
        shape = [HKV, M, RANK] if per_head else [M, RANK]
        matrices[name] = Tensor(shape, numbers(M * RANK * (HKV if per_head else 1), 5 + n))
    e = [matrices.get("projection") or matrices[f"projection_{x}"] for x in "kv"]
    element = lambda matrix, h, j, r: matrix.at(h, j, r) if per_head else matrix.at(j, r)
    small = []
    for x, matrix, width in ((k, e[0], D), (v, e[1], DV)):
        y = Tensor(axes(B, HKV, RANK, width), [0.0] * (B * HKV * RANK * width))
        for place in itertools.product(*map(range, y.shape)):
            b, h, r, c = axes(*place)
            y.values[sum(n * s for n, s in zip(place, (y.shape[1] * y.shape[2] * y.shape[3], y.shape[2] * y.shape[3], y.shape[3], 1)))] = \
                sum(element(matrix, h, j, r) * x.at(*axes(b, h, j, c)) for j in range(M))
        small.append(y)
    save = lambda path, **all_: tensor_file.write(path, {name: (dtype, t.shape, t.values) for name, t in all_.items()})
    save("plain.safetensors", q=q, k=small[0], v=small[1], do=do)
    save("in.safetensors", q=q, k=k, v=v, do=do, **matrices)
    flags = ["--backward", "--weights", "--lse", f"--layout={layout}"]
    plain = done("plain.safetensors", "-o", "plain_out.safetensors", *flags)
    found = done("in.safetensors", "-o", "out.safetensors", "--linformer", *flags)
    name = f"{dtype}, {'one matrix' if shared else 'two matrices'}{' by head' if per_head else ''}, {layout}"
    for tensor in ("o", "lse", "weights", "dq"):
        check(f"{name}: the bits of {tensor}", found[tensor] == plain[tensor])
    sums = {m: [[0.0, 0.0] for _ in matrices[m].values] for m in matrices}  # a gradient, and the sum of its terms' sizes
    for n, (x, width, letter) in enumerate(((k, D, "k"), (v, DV, "v"))):
        dy = Tensor(axes(B, HKV, RANK, width), plain[f"d{letter}"][2])
        dx = found[f"d{letter}"]
        good = dx[0] == dtype and dx[1] == x.shape
        for place, value in zip(itertools.product(*map(range, x.shape)), dx[2]):
            b, h, j, c = axes(*place)
            terms = [element(e[n], h, j, r) * dy.at(*axes(b, h, r, c)) for r in range(RANK)]
            good &= abs(value - sum(terms)) <= (RANK + 1) * U[dtype] * sum(map(abs, terms))
        check(f"{name}: d{letter}", good)
        total = sums["projection" if shared else f"projection_{letter}"]
        for b, h, j, r, c in itertools.product(range(B), range(HKV), range(M), range(RANK), range(width)):
            term = x.at(*axes(b, h, j, c)) * dy.at(*axes(b, h, r, c))
            at = (h * M + j) * RANK + r if per_head else j * RANK + r
            total[at][0] += term
            total[at][1] += abs(term)
    for m, total in sums.items():
        terms = B * HKV * (D + DV) + 1
        check(f"{name}: d{m}", found[f"d{m}"][1] == matrices[m].shape and
              all(abs(value - at) <= terms * U[dtype] * size for value, (at, size) in zip(found[f"d{m}"][2], total)))


def rejections():
    base = {"q": ("F32", [2, 3, 4], [0.5] * 24), "k": ("F32", [2, 6, 4], [0.5] * 48), "v": ("F32", [2, 6, 4], [0.5] * 48)}

    def bad(message, *words, status=2, **tensors):
        tensor_file.write("bad.safetensors", {**base, **tensors})
        rejected(status, f"bad.safetensors: {message}", "bad.safetensors", "-o", "never.safetensors", "--linformer", *words)
    e = ("F32", [6, 2], [0.5] * 12)
    bad("--linformer needs a tensor 'projection_k', or 'projection' for keys and values")
    bad("--linformer needs a tensor 'projection_v', or 'projection' for keys and values", projection_k=e)
    bad("tensor 'projection' is [5, 2]; it must be [6, rank], a row for each key, or one such matrix for each of 2 heads", projection=("F32", [5, 2], [0.5] * 10))
    bad("tensor 'projection' is [3, 6, 2]; it must be [6, rank], a row for each key, or one such matrix for each of 2 heads", projection=("F32", [3, 6, 2], [0.5] * 36))
    bad("projection_k has 2 columns, and projection_v 3", projection_k=e, projection_v=("F32", [6, 3], [0.5] * 18))
    mixes = "every projected key mixes all tokens"
    for flag, word in (("--causal", "causal"), ("--window=1,0", "window=1,0"), ("--dropout=0.5", "dropout=0.5"), ("--alibi", "alibi"), ("--rope", "rope")):
        bad(f"--linformer does not go with {word}: {mixes}", flag, projection=e)
    bad(f"--linformer does not go with bias=h1: {mixes}", projection=e, bias=("F32", [3, 6], [0.5] * 18))
    bad("--linformer computes in f32 and f64; --dtype=f32 converts", "--dtype=bf16", projection=e, status=3)
    bad("--linformer is softmax attention, forward and --backward", "--jvp", projection=e, tan_q=base["q"], status=3)
    bad("--linformer is softmax attention, forward and --backward", "--linear", projection=e, status=3)
    tensor_file.write("half.safetensors", {**{n: ("F16", t[1], t[2]) for n, t in base.items()}, "projection": e})
    done("half.safetensors", "-o", "out.safetensors", "--linformer", "--dtype=f32", "--softcap=2", "--temperature=1.5", "--score=cosine")


def main():
    for dtype, shared, per_head, layout in (("F32", 0, 0, "bhsd"), ("F32", 1, 0, "bhsd"), ("F64", 0, 1, "bhsd"), ("F64", 1, 1, "bshd"), ("F32", 1, 0, "bshd")):
        one(dtype, shared, per_head, layout)
    rejections()
    return finish()


run_in_folder(main)
