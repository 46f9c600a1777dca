#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What the pages and the comments of public headers name is there: files, functions and types of C, and tests.

In a page, looks at `code` and code blocks: at paths, which may begin in one of STARTS or in the page's own folder; at names attn_...; and
at every alternative of `ctest -R 'a/(b|c)'`, which some test of tests/names.txt must match.  Words such as NAME stand for anything.

Usage: tests/docs/names.py
"""
import fnmatch
import functools
import os
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from sources import without_comments_c

STARTS = ("", "src/core", "src", "cli", "include", "python", "python/libattn")
SOURCES = {".c", ".cmake", ".cpp", ".def", ".h", ".in", ".py", ".pyi", ".sh", ".txt"}
OF_OTHERS = {"docs/peers.md"}  # pages about other libraries, whose files they name
OF_THE_PAST = {"CHANGELOG.md"}  # it has the names of functions that were renamed
PLANNED = {"amx/pairs_f32.c", "attn_pairs_f32_amx_bf16"}  # ARCHITECTURE.md, "Extension points"
EXAMPLES = {"attn_noun_verb"}  # of how names are made

CODE = re.compile(r"^ *```.*?^ *```|`[^`\n]+`", re.S | re.M)
FOLDERS = "bench|cli|cmake|docs|examples|fuzz|include|javascript|lab|packaging|python|ref|script|src|testing|tests|tools"
PATH = re.compile(rf"(?<![\w./~$%@:<}}-])(?:(?:{FOLDERS})/[\w.*?\[\]/+-]+|[\w*-]+(?:/[\w.*?\[\]-]+)*\.(?:c|h|def|py|sh)\b)")
STANDS_FOR_ANY = re.compile(r"(?<![A-Za-z])[A-Z]{4,}(?![A-Za-z])")
NAME = re.compile(r"(?<![\w./-])attn_\w+(?![\w*]|\.\.\.)")
TESTS = re.compile(r'''ctest [^`\n]*?-R +(?:'([^'\n]+)'|"([^"\n]+)"|([^\s`]+))''')


def files():
    found = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in ("build", "dist", "__pycache__") and not name.startswith(".")]
        found += [pathlib.Path(folder, name) for name in names]
    return found


class Tree:
    def __init__(self):
        paths = files()
        self.pages = sorted(path for path in paths if path.suffix == ".md")
        self.headers = sorted((ROOT / "include/attn").glob("*.h"))
        self.file_names = {path.name for path in paths}
        self.names = set()
        for path in paths:
            if path.suffix in SOURCES:
                text = path.read_text(encoding="utf-8", errors="replace")
                self.names.update(re.findall(r"\battn_\w+", without_comments_c(text) if path.suffix in (".c", ".h") else text))
        self.tests = (ROOT / "tests/names.txt").read_text().split()

    @functools.lru_cache(maxsize=None)
    def has(self, folder, path):
        if path in self.tests or path in PLANNED or path in self.file_names:
            return True
        if "/" not in path and "*" in path:
            return any(fnmatch.fnmatchcase(name, path) for name in self.file_names)
        return any(True for start in (folder, *(ROOT / name for name in STARTS)) for _ in start.glob(path))


def alternatives(pattern):
    """The patterns without | that a pattern consists of: a/(b|c) is a/b and a/c."""
    group = re.search(r"\(([^()]*)\)", pattern)
    if group:
        return [one for part in group[1].split("|") for one in alternatives(pattern[:group.start()] + part + pattern[group.end():])]
    return pattern.split("|")


def faults_of(tree, file, codes):
    """What these pieces of code name and there is not."""
    page = str(file.relative_to(ROOT))
    for code in codes:
        for match in PATH.finditer(code) if page not in OF_OTHERS else ():
            path = match[0].rstrip("./")
            if not STANDS_FOR_ANY.search(path) and not tree.has(file.parent, path):
                yield f"{page}: there is no {path}"
        for match in NAME.finditer(code) if page not in OF_THE_PAST else ():
            if match[0] not in tree.names | PLANNED | EXAMPLES and not STANDS_FOR_ANY.search(match[0].replace("_", " ")):
                yield f"{page}: there is no {match[0]} in the sources"
        for words in TESTS.findall(code):
            for pattern in alternatives("".join(words).replace("\\|", "|")):
                if not any(re.search(pattern, name) for name in tree.tests):
                    yield f"{page}: ctest -R '{pattern}' runs no test of tests/names.txt"


def main():
    tree, faults, count = Tree(), [], 0
    for page in tree.pages:
        codes = CODE.findall(page.read_text(encoding="utf-8"))
        count += len(codes)
        faults += faults_of(tree, page, codes)
    for header in tree.headers:
        faults += faults_of(tree, header, re.findall(r"/\*.*?\*/", header.read_text(encoding="utf-8"), re.S))
    print("\n".join(faults) or f"{len(tree.pages)} pages and {len(tree.headers)} headers, {count} pieces of code")
    return 1 if faults or count < 1000 else 0


if __name__ == "__main__":
    sys.exit(main())
