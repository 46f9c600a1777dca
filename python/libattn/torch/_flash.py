# SPDX-License-Identifier: MIT
"""The functions of other libraries, with their signatures, on a CPU and with gradients: torch.nn.attention.varlen, flash-attn, xformers.

Tensors are [batch, tokens, heads, dim], or packed [tokens, heads, dim]; causal masks and windows end at the last query and the last key.
"""
from __future__ import annotations

from typing import Any

import torch

from ._attention import attention

Tensor = torch.Tensor
Sizes = tuple[int, int]


def varlen_attn(
    query: Tensor, key: Tensor, value: Tensor, cu_seq_q: Tensor, cu_seq_k: Tensor | None, max_q: int, max_k: int, *, return_aux: Any = None,
    scale: float | None = None, window_size: Sizes = (-1, -1), enable_gqa: bool = False, seqused_k: Tensor | None = None,
    block_table: Tensor | None = None, num_splits: int | None = None,
) -> Any:
    """torch.nn.attention.varlen.varlen_attn: sequences of different lengths, one after the other.

    query, key, value   [tokens, heads, dim]; with block_table key and value are [pages, page_size, heads, dim]
    cu_seq_q, cu_seq_k  [sequences + 1]: where each begins; max_q, max_k are the longest
    window_size         (left, right), -1 is unbounded; (-1, 0) is causal
    seqused_k           [sequences]: only so many keys of each are used; needed with block_table, [sequences, pages]
    return_aux          AuxRequest(lse=True): also returns lse, [heads, tokens]
    num_splits          accepted; results never depend on how work is divided
    """
    if not enable_gqa and query.shape[-2] != key.shape[-2]:
        raise ValueError(f"query has {query.shape[-2]} heads and key has {key.shape[-2]}: this needs enable_gqa=True")
    o, lse = _packed(query, key, value, cu_seq_q, cu_seq_k, seqused_k, block_table, scale=scale, window=_window(window_size))
    return (o, lse.transpose(0, 1)) if return_aux is not None and return_aux.lse else o


def flash_attn_func(
    q: Tensor, k: Tensor, v: Tensor, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False, window_size: Sizes = (-1, -1),
    softcap: float = 0.0, alibi_slopes: Tensor | None = None, deterministic: bool = False, return_attn_probs: bool = False,
) -> Any:
    """flash_attn.flash_attn_func: q, k and v are [batch, tokens, heads, dim], with fewer heads of k and v if you like.

    return_attn_probs   also returns lse, [batch, heads, tokens], and the weights before dropout, [batch, heads, tokens, keys]
    deterministic       accepted; gradients always are
    """
    found = attention(
        q, k, v, layout="bshd", dropout=dropout_p, scale=softmax_scale, causal=causal, window=_window(window_size), softcap=softcap or None,
        alibi_slopes=alibi_slopes, return_lse=return_attn_probs, return_weights=return_attn_probs)
    return (found[0], found[1].transpose(1, 2), found[2]) if return_attn_probs else found


def flash_attn_varlen_func(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, max_seqlen_q: int, max_seqlen_k: int, dropout_p: float = 0.0,
    softmax_scale: float | None = None, causal: bool = False, window_size: Sizes = (-1, -1), softcap: float = 0.0, alibi_slopes: Tensor | None = None,
    deterministic: bool = False, return_attn_probs: bool = False, block_table: Tensor | None = None,
) -> Any:
    """flash_attn.flash_attn_varlen_func: q, k and v are [tokens, heads, dim], sequence i from cu_seqlens[i] to cu_seqlens[i + 1].

    block_table         [sequences, pages]: k and v are [pages, page_size, heads, dim]
    return_attn_probs   also returns lse, [heads, tokens], and None: weights of packed sequences have no common shape
    """
    used = None if block_table is None else cu_seqlens_k.diff()
    o, lse = _packed(
        q, k, v, cu_seqlens_q, cu_seqlens_k, used, block_table, dropout=dropout_p, scale=softmax_scale, causal=causal,
        window=_window(window_size), softcap=softcap or None, alibi_slopes=alibi_slopes)
    return (o, lse.transpose(0, 1), None) if return_attn_probs else o


