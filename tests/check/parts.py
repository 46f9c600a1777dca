#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""attn check --part=K/N: the parts have no case in common, and two halves of a part have the cases of that part.

Usage: parts.py ATTN
"""
import json
import subprocess
import sys


def cases(part):
    words = [sys.argv[1], "check", "--quick", "--isa=scalar", "--json", f"--part={part}"]
    done = subprocess.run(words, stdout=subprocess.PIPE, check=True)
    return [(case["name"], case["problem"]) for case in json.loads(done.stdout)["cases"]]


first, second = cases("1/12"), cases("2/12")
assert first and second, "a part is empty"
assert not set(first) & set(second), "parts have cases in common"
assert sorted(first) == sorted(cases("1/24") + cases("13/24")), "the parts of a part are not that part"
kinds = {name.split("_")[1] for name, _ in first + second}
assert kinds >= {"fwd", "linear", "product"}, f"the parts have only {kinds}"
print(f"{len(first)} and {len(second)} cases in parts")
