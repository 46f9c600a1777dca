#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`attn run --invariant`: a query has the same bits alone and in a batch.  `--reproducible`: the same files with avx2 and avx512."""

import json
import os
import random
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import tensor_file
from tap import check, finish

ATTN = os.path.abspath(sys.argv[1])
H, HKV, N, S, D = 4, 2, 70, 333, 64


def run(*words, **environment):
    done = subprocess.run([ATTN, *words], capture_output=True, text=True, env={**os.environ, **environment})
    if done.returncode:
        sys.exit(f"attn {' '.join(words)}: {done.returncode} {done.stderr}")
    return done.stdout


def outputs(path):
    return tensor_file.read(path)[0]


def chunks(t):
    """A subset of the queries has the same rows of o and lse, in each head, as all queries together."""
    save = lambda rows: tensor_file.write("in.safetensors", {
        "q": ("F32", [H, len(rows), D], [x for h in range(H) for i in rows for x in t["q"][(h * N + i) * D:(h * N + i + 1) * D]]),
        "k": ("F32", [HKV, S, D], t["k"]), "v": ("F32", [HKV, S, D], t["v"])})

    def rows_of(rows, *options):
        save(rows)
        run("run", "in.safetensors", "-o", "out.safetensors", "--lse", *options)
        out = outputs("out.safetensors")
        n, o, lse = len(rows), out["o"][2], out["lse"][2]
        return [(o[(h * n + i) * D:(h * n + i + 1) * D], lse[h * n + i]) for h in range(H) for i in range(n)]

    for option in ([], ["--causal=bottom-right"]):
        whole = rows_of(range(N), "--invariant", *option)
        plain = rows_of(range(N), *option)
        for first in (N - 1, N - 2, N - 5, N - 33, *(() if option else (0, 17))):
            # aligned at the end: a subset must be the last queries
            rows = range(first, N) if option else range(first, min(first + 3, N))
            expected = [whole[h * N + i] for h in range(H) for i in rows]
            others = sum(a != plain[h * N + i] for (h, i), a in zip(((h, i) for h in range(H) for i in rows), rows_of(rows, *option)))
            check(f"queries {rows.start} to {rows.stop - 1} alone {option} ({others} of {len(expected)} differ without --invariant)",
                  rows_of(rows, "--invariant", *option) == expected)


def instruction_sets(t):
    kernels = json.loads(run("info", "--json"))["kernels"]
    missing = [isa for isa in ("avx2", "avx512") if not any(k["name"] == f"attn_fwd_f32_{isa}" and k["usable"] for k in kernels)]
    if missing:
        check(f"--reproducible # SKIP this CPU has no {' and no '.join(missing)}", True)
        return
    sets = ("avx2", "avx512")
    for kind in ("F32", "F64"):
        tensor_file.write("in.safetensors", {"q": (kind, [H, N, D], t["q"]), "k": (kind, [HKV, S, D], t["k"]),
                                             "v": (kind, [HKV, S, D], t["v"]), "do": (kind, [H, N, D], t["do"])})
        for words in ([], ["--causal=bottom-right", "--softcap=3"], ["--window=9,9"]):
            for isa in sets:
                run("run", "in.safetensors", "-o", f"{isa}.npy", "--reproducible", *words, ATTN_ISA=isa)
                run("run", "in.safetensors", "-o", f"{isa}.safetensors", "--reproducible", "--backward", "--lse", *words, ATTN_ISA=isa)
                run("run", "in.safetensors", "-o", f"{isa}.plain.safetensors", "--backward", "--lse", *words, ATTN_ISA=isa)
            files = [open(f"{isa}.npy", "rb").read() for isa in sets]
            check(f"{kind} {words}: the same file", files[0] == files[1])
            a, b = (outputs(f"{isa}.safetensors") for isa in sets)
            p, r = (outputs(f"{isa}.plain.safetensors") for isa in sets)
            differ = [name for name in p if p[name] != r[name]]
            check(f"{kind} {words} --backward: the same o, lse, dq, dk, dv ({' '.join(differ) or 'none'} differ without the flag)",
                  sorted(a) == ["dk", "dq", "dv", "lse", "o"] and a == b,
                  str([name for name in a if a[name] != b[name]]))
            used = [tensor_file.read(f"{isa}.safetensors")[1]["attn_kernel"] for isa in sets]
            check("  by kernels of both", all(isa in name for isa, name in zip(sets, used)), str(used))


def main():
    rng = random.Random(7)
    sizes = {"q": H * N * D, "k": HKV * S * D, "v": HKV * S * D, "do": H * N * D}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        t = {name: [rng.gauss(0, 1) for _ in range(size)] for name, size in sizes.items()}
        chunks(t)
        instruction_sets(t)
        os.chdir("/")
    sys.exit(finish())


main()
