#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""ruff finds nothing in python/ (rules: pyproject.toml)."""
import subprocess
import sys

from interpreter import ROOT, program

sys.exit(subprocess.run([program("ruff"), "check", "--no-cache", "--output-format", "concise", "python"], cwd=ROOT, check=False).returncode)
