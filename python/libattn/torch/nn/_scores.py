# SPDX-License-Identifier: MIT
"""What the modules share: checks of inputs, heads side by side and apart, and the options of scores that several of them have."""
from __future__ import annotations

from typing import Any, Literal, TypedDict

import torch

from ...positions import Rope, alibi_slopes
from .._attention import Normaliser, Window, check_tensors
from ._rotary import Rotary

Tensor = torch.Tensor


class ScoreOptions(TypedDict, total=False):
    """Keywords of MultiheadAttention and GroupedQueryAttention, in any combination."""

    window: Window  #: how far to the left and to the right of its position a query sees: a number, or (left, right), None: unbounded
    chunk: int  #: a query sees keys of its own chunk of so many only
    dilation: int  #: every n-th key of the window only
    scale: float | None  #: factor of the scores; None: 1/sqrt(head_dim) for "dot", 1 for the other scores
    softcap: float | None  #: scores become softcap tanh(scores / softcap) (Gemma 2)
    temperature: float | None  #: scores are divided by it
    score: Literal["dot", "cosine", "distance"]  #: what is compared: q.k, q.k / (|q| |k|), -|q - k|^2
    normaliser: Normaliser  #: "softmax", "softmax-one" (1 more in the denominator), "sigmoid" (of scores + shift), "relu"
    shift: float  #: of the sigmoid
    alibi: bool  #: True: scores fall with the distance, with the slopes of Press et al. 2022
    sinks: bool  #: True: a learned score in the denominator of each head, the parameter `sinks` [num_heads] (gpt-oss)
    rope: Rope | bool | None  #: rotates queries and keys by their position; True: Rope(pairs="halves"), as in Llama
    qk_norm: bool  #: True: queries and keys of each head are divided by their root mean square: q_norm.weight, k_norm.weight (Qwen 3)


# Those that attention takes as they are.
PLAIN = ("window", "chunk", "dilation", "scale", "softcap", "temperature", "score", "normaliser", "shift")
POSITIONAL = ("window", "chunk", "dilation", "alibi")


class Scores(torch.nn.Module):
    """A module with ScoreOptions."""

    def __init__(self, num_heads: int, head_dim: int, options: ScoreOptions, **kind: Any) -> None:
        super().__init__()
        unknown = sorted(options.keys() - ScoreOptions.__annotations__.keys())
        if unknown:
            raise TypeError(f"{unknown[0]} is not an option; known: {', '.join(sorted(ScoreOptions.__annotations__))}")
        self.options: dict[str, Any] = {name: x for name, x in options.items() if x is not None and x is not False}
        rope: Any = options.get("rope")
        self.rotary: Rotary | None = Rotary(Rope(pairs="halves") if rope is True else rope, head_dim) if rope else None
        self.sinks: torch.nn.Parameter | None = torch.nn.Parameter(torch.zeros(num_heads, **kind)) if options.get("sinks") else None
        self.q_norm: torch.nn.Module | None = torch.nn.RMSNorm(head_dim, eps=1e-6, **kind) if options.get("qk_norm") else None
        self.k_norm: torch.nn.Module | None = torch.nn.RMSNorm(head_dim, eps=1e-6, **kind) if options.get("qk_norm") else None
        # No buffer: .half() would round it.
        self.alibi_slopes: Tensor | None = torch.from_numpy(alibi_slopes(num_heads, dtype="float64")) if options.get("alibi") else None

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={x}" for name, x in self.options.items())

    def prepare(self, q: Tensor, k: Tensor | None, positions_q: Tensor | None = None, positions_kv: Tensor | None = None) -> Any:
        """Queries and keys [batch, heads, tokens, head_dim], normalised and rotated."""
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), None if k is None else self.k_norm(k)
        if self.rotary is not None:
            q, k = self.rotary(q, positions_q), None if k is None else self.rotary(k, positions_kv)
        return q, k

    def arguments(self) -> dict[str, Any]:
        """Keywords of libattn.torch.attention."""
        more = {name: self.options[name] for name in PLAIN if name in self.options}
        return more | {"sink": self.sinks, "alibi_slopes": self.alibi_slopes}


