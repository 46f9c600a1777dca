# SPDX-License-Identifier: MIT
"""LinearAttention: layers whose cost is linear in the length."""
from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch
from torch.nn import functional

from ...linear import random_features
from .._linear import Features, linear_attention
from ._scores import check_input, join_heads, multiple, split_heads

Tensor = torch.Tensor
RANDOM = ("favor", "fourier", "trigonometric")


class State(NamedTuple):
    """What LinearAttention keeps of the tokens before: of fixed size."""

    state: Tensor  #: [batch, num_kv_heads, features, head_dim]
    sum: Tensor | None  #: [batch, num_kv_heads, features]; None without a denominator


class LinearAttention(torch.nn.Module):
    """A layer of linear attention: sums over keys, kept in a state of fixed size (libattn.linear has the formulas).

    embed_dim, num_heads, num_kv_heads, head_dim, bias
                    as in GroupedQueryAttention
    causal          a token sees itself and those before it; decay and delta need it
    features        what queries and keys are mapped by: "elu1" (Katharopoulos et al. 2020), "identity", "relu", "softmax" over the channels,
                    or random features: "favor" (Performer), "fourier", "trigonometric"
    num_features    rows of the random features, drawn from `seed`, kept in the buffer feature_matrix
    denominator     "clamp", "add" or "none"; None: "none" with delta, else "clamp"
    decay           "fixed": the state of head h falls by 1 - 2^(-5-h) with each token (retention, Sun et al. 2023); "head" or "channel": by
                    sigmoid(decay_proj(x)), a number for each head or each channel (gated linear attention, Yang et al. 2023); None: never
    delta           True: the delta rule (Schlag et al. 2021; Yang et al. 2024): a token writes what the state lacks of it, times
                    sigmoid(b_proj(x)); queries and keys are divided by their norm
    norm            True: results of each head are divided by their root mean square, o_norm.weight

    Parameters: q_proj, k_proj, v_proj, o_proj, decay_proj, b_proj and o_norm.

        >>> layer = libattn.torch.nn.LinearAttention(512, 8, features="identity", delta=True, decay="head", norm=True)
        >>> y, state = layer(torch.rand(1, 100, 512), return_state=True)
        >>> y, state = layer(torch.rand(1, 1, 512), state, return_state=True)       # the next token
    """

    def __init__(
        self, embed_dim: int, num_heads: int, num_kv_heads: int | None = None, *, head_dim: int | None = None, causal: bool = True,
        features: Features = "elu1", num_features: int | None = None, seed: int = 0, denominator: Literal["clamp", "add", "none"] | None = None,
        decay: Literal["fixed", "head", "channel"] | None = None, delta: bool = False, norm: bool = False, bias: bool = False,
        device: Any = None, dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        kind: dict[str, Any] = {"device": device, "dtype": dtype}
        kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        multiple(num_heads, "num_heads", kv_heads, "num_kv_heads")
        if decay not in (None, "fixed", "head", "channel"):
            raise ValueError(f"decay is {decay!r}; known: None, 'fixed', 'head', 'channel'")
        if not causal and (decay or delta):
            raise NotImplementedError(f"{'decay' if decay else 'delta'} is set, which needs causal")
        if (num_features is not None) != (features in RANDOM):
            known = ", ".join(map(repr, RANDOM))
            raise ValueError(f"num_features is {num_features}, and features {features!r}; it is for {known}, which need it")
        self.embed_dim: int = embed_dim
        self.num_heads: int = num_heads
        self.num_kv_heads: int = kv_heads
        self.head_dim: int = multiple(embed_dim, "embed_dim", num_heads, "num_heads") if head_dim is None else head_dim
        self.causal: bool = causal
        self.features: Features = features
        self.denominator: Literal["clamp", "add", "none"] = ("none" if delta else "clamp") if denominator is None else denominator
        self.decay: Literal["fixed", "head", "channel"] | None = decay
        self.delta: bool = delta
        width = self.head_dim

        def linear(source: int, target: int, has_bias: bool = bias) -> torch.nn.Linear:
            return torch.nn.Linear(source, target, bias=has_bias, **kind)

        self.q_proj: torch.nn.Linear = linear(embed_dim, num_heads * width)
        self.k_proj: torch.nn.Linear = linear(embed_dim, kv_heads * width)
        self.v_proj: torch.nn.Linear = linear(embed_dim, kv_heads * width)
        self.o_proj: torch.nn.Linear = linear(num_heads * width, embed_dim)
        mapped = width if num_features is None else num_features * (1 if features == "favor" else 2)
        self.decay_proj: torch.nn.Linear | None = None
        if decay in ("head", "channel"):
            self.decay_proj = linear(embed_dim, kv_heads * (mapped if decay == "channel" else 1), True)
            torch.nn.init.constant_(self.decay_proj.bias, 4.0)  # sigmoid(4) = 0.98
        self.b_proj: torch.nn.Linear | None = linear(embed_dim, kv_heads, False) if delta else None
        self.o_norm: torch.nn.RMSNorm | None = torch.nn.RMSNorm(width, eps=1e-6, **kind) if norm else None
        self.feature_matrix: Tensor | None
        matrix = None if num_features is None else torch.from_numpy(random_features(num_features, width, seed=seed, dtype="float64"))
        self.register_buffer("feature_matrix", None if matrix is None else matrix.to(self.o_proj.weight))

    def extra_repr(self) -> str:
        return f"{self.embed_dim}, {self.num_heads}, {self.num_kv_heads}, features={self.features!r}, decay={self.decay!r}, delta={self.delta}"

    def forward(self, x: Tensor, state: State | None = None, *, lengths: Tensor | None = None, return_state: bool = False) -> Any:
        """[batch, tokens, embed_dim], of x's type; with return_state also the State after the last token.

        x         [batch, tokens, embed_dim]
        state     of the tokens before x
        lengths   [batch]: how many of the tokens are real; None: all

        Raises ValueError for shapes and TypeError for types and devices, with a sentence that names the argument.
        """
        check_input(x, "x", self.o_proj.weight, self.embed_dim, "[batch, tokens, channels]")
        q = split_heads(self.q_proj(x), self.num_heads)
        k, v = (split_heads(f(x), self.num_kv_heads) for f in (self.k_proj, self.v_proj))
        if self.delta:
            q, k = functional.normalize(q, dim=-1), functional.normalize(k, dim=-1)
        compute = torch.float64 if q.dtype == torch.float64 else torch.float32
        decay: Tensor | None = None
        if self.decay == "fixed":
            decay = torch.log1p(-(2.0 ** (-5 - torch.arange(self.num_kv_heads, dtype=torch.float64, device=q.device)))).to(compute).view(1, -1, 1, 1)
        elif self.decay_proj is not None:
            decay = functional.logsigmoid(split_heads(self.decay_proj(x), self.num_kv_heads).to(compute))
        beta = None if self.b_proj is None else self.b_proj(x).sigmoid().transpose(1, 2)
        matrix = None if self.feature_matrix is None else self.feature_matrix.to(compute)
        o, last, total = linear_attention(
            q, k, v, causal=self.causal, features=self.features, feature_matrix=matrix, denominator=self.denominator, decay=decay, beta=beta,
            lengths=lengths, initial_state=None if state is None else state.state, initial_sum=None if state is None else state.sum,
            return_state=True)
        y = self.o_proj(join_heads(o if self.o_norm is None else self.o_norm(o)))
        return (y, State(last, total)) if return_state else y
