# SPDX-License-Identifier: MIT
"""Derivatives of attention by their definition (attn_problem of attn.h), in double, and their bounds (docs/numerics.md).

A bound is the formula of the result over absolute values, each term times the relative error of its factors, so each formula is
written once, for numbers and for sizes: a difference of numbers is a sum of sizes.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _bound, _definition

Real = NDArray[np.float64]


@dataclass
class Terms:
    """The factors of all formulas, as numbers or as sizes; keys and values are repeated for the heads of a group."""

    q: Real
    k: Real
    v: Real
    weights: Real  #: as they are, or times the error of a term
    plain: Real  #: as they are, or the largest that they may come out
    keep: Real
    scale: Real
    raw: Real  #: x over the scale
    x: Real  #: scale * q.k, before the softcap
    slope: Real  #: f'(x)
    curve: Real  #: f''(x)
    distance: Real
    sink: Real  #: the weight of the sink, or its error
    plain_sink: Real
    lost: Real  #: of a product with o, from storing o: sum |grad_o| * |lost of o|
    minus: float  #: -1, or 1 for sizes
    group: int
    seen: NDArray[np.bool_]


def terms(q: Any, k: Any, v: Any, options: dict[str, Any]) -> Terms:
    """The factors as numbers."""
    q, k, v = (np.asarray(x, float) for x in (q, k, v))
    found = _definition.forward(q, k, v, options)
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    given: Any = options.get("scale")
    scale = np.reshape((1 / np.sqrt(q.shape[-1]) if given is None else np.asarray(given, float)), (-1, 1, 1))
    scale = scale / (options.get("temperature") or 1)
    cap = options.get("softcap") or 0
    seen = found.scores.s != -np.inf
    x = np.where(seen, found.scores.x, 0)
    tanh = np.tanh(x / cap) if cap else np.zeros_like(x)
    position = _definition.positions(q.shape[0], q.shape[2], k.shape[2], options)
    distance = np.broadcast_to(position[:, None, :, None] - np.arange(k.shape[2]), x.shape)
    sink = options.get("sink")
    lse = np.where(np.isfinite(found.lse), found.lse, np.inf)
    with_sink = np.zeros_like(lse) if sink is None else np.exp(np.reshape(np.asarray(sink, float), (1, -1, 1)) - lse)
    raw = np.einsum("bhic,bhjc->bhij", q, k) / (options.get("temperature") or 1)
    return Terms(
        q, k, v, found.weights, found.weights, found.keep, scale, raw, x, 1 - tanh**2, -2 / (cap or 1) * tanh * (1 - tanh**2),
        abs(distance), with_sink, with_sink, np.zeros_like(lse), -1.0, group, seen,
    )


def sizes(t: Terms, found: _definition.Forward, options: dict[str, Any], double: bool, factors: int, lost_o: Real, grad_o: Any) -> Terms:
    """The factors as sizes: `factors` of each term have errors besides those of the caller's numbers."""
    u, normal = (2.0**-53, 2.0**-1022) if double else (2.0**-24, 2.0**-126)
    cap = options.get("softcap") or 0
    e = (t.q.shape[-1] + 2) * (1 + 2 / cap if cap else 1) * found.scores.size + found.scores.added
    most = np.where(t.seen, e, 0).max(-1, keepdims=True, initial=0)
    chains = t.v.shape[-1] + t.k.shape[2] + t.group * t.q.shape[2]
    lse = np.where(np.isfinite(found.lse), found.lse, 0)[..., None]
    error = (u + 2.0**-53) * (8 + chains + most + abs(lse))
    with np.errstate(divide="ignore"):
        high = np.where(t.weights > 0, np.exp(np.minimum(np.log(t.weights) + error, 0)), 0)
        high_sink = np.where(t.sink > 0, np.exp(np.minimum(np.log(t.sink) + error[..., 0], 0)), 0)
    moved = np.where(t.weights > 0, np.minimum(np.expm1(factors * error) * t.weights, 3 * high) + normal, 0)
    moved_sink = np.where(t.sink > 0, np.minimum(np.expm1(factors * error[..., 0]) * t.sink, 3 * high_sink) + normal, 0)
    lost = (lost_o * abs(np.asarray(grad_o, float))).sum(-1) if grad_o is not None else np.zeros_like(t.lost)
    size = np.einsum("bhic,bhjc->bhij", abs(t.q), abs(t.k)) / (options.get("temperature") or 1)
    return Terms(
        abs(t.q), abs(t.k), abs(t.v), moved, high, t.keep, abs(t.scale), size, found.scores.size, np.ones_like(t.slope),
        np.full_like(t.curve, 2 / cap if cap else 0), t.distance, moved_sink, high_sink, lost, 1.0, t.group, t.seen,
    )


