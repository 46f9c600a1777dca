# SPDX-License-Identifier: MIT
"""Attention on a CPU: every mechanism, forward and backward, in memory linear in the sequence length, with the same bits every time."""
from . import analysis, bilinear, files, hopfield, linear, masks, positions
from ._attention import attention
from ._check import Check, check
from ._derivatives import attention_backward, attention_double_backward, jvp
from ._info import cpu, version
from ._introspection import Kernel, Tensor, kernels, tensors
from ._options import ForwardOptions, Options, Problem
from ._plan import Plan, PlanOptions, Spec, explain

__version__ = version()
__all__ = [
    "Check", "ForwardOptions", "Kernel", "Options", "Plan", "PlanOptions", "Problem", "Spec", "Tensor", "__version__", "analysis",
    "attention", "attention_backward", "attention_double_backward", "bilinear", "check", "cpu", "explain", "files", "hopfield", "jvp",
    "kernels", "linear", "masks", "positions", "tensors", "version",
]
