#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks that every message of a rule in src/core/plan or src/core/api occurs in a test of the folders of tests below.

A message counts as tested when a string of a test equals its format, or is a possible output of the format.
Comments do not count, neither of tests nor of rules.  Also checks that no string of the library, the command or the harness has a
word for which CONTRIBUTING.md has another, and that no message of these or of the Python package ends with a period.
"""
import ast
import pathlib
import re
import sys

from sources import without_comments

ROOT = pathlib.Path(__file__).parent.parent
LITERALS = r'(?:\s*(?:"(?:[^"\\]|\\.)*"|PRI[du](?:64|32)))+'
PIECE = re.compile(r'"((?:[^"\\]|\\.)*)"|PRI[du](?:64|32)')
OTHER_WORDS = re.compile(r"out of memory|\bno memory|\ba \.np[yz]|\bwhole numbers?\b|\bfolders?\b|\brefused?\b|(?<!there )\bis no (?!longer\b)")
MESSAGE = re.compile(r"\b(?:CHECK\w*|\w*fail(?:ure)?\w*|PyErr_\w+)\(")
STATUS_NAMES = ROOT / "src/core/api/describe.c"  # where ATTN_ERR_MEMORY is "out of memory"
CONVERSION = re.compile(r"%(?:zu|ld|d|s|g)")


def joined(text):
    """The value of adjacent string literals; PRId64 and the like are literals too."""
    return "".join("ld" if piece.group(0).startswith("PRI") else piece.group(1) for piece in PIECE.finditer(text))


def formats(path):
    """(line, format) of each CHECK and attn_fail."""
    text = without_comments(path)
    for call in re.finditer(r"\b(?:CHECK|CHECK_TENSORS?|attn_fail|attn_fail_tensor)\(", text):
        literal = re.search(r"ATTN_ERR_\w+,(" + LITERALS + ")", text[call.start() :])
        end = text.index(";", call.start()) - call.start()
        if literal and literal.start() < end:
            yield text.count("\n", 0, call.start()) + 1, joined(literal.group(1))
        else:
            yield text.count("\n", 0, call.start()) + 1, None


def pattern(text):
    parts = CONVERSION.split(text)
    return re.compile("(.*)".join(re.escape(part) for part in parts) + r"\Z", re.S)


def other_words():
    """`FILE: "TEXT"` of each string with such a word."""
    for path in sorted(path for folder in ("src", "cli", "testing") for path in (ROOT / folder).rglob("*.[ch]")):
        for text in (joined(match.group(0)) for match in re.finditer(LITERALS, without_comments(path))):
            if OTHER_WORDS.search(text) and (path != STATUS_NAMES or text != "out of memory"):
                yield f'{path.relative_to(ROOT)}: "{text}"'


def raised(path):
    """The text of each exception that a Python file raises, values left out."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
            text = node.exc.args[0]
            parts = text.values if isinstance(text, ast.JoinedStr) else [text]
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in parts)


def sentences():
    """`FILE: "TEXT"` of each message that ends with a period, or of an exception with a word for which there is another."""
    for path in sorted(path for folder in ("src", "cli", "testing", "python") for path in (ROOT / folder).rglob("*.[ch]")):
        text = without_comments(path)
        for call in MESSAGE.finditer(text):
            for literal in re.finditer(LITERALS, text[call.end() : text.find(";", call.end())]):
                if re.search(r"[^.]\.(\\n)?$", joined(literal.group(0))):
                    yield f'{path.relative_to(ROOT)}: "{joined(literal.group(0))}": a message has no final period'
    for path in sorted((ROOT / "python/libattn").rglob("*.py")):
        for text in raised(path):
            if re.search(r"[^.]\.$", text):
                yield f'{path.relative_to(ROOT)}: "{text}": a message has no final period'
            if OTHER_WORDS.search(text):
                yield f'{path.relative_to(ROOT)}: "{text}": CONTRIBUTING.md has another word'


def main():
    tested = set()
    folders = ["tests/unit", "tests/interface", "tests/fault", "tests/gradient", "tests/merge", "tests/position", "tests/cache", "tests/schedule", "tests/api"]
    for path in sorted(path for folder in folders for path in (ROOT / folder).glob("*.c")):
        tested.update(joined(match.group(0)) for match in re.finditer(LITERALS, without_comments(path)))
    rules = faults = 0
    for folder in ("plan", "api"):
        for path in sorted((ROOT / "src/core" / folder).glob("*.c")):
            for line, text in formats(path):
                rules += 1
                where = f"{path.relative_to(ROOT)}:{line}"
                if text is None:
                    print(f"{where}: cannot read the message of this rule")
                elif not any(text == t or pattern(text).match(t) for t in tested):
                    print(f"{where}: in no test: {text}")
                else:
                    continue
                faults += 1
    words = [f"{found}: CONTRIBUTING.md has another word" for found in other_words()] + list(sentences())
    print(*words, f"{rules} messages, {faults} without a test", sep="\n")
    return 1 if faults or words or rules == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
