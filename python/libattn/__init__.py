# SPDX-License-Identifier: MIT
"""Attention on a CPU: every mechanism, forward and backward, in memory linear in the sequence length, with the same bits every time."""
from . import analysis, bilinear, cache, convolution, cost, distributed, files, hopfield, latent, layers, linear, masks, positions, seq2seq
from ._arrays import dlpack
from ._attention import attention
from ._callbacks import Rows, Tile
from ._capture import Layer, Record, capture
from ._check import Check, check
from ._derivatives import attention_backward, attention_double_backward, jvp
from ._info import cpu, version
from ._introspection import Kernel, Tensor, kernels, tensors
from ._merge import MergeGradients, Merged, merge, merge_backward
from ._options import ForwardOptions, Options, Problem
from ._page import Page, view
from ._picture import Picture, plot
from ._plan import Plan, PlanOptions, Spec, explain
from ._product import product, product_workspace_size
from ._schedule import Prefix, Schedule, ScheduledItem, ScheduleDescription
from ._types import convert, dtype_name, dtype_size

__version__ = version()
__all__ = [
    "Check", "ForwardOptions", "Kernel", "Layer", "MergeGradients", "Merged", "Options", "Page", "Picture", "Plan", "PlanOptions",
    "Prefix", "Problem", "Record", "Rows", "Schedule", "ScheduleDescription", "ScheduledItem", "Spec", "Tensor", "Tile", "__version__", "analysis", "attention", "attention_backward", "attention_double_backward",
    "bilinear", "cache", "capture", "check", "convert", "convolution", "cost", "cpu", "distributed", "dlpack", "dtype_name", "dtype_size",
    "explain", "files", "hopfield", "jvp", "kernels", "latent", "layers", "linear", "masks", "merge", "merge_backward", "plot",
    "positions", "product", "product_workspace_size", "seq2seq", "tensors", "version", "view",
]
