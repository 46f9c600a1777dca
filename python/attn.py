#!python
# SPDX-License-Identifier: MIT
"""The command attn of a wheel: the program in the package libattn, which is found without importing anything of it."""

import importlib.util
import os
import sys

found = importlib.util.find_spec("libattn")
if found is None or not found.submodule_search_locations:
    sys.exit("attn: the package libattn is not installed")
os.execv(os.path.join(found.submodule_search_locations[0], "bin", "attn"), ["attn", *sys.argv[1:]])
