#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Includes point down only.

In src/core: api -> plan -> walk -> prepare -> gradient -> tile -> task -> visible -> threads -> kernels -> base; all of src may
include src/common.  In testing: conformance -> verdict -> case -> bound -> problem -> memory -> text -> random.  Everything else sees the public
headers and its own folder; the command, the harness and the tests also see ref/, the command and the tests see testing, and the
tests of internals (tests/unit, tests/interface, tests/kernels, tests/fault, tests/combination) all of src/core.  Tests share tests/ and
tests/combination.  ref/ sees nothing of ours.

Nothing includes a walk of attention, which is known by its type alone (walk/walks.h), but what is in its own folder, and rows, which
is tiles of another problem.

Usage: tools/check_layers.py [FOLDER]        (the tree to check; default: the one this script is in)
"""
import pathlib
import re
import sys

# Each may include itself and what stands before it.
CORE = ["base", "kernels", "threads", "visible", "task", "tile", "gradient", "prepare", "walk", "plan", "api"]
TESTING = ["random", "text", "memory", "problem", "bound", "case", "verdict", "conformance"]
KNOWN_WALKS = ["linear", "merge", "product"]  # whose problems are their own
WALKS_OVER_WALKS = [("src/core/walk/rows", "src/core/walk/tiles")]
INTERNALS_TESTED = ["tests/unit", "tests/interface", "tests/kernels", "tests/fault", "tests/combination"]
SHARED_BY_TESTS = ["tests", "tests/combination"]
INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"([^"]+)"|<([^>]+)>)', re.M)


def area(path):
    """The folder that a rule speaks of: src/core/plan, src/core/walk/tiles, src/io, cli, ref, tests/unit ..."""
    depth = 2 if path.parts[0] in ("src", "tests", "testing") else 1
    if path.parts[:2] == ("src", "core"):
        depth = 4 if path.parts[2] == "walk" else 3
    return "/".join(path.parts[: min(depth, len(path.parts) - 1)])


def allowed(source, target):
    if source == target or target == "include":
        return source != "ref" or target == "ref"
    if source.startswith("src/") and target == "src/common":
        return True
    if source in ("include", "ref"):
        return False
    if source.startswith("src/core/"):
        if not target.startswith("src/core/"):
            return False
        walk = target.split("/")[3:]
        if walk and walk[0] not in KNOWN_WALKS and (source, target) not in WALKS_OVER_WALKS:
            return False
        return CORE.index(target.split("/")[2]) <= CORE.index(source.split("/")[2])
    if source.startswith(("tests", "fuzz")):
        if target.startswith("src/core/"):
            return source in INTERNALS_TESTED
        return target == "ref" or target in SHARED_BY_TESTS or target.split("/")[0] in ("cli", "src", "testing")
    if source.startswith("testing/") and target.startswith("testing/"):
        return TESTING.index(target.split("/")[1]) <= TESTING.index(source.split("/")[1])
    if source.split("/")[0] in ("cli", "testing"):
        return target == "ref" or (source == "cli" and target.startswith("testing/"))
    return False


def resolve(root, file, name, quoted):
    """The file of ours that an include means, or None."""
    folders = [root / "include", root / "src/core", root / "ref", root / "tests", root / "cli", root / "src/io", root]
    for folder in ([file.parent] if quoted else []) + folders:
        found = (folder / name).resolve()
        if found.is_file() and root in found.parents:
            return found.relative_to(root)
    return None


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent).resolve()
    files = faults = 0
    for folder in ("include", "ref", "src", "testing", "cli", "tests", "examples", "bench", "fuzz"):
        for file in sorted((root / folder).rglob("*")):
            if file.suffix not in (".c", ".h", ".def"):
                continue
            files += 1
            here = file.relative_to(root)
            for match in INCLUDE.finditer(file.read_text()):
                target = resolve(root, file, match.group(1) or match.group(2), match.group(1) is not None)
                if target and not allowed(area(here), area(target)):
                    faults += 1
                    print(f"{here}: {area(here)} may not include {target}")
    if files == 0:
        faults = 1
        print(f"{root}: no sources here")
    print(f"{files} files, {faults} includes that do not point down")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
