#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What tools/sum_tests.py counts: reports of ctest with one test each, and lines of `steps`.

usage: sum_tests.py
"""
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from tap import check, finish

RUN = '<testcase name="t" status="run"/>'
SKIP = '<testcase name="t" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/><system-out>{}</system-out></testcase>'
PARTS = ('<testcase name="t" status="run"><system-out>{}[  SKIPPED ] a\n[       OK ] b\n'
         '[  SKIPPED ] 1 test(s), listed below:\n[  SKIPPED ] a\n</system-out></testcase>')
CASES = [  # what, the test, a line of `steps`, what is counted
    ("passes", RUN, "", (1, 0, 0)),
    ("skips", SKIP.format("skipped: no clang"), "", (0, 0, 1)),
    ("skips without a word", SKIP.format("hello"), "", (0, 1, 0)),
    ("skips without a reason", SKIP.format("skipped: \nno"), "", (0, 1, 0)),
    ("cannot be started", '<testcase name="t" status="notrun"><skipped message="Unable to find executable"/></testcase>', "", (0, 1, 0)),
    ("fails", '<testcase name="t" status="fail"><failure message=""/></testcase>', "", (0, 1, 0)),
    ("skips a test of several", PARTS.format("skipped in part: no threads\n"), "", (1, 0, 1)),
    ("skips a test of several without a word", PARTS.format(""), "", (1, 1, 0)),
    ("skips a file of several", '<testcase name="t" status="run"><system-out>skipped file: test_a.py: no torch\n</system-out></testcase>', "", (1, 0, 1)),
    ("is missing in the report", "", "", (0, 2, 0)),
    ("a step is skipped", RUN, "skipped clang/build there is no clang", (1, 0, 1)),
    ("a step is skipped without a reason", RUN, "skipped clang/build", (1, 1, 0)),
    ("a step fails", RUN, "failed clang/build it did not build", (1, 1, 0)),
]


def counted(case, step):
    with tempfile.TemporaryDirectory() as folder:
        if case:
            pathlib.Path(folder, "gcc.xml").write_text(f'<testsuite tests="1">{case}</testsuite>')
        else:
            pathlib.Path(folder, "gcc.xml").write_text('<testsuite tests="1"></testsuite>')
            pathlib.Path(folder, "asan.xml").write_text("")
        pathlib.Path(folder, "steps").write_text(f"{step}\n" if step else "")
        done = subprocess.run([sys.executable, ROOT / "tools/sum_tests.py", folder], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.splitlines()[-1] if done.stdout else done.stderr


def main():
    for what, case, step, (passed, failed, skipped) in CASES:
        status, words = counted(case, step)
        check(what, words == f"{passed} passed, {failed} failed, {skipped} skipped" and status == (failed > 0 or not passed), words)
    return finish()


sys.exit(main())
