# SPDX-License-Identifier: MIT
"""Merging results over disjoint sets of keys.  (The header attn/merge.h.)"""
from __future__ import annotations

import ctypes
from typing import Any, NamedTuple, Sequence, Unpack

import numpy as np

from . import _abi, _native
from ._arrays import Array, like
from ._execution import Execution, execution
from ._slots import Slots, exactly, floats, four, input_slot, output, output_slot


class Merged(NamedTuple):
    """Attention over all the keys of several parts."""

    o: Any  #: [batch, heads, len_q, dim_v], of the type of the parts
    lse: Any  #: [batch, heads, len_q]: float64 where o is, else float32


class MergeGradients(NamedTuple):
    """Gradients of the parts of merge, a list of arrays each."""

    o_parts: list[Any]
    lse_parts: list[Any]


def _parts(o_parts: Sequence[Any], lse_parts: Sequence[Any]) -> tuple[list[Array], list[Array], Any]:
    """The parts as arrays that agree, and the problem."""
    if len(o_parts) != len(lse_parts):
        raise ValueError(f"o_parts has {len(o_parts)} arrays and lse_parts {len(lse_parts)}; they go together")
    if not o_parts:
        raise ValueError("o_parts is empty; merge needs at least one part")
    outputs = [floats(o, f"o_parts[{i}]") for i, o in enumerate(o_parts)]
    shape, dtype = outputs[0].shape, outputs[0].dtype
    whole = four(outputs[0], "o_parts[0]").shape
    for i, o in enumerate(outputs):
        exactly(o, f"o_parts[{i}]", shape, "the shape of o_parts[0]")
        if o.dtype != dtype:
            raise ValueError(f"o_parts[{i}] has type {o.dtype}, o_parts[0] {dtype}; all parts have one type")
    compute = np.float64 if dtype == np.float64 else np.float32
    sums = [exactly(floats(x, f"lse_parts[{i}]", compute), f"lse_parts[{i}]", shape[:-1], "the shape of o_parts without channels")
            for i, x in enumerate(lse_parts)]
    sizes = dict(zip(("batch", "heads", "len_q", "dim_v"), whole))
    return outputs, sums, _native.struct(_abi.attn_merge_problem, parts=len(outputs), **sizes)


def _rows(lse: Array) -> Array:
    """lse with four axes, the last of size 1."""
    return four(lse[..., np.newaxis], "lse")


def merge(o_parts: Sequence[Any], lse_parts: Sequence[Any], *, out: Any = None, **options: Unpack[Execution]) -> Merged:
    """Results of the same queries over disjoint sets of keys, merged into the result over all of them: for split-KV, a cache plus new keys,
    ring attention.  For every row, with p over the parts,

        lse = log(sum_p exp(lse_p))      o = sum_p exp(lse_p - lse) o_p

    exact up to rounding (Dao et al. 2023, "Flash-Decoding").  o_parts are arrays [batch, heads, len_q, dim_v] (batch, or batch and heads,
    may be missing) of one float type, lse_parts the arrays [batch, heads, len_q] that attention returned with return_lse.  A part with
    lse_p = -inf has weight 0, whatever its o holds; if all are, o = 0 and lse = -inf.  The result has the same bits for any number of
    threads and is in the library of o_parts[0].  out: an array to write o to, which may be one of the parts.

    Raises ValueError, TypeError or NotImplementedError with the name of the part.
    """
    outputs, sums, problem = _parts(o_parts, lse_parts)
    o = output(out, "out", outputs[0].shape, outputs[0].dtype)
    lse = np.empty(sums[0].shape, sums[0].dtype)
    slots = Slots(_abi.attn_merge_tensors)
    kept = _lists(slots, outputs, sums)
    slots.put("o", four(o, "out"))
    slots.put("lse", _rows(lse))
    _native.call("attn_merge", ctypes.byref(problem), slots.reference, execution(options))
    del kept  # until here
    return Merged(like(o, o_parts[0]) if out is None else out, like(lse, o_parts[0]))


def _lists(slots: Slots, outputs: list[Array], sums: list[Array]) -> tuple[Any, Any]:
    """Arrays of slots, one for each part, which the caller keeps."""
    count = len(outputs)
    o = (_abi.attn_input * count)(*(input_slot(four(x, "o_parts")) for x in outputs))
    lse = (_abi.attn_input * count)(*(input_slot(_rows(x)) for x in sums))
    slots.struct.o_parts, slots.struct.lse_parts = o, lse
    return o, lse


def merge_backward(
    o_parts: Sequence[Any], lse_parts: Sequence[Any], grad_o: Any, *, grad_lse: Any = None, **options: Unpack[Execution],
) -> MergeGradients:
    """The gradient of merge, from that of o and, if present, of lse:

        w_p = exp(lse_p - lse)      grad_o_p = w_p grad_o      grad_lse_p = w_p (grad_o . (o_p - o) + grad_lse)
    """
    outputs, sums, problem = _parts(o_parts, lse_parts)
    shape = outputs[0].shape
    slots = Slots(_abi.attn_merge_tensors)
    kept = _lists(slots, outputs, sums)
    slots.put("grad_o", four(exactly(floats(grad_o, "grad_o", outputs[0].dtype), "grad_o", shape, "the shape of o"), "grad_o"))
    if grad_lse is not None:
        slots.put("grad_lse", _rows(exactly(floats(grad_lse, "grad_lse", sums[0].dtype), "grad_lse", shape[:-1], "the shape of lse")))
    grads = [np.empty(shape, x.dtype) for x in outputs], [np.empty(shape[:-1], x.dtype) for x in sums]
    o = (_abi.attn_output * len(outputs))(*(output_slot(four(x, "grad_o_parts")) for x in grads[0]))
    lse = (_abi.attn_output * len(sums))(*(output_slot(_rows(x)) for x in grads[1]))
    slots.struct.grad_o_parts, slots.struct.grad_lse_parts = o, lse
    _native.call("attn_merge_backward", ctypes.byref(problem), slots.reference, execution(options))
    del kept
    return MergeGradients([like(x, o_parts[0]) for x in grads[0]], [like(x, o_parts[0]) for x in grads[1]])
