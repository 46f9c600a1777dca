# SPDX-License-Identifier: MIT
"""Attention by its definition, in double, with the matrix of all scores: what check and the tests compare with.

Arrays have four axes, [batch, head, token, channel] and [batch, head, query, key]; options are those of libattn.attention.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Real = NDArray[np.float64]
Bool = NDArray[np.bool_]


def positions(batch: int, len_q: int, len_kv: int, options: dict[str, Any]) -> NDArray[np.int64]:
    """[batch, len_q]: where each query stands among the keys."""
    offset = np.zeros(batch, np.int64)
    if options.get("offset_q") is not None:
        offset = offset + np.asarray(options["offset_q"], np.int64)
    elif "top-left" not in (options.get("causal"), options.get("align")):
        offset = lengths(options.get("lengths_kv"), batch, len_kv) - lengths(options.get("lengths_q"), batch, len_q)
    return np.arange(len_q)[None] + offset[:, None]


def lengths(given: Any, batch: int, full: int) -> NDArray[np.int64]:
    return np.full(batch, full, np.int64) if given is None else np.asarray(given, np.int64)


def visible(batch: int, heads: int, len_q: int, len_kv: int, options: dict[str, Any]) -> Bool:
    """[batch, heads, len_q, len_kv]: which keys a query sees (attn_mask of attn.h)."""
    get = options.get
    i, j = np.arange(len_q)[None, :, None], np.arange(len_kv)[None, None]
    p = positions(batch, len_q, len_kv, options)[:, :, None]
    sees = (j < lengths(get("lengths_kv"), batch, len_kv)[:, None, None]) & (i < lengths(get("lengths_q"), batch, len_q)[:, None, None])
    if get("causal"):
        sees = sees & (j <= p)
    near = np.ones((batch, len_q, len_kv), bool)
    window = get("window")
    left, right = window if isinstance(window, (tuple, list)) else (window, window)
    if left is not None and left != -1:
        near &= p - left <= j
    if right is not None and right != -1:
        near &= j <= p + right
    if (get("dilation") or 0) > 1:
        near &= (p - j) % options["dilation"] == 0
    sees = sees & (near | (j < (get("global_kv") or 0)) | ((p >= 0) & (p < (get("global_q") or 0))))
    if get("chunk"):
        sees = sees & (j // options["chunk"] == p // options["chunk"])
    if get("least_distance"):
        sees = sees & (abs(p - j) >= options["least_distance"])
    sees = np.broadcast_to(sees[:, None], (batch, heads, len_q, len_kv))
    if get("mask") is not None:
        sees = sees & (np.asarray(options["mask"]) != 0)
    if get("bias") is not None:
        sees = sees & (np.asarray(options["bias"], float) != -np.inf)
    if get("ranges") is not None:
        ranges = np.broadcast_to(options["ranges"], (batch, heads, len_q, 2))
        sees = sees & (ranges[..., :1] <= j) & (j < ranges[..., 1:])
    if get("block_mask") is not None:
        blocks = np.asarray(options["block_mask"]) != 0
        wide = np.repeat(np.repeat(blocks, options["block_q"], -2), options["block_kv"], -1)
        sees = sees & wide[..., :len_q, :len_kv]
    if get("tree") is not None:
        words = np.broadcast_to(np.asarray(options["tree"]).astype(np.uint64), (batch, 1, len_q, -(-options["tree_keys"] // 64)))[:, 0]
        bit = j - (lengths(get("lengths_kv"), batch, len_kv)[:, None, None] - options["tree_keys"])
        shown = np.take_along_axis(words, np.broadcast_to(np.clip(bit, 0, options["tree_keys"] - 1) // 64, (batch, len_q, len_kv)), -1)
        sees = sees & ((bit < 0) | ((shown >> (np.maximum(bit, 0) % 64).astype(np.uint64)) & np.uint64(1) != 0))[:, None]
    if get("block_starts") is not None:
        starts, index = np.asarray(options["block_starts"]), np.asarray(options["block_index"])
        listed = np.zeros((len_q, len_kv), bool)
        for block in range(len(starts) - 1):
            for key in index[starts[block]:starts[block + 1]]:
                rows = slice(block * options["block_q"], (block + 1) * options["block_q"])
                listed[rows, key * options["block_kv"]:(key + 1) * options["block_kv"]] = True
        sees = sees & listed
    return sees


def philox(key: int, counter: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Philox4x32-10 (Salmon et al. 2011): four words for each counter [..., 4]."""
    low = np.uint64(0xFFFFFFFF)
    words = [counter[..., n] & low for n in range(4)]
    k0, k1 = key & 0xFFFFFFFF, key >> 32 & 0xFFFFFFFF
    for _ in range(10):
        a, b = np.uint64(0xD2511F53) * words[0], np.uint64(0xCD9E8D57) * words[2]
        shift = np.uint64(32)
        words = [(b >> shift) ^ words[1] ^ np.uint64(k0), b & low, (a >> shift) ^ words[3] ^ np.uint64(k1), a & low]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack(words, -1)


