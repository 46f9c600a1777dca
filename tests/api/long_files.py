#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A file has one subject: one of more than 500 lines says in its first 20 lines why it is long, and none has more than 800.

Usage: tests/api/long_files.py    (in the root of the sources)
"""
import pathlib
import re
import sys

FOLDERS = ("bench", "cli", "cmake", "docs", "examples", "fuzz", "include", "lab", "python", "ref", "script", "src", "testing", "tests", "tools")
KINDS = {".c", ".cmake", ".css", ".def", ".h", ".in", ".js", ".md", ".py", ".sh"}
ANY_LENGTH = {"cli/attn.1.in"}  # man shows a manual page from one file


def main():
    files = [path for folder in FOLDERS for path in pathlib.Path(folder).rglob("*")
             if path.is_file() and (path.suffix in KINDS or folder == "script") and "build" not in path.parts]
    files += pathlib.Path().glob("*.md")
    faults, longest = 0, []
    for path in sorted(files):
        lines = path.read_text(encoding="utf-8").splitlines()
        if len(lines) > 500:
            longest.append(f"{path} ({len(lines)})")
        if len(lines) > 500 and not re.search(r"is long because|hence its length", "\n".join(lines[:20])):
            faults += 1
            print(f"{path} has {len(lines)} lines, and its head does not say why it is long")
        elif len(lines) > 800 and path.as_posix() not in ANY_LENGTH:
            faults += 1
            print(f"{path} has {len(lines)} lines; 800 is the limit: split it by subject")
    print(f"{len(files)} files; over 500 lines: {', '.join(longest)}")
    return 1 if faults or len(files) < 900 else 0


if __name__ == "__main__":
    sys.exit(main())
