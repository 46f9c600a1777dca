# SPDX-License-Identifier: MIT
"""FlexAttention on a CPU, forward and backward: torch.nn.attention.flex_attention.flex_attention.

What a BlockMask lets queries see becomes options of libattn (_flex_masks.py), and so does a score_mod of a form that has them
(_flex_scores.py).  Any other form is computed by PyTorch, some queries at a time (_flex_rows.py).
"""
from __future__ import annotations

import types
from typing import Any, Callable

import torch
from torch.nn.attention import flex_attention as stock

from . import _flex_masks, _flex_rows, _flex_scores
from ._attention import compute_attention
from ._shim import AT, DEFAULTS

Tensor = torch.Tensor


def flex_attention(
    query: Tensor, key: Tensor, value: Tensor, score_mod: Callable[..., Any] | None = None, block_mask: Any = None, scale: float | None = None,
    enable_gqa: bool = False, return_lse: bool = False, kernel_options: Any = None, *, return_aux: Any = None,
) -> Any:
    """torch.nn.attention.flex_attention.flex_attention on a CPU, with gradients, also of tensors that score_mod reads.

    query, key, value   [batch, heads, tokens, dim]; with enable_gqa key and value may have fewer heads
    score_mod           score_mod(score, b, h, q_idx, kv_idx), a function of numbers, that is, of tensors of no axes.  A factor, a
                        softcap, ALiBi, and what is added by head and distance, or by one of q_idx and kv_idx, are computed by
                        libattn; other forms by PyTorch, in parts that are computed again for the gradient
    block_mask          of create_block_mask: blocks that it leaves out cost no time
    return_lse          also returns lse, [batch, heads, tokens]; return_aux: AuxOutput(lse, max_scores)
    kernel_options      accepted, without effect

    Raises ValueError for shapes that do not fit.
    """
    if query.dim() != 4 or key.dim() != 4 or value.dim() != 4:
        raise ValueError("query, key and value must have 4 axes, [batch, heads, tokens, dim]")
    if query.shape[1] != key.shape[1] and not enable_gqa:
        raise ValueError(f"query has {query.shape[1]} heads and key has {key.shape[1]}: this needs enable_gqa=True")
    if key.shape[0] == 1 != query.shape[0]:
        key, value = key.expand(query.shape[0], -1, -1, -1), value.expand(query.shape[0], -1, -1, -1)
    found = _flex_masks.seen(block_mask, query, key)
    options = list(DEFAULTS)
    options[AT["align"]] = 0
    reader = None if score_mod is None else _flex_scores.read(score_mod, torch.float64 if query.dtype == torch.float64 else torch.float32)
    try:
        if return_aux is not None and return_aux.max_scores:
            raise _flex_scores.OtherForm("max_scores")
        if reader is not None:
            options[AT["scale"]] = _flex_scores.as_options(reader, score_mod, query, key, scale, found.backward, options)
        else:
            options[AT["scale"]] = scale
    except _flex_scores.OtherForm:
        learned = [] if reader is None else list(reader.learned.values())
        o, lse, top = _flex_rows.attend(query, key, value, score_mod, block_mask, found, scale, learned)
    else:
        top = None
        _flex_masks.as_options(found, block_mask, query, key, options)
        o, lse, _ = compute_attention(query, key, value, options)
    if return_aux is not None:
        return o, stock.AuxOutput(lse=lse if return_aux.lse else None, max_scores=top)
    return (o, lse) if return_lse else o


# ---- in the place of PyTorch's ---------------------------------------------------------------------------------------------------------

_code = stock.flex_attention.__code__


def _instead(query, key, value, score_mod=None, block_mask=None, scale=None, enable_gqa=False, return_lse=False, kernel_options=None, *, return_aux=None):  # type: ignore[no-untyped-def] # noqa: E501
    call = _libattn_flex if query.device.type == "cpu" else _libattn_stock  # type: ignore[name-defined] # noqa: F821
    return call(query, key, value, score_mod, block_mask, scale, enable_gqa, return_lse, kernel_options, return_aux=return_aux)


def replace(count: Callable[[], None]) -> None:
    """PyTorch's function computes like the one here from now on, also for callers that have imported it already."""

    @torch.compiler.disable
    def flex(*arguments: Any, **options: Any) -> Any:
        count()
        return flex_attention(*arguments, **options)

    space = stock.flex_attention.__globals__
    space["_libattn_flex"] = flex
    space["_libattn_stock"] = types.FunctionType(_code, space, "flex_attention", stock.flex_attention.__defaults__)
    space["_libattn_stock"].__kwdefaults__ = stock.flex_attention.__kwdefaults__
    stock.flex_attention.__code__ = _instead.__code__


def restore() -> None:
    stock.flex_attention.__code__ = _code
