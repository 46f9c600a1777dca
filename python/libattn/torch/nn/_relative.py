# SPDX-License-Identifier: MIT
"""Self-attention whose scores depend on distances: ShawAttention, TransformerXLAttention and T5Attention."""
from __future__ import annotations

from typing import Any

import torch

from .._attention import attention, check_tensors
from ._scores import check_input, join_heads, key_mask, multiple, split_heads

Tensor = torch.Tensor


class ShawAttention(torch.nn.Module):
    """Multi-head self-attention with relative positions (Shaw et al. 2018, equations 3 and 4): with t the distance i - j clipped to
    -max_distance .. max_distance,

        s_ij = q_i . (k_j + relative_keys[t]) / sqrt(head_dim)          o_i = sum_j softmax(s_i)_j (v_j + relative_values[t])

    embed_dim, num_heads    channels of the input and of the result, and heads, of embed_dim / num_heads channels each
    max_distance            the clipping distance
    values                  there are relative_values
    causal                  a token sees itself and those before it
    bias, dropout           as in torch.nn.MultiheadAttention

    Parameters: q_proj, k_proj, v_proj, o_proj; relative_keys and relative_values [2 max_distance + 1, head_dim], for all heads; row 0 is
    for distance -max_distance, the key far after the query.
    """

    def __init__(
        self, embed_dim: int, num_heads: int, max_distance: int, *, values: bool = True, causal: bool = False, bias: bool = True,
        dropout: float = 0.0, device: Any = None, dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        kind: dict[str, Any] = {"device": device, "dtype": dtype}
        if max_distance < 0:
            raise ValueError(f"max_distance is {max_distance}; it must be at least 0")
        self.embed_dim: int = embed_dim
        self.num_heads: int = num_heads
        self.head_dim: int = multiple(embed_dim, "embed_dim", num_heads, "num_heads")
        self.max_distance: int = max_distance
        self.causal: bool = causal
        self.dropout: float = dropout
        self.q_proj: torch.nn.Linear = torch.nn.Linear(embed_dim, embed_dim, bias=bias, **kind)
        self.k_proj: torch.nn.Linear = torch.nn.Linear(embed_dim, embed_dim, bias=bias, **kind)
        self.v_proj: torch.nn.Linear = torch.nn.Linear(embed_dim, embed_dim, bias=bias, **kind)
        self.o_proj: torch.nn.Linear = torch.nn.Linear(embed_dim, embed_dim, bias=bias, **kind)

        def table() -> torch.nn.Parameter:
            made = torch.nn.Parameter(torch.empty(2 * max_distance + 1, self.head_dim, **kind))
            torch.nn.init.normal_(made, std=self.head_dim**-0.5)
            return made

        self.relative_keys: torch.nn.Parameter = table()
        self.relative_values: torch.nn.Parameter | None = table() if values else None

    def forward(self, x: Tensor, *, key_padding_mask: Tensor | None = None) -> Tensor:
        """[batch, tokens, embed_dim] of x, [batch, tokens, embed_dim].

        key_padding_mask  [batch, tokens] of booleans: True where a key is left out

        Raises ValueError for shapes and TypeError for types and devices, with a sentence that names the argument.
        """
        check_input(x, "x", self.o_proj.weight, self.embed_dim, "[batch, tokens, channels]")
        q, k, v = (split_heads(f(x), self.num_heads) for f in (self.q_proj, self.k_proj, self.v_proj))
        o = attention(
            q, k, v, causal=self.causal, mask=key_mask(key_padding_mask, "key_padding_mask", x.shape[0], x.shape[1]),
            relative_keys=self.relative_keys, relative_values=self.relative_values, relative_first=-self.max_distance,
            dropout=self.dropout if self.training else 0.0)
        return self.o_proj(join_heads(o))


class TransformerXLAttention(torch.nn.Module):
    """Self-attention over x and a memory of the tokens before it, by relative positions (Dai et al. 2019, section 3.3):

        s_ij = ((q_i + r_w_bias_h) . k_j + (q_i + r_r_bias_h) . r_net(R_(i-j))_h) / sqrt(head_dim)       R: sinusoids, sines first

    embed_dim, num_heads    channels of the input and of the result, and heads
    head_dim                channels of a head; None: embed_dim / num_heads
    causal                  a token sees the memory, those before it and itself; False: all, as in XLNet
    dropout                 probability that a weight is dropped in training

    Parameters have the names of the authors' code: qkv_net.weight [3 num_heads head_dim, embed_dim], r_net.weight, o_net.weight, r_w_bias
    and r_r_bias [num_heads, head_dim].  Layers may share the two biases: assign one parameter to all.

        >>> layer = libattn.torch.nn.TransformerXLAttention(512, 8)
        >>> first = layer(a)
        >>> second = layer(b, memory=a.detach())
    """

    def __init__(
        self, embed_dim: int, num_heads: int, *, head_dim: int | None = None, causal: bool = True, dropout: float = 0.0, device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        kind: dict[str, Any] = {"device": device, "dtype": dtype}
        self.embed_dim: int = embed_dim
        self.num_heads: int = num_heads
        self.head_dim: int = multiple(embed_dim, "embed_dim", num_heads, "num_heads") if head_dim is None else head_dim
        self.causal: bool = causal
        self.dropout: float = dropout
        width = num_heads * self.head_dim
        self.qkv_net: torch.nn.Linear = torch.nn.Linear(embed_dim, 3 * width, bias=False, **kind)
        self.r_net: torch.nn.Linear = torch.nn.Linear(embed_dim, width, bias=False, **kind)
        self.o_net: torch.nn.Linear = torch.nn.Linear(width, embed_dim, bias=False, **kind)
        self.r_w_bias: torch.nn.Parameter = torch.nn.Parameter(torch.zeros(num_heads, self.head_dim, **kind))
        self.r_r_bias: torch.nn.Parameter = torch.nn.Parameter(torch.zeros(num_heads, self.head_dim, **kind))

    def forward(self, x: Tensor, memory: Tensor | None = None, *, key_padding_mask: Tensor | None = None) -> Tensor:
        """[batch, tokens, embed_dim] of x, [batch, tokens, embed_dim], after memory, [batch, tokens before, embed_dim].

        key_padding_mask  [batch, tokens before + tokens] of booleans: True where a key is left out

        Raises ValueError for shapes and TypeError for types and devices, with a sentence that names the argument.
        """
        check_input(x, "x", self.o_net.weight, self.embed_dim, "[batch, tokens, channels]")
        whole = x
        if memory is not None:
            check_input(memory, "memory", self.o_net.weight, self.embed_dim, "[batch, tokens, channels]")
            if memory.shape[0] != x.shape[0]:
                raise ValueError(f"memory has {memory.shape[0]} batch entries, and x {x.shape[0]}")
            whole = torch.cat([memory, x], 1)
        q, k, v = (split_heads(y, self.num_heads) for y in self.qkv_net(whole).chunk(3, -1))
        q = q[:, :, whole.shape[1] - x.shape[1]:]
        first = 0 if self.causal else 1 - x.shape[1]
        end = max(whole.shape[1], first + 1)  # a table has a row, even if there is no token
        relative = split_heads(self.r_net(self._sinusoids(first, end).to(x)), self.num_heads)
        o = attention(
            q, k, v, causal=self.causal, mask=key_mask(key_padding_mask, "key_padding_mask", x.shape[0], whole.shape[1]),
            relative_keys=relative, relative_u=self.r_w_bias, relative_v=self.r_r_bias, relative_first=first,
            dropout=self.dropout if self.training else 0.0)
        return self.o_net(join_heads(o))

    def _sinusoids(self, first: int, end: int) -> Tensor:
        """R of the distances first .. end - 1."""
        steps = torch.arange(0, self.embed_dim, 2, dtype=torch.float64) / self.embed_dim
        angles = torch.arange(first, end, dtype=torch.float64)[:, None] * 10000.0**-steps
        return torch.cat([angles.sin(), angles.cos()], -1)[:, :self.embed_dim]


class T5Attention(torch.nn.Module):
    """The attention of T5 (Raffel et al. 2020, section 2.1): scores are not scaled, and a bias by distance is added, of which near
    distances have a bucket each and far ones share buckets.

    d_model, num_heads      channels of the input and of the result, and heads
    d_kv                    channels of a head; None: d_model / num_heads
    causal                  a token sees itself and those before it, and all buckets are for those (the decoder's self-attention)
    has_relative_attention_bias
                            this layer has the table; in T5 the first of a stack has it, and hands it to the others
    num_buckets, max_distance
                            buckets, and the distance from which all share the last
    dropout                 probability that a weight is dropped in training

    Parameters have the names of T5: q.weight, k.weight, v.weight, o.weight, relative_attention_bias.weight [num_buckets, num_heads].

        >>> first, other = libattn.torch.nn.T5Attention(512, 8, has_relative_attention_bias=True), libattn.torch.nn.T5Attention(512, 8)
        >>> y = other(first(x), bias_table=first.bias_table())
    """

    def __init__(
        self, d_model: int, num_heads: int, *, d_kv: int | None = None, causal: bool = False, has_relative_attention_bias: bool = False,
        num_buckets: int = 32, max_distance: int = 128, dropout: float = 0.0, device: Any = None, dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        kind: dict[str, Any] = {"device": device, "dtype": dtype}
        each = num_buckets if causal else num_buckets // 2
        if has_relative_attention_bias and (each < 2 or (num_buckets % 2 and not causal)):
            raise ValueError(f"num_buckets is {num_buckets}; it must be {'at least 2' if causal else 'even and at least 4, half of them for each direction'}")
        least = each // 2 + 1 if has_relative_attention_bias else 1
        if max_distance < least:
            raise ValueError(f"max_distance is {max_distance}; it must be at least {least}")
        self.d_model: int = d_model
        self.num_heads: int = num_heads
        self.d_kv: int = multiple(d_model, "d_model", num_heads, "num_heads") if d_kv is None else d_kv
        self.causal: bool = causal
        self.max_distance: int = max_distance
        self.dropout: float = dropout
        width = num_heads * self.d_kv
        self.q: torch.nn.Linear = torch.nn.Linear(d_model, width, bias=False, **kind)
        self.k: torch.nn.Linear = torch.nn.Linear(d_model, width, bias=False, **kind)
        self.v: torch.nn.Linear = torch.nn.Linear(d_model, width, bias=False, **kind)
        self.o: torch.nn.Linear = torch.nn.Linear(width, d_model, bias=False, **kind)
        self.relative_attention_bias: torch.nn.Embedding | None = None
        if has_relative_attention_bias:
            self.relative_attention_bias = torch.nn.Embedding(num_buckets, num_heads, **kind)
        for layer, source, each in ((self.q, d_model, self.d_kv), (self.k, d_model, 1), (self.v, d_model, 1), (self.o, width, 1)):
            torch.nn.init.normal_(layer.weight, std=(source * each) ** -0.5)

    def bias_table(self) -> Tensor:
        """[num_heads, num_buckets]: the table of this layer, for others."""
        if self.relative_attention_bias is None:
            raise ValueError("has_relative_attention_bias is False; this layer has no table")
        return self.relative_attention_bias.weight.t().contiguous()

    def forward(
        self, hidden_states: Tensor, key_value_states: Tensor | None = None, *, key_padding_mask: Tensor | None = None,
        bias_table: Tensor | None = None,
    ) -> Tensor:
        """[batch, tokens, d_model].

        hidden_states     [batch, tokens, d_model]
        key_value_states  [batch, keys, d_model]: what keys and values are made of; None: hidden_states
        key_padding_mask  [batch, keys] of booleans: True where a key is left out
        bias_table        bias_table() of another layer; None: this layer's own, or none

        Raises ValueError for shapes and TypeError for types and devices, with a sentence that names the argument.
        """
        x = check_input(hidden_states, "hidden_states", self.o.weight, self.d_model, "[batch, tokens, channels]")
        source = x
        if key_value_states is not None:
            source = check_input(key_value_states, "key_value_states", self.o.weight, self.d_model, "[batch, keys, channels]")
            if source.shape[0] != x.shape[0]:
                raise ValueError(f"key_value_states has {source.shape[0]} batch entries, and hidden_states {x.shape[0]}")
        q, k, v = (split_heads(f(y), self.num_heads) for f, y in ((self.q, x), (self.k, source), (self.v, source)))
        options: dict[str, Any] = {}
        if bias_table is None and self.relative_attention_bias is not None:
            bias_table = self.bias_table()
        if bias_table is not None:
            check_tensors(bias_table=bias_table)
            options = {"bias_table": bias_table.to(q.dtype), "bias_table_max_distance": self.max_distance, "bias_table_causal": self.causal}
        o = attention(
            q, k, v, causal=self.causal, scale=1.0, mask=key_mask(key_padding_mask, "key_padding_mask", x.shape[0], source.shape[1]),
            dropout=self.dropout if self.training else 0.0, **options)
        return self.o(join_heads(o))
