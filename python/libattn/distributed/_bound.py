# SPDX-License-Identifier: MIT
"""A rank's tensors of one call: attn_problem of the whole and attn_tensors of the rank, from keywords."""
from __future__ import annotations

import ctypes
from typing import Any, Mapping, Sequence

import numpy as np

from .. import _abi, _native
from .._arguments import choice
from .._arrays import Array, like
from .._problem import OUTPUTS as ALL_OUTPUTS
from .._problem import GRADIENTS, TENSORS, Inner, Sizes, fill, read
from .._slots import exactly, floats, integers, output

OPERATIONS: dict[str, int] = {"forward": _abi.ATTN_FORWARD, "backward": _abi.ATTN_BACKWARD, "jvp": _abi.ATTN_JVP, "double_backward": _abi.ATTN_DOUBLE_BACKWARD}
# Of each order of axes, which axis of a tensor each axis of an array is: batch, head, token, channel.
ORDERS: dict[str, tuple[int, ...]] = {"bhsd": (0, 1, 2, 3), "bshd": (0, 2, 1, 3), "thd": (2, 1, 3)}
# What each operation reads beside q, k and v: like o, like lse, like q, like k, like v.
INPUTS: dict[str, dict[str, str]] = {
    "forward": {},
    "backward": {"o": "o", "lse": "lse", "grad_o": "o", "grad_lse": "lse"},
    "jvp": {"o": "o", "lse": "lse", "tan_q": "q", "tan_k": "k", "tan_v": "v"},
    "double_backward": {"o": "o", "lse": "lse", "grad_o": "o", "grad_lse": "lse", "tan_q": "q", "tan_k": "k", "tan_v": "v"},
}
# Of which further arrays there are gradients, or second ones.
GRADS: dict[str, tuple[str, ...]] = {"backward": GRADIENTS, "double_backward": ("bias",)}
# What forward has beside o and lse, in the order of axes of lse, or (with the keys of each query last) of o; and of each pair, as masks.
PAIRS = ("weights", "scores", "dropout_keep")
OUTPUTS = ("row_max", "entropy", "effective_keys", "topk_index", "topk_weight", "column_sum", *PAIRS)
NEEDED = {"forward": (), "backward": ("o", "lse", "grad_o"), "jvp": ("o", "lse"), "double_backward": ("o", "lse", "grad_o")}


class Rows:
    """Arrays with a row for each token, in an order of axes."""

    def __init__(self, axes: str, arrays: Mapping[str, Any]) -> None:
        choice(axes, "axes", dict.fromkeys(ORDERS, 0))
        self.axes = axes
        self.arrays = {name: floats(x, name) for name, x in arrays.items()}
        q = self.arrays["q"]
        for name, array in self.arrays.items():
            if array.ndim != q.ndim or not 2 <= q.ndim <= len(ORDERS[axes]) or (axes == "thd" and q.ndim != 3):
                wanted = "3" if axes == "thd" else "4, or 3 without a batch, or 2 without heads" if name == "q" else "as many as q"
                raise ValueError(f"{name} has {array.ndim} axes; it must have {wanted}")
        self.order = ORDERS[axes][-q.ndim:]
        size = {name: self._sizes(name) for name in self.arrays}
        self.batch, self.heads_q, self.queries, self.dim_qk = size["q"]
        self.heads_kv, self.keys, self.dim_v = size["k"][1], size["k"][2], size["v"][3]
        for name, wanted in (("k", (self.batch, self.heads_kv, self.keys, size["k"][3])), ("v", (self.batch, self.heads_kv, self.keys, self.dim_v))):
            exactly(self.arrays[name], name, self.shape(wanted), "the shape of k and the batch of q" if name == "v" else "with the batch of q")
        self.compute = np.dtype(np.float64 if q.dtype == np.float64 else np.float32)

    def _sizes(self, name: str) -> tuple[int, int, int, int]:
        found = [1, 1, 1, 1]
        for axis, size in zip(self.order, self.arrays[name].shape):
            found[axis] = size
        return found[0], found[1], found[2], found[3]

    def shape(self, sizes: Sequence[int], rows_of_one: bool = False) -> tuple[int, ...]:
        """The shape of an array with these sizes of a tensor; without its last axis, of lse."""
        return tuple(sizes[axis] for axis in (self.order[:-1] if rows_of_one else self.order))

    def like(self, what: str) -> tuple[int, ...]:
        """The shape of q, k, v, o or lse."""
        if what in self.arrays:
            return self.arrays[what].shape
        return self.shape((self.batch, self.heads_q, self.queries, self.dim_v), what == "lse")


