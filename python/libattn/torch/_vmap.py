# SPDX-License-Identifier: MIT
"""torch.vmap: one call with a larger batch where that computes the same, else one call for each entry."""
from __future__ import annotations

from typing import Any, Callable

import torch

from ._shim import AT, NAMES, OPS, WANTS

# Options that have a batch axis, and how many axes a tensor has that has all of them.
BATCHED = {"mask": 4, "bias": 4, "ranges": 4, "block_mask": 4, "lengths_q": 1, "lengths_kv": 1, "offset_q": 1}
# Where q is, by where options begin: in attention, its backward, its tangent, its double backward.
Q = {3: 0, 8: 2, 9: 4, 11: 6}
LAYOUT, DROPOUT = AT["layout"], AT["dropout"]


def over_batches(
    call: Callable[..., Any], info: Any, dims: Any, arguments: Any, rows: int, options: int, bias: int | None = None,
) -> tuple[Any, Any]:
    """The rule for an operator whose first `rows` arguments have a batch axis, where options begin at `options`; `bias`: the argument
    that is the tangent of the bias."""
    size = info.batch_size
    moved = [x.movedim(d, 0) if d is not None else x for x, d in zip(arguments, dims, strict=True)]
    fold = _folded(size, moved, dims, rows, options, bias)
    if fold is None:
        found = [call(*[x[i] if d is not None else x for x, d in zip(moved, dims, strict=True)]) for i in range(size)]
        whole = tuple(torch.stack(parts) for parts in zip(*found, strict=True))
    else:
        ndim, batch, folded = fold
        whole = tuple(_unfolded(x, size, batch, ndim) for x in call(*folded))
    return whole, (0,) * len(whole)


def _folded(size: int, moved: list[Any], dims: Any, rows: int, options: int, bias: int | None) -> Any:
    """(axes of q, its batch, arguments of one call), or None."""
    mine, mine_dims = moved[options:options + len(NAMES)], dims[options:options + len(NAMES)]
    asked = options > 3 and any(mine[AT[name]] is not None for name in WANTS)  # sums over the batch
    if not size or asked or mine[LAYOUT] == 2 or mine[DROPOUT]:
        return None
    if bias is not None and moved[bias] is not None:
        return None
    for name, x, d in zip(NAMES, mine, mine_dims, strict=True):
        if name not in BATCHED and x is not None and (d is not None or (name == "alibi_slopes" and x.dim() == 2)):
            return None
    q = Q[options]
    ndim = moved[q].dim() - (dims[q] is not None)
    if ndim not in (3, 4):
        return None
    batch = moved[q].shape[-4] if ndim == 4 else 1
    folded = []
    for i, (x, d) in enumerate(zip(moved, dims, strict=True)):
        name = NAMES[i - options] if options <= i < options + len(NAMES) else None
        if not isinstance(x, torch.Tensor):
            folded.append(x)
        elif i < rows:
            folded.append(_join(x, d, size, batch, ndim))
        elif name in BATCHED:
            axes = x.dim() - (d is not None)
            if d is None and BATCHED[name] > 1 and (axes < BATCHED[name] or x.shape[0] == 1):
                folded.append(x)
            else:
                x = x if d is not None else x.expand(size, *x.shape)
                lead = BATCHED[name] - axes
                x = x.reshape(size, *([1] * lead), *x.shape[1:])
                folded.append(x.expand(size, batch, *x.shape[2:]).flatten(0, 1))
        else:
            folded.append(x)
    return ndim, batch, folded


def _join(x: Any, d: Any, size: int, batch: int, ndim: int) -> Any:
    """A tensor of rows with `size` times the batch."""
    x = x if d is not None else x.expand(size, *x.shape)
    return x if ndim == 3 else x.reshape(size * batch, *x.shape[2:])


def _unfolded(x: Any, size: int, batch: int, ndim: int) -> Any:
    if x.dim() == 1:  # was not requested
        return x.new_empty(size, 0)
    return x if ndim == 3 else x.reshape(size, batch, *x.shape[1:])


def _register(name: str, rows: int, options: int, bias: int | None = None) -> None:
    operator = getattr(OPS, name).default
    defaults = [argument.default_value if argument.has_default_value() else None for argument in operator._schema.arguments]

    def rule(info: Any, dims: Any, *arguments: Any) -> Any:
        more = len(defaults) - len(arguments)
        return over_batches(operator, info, (*dims, *[None] * more), (*arguments, *defaults[len(defaults) - more:]), rows, options, bias)

    torch.library.register_vmap(f"libattn::{name}", rule)


_register("attention", 3, 3)
_register("attention_backward", 7, 8)
_register("attention_jvp", 9, 9, bias=3)
_register("attention_double_backward", 11, 11, bias=5)
