#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What runs over the values of an enum, or draws or names them, reaches the last: a new value is then tried everywhere.

Looks at loops (`for (x = ATTN_FIRST; x <= ATTN_LAST;`), ranges (`>= ATTN_FIRST && ... <= ATTN_LAST`), `LAST_KIND = ATTN_LAST`, and draws
(`(attn_op)draw_below(d, 4)`, `(attn_op)(1 + draw_below(d, 3))`) in C, and at messages (`known: 0 (add), 1 (delta)`).

Usage: last.py ABI        (tests/install/abi.txt, in the root of the sources)
"""
import pathlib
import re
import sys

FOLDERS = ("src", "cli", "testing", "tests", "fuzz", "bench")
# Values at which a range or draw may end before the last, and enums of which any part may be drawn.
ENDS = {
    "ATTN_BF16": "the types of floating-point numbers",
    "ATTN_U64": "integers",
    "ATTN_Q4_1": "formats of rows, which keys by channel are not",
    "ATTN_BACKWARD": "operations that linear attention has too",
    "ATTN_DOUBLE_BACKWARD": "operations of attention; ATTN_LINEAR and ATTN_PRODUCT are for statistics",
    "ATTN_AXIS_DIM_V": "axes of channels",
    "ATTN_LAYOUT_STRIPED": "layouts without lists of owners",
    "ATTN_WAY_DIRECT": "ways for all operations, in which a rank has some of the queries",
    "ATTN_LINEAR_FORM_RECURRENT": "forms that have a state",
}
PARTS = {
    "attn_dtype": "a function takes some types",
    "attn_isa": "instruction sets of one machine",
    "attn_op": "as ATTN_DOUBLE_BACKWARD above",
}
PAIR = r"\b(ATTN_[A-Z]\w+)\b"
RANGES = (
    re.compile(rf"\bfor \([^;]*= (?:\(int\))?{PAIR}; [^;]*<= (?:\(int\))?{PAIR};"),
    re.compile(rf">= {PAIR} && [^&|()]*<= {PAIR}(?! ?[+\w])"),
)
CHECK = re.compile(r"CHECK\(([^;\"]*),\s*\"[^\"]*known: (\d[^\"]*)\"")
LAST = re.compile(rf"\bLAST\w* = {PAIR}")
DRAW = re.compile(r"\((attn_\w+)\)(?:\((?:[^();]*(?:\([^();]*\))? \? \w+ : )?(\d+) \+ )?\w*below\((?:[^,();]*, )?(\d+)\)")


def enums_of(text):
    """{enum: {constant: value}}"""
    return {name: {line.split()[0]: int(line.split()[2]) for line in body.splitlines()}
            for name, body in re.findall(r"^enum (\w+): .*\n((?:    .*\n)*)", text, re.M)}


def ranges(text):
    """(position, first or None, last) of each."""
    for pattern in RANGES:
        yield from ((match.start(), *match.groups()) for match in pattern.finditer(text))
    yield from ((match.start(), None, match[1]) for match in LAST.finditer(text))


def faults_of(text, enums, count):
    enum_of = {constant: enum for enum, values in enums.items() for constant in values}
    for at, first, last in ranges(text):
        enum = enum_of.get(last)
        if not enum or last in ENDS or (first and enum_of.get(first) != enum):
            continue
        count.append(at)
        newest = max(enums[enum], key=enums[enum].get)
        if last != newest:
            yield at, f"this ends at {last}, but the last {enum} is {newest}"
    for match in CHECK.finditer(text):
        named = [constant for constant in re.findall(PAIR, match[1]) if enum_of.get(constant, "attn_status") != "attn_status"]
        if not named or named[-1] in ENDS:
            continue
        count.append(match.start())
        enum, last = enum_of[named[-1]], re.findall(r"(\d+) \(", match[2])[-1]
        if int(last) != max(enums[enum].values()):
            yield match.start(), f"this message names values up to {last}, but the last {enum} is {max(enums[enum].values())}"
    for match in DRAW.finditer(text):
        enum, first, number = match[1], int(match[2] or 0), int(match[3])
        if enum not in enums or enum in PARTS:
            continue
        count.append(match.start())
        end = max(enums[enum].values()) + 1
        drawn = [constant for constant, value in enums[enum].items() if value == first + number - 1]
        if first + number < end and not (drawn and drawn[0] in ENDS):
            yield match.start(), f"this draws at most {first + number - 1}, but the last {enum} is {end - 1}"
        elif first > end:
            yield match.start(), f"this draws invalid values from {first}, but the first invalid {enum} is {end}"


def main():
    enums = enums_of(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))
    wrong, count = [], []
    for path in sorted(path for folder in FOLDERS for path in pathlib.Path(folder).rglob("*.[ch]")):
        text = path.read_text(encoding="utf-8")
        wrong += [f"{path}:{text.count(chr(10), 0, at) + 1}: {words}; change it, or add a reason to {sys.argv[0]}"
                  for at, words in faults_of(text, enums, count)]
    print("\n".join(wrong) or f"{len(enums)} enums, {len(count)} ranges and draws")
    return 1 if wrong or len(count) < 60 else 0


if __name__ == "__main__":
    sys.exit(main())
