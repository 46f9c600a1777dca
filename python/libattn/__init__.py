# SPDX-License-Identifier: MIT
"""Attention on a CPU: every mechanism, forward and backward, in memory linear in the sequence length, with the same bits every time."""
from . import analysis, bilinear, hopfield, linear, masks
from ._attention import attention
from ._info import cpu, version
from ._options import Options

__version__ = version()
__all__ = ["Options", "__version__", "analysis", "attention", "bilinear", "cpu", "hopfield", "linear", "masks", "version"]
