# SPDX-License-Identifier: MIT
"""The problem of a call of torch.ops.libattn.attention, for libattn.capture: what libattn.torch.attention, the modules of libattn.torch.nn
and FlexAttention of libattn call."""
from __future__ import annotations

from typing import Any, Callable, Mapping, Sequence

import numpy as np
import torch

from ._arrays import Array
from ._attention import attention
from .torch._attention import LAYOUTS
from .torch._shim import DEFAULTS, NAMES, OPS

OPERATOR = OPS.attention.default
# Options that say which keys a query sees, and what is added to scores, under the operator's names and ours.
VISIBLE = {name: name for name in ("mask", "lengths_q", "lengths_kv", "offset_q", "ranges", "block_mask", "block_q", "block_kv", "chunk", "dilation",
                                   "global_q", "global_kv", "least_distance")}
ADDED = {"bias": "bias", "alibi_slopes": "alibi_slopes", "bias_table": "bias_table", "table_distance": "bias_table_max_distance"}
NUMBERS = {"scale": "scale", "scales": "scale", "softcap": "softcap", "sink": "sink", "temperature": "temperature"}
READ = {"causal", "align", "window_left", "window_right", "layout", "table_kind", "table_causal", "seed", "dropout", "threads"}


def problem(q: Any, k: Any, v: Any, options: Sequence[Any], array: Callable[[Any], Array]) -> tuple[Any, Any, Any, dict[str, Any]]:
    """q, k, v as [batch, heads, tokens, dim], and the keywords of libattn.attention: all that masks as `mask`, all that is added as `bias`.

    Raises NotImplementedError for packed sequences, pages, other scores and normalisers, and terms by distance between q and k.
    """
    given = {name: value for name, value, default in zip(NAMES, options, DEFAULTS) if value is not default and not (
        isinstance(value, (int, float)) and value == default)}
    if LAYOUTS["thd"] == given.get("layout") or set(given) - READ - set(VISIBLE) - set(ADDED) - set(NUMBERS):
        name = next(iter(sorted(set(given) - READ - set(VISIBLE) - set(ADDED) - set(NUMBERS))), "cu_seqlens_q")
        raise NotImplementedError(f"capture: libattn.torch.attention with {name} is not recorded")
    if given.get("layout") == LAYOUTS["bshd"]:
        q, k, v = (x.transpose(-3, -2) for x in (q, k, v))
    q, k, v = (x.reshape(*(1,) * (4 - x.dim()), *x.shape) for x in (q, k, v))
    found = {ours: plain(given[name], array) for name, ours in NUMBERS.items() if name in given}
    seen, added = pairs(given, (q.shape[0], q.shape[1], q.shape[2], k.shape[1], k.shape[2]), array)
    found.update({name: made for name, made in (("mask", seen), ("bias", added)) if made is not None})
    return q, k, v, found


def plain(value: Any, array: Callable[[Any], Array]) -> Any:
    return array(value) if isinstance(value, torch.Tensor) else value


def pairs(given: Mapping[str, Any], sizes: tuple[int, int, int, int, int], array: Callable[[Any], Array]) -> tuple[Array | None, Array | None]:
    """Which pairs are seen, and what is added to their scores: attention itself says it, of queries and keys that are 0."""
    batch, heads, queries, heads_kv, keys = sizes
    options = {ours: plain(given[name], array) for name, ours in {**VISIBLE, **ADDED}.items() if name in given}
    causal, align = bool(given.get("causal", 0)), "bottom-right" if given.get("align", 1) else "top-left"
    window = tuple(None if (side := given.get(name, -1)) < 0 else side for name in ("window_left", "window_right"))
    if "bias_table" in options:
        options["bias_table_kind"] = ("t5", "clipped")[given.get("table_kind", 0)]
        options["bias_table_causal"] = bool(given.get("table_causal", 0))
    if not (options or causal or window != (None, None)):
        return None, None
    if "offset_q" not in options:
        options["align"] = align
    zeros = np.zeros((batch, heads, queries, 1), np.float32), np.zeros((batch, heads_kv, keys, 1), np.float32)
    _, weights, scores = attention(
        *zeros, zeros[1], causal=causal, window=None if window == (None, None) else window, return_weights=True, outputs=["scores"],
        scores_stage="biased", **options)
    seen = scores > -np.inf if any(name in options for name in ADDED.values()) else weights > 0
    added = np.where(seen, scores, 0)
    return None if seen.all() else seen, added if added.any() else None
