#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A library or the command loads nothing but the C library and, for files and pictures, libzip, cJSON and libpng: no BLAS, no OpenMP.

Usage: tests/api/check_needed.py FILE
"""
import re
import subprocess
import sys

ALLOWED = {"libc", "libm", "libpthread", "ld-linux-x86-64", "ld-linux-aarch64"}
BESIDE = {"libattn": set(), "libattn_io": {"libzip", "libcjson"}, "libattn_layers": set(), "attn": {"libzip", "libcjson", "libpng16"}}


def main():
    lines = subprocess.run(["readelf", "-d", sys.argv[1]], check=True, capture_output=True, text=True).stdout
    needed = {name.split(".so")[0] for name in re.findall(r"\(NEEDED\).*\[(.+)\]", lines)}
    name = sys.argv[1].rpartition("/")[2].split(".so")[0]
    others = sorted(needed - ALLOWED - BESIDE[name] - {library for library in BESIDE if library != "attn"})
    for other in others:
        print(f"{name} loads {other}")
    print(f"{name} needs {' '.join(sorted(needed))}")
    return 1 if others or "libc" not in needed else 0


if __name__ == "__main__":
    sys.exit(main())
