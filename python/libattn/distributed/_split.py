# SPDX-License-Identifier: MIT
"""Which rank owns which tokens, and the rows of arrays that belong to them."""
from __future__ import annotations

import ctypes
import zlib
from dataclasses import dataclass, fields
from types import NoneType
from typing import Any, Iterator, Literal, NamedTuple, Unpack, cast

import numpy as np

from .. import _abi, _native
from .._arguments import choice, integer, real
from .._arrays import Array, asarray, is_tensor, like
from .._problem import Common, Inner, Sizes, enum
from .._slots import integers
from ._agree import same, together
from ._graphs import outside_graphs
from ._groups import transport_of
from ._transport import MOST_RANKS, messages

TAG = 17
LAYOUTS: dict[str, int] = {name: value for name, value in enum("attn_layout").items() if name != "owners"}
WAYS: dict[str, int] = enum("attn_way")


class Owners(NamedTuple):
    """The rank of each part: a layout of the caller's own."""

    q: Any  #: of each part of queries, integers
    kv: Any  #: of each part of keys


Layout = Literal["contiguous", "zigzag", "striped"] | Owners
Way = Literal["auto", "ring", "direct", "split-keys", "heads", "heads-ring", "gather"]


@dataclass(frozen=True)
class Machine:
    """A rank of predictions, by which "auto" chooses; all ranks are alike, and joined alike.  None: what the model assumes, 32 cores
    that compute 5e12 operations a second, with 200 Gbit/s and 5 microseconds a message."""

    flops_per_second: float | None = None  #: in attention
    bytes_per_second: float | None = None  #: that it sends, and as many that it receives at the same time
    seconds_per_message: float | None = None  #: from its beginning to that of its arrival
    seconds_per_sum: float | None = None  #: to add or merge one number of two results

    @property
    def struct(self) -> Any:
        """attn_split_machine."""
        made = _native.struct(_abi.attn_split_machine)
        _native.call("attn_split_machine_describe", ctypes.byref(made))
        for field in fields(self):
            if (value := getattr(self, field.name)) is not None:
                setattr(made, field.name, real(value, f"machine.{field.name}"))
        return made


@dataclass(frozen=True)
class Part:
    """A part of a rank: `tokens` tokens of the whole from `first` on, which are its own from `local` on."""

    number: int  #: among the parts of all ranks
    first: int
    tokens: int
    local: int


def _flag(x: Any, name: str) -> bool:
    if not isinstance(x, (bool, np.bool_)):
        raise TypeError(f"{name} is of type {type(x).__name__}; it must be True or False")
    return bool(x)


