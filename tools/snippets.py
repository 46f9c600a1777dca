# SPDX-License-Identifier: MIT
"""The code on the pages of the documentation.

A comment `<!-- unchecked: REASON -->` exempts the code before it in a line of text, and on a line of its own the block below it.
"""
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
MARK = re.compile(r"^<!-- unchecked:([^>]*)-->\n+(?:```.*?^```$|(?: {4}.*\n|\n)+)|`[^`]+`[ \n]?<!-- unchecked:([^>]*)-->", re.S | re.M)


def pages():
    """README.md, ARCHITECTURE.md, CONTRIBUTING.md and the pages of docs/, as paths."""
    return [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def checked(text):
    """A page without what is exempt, its lines kept, and how many of the exemptions give no reason."""
    nameless = sum(not (match[1] or match[2] or "").strip() for match in MARK.finditer(text))
    return MARK.sub(lambda match: "\n" * match[0].count("\n"), text), nameless


def fenced(text, *languages):
    """[(language, number of the first line, code)] of the fenced blocks in these languages; "" is one without a language."""
    found = re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.S | re.M)
    return [(match[1], text.count("\n", 0, match.start(2)) + 1, match[2]) for match in found if match[1] in languages]


def unfenced(text):
    """The page with its fenced blocks emptied, lines kept."""
    return re.sub(r"^```.*?^```$", lambda match: "\n" * match[0].count("\n"), text, flags=re.S | re.M)
