# SPDX-License-Identifier: MIT
"""Metrics and bilinear forms, B(u, v) = sum_ab u_a g_ab v_b: when g is a metric, what it does to vectors, and attention whose scores
are q^T g k.  (The header attn/bilinear.h.)

Everything but `bilinear_attention` computes in double and returns arrays of double, of the library of the first argument.  A matrix g
is [dim, dim]; vectors are [..., dim] with any axes in front, which must agree.  Arguments may be of any real type; an array of
another shape is a ValueError, one of another kind a TypeError, and both name the argument.
"""
from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np

from . import _abi, _native
from ._arguments import Shapes, integer, one, real, text
from ._arrays import like, pointer
from ._attention import attention
from ._problem import Common

__all__ = [
    "MetricProperties", "bilinear_attention", "bilinear_form", "bilinear_form_backward", "bilinear_form_batch",
    "bilinear_form_batch_backward", "index_backward", "index_lower", "index_raise", "inner_product", "metric_check", "metric_diagonal",
    "metric_inverse", "metric_inverse_backward", "metric_learned", "metric_learned_backward", "metric_scaled", "quadratic_form",
]


def metric_scaled(dim: int, *, scale: float | None = None) -> Any:
    """g = scale I, [dim, dim]; scale None: 1/sqrt(dim), with which B is the scaled dot product.  Scale 1 is the Euclidean metric.

    Raises ValueError for a dim below 1, and a scale that is 0 or not finite.
    """
    size = integer(dim, "dim", 1)
    factor = 0.0 if scale is None else real(scale, "scale")
    if scale is not None and factor == 0:
        raise ValueError("scale is 0; it must be another number, or None for 1/sqrt(dim)")
    g = np.empty((size, size))
    _native.call("attn_metric_scaled", size, factor, pointer(g))
    return g


def metric_diagonal(diagonal: Any) -> Any:
    """g = diag(diagonal), [dim, dim], for diagonal [dim]."""
    shapes = Shapes()
    numbers = shapes.doubles(diagonal, "diagonal", "dim")
    g = np.empty((shapes["dim"], shapes["dim"]))
    _native.call("attn_metric_diagonal", shapes["dim"], pointer(numbers), pointer(g))
    return like(g, diagonal)


def metric_learned(w: Any) -> Any:
    """g = w^T w, [dim, dim], for w [rows, dim]: positive semidefinite, and definite if w has rank dim.

    (In an attention, the score "metric" takes w itself and never forms g.)
    """
    shapes = Shapes()
    matrix = shapes.doubles(w, "w", "rows dim")
    g = np.empty((shapes["dim"], shapes["dim"]))
    _native.call("attn_metric_learned", shapes["rows"], shapes["dim"], pointer(matrix), pointer(g))
    return like(g, w)


def metric_learned_backward(w: Any, grad_g: Any) -> Any:
    """The gradient of metric_learned: grad_w = w (grad_g + grad_g^T), [rows, dim]."""
    shapes = Shapes()
    matrix, grad = shapes.doubles(w, "w", "rows dim"), shapes.doubles(grad_g, "grad_g", "dim dim")
    grad_w = np.empty_like(matrix)
    _native.call("attn_metric_learned_backward", shapes["rows"], shapes["dim"], pointer(matrix), pointer(grad), pointer(grad_w))
    return like(grad_w, w)


def metric_inverse(g: Any) -> Any:
    """g^-1, [dim, dim], by elimination with partial pivoting.

    Raises ValueError for a matrix that is singular, exactly or within rounding (|g| |g^-1| >= 2^52 / dim in the norm of largest
    absolute column sum), or holds a number that is not finite.
    """
    shapes = Shapes()
    matrix = shapes.doubles(g, "g", "dim dim")
    inverse = np.empty_like(matrix)
    _native.call("attn_metric_inverse", shapes["dim"], pointer(matrix), pointer(inverse))
    return like(inverse, g)


def metric_inverse_backward(inverse: Any, grad_inverse: Any) -> Any:
    """The gradient of metric_inverse, from its result: grad_g = -inverse^T grad_inverse inverse^T."""
    shapes = Shapes()
    matrix, grad = shapes.doubles(inverse, "inverse", "dim dim"), shapes.doubles(grad_inverse, "grad_inverse", "dim dim")
    grad_g = np.empty_like(matrix)
    _native.call("attn_metric_inverse_backward", shapes["dim"], pointer(matrix), pointer(grad), pointer(grad_g))
    return like(grad_g, inverse)


