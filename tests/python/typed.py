#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Every public name of the package has a complete type: pyright --verifytypes says 100 %, or would if it knew PyTorch's types: with
--verifytypes every one of them is unknown to it (--ignoreexternal leaves out all but base classes), though not without."""
import re
import subprocess
import sys

from interpreter import ROOT, environment, interpreter, program, skip

pyright = program("pyright")
settings = environment(sys.argv[1])
probe = subprocess.run([pyright, "--version"], capture_output=True, text=True, check=False, env=settings)
if probe.returncode:  # (it downloads itself when it is first called)
    skip(f"pyright does not start: {(probe.stderr or probe.stdout).strip().splitlines()[-1]}")
words = [pyright, "--verifytypes", "libattn", "--ignoreexternal", "--pythonpath", interpreter()]
found = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT, env=settings)
print(found.stdout)
errors = [line.strip() for line in found.stdout.splitlines() if " error: " in line]
bases = re.compile(r'error: Type of (metaclass|base class( "libattn\.torch\.nn\.[\w.]+")?) (is partially )?unknown')
complete = found.returncode == 0 and "completeness score: 100%" in found.stdout
sys.exit(0 if complete or (errors and all(bases.fullmatch(line) for line in errors)) else found.stdout or found.stderr)
