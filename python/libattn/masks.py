# SPDX-License-Identifier: MIT
"""Masks by their usual names: as patterns that attention computes without a matrix, and as the matrix itself.  (The header attn/mask.h.)

    both = masks.PatternSet(len_q, len_kv, masks.global_local(256, 16), masks.causal())
    o = libattn.attention(q, k, v, **both.arguments())          # skips what the patterns hide
    keep = both.matrix()                                        # [len_q, len_kv] of bool, True where a query sees a key

A pattern is made by one of the functions below, which define it: query i sees key j if the formula holds, where p_i is the position of
query i among the keys: i, or i + len_kv - len_q in a set with causal_bottom_right.  A set is the intersection of its patterns.
"""
from __future__ import annotations

import ctypes
import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _abi, _native
from ._arguments import integer, real
from ._arrays import Array, like, pointer
from ._slots import Fixed, booleans, input_slot, integers, output, output_slot

__all__ = [
    "Counts", "Pattern", "PatternSet", "bias_from_keep", "bigbird", "block_diagonal", "block_map", "causal", "causal_bottom_right",
    "columns", "dilated", "documents", "fixed", "global_local", "keep_from_drop", "lengths", "local", "prefix", "radius", "sliding_window",
    "strided", "window",
]


class Pattern:
    """One rule about which keys a query sees: an immutable value, made by a function of this module."""

    __slots__ = ("_arrays", "_text", "_value")

    def __init__(self, text: str, value: Any, *arrays: Array) -> None:
        self._text, self._value, self._arrays = text, value, arrays  # the arrays are borrowed by the value

    def __repr__(self) -> str:
        return f"masks.{self._text}"


def _pattern(function: str, **numbers: Any) -> Pattern:
    """A pattern of integers.  Which of them are in range is checked when a set is made, since that depends on its lengths."""
    values = [integer(x, name, 0, 2**64 - 1) if name == "seed" else integer(x, name) for name, x in numbers.items()]
    text = ", ".join(f"{name}={value}" for name, value in zip(numbers, values))
    return Pattern(f"{function.removeprefix('attn_pattern_')}({text})", _native.call(function, *values))


def causal() -> Pattern:
    """j <= p_i, aligned top-left: the first query has the position of the first key."""
    return _pattern("attn_pattern_causal")


def causal_bottom_right() -> Pattern:
    """j <= p_i with p_i = i + len_kv - len_q, for all patterns of the set: the last query has the position of the last key."""
    return _pattern("attn_pattern_causal_bottom_right")


def window(left: int, right: int) -> Pattern:
    """p_i - left <= j <= p_i + right, both ends included, -1 for no bound: the window of FlashAttention."""
    return _pattern("attn_pattern_window", left=left, right=right)


def sliding_window(keys: int) -> Pattern:
    """p_i - keys < j <= p_i: causal, `keys` keys with the query's own (Mistral, `sliding_window` of Hugging Face); 1: only its own."""
    return _pattern("attn_pattern_sliding_window", keys=keys)


def radius(radius: int) -> Pattern:
    """|p_i - j| <= radius: 2 radius + 1 keys."""
    return _pattern("attn_pattern_radius", radius=radius)


def local(width: int) -> Pattern:
    """|p_i - j| <= floor(width / 2): Longformer's window, in which an even width sees width + 1 keys."""
    return _pattern("attn_pattern_local", width=width)


def block_diagonal(size: int) -> Pattern:
    """floor(j / size) = floor(p_i / size); with causal, the chunks of Llama 4."""
    return _pattern("attn_pattern_block_diagonal", size=size)


def strided(stride: int) -> Pattern:
    """p_i mod stride = j mod stride: every stride-th key, counted from the query."""
    return _pattern("attn_pattern_strided", stride=stride)


def columns(stride: int) -> Pattern:
    """j mod stride = 0: the same keys for all queries."""
    return _pattern("attn_pattern_columns", stride=stride)


def dilated(radius: int, dilation: int) -> Pattern:
    """|p_i - j| <= radius * dilation and p_i mod dilation = j mod dilation: 2 radius + 1 keys, dilation apart."""
    return _pattern("attn_pattern_dilated", radius=radius, dilation=dilation)


def fixed(stride: int, columns: int) -> Pattern:
    """floor(j / stride) = floor(p_i / stride) or j mod stride >= stride - columns (Child et al. 2019, "Sparse Transformers", section 4.3,
    without causality)."""
    return _pattern("attn_pattern_fixed", stride=stride, columns=columns)


def global_local(width: int, global_tokens: int) -> Pattern:
    """|p_i - j| <= floor(width / 2) or j < global_tokens or 0 <= p_i < global_tokens (Beltagy et al. 2020, "Longformer")."""
    return _pattern("attn_pattern_global_local", width=width, global_tokens=global_tokens)


