#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks that includes and calls point down only, and that files neither include nor call each other in cycles.

In src/core: api -> plan -> walk -> prepare -> gradient -> tile -> task -> visible -> threads -> kernels -> base; all of src may
include src/common.  In testing: conformance -> verdict -> case -> bound -> problem -> memory -> text -> random.  In cli: a command
(a file of cli/, or a folder) -> output -> compute -> input -> measure -> base, and no command to another, but those of attn-mpi
(cli/mpi) to commands of attn; they see problem, memory, text and random of
testing, `attn make` its cases too, `attn train` the models of examples/, and `attn check` alone sees all of it, and ref/.

Everything else sees the public headers and its own folder; the modules of python/ also see python/common, the harness and the tests
ref/, the tests testing and cli, and the tests of internals (tests/unit, tests/interface, tests/kernels, tests/fault, tests/combination,
tests/wasm) all of src/core.  Tests share tests/, tests/combination, tests/cut and tests/linear.  ref/ sees none of our headers.

A walk of attention is known only by its type (walk/walks.h): only files of its own folder include or call it, and rows, which runs
tiles over another problem.

Usage: tools/check_layers.py [--build BUILD] [FOLDER]        (the tree to check; default: the one this script is in)

With --build, nm reads the calls of each file from the objects of a build (listed in compile_commands.json): the same rules apply to
calls without an include, and calls must not form a cycle.
"""
import argparse
import collections
import json
import pathlib
import re
import shlex
import subprocess
import sys

# Each may include itself and those before it.
CORE = ["base", "kernels", "threads", "visible", "task", "tile", "gradient", "prepare", "walk", "plan", "api"]
TESTING = ["random", "text", "memory", "problem", "bound", "case", "verdict", "ranks", "conformance"]
FOR_COMMANDS = TESTING[:4]
CLI = ["base", "measure", "input", "compute", "output"]  # shared by commands
CHECKS = "cli/check"
TRAINS = "cli/train"
MAKES_CASES = "cli/make"
KNOWN_WALKS = ["linear", "merge", "product", "convolution", "transfer"]  # these have problems of their own
WALKS_OVER_WALKS = [("src/core/walk/rows", "src/core/walk/tiles")]
INTERNALS_TESTED = ["tests/unit", "tests/interface", "tests/kernels", "tests/fault", "tests/combination", "tests/wasm"]
SHARED_BY_TESTS = ["tests", "tests/combination", "tests/cut", "tests/linear"]
INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"([^"]+)"|<([^>]+)>)', re.M)
BY_MACRO = re.compile(r'^\s*#\s*include\s+([^"<\s]\S*)', re.M)  # which these rules cannot follow
PUBLIC = re.compile(r"\bATTN_API\b[^;{]*?\b(attn_\w+)\s*\(")


def area(path):
    """The folder that a rule refers to: src/core/plan, src/core/walk/tiles, src/io, cli/run, cli/top, ref, tests/unit ..."""
    if path.parts[0] == "cli" and len(path.parts) == 2:
        return f"cli/{path.stem}"
    depth = 2 if path.parts[0] in ("src", "tests", "testing", "cli", "python") else 1
    if path.parts[:2] == ("src", "core"):
        depth = 4 if path.parts[2] == "walk" else 3
    return "/".join(path.parts[: min(depth, len(path.parts) - 1)])


def points_down(order, source, target):
    return order.index(target) <= order.index(source)


def knows_walk(source, target):
    """For core areas: whether target is not a walk of attention, or is one that the source may know."""
    walk = target.split("/")[3:]
    return source == target or not walk or walk[0] in KNOWN_WALKS or (source, target) in WALKS_OVER_WALKS


def allowed_in_cli(source, target):
    folder, kind = target.split("/")[0], target.split("/")[-1]
    if folder == "cli":
        return kind in CLI and (source.split("/")[1] not in CLI or points_down(CLI, source.split("/")[1], kind))
    if folder == "testing":
        return kind in FOR_COMMANDS or (source == MAKES_CASES and kind == "case") or (source == CHECKS and kind != TESTING[-1])
    return (source, target) in ((CHECKS, "ref"), (TRAINS, "examples"))


def allowed(source, target):
    if source == target or target == "include":
        return source != "ref" or target == "ref"
    if source.startswith("src/") and target == "src/common":
        return True
    if source in ("include", "ref"):
        return False
    if source.startswith("src/core/"):
        if not target.startswith("src/core/") or not knows_walk(source, target):
            return False
        return points_down(CORE, source.split("/")[2], target.split("/")[2])
    if source.startswith(("tests", "fuzz")):
        if target.startswith("src/core/"):
            return source in INTERNALS_TESTED
        return target == "ref" or target in SHARED_BY_TESTS or target.split("/")[0] in ("cli", "src", "testing")
    if source.startswith("python/"):
        return target == "python/common"
    if source.startswith("testing/"):
        if target.startswith("testing/"):
            return points_down(TESTING, source.split("/")[1], target.split("/")[1])
        return target == "ref"
    return source.startswith("cli/") and allowed_in_cli(source, target)


# ---- includes ----


def resolve(root, file, name, quoted):
    """The file of ours that an include refers to, or None."""
    folders = [root / "include", root / "src/core", root / "ref", root / "tests", root / "src/io", root]
    for folder in ([file.parent] if quoted else []) + folders:
        found = (folder / name).resolve()
        if found.is_file() and root in found.parents:
            return found.relative_to(root)
    return None


def check_includes(root):
    files = faults = 0
    includes = collections.defaultdict(dict)
    for folder in ("include", "ref", "src", "testing", "cli", "tests", "examples", "bench", "fuzz", "python"):
        for file in sorted((root / folder).rglob("*")):
            if file.suffix not in (".c", ".h", ".def"):
                continue
            files += 1
            here = file.relative_to(root)
            text = file.read_text()
            for match in BY_MACRO.finditer(text):
                faults += 1
                print(f"{here}: #include {match[1]}: name the file, or its rule cannot be checked")
            for match in INCLUDE.finditer(text):
                target = resolve(root, file, match.group(1) or match.group(2), match.group(1) is not None)
                if target and target != here:
                    includes[here][target] = True
                if target and not allowed(area(here), area(target)):
                    faults += 1
                    print(f"{here}: {area(here)} may not include {target}")
    for circle in circles(includes):
        faults += 1
        print(f"these include each other in a circle; move what they share to a header of its own: {', '.join(map(str, circle))}")
    if files == 0:
        faults = 1
        print(f"{root}: no sources here")
    print(f"{files} files, {faults} includes that do not point down")
    return faults


# ---- calls ----


def objects_of(root, build):
    """{object: source} of the files to which the rules of calls apply."""
    found = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        source = pathlib.Path(entry["directory"], entry["file"]).resolve()
        if root not in source.parents or build in source.parents:
            continue
        source = source.relative_to(root)
        args = entry.get("arguments") or shlex.split(entry["command"])
        made = pathlib.Path(entry["directory"], args[args.index("-o") + 1])
        if source.parts[0] in ("src", "ref", "testing", "cli") and made.exists():
            found[made] = source
    return found


def symbols_of(objects):
    """The symbols that each source defines, {symbol: is it a function}, and those that it uses."""
    defined, used = collections.defaultdict(dict), collections.defaultdict(set)
    printed = subprocess.run(["nm", "-A", "-P", *map(str, objects)], capture_output=True, text=True, check=True).stdout
    for line in printed.splitlines():
        name, _, rest = line.partition(": ")
        symbol, kind = rest.split()[:2]
        source = objects[pathlib.Path(name)]
        if kind == "U":
            used[source].add(symbol)
        elif kind in "TWVDRBC":
            defined[source][symbol] = kind in "TW"
    return defined, used


def circles(calls):
    """The strongly connected components of more than one file (Tarjan 1972)."""
    index, low, stack, found = {}, {}, [], []

    def visit(file):
        index[file] = low[file] = len(index)
        stack.append(file)
        for other in calls.get(file, {}):
            if other not in index:
                visit(other)
            if other in stack:
                low[file] = min(low[file], low[other])
        if low[file] == index[file]:
            at = stack.index(file)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for file in sorted(calls):
        if file not in index:
            visit(file)
    return found


def allowed_call(source, target, symbol, function, public):
    """A public function may be called by all files that see its header; in the core, by the layers above it."""
    core = source.startswith("src/core/") and target.startswith("src/core/")
    if symbol in public and not source.startswith("src/core/"):
        return source != "ref"
    if core and not function:  # the type of a walk
        return points_down(CORE, source.split("/")[2], target.split("/")[2])
    if source in ("cli/main", "cli/mpi") and symbol.startswith("attn_cmd_"):
        return True
    return allowed(source, target)


def check_calls(root, build):
    objects = objects_of(root, build)
    defined, used = symbols_of(objects) if objects else ({}, {})
    public = set()
    for header in (root / "include").rglob("*.h"):
        public.update(PUBLIC.findall(header.read_text()))
    owners = collections.defaultdict(set)
    for source, symbols in defined.items():
        for symbol in symbols:
            owners[symbol].add(source)
    faults, calls = 0, collections.defaultdict(lambda: collections.defaultdict(list))
    for symbol in [symbol for symbol, files in owners.items() if len(files) > 1 and symbol != "main"]:
        faults += 1
        print(f"{' and '.join(sorted(map(str, owners.pop(symbol))))} both define {symbol}: give one of them another name")
    for source in sorted(used):
        for symbol in sorted(used[source]):
            for target in sorted(owners[symbol] - {source}):
                calls[source][target].append(symbol)
                if not allowed_call(area(source), area(target), symbol, defined[target][symbol], public):
                    faults += 1
                    print(f"{source}: {area(source)} may not call {symbol} of {target}")
    if not calls or not public:
        faults += 1
        print(f"{build}: no objects here; build first")
    for circle in circles(calls):
        faults += 1
        print("a circle:")
        for source in circle:
            for target in circle:
                if target in calls[source]:
                    print(f"    {source} calls {', '.join(calls[source][target])} of {target}")
    count = sum(len(targets) for targets in calls.values())
    print(f"{len(set(objects.values()))} files, {count} pairs that call, {faults} that do not point down or are part of a cycle")
    return faults


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", default=pathlib.Path(__file__).parent.parent, type=pathlib.Path)
    parser.add_argument("--build", type=pathlib.Path)
    args = parser.parse_args()
    root = args.folder.resolve()
    faults = check_includes(root)
    if args.build:
        faults += check_calls(root, args.build.resolve())
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
