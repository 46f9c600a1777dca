# SPDX-License-Identifier: MIT
"""Plans over ranks: one attention problem, of which each rank has some of the queries and keys."""
from __future__ import annotations

import ctypes
import re
import weakref
from dataclasses import dataclass
from types import NoneType
from typing import Any, Callable, Iterable, Literal, Mapping, Sequence, TypeVar, Unpack

import numpy as np

from .. import _abi, _native
from .._arguments import choice
from .._arrays import Array
from .._options import ArrayLike
from .._problem import Options
from ._agree import same, together
from ._bound import INPUTS, OPERATIONS, Bound, Rows, check, rows_of
from ._groups import transport_of
from ._split import WAYS, Layout, Machine, Split, Way, check_tokens
from ._transport import Transport, messages

NOTHING = ("problem is NULL", "tensors is NULL")  # what the library says of no arguments
Axes = Literal["bhsd", "bshd", "thd"]
Op = Literal["forward", "backward", "jvp", "double_backward"]
Made = TypeVar("Made")


@dataclass(frozen=True)
class Description:
    """What a plan does on this rank."""

    parts_q: int  #: parts of queries of the whole
    parts_kv: int
    queries: int  #: tokens of this rank
    keys: int
    cells: int  #: pairs of parts that this rank computes
    cells_most: int  #: of the rank that has the most, for which all others wait
    cells_total: int  #: of all ranks
    messages: int  #: that this rank sends in an execution
    bytes: int  #: of these
    row_nodes: int  #: results of parts of queries that wait at the same time, at most,
    column_nodes: int  #: and of parts of keys,
    shared_nodes: int  #: and of gradients that all ranks share
    workspace_bytes: int
    way: str  #: "ring", "direct", "split-keys", "heads", "heads-ring" or "gather"
    ranks: int
    ranks_heads: int  #: that divide the heads; 1: a rank has all heads of its tokens
    seconds: float  #: that an execution is predicted to take on `machine`
    why: str  #: why it is this way: "heads-ring by 2: 12 ms predicted, direct 20 ms (waiting 9.8 ms)"


@dataclass(frozen=True)
class Autograd:
    """What PyTorch has to do with a call, of which ranks must know."""

    seed: Callable[[], int] | None  #: draws a seed of dropout, which rank 0 does for all
    gradients: bool = False  #: backward will be called, on all ranks
    refused: Exception | None = None  #: why there can be no gradients, although they are asked for


