#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Adds up the reports of script/test: ctest's JUnit files and the file `steps` (lines of failed|skipped NAME REASON) of a folder.

Lists failed tests, and skipped tests with their reasons; the last line is `N passed, N failed, N skipped`.  Status 1 if anything failed
or nothing passed.  A test that ctest could not start has failed: only a test that reports it (status 77) and prints the reason counts
as skipped.  Tests of a program that has passed and skipped some of them are counted beside it, as are files of Python tests.
"""
import itertools
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree


def reason_of(case):
    """What follows `skipped: ` in its output, or None."""
    found = re.search(r"^skipped: *(\S.*)$", case.findtext("system-out") or "", re.M)
    return found and found[1]


def parts_of(case, name, failed, skipped):
    """Counts the tests of a program (cmocka), and the files (tests/python/run.py), that it skipped."""
    text = case.findtext("system-out") or ""  # (in which stdout and stderr are mixed)
    reasons = re.findall(r"^skipped in part: (\S.*)$", text, re.M)
    tests = dict.fromkeys(re.findall(r"^\[  SKIPPED \] ([A-Za-z_]\w*)$", text, re.M))
    for test, reason in itertools.zip_longest(tests, reasons[:len(tests)]):
        (skipped if reason else failed).append((f"{name}, {test}", reason or "it is skipped and does not say why; use SKIP_BECAUSE"))
    skipped.extend((f"{name}, {file}", reason) for file, reason in re.findall(r"^skipped file: (\S+): (\S.*)$", text, re.M))


def read(path, passed, failed, skipped):
    try:
        suite = ElementTree.parse(path).getroot()
    except ElementTree.ParseError as error:
        failed.append((path.stem, f"the report cannot be read: {error}"))
        return
    cases = suite.findall("testcase")
    if len(cases) != int(suite.get("tests", "-1")) or not cases:
        failed.append((path.stem, f"the report has {len(cases)} of {suite.get('tests')} tests"))
    for case in cases:
        name = f"{path.stem}: {case.get('name')}"
        skip = case.find("skipped")
        if case.get("status") == "run":
            passed.append((name, ""))
            parts_of(case, name, failed, skipped)
        elif skip is not None and (skip.get("message") or "").startswith("SKIP_RETURN_CODE"):
            reason = reason_of(case)
            if reason:
                skipped.append((name, reason))
            else:
                failed.append((name, "it exits with 77 and does not say why; let it print `skipped: REASON`"))
        else:
            node = case.find("failure") if skip is None else skip
            failed.append((name, (node.get("message") or "") if node is not None else case.get("status", "")))


def main():
    folder = pathlib.Path(sys.argv[1])
    passed, failed, skipped = [], [], []
    for path in sorted(folder.glob("*.xml")):
        read(path, passed, failed, skipped)
    steps = folder / "steps"
    for line in steps.read_text().splitlines() if steps.exists() else []:
        kind, name, reason = (line + "  ").split(" ", 2)
        if kind == "skipped" and reason.strip():
            skipped.append((name, reason.strip()))
        else:
            failed.append((name, reason.strip() or "no reason"))
    for title, what in (("skipped", skipped), ("failed", failed)):
        for name, reason in what:
            print(f"{title}: {name}: {reason}")
    print(f"{len(passed)} passed, {len(failed)} failed, {len(skipped)} skipped")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