@dataclass(frozen=True)
class MetricProperties:
    """What metric_check found; true if g is a metric."""

    symmetric: bool  #: |g_ab - g_ba| <= tolerance max |g| for all a and b
    positive_definite: bool  #: min_eigenvalue > dim 2^-52 max(|min_eigenvalue|, |max_eigenvalue|): above 0 by more than rounding
    valid: bool  #: both: g is a metric
    min_eigenvalue: float  #: of (g + g^T) / 2, which decides whether v^T g v > 0
    max_eigenvalue: float

    def __bool__(self) -> bool:
        return self.valid


def metric_check(g: Any, *, tolerance: float = 1e-6) -> MetricProperties:
    """Is g a metric?  A semidefinite one is not: it has distance 0 between different vectors.

    Raises ValueError for a tolerance that is not above 0, and for numbers that are not finite.
    """
    shapes = Shapes()
    matrix = shapes.doubles(g, "g", "dim dim")
    limit = real(tolerance, "tolerance")
    if limit == 0:
        raise ValueError("tolerance is 0; it must be above 0")
    found = _native.struct(_abi.attn_metric_properties)
    _native.call("attn_metric_check", shapes["dim"], limit, pointer(matrix), ctypes.byref(found))
    return MetricProperties(
        bool(found.symmetric), bool(found.positive_definite), bool(found.valid), found.min_eigenvalue, found.max_eigenvalue
    )


