# SPDX-License-Identifier: MIT
"""LatentAttention: multi-head latent attention."""
from __future__ import annotations

from typing import Any

import torch

from ...positions import Rope
from .._attention import attention
from ._cache import Cache, attend, check_cache
from ._rotary import Rotary
from ._scores import check_input, join_heads, key_mask, split_heads

Tensor = torch.Tensor


class LatentAttention(torch.nn.Module):
    """Multi-head latent attention (DeepSeek-AI 2024, "DeepSeek-V2", section 2.1): keys and values of all heads come from one short vector
    per token, its latent, which is all that a cache keeps.  With x the input, for every head h,

        c_j  = kv_a_layernorm(kv_a_proj_with_mqa(x_j)[:kv_lora_rank])      r_j = rope(kv_a_proj_with_mqa(x_j)[kv_lora_rank:])
        k_jh = the first qk_nope_head_dim channels of kv_b_proj(c_j)_h, then r_j       v_jh = the others
        q_ih = q_b_proj(q_a_layernorm(q_a_proj(x_i)))_h, or q_proj(x_i)_h; its last qk_rope_head_dim channels rotated

    embed_dim, num_heads    channels of the input and of the result, and heads
    kv_lora_rank            channels of a latent
    q_lora_rank             channels of a latent for queries; None: none
    qk_nope_head_dim, qk_rope_head_dim, v_head_dim
                            channels of a head for content and for position, and of a value; None for the last: qk_nope_head_dim
    rope                    libattn.positions.Rope of the qk_rope_head_dim channels; None: interleaved pairs, base 10000
    scale                   of the scores; None: 1/sqrt(qk_nope_head_dim + qk_rope_head_dim)
    causal, dropout         as in GroupedQueryAttention
    norm_epsilon            of the norms

    Parameters have the names of DeepSeek's models: q_a_proj.weight, q_a_layernorm.weight, q_b_proj.weight (or q_proj.weight),
    kv_a_proj_with_mqa.weight, kv_a_layernorm.weight, kv_b_proj.weight, o_proj.weight.

        >>> layer = libattn.torch.nn.LatentAttention(512, 8, kv_lora_rank=64, qk_nope_head_dim=64, qk_rope_head_dim=32)
        >>> cache = layer.cache(batch=1, capacity=200)          # 96 numbers for each token, not 1280
        >>> y = layer(torch.rand(1, 100, 512), cache=cache)
    """

    def __init__(
        self, embed_dim: int, num_heads: int, *, kv_lora_rank: int, qk_nope_head_dim: int, qk_rope_head_dim: int,
        v_head_dim: int | None = None, q_lora_rank: int | None = None, rope: Rope | None = None, scale: float | None = None,
        causal: bool = True, dropout: float = 0.0, norm_epsilon: float = 1e-6, device: Any = None, dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        kind: dict[str, Any] = {"device": device, "dtype": dtype}
        self.embed_dim: int = embed_dim
        self.num_heads: int = num_heads
        self.kv_lora_rank: int = kv_lora_rank
        self.q_lora_rank: int | None = q_lora_rank
        self.qk_nope_head_dim: int = qk_nope_head_dim
        self.qk_rope_head_dim: int = qk_rope_head_dim
        self.v_head_dim: int = qk_nope_head_dim if v_head_dim is None else v_head_dim
        self.scale: float = (qk_nope_head_dim + qk_rope_head_dim) ** -0.5 if scale is None else scale
        self.causal: bool = causal
        self.dropout: float = dropout
        self.rotary: Rotary = Rotary(Rope() if rope is None else rope, qk_rope_head_dim)
        width = num_heads * (qk_nope_head_dim + qk_rope_head_dim)

        def linear(source: int, target: int) -> torch.nn.Linear:
            return torch.nn.Linear(source, target, bias=False, **kind)

        def norm(size: int) -> torch.nn.RMSNorm:
            return torch.nn.RMSNorm(size, eps=norm_epsilon, **kind)

        self.q_proj: torch.nn.Linear | None = linear(embed_dim, width) if q_lora_rank is None else None
        self.q_a_proj: torch.nn.Linear | None = None if q_lora_rank is None else linear(embed_dim, q_lora_rank)
        self.q_a_layernorm: torch.nn.RMSNorm | None = None if q_lora_rank is None else norm(q_lora_rank)
        self.q_b_proj: torch.nn.Linear | None = None if q_lora_rank is None else linear(q_lora_rank, width)
        self.kv_a_proj_with_mqa: torch.nn.Linear = linear(embed_dim, kv_lora_rank + qk_rope_head_dim)
        self.kv_a_layernorm: torch.nn.RMSNorm = norm(kv_lora_rank)
        self.kv_b_proj: torch.nn.Linear = linear(kv_lora_rank, num_heads * (qk_nope_head_dim + self.v_head_dim))
        self.o_proj: torch.nn.Linear = linear(num_heads * self.v_head_dim, embed_dim)

    def cache(self, batch: int, capacity: int, *, dtype: torch.dtype | None = None) -> Cache:
        """An empty cache of latents for forward: one head of kv_lora_rank + qk_rope_head_dim channels, by default of the type of the
        weights."""
        width, kind = self.kv_lora_rank + self.qk_rope_head_dim, self.o_proj.weight.dtype if dtype is None else dtype
        latents = torch.zeros(batch, 1, capacity, width, dtype=kind)
        return Cache(latents, latents[..., :self.kv_lora_rank])

    def forward(
        self, x: Tensor, *, key_padding_mask: Tensor | None = None, positions: Tensor | None = None, cache: Cache | None = None,
        lengths: Tensor | None = None,
    ) -> Tensor:
        """[batch, tokens, embed_dim], of x's type.

        x                 [batch, tokens, embed_dim]
        key_padding_mask  [batch, tokens] of booleans: True where a key is left out; without a cache
        positions         [tokens] or [batch, tokens]; None: 0, 1, 2 ..., or what the cache says
        cache             cache(): latents of x are appended to it, and x sees all of it that is causal; the result has no gradient.
                          Keys and values of the heads are never formed: q.k_jh = (K_h^T q).c_j + q_rotated.r_j, and
                          sum_j w_j v_jh = V_h sum_j w_j c_j (ibid., appendix C)
        lengths           [batch]: how many of the tokens are real, with a cache; None: all

        Raises ValueError for shapes and TypeError for types and devices, with a sentence that names the argument.
        """
        check_input(x, "x", self.o_proj.weight, self.embed_dim, "[batch, tokens, channels]")
        for name, other in (("key_padding_mask", key_padding_mask), ("lengths", lengths)):
            if other is not None and (cache is None) == (name == "lengths"):
                raise ValueError(f"{name} is set, which is for a call {'with' if cache is None else 'without'} a cache")
        if cache is not None:
            check_cache(cache, x)
            if torch.is_grad_enabled():
                with torch.no_grad():
                    return self(x, positions=positions, cache=cache, lengths=lengths)
            positions = cache.positions(x.shape[1]) if positions is None else positions
        nope = self.qk_nope_head_dim
        q = split_heads(self._queries(x), self.num_heads)
        content, turned = q[..., :nope], self.rotary(q[..., nope:], positions)
        down = self.kv_a_proj_with_mqa(x)
        latent = self.kv_a_layernorm(down[..., :self.kv_lora_rank])
        shared = self.rotary(down[..., None, :, self.kv_lora_rank:], positions)
        options: dict[str, Any] = {"causal": self.causal, "scale": self.scale, "dropout": self.dropout if self.training else 0.0}
        if cache is None:
            up = split_heads(self.kv_b_proj(latent), self.num_heads)
            k = torch.cat([up[..., :nope], shared.expand(-1, self.num_heads, -1, -1)], -1)
            mask = key_mask(key_padding_mask, "key_padding_mask", x.shape[0], x.shape[1])
            o = attention(torch.cat([content, turned], -1), k, up[..., nope:], mask=mask, **options)
            return self.o_proj(join_heads(o))
        up = self.kv_b_proj.weight.unflatten(0, (self.num_heads, nope + self.v_head_dim))
        q = torch.cat([content @ up[:, :nope], turned], -1)
        o = attend(cache, q, torch.cat([latent[:, None], shared], -1), None, lengths, **options)
        return self.o_proj(join_heads(o @ up[:, nope:].transpose(-1, -2)))

    def _queries(self, x: Tensor) -> Tensor:
        if self.q_proj is not None:
            return self.q_proj(x)
        assert self.q_a_proj is not None and self.q_a_layernorm is not None and self.q_b_proj is not None
        return self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x)))
