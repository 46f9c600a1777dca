#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The version, in all places that name it.

    tools/version.py                           prints it; status 1 if two places differ, or a file names it that PLACES lacks
                                               (the test release/version; script/release)
    tools/version.py MAJOR.MINOR.PATCH [DATE]  writes it into all places, and into CHANGELOG.md and CITATION.cff the date (YYYY-MM-DD),
                                               or that this version is not yet released; a released one gets a section above it

--root TREE works on another tree.
"""
import argparse
import datetime
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
VERSION = r"\d+\.\d+\.\d+"
ABI = r"\d+\.\d+"  # of sonames, and what find_package is asked for, before 1.0 (cmake/library.cmake)
EXAMPLES = ("engine", "generate", "minimal", "seq2seq_additive", "train_copy", "transformer")

# (file, regular expression whose group is the text, how often, which part of the version)
PLACES = [
    ("CMakeLists.txt", rf"(?m)^project\(libattn VERSION ({VERSION}) ", 1, "whole"),
    ("include/attn/types.h", r"(?m)^#define ATTN_VERSION_MAJOR (\d+)$", 1, "major"),
    ("include/attn/types.h", r"(?m)^#define ATTN_VERSION_MINOR (\d+)$", 1, "minor"),
    ("include/attn/types.h", r"(?m)^#define ATTN_VERSION_PATCH (\d+)$", 1, "patch"),
    ("CITATION.cff", rf"(?m)^version: ({VERSION})$", 1, "whole"),
    ("javascript/package.json", rf'(?m)^  "version": "({VERSION})",$', 1, "whole"),
    ("docs/releasing.md", rf"\blibattn({ABI})\b", 2, "abi"),
    ("docs/releasing.md", rf"\bATTN_({ABI})\b", 1, "abi"),
    *((f"examples/{name}/CMakeLists.txt", rf"(?m)^find_package\(libattn ({ABI}) ", 1, "abi") for name in EXAMPLES),
]
HEADING = re.compile(rf"(?m)^## ({VERSION}), (not yet released|\d{{4}}-\d\d-\d\d)$")
RELEASED = re.compile(r"(?m)^date-released: (.*)\n")  # in CITATION.cff, if this version is released
# What was measured, or changed, with a version keeps it.
HISTORY = re.compile(r"^(CHANGELOG\.md|bench/results/.*|docs/(benchmarker|benchmarks|numerics|peers|reliability)\.md)$")
TEXT = re.compile(r"(\.(c|h|cpp|py|pyi|md|txt|cmake|in|sh|cff|toml|cfg|json|ya?ml|rb|1)|/[^./]+)$")


class Wrong(Exception):
    """The text says where and what, a line for each."""


def parts(version):
    major, minor, patch = version.split(".")
    return {"whole": version, "major": major, "minor": minor, "patch": patch, "abi": f"{major}.{minor}"}


def read(root, name):
    try:
        return (root / name).read_text(encoding="utf-8")
    except OSError as error:
        raise Wrong(f"{name}: {error.strerror}") from error


def heading(root):
    """The first heading of CHANGELOG.md that is a version's."""
    found = HEADING.search(read(root, "CHANGELOG.md"))
    if not found:
        raise Wrong("CHANGELOG.md: no heading `## MAJOR.MINOR.PATCH, not yet released` or with a date")
    return found


def matches(root, name, pattern, count):
    found = list(re.finditer(pattern, read(root, name)))
    if len(found) != count:
        raise Wrong(f"{name}: {len(found)} times {pattern}, not {count}: correct PLACES in tools/version.py")
    return found


