#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Public names follow docs/conventions.md: a constant is its enum's name and a word, a function that can fail ends in an error, and
one tensor is one argument: a slot, not a type beside a pointer.

Usage: names.py ABI        (tests/install/abi.txt)
"""
import pathlib
import re
import sys

OWN = {"attn_op", "attn_status", "attn_dtype"}  # these have a grammar of their own, which docs/conventions.md says
BLOCKS = {"attn_convert", "attn_archive_add", "attn_archive_allocate"}  # a row of numbers, of any rank: no slot


def constants(text):
    for name, body in re.findall(r"^enum (\w+): .*\n((?:    .*\n)*)", text, re.M):
        prefix = re.sub(r"_kind$", "", name).upper() + "_"
        values = [line.split()[0] for line in body.splitlines()]
        assert values, f"{name} has no values"
        yield name, prefix, values


def functions(text):
    return [(kind, name, args.split(", ")) for kind, name, args in re.findall(r"^(\w[\w \*]*?)(\w+)\((.*)\)$", text, re.M)]


def main():
    text = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")
    enums, calls = list(constants(text)), functions(text)
    assert len(enums) > 20 and len(calls) > 100, f"{len(enums)} enums, {len(calls)} functions"
    wrong = [f"{value} of {name} does not begin with {prefix}" for name, prefix, values in enums if name not in OWN
             for value in values if not value.startswith(prefix)]
    for kind, name, args in calls:
        if (kind.strip() == "attn_status") != (args[-1] == "attn_error *"):
            wrong.append(f"{name} returns {kind.strip()} and its last argument is {args[-1]}")
        if name not in BLOCKS and "attn_dtype" in args and any(re.fullmatch(r"(const )?void \*+", arg) for arg in args):
            wrong.append(f"{name} takes a type beside a pointer; a slot has both")
    print("\n".join(wrong) or f"{len(enums)} enums, {len(calls)} functions")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