def check_input(x: Any, name: str, weight: Tensor | None, channels: int, axes: str, dims: tuple[int, ...] = (3,)) -> Tensor:
    """x, if it is a dense tensor of this many channels, with the type and the device of a weight of the module."""
    if isinstance(x, Tensor) and x.is_nested:
        raise TypeError(f"{name} is a nested tensor; pad it, and give the lengths as a mask")
    check_tensors(**{name: x})
    if x.dim() not in dims or x.shape[-1] != channels:
        raise ValueError(f"{name} has shape {list(x.shape)}; it must be {axes} with {channels} channels")
    if weight is not None and x.device != weight.device:
        raise TypeError(f"{name} is on the device {x.device}, and the weights on {weight.device}; libattn computes on the CPU")
    if weight is not None and x.dtype != weight.dtype and not torch.is_autocast_enabled("cpu"):
        raise TypeError(f"{name} has type {x.dtype}, and the weights {weight.dtype}; convert the module with .to({x.dtype}), or the input")
    return x


def split_heads(x: Tensor, heads: int) -> Tensor:
    """[batch, tokens, heads * dim] -> [batch, heads, tokens, dim]"""
    return x.unflatten(-1, (heads, x.shape[-1] // heads)).transpose(-2, -3)


def join_heads(x: Tensor) -> Tensor:
    """[batch, heads, tokens, dim] -> [batch, tokens, heads * dim]"""
    return x.transpose(-2, -3).flatten(-2)


def key_mask(mask: Tensor | None, name: str, batch: int, keys: int) -> Tensor | None:
    """A mask of PyTorch's, [batch, keys] of booleans, True where a key is left out, as one of libattn's."""
    if mask is None:
        return None
    check_tensors(**{name: mask})
    if mask.dtype != torch.bool:
        raise TypeError(f"{name} has type {mask.dtype}; it must be of booleans, True where a key is left out")
    if mask.shape != (batch, keys):
        raise ValueError(f"{name} has shape {list(mask.shape)}; it must be [{batch}, {keys}], batch and keys")
    return ~mask[:, None, None, :]


def pair_mask(mask: Tensor | None, name: str, sizes: tuple[int, int, int, int]) -> tuple[Tensor | None, Tensor | None]:
    """A mask of F.scaled_dot_product_attention's, [batch, heads, queries, keys] = sizes or what broadcasts to it, as a mask and a bias."""
    if mask is None:
        return None, None
    check_tensors(**{name: mask})
    if mask.dtype != torch.bool and not mask.is_floating_point():
        raise TypeError(f"{name} has type {mask.dtype}; it must be of booleans, True where a query sees a key, or of floats to add")
    if mask.dim() > 4 or any(have not in (1, want) for have, want in zip(reversed(mask.shape), reversed(sizes), strict=False)):
        raise ValueError(f"{name} has shape {list(mask.shape)}; it must be {list(sizes)}, or what broadcasts to it")
    return (mask, None) if mask.dtype == torch.bool else (None, mask)


def check_lengths(lengths: Tensor, batch: int) -> None:
    """Are these integers, [batch]?"""
    check_tensors(lengths=lengths)
    if lengths.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"lengths has type {lengths.dtype}; it must be torch.int64 or torch.int32")
    if lengths.shape != (batch,):
        raise ValueError(f"lengths has shape {list(lengths.shape)}; it must be [{batch}]")


def multiple(size: int, name: str, of: int, other: str) -> int:
    """size / of."""
    if of < 1 or size < 1 or size % of:
        raise ValueError(f"{name} ({size}) is not a multiple of {other} ({of})")
    return size // of
