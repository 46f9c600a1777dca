# SPDX-License-Identifier: MIT
"""distributed.attention over tensors of PyTorch, with gradients."""
from __future__ import annotations

from typing import Any

import numpy as np
import torch

from .._problem import GRADIENTS
from ._plan import Autograd, once

Tensor = torch.Tensor
ONCE = "libattn.distributed has no second derivatives yet: call backward without create_graph"


class _Call:
    """What does not change between forward and backward: where it runs, and the options that are no tensors."""

    def __init__(self, group: Any, split: tuple[Any, ...], axes: Any, return_lse: bool, names: tuple[str, ...], numbers: dict[str, Any]) -> None:
        self.group, self.split, self.axes, self.return_lse, self.names, self.numbers = group, split, axes, return_lse, names, numbers

    def run(
        self, op: str, three: Any, tensors: Any, saved: dict[str, Any], grads: tuple[str, ...], out: Any = None, draws: bool = False,
        outputs: Any = (), **more: Any,
    ) -> Any:
        given = {**self.numbers, **{name: x.detach() for name, x in zip(self.names, tensors, strict=True)}, **saved}
        layout, part, way, ranks_heads = self.split
        found = once(
            op, dict(zip("qkv", three, strict=True)), given, group=self.group, layout=layout, part=part, way=way, ranks_heads=ranks_heads,
            axes=self.axes, grads=grads, return_lse=op == "forward", out=out, autograd=Autograd(_draw if draws else None, **more), outputs=outputs)
        if draws:
            self.numbers["seed"] = given["seed"]
        return found


def _draw() -> int:
    return int(torch.randint(2**63 - 1, (), dtype=torch.int64))


class _Attention(torch.autograd.Function):
    """(call, q, k, v, *tensors) -> o, lse"""

    @staticmethod
    def forward(ctx: Any, call: _Call, draws: bool, *tensors: Tensor) -> Any:
        three = [x.detach() for x in tensors[:3]]
        o, lse = call.run("forward", three, tensors[3:], {}, (), draws=draws, gradients=True)
        ctx.call = call
        ctx.save_for_backward(*tensors, o, lse)
        return o, lse

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        saved, call = ctx.saved_tensors, ctx.call
        needs = ctx.needs_input_grad[5:]
        grads = tuple(name for name, needed in zip(call.names, needs, strict=True) if needed)
        found = _Backward.apply(call, grads, *gradients, *saved)
        rest = dict(zip(grads, found[3:], strict=True))
        return None, None, *found[:3], *(rest.get(name) for name in call.names)


class _Backward(torch.autograd.Function):
    """(call, grads, grad_o, grad_lse, q, k, v, *tensors, o, lse) -> gradients"""

    @staticmethod
    def forward(ctx: Any, call: _Call, grads: tuple[str, ...], grad_o: Tensor, grad_lse: Tensor, *saved: Tensor) -> Any:
        three, tensors, (o, lse) = saved[:3], saved[3:-2], saved[-2:]
        more = {"o": o.detach(), "lse": lse.detach(), "grad_o": grad_o.detach(), "grad_lse": grad_lse.detach() if call.return_lse else None}
        found = call.run("backward", [x.detach() for x in three], tensors, more, grads)
        shapes = [dict(zip(call.names, tensors, strict=True))[name] for name in grads]
        return *found[:3], *(_shaped(x, like) for x, like in zip(found[3:], shapes, strict=True))

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> Any:
        raise NotImplementedError(ONCE)


def _shaped(gradient: Tensor, x: Tensor) -> Tensor:
    """A gradient in the shape of its tensor, which may lack axes of size 1, and summed where one number served all heads."""
    if gradient.shape != x.shape and gradient.numel() != x.numel():
        gradient = gradient.sum_to_size(x.shape)
    return gradient.reshape(x.shape).to(x.dtype)


def attention(
    q: Any, k: Any, v: Any, group: Any, split: tuple[Any, ...], axes: Any, out: Any, return_lse: bool, outputs: Any, given: dict[str, Any],
) -> Any:
    """distributed.attention where q, k or v is a tensor."""
    if torch.is_autocast_enabled("cpu"):
        kind = torch.get_autocast_dtype("cpu")
        q, k, v = (x.to(kind) if isinstance(x, Tensor) and x.is_floating_point() and x.dtype != torch.float64 else x for x in (q, k, v))
    names = tuple(name for name, x in given.items() if isinstance(x, Tensor))
    numbers = {name: x for name, x in given.items() if name not in names}
    tensors = [given[name] for name in names]
    dropout = numbers.get("dropout")
    draws = dropout is not None and (np.ndim(dropout) > 0 or bool(dropout)) and numbers.get("seed") is None and "seed" not in names
    further = not isinstance(outputs, (str, list, tuple)) or len(outputs) > 0
    call = _Call(group, split, axes, return_lse, names, numbers)
    wanted = [x.requires_grad for x in (q, k, v) if isinstance(x, Tensor)] + [x.requires_grad for name, x in zip(names, tensors) if name in GRADIENTS]
    refused = None
    if torch.is_grad_enabled() and any(wanted):
        if out is None and not further and all(isinstance(x, Tensor) for x in (q, k, v)):
            o, lse = _Attention.apply(call, draws, q, k, v, *tensors)
            return (o, lse) if return_lse else o
        refused = TypeError(
            "a tensor requires a gradient, which goes neither with out or outputs nor with arrays that are no tensors; detach it, or use torch.no_grad")
    three = [x.detach() if isinstance(x, Tensor) else x for x in (q, k, v)]
    o, lse, *more = call.run("forward", three, tensors, {}, (), out=out, draws=draws, outputs=outputs, refused=refused)
    found = (o, *((lse,) if return_lse else ()), *more)
    return found if len(found) > 1 else o

