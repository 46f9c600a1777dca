# SPDX-License-Identifier: MIT
"""The function that models of transformers call."""
from __future__ import annotations

from typing import Any

import torch
import transformers.masking_utils as stock

from ..torch import attention
from ..torch._enable import count
from ._masks import Mask, attention_mask

Tensor = torch.Tensor
# What changes the result, and is given only to implementations that are neither "eager" nor "sdpa".
WITHOUT = {"indices": "keys by index", "block_indices": "blocks of keys by index", "sinks": "sinks of single queries"}


def attention_forward(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, dropout: float = 0.0, scaling: float | None = None,
    is_causal: bool | None = None, softcap: float | None = None, s_aux: Tensor | None = None, position_bias: Tensor | None = None, **more: Any,
) -> tuple[Tensor, Tensor | None]:
    """Attention for the name "libattn".

    query, key, value   [batch, heads, tokens, dim], with fewer heads of key and value if you like
    attention_mask      a Mask; booleans, or numbers that are added, [batch, 1 or heads, queries, keys] or [queries or 1, keys]: all that
                        is hidden, also where the module is causal.  Without one, is_causal (or module.is_causal) says what is seen if
                        there is more than one query: keys 0 .. i by query i, however many there are behind (a cache of fixed size)
    s_aux               [heads]: sinks
    position_bias       [batch or 1, heads, queries, keys]: added to the scores

    As with "sdpa", then, whose masks these are; "eager" differs where there is no mask: it has no other, and hides nothing.

    Returns o, [batch, tokens, heads, dim], and with output_attentions=True the weights.  Raises ValueError or TypeError for a mask of two
    axes that is none, such as padding [batch, keys], which only "flash_libattn" takes.
    """
    if attention_mask is not None and attention_mask.dim() == 2:
        attention_mask = _of_two_axes(attention_mask, query.shape[2], key.shape[2])
    return _attend(module, query, key, value, attention_mask, _causal(module, is_causal) and "top-left", None, {
        "dropout": dropout, "scale": scaling, "softcap": softcap, "sink": s_aux, "bias": position_bias}, more)


def flash_attention_forward(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, dropout: float = 0.0, scaling: float | None = None,
    sliding_window: int | None = None, is_causal: bool | None = None, softcap: float | None = None, s_aux: Tensor | None = None,
    position_bias: Tensor | None = None, cu_seq_lens_q: Tensor | None = None, cu_seq_lens_k: Tensor | None = None, block_table: Any = None, **more: Any,
) -> tuple[Tensor, Tensor | None]:
    """Attention for the name "flash_libattn", as flash_attention_forward of transformers.

    As attention_forward; but without a mask the last query stands at the last key, and sees sliding_window keys, its own among them.
    A mask of two axes, [batch, keys], is 0 at the padding of keys, and the same holds among the others.

    cu_seq_lens_q, _k   [sequences + 1]: where each sequence begins among the tokens of all batch entries, one after the other
    """
    causal: Any = "bottom-right" if _causal(module, is_causal) else False
    window = None if sliding_window is None else sliding_window - 1
    options = {"dropout": dropout, "scale": scaling, "softcap": softcap, "sink": s_aux, "bias": position_bias}
    if block_table is not None:
        raise NotImplementedError("block_table is set; libattn reads the cache of continuous batching by index")
    if attention_mask is not None or cu_seq_lens_q is None or cu_seq_lens_k is None:
        return _attend(module, query, key, value, attention_mask, causal, window, options, more)
    _reject(more)
    if position_bias is not None:
        raise NotImplementedError("position_bias is set; libattn has none for packed sequences")
    q, k, v = (x.transpose(1, 2).flatten(0, 1) for x in (query, key, value))
    used = int(cu_seq_lens_q[-1])  # behind it is padding of the batch
    o = attention(
        q[:used], k[:int(cu_seq_lens_k[-1])], v[:int(cu_seq_lens_k[-1])], layout="thd", cu_seqlens_q=cu_seq_lens_q, cu_seqlens_kv=cu_seq_lens_k,
        causal=causal, window=window, **options)
    _count()
    if used < q.shape[0]:
        o = torch.cat([o, o.new_zeros(q.shape[0] - used, *o.shape[1:])])
    return o.unflatten(0, (query.shape[0], query.shape[2])), None


def _of_two_axes(mask: Tensor, queries: int, keys: int) -> Tensor:
    """What "eager" and "sdpa" make of a mask of two axes."""
    if mask.shape[0] not in (1, queries) or mask.shape[1] < keys:
        raise ValueError(
            f"attention_mask has shape {list(mask.shape)}; with two axes it must be [{queries}, {keys}], queries and keys, as for \"sdpa\" (padding, "
            "[batch, keys], is for \"flash_libattn\")")
    if mask.dtype != torch.bool and not mask.is_floating_point():
        raise TypeError(f"attention_mask has type {mask.dtype}; it must be of booleans, True where a query sees a key, or of floats to add")
    return mask[None, None]


def _causal(module: Any, is_causal: bool | None) -> bool:
    return getattr(module, "is_causal", True) if is_causal is None else is_causal


def _reject(more: dict[str, Any]) -> None:
    for name, what in WITHOUT.items():
        if more.get(name) is not None:
            raise NotImplementedError(f"{name} is set; libattn.transformers does not compute {what}: use attn_implementation='eager'")


def _count() -> None:
    if not torch.compiler.is_compiling():
        count("transformers")


def _attend(
    module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: Any, window: int | None, options: dict[str, Any],
    more: dict[str, Any],
) -> tuple[Tensor, Tensor | None]:
    """causal, window: what is seen without a mask."""
    _reject(more)
    queries, keys = query.shape[2], key.shape[2]
    if query.shape[0] != key.shape[0]:
        batch = max(query.shape[0], key.shape[0])
        query, key, value = (x.expand(batch, -1, -1, -1) for x in (query, key, value))
    if mask is not None and mask.dim() == 2:
        mask = _of_padding(mask, query, key, causal, window)
    if mask is None:
        if queries > 1 and causal:
            options["causal"] = causal
        options["window"] = window
    elif isinstance(mask, Mask):
        options["ranges"] = mask.ranges
        if mask.kept is not None:
            options["mask"] = mask.kept
    elif mask.dtype == torch.bool:
        options["mask"] = mask[..., :keys]
    else:
        mask = mask[..., :keys]
        options["bias"] = mask if options["bias"] is None else options["bias"] + mask
    weights = bool(more.get("output_attentions"))
    found = attention(
        query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), layout="bshd", return_weights=weights, **options)
    _count()
    return (found[0], found[1].to(query.dtype)) if weights else (found, None)


def _of_padding(seen: Tensor, query: Tensor, key: Tensor, causal: Any, window: int | None) -> Tensor | None:
    """The mask of padding, [batch, keys], and what else is seen."""
    keys = key.shape[2]
    function = stock.causal_mask_function if causal else stock.bidirectional_mask_function
    if window is not None:
        function = stock.sliding_window_causal_mask_function(window + 1) if causal else stock.sliding_window_bidirectional_mask_function(window)
    return attention_mask(
        batch_size=query.shape[0], q_length=query.shape[2], kv_length=keys, q_offset=keys - query.shape[2], mask_function=function,
        attention_mask=seen[:, -keys:].bool(), allow_is_causal_skip=False, device=query.device)