def grouped(x: Real, group: int) -> Real:
    """The sum over the query heads of each group."""
    return x.reshape(x.shape[0], x.shape[1] // group, group, *x.shape[2:]).sum(2)


def numbers(t: Terms, x: Any, like: Real) -> Real:
    """An optional array as numbers or sizes; None is 0."""
    x = np.zeros_like(like) if x is None else np.asarray(x, float)
    return abs(x) if t.minus > 0 else x


def backward(t: Terms, grad_o: Any, grad_lse: Any) -> dict[str, Real]:
    """Gradients by the names of their arrays; "bias" is that of every pair."""
    g_o, g_lse = numbers(t, grad_o, t.v), numbers(t, grad_lse, t.lost)[..., None]
    g = np.where(t.seen, t.keep * np.einsum("bhic,bhjc->bhij", g_o, t.v), 0)
    delta = (t.plain * g).sum(-1, keepdims=True) + t.minus * g_lse
    ds = np.where(t.seen, t.weights * (g + t.minus * delta) + t.plain * t.lost[..., None], 0)
    dx = ds * t.slope
    return {
        "q": (t.scale * dx) @ t.k,
        "k": grouped((t.scale * dx).swapaxes(-1, -2) @ t.q, t.group),
        "v": grouped((t.keep * t.weights).swapaxes(-1, -2) @ g_o, t.group),
        "bias": ds,
        "scale": (dx * t.raw).sum((0, 2, 3)),
        "alibi_slopes": t.minus * (ds * t.distance).sum((2, 3)),
        "sink": (t.minus * t.sink * delta[..., 0] + t.plain_sink * t.lost).sum((0, 2)),
    }


def tangent(t: Terms, tan_q: Any, tan_k: Any, tan_bias: Any) -> tuple[Real, Real, Real]:
    """Of scores: before softcap and bias, after them, and their means by the weights."""
    q, k = numbers(t, tan_q, t.q), np.repeat(numbers(t, tan_k, t.k[:, :: t.group]), t.group, 1)
    before = t.scale * (np.einsum("bhic,bhjc->bhij", q, t.k) + np.einsum("bhic,bhjc->bhij", t.q, k))
    after = np.where(t.seen, t.slope * before + numbers(t, tan_bias, before), 0)
    return before, after, (t.plain * after).sum(-1, keepdims=True)


def jvp(t: Terms, tan_q: Any = None, tan_k: Any = None, tan_v: Any = None, tan_bias: Any = None) -> dict[str, Real]:
    """Tangents of o and lse."""
    _, s, mean = tangent(t, tan_q, tan_k, tan_bias)
    v = np.repeat(numbers(t, tan_v, t.v[:, :: t.group]), t.group, 1)
    o = (t.keep * t.weights * np.where(t.seen, s + t.minus * mean, 0)) @ t.v + (t.keep * t.weights) @ v
    return {"o": o, "lse": (t.weights * s).sum(-1)}


def double_backward(
    t: Terms, grad_o: Any, grad_lse: Any, tan_q: Any = None, tan_k: Any = None, tan_v: Any = None, tan_bias: Any = None
) -> dict[str, Real]:
    """Gradients of the gradient by the names of their arrays."""
    before, s, mean = tangent(t, tan_q, tan_k, tan_bias)
    g_o, g_lse = numbers(t, grad_o, t.v), numbers(t, grad_lse, t.lost)[..., None]
    k, q = np.repeat(numbers(t, tan_k, t.k[:, :: t.group]), t.group, 1), numbers(t, tan_q, t.q)
    v = np.repeat(numbers(t, tan_v, t.v[:, :: t.group]), t.group, 1)
    g = np.where(t.seen, t.keep * np.einsum("bhic,bhjc->bhij", g_o, t.v), 0)
    g_v = np.where(t.seen, t.keep * np.einsum("bhic,bhjc->bhij", g_o, v), 0)
    away = np.where(t.seen, s + t.minus * mean, 0)
    delta = (t.plain * g).sum(-1, keepdims=True) + t.minus * g_lse
    kappa = (t.plain * (away * g + g_v)).sum(-1, keepdims=True)
    lost = t.plain * t.lost[..., None]
    ds = np.where(t.seen, t.weights * (g + t.minus * delta) + lost, 0)
    # away * ds has one factor with an error: in sizes `weights` is that error already.
    r = np.where(t.seen, away * ds + t.weights * (g_v + t.minus * kappa) + lost * mean, 0)
    dx = r * t.slope + ds * t.curve * before
    slope = ds * t.slope
    return {
        "q": t.scale * (dx @ t.k + slope @ k),
        "k": grouped((t.scale * dx).swapaxes(-1, -2) @ t.q + (t.scale * slope).swapaxes(-1, -2) @ q, t.group),
        "v": grouped((t.keep * t.weights * away).swapaxes(-1, -2) @ g_o, t.group),
        "bias": r,
    }


def reduced(x: Real, shape: tuple[int, ...]) -> Real:
    """The sum over the axes on which an array of that shape broadcasts."""
    full = (1,) * (x.ndim - len(shape)) + tuple(shape)
    axes = tuple(axis for axis in range(x.ndim) if full[axis] == 1)
    return x.sum(axes, keepdims=True).reshape(shape)


def lost_by_storing(o: Any) -> Real:
    return _bound.storage(o)
