#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Every public struct can grow, or is one of those of which docs/conventions.md says why it need not: a struct begins with
struct_size, has reserved words at its end, is lent by the library, or is a value that stays as it is.

And what begins with struct_size is tried by a test with sizes and tails of all sorts.

Usage: grows.py ABI CONVENTIONS TEST ...        (tests/install/abi.txt, docs/conventions.md, C with rows of TAILS and FILLED)
"""
import pathlib
import re
import sys

KINDS = ("group", "lent", "value")  # the words of the table in docs/conventions.md


def structs(text):
    """Of each public struct its size and its fields, as (offset, name, type, bytes)."""
    found = {}
    for head, body in re.findall(r"^struct (\w+: \d+) bytes\n((?:    .*\n)*)", text, re.M):
        name, size = head.split(": ")
        fields = [(int(at), field, kind, int(bytes_)) for at, field, kind, bytes_ in re.findall(r"^    (\d+): ([\w.]+), (.*), (\d+) bytes$", body, re.M)]
        assert len(fields) == body.count("\n"), f"{name}: a field that this test does not understand"
        found[name] = (int(size), fields)
    return found


def listed(text):
    """The structs of the table of those without struct_size, with their kind."""
    rows = re.findall(r"^\| (\w+) \| (.*?) \|", text, re.M)
    kinds = {}
    for kind, names in rows:
        if kind in KINDS:
            for name in re.findall(r"`(attn_\w+)`", names):
                assert name not in kinds, f"{name} is listed twice"
                kinds[name] = kind
    return kinds


def faults(found, kinds):
    for name in kinds:
        if name not in found:
            yield f"{name} is listed and no public struct"
    for name, (size, fields) in found.items():
        sized = fields[0][:3] == (0, "struct_size", "size_t")
        if sized == (name in kinds):
            yield f"{name} " + ("has struct_size and is listed as one without" if sized else "has no struct_size, and docs/conventions.md does not list it")
        at, last, kind, bytes_ = fields[-1]
        if sized and at + bytes_ != size:
            yield f"{name} ends in {size - at - bytes_} bytes of padding, where its next field would be"
        if kinds.get(name) == "group" and not (last == "reserved" and bytes_ >= 16):
            yield f"{name} is a group and does not end in two reserved words or more"
        for _, field, kind, _ in fields:
            if kind in found and found[kind][1][0][1] == "struct_size":
                yield f"{name}.{field} is a struct that grows, by value: nothing behind it could stay where it is"


def tried(text):
    """The structs that a test names in its rows: TAILS(attn_x, ...), or {"attn_x", sizeof ..."""
    return set(re.findall(r'(?:\b(?:TAILS|FILLED)\(|\{")(attn_\w+)', text))


def main():
    abi, conventions, *tests = (pathlib.Path(path).read_text(encoding="utf-8") for path in sys.argv[1:])
    found, kinds, covered = structs(abi), listed(conventions), set().union(*map(tried, tests))
    assert len(found) > 40 and len(kinds) > 10, f"{len(found)} structs, {len(kinds)} listed"
    wrong = list(faults(found, kinds)) + [f"{name} is tried by no test" for name in found if name not in kinds and name not in covered]
    print("\n".join(wrong) or f"{len(found)} structs, {len(kinds)} of them listed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
