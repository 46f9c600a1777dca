# SPDX-License-Identifier: MIT
"""Hopfield, HopfieldPooling and HopfieldLayer: associative memories as layers."""
from __future__ import annotations

from typing import Any

import torch

from .._attention import attention
from ._scores import check_input, join_heads, key_mask, multiple, split_heads

Tensor = torch.Tensor


class Hopfield(torch.nn.Module):
    """States retrieve from stored patterns (Ramsauer et al. 2020, "Hopfield Networks is All You Need", section 3).  In each head,

        x <- softmax(beta x K^T) K,  `steps` times, from x = q_proj(state_norm(state)),  K = k_proj(stored_norm(stored))
        result = out_proj(softmax(beta x K^T) v_proj(stored_norm(stored)))

    With steps = 0 this is attention; more steps move the state nearer to a stored pattern, or to a mean of similar ones.

    embed_dim     channels of states and of the result
    num_heads     associative spaces side by side
    stored_dim    channels of stored patterns; None: embed_dim
    hidden_dim    channels of each space; None: embed_dim / num_heads
    beta          sharpness; None: 1/sqrt(hidden_dim)
    learn_beta    True: a parameter, beta [num_heads]
    steps         updates in the associative space before the projection
    normalise     states and patterns pass through layer norms first
    dropout       probability that a weight is dropped in training
    """

    def __init__(
        self, embed_dim: int, num_heads: int = 1, *, stored_dim: int | None = None, hidden_dim: int | None = None,
        beta: float | None = None, learn_beta: bool = False, steps: int = 0, normalise: bool = True, bias: bool = True,
        dropout: float = 0.0, device: Any = None, dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        kind: dict[str, Any] = {"device": device, "dtype": dtype}
        if steps < 0:
            raise ValueError(f"steps is {steps}; it must be at least 0")
        if beta is not None and not beta > 0:
            raise ValueError(f"beta is {beta}; it must be above 0")
        self.embed_dim: int = embed_dim
        self.num_heads: int = num_heads
        self.stored_dim: int = embed_dim if stored_dim is None else stored_dim
        self.hidden_dim: int = multiple(embed_dim, "embed_dim", num_heads, "num_heads") if hidden_dim is None else hidden_dim
        self.steps: int = steps
        self.dropout: float = dropout
        sharpness = self.hidden_dim**-0.5 if beta is None else float(beta)
        self.beta: Any = torch.nn.Parameter(torch.full((num_heads,), sharpness, **kind)) if learn_beta else sharpness
        width = num_heads * self.hidden_dim
        self.state_norm: torch.nn.LayerNorm | None = torch.nn.LayerNorm(embed_dim, **kind) if normalise else None
        self.stored_norm: torch.nn.LayerNorm | None = torch.nn.LayerNorm(self.stored_dim, **kind) if normalise else None
        self.q_proj: torch.nn.Linear = torch.nn.Linear(embed_dim, width, bias=bias, **kind)
        self.k_proj: torch.nn.Linear = torch.nn.Linear(self.stored_dim, width, bias=bias, **kind)
        self.v_proj: torch.nn.Linear = torch.nn.Linear(self.stored_dim, width, bias=bias, **kind)
        self.out_proj: torch.nn.Linear = torch.nn.Linear(width, embed_dim, bias=bias, **kind)

    def forward(self, state: Tensor, stored: Tensor, *, stored_padding_mask: Tensor | None = None) -> Tensor:
        """[batch, states, embed_dim].

        state                [batch, states, embed_dim]
        stored               [batch, patterns, stored_dim]
        stored_padding_mask  [batch, patterns] of booleans: True where there is no pattern

        Raises ValueError for shapes and TypeError for types and devices, with a sentence that names the argument.
        """
        check_input(state, "state", self.out_proj.weight, self.embed_dim, "[batch, states, channels]")
        check_input(stored, "stored", self.out_proj.weight, self.stored_dim, "[batch, patterns, channels]")
        if state.shape[0] != stored.shape[0]:
            raise ValueError(f"state has {state.shape[0]} batch entries, and stored {stored.shape[0]}")
        mask = key_mask(stored_padding_mask, "stored_padding_mask", stored.shape[0], stored.shape[1])
        state = state if self.state_norm is None else self.state_norm(state)
        stored = stored if self.stored_norm is None else self.stored_norm(stored)
        x = split_heads(self.q_proj(state), self.num_heads)
        k, v = (split_heads(f(stored), self.num_heads) for f in (self.k_proj, self.v_proj))
        for _ in range(self.steps):
            x = attention(x, k, k, scale=self.beta, mask=mask)
        o = attention(x, k, v, scale=self.beta, mask=mask, dropout=self.dropout if self.training else 0.0)
        return self.out_proj(join_heads(o))


class HopfieldPooling(torch.nn.Module):
    """A set of any size becomes `quantity` vectors: learned states retrieve from it.

    embed_dim, num_heads, options    as in Hopfield, the module `association`
    quantity                         states, the parameter `states` [quantity, embed_dim]
    """

    def __init__(
        self, embed_dim: int, num_heads: int = 1, *, quantity: int = 1, device: Any = None,
        dtype: torch.dtype | None = None, **options: Any,
    ) -> None:
        super().__init__()
        self.association: Hopfield = Hopfield(embed_dim, num_heads, device=device, dtype=dtype, **options)
        self.states: torch.nn.Parameter = torch.nn.Parameter(torch.empty(quantity, embed_dim, device=device, dtype=dtype))
        torch.nn.init.normal_(self.states, std=0.02)

    def forward(self, stored: Tensor, *, stored_padding_mask: Tensor | None = None) -> Tensor:
        """[batch, quantity, embed_dim] of stored, [batch, patterns, stored_dim].  The rest is as in Hopfield."""
        check_input(stored, "stored", self.states, self.association.stored_dim, "[batch, patterns, channels]")
        return self.association(self.states.expand(stored.shape[0], -1, -1), stored, stored_padding_mask=stored_padding_mask)


class HopfieldLayer(torch.nn.Module):
    """States retrieve from learned patterns, for example prototypes or training data.

    embed_dim, num_heads, options    as in Hopfield, the module `association`
    quantity                         patterns, the parameter `patterns` [quantity, stored_dim]
    """

    def __init__(
        self, embed_dim: int, num_heads: int = 1, *, quantity: int, device: Any = None, dtype: torch.dtype | None = None, **options: Any,
    ) -> None:
        super().__init__()
        self.association: Hopfield = Hopfield(embed_dim, num_heads, device=device, dtype=dtype, **options)
        patterns = torch.empty(quantity, self.association.stored_dim, device=device, dtype=dtype)
        self.patterns: torch.nn.Parameter = torch.nn.Parameter(patterns)
        torch.nn.init.normal_(self.patterns)

    def forward(self, state: Tensor) -> Tensor:
        """[batch, states, embed_dim] of state, [batch, states, embed_dim].  The rest is as in Hopfield."""
        check_input(state, "state", self.patterns, self.association.embed_dim, "[batch, states, channels]")
        return self.association(state, self.patterns.expand(state.shape[0], -1, -1))
