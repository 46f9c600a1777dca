#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Wraps Markdown prose at 100 columns.  Tables and unbreakable words (an address, a code span) may be longer; code may have the 132
columns of .clang-format after an indent of four, and what a command prints, in a `text` block, is as wide as it is.

    tools/wrap.py             reports lines that are too long (the test docs/width)
    tools/wrap.py FILE...     wraps the paragraphs and items of these files that have such a line
"""
import argparse
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
WIDTH, CODE = 100, 136
ITEM = re.compile(r"^(\s*)([*-] |\d+\. )")
SPECIAL = re.compile(r"([*+-] |\d+[.)] |#|>|\||```|===|---)")


def blocks(lines):
    """[(kind, first line, lines)]: prose is a paragraph or an item of a list; tables, code, comments and headings are left alone."""
    found, listed, at = [], False, 0
    while at < len(lines):
        line, begin = lines[at], at
        text = line.strip()
        indent = len(line) - len(line.lstrip(" "))
        if text.startswith("```"):
            at += 1
            while at < len(lines) and not lines[at].strip().startswith("```"):
                at += 1
            kind = "output" if text == "```text" else "code"
        elif text.startswith("<!--"):
            last = "<!-- end -->" if text.startswith("<!-- bench/") else "-->"
            while at < len(lines) and last not in lines[at]:
                at += 1
            kind = "comment"
        elif not text or text.startswith(("|", "#")):
            listed = listed and not text.startswith("#")
            kind = "other"
        elif indent >= 4 and not ITEM.match(line) and not listed:
            while at + 1 < len(lines) and lines[at + 1].startswith("    "):
                at += 1
            kind = "code"
        else:
            listed = bool(ITEM.match(line)) or (listed and indent >= 2)
            open_span = line.count("`") % 2
            while at + 1 < len(lines) and lines[at + 1].strip() and (open_span or not SPECIAL.match(lines[at + 1].strip())):
                at += 1
                open_span = (open_span + lines[at].count("`")) % 2
            kind = "prose"
        at += 1
        found.append((kind, begin, lines[begin:at]))
    return found


def too_long(kind, line):
    if kind == "code":
        return len(line) > CODE
    # One word (an address, a code span) that is as long as the line cannot be broken.
    return kind == "prose" and len(line) > WIDTH and len(words(line)) > 1


def words(text):
    """Words; a code span is one, and a word that would begin a list or a heading at the start of a line is joined to the previous one."""
    found = []
    for word in re.findall(r"(?:`[^`]*`|\S)+", text):
        if found and SPECIAL.match(word + " "):
            found[-1] += " " + word
        else:
            found.append(word)
    return found


def wrapped(lines):
    head = ITEM.match(lines[0])
    first = head[0] if head else lines[0][:len(lines[0]) - len(lines[0].lstrip(" "))]
    rest, line, out = " " * len(first), first, []
    text = " ".join([lines[0][len(first):], *(line.strip() for line in lines[1:])])
    for number, word in enumerate(words(text)):
        if number and len(line) + 1 + len(word) > WIDTH:
            out.append(line)
            line = rest + word
        else:
            line += (" " if number else "") + word
    return out + [line]


def wrap(text):
    out = []
    for kind, _, lines in blocks(text.split("\n")):
        out += wrapped(lines) if kind == "prose" and any(too_long(kind, line) for line in lines) else lines
    return "\n".join(out)


def pages():
    """Every page except those in build folders."""
    return [path for path in sorted(ROOT.rglob("*.md")) if not re.search(r"(^|/)(build|dist|\.[^/]*)/", str(path.relative_to(ROOT)))]


def main():
    parser = argparse.ArgumentParser(prog="tools/wrap.py", description="Wraps these files, or reports lines that are too long.")
    parser.add_argument("files", nargs="*", type=pathlib.Path, metavar="FILE")
    files = parser.parse_args().files
    for path in files:
        if not path.is_file():
            parser.error(f"{path} is not a file")
    for path in files:
        path.write_text(wrap(path.read_text(encoding="utf-8")), encoding="utf-8")
    if files:
        return 0
    faults = 0
    for path in pages():
        for kind, begin, lines in blocks(path.read_text(encoding="utf-8").split("\n")):
            for number, line in enumerate(lines, begin + 1):
                if too_long(kind, line):
                    print(f"{path.relative_to(ROOT)}:{number}: {len(line)} columns; tools/wrap.py wraps prose")
                    faults += 1
    print(f"{len(pages())} pages, {faults} lines that are too long")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