def files(root):
    """Tracked files, or those of an unpacked tarball."""
    if (root / ".git").exists():
        listed = subprocess.run(["git", "ls-files"], cwd=root, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    else:
        listed = [str(path.relative_to(root)) for path in sorted(root.rglob("*")) if path.is_file()]
    return [name for name in listed if TEXT.search("/" + name) and not re.match(r"(build|dist)/", name) and (root / name).is_file()]


def others(root, version):
    """Lines beside PLACES that name this version of libattn, or that of its interface next to its name."""
    known, abi = {name for name, *_ in PLACES}, re.escape(parts(version)["abi"])
    whole = rf"(?<![\d.]){re.escape(version)}(?![\d.]\d)"
    named = re.compile(rf"(?i)\b(libattn|version)\W.*{whole}|{whole}.*\blibattn|\b(lib)?attn(_[a-z]+)?(\.so)?[\W_]{{0,4}}{abi}(?!\.?\d)")
    for name in files(root):
        if name in known or HISTORY.match(name):
            continue
        text = (root / name).read_text(encoding="utf-8", errors="replace")
        for number, line in enumerate(text.splitlines() if parts(version)["abi"] in text else (), 1):
            found = named.search(line)
            if found:
                yield f"{name}:{number}: `{found[0]}` names the version, and is not in PLACES of tools/version.py"


def check_date(root):
    """What is wrong with the date in CITATION.cff."""
    when, found = heading(root)[2], RELEASED.findall(read(root, "CITATION.cff"))
    wanted = [] if when == "not yet released" else [when]
    if found != wanted:
        yield f"CITATION.cff: date-released is {', '.join(found) or 'missing'}, but CHANGELOG.md says {when}"


def check(root):
    """The version."""
    version = matches(root, *PLACES[0][:3])[0][1]
    wanted, wrong = parts(version), []
    for name, pattern, count, part in PLACES:
        for match in matches(root, name, pattern, count):
            if match[1] != wanted[part]:
                line = match.string.count("\n", 0, match.start(1)) + 1
                wrong.append(f"{name}:{line}: {match[1]}, but {wanted[part]} in {PLACES[0][0]}")
    if heading(root)[1] != version:
        wrong.append(f"CHANGELOG.md: the first version is {heading(root)[1]}, but {version} in {PLACES[0][0]}")
    wrong += [*check_date(root), *others(root, version)]
    if wrong:
        raise Wrong("\n".join(wrong))
    return version


def write(root, version, date):
    old = check(root)
    if tuple(map(int, version.split("."))) < tuple(map(int, old.split("."))):
        raise Wrong(f"{version} is older than {old}")
    if not version.startswith("0.") and any(part == "abi" for *_, part in PLACES):
        raise Wrong("from 1.0 on a soname is the major version alone: correct docs/releasing.md, and PLACES in tools/version.py")
    when, found = date or "not yet released", heading(root)
    if found[2] != "not yet released" and version == old:
        raise Wrong(f"CHANGELOG.md: {old} was released on {found[2]}")
    for name, pattern, count, part in PLACES:
        text = read(root, name)
        for match in reversed(matches(root, name, pattern, count)):
            text = text[:match.start(1)] + parts(version)[part] + text[match.end(1):]
        (root / name).write_text(text, encoding="utf-8")
    after = "" if found[2] == "not yet released" else f"\n\n{found[0]}"
    text = found.string[:found.start()] + f"## {version}, {when}{after}" + found.string[found.end():]
    (root / "CHANGELOG.md").write_text(text, encoding="utf-8")
    text = RELEASED.sub("", read(root, "CITATION.cff"))
    text = re.sub(r"(?m)^(version: .*)\n", rf"\1\ndate-released: {date}\n", text) if date else text
    (root / "CITATION.cff").write_text(text, encoding="utf-8")
    return check(root)


def main():
    parser = argparse.ArgumentParser(description="The version, in all places that name it.")
    parser.add_argument("version", nargs="?", help="write this one")
    parser.add_argument("date", nargs="?", help="the day of the release, YYYY-MM-DD")
    parser.add_argument("--root", type=pathlib.Path, default=ROOT)
    args = parser.parse_args()
    if args.version and not re.fullmatch(VERSION, args.version):
        parser.error(f"{args.version} is not MAJOR.MINOR.PATCH")
    if args.date:
        try:
            datetime.date.fromisoformat(args.date)
        except ValueError:
            parser.error(f"{args.date} is not a day, YYYY-MM-DD")
    try:
        print(write(args.root, args.version, args.date) if args.version else check(args.root))
    except Wrong as wrong:
        print(f"{wrong}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
