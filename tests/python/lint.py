#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""ruff finds nothing in python/ (rules: pyproject.toml), and no name that is undefined, unused or defined twice in other folders."""
import subprocess
import sys

from interpreter import ROOT, program

# bench/peers.py, serving.py and errors.py import what a comparison needs into their globals.
LATE = "bench/errors.py:F821,bench/peers.py:F821,bench/serving.py:F821"
RUFF = [program("ruff"), "check", "--no-cache", "--output-format", "concise"]
RUNS = [[*RUFF, "python"],
        [*RUFF, "--isolated", "--select", "E9,F", "--per-file-ignores", LATE, "bench", "examples", "fuzz", "lab", "tests", "tools"]]

sys.exit(max([subprocess.run(words, cwd=ROOT, check=False).returncode for words in RUNS]))
