# SPDX-License-Identifier: MIT
"""BahdanauAttention and LuongAttention: a decoder's states attend to the memory that an encoder produced."""
from __future__ import annotations

from typing import Any, Literal

import torch

from .._attention import attention, check_tensors
from ._scores import check_input, key_mask

Tensor = torch.Tensor


class _Decoder(torch.nn.Module):
    """Checks and axes of both."""

    query_dim: int
    memory_dim: int

    def _attend(self, query: Tensor, memory: Tensor, mask: Tensor | None, need_weights: bool, q: Any, k: Any, **options: Any) -> Any:
        """context and weights of states [batch, len_q, query_dim] or [batch, query_dim], with q(states) and the keys k(memory)."""
        weight = next(self.parameters(), None)
        check_input(query, "query", weight, self.query_dim, "[batch, queries, channels] or [batch, channels]", (2, 3))
        check_input(memory, "memory", weight, self.memory_dim, "[batch, keys, channels]")
        if query.shape[0] != memory.shape[0]:
            raise ValueError(f"query has {query.shape[0]} batch entries, and memory {memory.shape[0]}")
        states = query if query.dim() == 3 else query[:, None]
        seen = key_mask(mask, "memory_padding_mask", memory.shape[0], memory.shape[1])
        found = attention(q(states)[:, None], k(memory)[:, None], memory[:, None], mask=seen, return_weights=need_weights, **options)
        o, weights = found if need_weights else (found, None)
        o = o[:, 0]
        weights = None if weights is None else weights[:, 0].to(o.dtype)
        if query.dim() == 2:
            o, weights = o[:, 0], None if weights is None else weights[:, 0]
        return o, weights