def bigbird(block: int, window: int, global_blocks: int, random_blocks: int, *, seed: int = 0) -> Pattern:
    """Over blocks of `block` queries n and `block` keys k (Zaheer et al. 2020, "Big Bird", section 2): |n - k| <= floor(window / 2), or
    k < global_blocks or n < global_blocks, or k is one of random_blocks others that n draws: for t = 0, 1, ... number
    floor(word * left / 2^32) of the `left` blocks not yet visible, in ascending order, where word is the first of Philox4x32-10 with
    key = seed and counter = (0, n, t, 0)."""
    return _pattern(
        "attn_pattern_bigbird", block=block, window=window, global_blocks=global_blocks, random_blocks=random_blocks, seed=seed
    )


def prefix(prefix: int) -> Pattern:
    """j <= p_i or j < prefix: a prefix language model, bidirectional over its prompt (Raffel et al. 2020, figure 3)."""
    return _pattern("attn_pattern_prefix", prefix=prefix)


def lengths(len_q: int, len_kv: int) -> Pattern:
    """i < len_q and j < len_kv: padding after a shorter sequence."""
    return _pattern("attn_pattern_lengths", len_q=len_q, len_kv=len_kv)


def documents(lengths_q: Any, lengths_kv: Any = None) -> Pattern:
    """Query i and key j belong to the same one of several documents, concatenated: lengths_q and lengths_kv (None: the same) are arrays of
    integers with their numbers of queries and keys.  Queries after the last document see nothing."""
    queries = _lengths(lengths_q, "lengths_q")
    keys = None if lengths_kv is None else _lengths(lengths_kv, "lengths_kv")
    if keys is not None and len(keys) != len(queries):
        raise ValueError(f"lengths_kv has {len(keys)} numbers; it must have {len(queries)}, as lengths_q")
    value = _native.call("attn_pattern_documents", len(queries), pointer(queries), pointer(keys))
    return Pattern(f"documents({len(queries)})", value, *(array for array in (queries, keys) if array is not None))


def _lengths(x: Any, name: str) -> Array:
    array = integers(x, name)
    if array.ndim != 1:
        raise ValueError(f"{name} has {array.ndim} axes; it must have one")
    return array.astype(np.int64)


def block_map(block_q: int, block_kv: int, blocks: Any) -> Pattern:
    """blocks[n, k] for n = floor(i / block_q) and k = floor(j / block_kv), blocks a matrix of bool with ceil(len_q / block_q) rows and
    ceil(len_kv / block_kv) columns."""
    matrix = np.ascontiguousarray(booleans(blocks, "blocks") != 0).view(np.uint8)  # a copy
    if matrix.ndim != 2:
        raise ValueError(f"blocks has {matrix.ndim} axes; it must have two")
    sizes = integer(block_q, "block_q"), integer(block_kv, "block_kv")
    return Pattern(f"block_map({sizes[0]}, {sizes[1]})", _native.call("attn_pattern_block_map", *sizes, pointer(matrix)), matrix)


@dataclass(frozen=True)
class Counts:
    """How much of a matrix a set shows."""

    pairs: int  #: visible ones
    sparsity: float  #: 1 - pairs / (len_q len_kv); 0 where there are none
    tiles: int  #: of tile_q queries and tile_kv keys
    tiles_empty: int  #: of these, without a visible pair: work that attention can skip
    queries_empty: int  #: that see no key


