# SPDX-License-Identifier: MIT
"""PyTorch's context parallelism (torch.distributed.tensor.experimental) on CPUs: the same interface."""
from __future__ import annotations

import contextlib
from typing import Any, Iterator, Sequence

import torch

from ._attention import attention
from ._split import shard, unshard

Tensor = torch.Tensor


def cut(buffers: Sequence[Tensor], dims: Sequence[int], how: dict[str, Any]) -> list[Tensor]:
    """The rank's rows of buffers, which are tensors of their own."""
    if len(buffers) != len(dims):
        raise ValueError(f"buffer_seq_dims has {len(dims)} numbers and buffers {len(buffers)} tensors; they go together")
    return [shard(buffer.detach(), dim, **how).clone() for buffer, dim in zip(buffers, dims)]


@contextlib.contextmanager
def context(
    buffers: Sequence[Tensor], dims: Sequence[int], kept: set[Tensor], how: dict[str, Any], way: Any,
) -> Iterator[None]:
    """distributed.context_parallel."""

    def scaled_dot_product_attention(
        query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0, is_causal: bool = False,
        scale: float | None = None, enable_gqa: bool = False,
    ) -> Any:
        if not enable_gqa and query.dim() > 2 and query.shape[-3] != key.shape[-3]:
            raise ValueError(f"query has {query.shape[-3]} heads and key {key.shape[-3]}; pass enable_gqa=True")
        seen: dict[str, Any] = {"causal": "top-left" if is_causal else False, "scale": scale, "dropout": dropout_p}
        if attn_mask is not None:
            seen["mask" if attn_mask.dtype == torch.bool else "bias"] = attn_mask
        return attention(query, key, value, way=way, **how, **seen)

    for one in kept:
        if not any(one is buffer for buffer in buffers):
            raise ValueError("no_restore_buffers has a tensor that is not among buffers")
    mine = cut(buffers, dims, how)
    whole = [None if any(buffer is one for one in kept) else buffer.detach().clone() for buffer in buffers]
    functional: Any = torch.nn.functional
    theirs, fast = functional.scaled_dot_product_attention, torch.backends.mha.get_fastpath_enabled()
    with torch.no_grad():
        for buffer, own in zip(buffers, mine):
            buffer.resize_(own.shape)
            buffer.copy_(own)
    functional.scaled_dot_product_attention = scaled_dot_product_attention
    torch.backends.mha.set_fastpath_enabled(False)  # which goes round it
    try:
        yield
    finally:
        functional.scaled_dot_product_attention = theirs
        torch.backends.mha.set_fastpath_enabled(fast)
        with torch.no_grad():
            for buffer, old in zip(buffers, whole):
                if old is not None:
                    buffer.resize_(old.shape)
                    buffer.copy_(old)


def unshard_all(buffers: Sequence[Tensor], dims: Sequence[int], how: dict[str, Any]) -> list[Tensor]:
    """distributed.context_parallel_unshard."""
    if len(buffers) != len(dims):
        raise ValueError(f"seq_dims has {len(dims)} numbers and buffers {len(buffers)} tensors; they go together")
    return [unshard(buffer, dim, **how) for buffer, dim in zip(buffers, dims)]
