# SPDX-License-Identifier: MIT
"""Attention as functions of JAX arrays."""
from __future__ import annotations

import operator
from typing import Any, Literal, Never, Sequence, overload

import jax
import jax.numpy as jnp

from .. import _names
from ._call import Spec, check, compute_dtype
from ._primitives import SAVED, bind, forward_p, seed_words

Layout = Literal["bhsd", "bshd", "thd"]
Align = Literal["top-left", "bottom-right"]
Causal = bool | Literal["top-left", "bottom-right"]


def _known(x: Any, name: str, instead: str = "") -> Any:
    """What is compiled into the operation: no array that JAX traces."""
    if isinstance(x, jax.core.Tracer):
        raise TypeError(f"{name} is traced by JAX (jit, grad, vmap, scan); it must be known when the operation is compiled{instead}")
    return x


def _number(x: Any, name: str, instead: str = "") -> float:
    if jnp.ndim(_known(x, name, instead)):
        raise ValueError(f"{name} has shape {jnp.shape(x)}; it must be one number{instead}")
    try:
        return float(x)
    except (TypeError, ValueError):
        raise TypeError(f"{name} is {x!r}; it must be a number") from None


def _align(causal: Causal, align: str) -> str:
    _known(causal, "causal")
    for name, value in (("causal", causal), ("align", align)):
        if value not in ((False, True) if name == "causal" else ()) and value not in ("top-left", "bottom-right"):
            raise ValueError(f"{name} is {value!r}, not {'False, True, ' if name == 'causal' else ''}'top-left' or 'bottom-right'")
    return causal if isinstance(causal, str) else align


def _window(window: int | Sequence[int | None] | None) -> tuple[int, int] | None:
    if window is None:
        return None
    sides = tuple(window) if isinstance(window, (tuple, list)) else (window, window)
    if len(sides) != 2:
        raise ValueError(f"window is {window!r}, not a number of keys or a pair (left, right)")
    for side in sides:
        if not hasattr(_known(side, "window"), "__index__") and side is not None:
            raise TypeError(f"window is {window!r}; it must be an integer or a pair (left, right) of them")
    left, right = (-1 if side is None else operator.index(side) for side in sides)
    return None if left == right == -1 else (left, right)


def _rows(x: Any, name: str, layout: str) -> jax.Array:
    array, axes = jnp.asarray(x), 3 if layout == "thd" else 4
    if array.ndim != axes:
        raise ValueError(f"{name} has {array.ndim} axes, not {axes}: {array.shape}")
    if array.dtype not in (jnp.float32, jnp.float64, jnp.float16, jnp.bfloat16):
        raise TypeError(f"{name} has type {array.dtype}, not float32, float64, float16 or bfloat16")
    return array


def _check_sizes(named: dict[str, jax.Array], spec: Spec) -> None:
    """q, k and v have sizes in common."""
    head, token = spec.axes
    batch = () if spec.packed else (0,)
    for name, other, axes in (("k", "q", (*batch, -1)), ("v", "k", (*batch, head, token))):
        for axis in axes:
            here, there = named[name].shape[axis], named[other].shape[axis]
            if here != there:
                what = {**dict.fromkeys(batch, "batch entries"), head: "heads", token: "keys", -1: "channels"}[axis]
                raise ValueError(f"{name} has {here} {what}, {other} has {there}")


def _pairs(x: Any, name: str, full: tuple[int, int, int, int]) -> jax.Array:
    """An array that broadcasts to [batch, heads, queries, keys], with four axes."""
    array = jnp.asarray(x)
    if array.ndim > 4 or any(size not in (1, most) for size, most in zip(array.shape[::-1], full[::-1], strict=False)):
        raise ValueError(f"{name} has shape {array.shape}, which does not broadcast to {full}, [batch, heads, queries, keys]")
    return array.reshape((1,) * (4 - array.ndim) + array.shape)


def _vector(x: Any, name: str, size: int, what: str, dtype: Any) -> jax.Array:
    array = jnp.asarray(x)
    if array.shape != (size,):
        raise ValueError(f"{name} has shape {array.shape}, not ({size},): one number for each {what}")
    if jnp.issubdtype(dtype, jnp.integer):
        if not jnp.issubdtype(array.dtype, jnp.integer):
            raise TypeError(f"{name} has type {array.dtype}, not an integer type")
        return array if array.dtype in (jnp.int32, jnp.int64) else array.astype(dtype)
    return array.astype(dtype)


