# SPDX-License-Identifier: MIT
"""FlexAttention of tensors that are there: which way a score_mod and a BlockMask are computed, and what the arguments must be."""
from __future__ import annotations

import contextlib
from typing import Any, Callable

import torch

from . import _flex_masks, _flex_rows, _flex_scores
from ._attention import compute_attention
from ._shim import AT, DEFAULTS

Tensor = torch.Tensor


def exact() -> Any:
    """For what PyTorch computes of scores, which are of float32 at least."""
    return torch.autocast("cpu", enabled=False) if torch.is_autocast_enabled("cpu") else contextlib.nullcontext()


def checked(query: Tensor, key: Tensor, value: Tensor, block_mask: Any, enable_gqa: bool, return_lse: bool, return_aux: Any) -> tuple[Tensor, Tensor, Tensor]:
    """query, key and value as attend() takes them; ValueError, if arguments do not fit."""
    if query.dim() != 4 or key.dim() != 4 or value.dim() != 4:
        raise ValueError("query, key and value must have 4 axes, [batch, heads, tokens, dim]")
    if query.shape[1] != key.shape[1] and not enable_gqa:
        raise ValueError(f"query has {query.shape[1]} heads and key has {key.shape[1]}: this needs enable_gqa=True")
    if return_lse and return_aux is not None:
        raise ValueError("return_lse and return_aux are set; set only one of them")
    if block_mask is not None:
        queries, keys = block_mask.shape[-2:]
        if query.shape[2] != queries or key.shape[2] != keys:
            raise ValueError(f"block_mask is for {queries} queries and {keys} keys; there are {query.shape[2]} and {key.shape[2]}")
        if block_mask.kv_num_blocks.device != query.device:
            raise ValueError(f"block_mask is on the device {block_mask.kv_num_blocks.device}, and query on {query.device}")
    if torch.is_autocast_enabled("cpu"):
        kind = torch.get_autocast_dtype("cpu")
        query, key, value = (x.to(kind) if x.is_floating_point() and x.dtype != torch.float64 else x for x in (query, key, value))
    if key.shape[0] == 1 != query.shape[0]:
        key, value = key.expand(query.shape[0], -1, -1, -1), value.expand(query.shape[0], -1, -1, -1)
    return query, key, value


def options_of(
    query: Tensor, key: Tensor, reader: Any, score_mod: Callable[..., Any] | None, block_mask: Any, found: _flex_masks.Seen, scale: float | None,
) -> list[Any]:
    """A score_mod and what it lets queries see as options of libattn; raises OtherForm."""
    options = list(DEFAULTS)
    options[AT["align"]], options[AT["scale"]] = 0, scale
    if score_mod is not None:
        options[AT["scale"]] = _flex_scores.as_options(reader, score_mod, query, key, scale, found.backward, options)
    _flex_masks.as_options(found, block_mask, query, key, options)
    return options


def attend(
    query: Tensor, key: Tensor, value: Tensor, score_mod: Callable[..., Any] | None, block_mask: Any, found: _flex_masks.Seen, scale: float | None,
    largest: bool, tiles: Callable[[_flex_rows.Problem], tuple[Tensor, Tensor] | None] | None = None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """o, lse and, where `largest` asks for them or they cost nothing, the largest scores; found: what block_mask lets queries see;
    tiles: another way to compute parts (None: it cannot)."""
    with exact():
        reader = None if score_mod is None else _flex_scores.read(score_mod, working(query))
        try:
            if largest:
                raise _flex_scores.OtherForm("max_scores")
            options = options_of(query, key, reader, score_mod, block_mask, found, scale)
        except _flex_scores.OtherForm:
            learned = [] if reader is None else list(reader.learned.values())
            done = tiles and not largest and tiles(_flex_rows.problem_of(query, score_mod, block_mask, found, scale))
            if done:
                return (*done, None)
            o, lse, top = _flex_rows.attend(query, key, value, score_mod, block_mask, found, scale, learned)
            return o, lse, top
        o, lse, _ = compute_attention(query, key, value, options)
        return o, lse, None


def working(query: Tensor) -> torch.dtype:
    """The type of scores."""
    return torch.float64 if query.dtype == torch.float64 else torch.float32
