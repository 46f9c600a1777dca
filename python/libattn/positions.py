# SPDX-License-Identifier: MIT
"""Positions: rotary (RoPE) with its scalings, sinusoidal and learned absolute positions, ALiBi slopes, biases by distance (T5 buckets,
clipped distances), gates.  (The header attn/position.h.)

Everything is computed in double and rounded once.  x and y are [batch, heads, tokens, channels], of float32, float64, float16 or
bfloat16, and may lack batch, or batch and heads; positions are integers [tokens], or [batch, tokens], by default 0, 1, 2, ...  Results
are in the library of the first array and of its type.
"""
from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from . import _abi, _native
from ._arguments import choice, doubles, integer, real
from ._arrays import Array, like, pointer
from ._slots import Slots, exactly, fits, floats, four, input_slot, integers, output, output_slot, summed

__all__ = [
    "DistanceBias", "GateGradients", "Rope", "RopeFrequencies", "add", "add_backward", "alibi_slopes", "bias_gate", "bias_gate_backward",
    "resize", "resize_backward", "rope_frequencies", "sinusoidal",
]

Pairs = Literal["interleaved", "halves"]
Scaling = Literal["linear", "ntk", "ntk_dynamic", "yarn", "llama3"]
Distance = Literal["t5", "clipped"]

PAIRS = {name: getattr(_abi, f"ATTN_ROPE_PAIRS_{name.upper()}") for name in get_args(Pairs)}
SCALINGS = {name: getattr(_abi, f"ATTN_ROPE_SCALING_{name.upper()}") for name in get_args(Scaling)}
DISTANCES = {name: getattr(_abi, f"ATTN_DISTANCE_{name.upper()}") for name in get_args(Distance)}


def _reference(slot: Any) -> Any:
    return None if slot is None else ctypes.byref(slot)


def _sizes(array: Array) -> Any:
    return (ctypes.c_int64 * 4)(*array.shape)


def _positions(positions: Any, batch: int, tokens: int) -> tuple[Array, Any] | tuple[None, None]:
    """The array and its slot, [batch, 1, tokens, 1]."""
    if positions is None:
        return None, None
    array = integers(positions, "positions")
    if array.ndim > 2 or array.shape[-1:] != (tokens,) or array.shape[:-1] not in ((), (1,), (batch,)):
        raise ValueError(f"positions has shape {list(array.shape)}; it must be [tokens] or [batch, tokens] = {[batch, tokens]}")
    array = np.broadcast_to(array, (batch, tokens))
    return array, input_slot(array, (0, 2))


def _nonzero(x: float | None, name: str, default: str) -> float:
    """A number for C, where 0 is the default."""
    if x is None:
        return 0.0
    value = real(x, name)
    if value == 0:
        raise ValueError(f"{name} is 0; it must be another number, or None for {default}")
    return value


