#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Every public name of the package has a complete type: pyright --verifytypes says 100 %.  (Where PyTorch is not installed, the base
classes of libattn.torch.nn are unknown to it.)"""
import os
import pathlib
import re
import subprocess
import sys

from interpreter import ROOT, environment, interpreter, missing, program, skip

pyright = program("pyright")
settings = environment(sys.argv[1])
# With --verifytypes pyright does not heed --pythonpath: it looks for other packages where the first `python` on the PATH has them.
settings["PATH"] = f"{pathlib.Path(interpreter()).parent}{os.pathsep}{settings['PATH']}"
probe = subprocess.run([pyright, "--version"], capture_output=True, text=True, check=False, env=settings)
if probe.returncode:  # (it downloads itself when it is first called)
    skip(f"pyright does not start: {(probe.stderr or probe.stdout).strip().splitlines()[-1]}")
found = subprocess.run([pyright, "--verifytypes", "libattn", "--ignoreexternal"], capture_output=True, text=True, check=False, cwd=ROOT, env=settings)
print(found.stdout)
if found.returncode == 0 and "completeness score: 100%" in found.stdout:
    sys.exit(0)
errors = [line.strip() for line in found.stdout.splitlines() if " error: " in line]
bases = re.compile(r'error: Type of (metaclass|base class( "libattn\.torch\.nn\.[\w.]+")?) (is partially )?unknown')
without = subprocess.run([interpreter(), "-c", "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"], check=False)
if without.returncode and errors and all(bases.fullmatch(line) for line in errors):
    skip(f"PyTorch is not installed{missing('torch')}; all other names have types")
sys.exit(found.stdout or found.stderr)
