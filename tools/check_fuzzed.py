#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks that every public function is called by a fuzz target, except those listed below with a reason.

Reads the functions of include/attn/*.h (ATTN_API) and the calls of the targets of fuzz/: a target is fuzz/fuzz_NAME.c with its files in
fuzz/CMakeLists.txt.  A new function without a target is an error, and so is an unnecessary exception.

Usage: tools/check_fuzzed.py [--list] [FOLDER]     (--list: each function with its targets; FOLDER: the tree, default that of this script)
"""
import pathlib
import re
import sys

EXCEPTIONS = {}

COMMENT = re.compile(r"/\*.*?\*/", re.S)
STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
DECLARED = re.compile(r"\bATTN_API\b[^;(]*?\b(attn_\w+)\s*\(")
# The files of a target besides fuzz_NAME.c, for a list of targets and by name.
TARGET = re.compile(r"attn_add_fuzz_target\((?!name)(\w+|\$\{name\})\s+\d+\s+\d+([^)]*)\)")
EVERY = re.compile(r"foreach\(name ([\w ]+)\)\s*\n\s*attn_add_fuzz_target")
PARSERS = {"problem": ["fuzz_problem.c"], "tensors": ["fuzz_tensors.c"]}


def code(path):
    return STRING.sub('""', COMMENT.sub(" ", path.read_text()))


def public_functions(root):
    return {name: header.name for header in sorted((root / "include/attn").glob("*.h")) for name in DECLARED.findall(code(header))}


def targets(root):
    """The files of each."""
    text = (root / "fuzz/CMakeLists.txt").read_text()
    found = dict(PARSERS)
    for name, rest in TARGET.findall(text):
        files = re.findall(r"(?<![/\w])\w+\.c\b", rest)  # (those of other folders call nothing)
        for one in EVERY.search(text).group(1).split() if name.startswith("$") else [name]:
            found[one] = [f"fuzz_{one}.c", "block.c", *files]
    return found


def callers(root):
    """function: the targets that call it"""
    calls = {}
    for name, files in targets(root).items():
        for file in files:
            for function in re.findall(r"\b(attn_\w+)\b", code(root / "fuzz" / file)):
                calls.setdefault(function, set()).add(name)
    return calls


def main():
    arguments = sys.argv[1:]
    listed = "--list" in arguments
    folders = [a for a in arguments if not a.startswith("--")]
    root = pathlib.Path(folders[0]) if folders else pathlib.Path(__file__).resolve().parent.parent
    functions, calls = public_functions(root), callers(root)
    if len(functions) < 100 or len(targets(root)) < 10:
        print(f"only {len(functions)} functions and {len(targets(root))} targets are found: this script misreads the sources")
        return 1
    wrong = 0
    for name, header in functions.items():
        if listed:
            print(f"{header:12} {name:40} {' '.join(sorted(calls.get(name, []))) or EXCEPTIONS.get(name, '-')}")
        if name in EXCEPTIONS and name in calls:
            print(f"{name} is an exception in tools/check_fuzzed.py, but {sorted(calls[name])[0]} calls it")
            wrong += 1
        elif name not in EXCEPTIONS and name not in calls:
            print(f"{header}: {name} is called by no fuzz target (fuzz/CMakeLists.txt)")
            wrong += 1
    for name in EXCEPTIONS:
        if name not in functions:
            print(f"{name} is an exception in tools/check_fuzzed.py, but not a public function")
            wrong += 1
    if not wrong:
        print(f"{len(functions)} functions, {len(targets(root))} targets, {len(EXCEPTIONS)} exceptions")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
