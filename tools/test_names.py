#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks that no test disappears unnoticed: the names that ctest lists in a full build are those of tests/names.txt, with NAME:FILE for
each file of tests of the Python package that one of them runs.

    tools/test_names.py BUILD            compares (the test api/test_names)
    tools/test_names.py BUILD --write    rewrites the file

A build without ATTN_PYTHON says nothing about tests of the Python package: their names stay.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys

FILE = pathlib.Path(__file__).resolve().parent.parent / "tests/names.txt"


def main():
    parser = argparse.ArgumentParser(prog="tools/test_names.py", description="Compares the tests of a build with tests/names.txt.")
    parser.add_argument("build", metavar="BUILD", help="the folder of a full build")
    parser.add_argument("--write", action="store_true", help="rewrite tests/names.txt")
    args = parser.parse_args()
    if not pathlib.Path(args.build, "CTestTestfile.cmake").is_file():
        parser.error(f"{args.build} is not a build with tests")
    listed = json.loads(subprocess.check_output(["ctest", "--test-dir", args.build, "--show-only=json-v1"], text=True))
    names = [test["name"] for test in listed["tests"]]
    names += [f"{test['name']}:{found[1]}" for test in listed["tests"] for word in test.get("command", [])
              if (found := re.search(r"python/tests/test_(\w+)\.py$", word)) and found[1] != test["name"].removeprefix("python/")]
    names.sort()
    disabled = [test["name"] for test in listed["tests"] if any(p["name"] == "DISABLED" and p["value"] for p in test["properties"])]
    for name in disabled:
        print(f"{name} is disabled; remove it, or let it say why it cannot run and exit with 77")
    kept = FILE.read_text().split()
    if not any(name.startswith("python/") for name in names):
        names = sorted(names + [name for name in kept if name.startswith("python/")])
    if args.write:
        FILE.write_text("".join(name + "\n" for name in names))
        for name in sorted(set(kept) - set(names)):
            print(f"removed: {name} (commit this only if the test was removed on purpose)")
        return 0
    for name in sorted(set(kept) - set(names)):
        print(f"{name} is gone; if this is intended, run tools/test_names.py {args.build} --write")
    for name in sorted(set(names) - set(kept)):
        print(f"{name} is new; run tools/test_names.py {args.build} --write")
    if sorted(kept) == names and kept != names:
        print(f"{FILE.name} is not sorted; run tools/test_names.py {args.build} --write")
    return 1 if kept != names or disabled else 0


if __name__ == "__main__":
    sys.exit(main())
