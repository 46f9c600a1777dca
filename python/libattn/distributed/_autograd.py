# SPDX-License-Identifier: MIT
"""distributed.attention over tensors of PyTorch, with gradients."""
from __future__ import annotations

from typing import Any

import numpy as np
import torch

from .._problem import GRADIENTS
from ._plan import Autograd, once

Tensor = torch.Tensor
ONCE = "libattn.distributed has second derivatives of q, k, v and bias only, and not of {}: detach it, or call backward without create_graph"


class _Call:
    """What does not change between forward and backward: where it runs, and the options that are no tensors."""

    def __init__(self, group: Any, split: tuple[Any, ...], axes: Any, return_lse: bool, names: tuple[str, ...], numbers: dict[str, Any]) -> None:
        self.group, self.split, self.axes, self.return_lse, self.names, self.numbers = group, split, axes, return_lse, names, numbers

    def run(
        self, op: str, three: Any, tensors: Any, saved: dict[str, Any], grads: tuple[str, ...], out: Any = None, draws: bool = False,
        outputs: Any = (), return_lse: bool = False, **more: Any,
    ) -> Any:
        given = {**self.numbers, **{name: x.detach() for name, x in zip(self.names, tensors, strict=True)}, **saved}
        layout, part, way, ranks_heads, machine, any_order = self.split
        found = once(
            op, dict(zip("qkv", three, strict=True)), given, group=self.group, layout=layout, part=part, way=way, ranks_heads=ranks_heads,
            machine=machine, any_order=any_order, axes=self.axes, grads=grads, return_lse=op == "forward" or return_lse, out=out,
            autograd=Autograd(_draw if draws else None, **more), outputs=outputs)
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
        ctx.call, ctx.grads = call, grads
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(grad_o, grad_lse, *saved)
        found = call.run("backward", [x.detach() for x in saved[:3]], saved[3:-2], _given(call, grad_o, grad_lse, saved), grads)
        return *found[:3], *_all_shaped(call, grads, found[3:], saved)

    @staticmethod
    def backward(ctx: Any, *tangents: Any) -> Any:
        grad_o, grad_lse, *saved = ctx.saved_tensors
        call, needs = ctx.call, dict(zip(ctx.call.names, ctx.needs_input_grad[7:-2], strict=True))
        moved = dict(zip(ctx.grads, tangents[3:], strict=True))
        refused = [name for name in call.names if name != "bias" and (needs[name] or moved.get(name) is not None)]
        # Those that no loss uses are zeros, so that ranks have the same ones.
        along = [torch.zeros_like(x) if t is None else t for t, x in zip(tangents[:3], saved[:3], strict=True)]
        if "bias" in moved:
            bias = saved[3 + call.names.index("bias")]
            along.append(torch.zeros_like(bias) if moved["bias"] is None else moved["bias"])
        grads = ("bias",) if needs.get("bias") else ()
        found = _Double.apply(call, grads, len(along), ONCE.format(refused[0]) if refused else "", *along, grad_o, grad_lse, *saved)
        second_o, *three = found[:4]
        rest = dict(zip(grads, found[4:], strict=False))
        return None, None, second_o, found[-1] if call.return_lse else None, *three, *(rest.get(name) for name in call.names), None, None


class _Double(torch.autograd.Function):
    """(call, grads, moved, refused, *tangents, grad_o, grad_lse, q, k, v, *tensors, o, lse) -> second derivatives"""

    @staticmethod
    def forward(ctx: Any, call: _Call, grads: tuple[str, ...], moved: int, refused: str, *arguments: Tensor) -> Any:
        along, (grad_o, grad_lse, *saved) = arguments[:moved], arguments[moved:]
        more = _given(call, grad_o, grad_lse, saved)
        more.update((f"tan_{name}", x.detach()) for name, x in zip(("q", "k", "v", "bias"), along, strict=False))
        found = call.run(
            "double_backward", [x.detach() for x in saved[:3]], saved[3:-2], more, grads, return_lse=call.return_lse,
            refused=NotImplementedError(refused) if refused else None)
        return *found[:4], *_all_shaped(call, grads, found[4:], saved), *found[4 + len(grads):]

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> Any:
        raise NotImplementedError("libattn has no third derivatives")


def _given(call: _Call, grad_o: Tensor, grad_lse: Tensor, saved: Any) -> dict[str, Any]:
    more = {"o": saved[-2].detach(), "lse": saved[-1].detach(), "grad_o": grad_o.detach()}
    return {**more, "grad_lse": grad_lse.detach() if call.return_lse else None}


def _all_shaped(call: _Call, grads: tuple[str, ...], found: Any, saved: Any) -> list[Tensor]:
    shapes = dict(zip(call.names, saved[3:-2], strict=True))
    return [_shaped(x, shapes[name]) for name, x in zip(grads, found, strict=False)]


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

