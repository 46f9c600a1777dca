# SPDX-License-Identifier: MIT
"""Attention on a CPU: every mechanism, forward and backward, in memory linear in the sequence length, with the same bits every time."""
from . import bilinear
from ._info import cpu, version

__version__ = version()
__all__ = ["__version__", "bilinear", "cpu", "version"]
