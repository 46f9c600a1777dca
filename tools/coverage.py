#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""coverage.py BUILD LEAST: the lines and branches of src/core taken by the tests of a build with ATTN_COVERAGE, by folder, and the
files with the most untaken branches (-v: these branches, by line).  Status 1 if fewer than LEAST percent of all branches are taken.

Kernels are written once and compiled for each type and instruction set, and macros make several functions of one line.  A branch of
a line counts as taken if any function that the line is compiled into takes it.  If these functions differ in the number of branches of
the line (a condition is a constant for one type), the largest number counts; emulated kernels do not contribute to it.  (gcovr stopped
on counts that lost updates had made negative; how it merges functions of one name was not tested.)"""
import collections, concurrent.futures, json, os, subprocess, sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def read(path):
    """[(file, line, count, [count of each branch])] of one object."""
    out = subprocess.run(["gcov", "--json-format", "--branch-probabilities", "--stdout", path], stdout=subprocess.PIPE,
                         stderr=subprocess.DEVNULL, cwd=os.path.dirname(path)).stdout
    found = []
    for text in filter(None, out.decode().split("\n")):
        report = json.loads(text)
        for file in report["files"]:
            name = os.path.relpath(os.path.normpath(os.path.join(report["current_working_directory"], file["file"])), ROOT)
            if name.startswith("src/core/") and not name.endswith("_emulate.h"):
                for line in file["lines"]:
                    found.append((name, line["line_number"], line.get("function_name"), line["count"],
                                  [b["count"] for b in line["branches"] if not b["throw"]]))
    return found


def merge(objects):
    """{(file, line): (taken, [whether each branch was taken])}"""
    merged = {}
    for emulated, found in objects:
        functions = collections.defaultdict(lambda: [0, []])
        for name, line, function, count, branches in found:
            of = functions[name, line, function]
            of[0] += count
            of[1] += branches
        for (name, line, _), (count, branches) in functions.items():
            taken, old = merged.get((name, line), (False, []))
            if len(old) > len(branches) or (emulated and len(old) < len(branches)):
                branches = old
            elif len(old) == len(branches):
                branches = [bool(a or b) for a, b in zip(old, branches)]
            merged[name, line] = (taken or count > 0, [bool(b) for b in branches])
    return merged


def folder_of(name):
    parts = name.split("/")[2:-1]
    return "/".join(parts[: 2 if parts[0] == "walk" else 1])


def share(taken, all_):
    return f"{taken:6} {all_:6} {100 * taken / max(all_, 1):7.1f}%"


def main():
    build, least = os.path.abspath(sys.argv[1]), float(sys.argv[2])
    # Files that never ran have notes and no counts; the emulated kernels, which come last, are included only if they have counts.
    data = sorted((("emulated" in at, os.path.join(at, f)) for at, _, files in os.walk(build) for f in files
                   if f.endswith(".gcno") and ("attn_core_objects" in at or f[:-4] + "gcda" in files)))
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        merged = merge(pool.map(lambda d: (d[0], read(d[1])), data))
    if not merged:
        sys.exit(f"{build} has no counts of src/core")
    folders, files = (collections.defaultdict(lambda: [0, 0, 0, 0]) for _ in range(2))
    for (name, _), (taken, branches) in merged.items():
        for sums in (folders[folder_of(name)], folders["all"], files[name]):
            for i, more in enumerate((taken, 1, sum(branches), len(branches))):
                sums[i] += more
    print(f"{'src/core/':<22}{'lines taken, all':>22}  {'branches taken, all':>22}")
    for folder in sorted(folders, key=lambda f: (f == "all", f)):
        s = folders[folder]
        print(f"{folder:<22}{share(s[0], s[1])}  {share(s[2], s[3])}")
    print("\nuntaken branches, and all:")
    for name in sorted(files, key=lambda f: files[f][2] - files[f][3])[:10]:
        print(f"{files[name][3] - files[name][2]:6} {files[name][3]:6}  {name}")
    if "-v" in sys.argv:
        for (name, line), (taken, branches) in sorted(merged.items()):
            if not all(branches):
                print(f"{name}:{line} {'' if taken else 'not run '}{sum(branches)} of {len(branches)}")
    taken, all_ = folders["all"][2:]
    print(f"\n{100 * taken / all_:.2f} % of the branches of src/core, at least {least:g} required")
    return 100 * taken < least * all_


if __name__ == "__main__":
    sys.exit(main())