def _index(name: str, v: Any, g: Any, matrix: str) -> Any:
    shapes = Shapes()
    vectors, metric = shapes.doubles(v, "v", "... dim"), shapes.doubles(g, matrix, "dim dim")
    moved = np.empty_like(vectors)
    _native.call(name, vectors.size // max(shapes["dim"], 1), shapes["dim"], pointer(vectors), pointer(metric), pointer(moved))
    return like(moved, v)


def index_lower(v: Any, g: Any) -> Any:
    """lowered_a = sum_b g_ab v_b, for each vector of v [..., dim]."""
    return _index("attn_index_lower", v, g, "g")


def index_raise(v: Any, inverse: Any) -> Any:
    """raised_a = sum_b inverse_ab v_b, with the inverse of g: undoes index_lower."""
    return _index("attn_index_raise", v, inverse, "inverse")


def index_backward(v: Any, g: Any, grad: Any) -> tuple[Any, Any]:
    """The gradient of index_lower and index_raise, from that of their result: (grad_v, grad_g) = (g^T grad, sum grad v^T)."""
    shapes = Shapes()
    vectors, metric = shapes.doubles(v, "v", "... dim"), shapes.doubles(g, "g", "dim dim")
    gradient = shapes.doubles(grad, "grad", "... dim")
    grad_v, grad_g = np.empty_like(vectors), np.empty_like(metric)
    _native.call(
        "attn_index_backward", vectors.size // max(shapes["dim"], 1), shapes["dim"], pointer(vectors), pointer(metric), pointer(gradient),
        pointer(grad_v), pointer(grad_g),
    )
    return like(grad_v, v), like(grad_g, v)


def bilinear_form(u: Any, v: Any, g: Any) -> Any:
    """form = B(u, v) for each pair of vectors: u and v [..., dim] give [...], a float for single vectors.

    Linear in u, in v and in g; B(u, v) = B(v, u) if g is symmetric.
    """
    shapes = Shapes()
    left, right = shapes.doubles(u, "u", "... dim"), shapes.doubles(v, "v", "... dim")
    metric = shapes.doubles(g, "g", "dim dim")
    form = np.empty(shapes.front)
    _native.call("attn_bilinear_form", form.size, shapes["dim"], pointer(left), pointer(right), pointer(metric), pointer(form))
    return one(form, u)


def bilinear_form_backward(u: Any, v: Any, g: Any, grad: Any) -> tuple[Any, Any, Any]:
    """The gradient of bilinear_form, from grad [...]:

        grad_u_i = grad_i g v_i          grad_v_i = grad_i g^T u_i          grad_g = sum_i grad_i u_i v_i^T
    """
    shapes = Shapes()
    left, right = shapes.doubles(u, "u", "... dim"), shapes.doubles(v, "v", "... dim")
    metric, gradient = shapes.doubles(g, "g", "dim dim"), shapes.doubles(grad, "grad", "...")
    grad_u, grad_v, grad_g = np.empty_like(left), np.empty_like(right), np.empty_like(metric)
    _native.call(
        "attn_bilinear_form_backward", gradient.size, shapes["dim"], pointer(left), pointer(right), pointer(metric), pointer(gradient),
        pointer(grad_u), pointer(grad_v), pointer(grad_g),
    )
    return like(grad_u, u), like(grad_v, u), like(grad_g, u)


def bilinear_form_batch(q: Any, k: Any, g: Any) -> Any:
    """scores[i, j] = B(q_i, k_j) for all pairs of q [len_q, dim] and k [len_kv, dim]: Q g K^T, [len_q, len_kv].  Raises MemoryError."""
    shapes = Shapes()
    queries, keys, metric = shapes.doubles(q, "q", "len_q dim"), shapes.doubles(k, "k", "len_kv dim"), shapes.doubles(g, "g", "dim dim")
    scores = np.empty((shapes["len_q"], shapes["len_kv"]))
    _native.call(
        "attn_bilinear_form_batch", *scores.shape, shapes["dim"], pointer(queries), pointer(keys), pointer(metric), pointer(scores)
    )
    return like(scores, q)


def bilinear_form_batch_backward(q: Any, k: Any, g: Any, grad: Any) -> tuple[Any, Any, Any]:
    """The gradient of bilinear_form_batch, from grad [len_q, len_kv]: grad_q = grad K g^T, grad_k = grad^T Q g, grad_g = Q^T grad K."""
    shapes = Shapes()
    queries, keys, metric = shapes.doubles(q, "q", "len_q dim"), shapes.doubles(k, "k", "len_kv dim"), shapes.doubles(g, "g", "dim dim")
    gradient = shapes.doubles(grad, "grad", "len_q len_kv")
    grad_q, grad_k, grad_g = np.empty_like(queries), np.empty_like(keys), np.empty_like(metric)
    _native.call(
        "attn_bilinear_form_batch_backward", *gradient.shape, shapes["dim"], pointer(queries), pointer(keys), pointer(metric),
        pointer(gradient), pointer(grad_q), pointer(grad_k), pointer(grad_g),
    )
    return like(grad_q, q), like(grad_k, q), like(grad_g, q)


def quadratic_form(v: Any, g: Any) -> Any:
    """form = B(v, v) for each vector: v [..., dim] gives [...], a float for a single one.

    Its gradient is grad_u + grad_v of bilinear_form_backward with u = v.
    """
    shapes = Shapes()
    vectors, metric = shapes.doubles(v, "v", "... dim"), shapes.doubles(g, "g", "dim dim")
    form = np.empty(shapes.front)
    _native.call("attn_quadratic_form", form.size, shapes["dim"], pointer(vectors), pointer(metric), pointer(form))
    return one(form, v)


def inner_product(u: Any, v: Any, *, metric: str = "scaled") -> Any:
    """u.v for metric "euclidean", u.v / sqrt(dim) for "scaled", for each pair: u and v [..., dim] give [...], a float for single ones.

    Raises ValueError for any other name.
    """
    shapes = Shapes()
    left, right = shapes.doubles(u, "u", "... dim"), shapes.doubles(v, "v", "... dim")
    form = np.empty(shapes.front)
    _native.call("attn_inner_product", form.size, shapes["dim"], pointer(left), pointer(right), text(metric, "metric"), pointer(form))
    return one(form, u)


def bilinear_attention(q: Any, k: Any, v: Any, g: Any, **options: Unpack[Common]) -> Any:
    """libattn.attention with s_ij = B(q_i, k_j) instead of the scaled dot product, g [dim, dim]: attention with score="general",
    score_matrix = g in double, and scale 1 unless it is given.

    q [batch, heads, len_q, dim], k [batch, heads_kv, len_kv, dim] and v [batch, heads_kv, len_kv, dim_v] as there; everything else that
    attention has (outputs, gradients, other options) is available there, with these two keywords: libattn.attention_backward returns the
    gradient of g as that of "score_matrix".  Raises what attention raises.
    """
    shapes = Shapes()
    metric = shapes.doubles(g, "g", "dim dim")
    more: Any = {"scale": 1.0, **{name: x for name, x in options.items() if x is not None}}
    return attention(q, k, v, score="general", score_matrix=metric, **more)
