# SPDX-License-Identifier: MIT
"""Nested tensors of PyTorch, strided or jagged, as packed sequences and back.

A nested tensor here is [batch, tokens, ...], and only its tokens differ between the batch entries.  Packed are its values, [tokens of all
entries, ...], and starts, [batch + 1]: where each entry begins among them.
"""
from __future__ import annotations

import torch

Tensor = torch.Tensor


def fits(x: Tensor, dims: int) -> bool:
    """Is this a nested tensor of so many axes of which only the tokens differ?"""
    if not (x.is_nested and x.dim() == dims and x.size(0)):
        return False
    if x.layout is torch.jagged:
        return getattr(x, "_ragged_idx", 0) == 1
    sizes = x._nested_tensor_size()  # type: ignore[attr-defined]
    return bool((sizes[:, 1:] == sizes[:1, 1:]).all())


def packed(x: Tensor) -> tuple[Tensor, Tensor]:
    """The values and starts of a nested tensor that fits."""
    x = x.contiguous()
    if x.layout is torch.jagged:
        return x.values(), x.offsets().long()  # type: ignore[attr-defined]
    sizes = x._nested_tensor_size()  # type: ignore[attr-defined]
    return x.values().view(-1, *sizes[0, 1:].tolist()), torch.nn.functional.pad(sizes[:, 0].cumsum(0), (1, 0))


def nested(values: Tensor, starts: Tensor, like: Tensor) -> Tensor:
    """Packed values as a nested tensor of the layout of another, whose tokens they are."""
    if like.layout is torch.jagged:
        return torch.nested.nested_tensor_from_jagged(values, like.contiguous().offsets())  # type: ignore[attr-defined]
    if values.requires_grad:  # the gradient of a view of a buffer is wrong where what comes back has other strides
        return torch.nested.as_nested_tensor(list(values.split(starts.diff().tolist())))
    batch, rest = starts.shape[0] - 1, torch.tensor(values.shape[1:])
    sizes = torch.cat([starts.diff()[:, None], rest.expand(batch, -1)], 1)
    strides = torch.tensor(values.new_empty(1, *values.shape[1:]).stride()).expand(batch, -1).contiguous()
    return torch._nested_view_from_buffer(values.contiguous().view(-1), sizes, strides, starts[:-1] * rest.prod())


def padded(values: Tensor, starts: Tensor) -> Tensor:
    """Packed values as [batch, most tokens, ...], with zeros behind."""
    there = present(starts)
    return values.new_zeros(*there.shape, *values.shape[1:]).index_put((there,), values)


def present(starts: Tensor) -> Tensor:
    """[batch, most tokens]: the places that have a token."""
    lengths = starts.diff()
    return torch.arange(int(lengths.max())) < lengths[:, None]
