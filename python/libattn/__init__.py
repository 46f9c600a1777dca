# SPDX-License-Identifier: MIT
"""Attention on a CPU: every mechanism, forward and backward, in memory linear in the sequence length, with the same bits every time."""
from . import analysis, bilinear, hopfield, linear
from ._info import cpu, version

__version__ = version()
__all__ = ["__version__", "analysis", "bilinear", "cpu", "hopfield", "linear", "version"]
