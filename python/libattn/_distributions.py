# SPDX-License-Identifier: MIT
"""The softmax family and statistics of weights: the first half of libattn.analysis."""
from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _abi, _native
from ._arguments import Shapes, each, given, integer, keeps, one, real, result
from ._arrays import Array, like, pointer


@dataclass(frozen=True)
class Gibbs:
    """Statistics of weights_j = exp(s_j / T) / Z, floats, or arrays [...] for scores [..., n].  Energies are -s_j."""

    log_partition: Any  #: log Z = log sum_j exp(s_j / T); Z itself overflows at scores above 709 T
    free_energy: Any  #: F = -T log Z = mean_energy - T entropy
    mean_energy: Any  #: -sum_j weights_j s_j
    entropy: Any  #: H = -sum_j weights_j log weights_j, within 0 .. log n
    effective_states: Any  #: exp H
    heat_capacity: Any  #: sum_j weights_j (s_j - mean)^2 / T^2


FIELDS = tuple(Gibbs.__dataclass_fields__)


def _rows(scores: Any, keep: Any) -> tuple[Array, Array, Array | None]:
    """Scores as doubles, the same as rows, and the rows of the mask."""
    numbers = Shapes().doubles(scores, "scores", "... n")
    mask = keeps(keep, "keep", numbers.shape)
    return numbers, each(numbers, 1), None if mask is None else each(mask, 1)


def softmax(scores: Any, *, temperature: float = 1.0, keep: Any = None, return_gibbs: bool = False, out: Any = None) -> Any:
    """The Gibbs distribution of scores [..., n] at a temperature above 0, along the last axis:

        weights_j = exp(s_j / T) / sum_k exp(s_k / T)

    Adding a constant to all scores changes neither weights nor entropy; T = 1 is the softmax; entropy grows with T from that of the
    uniform distribution over the largest scores to log n.

     keep          booleans that broadcast to the scores: which of them count; if none of a row does, its weights are 0
     return_gibbs  also return the statistics: (weights, Gibbs)
     out           where the weights go: an array of double of the scores' shape, which may be the scores

    Raises ValueError for a temperature that is not above 0 and finite, and for a mask that does not broadcast.
    """
    numbers, rows, masks = _rows(scores, keep)
    temperature = real(temperature, "temperature")
    weights = result(out, numbers.shape, np.float64)
    found = np.empty((len(FIELDS), *numbers.shape[:-1])) if return_gibbs else None
    statistics = found.reshape(len(FIELDS), len(rows)) if found is not None else None
    gibbs = _native.struct(_abi.attn_gibbs)
    for i, (row, to) in enumerate(zip(rows, each(weights, 1), strict=True)):
        _native.call(
            "attn_softmax", row.size, temperature, pointer(row), None if masks is None else pointer(masks[i]), pointer(to), ctypes.byref(gibbs)
        )
        if statistics is not None:
            statistics[:, i] = [getattr(gibbs, field) for field in FIELDS]
    if len(rows) == 0:
        _check_temperature(temperature)
    returned = given(out, weights, scores)
    return returned if found is None else (returned, Gibbs(*(one(part, scores) for part in found)))


def _check_temperature(temperature: float) -> None:
    """Raises what softmax raises for a temperature, where there are no rows to pass it with."""
    zero = np.zeros(1)
    _native.call("attn_softmax", 1, temperature, pointer(zero), None, None, None)


def log_softmax(scores: Any, *, temperature: float = 1.0, keep: Any = None, out: Any = None) -> Any:
    """log weights_j = s_j / T - log Z, along the last axis; -infinity for scores that are not kept.  Arguments as in softmax."""
    numbers, rows, masks = _rows(scores, keep)
    temperature = real(temperature, "temperature")
    logs = result(out, numbers.shape, np.float64)
    for i, (row, to) in enumerate(zip(rows, each(logs, 1), strict=True)):
        _native.call("attn_log_softmax", row.size, temperature, pointer(row), None if masks is None else pointer(masks[i]), pointer(to))
    if len(rows) == 0:
        _check_temperature(temperature)
    return given(out, logs, scores)


def temperature_sweep(scores: Any, temperatures: Any, *, return_entropy: bool = False) -> Any:
    """Row t of weights [count, n] is the softmax of scores [n] at temperatures[t]; or (weights, entropy [count]).

    Raises ValueError for a temperature that is not above 0 and finite.
    """
    shapes = Shapes()
    numbers, heats = shapes.doubles(scores, "scores", "n"), shapes.doubles(temperatures, "temperatures", "count")
    weights, entropies = np.empty((heats.size, numbers.size)), np.empty(heats.size)
    _native.call(
        "attn_temperature_sweep", numbers.size, heats.size, pointer(numbers), pointer(heats), pointer(weights), pointer(entropies)
    )
    return (like(weights, scores), like(entropies, scores)) if return_entropy else like(weights, scores)