class Plan:
    """A problem planned for the ranks of a group, to be computed any number of times.  Collective, as is `execute`.

        plan = distributed.Plan(q, k, v, group=group, layout="zigzag", causal=True, return_lse=True)
        o, lse = plan.execute(q, k, v)

    op         "forward", "backward", "jvp" or "double_backward"
    q, k, v    the rank's own rows, as in distributed.attention, which has the other keywords, too
    arrays     of backward also o, lse, grad_o and grad_lse; of jvp o, lse, tan_q, tan_k, tan_v and tan_bias; of double_backward all
               of these, as in libattn.attention_double_backward
    grads      of backward: names of further arrays whose gradients are computed, as in libattn.attention_backward; of double_backward
               "bias", for second_bias
    outputs    of forward: names of further results, as in distributed.attention

    Raises what distributed.attention raises, on all ranks alike.  One execution at a time uses the group.
    """

    def __init__(
        self, q: ArrayLike, k: ArrayLike, v: ArrayLike, *, op: Op = "forward", group: Any = None,
        layout: Layout = "contiguous", part: int = 1024, way: Way = "auto", ranks_heads: int = 0, machine: Machine | None = None,
        any_order: bool = False, axes: Axes = "bhsd", grads: Sequence[str] = (), outputs: Sequence[str] = (), return_lse: bool = False,
        arrays: Mapping[str, ArrayLike | None] | None = None,
        **options: Unpack[Options],
    ) -> None:
        split = layout, part, way, ranks_heads, machine, any_order
        self._start(transport_of(group), op, {"q": q, "k": k, "v": v}, dict(options), split, axes, grads, return_lse, None, outputs=outputs, arrays=arrays)

    def _start(
        self, transport: Transport, op: str, three: Mapping[str, Any], given: dict[str, Any], split: tuple[Any, ...], axes: str,
        grads: Sequence[str], return_lse: bool, out: Any, autograd: Autograd = Autograd(None), outputs: Sequence[str] = (), arrays: Any = None,
    ) -> Bound:
        self.op: str = op
        seed = autograd.seed
        self._transport, self._given, self._axes = transport, given, axes

        def local() -> tuple[Rows, Split]:
            if not isinstance(arrays, (Mapping, NoneType)):
                raise TypeError(f"arrays is of type {type(arrays).__name__}; it must be a dict of arrays by name")
            given.update(arrays or {})
            choice(op, "op", OPERATIONS)
            if autograd.refused:
                raise autograd.refused
            self._grads, self._lse, self._outputs = names_of(grads, "grads"), bool(return_lse), names_of(outputs, "outputs")
            rows = Rows(axes, three)
            check(op, given, self._grads, self._outputs, rows)
            return rows, Split(*split)

        def says(found: tuple[Rows, Split]) -> dict[str, Any]:
            rows, split = found
            asked = {"op": op, "batch": str(rows.batch), "heads": f"{rows.heads_q}, {rows.heads_kv}", "dim": f"{rows.dim_qk}, {rows.dim_v}",
                     "k.dtype": str(rows.arrays["k"].dtype), "v.dtype": str(rows.arrays["v"].dtype), "grads": ", ".join(self._grads),
                     "outputs": ", ".join(self._outputs),
                     "return_lse": str(self._lse), **split.asked, **asked_of(given), **({"gradients": "True"} if autograd.gradients else {})}
            drawn = {"seed": seed()} if seed is not None else {}
            return {"tokens": [rows.queries, rows.keys], "bias_rows": rows_of(given.get("bias")), "asked": asked, **drawn}

        (rows, self._split), said = together(transport, local, says)
        same(said)
        if seed is not None:
            given["seed"] = said[0]["seed"]
        queries = [one["tokens"][0] for one in said]
        tokens = queries[0] if self._split.everywhere("q") else sum(queries), sum(one["tokens"][1] for one in said)
        for axis, name, n in (("q", "q", 0), ("kv", "k", 1)):
            self._split.check(tokens[n], axis, transport.ranks)
            for rank, one in enumerate(said):
                check_tokens(self._split, name, axis, one["tokens"][n], tokens[n], rank, transport.ranks)
        self._tokens = tokens
        self._bias_by_rows = any(one["bias_rows"] != 1 for one in said) or (axes != "thd" and tokens[0] > 1 and all(n == 1 for n in queries))
        return self._create(lambda: self._bind(rows, given, out))

    def _bind(self, rows: Rows, given: Mapping[str, Any], out: Any) -> Bound:
        return Bound(self.op, rows, self._tokens, given, self._grads, self._lse, out, self._bias_by_rows, self._outputs)

    def _create(self, make: Callable[[], Bound]) -> Bound:
        pointer, split, way = ctypes.c_void_p(), ctypes.byref(self._split.struct), ctypes.byref(messages(self._transport).struct)

        def arguments(bound: Bound | None) -> tuple[Any, ...]:
            if bound is None:
                return ctypes.byref(pointer), None, None, split, way, None
            return ctypes.byref(pointer), ctypes.byref(bound.inner.problem), bound.inner.tensors.reference, split, way, bound.inner.options

        bound = self._call("attn_distributed_plan_create", make, arguments)
        inner = bound.inner
        self._pointer: Any = pointer
        self._finalizer = weakref.finalize(self, _native.call, "attn_distributed_plan_destroy", pointer)
        self._planned = {name: (inner.tensors[name].shape, inner.tensors[name].dtype) for name in ("q", "k", "v")}
        self._workspace: Array | None = None
        return bound

    def _call(self, name: str, make: Callable[[], Bound], arguments: Callable[[Bound | None], tuple[Any, ...]]) -> Bound:
        return call_on_all(self._transport, name, make, arguments, self, self.op == "forward")

    def _execute(self, make: Callable[[], Bound]) -> Bound:
        size = _native.call("attn_distributed_workspace_size", self._pointer)

        def made() -> Bound:
            if self._workspace is None:
                self._workspace = np.empty(size, np.uint8)
            return make()

        def arguments(bound: Bound | None) -> tuple[Any, ...]:
            address = self._workspace.ctypes.data if self._workspace is not None else None
            return self._pointer, bound.inner.tensors.reference if bound is not None else None, address, size

        return self._call("attn_distributed_execute", made, arguments)

    def execute(self, q: ArrayLike, k: ArrayLike, v: ArrayLike, *, out: ArrayLike | None = None, **arrays: ArrayLike) -> Any:
        """The results for these arrays, of the shapes and strides that the plan was made with: o, or (o, lse, *outputs);
        (grad_q, grad_k, grad_v, *grads); tan_o, or (tan_o, tan_lse); (second_grad_o, second_q, second_k, second_v), then second_bias
        and, with return_lse, second_grad_lse.

        Other arrays of the plan (o, lse, grad_o, bias, ...), `seed` and `dropout_offset` are those that it was made with, unless they
        are given here.  Lengths and starts cannot change.
        """

        def local() -> Bound:
            rows = Rows(self._axes, {"q": q, "k": k, "v": v})
            for name, array in rows.arrays.items():
                shape, dtype = self._planned[name]
                if array.shape != shape or array.dtype != dtype:
                    raise ValueError(f"{name} has shape {list(array.shape)} and type {array.dtype}; the plan was made with {list(shape)} and {dtype}")
            for name in arrays:
                if self._given.get(name) is None and name not in ("seed", "dropout_offset"):
                    raise TypeError(f"{name} is set; the plan was made without it")
                if name not in INPUTS[self.op] and not hasattr(arrays[name], "shape") and name not in ("seed", "dropout_offset"):
                    raise TypeError(f"{name} is an option of the plan, which cannot change")
            return self._bind(rows, {**self._given, **arrays}, out)

        return self._execute(local).returned(q, out, self.op)

    @property
    def description(self) -> Description:
        """Parts, cells, messages and memory of this rank."""
        found = _native.struct(_abi.attn_distributed_description)
        _native.call("attn_distributed_describe", self._pointer, ctypes.byref(found))
        ways = {value: name for name, value in WAYS.items()}
        names = [name for name, _ in found._fields_ if name not in ("struct_size", "way")]
        return Description(way=ways[found.way], **{name: plain(getattr(found, name)) for name in names})

    def __repr__(self) -> str:
        return f"<libattn.distributed.Plan {self.op}, rank {self._transport.rank} of {self._transport.ranks}>"


