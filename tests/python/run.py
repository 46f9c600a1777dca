#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs files of python/tests with pytest: run.py BUILD FILE... [--slow]

Without --slow, tests marked slow are left out; with it, all others.  Status 77, with the reason, if every test was skipped; 1 if one was
skipped without a reason, or if a file has no test.  Of several files, those of which every test was skipped are named with the reason.
"""
import gc
import os
import pathlib
import sys

from interpreter import environment, interpreter, skip


NO_REASONS = {"", "Skipped", "unconditional skip", "<Skipped instance>"}  # what pytest says of skip() and mark.skip


class Counter:
    """Which files had a test that ran, or one that was left out, the reasons of skipped ones, and tests that were skipped without."""

    def __init__(self):
        self.ran, self.left, self.reasons, self.unexplained = set(), set(), {}, []

    def pytest_runtest_logreport(self, report):
        self.add(report, report.when == "call")

    def pytest_collectreport(self, report):
        self.add(report, False)

    def pytest_deselected(self, items):
        self.left.update(item.path.name for item in items)

    def add(self, report, ran):
        file = report.nodeid.partition("::")[0].rpartition("/")[2]
        if report.skipped and isinstance(report.longrepr, tuple):
            reason = report.longrepr[2].removeprefix("Skipped:").strip()
            self.reasons.setdefault(file, set()).add(reason)
            if reason in NO_REASONS:
                self.unexplained.append(report.nodeid)
        if ran and not report.skipped:
            self.ran.add(file)


def main():
    build, *files = [word for word in sys.argv[1:] if word != "--slow"] or [""]
    if not files or build.startswith("-"):
        sys.exit(__doc__)
    if os.environ.get("ATTN_TEST_RUNS") != "1":  # once more, in the package's own environment
        chosen = interpreter()
        os.execve(chosen, [chosen, *sys.argv], {**environment(build), "ATTN_TEST_RUNS": "1"})
    del os.environ["ATTN_TEST_RUNS"]
    if sys.dont_write_bytecode or not sys.pycache_prefix:
        sys.exit("compiled modules are not kept: each test would compile all that it imports (interpreter.py)")
    for module in "numpy", "pytest":
        try:
            __import__(module)
        except ImportError:
            skip(f"{sys.executable} has no {module}")
    import pytest

    # Graphs of PyTorch are hundreds of thousands of objects that live on: to look through them again and again for garbage takes an
    # eighth of the time.  (What needs a collection asks for it.)
    gc.set_threshold(100_000, 50, 100)
    counter = Counter()
    select = "slow" if "--slow" in sys.argv else "not slow"
    root = str(pathlib.Path(files[0]).parents[2])
    status = pytest.main(["-q", "-rs", "-p", "no:cacheprovider", "--rootdir", root, "-m", select, *files], plugins=[counter])
    for test in counter.unexplained:
        print(f"{test} is skipped without a reason; give it one: pytest.skip(\"there is no ...\")")
    if counter.unexplained:
        return 1
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        return int(status)
    names = [pathlib.Path(file).name for file in files]
    empty = [file for file in names if file not in counter.ran | counter.reasons.keys() | (counter.left if counter.ran or counter.reasons else set())]
    if empty:
        print(f"there is no test in {' '.join(empty)}")
        return 1
    if not counter.ran:
        skip("; ".join(sorted(set().union(*counter.reasons.values()))))
    for file in names:
        if file in counter.reasons and file not in counter.ran:
            print(f"skipped file: {file}: {'; '.join(sorted(counter.reasons[file]))}")
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