def _packed(
    named: dict[str, jax.Array], layout: str, starts_q: Any, starts_kv: Any, most_q: int | None, most_kv: int | None,
) -> tuple[int, int, int] | None:
    """Puts the starts of packed sequences into `named`; returns their number, and the most queries and keys of one."""
    given = {"cu_seqlens_q": starts_q, "cu_seqlens_kv": starts_kv}
    if layout != "thd":
        for name, x in (given | {"max_seqlen_q": most_q, "max_seqlen_kv": most_kv}).items():
            if x is not None:
                raise ValueError(f"{name} is set; it needs the layout 'thd', [tokens, heads, channels]")
        return None
    for name, x in given.items():
        if x is None:
            raise ValueError(f"{name} is missing; the layout 'thd' needs it")
        array = jnp.asarray(x)
        if array.ndim != 1 or array.shape[0] < 2 or array.dtype not in (jnp.int32, jnp.int64):
            raise ValueError(f"{name} has shape {array.shape} and type {array.dtype}; it must have one axis, two elements or more, and int32 or int64")
        named[name] = array
    counts = [named[name].shape[0] - 1 for name in given]
    if counts[0] != counts[1]:
        raise ValueError(f"cu_seqlens_q has {counts[0]} sequences, cu_seqlens_kv has {counts[1]}")
    most = [int(named[name].shape[0] if limit is None else limit) for name, limit in (("q", most_q), ("k", most_kv))]
    return counts[0], most[0], most[1]


@overload
def attention(
    q: Any, k: Any, v: Any, *, causal: Causal = ..., window: int | Sequence[int | None] | None = ..., mask: Any = ..., bias: Any = ...,
    scale: float | None = ..., softcap: float | None = ..., sink: Any = ..., alibi_slopes: Any = ..., dropout: float = ..., seed: Any = ...,
    lengths_q: Any = ..., lengths_kv: Any = ..., cu_seqlens_q: Any = ..., cu_seqlens_kv: Any = ..., max_seqlen_q: int | None = ...,
    max_seqlen_kv: int | None = ..., align: Align = ..., layout: Layout = ..., return_lse: Literal[False] = ...,
) -> jax.Array: ...
@overload
def attention(
    q: Any, k: Any, v: Any, *, causal: Causal = ..., window: int | Sequence[int | None] | None = ..., mask: Any = ..., bias: Any = ...,
    scale: float | None = ..., softcap: float | None = ..., sink: Any = ..., alibi_slopes: Any = ..., dropout: float = ..., seed: Any = ...,
    lengths_q: Any = ..., lengths_kv: Any = ..., cu_seqlens_q: Any = ..., cu_seqlens_kv: Any = ..., max_seqlen_q: int | None = ...,
    max_seqlen_kv: int | None = ..., align: Align = ..., layout: Layout = ..., return_lse: Literal[True],
) -> tuple[jax.Array, jax.Array]: ...
def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: Causal = False,
    window: int | Sequence[int | None] | None = None,
    mask: Any = None,
    bias: Any = None,
    scale: float | None = None,
    softcap: float | None = None,
    sink: Any = None,
    alibi_slopes: Any = None,
    dropout: float = 0.0,
    seed: Any = 0,
    lengths_q: Any = None,
    lengths_kv: Any = None,
    cu_seqlens_q: Any = None,
    cu_seqlens_kv: Any = None,
    max_seqlen_q: int | None = None,
    max_seqlen_kv: int | None = None,
    align: Align = "bottom-right",
    layout: Layout = "bhsd",
    return_lse: bool = False,
    **unknown: Never,
) -> jax.Array | tuple[jax.Array, jax.Array]:
    """Attention of queries over keys and values, in memory linear in their number.

    Equals, for each batch entry, head and query i, with the sum over the keys j that i sees,

        s_j = softcap * tanh(scale * q_i . k_j / softcap) + bias_ij - slope * |p_i - j|
        o_i = sum_j softmax(s)_j v_j

    (Vaswani et al. 2017, equation 1).  Works under jit, vmap, grad, jvp, second derivatives (jvp of grad, grad of grad, grad of jvp),
    checkpoint, scan and shard_map.  Third derivatives raise NotImplementedError, as does jvp of jvp.

    Args:
        q: [batch, heads, queries, channels], [batch, queries, heads, channels] for layout "bshd", [tokens, heads, channels] for
            "thd"; float32, float64, float16, bfloat16.
        k: likewise with keys; its heads divide those of q (grouped queries).
        v: likewise; its channels may differ.
        causal: False; True or "bottom-right": the last query stands at the last key; "top-left": the first at the first.
        window: keys on both sides of a query's position that it sees, or a pair (left, right); -1 or None: no bound.
        mask: bool, broadcasts to [batch, heads, queries, keys]; True: visible.
        bias: added to the scores, likewise; has a gradient.
        scale: of the scores, 1/sqrt(channels) by default: a number, or an array of no axes that JAX does not trace.  For a scale that is
            learned, or one for each head, multiply q by it and pass 1.0.
        softcap: bounds the scores, as in Gemma 2.
        sink: [heads], a score in each denominator that has no key (gpt-oss); has a gradient.
        alibi_slopes: [heads] (Press et al. 2022); has a first derivative.  Forward mode along it takes memory for all pairs.
        dropout: the probability with which a weight is dropped; may not be an array.
        seed: of dropout: an integer, an array of one, or a key of jax.random.
        lengths_q: [batch], queries of each entry; rows past them are 0.
        lengths_kv: [batch], keys of each entry.
        cu_seqlens_q: [sequences + 1], of integers, with cu_seqlens_kv and layout "thd": sequences of different lengths, one after the other;
            those of entry b are cu_seqlens_q[b] .. cu_seqlens_q[b + 1] - 1.  Both start at 0 and end at the number of tokens.
        cu_seqlens_kv: likewise for keys.
        max_seqlen_q: the most queries of a sequence, where a mask or a bias is given, or to plan for less than all tokens.
        max_seqlen_kv: likewise for keys.
        align: the positions of queries for window and alibi_slopes, where causal does not say: as in causal.
        layout: the order of the axes of q, k, v and o.
        return_lse: also return the logarithm of each softmax's denominator, like o without its last axis, of float32 (float64 for float64).

    Returns:
        o, with the shape of q but the channels of v, and the type of q; with return_lse, the pair (o, lse).  A query that sees no key
        has o = 0 and lse = -inf.

    Raises:
        ValueError: shapes or numbers that do not fit; the sentence names the argument.
        TypeError: an array of a type that is not known.
        NotImplementedError: a combination that the library does not compute; a platform other than the CPU.
    """
    if unknown:
        raise _names.unknown(unknown)
    if layout not in ("bhsd", "bshd", "thd"):
        raise ValueError(f"layout is {layout!r}, not 'bhsd', 'bshd' or 'thd'")
    named = {name: _rows(x, name, layout) for name, x in (("q", q), ("k", k), ("v", v))}
    packed = _packed(named, layout, cu_seqlens_q, cu_seqlens_kv, max_seqlen_q, max_seqlen_kv)
    spec = Spec(
        layout, _align(causal, align), bool(causal), _window(window),
        None if scale is None else _number(scale, "scale", "; multiply q by it, and pass scale=1.0"), None if softcap is None else _number(softcap, "softcap"),
        _number(dropout, "dropout"), packed,
    )
    _check_sizes(named, spec)
    batch, heads, _, queries, keys, *_ = spec.sizes(*(named[name].shape for name in "qkv"))
    full, exact = (batch, heads, queries, keys), compute_dtype(named["q"].dtype)
    if mask is not None:
        named["mask"] = _pairs(mask, "mask", full)
        if named["mask"].dtype != jnp.bool_:
            raise TypeError(f"mask has type {named['mask'].dtype}, not bool; numbers to add to the scores are the bias")
    if bias is not None:
        named["bias"] = _pairs(bias, "bias", full)
    for name, x in (("sink", sink), ("alibi_slopes", alibi_slopes)):
        if x is not None:
            named[name] = _vector(x, name, heads, "head of q", exact)
    for name, x in (("lengths_q", lengths_q), ("lengths_kv", lengths_kv)):
        if x is not None:
            named[name] = _vector(x, name, batch, "batch entry", jnp.int32)
    if dropout:
        named["seed"] = seed_words(seed)
    check(spec, tuple((name, x.shape, x.dtype) for name, x in named.items()))
    o, lse = bind(forward_p, named, spec, SAVED)
    if not return_lse:
        return o
    return o, jnp.swapaxes(lse, 1, 2) if layout == "bshd" else lse


def dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    bias: Any = None,
    mask: Any = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    query_seq_lengths: Any = None,
    key_value_seq_lengths: Any = None,
    local_window_size: int | tuple[int, int] | None = None,
    implementation: Any = None,
    return_residual: bool = False,
) -> Any:
    """`jax.nn.dot_product_attention`, computed by libattn.

    Arguments and shapes are those of jax.nn: query [batch, queries, heads, channels] or without batch, key and value with heads that
    divide those of query; bias and mask [batch, heads, queries, keys] with axes of 1 where they broadcast; is_causal from the top left.
    `implementation` is ignored.  With return_residual, returns (o, lse) with lse [batch, queries, heads].

    Two results differ: a query that sees no key gets 0, where jax.nn averages all values, and so do queries past query_seq_lengths.

    Raises: as `attention`.
    """
    del implementation
    query = jnp.asarray(query)
    if query.ndim not in (3, 4):
        raise ValueError(f"query has {query.ndim} axes, not 3 or 4: {query.shape}")
    alone = query.ndim == 3
    q, k, v = (jnp.asarray(x)[None] if alone else jnp.asarray(x) for x in (query, key, value))
    o, lse = attention(
        q, k, v, causal=is_causal, align="top-left", window=local_window_size, mask=mask, bias=bias, scale=scale,
        lengths_q=query_seq_lengths, lengths_kv=key_value_seq_lengths, layout="bshd", return_lse=True,
    )
    if alone:
        o, lse = o[0], lse[0]
    return (o, lse) if return_residual else o
