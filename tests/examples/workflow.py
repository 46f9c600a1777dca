#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A workflow, examples/workflows/NAME.sh: docs/NAME.md has every line of the script, and beside them what it prints; it leaves whole
files.  The numbers are those of plain C, which are the same on every CPU, except times and what follows from them: these are not
compared (MEASURED), and `attn bench` makes few calls.

usage: workflow.py ATTN NAME [--write]        (--write: puts what is printed, fully measured, into the page)
"""
import difflib
import os
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from tap import check, finish, run_in_folder

ROOT = pathlib.Path(__file__).resolve().parents[2]
ATTN, NAME, WRITE = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2], "--write" in sys.argv
SCRIPT, PAGE = ROOT / f"examples/workflows/{NAME}.sh", ROOT / f"docs/{NAME}.md"
BLOCK = re.compile(r"```sh\n(.*?)```\n\n(?:```text\n(.*?)```\n\n)?", re.S)
FILE = re.compile(r"(?:-o |--csv=|--rollout=|>)(\w+\.\w+)")
WRAPPER = """#!/bin/sh
if [ "$1" = bench ]; then unset ATTN_ISA && exec {attn} "$@" {few}; fi
exec {attn} "$@"
"""
# What depends on the machine: what is left of a line is compared.
MEASURED = [
    (re.compile(r"^(machine|libattn|ceilings) .*", re.M), r"\1 ..."),
    (re.compile(r"^(\S.*:\w+\S*) +[\d.]+ (?:ns|us|ms|s|[KMG]iB|B) .*", re.M), r"\1 ..."),  # a row of attn bench
    (re.compile(r"\b[\d.]+ s$", re.M), "... s"),
]
# Of a file, what only the right one has.
HAS = {
    "both.svg": ">cold<",
    "roles.svg": "previous",
    "pair.html": "flooded",
    "names.csv": '"matrix:f32:hq8:sq1024:d64","standard",',
    "names.svg": "standard = matrix:f32:hq8:d64: time grows as n^",
    "layers.svg": 'data-name="layer:gqa:bwd:f32:hq8:hkv2:sq512:d64:m512"',
    "decode.svg": "decode:int8:hq8:hkv2:sq1:d64:page=16:rope: time grows as n^",
}


def unmeasured(text):
    for pattern, left in MEASURED:
        text = pattern.sub(left, text)
    return text


def run(*words):
    around = dict(os.environ, ATTN_ISA="scalar", PATH=f"{os.path.abspath('bin')}:{os.environ['PATH']}")
    return subprocess.run(words, env=around, capture_output=True, text=True, stdin=subprocess.DEVNULL)


def write(page):
    """The page, with what each of its blocks prints."""
    def put(match):
        done = run("bash", "-euc", match[1])
        if done.returncode:
            sys.exit(f"{match[1]}{done.stderr}")
        return f"```sh\n{match[1]}```\n\n" + (f"```text\n{done.stdout}```\n\n" if done.stdout else "")

    PAGE.write_text(BLOCK.sub(put, page), encoding="utf-8")


def whole(name):
    """A file that was written, and is of its kind."""
    path = pathlib.Path(name)
    if not path.exists() or path.stat().st_size < 1000:
        return False
    if name.endswith(".svg"):
        xml.etree.ElementTree.parse(name)
    return not name.endswith((".svg", ".html", ".csv")) or HAS.get(name, "") in path.read_text(encoding="utf-8")


def main():
    os.mkdir("bin")
    os.symlink(ROOT / "examples", "examples")
    path = pathlib.Path("bin/attn")
    path.write_text(WRAPPER.format(attn=ATTN, few="" if WRITE else "--iterations=2 --warmup=0"), encoding="utf-8")
    path.chmod(0o755)
    page = PAGE.read_text(encoding="utf-8")
    if WRITE:
        write(page)
        return 0
    lines = [line for line in SCRIPT.read_text(encoding="utf-8").splitlines() if line and not line.startswith(("#", "set "))]
    written = [line for commands, _ in BLOCK.findall(page) for line in commands.splitlines()]
    check("the page has the lines of the script", lines == written, "\n".join(difflib.unified_diff(lines, written, lineterm="")))
    done = run(SCRIPT)
    check("the script ends well, and says nothing on standard error", done.returncode == 0 and not done.stderr, done.stderr)
    said, shown = unmeasured(done.stdout), unmeasured("".join(said for _, said in BLOCK.findall(page)))
    check("it prints what the page says", said == shown, "\n".join(difflib.unified_diff(shown.splitlines(), said.splitlines(), "page", "script", lineterm="")))
    files = set(FILE.findall("\n".join(lines)))
    check("it leaves files, and no others", {*files, "bin", "examples"} == set(os.listdir(".")), os.listdir("."))
    for name in sorted(files):
        check(f"{name} is whole", whole(name))
    return finish()


run_in_folder(main)
