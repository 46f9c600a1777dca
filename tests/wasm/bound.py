# SPDX-License-Identifier: MIT
"""Attention by definition in extended precision, and the bound of docs/numerics.md for its scores, weights and outputs: a second
statement of both, beside ref/ and testing/bound, for results that come from JavaScript."""
import math

import numpy as np

from suites import wide

WIDE = np.longdouble
SMALLEST = {"f32": 2.0**-149, "f64": 2.0**-1074} # eta
UNIT = {"f32": 2.0**-24, "f64": 2.0**-53, "f16": 2.0**-11, "bf16": 2.0**-8} # u
LEAST_NORMAL = {"f32": 2.0**-126, "f64": 2.0**-1022, "f16": 2.0**-14, "bf16": 2.0**-126}
BLOCK, SHARE = 256, 5.5 # keys of a block; how far a score may be above the maximum


def gamma(n, u):
    return n * u / (1 - n * u)


def four(array):
    array = wide(array)
    return array.reshape((1,) * (4 - array.ndim) + array.shape)


def exact(case, compute, storage):
    """o, lse, weights, and the largest error of each that the library may make: {name: (numbers, bound)}."""
    tensors, options = case["tensors"], case["options"]
    u, eta = UNIT[compute], SMALLEST[compute]
    q, k, v = (four(tensors[name]).astype(WIDE) for name in "qkv")
    batch, heads, len_q, dim = q.shape
    group, len_kv = heads // k.shape[1], k.shape[2]
    k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    scale = WIDE(options.get("scale", 1 / math.sqrt(dim))) / WIDE(options.get("temperature", 1))
    if "scale" in tensors:
        scale = wide(tensors["scale"]).astype(WIDE).reshape(1, heads, 1, 1)
    dot, size = q @ k.swapaxes(2, 3), abs(q) @ abs(k).swapaxes(2, 3)
    score, d = scale * dot, abs(scale) * size
    # (One more rounding than the page has, for the division by the temperature.)
    error = gamma(dim + 3, u) * d + eta * (abs(k).sum(3)[:, :, None, :] + size + dim)
    cap = options.get("softcap", 0)
    if cap:
        score = cap * np.tanh(score / cap)
        error = error + 16 * u * np.minimum(d, cap)
    added, steps = np.zeros_like(score), 0
    rows, columns = np.arange(len_q)[:, None], np.arange(len_kv)[None, :]
    lengths_q = wide(tensors["lengths_q"]) if "lengths_q" in tensors else np.full(batch, len_q)
    lengths_kv = wide(tensors["lengths_kv"]) if "lengths_kv" in tensors else np.full(batch, len_kv)
    aligned = options["causal"] if "causal" in options else options.get("align", "bottom-right")
    offset = (lengths_kv - lengths_q if aligned == "bottom-right" else np.zeros(batch, int)).reshape(batch, 1, 1, 1)
    at = rows + offset
    if "bias" in tensors:
        bias = four(tensors["bias"]).astype(WIDE)
        added, steps = added + bias, steps + 2
    if "alibi_slopes" in tensors:
        slopes = wide(tensors["alibi_slopes"]).astype(WIDE).reshape(-1, heads, 1, 1)
        added, steps = added - slopes * abs(at - columns), steps + 1
    seen = np.broadcast_to((columns < lengths_kv.reshape(batch, 1, 1, 1)) & (rows < lengths_q.reshape(batch, 1, 1, 1)), score.shape)
    if "causal" in options:
        seen = seen & (columns <= at)
    if "window" in options:
        left, right = options["window"]
        seen = seen & ((left < 0) | (columns >= at - left)) & ((right < 0) | (columns <= at + right))
    if "mask" in tensors:
        seen = seen & four(tensors["mask"])
    seen = seen & (added > -math.inf)
    finite = np.where(seen, added, 0)
    score, error, d = (np.where(seen, x, 0) for x in (score, error, d))
    score = score + finite
    error = error + steps * u * (abs(score) + abs(finite) * 2 + d + error) # biases are rounded too
    sink = wide(tensors["sink"]).astype(WIDE).reshape(1, heads, 1, 1) if "sink" in tensors else np.full((1, heads, 1, 1), -math.inf, WIDE)
    shown = np.where(seen, score, -math.inf)
    most = np.maximum(shown.max(3, keepdims=True, initial=-math.inf), sink)
    base = np.where(np.isfinite(most), most, 0)
    parts = np.where(seen, np.exp(shown - base), 0)
    divisor = parts.sum(3, keepdims=True) + np.exp(sink - base)
    empty = ~(divisor > 0)
    weights = parts / np.where(empty, 1, divisor)
    with np.errstate(divide="ignore"):
        lse = np.where(empty, -math.inf, base + np.log(np.where(empty, 1, divisor)))

    # The relative error of a weight, of their sum, and of both.
    error = np.where(seen, error, 0)
    away = np.where(seen, base - shown, 0) + 2 * error.max(3, keepdims=True, initial=0)
    blocks = -(-len_kv // BLOCK)
    own = error + u * (4 + 1.1 * np.maximum(SHARE, away))
    eps = own + (u * (4 * np.minimum(blocks - 1, away / SHARE + 1 + blocks / 4) + 1.1 * (away + SHARE)) if blocks > 1 else 0)
    eps = np.where(seen, eps, 0)
    chain = gamma(len_kv + blocks + 8, u) # sums over keys, and their division
    denominator = (weights * np.exp(-eps)).sum(3, keepdims=True) + np.where(empty, 1, np.exp(sink - base) / np.where(empty, 1, divisor)) * (1 - 8 * u)
    of_sum = eps.max(3, keepdims=True, initial=0) + 8 * u * np.isfinite(sink) + chain
    tiny = np.where(seen, 2 * LEAST_NORMAL[compute] * len_kv, 0)
    o = weights @ v
    spread = (weights * (np.exp(eps) - 1)) @ abs(v) / denominator + abs(o) * (np.exp(of_sum) - 1)
    of_o = spread + chain * (weights @ abs(v)) * 2 + (tiny @ abs(v))
    of_weights = np.where(seen, weights * (np.exp(eps + of_sum + 3 * u) - 1) + tiny, 0)
    of_lse = of_sum + 4 * u * (1 + abs(np.where(empty, 0, lse)) + abs(base))
    rounds = 0 if storage == compute else UNIT[storage]
    of_o = of_o * (1 + rounds) + rounds * np.maximum(abs(o), LEAST_NORMAL[storage])
    return {"o": (o, of_o), "lse": (lse[..., 0], of_lse[..., 0]), "weights": (weights, of_weights)}
