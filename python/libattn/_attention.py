# SPDX-License-Identifier: MIT
"""Softmax attention, and all its variants, over arrays."""
from __future__ import annotations

from typing import Any, Iterable, Mapping, Unpack

from . import _abi, _callbacks, _core
from ._options import ArrayLike, Causal, ForwardOptions, Layout, Window

_FORWARD = _abi.ATTN_FORWARD
_NAMES = (
    "q", "k", "v", "o", "lse", "weights", "causal", "window", "mask", "bias", "scale", "softcap", "sink", "alibi_slopes", "dropout", "seed",
    "lengths_q", "lengths_kv", "cu_seqlens_q", "cu_seqlens_kv", "page_table", "threads",
)


def attention(
    q: ArrayLike, k: ArrayLike, v: ArrayLike, *, causal: Causal = False, window: Window = None, mask: ArrayLike | None = None,
    bias: ArrayLike | None = None, scale: float | ArrayLike | None = None, softcap: float | None = None, sink: ArrayLike | None = None,
    alibi_slopes: ArrayLike | None = None, dropout: float = 0.0, seed: int = 0, lengths_q: ArrayLike | None = None,
    lengths_kv: ArrayLike | None = None, cu_seqlens_q: ArrayLike | None = None, cu_seqlens_kv: ArrayLike | None = None,
    page_table: ArrayLike | None = None, layout: Layout = "bhsd", out: ArrayLike | None = None, return_lse: bool = False,
    return_weights: bool = False, threads: int | None = None, **options: Unpack[ForwardOptions],
) -> Any:
    """Attention: for each batch entry b, head h and query i, with g = h // (heads_q // heads_kv),

        s[j]   = scale * sum(q[b, h, i, :] * k[b, g, j, :]) + bias[b, h, i, j]      for every key j that the query sees
        lse    = log(sum(exp(s)))
        w[j]   = exp(s[j] - lse)
        o      = sum(w[j] * v[b, g, j, :])

    (Vaswani et al. 2017, equation 1), in memory linear in the lengths unless the weights are requested, exact up to rounding
    (docs/numerics.md has the bound), and with the same bits for any number of threads.

    Arrays are NumPy's or those of any library with DLPack or the buffer protocol, on the CPU, of float32, float64, float16 or
    bfloat16 (ml_dtypes), k and v also of int8 with scales, float8_e4m3fn and float8_e5m2, and cache.Blocks; memory is shared, except
    that inputs whose last axis is not contiguous are copied.  Results are of the library that q comes from.

    q              [batch, heads_q, tokens, dim]; [heads, tokens, dim] is one batch entry, [tokens, dim] one head as well
    k, v           [batch, heads_kv, keys, dim] and [batch, heads_kv, keys, dim_v]; heads_q is a multiple of heads_kv
    causal         True or "bottom-right": a query sees its own key and those before it, and the last query stands at the last
                   key; "top-left": the first query stands at the first key.  It also says where queries stand for window,
                   alibi_slopes and other distances, for which False is as True
    window         how far to the left and to the right of its position a query sees: a number for both, or (left, right), where
                   None or -1 is unbounded
    mask           bool, [batch, heads_q, queries, keys] or what broadcasts to it: True where a query sees a key
    bias           added to the scores, [batch, heads_q, queries, keys] or what broadcasts to it; -inf masks a key
    scale          a number, or an array [heads_q]; default 1/sqrt(dim)
    softcap        s becomes softcap * tanh(s / softcap), before the bias
    sink           [heads_q]: a score in each denominator that has no key
    alibi_slopes   [heads_q] or [batch, heads_q]: s -= slope * |distance| (Press et al. 2022)
    dropout, seed  weights are dropped with this probability after the softmax, the others divided by 1 - dropout; which ones
                   depends on the seed and the indices alone (Philox4x32-10)
    lengths_q      [batch]: real queries of each batch entry; rows past them are 0
    lengths_kv     [batch]: real keys; those past them are not read
    cu_seqlens_q   [sequences + 1], layout "thd": sequences are concatenated.  With cu_seqlens_kv keys are, too; else k and v are
                   [sequences, keys, heads_kv, dim] or pages of [page_size, heads_kv, dim], up to lengths_kv: a ragged batch
    page_table     [batch, pages]: k and v are [all pages, heads_kv, page_size, dim] (bshd: [all pages, page_size, heads_kv, dim]),
                   and key j of entry b is token j % page_size of page page_table[b, j // page_size].  Give lengths_kv as well
    layout         "bhsd", "bshd" ([batch, tokens, heads, dim]) or "thd" ([tokens, heads, dim]), of q, k, v and o.  Results for
                   each query (lse) are like o without its last axis; masks, biases and weights do not depend on it
    out            where o is written; of any type that o may have
    return_lse     also returns lse, of the compute type: float64 where q is, else float32
    return_weights also returns w, [batch, heads_q, queries, keys], of the compute type
    threads        how many threads may work, at most; default: ATTN_THREADS, OMP_NUM_THREADS, or the CPUs of this process, as they
                   are when a thread first computes a problem of this kind
    options        all the rest: libattn.Options and libattn.ForwardOptions

    Returns o, of the shape of q with the channels of v and of q's type; with further results a tuple (o, lse, weights, *outputs) of
    those that were requested.  A query that sees no key gets zeros, and lse -inf.

    Raises ValueError for shapes and numbers that do not fit, TypeError for what is not an array, not on the CPU or of a type that
    libattn does not know, NotImplementedError for combinations that it does not compute, and MemoryError; the sentence names the
    argument.  Nothing is written then.  Other threads of Python run meanwhile; a signal such as Ctrl-C is handled when the call
    returns.

        >>> q = k = v = numpy.random.rand(1, 8, 512, 64).astype("float32")
        >>> o = libattn.attention(q, k, v, causal=True)
    """
    more: Any = further_results(options) if options else None
    compute = _callbacks.compute if options else _core.compute
    return compute(
        _FORWARD, layout, more, _NAMES, q, k, v, True if out is None else out, return_lse,
        return_weights, causal, window, mask, bias, scale, softcap, sink, alibi_slopes, dropout, seed, lengths_q, lengths_kv, cu_seqlens_q,
        cu_seqlens_kv, page_table, threads,
    )


def further_results(options: Any) -> dict[str, Any]:
    """The keywords of _core.compute that options stand for: outputs become one keyword each."""
    if "outputs" not in options:
        return options
    more = dict(options)
    outputs = more.pop("outputs")
    if isinstance(outputs, str) or not isinstance(outputs, Iterable):
        raise TypeError(f"outputs must be names, as in outputs=[{outputs!r}]" if isinstance(outputs, str) else f"outputs must be names, not {outputs!r}")
    more.update(outputs if isinstance(outputs, Mapping) else dict.fromkeys(outputs, True))
    return more