def _each(function: str, p: Any, name: str) -> Any:
    """One number of each row."""
    numbers = Shapes().doubles(p, name, "... n")
    found = [_native.call(function, numbers.shape[-1], pointer(row)) for row in each(numbers, 1)]
    return one(np.reshape(np.array(found, float), numbers.shape[:-1]), p)


def entropy(p: Any) -> Any:
    """-sum_j p_j log p_j with 0 log 0 = 0, of each distribution of p [..., n]: [...], a float for a single one; 0 if n is 0."""
    return _each("attn_entropy", p, "p")


def max_entropy(n: int) -> float:
    """log n; 0 for n <= 1."""
    return _native.call("attn_max_entropy", integer(n, "n"))


def normalised_entropy(p: Any) -> Any:
    """entropy(p) / log n, within 0 .. 1; 0 for n <= 1 (some libraries give NaN)."""
    return _each("attn_normalised_entropy", p, "p")


def effective_states(p: Any) -> Any:
    """exp(entropy(p)): the effective number of keys of a query, within 1 .. n."""
    return _each("attn_effective_states", p, "p")


def kl_divergence(p: Any, q: Any) -> Any:
    """sum_j p_j log(p_j / q_j) for p and q [..., n]: [...], a float for single ones; infinity where q_j = 0 < p_j."""
    shapes = Shapes()
    left, right = shapes.doubles(p, "p", "... n"), shapes.doubles(q, "q", "... n")
    pairs = zip(each(left, 1), each(right, 1), strict=True)
    found = [_native.call("attn_kl_divergence", shapes["n"], pointer(a), pointer(b)) for a, b in pairs]
    return one(np.reshape(np.array(found, float), shapes.front), p)


def mutual_information(weights: Any) -> Any:
    """Between uniformly drawn queries and keys, from weights [..., rows, n]: the entropy of the mean of the rows minus the mean of their
    entropies, [...], a float for a single matrix."""
    shapes = Shapes()
    numbers = shapes.doubles(weights, "weights", "... rows n")
    found = [_native.call("attn_mutual_information", shapes["rows"], shapes["n"], pointer(part)) for part in each(numbers, 2)]
    return one(np.reshape(np.array(found, float), shapes.front), weights)


def softmax_jacobian(p: Any, *, temperature: float = 1.0) -> Any:
    """jacobian[j, k] = p_j (delta_jk - p_k) / T, the derivative of weights p [..., n] by scores: [..., n, n].

    Symmetric, positive semidefinite; rows and columns sum to 0.  Raises ValueError for a temperature that is not above 0 and finite.
    """
    numbers, temperature = Shapes().doubles(p, "p", "... n"), real(temperature, "temperature")
    _check_temperature(temperature)
    jacobian = np.empty((*numbers.shape, numbers.shape[-1]))
    for row, to in zip(each(numbers, 1), each(jacobian, 2), strict=True):
        _native.call("attn_softmax_jacobian", row.size, temperature, pointer(row), pointer(to))
    return like(jacobian, p)


def softmax_jvp(p: Any, x: Any, *, temperature: float = 1.0, out: Any = None) -> Any:
    """out_j = p_j (x_j - sum_k p_k x_k) / T for p and x [..., n]: the Jacobian, which is symmetric, times a vector; out may be x."""
    shapes, temperature = Shapes(), real(temperature, "temperature")
    numbers, vectors = shapes.doubles(p, "p", "... n"), shapes.doubles(x, "x", "... n")
    _check_temperature(temperature)
    product = result(out, numbers.shape, np.float64)
    for row, vector, to in zip(each(numbers, 1), each(vectors, 1), each(product, 1), strict=True):
        _native.call("attn_softmax_jvp", row.size, temperature, pointer(row), pointer(vector), pointer(to))
    return given(out, product, p)


def head_diversity(weights: Any) -> float:
    """1 minus the mean cosine between the weights [heads, ...] of different heads, over all pairs: 0 if all heads look alike, or there is
    at most one head."""
    numbers = Shapes().doubles(weights, "weights", "... len_kv")
    if numbers.ndim < 2:
        raise ValueError(f"weights has shape {list(numbers.shape)}; it must be [heads, ..., len_kv]")
    heads = numbers.shape[0]
    return _native.call("attn_head_diversity", heads, numbers.size // max(heads, 1), pointer(numbers))


def head_entropy(weights: Any) -> Any:
    """entropy[h] = the mean entropy of the rows of head h, for weights [..., heads, rows, n]: [..., heads]."""
    shapes = Shapes()
    numbers = shapes.doubles(weights, "weights", "... heads rows n")
    entropies = np.empty(numbers.shape[:-2])
    _native.call("attn_head_entropy", entropies.size, shapes["rows"], shapes["n"], pointer(numbers), pointer(entropies))
    return like(entropies, weights)
