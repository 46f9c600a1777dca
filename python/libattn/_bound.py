# SPDX-License-Identifier: MIT
"""How far a computed attention may be from the definition: the forward bounds of docs/numerics.md, step by step."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._definition import Forward

Real = NDArray[np.float64]


def gamma(n: Any, u: float) -> Any:
    """Bounds n successive roundings (Higham 2002, lemma 3.1)."""
    return n * u / (1 - n * u)


@dataclass
class Bound:
    """The largest error of each number, before its rounding to the storage type."""

    o: Real
    lse: Real
    weights: Real


def forward(found: Forward, q: Any, k: Any, options: dict[str, Any], double: bool, block_kv: int) -> Bound:
    """Of attention computed in f32 (or f64: `double`) in blocks of block_kv keys, against `found`, computed in double."""
    bound = _forward(found, q, k, options, double, block_kv)
    exact = _forward(found, q, k, options, True, max(np.shape(k)[2], 1))  # the definition rounds too
    return Bound(bound.o + exact.o, bound.lse + exact.lse, bound.weights + exact.weights)


def _forward(found: Forward, q: Any, k: Any, options: dict[str, Any], double: bool, block_kv: int) -> Bound:
    u, eta, normal = (2.0**-53, 2.0**-1074, 2.0**-1022) if double else (2.0**-24, 2.0**-149, 2.0**-126)
    q, k = (np.asarray(x, float) for x in (q, k))
    heads, dim, group = q.shape[1], q.shape[3], q.shape[1] // max(k.shape[1], 1)
    k = np.repeat(k, group, 1)
    s, sees = found.scores.s, np.isfinite(found.scores.s)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        # Scores.  In bf16, products may flush what is below the smallest normal number.
        sum_q, sum_k = abs(q).sum(-1)[..., None], abs(k).sum(-1)[:, :, None]
        lost = (eta + (0 if double else normal)) * (sum_k + sum_q + found.scores.size + dim)
        cap = options.get("softcap") or 0
        e = gamma(found.scores.roundings + 2, u) * found.scores.size + lost
        e = e + (16 * u * np.minimum(found.scores.size, cap) if cap else 0)
        added = found.scores.additions + (2 if options.get("temperature") else 0)
        e = e + added * u * (abs(np.where(sees, s, 0)) + found.scores.added + e)
        e = np.where(sees, e, 0)
        normaliser = options.get("normaliser") or "softmax"
        if normaliser in ("sigmoid", "relu"):
            return _elementwise(found, options, e, u, normal, block_kv)
        # Weights.
        seen = sees.sum(-1, keepdims=True)
        blocks = -(-k.shape[2] // block_kv) if k.shape[2] else 1
        sink = options.get("sink")
        top = s.max(-1, keepdims=True, initial=-np.inf)
        if sink is not None:
            top = np.maximum(top, np.reshape(np.asarray(sink, float), (1, heads, 1, 1)))
        if options.get("normaliser") in ("softmax-one", "softmax_one"):
            top = np.maximum(top, 0)
        far = np.where(sees, np.where(np.isfinite(top), top, 0) - s, 0) + 2 * e.max(-1, keepdims=True, initial=0)
        own = e + u * (4 + 1.1 * np.maximum(5.5, far))
        moves = np.minimum(blocks - 1, far / 5.5 + 1 + blocks / 4)
        eps = own + (u * (4 * moves + 1.1 * (far + 5.5)) if blocks > 1 else 0)
        own, eps = np.where(sees, own, 0), np.where(sees, eps, 0)
        w = found.weights
        rest = np.maximum(1 - w.sum(-1, keepdims=True), 0)  # of the sink, whose score is exact
        high, low = (w * np.exp(eps)).sum(-1, keepdims=True) + rest, (w * np.exp(-eps)).sum(-1, keepdims=True) + rest
        # Output: as a mean of the values that are kept, each times its factor of dropout.
        n = np.minimum(block_kv, seen) + 2 * blocks
        n = n + (np.minimum(block_kv, seen) + 256 + (block_kv // 128 + 3) * blocks if options.get("relative_values") is not None else 0)
        used = w[..., None] != 0
        value, size = (np.where(used, x, 0) * found.keep[..., None] for x in (found.values, found.sizes))
        off = abs(np.where(used, value - found.o[:, :, :, None], 0))
        most = size.max(-2, initial=0)
        o = (w[..., None] * np.expm1(eps)[..., None] * off).sum(-2) + rest * np.expm1(eps.max(-1, keepdims=True, initial=0)) * abs(found.o)
        o = o / low
        sums = (2 * gamma(n, u) + gamma(2, u)) * (1 + 2 * gamma(n, u))
        o = o + np.minimum(sums * ((w * np.exp(eps))[..., None] * size).sum(-2) / low, most)
        o = o + 2 * (seen + 2 * blocks + 2) * normal * most + (2 * u * abs(found.o) if options.get("dropout") else 0)
        even = gamma(k.shape[2] + 3, u) * size.sum(-2) / max(k.shape[2], 1)  # of a row that sees nothing: 0, or a mean
        o = np.where(seen > 0, o, even)
        lse = np.maximum(np.log(high), -np.log(low)) + 2 * gamma(n, u)
        lse = lse + u * (4 * np.maximum(1, np.log(np.maximum(seen, 1)) + 5.5) + abs(np.where(np.isfinite(found.lse), found.lse, 0)[..., None]))
        spread = np.maximum(w * np.exp(own) / low - w, w - w * np.exp(-own) / high)
        spread = spread + (gamma(n, u) + gamma(2, u)) * w * np.exp(own) / low + 4 * normal * sees
        return Bound(o, np.where(seen > 0, lse, u)[..., 0], np.where(sees, spread, 2 * u * w))


def _elementwise(found: Forward, options: dict[str, Any], e: Real, u: float, normal: float, block_kv: int) -> Bound:
    """Of weights that are functions of their own scores: sigmoid and ReLU."""
    s, sees = found.scores.s, np.isfinite(found.scores.s)
    seen = sees.sum(-1, keepdims=True)
    shift = options.get("shift") or 0
    if options.get("normaliser") == "sigmoid":
        x = abs(np.where(sees, s + shift, 0))
        spread = found.weights * np.expm1(e + u * (x + abs(shift) + 7 + 1.1 * x))
    else:
        spread = e / np.maximum(seen, 1) + 3 * u * found.weights
    spread = np.where(sees, spread + 4 * normal, 0)
    n = np.minimum(block_kv, seen) + 2 * -(-s.shape[-1] // block_kv)
    size = np.where(found.weights[..., None] + spread[..., None] > 0, found.sizes, 0) * found.keep[..., None]
    o = (spread[..., None] * size).sum(-2)
    o = o + (gamma(n, u) + gamma(2, u)) * (1 + gamma(n, u)) * ((found.weights + spread)[..., None] * size).sum(-2)
    return Bound(o, np.where(np.isfinite(found.lse), 4 * u * (1 + abs(found.lse)), 0), spread)


def storage(result: Any) -> Real:
    """What rounding to 16 bits adds: half a unit in the last place, and half of the smallest number."""
    kind = str(result.dtype)
    if kind not in ("float16", "bfloat16"):
        return np.zeros(result.shape)
    half, least = (2.0**-11, 2.0**-25) if kind == "float16" else (2.0**-8, 2.0**-134)
    return np.asarray(abs(np.asarray(result, float)) * half * (1 + 2 * half) + least, float)