class Split:
    """attn_split of keywords, with the arrays behind it."""

    def __init__(self, layout: Layout, part: int, way: Way = "auto", ranks_heads: int = 0, machine: Machine | None = None, any_order: bool = False) -> None:
        if not isinstance(machine, (Machine, NoneType)):
            raise TypeError(f"machine is of type {type(machine).__name__}; it must be a distributed.Machine")
        self.part, self.way, self.ranks_heads = integer(part, "part", 1), choice(way, "way", WAYS), integer(ranks_heads, "ranks_heads", 0)
        self.way_name = str(way)
        if self.ranks_heads and way not in ("heads", "heads-ring"):
            raise ValueError(f"ranks_heads is {self.ranks_heads} and way is {way!r}; it is for 'heads-ring' and 'heads'")
        self.owners: dict[str, Array] = {}
        self.struct = _native.struct(_abi.attn_split, part=self.part, way=self.way, ranks_heads=self.ranks_heads, any_order=_flag(any_order, "any_order"))
        self.machine = None if machine is None else machine.struct
        if self.machine is not None:
            self.struct.machine = ctypes.pointer(self.machine)
        if isinstance(layout, str):
            if layout in ("bhsd", "bshd", "thd"):
                raise ValueError(f"layout is {layout!r}; here it says which rank owns what, and axes={layout!r} which axis is which")
            self.struct.layout = choice(layout, "layout", LAYOUTS)
            return
        if not isinstance(layout, Owners):
            raise TypeError(f"layout is of type {type(layout).__name__}; it must be {', '.join(map(repr, LAYOUTS))} or Owners(q, kv)")
        self.struct.layout = _abi.ATTN_LAYOUT_OWNERS
        for name in ("q", "kv"):
            numbers = integers(getattr(layout, name), f"layout.{name}").reshape(-1)
            self.owners[name] = np.ascontiguousarray(np.clip(numbers, -1, 2**31 - 1), np.int32)
            setattr(self.struct, f"owners_{name}", self.owners[name].ctypes.data)

    def check(self, tokens: int, axis: str, ranks: int) -> None:
        """Raises ValueError if there are no owners of so many tokens."""
        if not self.owners or self.everywhere(axis):
            return
        owners, count = self.owners[axis], -(-tokens // self.part)
        if owners.size != count:
            raise ValueError(f"layout.{axis} has {owners.size} numbers; {tokens} tokens have {count} parts of {self.part}")
        for n in np.flatnonzero((owners < 0) | (owners >= ranks))[:1]:
            raise ValueError(f"layout.{axis}[{n}] is {owners[n]}; it must be a rank, 0 to {ranks - 1}")

    def everywhere(self, axis: str) -> bool:
        """Whether each rank has all tokens of an axis."""
        return axis == "q" and self.way == _abi.ATTN_WAY_SPLIT_KEYS

    def tokens(self, tokens: int, axis: str, rank: int, ranks: int) -> int:
        """How many of the tokens of an axis, "q" or "kv", a rank owns."""
        return self._described(tokens, axis, rank, ranks).tokens

    def parts(self, tokens: int, axis: str, rank: int, ranks: int) -> Iterator[Part]:
        """The parts of a rank, in rising order."""
        self.check(tokens, axis, ranks)
        found, count = _native.struct(_abi.attn_split_part), self._described(tokens, axis, rank, ranks).parts
        if self.owners and not self.everywhere(axis):  # of which the library would look at all for each
            for n, number in enumerate(np.flatnonzero(self.owners[axis] == rank).tolist()):
                yield Part(number, number * self.part, min(self.part, tokens - number * self.part), n * self.part)
            return
        for n in range(count):
            _native.call("attn_split_part_describe", ctypes.byref(self.struct), tokens, AXES[axis], rank, ranks, n, ctypes.byref(found))
            yield Part(found.number, found.first, found.tokens, found.local)

    def _described(self, tokens: int, axis: str, rank: int, ranks: int) -> Any:
        found = _native.struct(_abi.attn_split_description)
        _native.call("attn_split_describe", ctypes.byref(self.struct), tokens, AXES[axis], rank, ranks, ctypes.byref(found))
        return found

    @property
    def asked(self) -> dict[str, str]:
        """What ranks must agree about."""
        names = {value: name for name, value in {**LAYOUTS, "owners": _abi.ATTN_LAYOUT_OWNERS}.items()}
        return {"layout": names[self.struct.layout], "part": str(self.part), "way": self.way_name, "ranks_heads": str(self.ranks_heads),
                "any_order": str(bool(self.struct.any_order)),
                "machine": "None" if self.machine is None else str([getattr(self.machine, field.name) for field in fields(Machine)]),
                **{f"layout.{name}": f"{owners.size} numbers with checksum {zlib.crc32(owners)}" for name, owners in self.owners.items()}}


AXES = {"q": _abi.ATTN_AXIS_QUERY, "kv": _abi.ATTN_AXIS_KEY}
Axis = Literal["q", "kv"]


def _axis(axis: Any) -> str:
    if not isinstance(axis, str) or axis not in AXES:
        raise ValueError(f"of is {axis!r}; it must be 'q' or 'kv'")
    return axis


def parts(tokens: int, *, group: Any = None, layout: Layout = "contiguous", part: int = 1024, of: Axis = "q") -> list[Part]:
    """The parts that this rank owns of `tokens` tokens of the whole, in rising order.

    Its rows of every array are the rows of these parts, one after another.  `of` is "kv" for keys and values, whose Owners may be
    others.  Local: no messages.  Raises ValueError or TypeError.
    """
    transport = transport_of(group)
    return list(Split(layout, part).parts(integer(tokens, "tokens", 0), _axis(of), transport.rank, transport.ranks))


@outside_graphs
def shard(
    x: Any, axis: int, *, group: Any = None, layout: Layout = "contiguous", part: int = 1024, of: Axis = "q",
) -> Any:
    """The rows of an array that this rank owns: x, which each rank has whole, cut along its axis of tokens.

        mine = [distributed.shard(x, 2, layout="zigzag", part=256) for x in (q, k, v)]

    Of NumPy arrays and of tensors of PyTorch, whose gradient is that of the whole, zero where other ranks have the rows.  Masks and
    biases are cut along the axis of queries alone.  Local: no messages.  Raises ValueError or TypeError.
    """
    x = x if hasattr(x, "ndim") else asarray(x, "x")
    axis = integer(axis, "axis", -x.ndim, x.ndim - 1) % x.ndim
    mine = [x[(slice(None),) * axis + (slice(p.first, p.first + p.tokens),)] for p in
            parts(x.shape[axis], group=group, layout=layout, part=part, of=of)]
    if not mine:
        return x[(slice(None),) * axis + (slice(0, 0),)]
    if isinstance(x, np.ndarray):
        return np.concatenate(mine, axis)
    if is_tensor(x):
        import torch

        return torch.cat(mine, axis)
    return like(np.concatenate([asarray(one, "x") for one in mine], axis), x)


@outside_graphs
def unshard(
    x: Any, axis: int, *, group: Any = None, layout: Layout = "contiguous", part: int = 1024, of: Axis = "q",
) -> Any:
    """The whole of an array, on all ranks, from the rows that each of them owns: the reverse of shard.  Collective.

    A tensor of PyTorch comes back without a gradient.  Raises ValueError or TypeError, on all ranks alike, or ConnectionError.
    """
    transport = transport_of(group)

    def local() -> tuple[Array, int, Split]:
        detached = x.detach() if hasattr(x, "detach") else x
        array = asarray(detached, "x")
        at = integer(axis, "axis", -array.ndim, array.ndim - 1) % array.ndim
        _axis(of)
        return np.ascontiguousarray(np.moveaxis(array, at, 0)), at, Split(layout, part)

    (mine, at, split), said = together(transport, local, lambda found: {
        "tokens": found[0].shape[0],
        "asked": {"axis": str(found[1]), "of": of, "type": str(found[0].dtype), "other axes": str(found[0].shape[1:]), **found[2].asked},
    })
    same(said)
    tokens = sum(one["tokens"] for one in said)
    split.check(tokens, of, transport.ranks)
    for rank, one in enumerate(said):
        check_tokens(split, "x", of, one["tokens"], tokens, rank, transport.ranks)
    whole = np.empty((tokens, *mine.shape[1:]), mine.dtype)
    for rank, array in enumerate(everywhere(transport, mine, [one["tokens"] for one in said])):
        for p in split.parts(tokens, of, rank, transport.ranks):
            whole[p.first:p.first + p.tokens] = array[p.local:p.local + p.tokens]
    return like(np.ascontiguousarray(np.moveaxis(whole, 0, at)), x)


def everywhere(transport: Any, mine: Array, counts: list[int]) -> list[Array]:
    """The arrays of all ranks, which differ in the size of their first axis alone: each goes to every other rank."""
    ranks, rank, way = transport.ranks, transport.rank, messages(transport)
    arrays = [mine if n == rank else np.empty((counts[n], *mine.shape[1:]), mine.dtype) for n in range(ranks)]
    flat = [array.reshape(-1).view(np.uint8) if array.size else np.empty(0, np.uint8) for array in arrays]
    with way.failing("rows cannot be exchanged", arrays):
        for step in range(1, ranks):
            source, to = (rank - step) % ranks, (rank + step) % ranks
            way.finish([way.begin(False, source, TAG, flat[source]), way.begin(True, to, TAG, flat[rank])])
        way.settle()
    return arrays


def check_tokens(split: Split, name: str, axis: str, have: int, tokens: int, rank: int, ranks: int) -> None:
    """Raises ValueError if a rank has not the tokens that it owns."""
    own = split.tokens(tokens, axis, rank, ranks)
    if have != own:
        raise ValueError(f"{name} has {have} tokens on rank {rank}; of {tokens} on {ranks} ranks, in parts of {split.part}, it owns {own}")


class Lengths(Common, total=False):
    """Keywords of balance: which keys a query sees, as in libattn.attention; masks and biases are not looked at."""

    len_q: int  #: how many queries there are; packed sequences: found from cu_seqlens_q
    len_kv: int  #: likewise of keys
    batch: int


def whole_of(given: dict[str, Any], sizes: tuple[int, int, int, int] = (1, 1, 1, 1)) -> tuple[Inner, dict[str, int]]:
    """A problem of all ranks, of keywords, without q, k and v; and its tokens, "q" and "kv".

    sizes      heads of queries and of keys, channels of q and of v
    """
    heads_q, heads_kv, dim_qk, dim_v = sizes
    lengths = {name: given.pop(f"len_{name}", None) for name in ("q", "kv")}
    batch = integer(given.pop("batch", 1), "batch", 0)
    starts = {name: given.get(f"cu_seqlens_{name}") for name in ("q", "kv")}
    if any(x is not None for x in starts.values()):
        if any(x is None for x in starts.values()):
            raise ValueError("cu_seqlens_q and cu_seqlens_kv go together")
        found = {name: integers(x, f"cu_seqlens_{name}").reshape(-1) for name, x in starts.items()}
        batch = found["q"].size - 1
        longest = {name: int(np.diff(x).max(initial=0)) for name, x in found.items()}
        tokens = {name: int(x[-1]) if x.size else 0 for name, x in found.items()}
    else:
        for name, x in lengths.items():
            if x is None:
                raise TypeError(f"len_{name} is missing")
        for name in ("lengths_q", "lengths_kv"):
            if given.get(name) is not None:
                batch = integers(given[name], name).size
        longest = tokens = {name: integer(x, f"len_{name}", 0) for name, x in lengths.items()}
    inner = Inner(cast(Any, given), Sizes(batch, heads_q, heads_kv, longest["q"], longest["kv"], (dim_qk, dim_qk, dim_v), tokens["q"]), np.float32)
    inner.problem.shape = _abi.attn_shape(batch, heads_q, heads_kv, longest["q"], longest["kv"], dim_qk, dim_v)
    return inner, tokens


def balance(ranks: int, *, part: int = 1024, **problem: Unpack[Lengths]) -> Owners:
    """Owners for which all ranks have about the same work: for packed sequences and for sequences of different lengths.

        owners = distributed.balance(4, cu_seqlens_q=starts, cu_seqlens_kv=starts, causal=True)
        o = distributed.attention(q, k, v, layout=owners, cu_seqlens_q=starts, cu_seqlens_kv=starts, causal=True)

    The part of queries that sees the most keys goes first, to the rank with the least work so far that has less than its share of the
    parts (Graham 1969); keys belong to the rank of the queries at their place, if there are as many.  Local: all ranks that ask the
    same get the same.  Raises ValueError or TypeError.
    """
    inner, tokens = whole_of(cast("dict[str, Any]", dict(problem)))
    split = Split("contiguous", part)
    for name in AXES:
        split.tokens(tokens[name], name, 0, 1)  # raises ValueError for more parts than there may be
    owners = Owners(*(np.zeros(-(-tokens[name] // split.part), np.int32) for name in AXES))
    slots = [_native.struct(_abi.attn_output, data=x.ctypes.data if x.size else _abi.ATTN_EMPTY, dtype=_abi.ATTN_I32) for x in owners]
    _native.call("attn_split_balance", ctypes.byref(inner.problem), integer(ranks, "ranks", 1, MOST_RANKS), inner.tensors.reference,
                 ctypes.byref(split.struct), ctypes.byref(slots[0]), ctypes.byref(slots[1]))
    return owners
