# SPDX-License-Identifier: MIT
"""What the operators return, without data: for meta tensors, torch.compile and torch.export.  Sizes and strides are those of the kernels."""
from __future__ import annotations

import functools
import hashlib
import sys
from typing import Any, Callable

import torch

from ._shim import AT, DEFAULTS, WANTS

Tensor = torch.Tensor
LAYOUT = AT["layout"]


def compute(q: Tensor) -> torch.dtype:
    """The type that scores and lse have."""
    return torch.float64 if q.dtype == torch.float64 else torch.float32


def dense(shape: Any, like: Tensor) -> Tensor:
    """A dense tensor in which heads and tokens follow each other in memory as they do in `like`."""
    shape = list(shape)
    n = len(shape)
    if n >= 3 and like.stride(n - 3) < like.stride(n - 2):
        shape[n - 3], shape[n - 2] = shape[n - 2], shape[n - 3]
        return like.new_empty(shape).transpose(n - 3, n - 2)
    return like.new_empty(shape)


def _rows(q: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    return dense([*q.shape[:-1], v.shape[-1]], q), q.new_empty(q.shape[:-1], dtype=compute(q))


@functools.cache
def signature() -> str:
    """A hash of the schemas of all operators."""
    names = sorted(name.split(".") for name in torch._C._dispatch_get_all_op_names() if name.startswith("libattn::"))
    schemas = [str(torch._C._get_schema(name, overload[0] if overload else "")) for name, *overload in names]
    return hashlib.sha256("\n".join(schemas).encode()).hexdigest()


def key_caches() -> None:
    """Makes the signature a part of the keys of Inductor's caches on disk, in which a graph has only the names of operators.

    Whatever traces a graph has imported the module of settings.
    """
    settings: Any = sys.modules.get("torch._inductor.config")
    known = getattr(settings, "unsafe_marked_cacheable_functions", None)  # "changing the cache key value will change the ... key"
    if known is not None and known.get("torch.ops.libattn") != signature():
        settings.unsafe_marked_cacheable_functions = {**known, "torch.ops.libattn": signature()}


def register(name: str, **options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """torch.library.register_fake for an operator of libattn."""

    def of(function: Callable[..., Any]) -> Callable[..., Any]:
        def fake(*arguments: Any, **more: Any) -> Any:
            key_caches()
            return function(*arguments, **more)

        torch.library.register_fake(f"libattn::{name}", fake, **options)
        return function

    return of


@register("attention")
def _attention(q: Tensor, k: Tensor, v: Tensor, *options: Any) -> Any:
    *options, weights = _filled(options, 1)
    o, lse = _rows(q, v)
    if not weights:
        return o, lse, q.new_empty(0)
    if options[LAYOUT] == 2:
        raise NotImplementedError("return_weights and layout='thd': the size of the weights depends on data")
    heads, tokens = (-3, -2) if options[LAYOUT] == 0 else (-2, -3)
    shape = [*q.shape[:-3], q.shape[heads], q.shape[tokens], k.shape[tokens]] if q.dim() > 2 else [q.shape[0], k.shape[0]]
    return o, lse, q.new_empty(shape, dtype=compute(q))


@register("attention_plain")
def _plain(q: Tensor, k: Tensor, v: Tensor, *options: Any) -> Tensor:
    return _rows(q, v)[0]


def _filled(options: tuple[Any, ...], more: int) -> list[Any]:
    """Options with the defaults of those that were left out; `more`: False for what follows them."""
    whole = [*DEFAULTS, *([False] * more)]
    return [*options, *whole[len(options):]]


@register("attention_backward")
def _backward(grad_o: Any, grad_lse: Any, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, wants: int, *options: Any) -> Any:
    options = tuple(_filled(options, 0))
    others = []
    for name, bit in WANTS.items():
        of = options[AT[name]]
        others.append(of.new_empty(of.shape) if of is not None and wants & bit else q.new_empty(0))
    return (dense(q.shape, q), dense(k.shape, k), dense(v.shape, v), *others)


@register("attention_jvp")
def _jvp(tan_q: Any, tan_k: Any, tan_v: Any, tan_bias: Any, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, *options: Any) -> Any:
    return _rows(q, v)


@register("attention_double_backward")
def _double(
    grad_o: Any, grad_lse: Any, tan_q: Any, tan_k: Any, tan_v: Any, tan_bias: Any, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, *options: Any,
) -> Any:
    bias = _filled(options, 0)[AT["bias"]]
    second = q.new_empty(0) if bias is None else bias.new_empty(bias.shape)
    return (*_rows(q, v), dense(q.shape, q), dense(k.shape, k), dense(v.shape, v), second)
