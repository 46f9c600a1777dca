#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""docs/command.md has every public function once.  One that a command reaches is called by the command's sources (its own, the harness,
the models that it trains); one of a row that begins with "no" is not called by those of cli/.

usage: reach.py [FOLDER]        (the tree to check; default: this one)
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__).resolve()
ROOT = ROOT if ROOT.is_dir() else ROOT.parent.parent.parent
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
PUBLIC = re.compile(r"\bATTN_API\b[^;{]*?\b(attn_\w+)\s*\(")
MODELS = ["examples/learn/learn.c", "examples/train_copy/model.c", "examples/seq2seq_additive/decoder.c"]


def called(files):
    """Names that are followed by a bracket, or passed as a function."""
    return {name for file in files for name in re.findall(r"\battn_\w+", COMMENT.sub("", file.read_text()))}


def main():
    public = [name for header in sorted((ROOT / "include/attn").glob("*.h")) for name in PUBLIC.findall(COMMENT.sub("", header.read_text()))]
    of_cli = called((ROOT / "cli").rglob("*.[ch]"))
    reached = of_cli | called((ROOT / "testing").rglob("*.[ch]")) | called(ROOT / model for model in MODELS)
    faults, seen = [], set()
    for line in (ROOT / "docs/command.md").read_text().splitlines():
        row = re.match(r"\| (`attn_.*`) \| (.+) \|$", line)
        if not row:
            continue
        for name in re.findall(r"`(attn_\w+)`", row[1]):
            if name in seen:
                faults.append(f"{name} has two rows")
            seen.add(name)
            if name not in public:
                faults.append(f"{name} is not a public function")
            elif row[2].startswith("no: ") and name in of_cli:
                faults.append(f"{name} has a row that begins with no, and a command calls it")
            elif not row[2].startswith("no: ") and name not in reached:
                faults.append(f"{name} has a row with a command, and none calls it")
    faults += [f"{name} has no row" for name in public if name not in seen]
    for fault in faults:
        print(f"docs/command.md: {fault}")
    print(f"{len(public)} functions, {len(faults)} faults")
    return 1 if faults or len(public) < 150 else 0


sys.exit(main())
