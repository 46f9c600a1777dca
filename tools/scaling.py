#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Draws docs/pictures/scaling.svg: how attention scales by the model of attn_split_predict, from `attn explain --ranks`, on 1 to 16,384
machines and for 64 thousand to a billion tokens.  A prediction; nothing is measured.

    tools/scaling.py ATTN -o OUT.svg    the picture (tools/pictures.py compares it with docs/pictures)
    tools/scaling.py ATTN --json        what it draws, in the form of `attn-mpi bench --json`
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

RANKS = [4 ** n for n in range(8)]  # to 16,384
LENGTHS = {"64K": 2 ** 16, "1M": 2 ** 20, "16M": 2 ** 24, "1G": 2 ** 30}
PARTS = 2 ** 17
LAYER = "fwd:bf16:hq32:hkv8:sq{}:d128:causal"
NETWORKS = ["200Gbit/s", "10Gbit/s"]


def explain(attn, problem, ranks, network, part):
    """The way of the library with the best time, with its share of time in messages."""
    done = subprocess.run([attn, "explain", problem, f"--ranks={ranks}", f"--network={network}", f"--part={part}", "--json"],
                          check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return next(way for way in json.loads(done.stdout)["ways"] if way["in_library"])


def predict(attn):
    rows = []
    for network in NETWORKS:
        for name, tokens in LENGTHS.items():
            alone = None
            for ranks in RANKS:
                # Zigzag is even with two parts or more of a rank; parts of fewer than 16 tokens are of no use, and more than PARTS take long.
                part = min(max(1024, tokens // PARTS), tokens // (2 * ranks))
                if part < 16:
                    break
                best = explain(attn, LAYER.format(tokens), ranks, network, part)
                alone = alone or best["computing"]
                rows.append({"problem": f"{name} tokens", "scaling": network, "ranks": ranks, "part": part, "way": best["way"],
                             "seconds": {"median": best["seconds"]}, "speedup": alone / best["seconds"], "efficiency": best["efficiency"],
                             "share_of_messages": best["waiting"] / best["seconds"]})
    return {"machine": {"cpu": "a model, 5 Tflop/s a rank, 5 us a message; " + LAYER.format("...")}, "predicted": True, "results": rows}


def draw(attn, to):
    """Writes the picture to the path `to`."""
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "model.json").write_text(json.dumps(predict(attn)), encoding="utf-8")
        subprocess.run([attn, "plot", "scaling", "model.json", "-o", str(pathlib.Path(to).resolve())], cwd=folder, check=True, stdin=subprocess.DEVNULL)


def main():
    parser = argparse.ArgumentParser(prog="tools/scaling.py", description="Draws how attention scales, by the model.")
    parser.add_argument("attn", metavar="ATTN", help="the command")
    parser.add_argument("-o", dest="output", metavar="OUT.svg", help="the picture")
    parser.add_argument("--json", action="store_true", help="print what it draws")
    args = parser.parse_args()
    attn = str(pathlib.Path(args.attn).resolve())
    if args.json:
        print(json.dumps(predict(attn), indent=1))
    elif args.output:
        draw(attn, args.output)
    else:
        parser.error("-o OUT.svg or --json is required")
    return 0


if __name__ == "__main__":
    sys.exit(main())