def flash_attn_with_kvcache(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, k: Tensor | None = None, v: Tensor | None = None, rotary_cos: Tensor | None = None,
    rotary_sin: Tensor | None = None, cache_seqlens: int | Tensor | None = None, cache_batch_idx: Tensor | None = None,
    cache_leftpad: Tensor | None = None, block_table: Tensor | None = None, softmax_scale: float | None = None, causal: bool = False,
    window_size: Sizes = (-1, -1), softcap: float = 0.0, rotary_interleaved: bool = True, alibi_slopes: Tensor | None = None, num_splits: int = 0,
    return_softmax_lse: bool = False,
) -> Any:
    """flash_attn.flash_attn_with_kvcache: k and v are appended to the caches, in place, and q attends to them.  No gradients.

    q                   [batch, tokens, heads, dim]
    k_cache, v_cache    [batch, keys, heads, dim], or [pages, page_size, heads, dim] with block_table, [batch, pages]
    k, v                [batch, new tokens, heads, dim], written behind the first cache_seqlens of each entry
    rotary_cos, _sin    [positions, rotary dim / 2]: k is rotated from position cache_seqlens on, and so is q if there is a causal mask or
                        a window; else all of q stands at cache_seqlens
    cache_batch_idx     [batch]: the entry of the caches of each batch entry
    cache_leftpad       [batch]: the first keys of each entry that are padding
    return_softmax_lse  also returns lse, [batch, heads, tokens]
    """
    batch, tokens = q.shape[:2]
    if (k is None) != (v is None):
        raise ValueError("k and v: set both or neither")
    if cache_seqlens is None and k is not None:
        raise ValueError("cache_seqlens is missing: it says where k and v are written")
    size = k_cache.shape[1] * (1 if block_table is None else block_table.shape[1])
    lengths = torch.as_tensor(size if cache_seqlens is None else cache_seqlens, dtype=torch.int64).expand(batch)
    entry = torch.arange(batch) if cache_batch_idx is None or block_table is not None else _entries(cache_batch_idx, batch, len(k_cache))
    with torch.no_grad():
        if rotary_cos is not None and rotary_sin is not None:
            step = causal or tuple(window_size) != (-1, -1)
            q = _rotated(q, rotary_cos, rotary_sin, lengths[:, None] + (torch.arange(tokens) if step else torch.zeros(tokens, dtype=torch.int64)), rotary_interleaved)
            if k is not None:
                k = _rotated(k, rotary_cos, rotary_sin, lengths[:, None] + torch.arange(k.shape[1]), rotary_interleaved)
        into, saved = (k_cache, v_cache), None
        if k is not None and v is not None:
            where = _places(k, v, k_cache, v_cache, lengths, entry, block_table)
            saved = where, k_cache[where], v_cache[where]
        mask = None
        if cache_leftpad is not None:
            mask = (torch.arange(size) >= cache_leftpad[:, None])[:, None, None]
        try:
            if saved is not None and k is not None and v is not None:
                k_cache[saved[0]], v_cache[saved[0]] = k.to(k_cache.dtype), v.to(v_cache.dtype)
                lengths = lengths + k.shape[1]
            if block_table is None and cache_batch_idx is not None:
                k_cache, v_cache = k_cache[entry], v_cache[entry]
            o, lse = attention(
                q, k_cache, v_cache, layout="bshd", lengths_kv=lengths, page_table=block_table, scale=softmax_scale, causal=causal,
                window=_window(window_size), softcap=softcap or None, alibi_slopes=alibi_slopes, mask=mask, return_lse=True)
        except BaseException:
            if saved is not None:  # what attention refuses leaves the caches as they were
                into[0][saved[0]], into[1][saved[0]] = saved[1:]
            raise
    return (o, lse.transpose(1, 2)) if return_softmax_lse else o


def _entries(x: Tensor, batch: int, count: int) -> Tensor:
    """cache_batch_idx: entries that there are, for torch counts negative ones from the end."""
    if list(x.shape) != [batch]:
        raise ValueError(f"cache_batch_idx has shape {list(x.shape)}; it must be {[batch]}")
    if batch and not 0 <= int(x.min()) <= int(x.max()) < count:
        raise ValueError(f"cache_batch_idx has {int(x.min())} to {int(x.max())}; there are {count} in k_cache")
    return x.long()


