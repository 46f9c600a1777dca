# SPDX-License-Identifier: MIT
"""What a BlockMask lets each query see: two numbers a query where that is an interval of keys, else a byte for each pair.

A mask_mod is evaluated in rows of blocks, and only once for a BlockMask as long as the tensors that it reads hold the same.
"""
from __future__ import annotations

import math
import types
import weakref
from dataclasses import dataclass
from typing import Any

import torch

from ._flex_calls import everywhere
from ._shim import AT

Tensor = torch.Tensor
ROWS = 128  # of a mask at once


@dataclass(frozen=True)
class Seen:
    """Which keys a query sees: those of its own place and before, or those of `ranges`, or those of `mask`."""

    causal: bool = False
    ranges: Tensor | None = None  # [batch or 1, heads or 1, queries, 2]
    mask: Tensor | None = None  # [batch or 1, heads or 1, queries, keys]
    backward: bool = False  # no query sees a key behind its own place

    def part(self, first: int, end: int, keys: Tensor) -> Tensor | None:
        """The mask of some queries and keys."""
        if self.causal:
            return keys <= torch.arange(first, end)[:, None]
        if self.ranges is not None:
            part = self.ranges[:, :, first:end]
            return (keys >= part[..., :1]) & (keys < part[..., 1:])
        return None if self.mask is None else self.mask[:, :, first:end, keys]


_kept: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
_masks: dict[int, tuple[Any, Seen]] = {}


class _Reads:
    """What the result of a function depends on, as far as Python shows it: numbers, and what tensors hold."""

    def __init__(self, function: Any) -> None:
        self.numbers: list[Any] = []
        self.tensors: list[Tensor] = []
        self.known, self._functions = True, set[int]()
        self._visit(function)

    def _visit(self, x: Any) -> None:
        if isinstance(x, Tensor):
            self.known &= not torch._C._functorch.is_functorch_wrapped_tensor(x)
            self.tensors.append(x)
        elif isinstance(x, (bool, int, float, str)):
            self.numbers.append(x)
        elif isinstance(x, (list, tuple)):
            self.numbers.append(len(x))
            for one in x:
                self._visit(one)
        elif isinstance(x, types.FunctionType):
            if id(x) not in self._functions:
                self._functions.add(id(x))
                self.numbers.append(x.__code__)
                self._visit([cell.cell_contents for cell in x.__closure__ or ()])
                self._visit(x.__defaults__ or ())
                self._visit(list((x.__kwdefaults__ or {}).values()))
                self._visit([x.__globals__[name] for name in _names(x.__code__) if name in x.__globals__])
        elif isinstance(x, (types.BuiltinFunctionType, type)) or x is None:
            self.numbers.append(x)
        elif x is torch or x is torch.nn.functional or x is math:
            pass
        else:
            self.known = False  # it may change

    def kept(self) -> _Reads:
        """With copies of the tensors, which NumPy and x.data change without a new version."""
        self.tensors = [x.detach().clone() for x in self.tensors] if self.known else []
        return self

    def same(self, other: _Reads) -> bool:
        """Does another one read the same?"""
        return (
            self.known and other.known and self.numbers == other.numbers and len(self.tensors) == len(other.tensors)
            and all(x.dtype == y.dtype and torch.equal(x, y) for x, y in zip(self.tensors, other.tensors, strict=True))
        )


def _names(code: types.CodeType) -> list[str]:
    """The names that a function and those within it read, if they are global."""
    return [*code.co_names, *(name for inner in code.co_consts if isinstance(inner, types.CodeType) for name in _names(inner))]


def seen(block_mask: Any, query: Tensor, key: Tensor) -> Seen:
    if block_mask is None:
        return Seen()
    reads, number = _Reads(block_mask.mask_mod), id(block_mask)
    reads._visit([*_lists(block_mask), *query.shape[:3], key.shape[2]])
    if _kept.get(number) is block_mask and _masks[number][0].same(reads):
        return _masks[number][1]
    found = _evaluated(block_mask, query, key)
    if number not in _masks:
        weakref.finalize(block_mask, _masks.pop, number, None)
    _kept[number], _masks[number] = block_mask, (reads.kept(), found)
    return found


def _lists(block_mask: Any) -> tuple[Any, ...]:
    return block_mask.kv_num_blocks, block_mask.kv_indices, block_mask.full_kv_num_blocks, block_mask.full_kv_indices


