# SPDX-License-Identifier: MIT
"""The cost of attention by counting: operations, memory, traffic between a large slow memory and a small fast one, and the attainable
rate of a machine.  Nothing is measured here; the command `attn bench` does that.  (The header attn/cost.h.)"""
from __future__ import annotations

import ctypes
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

import numpy as np

from . import _abi, _native
from ._arguments import choice, integer, real
from ._types import code

__all__ = ["Cost", "attainable_rate", "estimate"]

Method = Literal["tiled", "matrix", "linear"]
METHODS = {name: getattr(_abi, f"ATTN_COST_METHOD_{name.upper()}") for name in get_args(Method)}


@dataclass(frozen=True)
class Cost:
    """What estimate counted.  B, Hq, Hkv, Sq, Skv, D and Dv are the sizes, s the bytes of a number, F features, M fast_elements, and R the bytes
    of a row of keys and one of values with their scales, s (D + Dv) without types of their own."""

    scores: float  #: B Hq Sq Skv
    pairs: float  #: the visible ones
    operations: float  #: forward: 2 (D + Dv) pairs (both products; the softmax is not counted); linear: 2 F Dv (B Hkv Skv + B Hq Sq)
    backward_operations: float  #: softmax: 2.5 times that, five products instead of two; linear: twice
    qkv_bytes: float  #: B (s Hq Sq D + Hkv Skv R)
    output_bytes: float  #: s B Hq Sq Dv
    matrix_bytes: float  #: s scores: size of the matrix, whether or not the method has one
    lse_bytes: float  #: 4 B Hq Sq, or 8
    cache_bytes: float  #: B Skv Hkv R: keys and values kept for decoding
    latent_bytes: float  #: s B Skv rank, instead of cache_bytes
    state_bytes: float  #: s B Hkv F Dv
    extra_bytes: float  #: what the method needs besides q, k, v and o: the matrix, lse or the state
    traffic_bytes: float
    """tiled: q and o once, lse; k and v once for each tile of r = M / (4 max(D, Dv)) queries of each head, or once in all if those of a head fill
    at most half of M.  matrix: q, k, v and o once, the matrix written and read, and what its two products read again: nothing if a factor fills
    at most half of M; else the right factor for each strip of r rows, or both for each column or row of blocks of sqrt(M / 3) squared, whichever
    is less.  linear: q, k, v and o once."""
    intensity: float  #: operations / traffic_bytes; 0 without traffic


def estimate(
    *, len_q: int, len_kv: int | None = None, heads_q: int = 1, heads_kv: int | None = None, dim_qk: int, dim_v: int | None = None,
    batch: int = 1, method: Method = "tiled", dtype: Any = np.float32, pairs: float | None = None, features: int | None = None,
    rank: int | None = None, fast_elements: int | None = None, k_dtype: Any = None, v_dtype: Any = None, k_scaled: bool = False,
    v_scaled: bool = False,
) -> Cost:
    """The cost of attention of these sizes; len_kv, heads_kv and dim_v are by default those of the queries.

    method         "tiled": softmax attention in tiles (Dao et al. 2022, "FlashAttention"); "matrix": one that writes the matrix of
                   scores and reads it again; "linear": through a state
    dtype          of q, o and a matrix of scores: float32, float64, float16 or bfloat16
    k_dtype        of keys, where it is not dtype; v_dtype of values: also "i8", "f8_e4m3", "f8_e5m2", "q8_0", "q4_0" and "q4_1" (not "linear")
    k_scaled       True: each row of keys has a scale in float32, as rows of "i8" always have (and of f8 may); v_scaled: of values
    pairs          visible pairs of a query and a key, over all heads; None: all
    features       linear: of the feature map; None: dim_qk
    rank           channels of a latent cache (multi-head latent attention)
    fast_elements  tiled, matrix: how many numbers the fast memory of one core holds; None: all of them

    Raises ValueError or NotImplementedError.
    """
    problem = _native.struct(_abi.attn_cost_problem, method=choice(method, "method", METHODS), dtype=code(dtype, "dtype"))
    sizes = {
        "batch": batch, "heads_q": heads_q, "heads_kv": heads_q if heads_kv is None else heads_kv, "len_q": len_q,
        "len_kv": len_q if len_kv is None else len_kv, "dim_qk": dim_qk, "dim_v": dim_qk if dim_v is None else dim_v,
    }
    problem.shape = _abi.attn_shape(**{name: integer(value, name, 0) for name, value in sizes.items()})
    for name, value in (("features", features), ("rank", rank), ("fast_elements", fast_elements)):
        if value is not None:
            setattr(problem, name, integer(value, name, 1))
    problem.k_dtype, problem.v_dtype = (0 if own is None else code(own, name) for own, name in ((k_dtype, "k_dtype"), (v_dtype, "v_dtype")))
    problem.k_scaled, problem.v_scaled = bool(k_scaled), bool(v_scaled)
    if pairs is not None:
        problem.pairs = real(pairs, "pairs")
        if problem.pairs == 0:
            raise ValueError("pairs is 0; it must be above 0, or None for all")
    found = _native.struct(_abi.attn_cost)
    _native.call("attn_cost_estimate", ctypes.byref(problem), ctypes.byref(found))
    return Cost(**{field.name: getattr(found, field.name) for field in fields(Cost)})


def attainable_rate(peak: float, bandwidth: float, intensity: float) -> float:
    """The roofline (Williams et al. 2009): min(peak, bandwidth * intensity), in operations per second, bytes per second and operations per
    byte."""
    return _native.call("attn_attainable_rate", real(peak, "peak"), real(bandwidth, "bandwidth"), real(intensity, "intensity"))
