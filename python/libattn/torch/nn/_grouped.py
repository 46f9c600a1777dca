# SPDX-License-Identifier: MIT
"""GroupedQueryAttention: the attention of today's language models."""
from __future__ import annotations

from typing import Any, Unpack

import torch

from .._attention import attention
from ._cache import Cache, attend, check_cache
from ._scores import ScoreOptions, Scores, check_input, check_lengths, join_heads, key_mask, multiple, pair_mask, split_heads

Tensor = torch.Tensor


class GroupedQueryAttention(Scores):
    """Attention in which groups of query heads share a head of keys and values (Ainslie et al. 2023); one such head is multi-query
    attention (Shazeer 2019).

    embed_dim       channels of the input and of the result
    num_heads       heads of queries
    num_kv_heads    heads of keys and values, of which num_heads is a multiple; None: num_heads
    head_dim        channels of a head; None: embed_dim / num_heads
    causal          a token sees itself and those before it
    bias, out_bias  q_proj, k_proj and v_proj have biases; o_proj has one
    dropout         probability that a weight is dropped in training
    kdim            channels of a context; None: embed_dim
    options         ScoreOptions: rope, window, softcap, sinks, qk_norm, ...

    Parameters have the names of Llama, Qwen 3 and gpt-oss: q_proj.weight, k_proj.weight, v_proj.weight, o_proj.weight, their biases, and
    of options q_norm.weight, k_norm.weight and sinks.

        >>> layer = libattn.torch.nn.GroupedQueryAttention(512, 8, 2, rope=libattn.positions.Rope(pairs="halves", base=500000))
        >>> y = layer(torch.rand(1, 100, 512))
        >>> cache = layer.cache(batch=1, capacity=200)          # token by token
        >>> y = layer(torch.rand(1, 100, 512), cache=cache)     # first the prompt
        >>> y = layer(torch.rand(1, 1, 512), cache=cache)
    """

    def __init__(
        self, embed_dim: int, num_heads: int, num_kv_heads: int | None = None, *, head_dim: int | None = None, causal: bool = True,
        bias: bool = False, out_bias: bool = False, dropout: float = 0.0, kdim: int | None = None, device: Any = None,
        dtype: torch.dtype | None = None, **options: Unpack[ScoreOptions],
    ) -> None:
        if head_dim is None:
            head_dim = multiple(embed_dim, "embed_dim", num_heads, "num_heads")
        kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        multiple(num_heads, "num_heads", kv_heads, "num_kv_heads")
        kind: dict[str, Any] = {"device": device, "dtype": dtype}
        super().__init__(num_heads, head_dim, options, **kind)
        self.embed_dim: int = embed_dim
        self.num_heads: int = num_heads
        self.num_kv_heads: int = kv_heads
        self.head_dim: int = head_dim
        self.kdim: int = embed_dim if kdim is None else kdim
        self.causal: bool = causal
        self.dropout: float = dropout
        self.q_proj: torch.nn.Linear = torch.nn.Linear(embed_dim, num_heads * head_dim, bias=bias, **kind)
        self.k_proj: torch.nn.Linear = torch.nn.Linear(self.kdim, kv_heads * head_dim, bias=bias, **kind)
        self.v_proj: torch.nn.Linear = torch.nn.Linear(self.kdim, kv_heads * head_dim, bias=bias, **kind)
        self.o_proj: torch.nn.Linear = torch.nn.Linear(num_heads * head_dim, embed_dim, bias=out_bias, **kind)

    def extra_repr(self) -> str:
        more = super().extra_repr()
        return f"{self.embed_dim}, {self.num_heads}, {self.num_kv_heads}, causal={self.causal}" + (f", {more}" if more else "")

    def cache(self, batch: int, capacity: int, *, dtype: torch.dtype | None = None) -> Cache:
        """An empty cache for forward: capacity tokens of each of `batch` sequences, by default of the type of the weights."""
        kind = self.k_proj.weight.dtype if dtype is None else dtype
        return Cache.empty(batch, self.num_kv_heads, capacity, self.head_dim, dtype=kind)

    def forward(
        self, x: Tensor, context: Tensor | None = None, *, key_padding_mask: Tensor | None = None, attn_mask: Tensor | None = None,
        positions: Tensor | None = None, cache: Cache | None = None, lengths: Tensor | None = None,
    ) -> Tensor:
        """[batch, tokens, embed_dim], of x's type.

        x                 [batch, tokens, embed_dim]
        context           [batch, keys, kdim]: what keys and values are made of; None: x
        key_padding_mask  [batch, keys] of booleans: True where a key is left out.  Keys are those of x or of the context; with a cache,
                          as many as its capacity, here and below
        attn_mask         floats that are added to the scores, which may have a gradient, or booleans, True where a query sees a key, as
                          in F.scaled_dot_product_attention: [batch, num_heads, tokens, keys], or what broadcasts to it
        positions         [tokens] or [batch, tokens]: positions of x for the rope; None: 0, 1, 2 ..., or what the cache says
        cache             cache(): x is appended to it and sees all of it that is causal; the result has no gradient
        lengths           [batch]: how many of the tokens are real, None: all; rows past them are those of zeros

        Raises ValueError for shapes and TypeError for types and devices, with a sentence that names the argument.
        """
        check_input(x, "x", self.o_proj.weight, self.embed_dim, "[batch, tokens, channels]")
        source = x if context is None else check_input(context, "context", self.o_proj.weight, self.kdim, "[batch, keys, channels]")
        if context is None and self.kdim != self.embed_dim:
            raise ValueError(f"context is missing; keys have {self.kdim} channels, and x {self.embed_dim}")
        if source.shape[0] != x.shape[0]:
            raise ValueError(f"context has {source.shape[0]} batch entries, and x {x.shape[0]}")
        if cache is not None and context is not None:
            raise ValueError("cache is set, and context: a cache is for self-attention")
        if lengths is not None:
            check_lengths(lengths, x.shape[0])
        if cache is not None:
            check_cache(cache, x)
            if torch.is_grad_enabled():
                with torch.no_grad():
                    return self(
                        x, key_padding_mask=key_padding_mask, attn_mask=attn_mask, positions=positions, cache=cache, lengths=lengths)
        q = split_heads(self.q_proj(x), self.num_heads)
        k, v = (split_heads(f(source), self.num_kv_heads) for f in (self.k_proj, self.v_proj))
        if cache is not None and positions is None:
            positions = cache.positions(x.shape[1])
        q, k = self.prepare(q, k, positions, positions if context is None else None)
        keys = k.shape[2] if cache is None else cache.keys.shape[2]
        padding = key_mask(key_padding_mask, "key_padding_mask", x.shape[0], keys)
        mask, bias = pair_mask(attn_mask, "attn_mask", (x.shape[0], self.num_heads, x.shape[1], keys))
        if padding is not None:
            mask = padding if mask is None else mask & padding
        options: dict[str, Any] = self.arguments() | {
            "causal": self.causal, "mask": mask, "bias": bias, "dropout": self.dropout if self.training else 0.0}
        if lengths is not None:
            options["lengths_q"] = lengths
        if cache is not None:
            o = attend(cache, q, k, v, lengths, **options)
        else:
            if lengths is not None and context is None:
                options.update(lengths_kv=lengths, offset_q=torch.zeros_like(lengths))
            o = attention(q, k, v, **options)
        return self.o_proj(join_heads(o))