def _dense(numbers: Tensor | None, indices: Tensor | None, keys: int) -> Tensor | None:
    """Lists of blocks as a matrix of booleans, [batch, heads, blocks of queries, blocks of keys]."""
    if numbers is None or indices is None:
        return None
    listed = torch.arange(indices.shape[-1]) < numbers[..., None]
    whole = torch.zeros(*indices.shape[:-1], keys + 1, dtype=torch.bool)
    return whole.scatter_(-1, torch.where(listed, indices.long(), keys), True)[..., :keys]


def _evaluated(block_mask: Any, query: Tensor, key: Tensor) -> Seen:
    rows, columns = block_mask.BLOCK_SIZE
    batch, heads, queries, keys = *query.shape[:3], key.shape[2]
    if not batch * heads * queries * keys:
        return Seen()
    partial, full = _matrices(block_mask, keys)

    def sees(first: int, end: int) -> Tensor:
        i = torch.arange(first, end)
        found = everywhere(block_mask.mask_mod, torch.arange(batch), torch.arange(heads), i, torch.arange(keys))
        for axis in (0, 1):  # what does not depend on the entry, or the head, is there once
            found = found[(slice(None),) * axis + (slice(1),)] if found.stride(axis) == 0 else found
        found = found & _wide(partial[:, :, i // rows], columns, keys)
        return found if full is None else found | _wide(full[:, :, i // rows], columns, keys)

    bounds = []
    for first in range(0, queries, ROWS):
        part = sees(first, min(first + ROWS, queries))
        count = part.sum(-1)
        begin, behind = part.to(torch.uint8).argmax(-1), part.flip(-1).to(torch.uint8).argmax(-1)
        end = torch.where(count > 0, keys - behind, begin)
        if not torch.equal(end - begin, count):
            return Seen(mask=torch.cat([sees(at, min(at + ROWS, queries)) for at in range(0, queries, ROWS)], 2))
        bounds.append(torch.stack([begin, end], -1))
    ranges, place = torch.cat(bounds, 2), torch.arange(1, queries + 1)
    if not ranges[..., 0].any() and bool((ranges[..., 1] == place.clamp(max=keys)).all()):
        return Seen(causal=True, backward=True)
    return Seen(ranges=ranges, backward=bool((ranges[..., 1] <= place).all()))


def _matrices(block_mask: Any, keys: int) -> tuple[Any, Any]:
    """Which blocks are seen in part, and which in full (or None)."""
    across = -(-keys // block_mask.BLOCK_SIZE[1])
    lists = _lists(block_mask)
    return _dense(lists[0], lists[1], across), _dense(lists[2], lists[3], across)


def _wide(blocks: Tensor, columns: int, keys: int) -> Tensor:
    """One number for each key in place of one for each block of keys."""
    return blocks.repeat_interleave(min(columns, max(keys, 1)), -1)[..., :keys]


def as_options(found: Seen, block_mask: Any, query: Tensor, key: Tensor, options: list[Any]) -> None:
    """What is seen as options; with a mask of bytes, the blocks say what to leave out."""
    options[AT["causal"]], options[AT["ranges"]], options[AT["mask"]] = int(found.causal), found.ranges, found.mask
    if found.mask is None:
        return
    rows, columns = block_mask.BLOCK_SIZE
    if rows <= query.shape[2] and columns <= key.shape[2]:
        partial, full = _matrices(block_mask, key.shape[2])
        options[AT["block_mask"]] = partial if full is None else partial | full
        options[AT["block_q"]], options[AT["block_kv"]] = rows, columns


def keys_of(found: Seen, block_mask: Any, first: int, end: int, keys: int) -> Tensor:
    """The keys that some of the queries first .. end - 1 may see."""
    if found.causal:
        return torch.arange(min(end, keys))
    if found.ranges is not None:
        part = found.ranges[:, :, first:end]
        some = part[..., 0] < part[..., 1]
        if not some.any():
            return torch.arange(0)
        return torch.arange(int(part[..., 0][some].min()), int(part[..., 1][some].max()))
    if found.mask is None:
        return torch.arange(keys)
    rows, columns = block_mask.BLOCK_SIZE
    partial, full = _matrices(block_mask, keys)
    blocks = (partial if full is None else partial | full)[:, :, first // rows:(end - 1) // rows + 1]
    return torch.arange(keys)[_wide(blocks.any(2).any(1).any(0), columns, keys)]