def check(op: str, given: Mapping[str, Any], grads: Sequence[str], outputs: Sequence[str], rows: Rows) -> None:
    """Raises TypeError or ValueError for keywords that the operation does not have, and for what is wrong about them alone."""
    for name in NEEDED[op]:
        if given.get(name) is None:
            raise TypeError(f"{name} is missing; {op} needs it")
    options = {name: x for name, x in given.items() if x is not None and name not in INPUTS[op] and not ("tan_q" in INPUTS[op] and name == "tan_bias")}
    fill(_native.struct(_abi.attn_problem), options)
    for name in TENSORS:
        if name in options and not (name == "scale" and np.ndim(options[name]) == 0):
            read(options[name], name, rows.compute)
    starts = [name for name in ("cu_seqlens_q", "cu_seqlens_kv") if name in options]
    if starts and rows.axes != "thd":
        raise ValueError(f"{starts[0]} needs axes=\"thd\", [tokens, heads, dim]")
    if len(starts) < 2 and rows.axes == "thd":
        raise ValueError("axes=\"thd\" needs cu_seqlens_q and cu_seqlens_kv, with the starts of all sequences of all ranks")
    for name in grads:
        if name not in GRADS.get(op, ()):
            of = op if op in GRADS else "backward"
            raise ValueError(f"grads has {name!r}; known: {', '.join(GRADS[of])}, of {of}")
        if grads.count(name) > 1:
            raise ValueError(f"grads has {name!r} twice")
    for name in outputs:
        if list(outputs).count(name) > 1:
            raise ValueError(f"outputs has {name!r} twice")
        if op != "forward" or name not in OUTPUTS:
            raise (NotImplementedError if name in ALL_OUTPUTS else ValueError)(
                f"outputs has {name!r}; over ranks there are {', '.join(OUTPUTS)}, of forward")


def rows_of(bias: Any) -> int:
    """How many queries the bias of a rank tells apart."""
    shape = np.shape(bias)
    return int(shape[-2]) if len(shape) > 1 else 1


