#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes the environment that the tests of the Python package run in: venv.py FOLDER

It has what requirements.txt lists, and what requirements-no-deps.txt lists without what that depends on: files of models lie in it.
If a list cannot be installed together, each is installed alone, and FOLDER/missing says which are missing and why: tests that need
them are then skipped.  FOLDER/installed is written last; if it fits the lists, nothing is done.
"""
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
LISTS = {HERE / "requirements.txt": [], HERE / "requirements-no-deps.txt": ["--no-deps"]}


def install(folder, *what):
    """None, or pip's sentence on why not."""
    # Not compiled: tests look for compiled modules below their build folder (interpreter.py), and import a tenth of these 12,000.
    words = [folder / "bin/python", "-m", "pip", "install", "-q", "--no-compile", "--disable-pip-version-check", "--retries", "1", "--timeout", "20", *what]
    found = subprocess.run(words, capture_output=True, text=True, check=False)
    if found.returncode == 0:
        return None
    said = [line for line in found.stderr.splitlines() if line.startswith("ERROR: ")] or found.stderr.splitlines() or ["pip failed"]
    return said[-1].removeprefix("ERROR: ")


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    folder = pathlib.Path(sys.argv[1])
    installed = folder / "installed"
    wanted = "".join(path.read_text() for path in LISTS)
    if installed.exists() and installed.read_text() == wanted:
        return 0
    shutil.rmtree(folder, ignore_errors=True)
    made = subprocess.run([sys.executable, "-m", "venv", folder], capture_output=True, text=True, check=False)
    if made.returncode:
        print(f"there is no environment for the Python package: {(made.stdout + made.stderr).strip().splitlines()[-1]}")
        shutil.rmtree(folder, ignore_errors=True)
        return 1
    missing = {}
    for path, options in LISTS.items():
        if install(folder, *options, "-r", path):
            missing |= {line: reason for line in path.read_text().split() if (reason := install(folder, *options, line))}
    for what, reason in missing.items():
        print(f"{what} is not installed: {reason}")
    (folder / "missing").write_text("".join(f"{what} {reason}\n" for what, reason in missing.items()))
    if any(what.startswith(("numpy=", "pytest=")) for what in missing):
        return 1  # then Debian's are better than this environment
    installed.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
