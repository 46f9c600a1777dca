# SPDX-License-Identifier: MIT
"""Modules of PyTorch applied to each part apart, whose gradients do not depend on the number of ranks."""
from __future__ import annotations

from typing import Any, Sequence

import numpy as np
import torch

from .._arguments import integer
from .._arrays import Array
from ._agree import same, together
from ._groups import transport_of
from ._split import Part, Split, check_tokens
from ._sums import owners_of, sum_parts, tree_sum

Tensor = torch.Tensor


class _Sum(torch.autograd.Function):
    """(x, group, layout) -> the sum over the parts of all ranks"""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any, layout: Any) -> Any:
        found = sum_parts(x.detach(), group=group, layout=layout)
        ctx.parts = x.shape[0]  # (all ranks know by now that it has one)
        return found

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return gradients[0].expand(ctx.parts, *gradients[0].shape), None, None


def differentiable_sum(x: Tensor, group: Any, layout: Any) -> Any:
    """sum_parts of a tensor that requires a gradient."""
    return _Sum.apply(x, group, layout)


class _Copies(torch.autograd.Function):
    """(group, owners, count, *parameters) -> `count` times the parameters; their gradients are summed over the parts of all ranks."""

    @staticmethod
    def forward(ctx: Any, group: Any, owners: Array, count: int, *parameters: Tensor) -> Any:
        ctx.group, ctx.owners = group, owners
        ctx.save_for_backward(*parameters)
        return tuple(p.view_as(p) for _ in range(count) for p in parameters)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        parameters, transport = ctx.saved_tensors, transport_of(ctx.group)
        own = np.count_nonzero(ctx.owners == transport.rank)
        found: list[Any] = [None] * len(parameters)
        for kind in sorted({p.dtype for p in parameters}, key=str):
            these = [n for n, p in enumerate(parameters) if p.dtype == kind]
            wide = torch.float64 if kind == torch.float64 else torch.float32
            flat = torch.empty(own, sum(parameters[n].numel() for n in these), dtype=wide)
            for part in range(own):
                torch.cat([gradients[part * len(parameters) + n].reshape(-1).to(wide) for n in these], out=flat[part])
            total = torch.from_numpy(tree_sum(transport, flat.numpy(), ctx.owners)).to(kind)
            for n, sum_ in zip(these, total.split([parameters[n].numel() for n in these]), strict=True):
                found[n] = sum_.view_as(parameters[n])
        return None, None, None, *found


def by_parts(
    module: torch.nn.Module, inputs: Sequence[Tensor], axis: int, group: Any, split: tuple[Any, int],
) -> Any:
    """distributed.by_parts."""
    transport = transport_of(group)

    def local() -> tuple[int, Split, dict[str, Tensor]]:
        if not isinstance(module, torch.nn.Module):
            raise TypeError(f"module is of type {type(module).__name__}; it must be a torch.nn.Module, which has the parameters that it learns")
        at = integer(axis, "axis")
        if not inputs:
            raise TypeError("inputs are missing: at least one tensor with rows of tokens")
        for n, x in enumerate(inputs):
            if not isinstance(x, Tensor):
                raise TypeError(f"input {n} is of type {type(x).__name__}; it must be a torch.Tensor")
            if not -x.dim() <= at < x.dim() or x.shape[at] != inputs[0].shape[at]:
                raise ValueError(f"input {n} has shape {list(x.shape)}; all inputs must have the same number of tokens on axis {axis}")
        for name, p in module.named_parameters():
            if p.is_complex():
                raise TypeError(f"parameter {name} is of type {p.dtype}; gradients of complex numbers are not summed")
        return inputs[0].shape[at], Split(*split), {name: p for name, p in module.named_parameters() if p.requires_grad}

    (_, cut, learned), said = together(transport, local, lambda found: {
        "tokens": found[0], "asked": {"parameters": str(sum(p.numel() for p in found[2].values())), **found[1].asked}})
    names, parameters = list(learned), list(learned.values())
    same(said)
    tokens = sum(one["tokens"] for one in said)
    cut.check(tokens, "q", transport.ranks)
    for rank, one in enumerate(said):
        check_tokens(cut, "the input", "q", one["tokens"], tokens, rank, transport.ranks)
    own = list(cut.parts(tokens, "q", transport.rank, transport.ranks)) or [Part(0, 0, 0, 0)]  # without parts: one without tokens
    owners = owners_of(cut, -(-tokens // cut.part), "q", transport.ranks)
    copies = _Copies.apply(group, owners, len(own), *parameters) if parameters else ()
    results: list[Any] = []
    for n, part in enumerate(own):
        mine = dict(zip(names, copies[n * len(names):(n + 1) * len(names)], strict=True))
        # Each part has memory of its own: its bits then depend neither on what lies beside it nor on where it lies.
        rows = [x.narrow(axis, part.local, part.tokens).clone(memory_format=torch.contiguous_format) for x in inputs]
        results.append(torch.func.functional_call(module, mine, tuple(rows)))
    alone = isinstance(results[0], Tensor)
    for x in results[:1] if alone else results[0]:
        if not isinstance(x, Tensor) or not -x.dim() <= axis < x.dim():
            what = f"a tensor of shape {list(x.shape)}" if isinstance(x, Tensor) else f"a {type(x).__name__}"
            raise TypeError(f"the module returns {what}; it must be a tensor with tokens along axis {axis}, or a tuple of such")
    return torch.cat(results, axis) if alone else tuple(torch.cat(some, axis) for some in zip(*results, strict=True))
