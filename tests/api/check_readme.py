#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""README.md has at most 150 lines, its links lead to existing files, and its one C example is examples/minimal/minimal.c verbatim
(without the head comment), in at most 15 lines."""
import pathlib
import re
import sys


def main():
    text = open("README.md", encoding="utf-8").read()
    blocks = re.findall(r"^```c\n(.*?)^```$", text, flags=re.S | re.M)
    program = re.sub(r"\A/\*.*?\*/\n", "", open("examples/minimal/minimal.c", encoding="utf-8").read(), flags=re.S)
    if blocks != [program]:
        print(f"README.md has {len(blocks)} blocks of C; it must have exactly one, the same as examples/minimal/minimal.c")
        return 1
    lost = [link for link in re.findall(r"\]\(([^)#:]+)\)", text) if not pathlib.Path(link).exists()]
    for link in lost:
        print(f"README.md: there is no {link}")
    lines, code = text.count("\n"), program.count("\n")
    print(f"{lines} lines, {code} of C")
    return 1 if lost or lines > 150 or code > 15 else 0


if __name__ == "__main__":
    sys.exit(main())
