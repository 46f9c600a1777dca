# SPDX-License-Identifier: MIT
"""Attention as functions of JAX arrays."""
from __future__ import annotations

from typing import Any, Literal, Never, Sequence, overload

import jax
import jax.numpy as jnp

from .. import _names
from ._arguments import Align, Causal, add_options, add_seed, check_sizes, packed, rows, spec_of, vector
from ._call import check, compute_dtype
from ._primitives import SAVED, bind, forward_p

Layout = Literal["bhsd", "bshd", "thd"]


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
    named = {name: rows(x, name, layout) for name, x in (("q", q), ("k", k), ("v", v))}
    found = packed(named, layout, cu_seqlens_q, cu_seqlens_kv, max_seqlen_q, max_seqlen_kv)
    spec = spec_of(layout, causal, align, window, scale, softcap, dropout, found)
    check_sizes(named, spec)
    batch, heads, _, queries, keys, *_ = spec.sizes(*(named[name].shape for name in "qkv"))
    add_options(named, (batch, heads, queries, keys), compute_dtype(named["q"].dtype), mask, bias, sink, alibi_slopes)
    for name, x in (("lengths_q", lengths_q), ("lengths_kv", lengths_kv)):
        if x is not None:
            named[name] = vector(x, name, batch, "batch entry", jnp.int32)
    add_seed(named, dropout, seed)
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
