# SPDX-License-Identifier: MIT
"""Calls of score_mod and mask_mod, which are functions of numbers: over axes of indices at once, by torch.vmap."""
from __future__ import annotations

from typing import Any, Callable

import torch

Tensor = torch.Tensor


class Items(torch.overrides.TorchFunctionMode):
    """table[h, q_idx] with indices that are tensors of no axes: else, PyTorch would turn them into numbers, which torch.vmap refuses."""

    def __torch_function__(self, function: Any, kinds: Any, arguments: Any = (), options: Any = None) -> Any:
        if function is Tensor.__getitem__:
            table, at = arguments
            at = at if isinstance(at, tuple) else (at,)
            whole = all(isinstance(x, (int, Tensor)) and not isinstance(x, bool) for x in at)
            if whole and any(isinstance(x, Tensor) for x in at):
                return torch.ops.aten.index(table, [x if isinstance(x, Tensor) else torch.tensor(x) for x in at])
        return function(*arguments, **(options or {}))


def mapped(function: Callable[..., Any], axes: list[tuple[int | None, ...]], *arguments: Any) -> Any:
    """function over axes of its arguments; axes: of each argument, what torch.vmap takes, the outermost axis of the result first."""
    for dims in reversed(axes):
        function = torch.vmap(function, in_dims=dims)
    with Items():
        return function(*arguments)


def everywhere(function: Callable[..., Any], b: Tensor, h: Tensor, i: Tensor, j: Tensor, scores: Tensor | None = None) -> Tensor:
    """A score_mod of scores, or a mask_mod, for every entry, head, query and key of four vectors: [len(b), len(h), len(i), len(j)]."""
    first = () if scores is None else (0,)
    axes = [(*first, *(0 if axis == at else None for axis in range(4))) for at in range(4)]
    return mapped(function, axes, *([] if scores is None else [scores]), b, h, i, j)
