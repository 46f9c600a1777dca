#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""run.py reports what it should: a failure, a skipped file with its reason, a file without tests, slow tests apart; also beside others."""
import pathlib
import subprocess
import sys
import tempfile

BUILD = sys.argv[1]
RUN = pathlib.Path(__file__).with_name("run.py")
CASES = [
    ("def test_wrong():\n    assert 1 == 2\n", [], 1, "1 failed"),
    ("import nothing_of_this_name\n", [], 2, "error"),
    ("import pytest\nnone = pytest.importorskip('nothing_of_this_name')\ndef test(): pass\n", [], 77, "skipped: could not import"),
    ("import pytest\n@pytest.mark.skip('no GPU')\ndef test(): pass\n", [], 77, "skipped: no GPU"),
    ("import pytest\n@pytest.mark.skip('no GPU')\ndef test_one(): pass\ndef test_two(): pass\n", [], 0, "1 passed, 1 skipped"),
    ("", [], 1, "there is no test"),
    ("import pytest\n@pytest.mark.slow\ndef test_one(): pass\ndef test_two(): pass\ndef test_three(): pass\n", [], 0, "2 passed"),
    ("import pytest\n@pytest.mark.slow\ndef test_one(): pass\ndef test_two(): pass\ndef test_three(): pass\n", ["--slow"], 0, "1 passed"),
]

BESIDE = "def test_beside(): pass\n"
TOGETHER = [  # with a file that has a test
    (CASES[0][0], [], 1, "1 failed, 1 passed"),
    (CASES[1][0], [], 2, "error"),
    (CASES[2][0], [], 0, "skipped file: test_{}.py: could not import 'nothing_of_this_name'"),
    (CASES[3][0], [], 0, "skipped file: test_{}.py: no GPU"),
    (CASES[5][0], [], 1, "there is no test in test_{}.py\n"),
    ("def check_nothing(): pass\n", [], 1, "there is no test in test_{}.py\n"),
    ("import pytest\n@pytest.mark.slow\ndef test_one(): pass\n", [], 0, "1 passed, 1 deselected"),
]

with tempfile.TemporaryDirectory() as folder:
    for number, (text, options, status, words) in enumerate(CASES + TOGETHER):
        file = pathlib.Path(folder) / f"a/b/test_{number}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        files, words = [str(file)], words.format(number)
        if number >= len(CASES):
            files.append(str(file.with_name("test_beside.py")))
            pathlib.Path(files[1]).write_text(BESIDE)
        found = subprocess.run([sys.executable, str(RUN), BUILD, *files, *options], capture_output=True, text=True, check=False)
        if found.returncode == 77 and " has no " in found.stdout:
            print(found.stdout)
            sys.exit(77)
        if found.returncode != status or words not in found.stdout:
            sys.exit(f"{text!r}: status {found.returncode}, not {status} with {words!r}:\n{found.stdout}{found.stderr}")
print(f"{len(CASES + TOGETHER)} cases")
