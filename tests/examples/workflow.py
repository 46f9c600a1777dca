#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A workflow: the script prints what its page says, block by block, and the page has every line of the script.  The numbers are those of
plain C, which are the same on every CPU.

usage: workflow.py ATTN SCRIPT PAGE [--write]        (--write: puts what is printed into the page)
"""
import os
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from tap import check, finish, run_in_folder

ATTN, SCRIPT, PAGE = (pathlib.Path(name).resolve() for name in sys.argv[1:4])
BLOCKS = re.compile(r"```sh\n(.*?)```\n\n```text\n(.*?)```\n", re.S)


def main():
    os.mkdir("bin")
    os.symlink(ATTN, "bin/attn")
    around = dict(os.environ, ATTN_ISA="scalar", PATH=f"{os.path.abspath('bin')}:{os.environ['PATH']}")
    page = PAGE.read_text(encoding="utf-8")
    lines = [line for line in SCRIPT.read_text(encoding="utf-8").splitlines() if line and not line.startswith(("#", "set "))]
    check("the page has the lines of the script", lines == [line for commands, _ in BLOCKS.findall(page) for line in commands.splitlines()])
    for number, (commands, said) in enumerate(BLOCKS.findall(page)):
        done = subprocess.run(["bash", "-euc", commands], env=around, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        check(f"block {number}: {commands.splitlines()[0]}", done.returncode == 0 and (done.stdout == said or "--write" in sys.argv), f"{done.stdout}{done.stderr}")
        if "--write" in sys.argv:
            page = page.replace(f"```sh\n{commands}```\n\n```text\n{said}```\n", f"```sh\n{commands}```\n\n```text\n{done.stdout}```\n", 1)
    if "--write" in sys.argv:
        PAGE.write_text(page, encoding="utf-8")
    for picture in re.findall(r"-o (\w+\.svg)", page):
        check(f"{picture} is there", os.path.getsize(picture) > 1000)
    whole = subprocess.run(["bash", SCRIPT], env=around, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    check("the script prints the same", whole.returncode == 0 and whole.stdout == "".join(said for _, said in BLOCKS.findall(page)), whole.stdout + whole.stderr)
    return finish()


run_in_folder(main)
