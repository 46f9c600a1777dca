#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What a shared library exports is what its headers declare with ATTN_API, and nothing else.

Usage: tests/api/check_symbols.py LIBRARY HEADER...
"""
import re
import subprocess
import sys


def declared(header):
    text = re.sub(r"/\*.*?\*/", "", open(header, encoding="utf-8").read(), flags=re.S)
    text = re.sub(r"^\s*#.*$", "", text, flags=re.M)
    return set(re.findall(r"\bATTN_API\b[^;(]*?\b(\w+)\s*\(", text))


def exported(library):
    lines = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    return {line.split()[-1].split("@")[0] for line in lines.splitlines()}


def main():
    library, headers = sys.argv[1], sys.argv[2:]
    wanted = set().union(*(declared(header) for header in headers))
    found = exported(library)
    for name in sorted(wanted - found):
        print(f"declared and not exported: {name}")
    for name in sorted(found - wanted):
        print(f"exported and not declared: {name}")
    print(f"{library}: {len(found)} symbols")
    return 1 if wanted != found or not wanted else 0


if __name__ == "__main__":
    sys.exit(main())
