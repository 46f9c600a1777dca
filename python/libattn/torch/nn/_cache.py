# SPDX-License-Identifier: MIT
"""Keys and values of sequences that grow, as tensors."""
from __future__ import annotations

from typing import Any

import torch

from .._attention import attention
from ._scores import check_lengths

Tensor = torch.Tensor


class Cache:
    """Memory for the keys and values of `batch` sequences of up to `capacity` tokens each, for decoding: what a module's cache() makes
    and its forward appends to.  What is computed with a cache has no gradient.

    keys      [batch, heads, capacity, dim]
    values    [batch, heads, capacity, dim_v]; of latent attention the first channels of keys
    lengths   [batch] of int64: tokens of each sequence.  Set its elements to forget the last ones
    """

    def __init__(self, keys: Tensor, values: Tensor, lengths: Tensor | None = None) -> None:
        self.keys: Tensor = keys
        self.values: Tensor = values
        self.lengths: Tensor = torch.zeros(keys.shape[0], dtype=torch.int64) if lengths is None else lengths
        self._shared = values.data_ptr() == keys.data_ptr() and keys.numel() > 0

    @classmethod
    def empty(cls, batch: int, heads: int, capacity: int, dim: int, dim_v: int | None = None, *, dtype: torch.dtype | None = None) -> Cache:
        """A cache without tokens, in new memory."""
        shape = (batch, heads, capacity)
        return cls(torch.zeros(*shape, dim, dtype=dtype), torch.zeros(*shape, dim if dim_v is None else dim_v, dtype=dtype))

    def __getstate__(self) -> dict[str, Any]:
        """(pickle would copy memory that keys and values share.)"""
        return self.__dict__ | ({"values": self.values.shape[3]} if self._shared else {})

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self._shared:
            self.values = self.keys[..., :state["values"]]

    def __repr__(self) -> str:
        batch, heads, capacity, _ = self.keys.shape
        return f"<Cache of {batch} x {heads} heads, capacity {capacity}, lengths {self.lengths.tolist()}>"

    def positions(self, tokens: int) -> Tensor:
        """[batch, tokens]: the positions of tokens that would be appended."""
        return self.lengths[:, None] + torch.arange(tokens)

    def check(self, x: Tensor) -> None:
        """Has x [batch, tokens, channels] the batch of the cache?  Else ValueError."""
        if x.shape[0] != self.keys.shape[0]:
            raise ValueError(f"x has {x.shape[0]} batch entries, and the cache {self.keys.shape[0]}")

    @torch.no_grad()
    def append(self, keys: Tensor, values: Tensor | None = None, lengths: Tensor | None = None) -> Tensor:
        """Appends tokens [batch, heads, tokens, dim]; lengths [batch]: how many of them are real, None: all.  Returns the lengths before.

        Raises ValueError if shapes differ or the capacity does not suffice, and TypeError for what are no integers, with the cache as it
        was.
        """
        for name, x, kept in (("keys", keys, self.keys), ("values", values, self.values)):
            if x is None:
                continue
            if x.dim() != 4 or x.shape[:2] != kept.shape[:2] or x.shape[3] != kept.shape[3] or x.shape[2] != keys.shape[2]:
                have, want = list(x.shape), list(kept.shape)
                raise ValueError(f"{name} has shape {have}, and the cache {want}; batch, heads and channels must agree")
        before, count = self.lengths.clone(), keys.shape[2]
        if lengths is not None:
            check_lengths(lengths, before.shape[0])
        more = torch.full_like(before, count) if lengths is None else lengths.to(torch.int64)
        if bool((more < 0).any()) or bool((more > count).any()):
            raise ValueError(f"lengths is {more.tolist()}; it must have {before.shape[0]} numbers between 0 and {count}")
        if bool((before + more > self.keys.shape[2]).any()):
            raise ValueError(f"{count} tokens after {before.tolist()} do not fit into a cache of capacity {self.keys.shape[2]}")
        entry, token = (torch.arange(count) < more[:, None]).nonzero(as_tuple=True)
        place = before[entry] + token
        self.keys[entry, :, place] = keys[entry, :, token].to(self.keys.dtype)
        if values is not None and not self._shared:
            self.values[entry, :, place] = values[entry, :, token].to(self.values.dtype)
        self.lengths += more
        return before

    def arguments(self, before: Tensor) -> dict[str, Any]:
        """Keywords of libattn.torch.attention for queries that stand from position before[b] on."""
        return {"lengths_kv": self.lengths, "offset_q": before}


def check_cache(cache: Any, x: Tensor) -> None:
    """Is this a cache, with the batch of x [batch, tokens, channels]?"""
    if not isinstance(cache, Cache):
        raise TypeError(f"cache is of type {type(cache).__name__}; it must be what cache() of the module makes")
    cache.check(x)


def attend(cache: Cache, q: Tensor, keys: Tensor, values: Tensor | None, lengths: Tensor | None, **options: Any) -> Tensor:
    """Attention over the cache, after these tokens are appended to it; values None: they are the first channels of keys.  If it raises,
    the cache is as it was."""
    before = cache.append(keys, values, lengths)
    try:
        k = cache.keys.to(q.dtype)
        v = k[..., :cache.values.shape[3]] if values is None else cache.values.to(q.dtype)
        return attention(q, k, v, **cache.arguments(before), **options)
    except BaseException:
        cache.lengths.copy_(before)
        raise
