# SPDX-License-Identifier: MIT
"""PyTorch's context parallelism (torch.distributed.tensor.experimental) on CPUs: the same interface."""
from __future__ import annotations

import contextlib
import threading
from typing import Any, Iterator, Sequence

import torch

from ._agree import same, together
from ._attention import attention
from ._groups import transport_of
from ._split import shard, unshard
from ._transport import Transport

Tensor = torch.Tensor


def cut(buffers: Sequence[Tensor], dims: Sequence[int], how: dict[str, Any]) -> list[Tensor]:
    """The rank's rows of buffers, which are tensors of their own."""
    if len(buffers) != len(dims):
        raise ValueError(f"buffer_seq_dims has {len(dims)} numbers and buffers {len(buffers)} tensors; they go together")
    for n, buffer in enumerate(buffers):
        if buffer.requires_grad:
            raise ValueError(f"buffer {n} requires a gradient, which would be that of other rows; pass distributed.shard(buffer, ...) to the model")
    return [shard(buffer.detach(), dim, **how).clone() for buffer, dim in zip(buffers, dims)]


# ---- F.scaled_dot_product_attention, of each thread

_here = threading.local()  # .stack: the functions of the contexts that this thread is in
_lock = threading.Lock()
_outside: list[Any] = []  # while there are contexts: PyTorch's function, whether it has its fast path, and how many there are


def _of_thread(*arguments: Any, **keywords: Any) -> Any:
    stack = getattr(_here, "stack", [])
    return (stack[-1] if stack else [*_outside, torch.nn.functional.scaled_dot_product_attention][0])(*arguments, **keywords)


@contextlib.contextmanager
def _instead(function: Any) -> Iterator[None]:
    """Within, F.scaled_dot_product_attention is `function` in this thread."""
    functional: Any = torch.nn.functional
    _here.stack = [*getattr(_here, "stack", []), function]
    with _lock:
        if not _outside:
            _outside[:] = functional.scaled_dot_product_attention, torch.backends.mha.get_fastpath_enabled(), 0
            functional.scaled_dot_product_attention = _of_thread
            torch.backends.mha.set_fastpath_enabled(False)  # which goes round it
        _outside[2] += 1
    try:
        yield
    finally:
        _here.stack = _here.stack[:-1]
        with _lock:
            _outside[2] -= 1
            if not _outside[2]:
                functional.scaled_dot_product_attention = _outside[0]
                torch.backends.mha.set_fastpath_enabled(_outside[1])
                _outside.clear()


@contextlib.contextmanager
def _replaced(buffers: Sequence[Any], others: Sequence[Tensor], kept: set[Tensor]) -> Iterator[None]:
    """Within, buffers have the memory of others; theirs is not touched."""
    before, complete = [buffer.detach() for buffer in buffers], False
    try:
        with torch.no_grad():
            for buffer, other in zip(buffers, others):
                buffer.set_(other)
        complete = True
        yield
    finally:
        with torch.no_grad():
            for buffer, old in reversed(list(zip(buffers, before))):
                if not complete or not any(buffer is one for one in kept):
                    buffer.set_(old)


def _reject(transport: Transport, sentence: str) -> None:
    """Raises ValueError on all ranks, of which the others are about to agree about a call."""

    def wrong() -> None:
        raise ValueError(sentence)

    together(transport, wrong, lambda _: {})


@contextlib.contextmanager
def context(
    buffers: Sequence[Tensor], dims: Sequence[int], kept: set[Tensor], how: dict[str, Any], ways: dict[str, Any],
) -> Iterator[None]:
    """distributed.context_parallel."""

    def scaled_dot_product_attention(
        query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0, is_causal: bool = False,
        scale: float | None = None, enable_gqa: bool = False,
    ) -> Any:
        if not enable_gqa and query.dim() > 2 and query.shape[-3] != key.shape[-3]:
            _reject(transport, f"query has {query.shape[-3]} heads and key {key.shape[-3]}; pass enable_gqa=True")
        seen: dict[str, Any] = {"causal": "top-left" if is_causal else False, "scale": scale, "dropout": dropout_p}
        if attn_mask is not None:
            seen["mask" if attn_mask.dtype == torch.bool else "bias"] = attn_mask
        return attention(query, key, value, **ways, **how, **seen)

    def enter() -> list[Tensor]:
        for one in kept:
            if not any(one is buffer for buffer in buffers):
                raise ValueError("no_restore_buffers has a tensor that is not among buffers")
        return cut(buffers, dims, how)

    asked = {"layout": str(how["layout"]), "part": str(how["part"]), "buffer_seq_dims": ", ".join(map(str, dims))}
    transport = transport_of(how["group"])
    mine, said = together(transport, enter, lambda _: {"asked": asked})
    same(said)
    with _replaced(buffers, mine, kept), _instead(scaled_dot_product_attention):
        yield


def unshard_all(buffers: Sequence[Tensor], dims: Sequence[int], how: dict[str, Any]) -> list[Tensor]:
    """distributed.context_parallel_unshard."""
    if len(buffers) != len(dims):
        _reject(transport_of(how["group"]), f"seq_dims has {len(dims)} numbers and buffers {len(buffers)} tensors; they go together")
    return [unshard(buffer, dim, **how) for buffer, dim in zip(buffers, dims)]