def kept(batch: int, heads: int, len_q: int, len_kv: int, options: dict[str, Any]) -> Real:
    """[batch, heads, len_q, len_kv]: 0 where dropout drops a weight, and 1/(1-p) elsewhere."""
    p = options.get("dropout") or 0.0
    shape = (batch, heads, len_q, len_kv)
    if not p:
        return np.ones(shape)
    if options.get("dropout_given") is not None:
        keep = np.broadcast_to(np.asarray(options["dropout_given"]) != 0, shape)
    else:
        head, query, four = np.ogrid[0:batch * heads, 0:len_q, 0:(len_kv + 3) // 4]
        counter = np.zeros((batch * heads, len_q, (len_kv + 3) // 4, 4), np.uint64)
        counter[..., 0] = options.get("dropout_offset") or 0
        counter[..., 1], counter[..., 2], counter[..., 3] = head, query, four
        words = philox(options.get("seed") or 0, counter).reshape(batch, heads, len_q, -1)[..., :len_kv]
        keep = words >= np.uint64(np.ceil(2.0**32 * p))
    return keep / (1 - p) if p < 1 else np.zeros(shape)


def buckets(distance: NDArray[np.int64], count: int, options: dict[str, Any]) -> NDArray[np.int64]:
    """The bucket of each distance (attn/position.h): T5's (Raffel et al. 2020, section 2.1, and its code) or clipped distances."""
    if options.get("bias_table_kind") == "clipped":
        most = options.get("bias_table_max_distance") or (count - 1) // 2
        return np.clip(distance, -most, most) + most
    each = count if options.get("bias_table_causal") else count // 2
    n = np.maximum(distance, 0) if options.get("bias_table_causal") else abs(distance)
    exact = each // 2
    with np.errstate(divide="ignore"):
        ratio = np.log(np.maximum(n, 1) / max(exact, 1)) / np.log((options.get("bias_table_max_distance") or 128) / max(exact, 1))
    bucket = np.where(n < exact, n, np.minimum(exact + np.floor(ratio * (each - exact)).astype(np.int64), each - 1))
    return np.where((distance < 0) & (each < count), bucket + each, bucket)


def by_distance(table: Any, distance: NDArray[np.int64], options: dict[str, Any]) -> Real:
    """[batch, heads or 1, len_q, len_kv, channels]: the row of a relative table for each pair (attn/relative.h)."""
    rows = np.asarray(table, float)
    rows = rows.reshape((-1, *rows.shape[-2:]))
    at = np.clip(distance - (options.get("relative_first") or 0), 0, rows.shape[1] - 1)
    return np.moveaxis(rows[:, at], 0, 1)


@dataclass
class Scores:
    """Scores of all pairs, and what their error depends on."""

    s: Real  #: -inf where the query does not see the key
    x: Real  #: before the softcap
    size: Real  #: d_j of docs/numerics.md: the sum of the absolute terms of x
    added: Real  #: the sum of the absolute values of what is added to the capped score
    additions: int
    roundings: int  #: of each term of x, besides the scale's: the channels of a dot product


def products(q: Real, k: Real, distance: NDArray[np.int64], options: dict[str, Any]) -> tuple[Real, Real, int]:
    """x over the scale for each pair, its size, and the roundings of a term; keys are repeated for the heads of a group."""
    kind, dim = options.get("score") or "dot", q.shape[-1]

    def dot(a: Real, b: Real) -> Real:
        return np.einsum("bhic,bhjc->bhij", a, b)

    if kind == "dot":
        keys, size_q, size_r = q, abs(q), abs(q)
        relative = options.get("relative_keys")
        if relative is None:
            return dot(q, k), dot(abs(q), abs(k)), dim
        u, v = (np.asarray(0 if options.get(n) is None else options[n], float) for n in ("relative_u", "relative_v"))
        u, v = (x[:, None] if x.ndim == 2 else x for x in (u, v))
        rows = by_distance(relative, distance, options)
        keys, size_q, size_r = q + u, abs(q) + abs(u), abs(q) + abs(v)
        x = dot(keys, k) + ((q + v)[:, :, :, None] * rows).sum(-1)
        return x, dot(size_q, abs(k)) + (size_r[:, :, :, None] * abs(rows)).sum(-1), dim + 2
    if kind == "cosine":
        lengths_of = np.sqrt((q**2).sum(-1))[..., None] * np.sqrt((k**2).sum(-1))[:, :, None]
        return tuple(np.where(lengths_of > 0, x / np.where(lengths_of > 0, lengths_of, 1), 0) for x in (dot(q, k), dot(abs(q), abs(k)))) + (2 * dim + 8,)
    if kind == "distance":
        squares = (q**2).sum(-1)[..., None] + (k**2).sum(-1)[:, :, None]
        return -(squares - 2 * dot(q, k)), 2 * dot(abs(q), abs(k)) + squares, 2 * dim + 8
    w = np.asarray(options["score_matrix"], float)
    w = np.broadcast_to(w.reshape((-1, *w.shape[-2:])), (q.shape[1], *w.shape[-2:]))
    if kind == "general":
        return dot(np.einsum("bhia,hac->bhic", q, w), k), dot(np.einsum("bhia,hac->bhic", abs(q), abs(w)), abs(k)), dim + k.shape[-1] + 1
    if kind == "metric":
        project = [np.einsum("bhic,hrc->bhir", x, y) for x, y in ((q, w), (k, w), (abs(q), abs(w)), (abs(k), abs(w)))]
        return dot(project[0], project[1]), dot(project[2], project[3]), 2 * dim + w.shape[1] + 2
    weights = w[:, 0][:, None, None]  # additive
    bias = w[:, 1] if w.shape[1] == 2 else np.zeros_like(w[:, 0])
    x = (weights * np.tanh(q[:, :, :, None] + k[:, :, None] + bias[:, None, None])).sum(-1)
    more = (abs(q) + abs(bias)[:, None])[:, :, :, None] / (dim + 18) if w.shape[1] == 2 else np.zeros_like(q)[:, :, :, None]
    return x, np.broadcast_to((abs(weights) * (1 + more)).sum(-1), x.shape), dim + 16


def scores(q: Real, k: Real, options: dict[str, Any]) -> Scores:
    """Scores with every bias and mask."""
    get = options.get
    batch, heads, len_q, dim = q.shape
    len_kv = k.shape[2]
    wide = np.repeat(k, heads // k.shape[1] if k.shape[1] else 1, 1)
    p = positions(batch, len_q, len_kv, options)
    distance = p[:, :, None] - np.arange(len_kv)
    scale: Any = get("scale")
    default = 1 / np.sqrt(dim) if dim and (get("score") or "dot") == "dot" else 1.0
    scale = np.reshape(default if scale is None else np.asarray(scale, float), (-1, 1, 1)) / (get("temperature") or 1)
    with np.errstate(invalid="ignore", over="ignore"):
        x, size, roundings = products(q, wide, distance, options)
        x, size = scale * x, abs(scale) * size
    cap = get("softcap") or 0
    s = cap * np.tanh(x / cap) if cap else x
    added, additions = np.zeros_like(s), 0
    terms = []
    if get("bias") is not None:
        terms.append(np.asarray(options["bias"], float))
    if get("alibi_slopes") is not None:
        slopes = np.asarray(options["alibi_slopes"], float)
        terms.append(-(slopes.reshape(-1, heads, 1, 1)) * abs(distance)[:, None])
    if get("bias_table") is not None:
        table = np.atleast_2d(np.asarray(options["bias_table"], float))
        terms.append(np.moveaxis(table[:, buckets(distance, table.shape[1], options)], 0, 1))
    sees = visible(batch, heads, len_q, len_kv, options)
    with np.errstate(invalid="ignore"):
        for term in terms:
            s, added, additions = s + term, added + abs(term), additions + 1
    return Scores(np.where(sees, s, -np.inf), x, size, np.where(sees, added, 0), additions, roundings)


@dataclass
class Forward:
    """The results of attention, and its weights."""

    o: Real
    lse: Real
    weights: Real
    keep: Real
    values: Real  #: [batch, heads, len_q or 1, len_kv, dim_v]: with relative values
    sizes: Real  #: the same over absolute terms
    scores: Scores


def forward(q: Any, k: Any, v: Any, options: dict[str, Any]) -> Forward:
    """Attention by definition."""
    q, k, v = (np.asarray(x, float) for x in (q, k, v))
    batch, heads, len_q, _ = q.shape
    len_kv = k.shape[2]
    found = scores(q, k, options)
    s, sees = found.s, found.s != -np.inf
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        normaliser = (options.get("normaliser") or "softmax").replace("_", "-")
        if normaliser in ("softmax", "softmax-one"):
            sink = np.zeros(heads) if normaliser == "softmax-one" else options.get("sink")
            extra = np.full((1, heads, 1, 1), -np.inf) if sink is None else np.reshape(np.asarray(sink, float), (1, heads, 1, 1))
            top = np.maximum(s.max(-1, keepdims=True, initial=-np.inf), extra)
            top = np.where(np.isfinite(top), top, 0)
            lse = top + np.log(np.exp(s - top).sum(-1, keepdims=True) + np.exp(extra - top))
            weights = np.where(sees, np.exp(s - np.where(np.isfinite(lse), lse, 0)), 0)
        elif normaliser == "sigmoid":
            weights = np.where(sees, 1 / (1 + np.exp(-s - (options.get("shift") or 0))), 0)
            lse = np.where(sees.any(-1, keepdims=True), 0.0, -np.inf)
        else:
            count = sees.sum(-1, keepdims=True)
            weights = np.where(sees, np.maximum(s, 0) / np.maximum(count, 1), 0)
            lse = np.log(count)
    if options.get("empty") == "uniform":
        weights = np.where(sees.any(-1, keepdims=True), weights, 1 / max(len_kv, 1))
    rows = np.arange(len_q)[None, :, None] < lengths(options.get("lengths_q"), batch, len_q)[:, None, None]  # others are padding
    weights, lse = np.where(rows[:, None], weights, 0), np.where(rows[:, None], lse, -np.inf)
    keep = kept(batch, heads, len_q, len_kv, options)
    values = np.repeat(v, heads // v.shape[1] if v.shape[1] else 1, 1)[:, :, None]
    sizes = abs(values)
    if options.get("relative_values") is not None:
        distance = positions(batch, len_q, len_kv, options)[:, :, None] - np.arange(len_kv)
        more = by_distance(options["relative_values"], distance, options)
        values, sizes = values + more, sizes + abs(more)
    used = (weights * keep)[..., None] != 0  # a key that is not seen has no effect, whatever its value
    o = (np.where(used, values, 0) * (weights * keep)[..., None]).sum(-2)
    return Forward(o, lse[..., 0], weights, keep, values, sizes, found)