class PatternSet(Fixed):
    """The intersection of patterns over len_q queries and len_kv keys; immutable.  Without patterns everything is visible.

    Raises ValueError with a message that names the number out of its range, or MemoryError.
    """

    def __init__(self, len_q: int, len_kv: int, *patterns: Pattern) -> None:
        self.len_q: int = integer(len_q, "len_q", 0)
        self.len_kv: int = integer(len_kv, "len_kv", 0)
        self.patterns: tuple[Pattern, ...] = patterns
        for one in patterns:
            if not isinstance(one, Pattern):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(f"a pattern is of type {type(one).__name__}; the functions of libattn.masks make patterns")
            self._check_map(one)
        self._handle = ctypes.c_void_p()
        values = (_abi.attn_pattern * max(len(patterns), 1))(*(one._value for one in patterns))
        _native.call("attn_pattern_set_create", ctypes.byref(self._handle), self.len_q, self.len_kv, len(patterns), values)
        # The patterns' arrays are borrowed until then: the finalizer keeps them.
        weakref.finalize(self, _destroy, self._handle, patterns)

    def _check_map(self, pattern: Pattern) -> None:
        """A map of blocks that is smaller than the set would be read past its end."""
        value = pattern._value
        if value.kind == _abi.ATTN_PATTERN_BLOCK_MAP and min(value.size[0], value.size[1]) > 0:
            want = -(-self.len_q // value.size[0]), -(-self.len_kv // value.size[1])
            if pattern._arrays[0].shape != want:
                have = list(pattern._arrays[0].shape)
                raise ValueError(f"blocks has shape {have}; it must be {list(want)} for {self.len_q} x {self.len_kv}")

    def __repr__(self) -> str:
        return f"masks.PatternSet({', '.join([str(self.len_q), str(self.len_kv), *map(repr, self.patterns)])})"

    def sees(self, i: int, j: int) -> bool:
        """Does query i see key j?  False for numbers out of range."""
        return bool(_native.call("attn_pattern_set_sees", self._handle, integer(i, "i"), integer(j, "j")))

    def matrix(self, *, out: Any = None) -> Any:
        """The mask [len_q, len_kv] of bool, True where a query sees a key; into `out` (bool or uint8) if there is one."""
        keep = output(out, "out", (self.len_q, self.len_kv), np.bool_ if out is None else None)
        _native.call("attn_pattern_set_fill", self._handle, ctypes.byref(output_slot(keep, (2, 3))))
        return keep if out is None else out

    def text(self) -> str:
        """The mask as text: a line for each query, "#" for a key that it sees and "." for another."""
        return "\n".join("".join("#" if one else "." for one in row) for row in self.matrix())

    def count(self, tile_q: int = 64, tile_kv: int = 64) -> Counts:
        """Counts visible pairs and empty tiles, by going through all pairs.  Raises ValueError for a tile below 1."""
        found = _native.struct(_abi.attn_pattern_set_counts)
        _native.call("attn_pattern_set_count", self._handle, integer(tile_q, "tile_q"), integer(tile_kv, "tile_kv"), ctypes.byref(found))
        return Counts(found.pairs, found.sparsity, found.tiles, found.tiles_empty, found.queries_empty)

    def arguments(self) -> dict[str, Any]:
        """The keywords with which libattn.attention, its derivatives and Plan use the set as their mask, in memory linear in
        len_q + len_kv and, with blocks, in their number:

            libattn.attention(q, k, v, **a_set.arguments())

        These are among causal, align, window, chunk, dilation, global_q, global_kv, ranges, block_starts, block_index, block_q, block_kv
        and, for masks.columns, mask.  Combine them with lengths, bias and all else (with causal_bottom_right, not with lengths).

        Raises NotImplementedError where the patterns together need a mask of len_q x len_kv, and names the one that does; then
        matrix() as `mask` computes the same, without skipping anything.
        """
        problem, tensors = _native.struct(_abi.attn_problem), _native.struct(_abi.attn_tensors)
        problem.shape = _abi.attn_shape(1, 1, 1, self.len_q, self.len_kv, 1, 1)
        _native.call("attn_pattern_set_apply", self._handle, ctypes.byref(problem), ctypes.byref(tensors))
        mask, found = problem.mask, {}
        align = "bottom-right" if mask.align == _abi.ATTN_ALIGN_BOTTOM_RIGHT else "top-left"
        found["causal" if mask.causal else "align"] = align
        if mask.window:
            found["window"] = (mask.window_left, mask.window_right)
        for name in ("chunk", "dilation", "global_q", "global_kv", "block_q", "block_kv"):
            if getattr(mask, name):
                found[name] = getattr(mask, name)
        rows = -(-self.len_q // mask.block_q) + 1 if mask.block_q else 0
        for name, shape, dtype in (
            ("ranges", (self.len_q, 2), np.int64), ("mask", (1, self.len_kv), np.bool_), ("block_starts", (rows,), np.int64),
            ("block_index", (mask.block_entries,), np.int64),
        ):
            if data := getattr(tensors, name).data:
                found[name] = _copied(data, shape, dtype)
        return found


def _copied(address: int, shape: tuple[int, ...], dtype: Any) -> Array:
    """An array of the set, copied, so that it may outlive it."""
    array = np.empty(shape, dtype)
    if array.size:
        ctypes.memmove(array.ctypes.data, address, array.nbytes)
    return array


def _destroy(handle: ctypes.c_void_p, patterns: tuple[Pattern, ...]) -> None:
    _native.call("attn_pattern_set_destroy", handle)


def keep_from_drop(drop: Any, *, out: Any = None) -> Any:
    """keep = not drop: of masks that mark what to leave out (nn.MultiheadAttention), the masks of libattn.  Any shape; of bool or uint8,
    and in the library of drop."""
    numbers = np.ascontiguousarray(booleans(drop, "drop"))
    keep = output(out, "out", numbers.shape, np.bool_ if out is None else None)
    _flat("attn_mask_keep_from_drop", numbers, keep)
    return like(keep, drop) if out is None else out


def bias_from_keep(keep: Any, *, fill: float = -np.inf, dtype: Any = np.float32, out: Any = None) -> Any:
    """bias = 0 where keep is true, else `fill`: -inf masks, a finite fill such as -1e9 is just a number (and -inf in float16, whose
    largest number is 65504).  Any shape; of float32, float64, float16 or bfloat16, and in the library of keep."""
    numbers = np.ascontiguousarray(booleans(keep, "keep"))
    bias = output(out, "out", numbers.shape, dtype if out is None else None)
    _flat("attn_mask_bias_from_keep", numbers, bias, real(fill, "fill"))
    return like(bias, keep) if out is None else out


def _flat(function: str, source: Array, result: Array, *numbers: float) -> None:
    """Calls a function of rows of numbers, [1, 1, 1, count]."""
    if not result.flags.c_contiguous:
        raise ValueError("out is not contiguous")
    slots = input_slot(source.reshape(-1), (3,)), output_slot(result.reshape(-1), (3,))
    _native.call(function, source.size, *numbers, ctypes.byref(slots[0]), ctypes.byref(slots[1]))