class BahdanauAttention(_Decoder):
    """Additive attention (Bahdanau et al. 2015, section A.1.2).  With states h_i and memory m_j,

        s_ij = weight . tanh(query_proj(h_i) + memory_proj(m_j) + bias)         context_i = sum_j softmax(s_i)_j m_j

    query_dim    channels of a state
    memory_dim   channels of the memory; None: query_dim
    hidden_dim   channels of query_proj and memory_proj; None: query_dim
    bias         there is a bias

        >>> layer = libattn.torch.nn.BahdanauAttention(512, 256, 128)
        >>> context, weights = layer(torch.rand(2, 512), torch.rand(2, 30, 256))
    """

    def __init__(
        self, query_dim: int, memory_dim: int | None = None, hidden_dim: int | None = None, *, bias: bool = True, device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        kind: dict[str, Any] = {"device": device, "dtype": dtype}
        self.query_dim: int = query_dim
        self.memory_dim: int = query_dim if memory_dim is None else memory_dim
        self.hidden_dim: int = query_dim if hidden_dim is None else hidden_dim
        self.query_proj: torch.nn.Linear = torch.nn.Linear(query_dim, self.hidden_dim, bias=False, **kind)
        self.memory_proj: torch.nn.Linear = torch.nn.Linear(self.memory_dim, self.hidden_dim, bias=False, **kind)
        self.weight: torch.nn.Parameter = torch.nn.Parameter(torch.empty(self.hidden_dim, **kind))
        self.bias: torch.nn.Parameter | None = torch.nn.Parameter(torch.zeros(self.hidden_dim, **kind)) if bias else None
        torch.nn.init.uniform_(self.weight, -self.hidden_dim**-0.5, self.hidden_dim**-0.5)

    def project(self, memory: Tensor) -> Tensor:
        """memory_proj(memory), [batch, keys, hidden_dim]: what forward takes as `projected`, so that it is computed once for all steps."""
        return self.memory_proj(check_input(memory, "memory", self.weight, self.memory_dim, "[batch, keys, channels]"))

    def forward(
        self, query: Tensor, memory: Tensor, *, memory_padding_mask: Tensor | None = None, projected: Tensor | None = None,
        need_weights: bool = True,
    ) -> tuple[Tensor, Tensor | None]:
        """context [batch, queries, memory_dim] and weights [batch, queries, keys] (None unless need_weights; without gradients).

        query                 [batch, queries, query_dim], or [batch, query_dim]: one step, and no axis of queries in the results
        memory                [batch, keys, memory_dim]
        memory_padding_mask   [batch, keys] of booleans: True where there is no memory
        projected             project(memory), if it is there already

        Raises ValueError for shapes and TypeError for types and devices, with a sentence that names the argument.
        """
        rows = self.weight[None] if self.bias is None else torch.stack([self.weight, self.bias])
        check_input(memory, "memory", self.weight, self.memory_dim, "[batch, keys, channels]")
        if projected is not None:
            check_tensors(projected=projected)
            if projected.shape != (*memory.shape[:2], self.hidden_dim):
                raise ValueError(f"projected has shape {list(projected.shape)}; it must be {[*memory.shape[:2], self.hidden_dim]}")
        return self._attend(
            query, memory, memory_padding_mask, need_weights, self.query_proj, self.memory_proj if projected is None else lambda _: projected,
            score="additive", score_matrix=rows)


class LuongAttention(_Decoder):
    """Multiplicative attention (Luong et al. 2015, section 3.1).  With states h_i and memory m_j,

        s_ij = h_i . m_j  or  h_i . memory_proj(m_j)  or  weight . tanh(concat_proj([h_i; m_j]))        context_i = sum_j softmax(s_i)_j m_j

    query_dim    channels of a state
    memory_dim   channels of the memory; None: query_dim, which "dot" needs
    method       "dot", "general" or "concat": the score, in this order
    hidden_dim   channels of concat_proj; None: query_dim
    output_dim   None: the result is the context; else tanh(combine([context_i; h_i])), of so many channels (equation 5)

        >>> layer = libattn.torch.nn.LuongAttention(512, 256, "general", output_dim=512)
        >>> state, weights = layer(torch.rand(2, 10, 512), torch.rand(2, 30, 256))
    """

    def __init__(
        self, query_dim: int, memory_dim: int | None = None, method: Literal["dot", "general", "concat"] = "general", *,
        hidden_dim: int | None = None, output_dim: int | None = None, device: Any = None, dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        kind: dict[str, Any] = {"device": device, "dtype": dtype}
        if method not in ("dot", "general", "concat"):
            raise ValueError(f"method is {method!r}; known: 'dot', 'general', 'concat'")
        self.query_dim: int = query_dim
        self.memory_dim: int = query_dim if memory_dim is None else memory_dim
        self.method: Literal["dot", "general", "concat"] = method
        if method == "dot" and self.memory_dim != query_dim:
            raise ValueError(f"memory_dim ({self.memory_dim}) is not query_dim ({query_dim}), which the method 'dot' needs")
        if hidden_dim is not None and method != "concat":
            raise ValueError(f"hidden_dim is set; the method {method!r} has no hidden channels")
        hidden = query_dim if hidden_dim is None else hidden_dim

        def linear(source: int, target: int) -> torch.nn.Linear:
            return torch.nn.Linear(source, target, bias=False, **kind)

        self.memory_proj: torch.nn.Linear | None = linear(self.memory_dim, query_dim) if method == "general" else None
        self.concat_proj: torch.nn.Linear | None = linear(query_dim + self.memory_dim, hidden) if method == "concat" else None
        self.weight: torch.nn.Parameter | None = torch.nn.Parameter(torch.empty(hidden, **kind)) if method == "concat" else None
        self.combine: torch.nn.Linear | None = None if output_dim is None else linear(self.memory_dim + query_dim, output_dim)
        if self.weight is not None:
            torch.nn.init.uniform_(self.weight, -hidden**-0.5, hidden**-0.5)

    def forward(
        self, query: Tensor, memory: Tensor, *, memory_padding_mask: Tensor | None = None, need_weights: bool = True,
    ) -> tuple[Tensor, Tensor | None]:
        """The context [batch, queries, memory_dim], or what output_dim makes of it, and the weights.  Arguments and errors are those of
        BahdanauAttention."""
        if self.concat_proj is not None and self.weight is not None:
            parts = self.concat_proj.weight.split([self.query_dim, self.memory_dim], 1)
            q, k = (lambda x, w=w: torch.nn.functional.linear(x, w) for w in parts)
            options: dict[str, Any] = {"score": "additive", "score_matrix": self.weight[None]}
        else:
            q, k = torch.nn.Identity(), torch.nn.Identity() if self.memory_proj is None else self.memory_proj
            options = {"scale": 1.0}
        context, weights = self._attend(query, memory, memory_padding_mask, need_weights, q, k, **options)
        return context if self.combine is None else self.combine(torch.cat([context, query], -1)).tanh(), weights
