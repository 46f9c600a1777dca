# SPDX-License-Identifier: MIT
"""FlexAttention on a CPU, forward and backward: torch.nn.attention.flex_attention.flex_attention.

What a BlockMask lets queries see becomes options of libattn (_flex_masks.py), and so does a score_mod of a form that has them
(_flex_scores.py).  Any other form is computed by PyTorch, some queries at a time (_flex_rows.py).  Within torch.compile, an operator
does all of this when the graph runs (_flex_compiled.py).
"""
from __future__ import annotations

import types
from typing import Any, Callable

import torch
from torch.nn.attention import flex_attention as stock

from . import _flex_compiled, _flex_masks
from ._flex_attend import attend, checked
from ._flex_compiled import constant, returned, traced, unknown

Tensor = torch.Tensor
_compiling = torch.compiler.is_dynamo_compiling


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

    Raises ValueError for shapes, or a block_mask of another size or device, that do not fit.  Within torch.compile it is part of the
    graph, with first derivatives; NotImplementedError for a score_mod that has graphs of its own, as torch.cond makes them.
    """
    if _compiling():
        why = unknown()
        if why:
            raise NotImplementedError(why)
        return traced(query, key, value, score_mod, block_mask, scale, enable_gqa, return_lse, return_aux, False)
    query, key, value = checked(query, key, value, block_mask, enable_gqa, return_lse, return_aux)
    found = _flex_masks.seen(block_mask, query, key)
    largest = return_aux is not None and return_aux.max_scores
    return returned(*attend(query, key, value, score_mod, block_mask, found, scale, largest), return_lse, return_aux)


# ---- in the place of PyTorch's ---------------------------------------------------------------------------------------------------------

_code = stock.flex_attention.__code__


def _instead(query, key, value, score_mod=None, block_mask=None, scale=None, enable_gqa=False, return_lse=False, kernel_options=None, *, return_aux=None):  # type: ignore[no-untyped-def] # noqa: E501
    call = _libattn_flex if query.device.type == "cpu" else _libattn_stock  # type: ignore[name-defined] # noqa: F821
    return call(query, key, value, score_mod, block_mask, scale, enable_gqa, return_lse, kernel_options, return_aux=return_aux)


def replace(count: Callable[[], None], left: Callable[[str], None]) -> None:
    """PyTorch's function computes like the one here from now on, also for callers that have imported it already.

    count is called for each call that libattn computes, left with the reason, where a graph keeps PyTorch's.
    """
    _flex_compiled.count, _flex_compiled.left = count, left

    @constant
    def known() -> bool:
        why = unknown()
        if why:
            left(why)
        return not why

    def flex(
        query: Tensor, key: Tensor, value: Tensor, score_mod: Any = None, block_mask: Any = None, scale: Any = None, enable_gqa: bool = False,
        return_lse: bool = False, kernel_options: Any = None, *, return_aux: Any = None,
    ) -> Any:
        if not _compiling():
            count()
            return flex_attention(query, key, value, score_mod, block_mask, scale, enable_gqa, return_lse, kernel_options, return_aux=return_aux)
        if not known():
            return stock_flex(query, key, value, score_mod, block_mask, scale, enable_gqa, return_lse, kernel_options, return_aux=return_aux)
        return traced(query, key, value, score_mod, block_mask, scale, enable_gqa, return_lse, return_aux, True)

    space = stock.flex_attention.__globals__
    stock_flex = types.FunctionType(_code, space, "flex_attention", stock.flex_attention.__defaults__)
    stock_flex.__kwdefaults__ = stock.flex_attention.__kwdefaults__
    space["_libattn_flex"], space["_libattn_stock"] = flex, stock_flex
    stock.flex_attention.__code__ = _instead.__code__


def restore() -> None:
    stock.flex_attention.__code__ = _code
