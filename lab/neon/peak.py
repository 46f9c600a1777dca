#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""peak.py [--cc CC...]: the share of the multiply-add peak that the NEON product loops reach, according to llvm-mca 19.

Compiles a kernel of each type to assembly and analyses the loop of each full register tile (src/core/kernels/vec/neon_product.h).
Status 1 if a tile is below 95 %, except the one-vector tile of at most 4 (f64: 2) queries.
"""
import os
import re
import subprocess
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
PIPES = {"neoverse-n1": 2, "neoverse-n2": 2, "neoverse-v1": 4, "neoverse-v2": 4}
TURNS = 300


def share(body, cpu):
    report = subprocess.run(["llvm-mca-19", "-mtriple=aarch64", f"-mcpu={cpu}", f"-iterations={TURNS}", "-noalias"], input=body, text=True,
                            capture_output=True, check=True).stdout
    cycles = int(re.search(r"Total Cycles:\s+(\d+)", report).group(1))
    return 100 * body.count("fmla") * TURNS / PIPES[cpu] / cycles


def main():
    cc = sys.argv[2:] if sys.argv[1:2] == ["--cc"] else ["aarch64-linux-gnu-gcc"]
    low = 0
    print("| tile | " + " | ".join(PIPES) + " |\n|---|" + "--:|" * len(PIPES))
    for bits in ("32", "64"):
        text = subprocess.run(cc + ["-std=c11", "-O3", "-ffp-contract=off", f"-I{ROOT}/include", f"-I{ROOT}/src/core", "-S", "-o", "-",
                                    f"{ROOT}/src/core/kernels/neon/product_f{bits}.c"], text=True, capture_output=True, check=True).stdout
        loops = {}
        for function in re.split(r"^(?=product_\d+x\d+[.\w]*:)", text, flags=re.M)[1:]:
            loop = re.search(r"^1:\n(.*?b\.ne 1b)", function.split(".size")[0], re.S | re.M)
            if loop:
                loops[re.match(r"product_(\d+x\d+)", function).group(1)] = loop.group(1)
        for tile, body in sorted(loops.items()):
            shares = [share(body.replace("b.ne 1b", ""), cpu) for cpu in PIPES]
            low += min(shares) < 95 and not tile.endswith("x1")
            print(f"| f{bits} {tile} | " + " | ".join(f"{s:.1f} %" for s in shares) + " |")
        if len(loops) != 6:
            sys.exit(f"f{bits}: {len(loops)} loops, not 6")
    return 1 if low else 0


if __name__ == "__main__":
    sys.exit(main())