@dataclass(frozen=True, eq=False)
class Rope:
    """A rotation of pairs of channels by an angle that depends on the position (Su et al. 2021, equation 34).  For every b, h, t and pair
    i of channels (x, y),

        a  = position[b, t] / stretch * base^(-2i / dim_rotary)         or * frequencies[i]
        x' = magnitude (x cos a - y sin a)
        y' = magnitude (x sin a + y cos a)

        rope = positions.Rope(pairs="halves", base=500000)
        q, k = rope(q), rope(k)

    Scores of rotated queries and keys depend on differences of positions only.  A Cache with a rope rotates what is appended to it.
    """

    pairs: Pairs = "interleaved"  #: channels 2i and 2i+1 (the paper, GPT-J); "halves": i and i + dim_rotary/2 (GPT-NeoX, Hugging Face)
    dim_rotary: int | None = None  #: only the first channels are rotated, the others copied; even; None: all
    base: float | None = None  #: None: 10000
    stretch: float | None = None  #: positions are divided by this (Chen et al. 2023); None: 1
    frequencies: Any = None  #: [dim_rotary / 2], for example from rope_frequencies; None: base^(-2i / dim_rotary)
    magnitude: float | None = None  #: rotated channels are multiplied by this (YaRN); None: 1
    cosines: Any = None  #: [rows, dim_rotary / 2] of any float type: cos a of each position, in place of base, stretch, frequencies, magnitude
    sines: Any = None  #: likewise sin a; neither is copied, so both may be columns of one array (table[:, :n], table[:, n:])

    def _struct(self, dim: int, inverse: bool) -> tuple[Any, list[Array]]:
        """The attn_rope for `dim` channels, and the arrays that it borrows."""
        made = _native.struct(_abi.attn_rope, inverse=int(inverse))
        made.pairs = choice(self.pairs, "pairs", PAIRS)
        width = dim
        if self.dim_rotary is not None:
            width = made.dim_rotary = integer(self.dim_rotary, "dim_rotary", 1)
        made.base, made.stretch = _nonzero(self.base, "base", "10000"), _nonzero(self.stretch, "stretch", "1")
        made.magnitude = _nonzero(self.magnitude, "magnitude", "1")
        kept: list[Array] = []
        if self.frequencies is not None:
            kept.append(exactly(doubles(self.frequencies, "frequencies"), "frequencies", (width // 2,), "[dim_rotary / 2]"))
            made.frequencies = pointer(kept[-1])
        if (self.cosines is None) != (self.sines is None):
            raise ValueError(f"{'sines' if self.sines is None else 'cosines'} is missing; set both or neither")
        for name, table in (("cosines", self.cosines), ("sines", self.sines)):
            if table is not None:
                array = floats(table, name)
                rows = made.table_rows or (array.shape[0] if array.ndim else 0)
                kept.append(exactly(array, name, (rows, width // 2), "[rows, dim_rotary / 2]"))
                made.table_rows = rows
                setattr(made, "cos_table" if name == "cosines" else "sin_table", input_slot(array, (2, 3)))
        return made, kept

    def _apply(self, x: Any, name: str, positions: Any, out: Any, inverse: bool) -> Any:
        array = floats(x, name)
        y = output(out, "out", array.shape, array.dtype if out is None else None)
        whole = four(array, name)
        rope, kept = self._struct(whole.shape[3], inverse)
        numbers, slot = _positions(positions, whole.shape[0], whole.shape[2])
        source, target = input_slot(whole), output_slot(four(y, "out"))
        _native.call("attn_rope_apply", ctypes.byref(rope), _sizes(whole), ctypes.byref(source), _reference(slot), ctypes.byref(target))
        del kept, numbers  # until here
        return like(y, x) if out is None else out

    def __call__(self, x: Any, positions: Any = None, *, out: Any = None) -> Any:
        """x rotated.  out: an array of any float type, which may be x.

        Raises ValueError (shapes; an odd dim_rotary; a position outside the tables), TypeError or NotImplementedError, with out untouched.
        """
        return self._apply(x, "x", positions, out, False)

    def inverse(self, y: Any, positions: Any = None, *, out: Any = None) -> Any:
        """Rotated back, with the same magnitude: of the gradient of the result it makes that of x."""
        return self._apply(y, "y", positions, out, True)


class RopeFrequencies(NamedTuple):
    """What a model rotates by: Rope(frequencies=..., magnitude=...)."""

    frequencies: Array  #: [dim / 2], highest first
    magnitude: float  #: 0.1 log(factor) + 1 for YaRN, else 1


def rope_frequencies(
    scaling: Scaling, dim: int, factor: float, *, base: float | None = None, original_length: int = 0, length: int = 0,
    fast: float | None = None, slow: float | None = None,
) -> RopeFrequencies:
    """Frequencies that extend a model trained on original_length tokens to longer sequences.  With f_i = base^(-2i / dim):

        "linear"       f_i / factor: interpolated positions (Chen et al. 2023)
        "ntk"          (base factor^(dim / (dim - 2)))^(-2i / dim)
        "ntk_dynamic"  the same with factor * length / original_length - (factor - 1) for factor, once length is above original_length
        "yarn"         (1 - r_i) f_i + r_i f_i / factor,  r_i = clamp((i - a) / (b - a), 0, 1),  a and b the channels that turn `fast` and
                       `slow` times within original_length, rounded down and up (Peng et al. 2023, section 3.2); fast 32, slow 1
        "llama3"       with s_i = clamp((original_length f_i / (2 pi) - slow) / (fast - slow), 0, 1): (1 - s_i) f_i / factor + s_i f_i;
                       fast (high_freq_factor) 4, slow (low_freq_factor) 1

    dim is the number of rotated channels, factor at least 1, base None 10000.  Raises ValueError.
    """
    made = _native.struct(_abi.attn_rope_scaling, dim=integer(dim, "dim", 2), factor=real(factor, "factor"))
    made.kind = choice(scaling, "scaling", SCALINGS)
    made.base, made.original_length = _nonzero(base, "base", "10000"), integer(original_length, "original_length", 0)
    made.length = integer(length, "length", 0)
    made.fast, made.slow = _nonzero(fast, "fast", "its default"), _nonzero(slow, "slow", "its default")
    frequencies, magnitude = np.empty(made.dim // 2), np.empty(1)
    _native.call("attn_rope_frequencies", ctypes.byref(made), pointer(frequencies), pointer(magnitude))
    return RopeFrequencies(frequencies, float(magnitude[0]))


def sinusoidal(
    tokens: int, channels: int, *, order: Pairs = "interleaved", base: float | None = None, positions: Any = None, dtype: Any = np.float32,
    out: Any = None,
) -> Any:
    """Sinusoidal positions (Vaswani et al. 2017, section 3.5), [tokens, channels]: with a = position[t] * base^(-2i / channels),

        table[t, 2i] = sin a      table[t, 2i+1] = cos a

    With order "halves" the sines fill the first half of the channels and the cosines the second.  With an odd number of channels there is
    one more sine.  positions [tokens], base None 10000.
    """
    shape = integer(tokens, "tokens", 0), integer(channels, "channels", 0)
    table = output(out, "out", shape, dtype if out is None else None)
    numbers, slot = _positions(positions, 1, shape[0])
    target = output_slot(table, (2, 3))
    _native.call(
        "attn_sinusoidal", choice(order, "order", PAIRS), *shape, _nonzero(base, "base", "10000"), _reference(slot), ctypes.byref(target)
    )
    del numbers
    return table if out is None else out


def add(x: Any, table: Any, positions: Any = None, *, out: Any = None) -> Any:
    """Learned absolute positions: y[b,h,t,:] = x[b,h,t,:] + table[position[b,t],:], for table [rows, channels] of any float type.

    out: an array of any float type, which may be x.  A position outside 0 .. rows-1 is a ValueError.
    """
    array, rows = floats(x, "x"), _table(table, "table")
    y = output(out, "out", array.shape, array.dtype if out is None else None)
    whole = four(array, "x")
    if rows.shape[1] != whole.shape[3]:
        raise ValueError(f"table has {rows.shape[1]} channels; it must have {whole.shape[3]}, as x")
    numbers, slot = _positions(positions, whole.shape[0], whole.shape[2])
    slots = input_slot(whole), input_slot(rows, (2, 3)), output_slot(four(y, "out"))
    _native.call(
        "attn_position_add", rows.shape[0], _sizes(whole), ctypes.byref(slots[0]), ctypes.byref(slots[1]), _reference(slot),
        ctypes.byref(slots[2]),
    )
    del numbers
    return like(y, x) if out is None else out


def _table(x: Any, name: str) -> Array:
    array = floats(x, name)
    if array.ndim != 2:
        raise ValueError(f"{name} has {array.ndim} axes; it must have two, [rows, channels]")
    return array


def add_backward(grad_y: Any, rows: int, positions: Any = None) -> Any:
    """The gradient of the table of add: grad_table[p,:] = sum over b, h, t with position[b,t] = p of grad_y[b,h,t,:], [rows, channels], in
    this order and in double, of grad_y's type.  (The gradient of x is grad_y.)"""
    array = floats(grad_y, "grad_y")
    whole = four(array, "grad_y")
    grad = np.empty((integer(rows, "rows", 0), whole.shape[3]), array.dtype)
    numbers, slot = _positions(positions, whole.shape[0], whole.shape[2])
    slots = input_slot(whole), output_slot(grad, (2, 3))
    _native.call(
        "attn_position_add_backward", len(grad), _sizes(whole), ctypes.byref(slots[0]), _reference(slot), ctypes.byref(slots[1])
    )
    del numbers
    return like(grad, grad_y)


def resize(x: Any, rows: int, *, out: Any = None) -> Any:
    """A learned table x [rows of x, channels] resized by linear interpolation: row t of the result is sampled at
    s = max((t + 1/2) len(x) / rows - 1/2, 0), between rows floor(s) and floor(s) + 1 of x, or at its last row (as PyTorch's interpolate
    without align_corners).  float32 or float64."""
    table = _table(x, "x")
    y = output(out, "out", (integer(rows, "rows", 0), table.shape[1]), table.dtype if out is None else None)
    slots = input_slot(table, (2, 3)), output_slot(y, (2, 3))
    _native.call("attn_position_resize", table.shape[1], table.shape[0], y.shape[0], ctypes.byref(slots[0]), ctypes.byref(slots[1]))
    return like(y, x) if out is None else out


def resize_backward(grad_y: Any, rows: int) -> Any:
    """The gradient of resize: that of x, [rows, channels], summed over the rows of grad_y in their order."""
    grad = _table(grad_y, "grad_y")
    grad_x = np.empty((integer(rows, "rows", 0), grad.shape[1]), grad.dtype)
    slots = input_slot(grad, (2, 3)), output_slot(grad_x, (2, 3))
    _native.call("attn_position_resize_backward", grad.shape[1], len(grad_x), len(grad), ctypes.byref(slots[0]), ctypes.byref(slots[1]))
    return like(grad_x, grad_y)


def alibi_slopes(heads: int, *, dtype: Any = np.float32) -> Array:
    """Slopes for alibi_slopes of attention, [heads], by the published rule (Press et al. 2022, section 3 and its code):
    2^(-8 (h+1) / heads) where heads is a power of two; otherwise those of the next lower power of two, followed by every other one of
    the next higher.  float32 or float64."""
    slopes = np.empty(integer(heads, "heads", 0), dtype)
    slot = output_slot(slopes, (1,))
    _native.call("attn_alibi_slopes", len(slopes), ctypes.byref(slot))
    return slopes


@dataclass(frozen=True)
class DistanceBias:
    """A bias table[h, bucket(d)] that depends only on the distance d = p_i - j between query and key (bias_table of attention applies it
    without a matrix):

        "clipped"  bucket = clamp(d, -max_distance, max_distance) + max_distance;  2 max_distance + 1 buckets (Shaw et al. 2018)
        "t5"       n = |d|, and half the buckets for each direction, the second half for d < 0 (keys after the query); or with `causal`
                   all of them for n = max(d, 0).  With N buckets per direction and e = floor(N/2): n if n < e, else
                   min(N - 1, e + floor(log(n/e) / log(max_distance/e) (N - e)))  (Raffel et al. 2020, section 2.1, and its code)
    """

    kind: Distance
    buckets: int | None = None  #: "t5": None is 32.  "clipped": it follows from max_distance
    max_distance: int | None = None  #: "t5": None is 128; must exceed half the buckets of a direction
    causal: bool = False  #: "t5": T5's decoder, with all buckets for keys before the query

    def __post_init__(self) -> None:
        self.number_of_buckets  # noqa: B018 - raises ValueError for an invalid rule

    def _rule(self, heads: int = 1, len_q: int = 0, len_kv: int = 0, offset_q: int = 0) -> Any:
        made = _native.struct(_abi.attn_distance_bias, heads=heads, causal=int(bool(self.causal)), len_q=len_q, len_kv=len_kv)
        made.kind, made.offset_q = choice(self.kind, "kind", DISTANCES), integer(offset_q, "offset_q")
        if self.buckets is not None:
            made.buckets = integer(self.buckets, "buckets", 1)
        if self.max_distance is not None:
            made.max_distance = integer(self.max_distance, "max_distance", 0)
        return made

    @property
    def number_of_buckets(self) -> int:
        """Buckets of each head in the table."""
        found = _native.call("attn_distance_buckets", ctypes.byref(self._rule()))
        if found < 0:
            raise ValueError(f"buckets {self.buckets} and max_distance {self.max_distance} do not fit the kind {self.kind!r}")
        return found

    def bucket(self, distance: int) -> int:
        """The bucket of distance d = p_i - j."""
        return _native.call("attn_distance_bucket", ctypes.byref(self._rule()), integer(distance, "distance"))

    def arguments(self, table: Any) -> dict[str, Any]:
        """The keywords with which libattn.attention, its derivatives and Plan add the bias, in memory of one number for each distance:

            libattn.attention(q, k, v, **rule.arguments(table))

        With grads=["bias_table"], attention_backward also returns the gradient of the table.
        """
        rule = self._rule()
        found = {"bias_table": table, "bias_table_kind": self.kind, "bias_table_causal": bool(self.causal)}
        return {**found, "bias_table_max_distance": rule.max_distance} if self.max_distance is not None else found

    def matrix(self, table: Any, len_q: int, len_kv: int, *, offset_q: int = 0) -> Any:
        """bias[h, i, j] = table[h, bucket(i + offset_q - j)], [heads, len_q, len_kv], for table [heads, buckets] of float32 or float64: for
        inspection, or as the bias of attention.  Query i has the position of key i + offset_q."""
        numbers = floats(table, "table")
        if numbers.ndim != 2 or numbers.shape[1] != self.number_of_buckets:
            raise ValueError(f"table has shape {list(numbers.shape)}; it must be [heads, {self.number_of_buckets}]")
        bias = np.empty((len(numbers), integer(len_q, "len_q", 0), integer(len_kv, "len_kv", 0)), numbers.dtype)
        slots = input_slot(numbers, (1, 2)), output_slot(bias, (1, 2, 3))
        rule = self._rule(*bias.shape, offset_q=offset_q)
        _native.call("attn_distance_bias_fill", ctypes.byref(rule), ctypes.byref(slots[0]), ctypes.byref(slots[1]))
        return like(bias, table)

    def backward(self, grad_bias: Any, *, offset_q: int = 0) -> Any:
        """The gradient of the table, [heads, buckets], from that of the matrix: grad_bias summed over all pairs of a bucket, in double."""
        grad = floats(grad_bias, "grad_bias")
        if grad.ndim != 3:
            raise ValueError(f"grad_bias has {grad.ndim} axes; it must have three, [heads, len_q, len_kv]")
        table = np.empty((len(grad), self.number_of_buckets), grad.dtype)
        slots = input_slot(grad, (1, 2, 3)), output_slot(table, (1, 2))
        rule = self._rule(*grad.shape, offset_q=offset_q)
        _native.call("attn_distance_bias_backward", ctypes.byref(rule), ctypes.byref(slots[0]), ctypes.byref(slots[1]))
        return like(table, grad_bias)


class GateGradients(NamedTuple):
    """Gradients of the tensors of bias_gate."""

    q: Any
    w: Any
    b: Any
    a: Any


def _gate(q: Any, w: Any, b: Any, a: Any) -> tuple[Any, Slots, Array]:
    """The struct, the slots of the inputs, and q with its own axes."""
    queries, weights, bias, factors = floats(q, "q"), floats(w, "w"), floats(b, "b"), floats(a, "a")
    whole = four(queries, "q")
    batch, heads, len_q, dim = whole.shape
    if weights.ndim != 2 or weights.shape[0] != dim or weights.shape[1] % 2:
        raise ValueError(f"w has shape {list(weights.shape)}; it must be [dim, 2 width], where dim is {dim}")
    exactly(bias, "b", (weights.shape[1],), "[2 width]")
    factors = fits(factors.reshape(1) if factors.ndim == 0 else factors, "a", (heads,), "[heads]")
    rule = _native.struct(_abi.attn_bias_gate, batch=batch, heads=heads, len_q=len_q, dim=dim, width=weights.shape[1] // 2)
    slots = Slots(_abi.attn_bias_gate_tensors)
    slots.put("q", whole)
    slots.put("w", weights, (2, 3))
    slots.put("b", bias, (3,))
    slots.put("a", factors, (1,))
    return rule, slots, queries


def bias_gate(q: Any, w: Any, b: Any, a: Any) -> Any:
    """A gate that depends on the query and scales a bias (WavLM: Chen et al. 2022, equations 5 to 8): with z = q w + b,

        u = sigmoid(sum of the first `width` of z)      r = sigmoid(sum of the others)      gate = u (r a_h - 1) + 2

    gates [batch, heads, len_q], with which the bias of a pair is gate[b,h,i] * bias[h,i,j], for q [batch, heads, len_q, dim],
    w [dim, 2 width], b [2 width] and a [heads], of float32 or float64.
    """
    rule, slots, queries = _gate(q, w, b, a)
    gates = np.empty(slots["q"].shape[:3], queries.dtype)
    slots.put("gates", gates, (0, 1, 2))
    _native.call("attn_bias_gate_forward", ctypes.byref(rule), slots.reference)
    return like(gates.reshape(queries.shape[:-1]), q)


def bias_gate_backward(q: Any, w: Any, b: Any, a: Any, grad_gates: Any) -> GateGradients:
    """The gradient of bias_gate, from grad_gates [batch, heads, len_q].  Also raises MemoryError."""
    rule, slots, queries = _gate(q, w, b, a)
    grad = exactly(floats(grad_gates, "grad_gates"), "grad_gates", queries.shape[:-1], "[batch, heads, len_q]")
    slots.put("grad_gates", grad.reshape(slots["q"].shape[:3]), (0, 1, 2))
    made: list[Any] = []
    for name, axes in (("q", None), ("w", (2, 3)), ("b", (3,)), ("a", (1,))):
        made.append(np.empty(slots[name].shape, slots[name].dtype))
        slots.put(f"grad_{name}", made[-1], axes)
    _native.call("attn_bias_gate_backward", ctypes.byref(rule), slots.reference)
    shape = np.shape(a)
    return GateGradients(
        like(made[0].reshape(queries.shape), q), like(made[1], w), like(made[2], b),
        like(summed(made[3], shape or (1,)).reshape(shape), a),
    )
