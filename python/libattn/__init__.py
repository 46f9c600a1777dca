# SPDX-License-Identifier: MIT
"""Attention on a CPU: every mechanism, forward and backward, in memory linear in the sequence length, with the same bits every time."""
from . import analysis, bilinear, files, hopfield, linear, masks
from ._attention import attention
from ._derivatives import attention_backward, attention_double_backward, jvp
from ._info import cpu, version
from ._options import ForwardOptions, Options, Problem

__version__ = version()
__all__ = [
    "ForwardOptions", "Options", "Problem", "__version__", "analysis", "attention", "attention_backward", "attention_double_backward",
    "bilinear", "cpu", "files", "hopfield", "jvp", "linear", "masks", "version",
]
