# SPDX-License-Identifier: MIT
"""PyTorch's context parallelism (torch.distributed.tensor.experimental) on CPUs: the same interface."""
from __future__ import annotations

import contextlib
import threading
from types import NoneType
from typing import Any, Iterable, Iterator, Sequence

import torch

from .._arguments import integer
from ._agree import same, together
from ._attention import attention
from ._groups import transport_of
from ._split import Split, shard, unshard
from ._transport import Transport

Tensor = torch.Tensor


def paired(buffers: Any, dims: Any, name: str) -> tuple[list[Tensor], list[int]]:
    """Both as lists, of as many; `name` is that of dims."""
    for given, what, of in ((buffers, "buffers", "tensors"), (dims, name, "numbers")):
        if isinstance(given, (str, Tensor)) or not isinstance(given, Iterable):
            raise TypeError(f"{what} is of type {type(given).__name__}; it must be a list of {of}")
    buffers, dims = list(buffers), list(dims)
    if len(buffers) != len(dims):
        raise ValueError(f"{name} has {len(dims)} numbers and buffers {len(buffers)} tensors; they go together")
    for n, buffer in enumerate(buffers):
        if not isinstance(buffer, Tensor):
            raise TypeError(f"buffer {n} is of type {type(buffer).__name__}; it must be a torch.Tensor")
    return buffers, [integer(dim, f"{name}[{n}]") for n, dim in enumerate(dims)]


def cut(buffers: Sequence[Tensor], dims: Sequence[int], how: dict[str, Any]) -> list[Tensor]:
    """The rank's rows of buffers, which are tensors of their own."""
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
def _replaced(buffers: Sequence[Any], others: Sequence[Tensor], kept: Sequence[Tensor]) -> Iterator[None]:
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


def _arguments(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False,
) -> dict[str, Any]:
    """Those of F.scaled_dot_product_attention as distributed.attention has them."""
    for name, x in (("query", query), ("key", key), ("value", value), *((("attn_mask", attn_mask),) if attn_mask is not None else ())):
        if not isinstance(x, Tensor):
            raise TypeError(f"{name} is of type {type(x).__name__}; it must be a torch.Tensor")
    if not enable_gqa and query.dim() > 2 and query.dim() == key.dim() and query.shape[-3] != key.shape[-3]:
        raise ValueError(f"query has {query.shape[-3]} heads and key {key.shape[-3]}; pass enable_gqa=True")
    found: dict[str, Any] = {"q": query, "k": key, "v": value, "causal": "top-left" if is_causal else False, "scale": scale, "dropout": dropout_p}
    if attn_mask is not None:
        found["mask" if attn_mask.dtype == torch.bool else "bias"] = attn_mask
    return found


def _reject(transport: Transport, error: Exception) -> None:
    """Raises the error on all ranks, of which the others are about to agree about a call."""

    def wrong() -> None:
        raise error

    together(transport, wrong, lambda _: {})


@contextlib.contextmanager
def context(buffers: Any, dims: Any, kept: Any, how: dict[str, Any], ways: dict[str, Any]) -> Iterator[None]:
    """distributed.context_parallel."""
    transport = transport_of(how["group"])

    def scaled_dot_product_attention(*arguments: Any, **keywords: Any) -> Any:
        seen: dict[str, Any] = {}
        try:
            seen = _arguments(*arguments, **keywords)
        except Exception as error:
            _reject(transport, TypeError(str(error).replace("_arguments", "scaled_dot_product_attention")) if type(error) is TypeError else error)
        return attention(**seen, **ways, **how)

    def enter() -> tuple[list[Tensor], list[int], list[Tensor], list[Tensor], Split]:
        whole, axes = paired([] if buffers is None else buffers, [] if dims is None else dims, "buffer_seq_dims")
        if isinstance(kept, Tensor) or not isinstance(kept, (Iterable, NoneType)):
            raise TypeError(f"no_restore_buffers is of type {type(kept).__name__}; it must be a set of tensors")
        those: list[Tensor] = [] if kept is None else list(kept)
        for one in those:
            if not any(one is buffer for buffer in whole):
                raise ValueError("no_restore_buffers has a tensor that is not among buffers")
        split = Split(how["layout"], how["part"], ways["way"], ways["ranks_heads"])
        return whole, axes, those, cut(whole, axes, how), split

    (whole, _, those, mine, _), said = together(
        transport, enter, lambda found: {"asked": {**found[4].asked, "buffer_seq_dims": ", ".join(map(str, found[1]))}})
    same(said)
    with _replaced(whole, mine, those), _instead(scaled_dot_product_attention):
        yield


def unshard_all(buffers: Any, dims: Any, how: dict[str, Any]) -> list[Tensor]:
    """distributed.context_parallel_unshard."""
    (parts, axes), said = together(
        transport_of(how["group"]), lambda: paired(buffers, dims, "seq_dims"), lambda found: {"asked": {"seq_dims": ", ".join(map(str, found[1]))}})
    same(said)
    return [unshard(part, axis, **how) for part, axis in zip(parts, axes)]
