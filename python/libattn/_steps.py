# SPDX-License-Identifier: MIT
"""One attention step by step, forward and backward, and its gradients checked: the second half of libattn.analysis."""
from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, Mapping, Unpack

import numpy as np

from . import _abi, _native
from ._arguments import doubles, integer, real
from ._arrays import Array, like, pointer
from ._problem import Inner, Options, Sizes
from ._slots import four


@dataclass(frozen=True)
class Steps:
    """What decompose computed.  [pairs] is [batch, heads, len_q, len_kv], [rows] [batch, heads, len_q], without the axes that q lacks."""

    output: Any  #: [rows, dim_v]
    raw: Any  #: [pairs] q.k
    scores: Any  #: [pairs] scaled, capped, biased; -infinity where the key is not visible
    weights: Any  #: [pairs]
    log_partition: Any  #: [rows] log sum_j exp(scores_j)
    partition: Any  #: [rows] exp of it: infinite above 709


@dataclass(frozen=True)
class Flow:
    """Every step of a backward pass; all norms are Frobenius norms."""

    output: Any
    grad_weights: Any  #: [pairs] dP = dO V^T where a key is visible, else 0
    grad_scores: Any  #: [pairs] dS = P (dP - delta), each row of which sums to 0
    grad_q: Any  #: like q, k and v
    grad_k: Any
    grad_v: Any
    norm_grad_o: float
    norm_grad_weights: float
    norm_grad_scores: float
    norm_grad_q: float
    norm_grad_k: float
    norm_grad_v: float


@dataclass(frozen=True)
class Verification:
    """What verify_gradients found; true if the gradients are correct."""

    checked: int  #: elements of q, k and v
    max_error: float  #: the largest |difference quotient - gradient|
    relative_error: float  #: the largest, relative to the norm per element of its tensor's gradient
    limit: float  #: bound on max_error if the gradients are correct
    correct: bool  #: max_error <= limit

    def __bool__(self) -> bool:
        return self.correct


class _Attention:
    """The structs of one call over q, k and v, and the arrays behind them."""

    def __init__(self, q: Any, k: Any, v: Any, grad_o: Any, options: Mapping[str, Any]) -> None:
        for name in ("cu_seqlens_q", "cu_seqlens_kv"):
            if options.get(name) is not None:
                raise NotImplementedError(f"{name} is set; packed sequences are not among what is analysed")
        self.source = q
        arrays = {"q": doubles(q, "q"), "k": doubles(k, "k"), "v": doubles(v, "v")}
        self.missing = 4 - arrays["q"].ndim
        self.full = {name: four(array, name) for name, array in arrays.items()}
        batch, heads, len_q, dim = self.full["q"].shape
        len_kv = self.full["k"].shape[2]
        groups = self.full["k"].shape[1]
        channels = self.full["k"].shape[3] if options.get("score") == "general" else dim
        for name, axes, shape in (
            ("k", "[batch, heads_kv, len_kv, dim]", (batch, groups, len_kv, channels)),
            ("v", "[batch, heads_kv, len_kv, dim_v]", (batch, groups, len_kv, self.full["v"].shape[3])),
        ):
            if self.full[name].shape != shape:
                raise ValueError(f"{name} has shape {list(arrays[name].shape)}; it must be {axes}, {list(shape)}, with q and k as they are")
        sizes = Sizes(batch, heads, groups, len_q, len_kv, (dim, channels, self.full["v"].shape[3]))
        self.inner = Inner(options, sizes, np.float64)
        for name, size in zip(("batch", "heads_q", "heads_kv", "len_q", "len_kv", "dim_qk", "dim_v"),
                              (batch, heads, groups, len_q, len_kv, dim, self.full["v"].shape[3])):
            setattr(self.inner.problem.shape, name, size)
        self.rows, self.pairs = (batch, heads, len_q), (batch, heads, len_q, len_kv)
        self.output = np.empty((*self.rows, self.full["v"].shape[3]))
        tensors = self.inner.tensors
        for name, array in (*self.full.items(), ("o", self.output)):
            tensors.put(name, array)
            getattr(tensors.struct, name).stride[:] = [0, 0, 0, 0]
        if grad_o is not None:
            gradient = doubles(grad_o, "grad_o")
            if gradient.shape != self.output.shape[self.missing:]:
                raise ValueError(f"grad_o has shape {list(gradient.shape)}; it must be {list(self.output.shape[self.missing:])}")
            tensors.put("grad_o", gradient.reshape(self.output.shape))
            tensors.struct.grad_o.stride[:] = [0, 0, 0, 0]
        if self.inner.call is not None:
            tensors.struct.call = ctypes.pointer(self.inner.call)

    def call(self, name: str, *between: Any) -> None:
        """Calls a function of (problem, between..., options); what follows the problem is the caller's."""
        _native.call(name, ctypes.byref(self.inner.problem), *between, self.inner.options)

    @property
    def tensors(self) -> Any:
        return self.inner.tensors.reference

    def plain(self, array: Array) -> Any:
        """A result without the axes that q lacks, in its library."""
        return like(array.reshape(array.shape[self.missing:]) if self.missing else array, self.source)