def plain(x: Any) -> Any:
    """A field of a description."""
    return x.decode() if isinstance(x, bytes) else x


def call_on_all(
    transport: Transport, name: str, make: Callable[[], Made], arguments: Callable[[Made | None], tuple[Any, ...]], keep: Any, forward: bool,
) -> Made:
    """Calls a function of the library in which ranks agree, with what make() returns; `keep` is kept if messages fail.

    If make() raises, the library gets NULL, and so tells all ranks that something is wrong; only then do they tell each other what.
    """
    way, made, failure = messages(transport), None, None
    way.check()
    try:
        made = make()
    except Exception as raised:
        failure = raised
    error = _abi.attn_error()
    _native.function(name)(*arguments(made), ctypes.byref(error))
    sentence = error.message.decode()
    if error.status == _abi.ATTN_ERR_IO:
        raise way.lost(sentence, made, keep)
    with way.failing("the last messages were not sent"):
        way.settle()
    if error.status and sentence in NOTHING:
        together(transport, lambda: _raise(failure), lambda _: {})
    if error.status:
        raise _native.exception(error.status, re.sub(r"\bo\b", "out", sentence) if forward else sentence)
    assert made is not None
    return made


def _raise(failure: Exception | None) -> None:
    if failure is not None:
        raise failure


def names_of(given: Any, name: str) -> tuple[str, ...]:
    """Names in a sequence, or a single one."""
    if isinstance(given, str):
        return (given,)
    if not isinstance(given, Iterable):
        raise TypeError(f"{name} is of type {type(given).__name__}; it must be a sequence of names")
    found = tuple(given)
    for one in found:
        if not isinstance(one, str):
            raise TypeError(f"{name} has something of type {type(one).__name__}; it must be a sequence of names")
    return found


def asked_of(given: Mapping[str, Any]) -> dict[str, str]:
    """Options as ranks compare them: numbers and words by value, arrays by their presence."""
    found: dict[str, str] = {}
    for name, x in given.items():
        if x is None or name in ("threads", "workspace_limit"):
            continue
        plain = isinstance(x, (bool, int, float, str, np.generic)) or (isinstance(x, (tuple, list)) and len(x) <= 5 and name in ("window", "origin"))
        found[name] = str(x)[:40] if plain else "an array"
    return found


def once(
    op: str, three: Mapping[str, Any], given: dict[str, Any], *, group: Any, layout: Any, part: Any, way: Any, ranks_heads: Any,
    machine: Any, any_order: Any, axes: Any, grads: Sequence[str] = (), return_lse: bool = False, out: Any = None, autograd: Autograd = Autograd(None),
    outputs: Sequence[str] = (),
) -> Any:
    """Plans and executes, with one set of arrays."""
    plan = Plan.__new__(Plan)
    split = layout, part, way, ranks_heads, machine, any_order
    bound = plan._start(transport_of(group), op, three, given, split, axes, grads, return_lse, out, autograd, outputs)
    plan._execute(lambda: bound)
    return bound.returned(three["q"], out, op)
