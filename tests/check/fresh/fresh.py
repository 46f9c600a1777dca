#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""attn check --conformance on generated cases: the formats of other projects' suites, with random sizes, options and numbers.

usage: fresh.py ATTN [SEEDS [FIRST]]        ATTN_FRESH_SEEDS: number of seeds;  ATTN_FRESH_KEEP: a folder to keep the cases in

Every case must pass, and must fail after one of its expected numbers is changed.
"""
import json
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
except ImportError:
    print("skipped: no numpy")
    sys.exit(77)

import layers
import linear
import masks
import mechanisms
import places
import scores
from core import write

SUITES = {
    "allennlp_scoring": scores.allennlp,
    "keras_attention": scores.keras,
    "flex_attention": scores.flex,
    "masks": masks.masks,
    "positions": places.places,
    "axlearn_golden": places.axlearn,
    "ort_longformer_attention": masks.longformer,
    "ort_relative_attention_bias": places.distance_bias,
    "ort_rotary_embedding": places.rotary_ort,
    "ort_gemma_rotary_emb": places.rotary_gemma,
    "mechanism_grad": mechanisms.mechanisms,
    "torch_multihead_attention": layers.torch_layers,
    "ort_attention": layers.ort_layers,
    "ort_packed_attention": layers.ort_packed,
    "ort_decoder_attention": layers.ort_decoder,
    "ort_multihead_attention": layers.ort_multihead,
    "fla_linear_attention": linear.fla,
    "onnx_attention": linear.onnx,
}


def run(attn, folder):
    done = subprocess.run([attn, "check", "--conformance", folder, "--json"], capture_output=True, text=True, check=False)
    if not done.stdout:
        sys.exit("no output: " + done.stderr)
    return json.loads(done.stdout)["cases"]


def spoil(case, rng):
    """Changes one number of one output by more than any tolerance; returns which one, or None if the case has none."""
    names = [name for name, (_, x) in case.tensors.items() if name.startswith("out.") and x.size and np.isfinite(x.astype(float)).all()]
    if not names:
        return None
    name = names[int(rng.integers(0, len(names)))]
    dtype, values = case.tensors[name]
    changed = values.copy()
    at = int(rng.integers(0, values.size))
    changed.reshape(-1)[at] = not values.reshape(-1)[at] if dtype == "BOOL" else values.reshape(-1)[at] + 1 + abs(values).max() // 8
    case.tensors[name] = (dtype, changed)
    return "%s[%d]" % (name, at)


def main():
    attn = os.path.abspath(sys.argv[1])
    seeds = int(os.environ.get("ATTN_FRESH_SEEDS") or (sys.argv[2] if len(sys.argv) > 2 else 2))
    first = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    keep = os.environ.get("ATTN_FRESH_KEEP")
    wrong = []
    with tempfile.TemporaryDirectory() as room:
        right, spoiled = os.path.join(keep or room, "right"), os.path.join(keep or room, "spoiled")
        changes = {}
        for number, (suite, make) in enumerate(SUITES.items()):
            cases, bad = [], []
            for seed in range(first, first + seeds):
                cases += make(np.random.default_rng([seed, number]), seed)
            write(right, suite, cases)
            rng = np.random.default_rng([first, number])
            for case in cases:
                changes[suite, case.json["name"]] = spoil(case, rng)
                bad += [case] if changes[suite, case.json["name"]] else []
            write(spoiled, suite, bad)
        counts = {suite: 0 for suite in SUITES}
        for c in run(attn, right):
            counts[c["suite"]] += c["status"] == "passed"
            if c["status"] != "passed":
                wrong.append("%s %s: %s, %s" % (c["suite"], c["name"], c["status"], c["reason"]))
        for c in run(attn, spoiled):
            if c["status"] != "failed":
                wrong.append("%s %s: %s though %s is wrong" % (c["suite"], c["name"], c["status"], changes[c["suite"], c["name"]]))
    for suite, passed in counts.items():
        print("%s: %d passed" % (suite, passed))
    for line in wrong:
        print("FAILED: " + line)
    sys.exit(1 if wrong else 0)


main()
