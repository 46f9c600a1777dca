# SPDX-License-Identifier: MIT
"""Keywords of attention in other libraries, and what they are in libattn's functions."""
from __future__ import annotations

from typing import Iterable

_MASK = "mask=, of booleans that are True where a query sees a key, or bias=, of numbers that are added to the scores"
_WINDOW = "window=, how many keys to the left and to the right a query sees beside its own, a number or (left, right)"
_CAUSAL = 'causal=True; with other numbers of queries than of keys, PyTorch\'s is causal="top-left"'
_TABLE = "page_table, which libattn.attention and libattn.torch.attention have"
_COUNTED = "lengths_kv=, in which the new keys count"

# The hint of each: names with "=" are keywords of libattn.attention, libattn.torch.attention and libattn.jax.attention.
ELSEWHERE = {
    "attn_mask": _MASK, "attention_mask": _MASK, "is_causal": _CAUSAL, "attn_bias": "bias=", "position_bias": "bias=",
    "key_padding_mask": "lengths_kv=, where padding is behind, or mask=, [batch, 1, 1, keys], True where a query sees the key",
    "dropout_p": "dropout=", "dropout_rate": "dropout=", "window_size": _WINDOW, "local_window_size": _WINDOW,
    "sliding_window": "window=(sliding_window - 1, 0)", "softmax_scale": "scale=", "sm_scale": "scale=", "scaling": "scale=",
    "logits_soft_cap": "softcap=", "attn_logits_soft_cap": "softcap=", "logit_softcap": "softcap=", "sinks": "sink=", "s_aux": "sink=",
    "cu_seqlens_k": "cu_seqlens_kv=", "cu_seq_lens_q": "cu_seqlens_q=", "cu_seq_lens_k": "cu_seqlens_kv=",
    "query_seq_lengths": "lengths_q=", "key_value_seq_lengths": "lengths_kv=", "seqused_k": "lengths_kv=",
    "seq_lens": "lengths_kv=", "seqlens_k": "lengths_kv=", "cache_seqlens": _COUNTED, "past_seqlens": _COUNTED,
    "query_start_loc": "cu_seqlens_q=", "qo_indptr": "cu_seqlens_q=", "cumulative_sequence_length": "cu_seqlens_q=", "kv_indptr": "cu_seqlens_kv=",
    "block_table": _TABLE, "block_tables": _TABLE, "paged_kv_indptr": "page_starts, which libattn.attention has",
    "paged_kv_indices": "page_index, which libattn.attention has", "paged_kv_last_page_len": "lengths_last_page, which libattn.attention has",
    "enable_gqa": "nothing: fewer heads of k and v than of q are enough",
}


def unknown(names: Iterable[str]) -> TypeError:
    """The error of keywords that attention does not have."""
    name = min(names, key=lambda name: (name not in ELSEWHERE, name))
    hint = ELSEWHERE.get(name)
    return TypeError(f"{name!r} is not an option or a tensor of attention{f'; write {hint}' if hint else ''}")