class Bound:
    """What C takes, with the arrays behind it: the inputs, and outputs that are allocated here.

    tokens     queries and keys of all ranks
    given      the other arrays and options, by name
    by_rows    whether a bias with one row is that of the rank's one query, and not one for all queries
    """

    def __init__(
        self, op: str, rows: Rows, tokens: tuple[int, int], given: Mapping[str, Any], grads: Sequence[str], return_lse: bool, out: Any,
        by_rows: bool, outputs: Sequence[str] = (),
    ) -> None:
        options = {name: x for name, x in given.items() if x is not None}
        saved = {name: options.pop(name) for name in (*INPUTS[op], "tan_bias") if name in options}
        sizes = self._sizes(rows, tokens, options)
        self.inner = Inner(options, sizes, rows.compute)
        self._share_bias(by_rows)
        problem = self.inner.problem
        keys, wanted = rows.arrays["k"], problem.score.dim_k or rows.dim_qk
        if keys.shape[-1] != wanted:  # the library has it from q
            raise ValueError(f"k has {keys.shape[-1]} channels; it must have {wanted}, as {'score_matrix' if problem.score.dim_k else 'q'} has")
        problem.op = OPERATIONS[op]
        problem.shape = _abi.attn_shape(
            sizes.batch, rows.heads_q, rows.heads_kv, self.len_q, self.len_kv, rows.dim_qk, rows.dim_v)
        self.order, slots = list(rows.order), self.inner.tensors
        for name, array in rows.arrays.items():
            slots.put(name, array, self.order)
        for name, x in saved.items():
            if name == "tan_bias":
                self._tangent(x)
                continue
            like_ = INPUTS[op][name]
            dtype = rows.compute if like_ == "lse" else None
            array = exactly(floats(x, name, dtype), name, rows.like(like_), f"the shape of {like_}")
            slots.put(name, array, self.order[:-1] if like_ == "lse" else self.order)
        self.results: list[Array] = []
        self._outputs(op, rows, options, grads, return_lse, out)
        for name in outputs:
            self._further(rows, name)
        if self.inner.call is not None:
            slots.struct.call = ctypes.pointer(self.inner.call)

    def _sizes(self, rows: Rows, tokens: tuple[int, int], options: Mapping[str, Any]) -> Sizes:
        """Sizes of the rank's masks and the like, and the lengths of the whole."""
        dims = (rows.dim_qk, rows.arrays["k"].shape[-1], rows.dim_v)
        if rows.axes != "thd":
            self.len_q, self.len_kv = tokens
            return Sizes(rows.batch, rows.heads_q, rows.heads_kv, rows.queries, self.len_kv, dims)
        longest: list[int] = []
        batch = 0
        for name, count in zip(("cu_seqlens_q", "cu_seqlens_kv"), tokens):
            numbers = integers(options[name], name)
            if numbers.ndim != 1 or numbers.size < 1:
                raise ValueError(f"{name} has shape {list(numbers.shape)}; it must have one axis and at least one element")
            if numbers[-1] != count:
                raise ValueError(f"{name} ends at {numbers[-1]}, and the arrays of all ranks have {count} tokens")
            longest.append(int(np.diff(numbers).max(initial=0)))
            batch = numbers.size - 1
        self.len_q, self.len_kv = longest
        return Sizes(batch, rows.heads_q, rows.heads_kv, self.len_q, self.len_kv, dims, tokens[0])

    def _share_bias(self, by_rows: bool) -> None:
        """Strides of 0 say on all ranks alike which axes of a bias are shared, whatever rows a rank has: they decide what its gradient is."""
        if "bias" in self.inner.given:
            stride = self.inner.tensors.struct.bias.stride
            for axis, size in enumerate(self.inner.given["bias"].shape):
                stride[axis] = _abi.ATTN_BROADCAST if size == 1 and not (axis == 2 and by_rows) else stride[axis] or 1

    def _tangent(self, x: Any) -> None:
        bias = self.inner.given.get("bias")
        if bias is None:
            raise ValueError("tan_bias is set, and bias is not")
        array = floats(x, "tan_bias", bias.dtype)
        array = exactly(array[(np.newaxis,) * (4 - array.ndim)], "tan_bias", bias.shape, "the shape of bias")
        s = self.inner.sizes
        self.inner.tensors.put("tan_bias", np.broadcast_to(array, (s.batch, s.heads_q, s.len_q, s.len_kv)))

    def _outputs(
        self, op: str, rows: Rows, options: Mapping[str, Any], grads: Sequence[str], return_lse: bool, out: Any,
    ) -> None:
        """Allocates them."""
        q, slot = rows.arrays["q"], "grad" if op == "backward" else "second"
        of_rows = {"forward": ("o", "lse"), "jvp": ("tan_o", "tan_lse"), "double_backward": ("second_grad_o", "second_grad_lse")}.get(op)
        if of_rows is not None:
            self._output(of_rows[0], output(out, "out", rows.like("o"), None if out is not None else q.dtype))
        for name in ("q", "k", "v") if op in GRADS else ():
            self._output(f"{slot}_{name}", np.empty(rows.arrays[name].shape, rows.arrays[name].dtype))
        for name in grads:
            self.inner.gradient(name, slot)
            made, shape = self.inner.gradients[name], np.shape(options[name]) if name in options else ()
            self.results.append(made.reshape(shape) if made.size == np.prod(shape) and shape else made)
        if return_lse and of_rows is not None:
            lse = np.empty(rows.like("lse"), rows.compute)
            self.inner.tensors.put(of_rows[1], lse, self.order[:-1])
            self.results.append(lse)

    def _further(self, rows: Rows, name: str) -> None:
        asked, top, pairs = self.inner.problem.outputs, name.startswith("topk"), name in PAIRS
        heads, tokens, order = rows.heads_q, rows.queries, self.order if top else self.order[:-1]
        if name == "column_sum":
            tokens, heads = rows.keys, {_abi.ATTN_COLUMNS_GROUP: rows.heads_kv, _abi.ATTN_COLUMNS_ALL: 1}.get(asked.column_heads, heads)
        if pairs:
            order = sorted(self.order)
        sizes = (rows.batch, heads, tokens, self.len_kv if pairs else asked.topk)
        dtype = {"topk_index": np.dtype(np.int64), "dropout_keep": np.dtype(np.bool_)}.get(name, rows.compute)
        array = np.empty(tuple(sizes[axis] for axis in order), dtype)
        self.inner.tensors.put(name, array, order)
        self.results.append(array)

    def _output(self, name: str, array: Array) -> None:
        self.inner.tensors.put(name, array, self.order)
        self.results.append(array)

    def returned(self, q: Any, out: Any, op: str) -> Any:
        """The results as arrays of the library that q comes from."""
        made = tuple(out if out is not None and n == 0 and op not in GRADS else like(x, q) for n, x in enumerate(self.results))
        return made[0] if len(made) == 1 else made
