#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""tools/survivors.py: checks that every entry of tests/mutation/survivors.txt is about code that exists (the test mutation/survivors):
its file has this function, whose body has the text before the mutation.  Otherwise its reason excuses nothing."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
KNOWN = "tests/mutation/survivors.txt"


def known():
    """{(file, function, before, after): reason} of survivors.txt."""
    out = {}
    blocks = re.sub(r"^#.*\n", "", (ROOT / KNOWN).read_text(), flags=re.M)
    for block in filter(None, (b.strip() for b in blocks.split("\n\n"))):
        where, before, after, *reason = (line.strip() for line in block.split("\n"))
        file, function = where.split(": ")
        out[file, function, before, after] = " ".join(reason)
    return out


def bodies(source, function):
    """The bodies of all functions with this name: one for each type, in some files."""
    for match in re.finditer(rf"^\w[^;{{}}=]*\b{re.escape(function)}\([^;{{}}]*\)\s*{{", source, re.M):
        line, rest = source[match.end() :].split("\n", 1)
        yield line if line.endswith("}") else rest[: re.search("^}", rest, re.M).start()]


def flat(text):
    return " ".join(text.split())


def missing(file, function, before):
    """What does not exist; "" if all does."""
    path = ROOT / file
    if not path.is_file():
        return "file"
    found = list(bodies(path.read_text(), function))
    text = re.sub(r"^\S+ in ", "", before)  # a number, in its line
    return "function" if not found else "" if any(flat(text) in flat(body) for body in found) else "text"


def main():
    entries = known()
    gone = [(missing(*entry[:3]), entry) for entry in entries]
    gone = [(what, entry) for what, entry in gone if what]
    for what, (file, function, before, _) in gone:
        print(f"{KNOWN}: {file}: {function}: {before}: there is no such {what}")
    bare = [entry for entry, reason in entries.items() if not reason]
    for file, function, before, _ in bare:
        print(f"{KNOWN}: {file}: {function}: {before}: no reason is given")
    print(f"{len(entries)} entries, {len(gone)} of them about code that is gone")
    return 1 if gone or bare or not entries else 0


if __name__ == "__main__":
    sys.exit(main())
