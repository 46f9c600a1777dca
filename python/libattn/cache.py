# SPDX-License-Identifier: MIT
"""Inference over a cache of keys and values: append new tokens and attend to everything so far, for a batch of sequences of different
lengths, contiguous or in pages, down to 4 bits.  (The header attn/cache.h.)

    kept = cache.Cache.empty(batch=2, heads=8, capacity=4096, dim_qk=64)
    o = kept.attend(q, k, v)                                    # the prompt, then token by token: [batch, heads_q, len, dim]
"""
from __future__ import annotations

import ctypes
import threading
from typing import Any, NamedTuple, Unpack

import numpy as np

from . import _abi, _native
from ._arguments import integer, real
from ._arrays import Array, like
from ._blocks import BY_CHANNEL, TAIL, Blocks
from ._execution import Execution, execution
from ._formats import Quantised, dequantise, hadamard, quantise
from ._slots import Fixed, Slots, exactly, fits, floats, input_slot, integers, output, output_slot
from ._stored import FLOAT8, bytes_of, is_given, kind_of, rows_slot, scale_of, scale_slot, stored, table_of, written, zeros
from .positions import Rope

__all__ = ["Blocks", "Cache", "Lists", "Quantised", "choose_blocks", "dequantise", "hadamard", "quantise"]


class Lists(NamedTuple):
    """A list of blocks for each batch entry and key head: keywords of attention, with block_heads=True."""

    block_starts: Array  #: [batch * heads + 1] of int64: where each list starts in block_index
    block_index: Array  #: blocks of keys, ascending within a list


def choose_blocks(
    scores: Any, lengths: Any, count: int, block: int, *, keep_first: int = 0, keep_last: int = 0, **options: Unpack[Execution],
) -> Lists:
    """The `count` blocks of the greatest scores for each key head; of equal ones the first, and NaN above all numbers.

        rows = kept.page_bounds()
        lists = cache.choose_blocks(kept.page_scores(rows, q), kept.lengths, 128, kept.page_size, keep_first=1, keep_last=1)
        o = libattn.attention(q, kept.k, kept.v, causal=True, block_heads=True, block_q=q.shape[2], block_kv=kept.page_size,
                              **lists._asdict(), **kept.arguments())

    scores [batch, heads, blocks] of float32: Cache.page_scores, or those of an indexer of yours, with blocks of one key.  lengths [batch]:
    keys of each entry; keep_first and keep_last: so many of its first and last blocks are in each list, whatever their scores.

    Raises ValueError or TypeError, with a sentence.
    """
    array = floats(scores, "scores", np.float32)
    if array.ndim != 3:
        raise ValueError(f"scores has {array.ndim} axes; it must have three, [batch, heads, blocks]")
    batch, heads, blocks = array.shape
    lens = exactly(integers(lengths, "lengths"), "lengths", (batch,), "[batch]")
    first, last = integer(keep_first, "keep_first", 0), integer(keep_last, "keep_last", 0)
    each = min(integer(count, "count", 0), max(blocks, first + last))  # (a list has no block twice)
    starts, index = np.empty(batch * heads + 1, np.int64), np.empty(batch * heads * each, np.int64)
    call = _native.struct(
        _abi.attn_choice, batch=batch, heads_kv=heads, blocks=blocks, block=integer(block, "block", 1), count=each,
        keep_first=first, keep_last=last,
    )
    chosen = execution(options)
    if chosen is not None:
        call.options = chosen
    call.lengths, call.scores = input_slot(lens, (0,)), input_slot(array, (0, 1, 3))
    call.block_starts, call.block_index = output_slot(starts, (0,)), output_slot(index, (0,))
    _native.call("attn_choose_blocks", ctypes.byref(call))
    return Lists(starts, index[:starts[-1]])


