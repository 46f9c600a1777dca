#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A shared library exports exactly the functions that its headers declare with ATTN_API, under the symbol version in its soname.

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
    symbols = [line.split()[-2:] for line in lines.splitlines()]
    return {name for kind, name in symbols if kind != "A"}  # A: the name of a version


def interface(library):
    """The version in the soname: 1 for libattn.so.1."""
    lines = subprocess.run(["readelf", "-d", library], check=True, capture_output=True, text=True).stdout
    return re.search(r"soname: \[\w+\.so\.([0-9.]+)\]", lines)[1]


def main():
    library, headers = sys.argv[1], sys.argv[2:]
    version = interface(library)
    wanted = {f"{name}@@ATTN_{version}" for header in headers for name in declared(header)}
    found = exported(library)
    for name in sorted(wanted - found):
        print(f"declared and not exported: {name}")
    for name in sorted(found - wanted):
        print(f"exported and not declared: {name}")
    print(f"{library}: {len(found)} symbols of version {version}")
    return 1 if wanted != found or not wanted else 0


if __name__ == "__main__":
    sys.exit(main())
