#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`attn cost`: every number by its formula (include/attn/cost.h), layers and caches by theirs; rejected arguments.

usage: cost.py ATTN
"""
import json
import math
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from tap import check, finish

ATTN = os.path.abspath(sys.argv[1])


def cost(*words):
    return subprocess.run([ATTN, "cost", *words], capture_output=True, text=True, stdin=subprocess.DEVNULL)


def done(*words):
    made = cost(*words, "--json")
    check(" ".join(words), made.returncode == 0 and made.stderr == "", made.stderr)
    return json.loads(made.stdout)


def rejected(status, message, *words):
    made = cost(*words)
    check(f"{' '.join(words)}: {message}", (made.returncode, made.stderr, made.stdout) == (status, f"attn cost: {message}\n", ""), (made.returncode, made.stderr))


def attention():
    b, hq, hkv, n, m, d, dv, s, fast = 2, 4, 2, 64, 100, 16, 24, 2, 4096
    told = done(f"fwd:f16:b{b}:hq{hq}:hkv{hkv}:sq{n}:skv{m}:d{d}:dv{dv}", f"--fast={fast}", "--features=20", "--peak=2", "--bandwidth=3")
    pairs = b * hq * n * m
    qkv, out, lse = s * b * (hq * n * d + hkv * m * (d + dv)), s * b * hq * n * dv, 4 * b * hq * n
    operations, linear = 2 * (d + dv) * pairs, 2 * 20 * dv * b * (hkv * m + hq * n)
    tile = fast // s // (4 * dv)  # queries
    block = math.isqrt(fast // s // 3)  # of the second product, whose factors fill more than half: its values are read for each row of blocks
    again = s * m * dv * (b * hq * -(-n // block) - b * hkv)
    assert n * d <= fast // s // 2 < m * dv and dv <= block and -(-n // block) < -(-n // tile)
    tiled = s * b * hq * n * (d + dv) + lse + s * b * hq * -(-n // tile) * m * (d + dv)
    expected = {"pairs": pairs, "scores": pairs, "qkv_bytes": qkv, "output_bytes": out, "lse_bytes": lse, "matrix_bytes": s * pairs,
                "cache_bytes": s * b * m * hkv * (d + dv), "latent_bytes": 0, "state_bytes": s * b * hkv * 20 * dv}
    for name, number in expected.items():
        check(f"  {name}", told[name] == number, (told[name], number))
    for method, work, backward, traffic, extra in (("tiled", operations, 2.5 * operations, tiled, lse),
                                                   ("matrix", operations, 2.5 * operations, qkv + out + 2 * s * pairs + again, s * pairs),
                                                   ("linear", linear, 2 * linear, qkv + out, s * b * hkv * 20 * dv)):
        found = told["methods"][method]
        exact = {"operations": work, "backward_operations": backward, "traffic_bytes": traffic, "extra_bytes": extra, "intensity": work / traffic,
                 "attainable": min(2e9, 3e9 * (work / traffic))}
        for name, number in exact.items():
            check(f"  {method}: {name}", abs(found[name] / number - 1) <= 2 ** -49, (found[name], number))
    check("a causal mask", done("sq10:d8:causal")["pairs"] == 55)
    check("a window", done("sq10:d8:causal:window=2,0")["pairs"] == 27)
    check("keys of i8 have no linear attention", set(done("decode:int8:hq2:sq1:skv9:d64")["methods"]) == {"tiled", "matrix"})


def layers():
    e, hq, hkv, d, n = 100, 4, 2, 16, 32
    told = done(f"fwd:f16:b3:hq{hq}:hkv{hkv}:sq{n}:d{d}", f"--width={e}", "--rank=24", "--rotary=8")
    if not told["layers"]:  # a build without layers
        return
    expected = [(kind, h, 2 * e * hq * d + 2 * e * h * d, 2 * 2 * h * d) for kind, h in (("multi-head", hq), ("grouped-query", hkv), ("multi-query", 1))]
    expected += [("latent", None, e * hq * (d + 8) + e * (24 + 8) + 24 * hq * 2 * d + e * hq * d, 2 * (24 + 8))]
    found = [(row["kind"], row.get("heads_kv"), row["parameters"], row["cache_bytes_per_token"]) for row in told["layers"]]
    check("  parameters, and the cache of a token", found == expected, (found, expected))
    check("  the whole cache", all(row["cache_bytes"] == 3 * n * row["cache_bytes_per_token"] for row in told["layers"]))
    check("  the cache of latents alone", told["latent_bytes"] == 2 * 3 * n * 24)
    flops = 2 * 3 * n * (2 * e * hq * d + 2 * e * hq * d) + 2 * 2 * d * 3 * hq * n * n
    check("  operations of the layer", told["layers"][0]["flops"] == flops, (told["layers"][0]["flops"], flops))
    told = done("decode:int8:hq4:sq1:skv9:d64")["layers"]
    check("a cache of i8 with its scales", [row["cache_bytes_per_token"] for row in told] == [4 * 2 * (64 + 4), 2 * (64 + 4)], told)
    text = cost("fwd:f16:hq4:sq8:d16").stdout
    rows = [line.split() for line in text.splitlines()]
    check("as text", text.startswith("fwd:f16:hq4:sq8:d16\n") and ["multi-head,", "4", "16384", "256", "2048"] in [row[:5] for row in rows], text)


def rejections():
    rejected(2, "no problem; for example: attn cost fwd:f16:hq32:hkv8:sq8192:d128:causal")
    rejected(2, "--peak and --bandwidth go together", "sq4:d8", "--peak=3")
    rejected(2, "--rotary has no effect without --rank", "sq4:d8", "--rotary=4")
    made = cost("sq4:d8", "--rank=4", "--rotary=3")
    check("an odd --rotary", made.returncode == 2 and "dim_rotary" in made.stderr and made.stdout == "", made.stderr)
    made = cost("sq4:d8:causall")
    check("a word that is unknown", made.returncode == 2 and "causal" in made.stderr and made.stdout == "", made.stderr)


attention()
layers()
rejections()
sys.exit(finish())