def decompose(q: Any, k: Any, v: Any, **options: Unpack[Options]) -> Steps:
    """Computes an attention and keeps its intermediate results.

    q [batch, heads, len_q, dim], k [batch, heads_kv, len_kv, dim] and v [batch, heads_kv, len_kv, dim_v] of any real type, computed in
    double; axes at the front may be missing.  The options are those of libattn.attention (libattn.layers.Options), for sequences that
    are not packed.  Raises what libattn.attention raises.
    """
    one = _Attention(q, k, v, None, options)
    names = {"raw": one.pairs, "scores": one.pairs, "weights": one.pairs, "log_partition": one.rows, "partition": one.rows}
    made = {name: np.empty(shape) for name, shape in names.items()}
    steps = _native.struct(_abi.attn_steps, **{name: pointer(array) for name, array in made.items()})
    one.call("attn_decompose", one.tensors, ctypes.byref(steps))
    return Steps(one.plain(one.output), **{name: one.plain(array) for name, array in made.items()})


def gradient_flow(q: Any, k: Any, v: Any, grad_o: Any = None, **options: Unpack[Options]) -> Flow:
    """Every step of the backward pass of L = <grad_o, O>, or of L = |O|^2 / 2 (grad_o = O) if grad_o [batch, heads, len_q, dim_v] is None.

    Arguments as in decompose; without dropout (NotImplementedError).
    """
    one = _Attention(q, k, v, grad_o, options)
    shapes = {"grad_weights": one.pairs, "grad_scores": one.pairs, **{f"grad_{name}": array.shape for name, array in one.full.items()}}
    made = {name: np.empty(shape) for name, shape in shapes.items()}
    flow = _native.struct(_abi.attn_flow, **{name: pointer(array) for name, array in made.items()})
    one.call("attn_gradient_flow", one.tensors, ctypes.byref(flow))
    norms = {name: getattr(flow, name) for name in Flow.__dataclass_fields__ if name.startswith("norm_")}
    return Flow(one.plain(one.output), **{name: one.plain(array) for name, array in made.items()}, **norms)


def verify_gradients(
    q: Any, k: Any, v: Any, grad_o: Any = None, *, step: float = 1e-5, most: int = 0, **options: Unpack[Options]
) -> Verification:
    """Checks the backward pass against central differences of the forward pass, (L(x + step) - L(x - step)) / (2 step), for up to `most`
    elements of each of q, k and v, evenly spaced (0: all).

    L and arguments are those of gradient_flow, but dropout is allowed, since its mask stays fixed.  Each element takes two forward
    passes.
    """
    one = _Attention(q, k, v, grad_o, options)
    found = _native.struct(_abi.attn_verification)
    size = real(step, "step")
    if not size > 0:
        raise ValueError(f"step is {size}; it must be above 0")
    one.call("attn_verify_gradients", size, integer(most, "most"), one.tensors, ctypes.byref(found))
    return Verification(found.checked, found.max_error, found.relative_error, found.limit, bool(found.correct))
