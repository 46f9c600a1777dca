# SPDX-License-Identifier: MIT
"""distributed.linear_attention over tensors of PyTorch, with gradients."""
from __future__ import annotations

from typing import Any

import torch

from .._linear import DIFFERENTIABLE, Forward
from . import _linear
from ._plan import Autograd

Tensor = torch.Tensor
ONCE = "libattn.distributed has no second derivatives: call backward without create_graph"


class _Call:
    """What does not change between forward and backward: where it runs, and the names of the tensors."""

    def __init__(self, names: tuple[str, ...], rest: dict[str, Any], options: dict[str, Any], group: Any, how: tuple[Any, Any, Any]) -> None:
        self.names, self.rest, self.options, self.group, self.how = names, rest, options, group, how

    def tensors(self, given: Any) -> dict[str, Any]:
        return {**self.rest, **{name: x.detach() for name, x in zip(self.names, given, strict=True)}}

    def forward(self, given: Any) -> Forward:
        return _linear.forward(self.tensors(given), self.options, self.group, self.how, None, True, Autograd(None, gradients=True))


class _Linear(torch.autograd.Function):
    """(call, *tensors) -> o, final_state, final_sum; the last is empty without a denominator"""

    @staticmethod
    def forward(ctx: Any, call: _Call, *tensors: Tensor) -> Any:
        done = call.forward(tensors)
        ctx.call, ctx.guarded = call, done.final_sum is not None
        ctx.save_for_backward(*tensors, done.o, *((done.denominators,) if ctx.guarded else ()))
        return done.o, done.final_state, done.final_sum if ctx.guarded else done.o.new_empty(0)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return None, *_Backward.apply(ctx.call, ctx.guarded, *gradients, *ctx.saved_tensors)


class _Backward(torch.autograd.Function):
    """(call, guarded, gradients of outputs, *tensors, o, denominators) -> gradients of the tensors"""

    @staticmethod
    def forward(ctx: Any, call: _Call, guarded: bool, grad_o: Tensor, grad_state: Tensor, grad_sum: Tensor, *saved: Tensor) -> Any:
        count = len(call.names)
        given, more = call.tensors(saved[:count]), {"grad_o": grad_o.detach(), "grad_final_state": grad_state.detach()}
        if guarded:
            more.update(o=saved[count].detach(), denominators=saved[count + 1].detach(), grad_final_sum=grad_sum.detach())
        found = _linear.backward({**given, **more}, call.options, call.group, call.how)
        pairs = zip(call.names, saved[:count], strict=True)
        return tuple(getattr(found, name).to(x.dtype) if name in DIFFERENTIABLE else None for name, x in pairs)

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> Any:
        raise NotImplementedError(ONCE)


def forward(tensors: dict[str, Any], options: dict[str, Any], group: Any, how: tuple[Any, Any, Any], out: Any, states: Any) -> Forward:
    """distributed.linear_attention where q, k or v is a tensor."""
    if torch.is_autocast_enabled("cpu"):
        kind = torch.get_autocast_dtype("cpu")
        for name in ("q", "k", "v"):
            x = tensors[name]
            tensors[name] = x.to(kind) if isinstance(x, Tensor) and x.is_floating_point() and x.dtype != torch.float64 else x
    names = tuple(name for name, x in tensors.items() if isinstance(x, Tensor))
    rest = {name: x for name, x in tensors.items() if name not in names}
    learned = any(tensors[name].requires_grad for name in names if name in DIFFERENTIABLE)
    refused = None
    if torch.is_grad_enabled() and learned:
        if out is None and {"q", "k", "v"} <= {*names}:
            o, state, total = _Linear.apply(_Call(names, rest, options, group, how), *(tensors[name] for name in names))
            return Forward(o, None, state, total if total.shape == state.shape[:-1] else None)
        refused = TypeError(
            "a tensor requires a gradient, which goes neither with out nor with arrays that are no tensors; detach it, or use torch.no_grad")
    given = {name: x.detach() if isinstance(x, Tensor) else x for name, x in tensors.items()}
    return _linear.forward(given, options, group, how, out, states, Autograd(None, refused=refused))
