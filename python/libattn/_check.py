# SPDX-License-Identifier: MIT
"""Is a result right?  Attention and its derivatives against their definitions in double, as fractions of the derived bounds."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Iterator, Unpack

import numpy as np
from numpy.typing import NDArray

from . import _abi, _arrays, _bound, _core, _definition, _derivative_definition as derivative
from ._attention import attention
from ._blocks import Blocks
from ._derivatives import attention_backward, attention_double_backward, jvp
from ._introspection import kernels
from ._options import ArrayLike, Problem

DEFINED = {
    "causal", "window", "mask", "bias", "scale", "softcap", "sink", "alibi_slopes", "dropout", "seed", "lengths_q", "lengths_kv", "align",
    "offset_q", "chunk", "dilation", "global_q", "global_kv", "least_distance", "ranges", "block_mask", "block_starts", "block_index",
    "block_q", "block_kv", "tree", "tree_keys", "temperature", "normaliser", "empty", "dropout_given", "dropout_offset", "score", "score_matrix", "shift",
    "bias_table", "bias_table_kind", "bias_table_max_distance", "bias_table_causal",
    "relative_keys", "relative_values", "relative_u", "relative_v", "relative_first",
}
FORWARD_ONLY = {"normaliser", "empty", "score", "relative_keys", "relative_values", "tree"}  # their derivatives are for attn check
HOW = {"threads", "isa", "invariant", "reproducible", "workspace_limit"}


@dataclass(frozen=True)
class Check:
    """The largest error of each result, as a fraction of its bound: above 1 is a defect."""

    fractions: dict[str, float]

    @property
    def worst(self) -> float:
        return max(self.fractions.values(), default=0.0)

    @property
    def passed(self) -> bool:
        return self.worst <= 1

    def __str__(self) -> str:
        rows = "\n".join(f"{name:<24} {fraction:.3f}" for name, fraction in self.fractions.items())
        return f"{rows}\n{'right' if self.passed else 'WRONG'}: at most {self.worst:.3f} of the bound"


def check(
    q: ArrayLike | None = None, k: ArrayLike | None = None, v: ArrayLike | None = None, *, derivatives: bool = True, seed_of_data: int = 0,
    **problem: Unpack[Problem],
) -> Check:
    """Compares what the library computes with the definition in double, evaluated with NumPy, which takes a matrix of all scores.

        libattn.check(q, k, v, causal=True)      these arrays, with the options of libattn.attention
        libattn.check()                          small problems that cover the options, with every instruction set of this CPU

    q, k, v      [batch, heads, tokens, dim], float32, float64, float16 or bfloat16; of cache.Blocks what cache.dequantise makes of
                 them, the numbers that attention computes with
    derivatives  also compares backward, forward mode and double backward, for random gradients and tangents drawn with seed_of_data
    problem      derivatives of scores other than dot products, of normalisers other than softmax and of relative keys and values are
                 for the command `attn check`

    A bound is derived from the data (docs/numerics.md), so a fraction above 1 is a defect of the library or of the machine, not bad
    luck.  Returns a Check, whose `passed` is True if there is none.  Raises what attention raises, and NotImplementedError for
    options that are not compared.
    """
    if q is None or k is None or v is None:
        return _sweep(derivatives, problem)
    layout = problem.get("layout", "bhsd")
    unknown = set(problem) - DEFINED - HOW - {"layout"}
    if unknown or layout == "thd":
        raise NotImplementedError(f"check does not compare {', '.join(sorted(unknown)) or 'layout thd'}; attn check does")
    for x, n in ((q, "q"), (k, "k"), (v, "v")):
        if isinstance(x, Blocks):
            raise NotImplementedError(f"{n} is Blocks, which check does not compare; pass cache.dequantise({n}), the same numbers, or see attn check")
    three = [_four(_arrays.asarray(x, n), layout) for x, n in ((q, "q"), (k, "k"), (v, "v"))]
    options: dict[str, Any] = {n: x for n, x in problem.items() if n != "layout" and x is not None}
    return Check(dict(_compare(three[0], three[1], three[2], options, derivatives, seed_of_data)))


def _four(x: NDArray[Any], layout: str) -> NDArray[Any]:
    """[batch, head, token, channel], whatever the layout and the missing axes."""
    if layout == "bshd":
        x = x.swapaxes(-2, -3) if x.ndim > 2 else x
    return x.reshape((1,) * (4 - x.ndim) + x.shape)


def _fraction(got: Any, expected: Any, bound: Any, single_in_double: bool = False) -> float:
    got = np.asarray(got)
    bound = abs(np.asarray(bound, float)) + _bound.storage(got) + 1e-36 + (abs(expected) * 2.0**-24 if single_in_double else 0)
    with np.errstate(invalid="ignore"):
        error = abs(got.astype(float) - expected)
    error = np.where((got.astype(float) == expected) | (np.isnan(expected) & np.isnan(got)), 0, np.where(np.isnan(error), np.inf, error))
    return float(np.where(error > 0, error / bound, 0).max(initial=0))


def _compare(
    q: NDArray[Any], k: NDArray[Any], v: NDArray[Any], options: dict[str, Any], derivatives: bool, seed: int
) -> Iterator[tuple[str, float]]:
    double = q.dtype == np.float64
    wide = np.float64 if double else np.float32
    # The definition gets the numbers that the library computes with.
    exact = {n: x for n, x in options.items() if n in DEFINED}
    for name in ("scale", "sink", "alibi_slopes"):
        if name in exact and not isinstance(exact[name], (int, float)):
            exact[name] = _arrays.asarray(exact[name], name).astype(wide)
    for name in ("score_matrix", "bias_table", "relative_keys", "relative_values", "relative_u", "relative_v"):
        if name in exact:
            exact[name] = _arrays.asarray(exact[name], name).astype(float if double else np.float32)
    for name in ("mask", "bias"):
        if name in exact:
            exact[name] = _arrays.asarray(exact[name], name)
    block = _core.describe(_abi.ATTN_FORWARD, "bhsd", options, ("q", "k", "v", "o"), q, k, v, True)["block_kv"]
    o, lse, weights = attention(q, k, v, return_lse=True, return_weights=True, **options)
    found = _definition.forward(q, k, v, exact)
    bound = _bound.forward(found, q, k, exact, double, block)
    yield "o", _fraction(o, found.o, bound.o)
    yield "lse", _fraction(lse, found.lse, bound.lse)
    yield "weights", _fraction(weights, found.weights, bound.weights)
    if not derivatives or not q.size or not k.size or not v.size or FORWARD_ONLY & set(options):
        return
    rng = np.random.default_rng(seed)
    grad_o = rng.standard_normal(o.shape).astype(o.dtype)
    grad_lse = np.where(np.isfinite(lse), rng.standard_normal(lse.shape), 0).astype(lse.dtype)
    tangents = {"tan_" + n: rng.standard_normal(x.shape).astype(x.dtype) for n, x in (("q", q), ("k", k), ("v", v))}
    extra = [n for n in ("bias", "alibi_slopes", "sink") if n in exact] + ["scale"]
    if "bias" in exact:
        tangents["tan_bias"] = rng.standard_normal(exact["bias"].shape).astype(exact["bias"].dtype)
    terms, lost = derivative.terms(q, k, v, exact), derivative.lost_by_storing(o)
    size2, size3 = (derivative.sizes(terms, found, exact, double, n, lost, grad_o) for n in (2, 3))
    # A gradient has the type of its array, which may be narrower than the sums.
    narrow = {n: double and n in ("bias", "alibi_slopes") and exact[n].dtype == np.float32 for n in exact}

    def compared(name: str, key: str, got: Any, expected: Any, size: Any) -> tuple[str, float]:
        shape = np.shape(exact[key]) if key in ("bias", "alibi_slopes") else expected[key].shape
        first, second = (derivative.reduced(x[key], shape) for x in (expected, size))
        return name, _fraction(got, first, second, narrow.get(key, False))

    grads = attention_backward(q, k, v, o, lse, grad_o, grad_lse=grad_lse, grads=extra, **options)
    results = derivative.backward(terms, grad_o, grad_lse), derivative.backward(size2, grad_o, grad_lse)
    for name, got in zip(["q", "k", "v", *extra], grads):
        yield compared("grad_" + name, name, got, *results)
    tan_o, tan_lse = jvp(q, k, v, o, lse, return_lse=True, **tangents, **options)
    expected, size = derivative.jvp(terms, **tangents), derivative.jvp(size2, **tangents)
    mean = derivative.tangent(size2, tangents["tan_q"], tangents["tan_k"], tangents.get("tan_bias"))[2]
    yield "tan_o", _fraction(tan_o, expected["o"], size["o"] + mean * lost)
    yield "tan_lse", _fraction(tan_lse, expected["lse"], size["lse"])
    second = attention_double_backward(
        q, k, v, o, lse, grad_o, grad_lse=grad_lse, return_bias="bias" in exact, **tangents, **options
    )
    results = derivative.double_backward(terms, grad_o, grad_lse, **tangents), derivative.double_backward(size3, grad_o, grad_lse, **tangents)
    for name, got in zip(["q", "k", "v", "bias"], second[1:]):
        yield compared("second_" + name, name, got, *results)


def _sweep(derivatives: bool, problem: Any) -> Check:
    """The worst of each result over small problems and instruction sets."""
    rng = np.random.default_rng(0)
    worst: dict[str, float] = {}
    table: list[dict[str, Any]] = [
        {}, {"causal": True}, {"causal": "top-left"}, {"window": 3}, {"softcap": 2.0}, {"sink": [0.5, -1.0, 0.0, 2.0]},
        {"alibi_slopes": [0.5, 0.25, 0.125, 0.0625]}, {"dropout": 0.3, "seed": 5}, {"mask": rng.random((9, 37)) < 0.5},
        {"bias": rng.standard_normal((9, 37)).astype("f"), "lengths_kv": [30, 0]},
    ]
    for isa in sorted({kernel.isa for kernel in kernels() if kernel.usable}):
        for dtype in (np.float32, np.float64, np.float16):
            q, k, v = (rng.standard_normal(s).astype(dtype) for s in ((2, 4, 9, 24), (2, 2, 37, 24), (2, 2, 37, 17)))
            for options in table:
                more: Any = {"isa": isa, **options, **problem}
                for name, fraction in _compare(q, k, v, more, derivatives, 1):
                    name = f"{name} {isa} {np.dtype(dtype)}"
                    worst[name] = max(worst.get(name, 0.0), fraction)
    return Check(worst)
