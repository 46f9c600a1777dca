#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Every public struct can grow, or docs/conventions.md lists it with the reason why it need not: a struct begins with
struct_size, ends in reserved words, is lent by the library, or is a value that never changes.

Every struct that begins with struct_size is covered by a test that tries all sorts of sizes and tails.

Usage: grows.py ABI CONVENTIONS TEST ...        (tests/install/abi.txt, docs/conventions.md, C with rows of TAILS and FILLED)
"""
import pathlib
import re
import sys

KINDS = ("group", "lent", "value")  # the words of the table in docs/conventions.md


def structs(text):
    """Maps each public struct to its size and its fields, as (offset, name, type, bytes)."""
    found = {}
    for head, body in re.findall(r"^struct (\w+: \d+) bytes\n((?:    .*\n)*)", text, re.M):
        name, size = head.split(": ")
        fields = [(int(at), field, kind, int(bytes_)) for at, field, kind, bytes_ in re.findall(r"^    (\d+): ([\w.]+), (.*), (\d+) bytes$", body, re.M)]
        assert len(fields) == body.count("\n"), f"{name}: a field that this test does not understand"
        found[name] = (int(size), fields)
    return found


def listed(text):
    """The table of structs without struct_size, with their kinds."""
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
            yield f"{name} is listed but is not a public struct"
    for name, (size, fields) in found.items():
        sized = fields[0][:3] == (0, "struct_size", "size_t")
        if sized == (name in kinds):
            yield f"{name} " + ("has struct_size but is listed as a struct without it" if sized else "has no struct_size, and docs/conventions.md does not list it")
        at, last, kind, bytes_ = fields[-1]
        if sized and at + bytes_ != size:
            yield f"{name} ends in {size - at - bytes_} bytes of padding, where its next field would be"
        if kinds.get(name) == "group" and not (last == "reserved" and bytes_ >= 16):
            yield f"{name} is a group but does not end in at least two reserved words"
        for _, field, kind, _ in fields:
            if kind in found and found[kind][1][0][1] == "struct_size":
                yield f"{name}.{field} is a growing struct held by value: fields after it could not keep their offsets"


def tried(text):
    """The structs that a test names in its rows: TAILS(attn_x, ...), or {"attn_x", sizeof ...}."""
    return set(re.findall(r'(?:\b(?:TAILS|FILLED)\(|\{")(attn_\w+)', text))


def main():
    abi, conventions, *tests = (pathlib.Path(path).read_text(encoding="utf-8") for path in sys.argv[1:])
    found, kinds, covered = structs(abi), listed(conventions), set().union(*map(tried, tests))
    assert len(found) > 40 and len(kinds) > 10, f"{len(found)} structs, {len(kinds)} listed"
    wrong = list(faults(found, kinds)) + [f"{name} is covered by no test" for name in found if name not in kinds and name not in covered]
    print("\n".join(wrong) or f"{len(found)} structs, {len(kinds)} of them listed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
