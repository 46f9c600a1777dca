# SPDX-License-Identifier: MIT
"""What a problem would take over many ranks: attn_split_predict."""
from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, Unpack, cast

import numpy as np

from .. import _abi, _native
from .._arguments import choice, integer
from .._types import code
from ._bound import OPERATIONS
from ._plan import Op, plain
from ._split import WAYS, Layout, Lengths, Machine, Split, Way, whole_of
from ._transport import MOST_RANKS

# What each operation has beside q, k and v.
TENSORS: dict[str, tuple[str, ...]] = {
    "forward": ("o",),
    "backward": ("o", "grad_o", "grad_q", "grad_k", "grad_v"),
    "jvp": ("o", "tan_q", "tan_k", "tan_v", "tan_o"),
    "double_backward": ("o", "grad_o", "tan_q", "tan_k", "tan_v", "second_grad_o", "second_q", "second_k", "second_v"),
}


@dataclass(frozen=True)
class Prediction:
    """What is predicted.  Seconds are those of the rank with the most work, as if it were also the one that gets and sends the most."""

    seconds: float  #: computing + combining + waiting
    computing: float  #: operations of the rank over its speed
    combining: float  #: results of its cells
    waiting: float  #: for messages that its work does not hide
    efficiency: float  #: the time of an even share of the operations, over `seconds`
    imbalance: float  #: pairs of the rank with the most, over the mean: 1 is even
    flops: float  #: of all ranks
    sampled: float  #: the share of parts whose sums are counted (1: all)
    parts_q: int  #: of the whole
    parts_kv: int
    cells_most: int  #: of the rank that has the most
    cells_total: int
    messages: int  #: that a rank sends, at most
    bytes: int  #: likewise, of another rank perhaps
    messages_total: int  #: of all ranks
    bytes_total: int
    steps: int  #: ranks that keys come from
    key_bytes: int  #: of workspace for keys, at most
    way: str  #: what "auto" is
    ranks: int
    ranks_heads: int  #: that divide the heads among themselves; 1: all have all
    why: str  #: why it is this way


def predict(
    ranks: int, *, dim_qk: int, dim_v: int | None = None, heads_q: int = 1, heads_kv: int | None = None, dtype: Any = np.float32,
    op: Op = "forward", layout: Layout = "contiguous", part: int = 1024, way: Way = "auto", ranks_heads: int = 0, any_order: bool = False,
    flops_per_second: float | None = None, bytes_per_second: float | None = None, seconds_per_message: float | None = None,
    seconds_per_sum: float | None = None,
    **problem: Unpack[Lengths],
) -> Prediction:
    """Predicts what an execution over many ranks takes, without any of them: by counting cells and messages, and by a formula
    (attn/distributed.h, docs/distributed.md).

        distributed.predict(1024, len_q=2**20, len_kv=2**20, heads_q=32, heads_kv=8, dim_qk=128, part=512, layout="zigzag", causal=True)

    ranks                how many
    dim_qk, dim_v        channels of q and k, and of v (None: as many)
    heads_q, heads_kv    of queries, and of keys (None: as many)
    dtype                of q, k, v and o: f32, f64, f16, bf16, or a type of NumPy
    op, layout, part, way, ranks_heads, any_order  as in distributed.Plan
    flops_per_second, bytes_per_second, seconds_per_message, seconds_per_sum  those of distributed.Machine
    problem              len_q, len_kv and batch, and the keywords of libattn.attention that say which keys a query sees, with
                         lengths_q, lengths_kv, cu_seqlens_q and cu_seqlens_kv; masks and biases are not looked at

    Local.  Raises ValueError, TypeError or NotImplementedError.
    """
    heads_q = integer(heads_q, "heads_q", 1)
    heads = heads_q, heads_q if heads_kv is None else integer(heads_kv, "heads_kv", 1)
    dim_qk = integer(dim_qk, "dim_qk", 1)
    inner, tokens = whole_of(cast("dict[str, Any]", dict(problem)), (*heads, dim_qk, dim_qk if dim_v is None else integer(dim_v, "dim_v", 1)))
    inner.problem.op = choice(op, "op", OPERATIONS)
    for name in ("q", "k", "v", *TENSORS[op], *(() if op == "forward" else ("lse",))):
        slot = getattr(inner.tensors.struct, name)
        slot.data, slot.dtype = _abi.ATTN_LATER, 0 if name == "lse" else code(dtype, "dtype")
    machine = Machine(flops_per_second, bytes_per_second, seconds_per_message, seconds_per_sum)
    ranks, split = integer(ranks, "ranks", 1, MOST_RANKS), Split(layout, part, way, ranks_heads, machine, any_order)
    for axis in ("q", "kv"):
        split.check(tokens[axis], axis, ranks)
    found = _native.struct(_abi.attn_split_prediction)
    _native.call("attn_split_predict", ctypes.byref(inner.problem), ranks, inner.tensors.reference, ctypes.byref(split.struct),
                 None, ctypes.byref(found))
    ways = {value: name for name, value in WAYS.items()}
    names = [name for name, _ in found._fields_ if name not in ("struct_size", "way")]
    return Prediction(way=ways[found.way], **{name: plain(getattr(found, name)) for name in names})