class Cache(Fixed):
    """Keys and values of a batch of sequences, over arrays of yours, which it updates in place.

    k            [batch, heads, capacity, dim_qk], in pages [pages, heads, page_size, dim_qk]: of float32, float16, bfloat16, int8,
                 float8_e4m3fn or float8_e5m2 (ml_dtypes), Blocks, or all of float64
    v            [batch, heads, capacity, dim_v], in pages [pages, heads, page_size, dim_v]: likewise.  It may be the first channels of k,
                 in the same memory (latents): then they are written with the keys, and new tokens have no v
    lengths      [batch] of int64: tokens in the cache; appending adds to them
    page_table   [batch, pages of a sequence] of int64 or int32, which may be columns of a larger table: token j of entry b is token
                 j % page_size of page page_table[b, j // page_size].  The pages that a call writes to must be distinct, which is not checked
    k_scale      [batch, heads, capacity], or in pages, of float32: if k is int8, or float8 with scales, which are otherwise 1;
                 appending quantises as `quantise` does.  Where all tokens share a scale (a stride of 0: numpy.broadcast_to of one, or
                 of one for each head), it is yours, and only read
    v_scale      the same, of v; if v is the first channels of k, it is k_scale, which may be left out
    k_tail       [batch, heads, 64, dim_qk] of float16, if k is Blocks of q4_1c: the last keys of each entry, key j in row j % 64, which
                 are exact until 32 of them are a group.  Lengths may go back by 32
    rope         the rotation of keys, when they are appended, and of queries, by their positions in the sequence

    The attributes of these names are arrays over the same memory: write to their elements between calls as you like (lengths to go
    back, page_table as sequences grow).  Calls on one cache wait for each other; calls on different caches may run at once.

    Raises ValueError or TypeError for arrays that do not fit, and NotImplementedError for float64 with another type.
    """

    def __init__(
        self, k: Any, v: Any, lengths: Any, *, page_table: Any = None, k_scale: Any = None, v_scale: Any = None, k_tail: Any = None,
        rope: Rope | None = None,
    ) -> None:
        self.k: Array | Blocks = stored(k, "k")
        self.v: Array | Blocks = stored(v, "v")
        for name, array in (("k", self.k), ("v", self.v)):
            if len(array.shape) != 4:
                raise ValueError(f"{name} has {len(array.shape)} axes; it must have four, [batch or pages, heads, tokens, channels]")
        if self.v.shape[:3] != self.k.shape[:3]:
            raise ValueError(f"v has shape {list(self.v.shape)}, k {list(self.k.shape)}; they must agree but for the channels")
        if (kind_of(self.k) == "float64") != (kind_of(self.v) == "float64"):
            raise NotImplementedError(f"k is of {kind_of(self.k)} and v of {kind_of(self.v)}; either both are of float64 or none")
        first, heads, tokens, dim = self.k.shape
        table = None if page_table is None else table_of(page_table)
        pages = 0 if table is None else first
        self.page_table: Array | None = table
        self.page_size: int = 0 if table is None else tokens  #: tokens of a page; 0: contiguous
        self.batch: int = first if table is None else table.shape[0]
        self.capacity: int = tokens if table is None else table.shape[1] * tokens
        self.heads: int = heads
        self.lengths: Array = written(lengths, "lengths", (self.batch,), ("int64",))
        if not self.lengths.flags.c_contiguous:
            raise ValueError("lengths is not contiguous")
        slots = {"k": rows_slot(self.k), "v": rows_slot(self.v)}
        if v_scale is None and bytes(slots["k"]) == bytes(slots["v"]) and bytes_of(self.k).size:
            v_scale = k_scale  # the values are the first channels of the keys
        scales = {}
        for name, array, scale in (("k_scale", self.k, k_scale), ("v_scale", self.v, v_scale)):
            if (scale is None) == (kind_of(array) == "int8") and (scale is None or kind_of(array) not in FLOAT8):
                how = "missing" if scale is None else "set"
                raise ValueError(f"{name} is {how}, and {name[0]} is of {kind_of(array)}; int8 needs scales, and float8 may have them")
            scales[name] = None if scale is None else scale_of(scale, name, array)
        self.k_scale: Array | None = scales["k_scale"]
        self.v_scale: Array | None = scales["v_scale"]
        if (k_tail is None) == (kind_of(self.k) == BY_CHANNEL):
            raise ValueError(f"k_tail is {'missing' if k_tail is None else 'set'}, and k is of {kind_of(self.k)}; only keys of {BY_CHANNEL} have a tail")
        self.k_tail: Array | None = None if k_tail is None else written(k_tail, "k_tail", (self.batch, heads, TAIL, dim), ("float16",))
        self.rope: Rope | None = rope
        self._lock = threading.Lock()

        self._cache = _native.struct(
            _abi.attn_cache, batch=self.batch, heads_kv=self.heads, capacity=self.capacity, dim_qk=dim, dim_v=self.v.shape[3],
            page_size=self.page_size, pages=pages,
        )
        if rope is not None:
            self._rope, self._tables = rope._struct(dim, False)  # pyright: ignore[reportPrivateUsage]
            self._cache.rope = ctypes.pointer(self._rope)
        self._cache.k, self._cache.v = slots["k"], slots["v"]
        self._cache.lengths, self._cache.k_tail = output_slot(self.lengths, (0,)), output_slot(self.k_tail)
        if self.page_table is not None:
            self._cache.page_table = input_slot(self.page_table, (0, 3))
        for name, scale in scales.items():
            if scale is not None:
                setattr(self._cache, name, scale_slot(scale))

    @classmethod
    def empty(
        cls, batch: int, heads: int, capacity: int, dim_qk: int, dim_v: int | None = None, *, dtype: Any = np.float32, v_dtype: Any = None,
        page_size: int | None = None, rope: Rope | None = None,
    ) -> Cache:
        """An empty cache in new memory.

        capacity is the most tokens of a sequence, dim_v by default dim_qk, v_dtype by default dtype: float32, float16, bfloat16, or a name
        of `quantise`, "i8" (int8), "f8_e4m3" and "f8_e5m2" (float8, here without scales), "q8_0", "q4_0" or "q4_1" (Blocks), for keys
        "q4_1c", or float64 for both.  With page_size the memory is in pages, as many as all sequences need, one sequence after the other.
        """
        names = "batch", "heads", "capacity", "dim_qk", "dim_v"
        sizes = [integer(x, name, 0) for name, x in zip(names, (batch, heads, capacity, dim_qk, dim_qk if dim_v is None else dim_v))]
        shape, table = (sizes[0], sizes[1], sizes[2]), None
        if page_size is not None:
            size = integer(page_size, "page_size", 1)
            each = -(-sizes[2] // size)
            table = np.arange(sizes[0] * each).reshape(sizes[0], each)
            shape = sizes[0] * each, sizes[1], size
        k, v = zeros((*shape, sizes[3]), dtype), zeros((*shape, sizes[4]), *((dtype,) if v_dtype is None else (v_dtype, "v_dtype")))
        k_scale, v_scale = (np.zeros(shape, np.float32) if kind_of(x) == "int8" else None for x in (k, v))
        tail = np.zeros((sizes[0], sizes[1], TAIL, sizes[3]), np.float16) if kind_of(k) == BY_CHANNEL else None
        return cls(k, v, np.zeros(sizes[0], np.int64), page_table=table, k_scale=k_scale, v_scale=v_scale, k_tail=tail, rope=rope)

    def __repr__(self) -> str:
        where = f"{self.k.shape[0]} pages of {self.page_size}" if self.page_size else f"capacity {self.capacity}"
        return f"<libattn Cache of {self.batch} x {self.heads} heads, {where}, {kind_of(self.k)}, lengths {self.lengths.tolist()}>"

    @property
    def _exact(self) -> Any:
        """The type of new tokens, if that must be the cache's."""
        return np.float64 if kind_of(self.k) == "float64" else None

    @property
    def _v_is_k(self) -> bool:
        return bytes(self._cache.v) == bytes(self._cache.k) and bytes_of(self.k).size > 0

    def _values(self, v: Any) -> Array | None:
        if (v is None) != self._v_is_k:
            raise ValueError("v is missing" if v is None else "v is set, and the cache's v is its k; the values are the first channels of k")
        return None if v is None else self._new(v, "v")

    def _new(self, x: Any, name: str) -> Array:
        """New tokens: of float64 if the cache is, and only then."""
        array = floats(x, name, self._exact)
        if array.dtype == np.float64 and self._exact is None:
            raise NotImplementedError(f"{name} is of float64 and the cache's k of {kind_of(self.k)}; either both are of float64 or none")
        return array

    def _tokens(self, k: Any, v: Any, lengths: Any) -> tuple[Any, list[Array]]:
        """The attn_cache_tokens, and its arrays."""
        keys, values = self._new(k, "k"), self._values(v)
        if keys.ndim != 4:
            raise ValueError(f"k has {keys.ndim} axes; it must have four, [batch, heads, len, dim_qk]")
        shape = (self.batch, self.heads, keys.shape[2])
        exactly(keys, "k", (*shape, self.k.shape[3]), "[batch, heads, len, dim_qk]")
        tokens, kept = _native.struct(_abi.attn_cache_tokens, len=keys.shape[2]), [keys]
        tokens.k = input_slot(keys)
        if values is not None:
            kept.append(exactly(values, "v", (*shape, self.v.shape[3]), "[batch, heads, len, dim_v]"))
            tokens.v = input_slot(values)
        if lengths is not None:
            kept.append(exactly(integers(lengths, "lengths"), "lengths", (self.batch,), "[batch]"))
            tokens.lengths = input_slot(kept[-1], (0,))
        return tokens, kept

    def _packed(self, k: Any, v: Any, lengths: Any, slots: Any, positions: Any, cu_seqlens: Any) -> tuple[Any, list[Array]]:
        """The same for tokens with slots or cu_seqlens, in the layout of engines."""
        keys, values = self._new(k, "k"), self._values(v)
        if keys.ndim != 3:
            how = "cu_seqlens" if slots is None else "slots"
            raise ValueError(f"k has {keys.ndim} axes; with {how} it must have three, [tokens, heads, dim_qk]")
        count = len(keys)
        exactly(keys, "k", (count, self.heads, self.k.shape[3]), "[tokens, heads, dim_qk]")
        tokens, kept = _native.struct(_abi.attn_cache_tokens, len=count), [keys]
        tokens.k = input_slot(keys, (2, 1, 3))
        if values is not None:
            kept.append(exactly(values, "v", (count, self.heads, self.v.shape[3]), "[tokens, heads, dim_v]"))
            tokens.v = input_slot(values, (2, 1, 3))
        each: dict[str, tuple[Any, int, str]] = {
            "slots": (slots, count, "[tokens]"), "positions": (positions, count, "[tokens]"), "lengths": (lengths, self.batch, "[batch]"),
            "cu_seqlens": (cu_seqlens, self.batch + 1, "[batch + 1]"),
        }
        for name, (x, size, axes) in each.items():
            if x is not None:
                kept.append(exactly(integers(x, name), name, (size,), axes))
                setattr(tokens, name, input_slot(kept[-1], (0,)))
        return tokens, kept

    def append(
        self, k: Any, v: Any = None, lengths: Any = None, *, slots: Any = None, positions: Any = None, cu_seqlens: Any = None,
        **options: Unpack[Execution],
    ) -> None:
        """Token t of entry b becomes key lengths[b] + t, rotated if there is a rope and rounded once to the cache's type, and the cache's
        lengths grow.

        k [batch, heads, len, dim_qk] and v [batch, heads, len, dim_v] (None: the cache's v is its k) are of any float type.  lengths [batch]: how many of the `len`
        tokens are real; None: all.

        With slots, tokens are packed as engines have them, k [tokens, heads, dim_qk] and v [tokens, heads, dim_v], and each says where it
        goes: slot s is token s % page_size of page s // page_size, or without pages token s % capacity of entry s // capacity; -1 skips a
        token, and no slot is given twice.  The rope rotates by positions [tokens], and the cache's lengths are yours to update.  Keys of
        q4_1c, whose last ones are in the tail of an entry, have no slots.

        With cu_seqlens [batch + 1], tokens are packed likewise, and those of entry b are cu_seqlens[b] to cu_seqlens[b + 1] - 1: all that
        a ragged batch brings, with the cu_seqlens_q of its queries.

        Raises ValueError (also if an entry would exceed its capacity, for a slot out of range, or if the rope's tables end before the new
        tokens), TypeError or NotImplementedError with the cache as it was.
        """
        if slots is not None and lengths is not None:
            raise ValueError("lengths and slots are both set; a slot of -1 skips a token")
        if slots is None and positions is not None:
            raise ValueError("positions is set and slots is not; without slots, positions follow from the cache's lengths")
        plain = slots is None and cu_seqlens is None
        tokens, kept = self._tokens(k, v, lengths) if plain else self._packed(k, v, lengths, slots, positions, cu_seqlens)
        chosen = execution(options)
        if chosen is not None:
            tokens.options = chosen
        with self._lock:
            _native.call("attn_cache_append", ctypes.byref(self._cache), ctypes.byref(tokens))
        del kept  # until here

    def attend(
        self, q: Any, k: Any, v: Any = None, lengths: Any = None, *, scale: float | None = None, softcap: float | None = None,
        temperature: float | None = None, window: int | tuple[int | None, int | None] | None = None, alibi_slopes: Any = None,
        sink: Any = None, return_lse: bool = False, out: Any = None, **options: Unpack[Execution],
    ) -> Any:
        """Appends k and v, then lets the new tokens attend causally to all of their sequence, themselves included: query t of entry b sees
        keys 0 .. n + t, where n is the length of b before.  o [batch, heads_q, len, dim_v], of q's type; with return_lse (o, lse).

        q is [batch, heads_q, len, dim_qk], heads_q a multiple of the cache's heads; the rope rotates it.  scale, softcap, temperature,
        window, alibi_slopes and sink are those of attention.  Rows past lengths are 0.  For all else, append and call attention:

            kept.append(k, v)
            o = libattn.attention(q, kept.k, kept.v, causal=True, **kept.arguments(), ...)

        Plans and allocates in each call.  Raises what append and attention raise; then nothing is written, to the cache either.
        """
        tokens, kept = self._tokens(k, v, lengths)
        queries = floats(q, "q")
        heads = queries.shape[1] if queries.ndim == 4 else 0
        exactly(queries, "q", (self.batch, heads, tokens.len, self.k.shape[3]), "[batch, heads_q, len, dim_qk]")
        problem = _native.struct(_abi.attn_problem)
        problem.shape.heads_q, problem.mask.causal = heads, 1
        if scale is not None:
            problem.score.scale_kind, problem.score.scale = _abi.ATTN_SCALE_VALUE, real(scale, "scale")
        for name, value in (("softcap", softcap), ("temperature", temperature)):
            if value is not None:
                setattr(problem.score, name, real(value, name))
                if getattr(problem.score, name) == 0:
                    raise ValueError(f"{name} is 0; it must be above 0, or None")
        if window is not None:
            if isinstance(window, (tuple, list)) and len(window) != 2:
                raise TypeError(f"window must be an integer or (left, right), not {window!r}")
            left, right = window if isinstance(window, (tuple, list)) else (window, window)
            problem.mask.window = 1
            problem.mask.window_left = -1 if left is None else integer(left, "window")
            problem.mask.window_right = -1 if right is None else integer(right, "window")
        slots = Slots(_abi.attn_tensors)
        shape = (self.batch, heads, tokens.len)
        compute = np.dtype(np.float64 if queries.dtype == np.float64 else np.float32)
        o = output(out, "out", (*shape, self.v.shape[3]), queries.dtype)
        slots.put("q", queries)
        slots.put("o", o)
        if alibi_slopes is not None:
            slopes = floats(alibi_slopes, "alibi_slopes", compute)
            slopes = slopes[np.newaxis] if slopes.ndim == 1 else slopes
            slots.put("alibi_slopes", fits(slopes, "alibi_slopes", shape[:2], "[batch, heads_q]"), (0, 1))
        if sink is not None:
            slots.put("sink", np.ascontiguousarray(exactly(floats(sink, "sink", compute), "sink", (heads,), "[heads_q]")), (1,))
        lse = np.empty(shape, compute) if return_lse else None
        slots.put("lse", lse, (0, 1, 2))
        with self._lock:
            _native.call(
                "attn_cache_attend", ctypes.byref(self._cache), ctypes.byref(tokens), ctypes.byref(problem), slots.reference,
                execution(options),
            )
        del kept
        done = like(o, q) if out is None else out
        return done if lse is None else (done, like(lse, q))

    def arguments(self) -> dict[str, Any]:
        """The keywords with which libattn.attention reads the cache as k and v: lengths_kv, and page_table, scales and k_tail if it has them.

        With a rope the keys in the cache are rotated; rotate q too: kept.rope(q, positions), with positions [batch, len].
        """
        found = {
            "lengths_kv": self.lengths, "page_table": self.page_table, "k_scale": self.k_scale, "v_scale": self.v_scale, "k_tail": self.k_tail,
        }
        return {name: array for name, array in found.items() if array is not None}

    def _places(self, b: int, tokens: Array) -> tuple[Any, Any, Any]:
        """Where tokens [heads, count] of entry b are in k, v and their scales; ValueError for a page that does not exist."""
        heads = np.arange(self.heads)[:, np.newaxis]
        if self.page_table is None:
            return b, heads, tokens
        numbers = tokens // self.page_size
        pages = self.page_table[b, numbers]
        for page, number in zip(pages.flat, numbers.flat):
            if not 0 <= page < self.k.shape[0]:
                raise ValueError(f"page_table[{b}, {number}] is {page}; tokens are kept there, and there are {self.k.shape[0]} pages")
        return pages, heads, tokens % self.page_size

    def _bounds(self, rows: Array, block: int, options: Execution) -> Any:
        made = _native.struct(_abi.attn_bounds, block=integer(block, "block", 0))
        chosen = execution(options)
        if chosen is not None:
            made.options = chosen
        made.rows = output_slot(rows)
        return made

    def _blocks(self, block: int) -> int:
        """Blocks of an entry's capacity."""
        size = self.page_size or integer(block, "block", 1)
        return -(-self.capacity // size)

    def page_bounds(self, rows: Any = None, first: Any = None, *, block: int = 0, **options: Unpack[Execution]) -> Array:
        """The least and the greatest number of each channel over the keys of each page, [pages, heads, 2, dim_qk]; without pages of each
        block of `block` tokens, [batch * ceil(capacity / block), heads, 2, dim_qk].  Of the type of the keys, float32 if that has 8 bits
        or fewer.

        rows: an earlier result, which is updated with the tokens of each entry from first [batch] on (None: all).

        Raises ValueError, TypeError or NotImplementedError with nothing written.
        """
        count = self.k.shape[0] if self.page_size else self.batch * self._blocks(block)
        kind = np.dtype(np.float32) if isinstance(self.k, Blocks) or self.k.dtype.itemsize == 1 else self.k.dtype
        shape = (count, self.heads, 2, self.k.shape[3])
        array = np.zeros(shape, kind) if rows is None else output(rows, "rows", shape, kind)
        new = None if first is None else exactly(integers(first, "first"), "first", (self.batch,), "[batch]")
        slot = None if new is None else ctypes.byref(input_slot(new, (0,)))
        made = self._bounds(array, block, options)
        with self._lock:
            _native.call("attn_page_bounds", ctypes.byref(self._cache), ctypes.byref(made), slot)
        return array

    def page_scores(self, rows: Any, q: Any, *, block: int = 0, **options: Unpack[Execution]) -> Array:
        """The most that the product of a query and a key of a page (block) can be, from page_bounds: [batch, heads, blocks] of float32, the
        most of all queries of a key head; -infinity past an entry's end (Tang et al. 2024, "Quest").

        q [batch, heads_q, len, dim_qk], rotated as for attention.  Raises ValueError, TypeError or NotImplementedError.
        """
        queries = floats(q, "q", self._exact)
        if queries.ndim != 4:
            raise ValueError(f"q has {queries.ndim} axes; it must have four, [batch, heads_q, len, dim_qk]")
        exactly(queries, "q", (self.batch, *queries.shape[1:3], self.k.shape[3]), "[batch, heads_q, len, dim_qk]")
        scores = np.empty((self.batch, self.heads, self._blocks(block)), np.float32)
        array = floats(rows, "rows")
        count = self.k.shape[0] if self.page_size else self.batch * self._blocks(block)
        exactly(array, "rows", (count, self.heads, 2, self.k.shape[3]), "[blocks, heads, 2, dim_qk]")
        made = self._bounds(array, block, options)
        slots = input_slot(queries), output_slot(scores, (0, 1, 3))
        with self._lock:
            _native.call(
                "attn_page_scores", ctypes.byref(self._cache), queries.shape[1], queries.shape[2], ctypes.byref(made),
                *(ctypes.byref(slot) for slot in slots),
            )
        return scores

    def shift(self, drop: Any, keep: int = 0) -> None:
        """Drops tokens to make room: drop of each entry, [batch] or one number, after the first `keep`, which stay as sinks (StreamingLLM).
        Those behind them move down, and a rope's keys are rotated on to where they are now, rounded once more; the lengths shrink.

        Raises ValueError (also if an entry has fewer tokens) or NotImplementedError (rotated keys of 8 bits or fewer, and those of q4_1c)
        with the cache as it was.
        """
        if isinstance(drop, bool):
            raise TypeError("drop is of type bool; it must be an integer")
        counts = np.full(self.batch, integer(drop, "drop", 0)) if np.ndim(drop) == 0 else integers(drop, "drop")
        slot = input_slot(exactly(counts, "drop", (self.batch,), "[batch]"), (0,))
        with self._lock:
            _native.call("attn_cache_shift", ctypes.byref(self._cache), integer(keep, "keep", 0), ctypes.byref(slot))

    def move(self, source: Any, target: Any) -> None:
        """Copies the token of slot source[i] to slot target[i], one after another, with its scales: to bring the pages of a sequence together,
        or to copy a page that sequences shared.  Slots as in append; keys keep their rotation, and page_table is yours to update.

        Raises ValueError for a slot out of range, and NotImplementedError for keys of q4_1c, with the cache as it was.
        """
        first, last = integers(source, "source"), integers(target, "target")
        slots = [input_slot(exactly(x, name, (first.size,), "[tokens]"), (0,)) for x, name in ((first, "source"), (last, "target"))]
        with self._lock:
            _native.call("attn_cache_move", ctypes.byref(self._cache), first.size, *(ctypes.byref(slot) for slot in slots))

    def evict(self, keep: Any, lengths: Any = None) -> None:
        """Keeps only the tokens whose numbers are in keep, [batch, count] or, for each head its own, [batch, heads, count], in this order;
        the others make room.  lengths [batch]: how many of the `count` numbers are used; None: all.

        The keys with the largest weights are in topk_index and column_sum of attention.  Keys keep the rotation of the position where they
        were appended; tokens that follow are rotated by their number in the cache.  Pages that sequences share must not be evicted from.

        Raises ValueError for a number that is not a token of its entry, and NotImplementedError for keys of q4_1c, with the cache as it was.
        """
        if kind_of(self.k) == BY_CHANNEL:
            raise NotImplementedError(f"cache: k is {BY_CHANNEL}; its keys are in groups, not in slots")
        chosen = integers(keep, "keep")
        if chosen.ndim == 2:
            chosen = np.broadcast_to(chosen[:, np.newaxis], (chosen.shape[0], self.heads, chosen.shape[1]))
        if chosen.ndim != 3 or chosen.shape[:2] != (self.batch, self.heads):
            raise ValueError(f"keep has shape {list(np.shape(keep))}; it must be [batch, count] or [batch, heads, count]")
        counts = np.full(self.batch, chosen.shape[2])
        if lengths is not None:
            counts = exactly(integers(lengths, "lengths"), "lengths", (self.batch,), "[batch]")
        with self._lock:
            for b in range(self.batch):
                if not 0 <= counts[b] <= chosen.shape[2]:
                    raise ValueError(f"lengths[{b}] is {counts[b]}; it must be between 0 and {chosen.shape[2]}")
                if not 0 <= self.lengths[b] <= self.capacity:
                    raise ValueError(f"the cache's lengths[{b}] is {self.lengths[b]}; it must be between 0 and {self.capacity}, the capacity")
                numbers = chosen[b, :, :counts[b]]
                if numbers.size and not (0 <= numbers.min() and numbers.max() < self.lengths[b]):
                    span = f"{numbers.min()} to {numbers.max()}"
                    raise ValueError(f"keep of entry {b} has the numbers {span}, and the cache {self.lengths[b]} tokens of it")
                if counts[b] > self.capacity:
                    raise ValueError(f"keep has {counts[b]} tokens for entry {b}, above the capacity of {self.capacity}")
            sources = [self._places(b, chosen[b, :, :counts[b]]) for b in range(self.batch)]
            targets = [self._places(b, np.broadcast_to(np.arange(counts[b]), (self.heads, counts[b]))) for b in range(self.batch)]
            for b, (source, target) in enumerate(zip(sources, targets)):  # nothing was written until here
                scales = [scale for scale in (self.k_scale, self.v_scale) if scale is not None and not is_given(scale)]
                rows = [bytes_of(self.k)] if self._v_is_k else [bytes_of(self.k), bytes_of(self.v)]
                for array in (*rows, *({one.ctypes.data: one for one in scales}).values()):
                    array[target] = array[source]
                self.lengths[b] = counts[b]