def _places(
    k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, lengths: Tensor, entry: Tensor, table: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Where new tokens are written: entries or pages, and tokens of these.  ValueError for what is not in the caches."""
    size = k_cache.shape[1] * (1 if table is None else table.shape[1])
    for name, x, cache in (("k", k, k_cache), ("v", v, v_cache)):
        wanted = [len(lengths), k.shape[1], *cache.shape[2:]]
        if list(x.shape) != wanted:
            raise ValueError(f"{name} has shape {list(x.shape)}; it must be {wanted}, as {name}_cache")
    if lengths.numel() and int(lengths.min()) < 0:
        raise ValueError(f"cache_seqlens has {int(lengths.min())}; the least is 0")
    at = lengths[:, None] + torch.arange(k.shape[1])
    if at.numel() and int(at.max()) >= size:
        raise ValueError(f"cache_seqlens: {int(at.max()) + 1} keys do not fit into a cache of {size}")
    rows = entry[:, None] if table is None else table.long().gather(1, at // k_cache.shape[1])
    if rows.numel() and at.numel() and not (0 <= int(rows.min()) and int(rows.max()) < len(k_cache)):
        name = "q has entries" if table is None else "block_table has"
        raise ValueError(f"{name} {int(rows.min())} to {int(rows.max())} where keys are written; there are {len(k_cache)} in k_cache")
    return rows, at if table is None else at % k_cache.shape[1]


def memory_efficient_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_bias: Any = None, p: float = 0.0, scale: float | None = None, *, op: Any = None,
    output_dtype: torch.dtype | None = None,
) -> Tensor:
    """xformers.ops.memory_efficient_attention: [batch, tokens, heads, dim], or [batch, tokens, dim], or [batch, tokens, groups, heads, dim].

    attn_bias   None; a tensor that is added to the scores, [batch, heads, queries, keys]; or an object of xformers.ops.fmha.attn_bias:
                triangles, windows and block diagonals become fields, any other is asked for its tensor (materialize)
    p, op       dropout; op is accepted and has no effect
    """
    axes = query.dim()
    if axes not in (3, 4, 5):
        raise ValueError(f"query has {axes} axes; it must have 3, 4 or 5")
    shape = query.shape
    if axes == 3:
        query, key, value = (x.unsqueeze(2) for x in (query, key, value))
    elif axes == 5:
        query, key, value = query.flatten(2, 3), key.flatten(2, 3), value.flatten(2, 3)
    options: dict[str, Any] = {"dropout": p, "scale": scale}
    options.update(_bias(attn_bias, query, key))
    if "cu_seqlens_q" in options:
        if query.shape[0] != 1:
            raise ValueError(f"query has a batch of {query.shape[0]}; with a block diagonal it must be 1")
        o = attention(query[0], key[0], value[0], layout="thd", **options)[None]
    else:
        o = attention(query, key, value, layout="bshd", **options)
    o = o.reshape(*shape[:-1], value.shape[-1])
    return o if output_dtype is None else o.to(output_dtype)


def _bias(bias: Any, query: Tensor, key: Tensor) -> dict[str, Any]:
    """A bias of xformers as options."""
    if bias is None:
        return {}
    if isinstance(bias, Tensor):
        return {"bias": bias[:, None] if bias.dim() == 3 and query.shape[2] == 1 else bias}
    name = type(bias).__name__
    plain = {"LowerTriangularMask": "top-left", "LowerTriangularFromBottomRightMask": "bottom-right"}
    diagonal = {"BlockDiagonalMask": False, "BlockDiagonalCausalMask": "top-left", "BlockDiagonalCausalFromBottomRightMask": "bottom-right"}
    if name in plain:
        return {"causal": plain[name]}
    if name == "LowerTriangularFromBottomRightLocalAttentionMask":
        return {"causal": True, "window": (bias._window_size - 1, None)}
    if name == "LocalAttentionFromBottomRightMask":
        return {"window": (bias.window_left, bias.window_right)}
    if name in diagonal and getattr(bias, "_batch_sizes", None) is None:
        return {"causal": diagonal[name], "cu_seqlens_q": bias.q_seqinfo.seqstart, "cu_seqlens_kv": bias.k_seqinfo.seqstart}
    if hasattr(bias, "materialize"):
        return {"bias": bias.materialize((query.shape[0], query.shape[2], query.shape[1], key.shape[1]), dtype=query.dtype, device=query.device)}
    raise TypeError(f"attn_bias is of type {name}; it must be a tensor or an attention bias of xformers")


def _window(sizes: Any) -> tuple[int | None, int | None] | None:
    left, right = sizes
    return None if left < 0 and right < 0 else (None if left < 0 else left, None if right < 0 else right)


def _packed(
    q: Tensor, k: Tensor, v: Tensor, starts_q: Tensor, starts_k: Tensor | None, used: Tensor | None, table: Tensor | None, **options: Any,
) -> tuple[Tensor, Tensor]:
    """o [tokens, heads, dim] and lse [tokens, heads] of packed queries."""
    if table is None:
        if starts_k is None:
            raise ValueError("cu_seq_k is missing; only with block_table it may be")
        if used is not None:  # leave the others out
            sizes = starts_k.diff()
            if bool((used > sizes).any()) or bool((used < 0).any()):
                raise ValueError(f"seqused_k is {used.tolist()}; the sequences have {sizes.tolist()} keys")
            place = torch.arange(k.shape[0]) - torch.repeat_interleave(starts_k[:-1], sizes)
            keep = place < torch.repeat_interleave(used, sizes)
            k, v, starts_k = k[keep], v[keep], torch.nn.functional.pad(used.cumsum(0), (1, 0))
        o, lse = attention(q, k, v, layout="thd", cu_seqlens_q=starts_q, cu_seqlens_kv=starts_k, return_lse=True, **options)
        return o, lse
    if used is None:
        raise ValueError("seqused_k is missing; block_table needs it")
    o, lse = attention(
        q, k, v, layout="thd", cu_seqlens_q=starts_q, page_table=table, lengths_kv=used.long(), return_lse=True, **options)
    return o, lse


def _rotated(x: Tensor, cosine: Tensor, sine: Tensor, at: Tensor, interleaved: bool) -> Tensor:
    """x [batch, tokens, heads, dim] with its first channels rotated by position."""
    size = 2 * cosine.shape[-1]
    c, s = (table[at][:, :, None].to(torch.float32) for table in (cosine, sine))
    part = x[..., :size].float()
    one, two = (part[..., ::2], part[..., 1::2]) if interleaved else part.chunk(2, -1)
    turned = (one * c - two * s, one * s + two * c)
    turned = torch.stack(turned, -1).flatten(-2) if interleaved else torch.cat(turned, -1)
    return torch.cat([turned.to(x.dtype), x[..., size:]], -1)
