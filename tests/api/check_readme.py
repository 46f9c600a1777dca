#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The C example of README.md is examples/minimal/minimal.c, letter for letter (without its head comment), in 20 lines or fewer."""
import re
import sys


def main():
    blocks = re.findall(r"^```c\n(.*?)^```$", open("README.md", encoding="utf-8").read(), flags=re.S | re.M)
    program = re.sub(r"\A/\*.*?\*/\n", "", open("examples/minimal/minimal.c", encoding="utf-8").read(), flags=re.S)
    if blocks != [program]:
        print(f"README.md has {len(blocks)} blocks of C; one of them must be examples/minimal/minimal.c, and the only one")
        return 1
    lines = program.count("\n")
    print(f"{lines} lines")
    return 0 if lines <= 20 else 1


if __name__ == "__main__":
    sys.exit(main())
