# SPDX-License-Identifier: MIT
"""Multi-head latent attention (DeepSeek-AI 2024, "DeepSeek-V2", section 2.1): the keys and values of all heads come from one short vector
per token, which is all that a cache has to keep.  (The header attn/latent.h.)

    layer = latent.Latent.load("model.safetensors", "layers.0.", dim_model=5120, heads=128, head_dim=128, rank=512, dim_rotary=64)
    y = layer(x, causal=True)
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self, Unpack

import numpy as np

from . import _abi, _modules, _native
from ._arguments import integer, real
from ._blocks import BY_CHANNEL
from ._modules import Counts, Forward, Gradients, Module, Weight
from ._stored import channels, kind_of, zeros
from .cache import Cache
from .files import Archive, Path
from .layers import Options, check_rope, put_rope

__all__ = ["Counts", "Forward", "Gradients", "Latent", "Options"]


class Latent(Module):
    """A layer of latent attention.  With x the query input and z the key input (or x), for every head h,

        c_j   = norm(z_j down^T)[:rank]                         r_j = rope(z_j down^T)[rank:]
        k_jh  = (up_h^T c_j)[:head_dim], then r_j               v_jh = (up_h^T c_j)[head_dim:]
        q_ih  = query applied to x_i, or to norm(x_i query_down^T); its last dim_rotary channels rotated
        y     = output(attention(q, k, v))

     dim_model      channels of the inputs
     heads          a head has head_dim channels for content and dim_rotary for position; all heads share one rotated key
     head_dim       None: dim_model / heads, an integer
     head_dim_v     channels of a value; None: head_dim
     rank           channels of the latent; None: head_dim
     rank_query     channels of a latent for queries; 0: none
     dim_rotary     even; 0: no rotation
     dim_output     None: dim_model
     dtype          of inputs, weights and outputs: float32 or float64
     weights        by name, or None: none yet (initialise, load_weights)
     rope           libattn.positions.Rope of the dim_rotary channels; None: interleaved pairs, base 10000
     norm_epsilon   of the norms; None: 1e-6
     options        libattn.layers.Options; the scale is 1/sqrt(head_dim + dim_rotary) unless it is given

    Weights, matrices [out, in], dense, of the layer's type; the names in `weights`, with those in DeepSeek's model files:

        query_down   q_a_proj              [rank_query, dim_model], without a latent for queries absent
        query        q_b_proj or q_proj    [heads * (head_dim + dim_rotary), rank_query or dim_model]
        down         kv_a_proj_with_mqa    [rank + dim_rotary, dim_model]: the latent, then the rotated key
        up           kv_b_proj             [heads * (head_dim + head_dim_v), rank]: for each head its key, then its value
        output       o_proj                [dim_output, heads * head_dim_v]
        query_norm   q_a_layernorm         [rank_query]     if present, latents are divided by the root of their mean square and
        norm         kv_a_layernorm        [rank]           multiplied by these (Zhang and Sennrich 2019, "RMSNorm")

    What libattn.layers.Layer says of weights, copies and errors holds here.
    """

    _name = "latent"
    _functions = {
        "forward": "attn_latent_forward", "backward": "attn_latent_backward", "decode": "attn_latent_decode", "count": "attn_latent_count",
        "initialise": "attn_latent_initialise", "load": "attn_latent_load", "store": "attn_latent_store",
    }
    _inputs = ("query", "key", "value")

    def __init__(
        self, dim_model: int, heads: int, *, head_dim: int | None = None, head_dim_v: int | None = None, rank: int | None = None,
        rank_query: int = 0, dim_rotary: int = 0, dim_output: int | None = None, dtype: Any = np.float32,
        weights: Mapping[str, Any] | None = None, rope: Any = None, norm_epsilon: float | None = None, **options: Unpack[Options],
    ) -> None:
        self.dim_model: int = integer(dim_model, "dim_model", 1)
        self.heads: int = integer(heads, "heads", 1)
        if head_dim is None and self.dim_model % self.heads:
            raise ValueError(f"dim_model ({self.dim_model}) is not a multiple of heads ({self.heads}); set head_dim")
        self.head_dim: int = self.dim_model // self.heads if head_dim is None else integer(head_dim, "head_dim", 1)
        self.head_dim_v: int = self.head_dim if head_dim_v is None else integer(head_dim_v, "head_dim_v", 1)
        self.rank: int = self.head_dim if rank is None else integer(rank, "rank", 1)
        self.rank_query: int = integer(rank_query, "rank_query", 0)
        self.dim_rotary: int = integer(dim_rotary, "dim_rotary", 0)
        self.dim_output: int = self.dim_model if dim_output is None else integer(dim_output, "dim_output", 1)
        if self.dim_rotary % 2:
            raise ValueError(f"dim_rotary is {self.dim_rotary}; it must be even")
        self.rope: Any = check_rope(rope)
        self.norm_epsilon: float | None = None if norm_epsilon is None else real(norm_epsilon, "norm_epsilon")
        super().__init__(dtype, weights, options)

    @classmethod
    def load(cls, source: Archive | Path, prefix: str = "", *, dim_model: int, heads: int, dtype: Any = np.float32, **sizes: Any) -> Self:
        """A layer with the weights of a file or an archive: the names above, followed by ".weight", after `prefix`.  The other keywords
        are those of the class."""
        return cls(dim_model, heads, dtype=dtype, **sizes).load_weights(source, prefix)

    def __repr__(self) -> str:
        size = f"{self.head_dim} + {self.dim_rotary}" if self.dim_rotary else f"{self.head_dim}"
        weights = ", ".join(self.weights) or "none"
        return f"Latent({self.dim_model} channels, {self.heads} heads of {size}, rank {self.rank}, {self.dtype}, weights: {weights})"

    def __call__(self, query: Any, key: Any = None, *, out: Any = None, **options: Unpack[Options]) -> Any:
        """The output of forward."""
        return _modules.forward(self, (query, key), options, out, False, ()).output

    def forward(
        self, query: Any, key: Any = None, *, out: Any = None, saved: bool = False, outputs: Sequence[str] = (), positions_q: Any = None,
        positions_kv: Any = None, **options: Unpack[Options],
    ) -> Forward:
        """The layer over whole sequences: query [batch, len_q, dim_model], key [batch, len_kv, dim_model] or None: the query.  The rest is
        as in libattn.layers.Layer.forward.  Keys and values of all heads exist during the call; decode avoids this."""
        return _modules.forward(self, (query, key), options, out, saved, outputs, (positions_q, positions_kv))

    def backward(
        self, grad_output: Any, query: Any, key: Any = None, *, saved: Any = None, grads: Sequence[str] = (), grad_lse: Any = None,
        positions_q: Any = None, positions_kv: Any = None, **options: Unpack[Options],
    ) -> Gradients:
        """All gradients, as libattn.layers.Layer.backward has them."""
        return _modules.backward(self, grad_output, (query, key), options, saved, grads, grad_lse, (positions_q, positions_kv))

    def decode(
        self, cache: Cache, query: Any, key: Any = None, *, only_cached: bool = False, out: Any = None, outputs: Sequence[str] = (),
        **options: Unpack[Options],
    ) -> Any:
        """The next tokens of each entry, over a cache of latents (self.cache): of one head with rank + dim_rotary channels (c_j, then r_j),
        the first `rank` of which are the values, so that there is no memory for them.  Keys and values of the heads are never formed: with
        up_h^T = (K_h, V_h),

            q.k_jh = (K_h^T q).c_j + q_rotated.r_j        sum_j w_j v_jh = V_h sum_j w_j c_j

        so this is attention with one key head, with the same result up to rounding (ibid., appendix C).  The rest is as in
        libattn.layers.Layer.decode.
        """
        return _modules.decode(self, cache, (query, key), options, out, outputs, only_cached)

    def cache(self, batch: int, capacity: int, *, dtype: Any = None) -> Cache:
        """An empty cache for decode: capacity tokens of each of `batch` sequences, of float32, float16, bfloat16, or as cache.quantise names
        them, "i8", "f8_e4m3", "f8_e5m2", "q8_0", "q4_0" or "q4_1" (float64 for a layer of float64); None: of the layer's type.  Not
        "q4_1c", which is of keys alone (NotImplementedError)."""
        sizes = integer(batch, "batch", 0), integer(capacity, "capacity", 0)
        latents = zeros((sizes[0], 1, sizes[1], self.rank + self.dim_rotary), self.dtype if dtype is None else dtype)
        if kind_of(latents) == BY_CHANNEL:
            raise NotImplementedError(f"dtype is {BY_CHANNEL}, which is of keys alone, and a latent is also the value; q4_1 has as many bits")
        scales = np.zeros(latents.shape[:3], np.float32) if kind_of(latents) == "int8" else None
        return Cache(latents, channels(latents, self.rank), np.zeros(sizes[0], np.int64), k_scale=scales)

    def _weights(self, options: Mapping[str, Any]) -> dict[str, Weight]:
        d, h, c, cv, rotary = self.dim_model, self.heads, self.head_dim, self.head_dim_v, self.dim_rotary
        known = {
            "query": Weight((1, 2, 3), (h, c + rotary, self.rank_query or d), 0), "down": Weight((2, 3), (self.rank + rotary, d)),
            "up": Weight((1, 2, 3), (h, c + cv, self.rank), 0), "output": Weight((1, 2, 3), (self.dim_output, h, cv), 1),
            "norm": Weight((3,), (self.rank,)),
        }
        if self.rank_query:
            known |= {"query_down": Weight((2, 3), (self.rank_query, d)), "query_norm": Weight((3,), (self.rank_query,))}
        return known

    def _needed(self) -> set[str]:
        return set(self._weights({}))

    def _biased(self) -> set[str]:
        return set()

    def _heads(self, options: Mapping[str, Any]) -> tuple[int, int]:
        return self.heads, self.heads

    def _dims(self, options: Mapping[str, Any], decoding: bool) -> tuple[int, int, int]:
        dim = (self.rank if decoding else self.head_dim) + self.dim_rotary
        return dim, dim, self.rank if decoding else self.head_dim_v

    def _channels(self) -> tuple[tuple[int, int, int], int]:
        return (self.dim_model, self.dim_model, 0), self.dim_output

    def _struct(self, options: Mapping[str, Any]) -> tuple[Any, list[Any]]:
        names = ("dim_model", "dim_output", "heads", "head_dim", "head_dim_v", "rank", "rank_query", "dim_rotary")
        made = _native.struct(
            _abi.attn_latent, dtype=_abi.ATTN_F64 if self.dtype == np.float64 else _abi.ATTN_F32, norm_epsilon=self.norm_epsilon or 0.0,
            **{name: getattr(self, name) for name in names},
        )
        return made, put_rope(made, self.rope, self.dim_rotary)
