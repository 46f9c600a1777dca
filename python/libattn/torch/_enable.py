# SPDX-License-Identifier: MIT
"""libattn in the place of PyTorch's own attention on a CPU, for models as they are.

Three operators and a function are replaced while it is enabled, the last two operators for nested tensors too, which become packed
sequences; what each serves, and what it leaves to PyTorch:

    _scaled_dot_product_flash_attention_for_cpu and its backward
        what F.scaled_dot_product_attention calls for four axes, equal head sizes, no dropout, a mask without gradient; also in
        compiled graphs, exported programs, autocast, torch.func.grad and vmap
    _scaled_dot_product_attention_math
        what it calls for everything else: three axes, other head sizes, dropout, gradients of masks, second derivatives.  Where the
        user chose it (sdpa_kernel(SDPBackend.MATH)), PyTorch's runs
    _native_multi_head_attention
        the fast paths of nn.MultiheadAttention and nn.TransformerEncoderLayer in evaluation; with nested tensors those of
        nn.TransformerEncoder, which makes them where there is padding
    torch.nn.attention.flex_attention.flex_attention
        which has no backward on a CPU otherwise (_flex.py), also in compiled graphs (_flex_compiled.py)
"""
from __future__ import annotations

import collections
import contextlib
import threading
import warnings
from typing import Any, Iterator

import torch

from . import _flex, _nested
from ._attention import compute_attention
from ._shim import AT, DEFAULTS, OPS, SHIM

Tensor = torch.Tensor
FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)

_lock = threading.Lock()
_depth = 0
_library: torch.library.Library | None = None
_engaged: collections.Counter[str] = collections.Counter()
_left: collections.Counter[str] = collections.Counter()
_math = torch.ops.aten._scaled_dot_product_attention_math.default
_native = torch.ops.aten._native_multi_head_attention.default
_stock_native: dict[str, Any] = {}


def enable() -> None:
    """PyTorch's attention on a CPU is libattn's from now on, in every thread, until disable().

    F.scaled_dot_product_attention, nn.MultiheadAttention, nn.TransformerEncoder and models made of them need no change, nor do nested tensors;
    graphs that torch.compile makes or has made use it too.  Results differ from PyTorch's by rounding; a query that sees no key gets
    zeros.  What torch.compile makes of flex_attention, and of calls with other than four axes or with dropout, stays libattn's after
    disable().  sdpa_kernel(SDPBackend.MATH) still means PyTorch's own.  stats() says what it was used for.

    Calls nest: as many disable() as enable() bring PyTorch's own back.
    """
    global _depth, _library
    with _lock:
        _depth += 1
        if _depth > 1:
            return
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that a kernel is replaced
                for key in ("CPU", "NestedTensorCPU"):
                    if key not in _stock_native:
                        _stock_native[key] = torch.library.get_kernel(_native, key)
                _library = torch.library.Library("aten", "IMPL")
                for key in ("CPU", "AutogradCPU", "NestedTensorCPU", "AutogradNestedTensor"):
                    _library.impl("_scaled_dot_product_attention_math", _replace_nested_math if "Nested" in key else _replace_math, key)
                _library.impl("_native_multi_head_attention", _replace_native, "CPU", with_keyset=True)
                _library.impl("_native_multi_head_attention", _replace_nested_native, "NestedTensorCPU", with_keyset=True)
                _flex.replace(lambda: count("flex_attention"), leave)
                if SHIM.attn_torch_enable():  # last: PyTorch warns of the first kernel that is replaced, and here it would print
                    raise RuntimeError("libattn.torch: PyTorch rejected the kernels")
        except BaseException:
            _depth = 0
            _restore()
            raise


def disable() -> None:
    """Takes one enable() back; without one, does nothing."""
    global _depth
    with _lock:
        if _depth:
            _depth -= 1
        if not _depth:
            _restore()


def _restore() -> None:
    global _library
    SHIM.attn_torch_disable()
    _flex.restore()
    if _library is not None:
        _library._destroy()
        _library = None


def count(what: str) -> None:
    """Something that stats() shows was computed."""
    _engaged[what] += 1


def leave(why: str) -> None:
    """Something that stats() shows was left to PyTorch."""
    _left[why] += 1


def enabled() -> bool:
    """Is libattn in the place of PyTorch's attention?"""
    return _depth > 0


@contextlib.contextmanager
def using() -> Iterator[None]:
    """enable() for a block:  with libattn.torch.using(): ..."""
    enable()
    try:
        yield
    finally:
        disable()


def stats(reset: bool = False) -> dict[str, dict[str, int]]:
    """How often libattn computed in the place of PyTorch, and how often and why PyTorch computed itself.

    Returns {"libattn": {what: calls}, "torch": {why: calls}}; counters of all threads, since the start or the last stats(True).  What
    torch.compile traced counts when it runs, where it is F.scaled_dot_product_attention with four axes or flex_attention, else when it
    is traced.
    """
    global _base
    forward, backward = SHIM.attn_torch_calls(0), SHIM.attn_torch_calls(1)
    engaged = {"scaled_dot_product_attention": forward - _base[0], "scaled_dot_product_attention backward": backward - _base[1], **_engaged}
    found = {"libattn": {what: n for what, n in engaged.items() if n}, "torch": dict(_left)}
    if reset:
        _base = (forward, backward)
        _engaged.clear()
        _left.clear()
    return found


_base = (0, 0)


def _replace_math(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0, is_causal: bool = False,
    dropout_mask: Tensor | None = None, *, scale: float | None = None, enable_gqa: bool = False,
) -> tuple[Tensor, Tensor]:
    why = _math_is_torch_s(query, key, value, attn_mask, dropout_p, is_causal, dropout_mask, enable_gqa)
    if why:
        _left[why] += 1
        return _math.decompose(query, key, value, attn_mask, dropout_p, is_causal, dropout_mask, scale=scale, enable_gqa=enable_gqa)
    kind = "dropout" if dropout_p else "three axes or fewer" if query.dim() < 4 else "other head sizes, gradients of masks and other cases"
    _engaged[f"scaled_dot_product_attention: {kind}"] += 1
    options = list(DEFAULTS)
    options[AT["causal"]], options[AT["align"]], options[AT["scale"]] = int(is_causal), 0, scale
    if attn_mask is not None:
        options[AT["mask" if attn_mask.dtype == torch.bool else "bias"]] = attn_mask
    if dropout_p:
        options[AT["dropout"]], options[AT["seed"]] = dropout_p, torch.randint(2**63 - 1, (), dtype=torch.int64)
    lead = query.shape[:-3]
    folded = query.dim() > 4
    if folded:
        query, key, value = (x.flatten(0, -4) for x in (query, key, value))
    # In the midst of a transform of torch.func, operators go on from here, and classes do not.
    within = torch._C._are_functorch_transforms_active()
    o, _, _ = OPS.attention(query, key, value, *options) if within else compute_attention(query, key, value, options)
    return (o.unflatten(0, lead) if folded else o), query.new_empty(0)


def _math_is_torch_s(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout_p: float, causal: bool, dropout_mask: Tensor | None, gqa: bool,
) -> str:
    """Why PyTorch computes this call itself; "": it does not."""
    if not torch.backends.cuda.flash_sdp_enabled():
        return "sdpa_kernel(SDPBackend.MATH) was chosen"
    if query.dtype not in FLOATS or key.dtype != query.dtype or value.dtype != query.dtype:
        return f"type {query.dtype}, {key.dtype}, {value.dtype}"
    if dropout_mask is not None:
        return "a dropout mask was given"
    if query.dim() != key.dim() or query.dim() != value.dim() or query.dim() < 2:
        return "other numbers of axes"
    if any(x.shape[:-3] != query.shape[:-3] for x in (key, value)):
        return "batches that broadcast"
    if query.dim() > 2 and (key.shape[-3] != value.shape[-3] or (key.shape[-3] != query.shape[-3] and not gqa) or query.shape[-3] % max(key.shape[-3], 1)):
        return "heads that broadcast or do not fit"
    if key.shape[-2] != value.shape[-2] or key.shape[-1] != query.shape[-1]:
        return "shapes that do not fit"
    if causal and mask is not None:
        return "is_causal with attn_mask"
    if mask is not None:
        if mask.dtype not in (torch.bool, *FLOATS):
            return f"attn_mask of type {mask.dtype}"
        if query.dim() > 4 and mask.dim() > 2:
            return "attn_mask with more than four axes"
        if mask.dim() > query.dim():
            return "attn_mask with more axes than the query"
    if not 0 <= dropout_p <= 1:
        return "dropout_p that is no probability"
    return ""


def _replace_native(
    keys: Any, query: Tensor, key: Tensor, value: Tensor, embed_dim: int, num_head: int, qkv_weight: Tensor, qkv_bias: Tensor, proj_weight: Tensor,
    proj_bias: Tensor, mask: Tensor | None = None, need_weights: bool = True, average_attn_weights: bool = True, mask_type: int | None = None,
) -> tuple[Tensor, Tensor]:
    why = _native_is_torch_s(query, mask, mask_type)
    if why:
        _left[f"_native_multi_head_attention: {why}"] += 1
        return _stock_native["CPU"].call_boxed(
            keys, query, key, value, embed_dim, num_head, qkv_weight, qkv_bias, proj_weight, proj_bias, mask, need_weights, average_attn_weights,
            mask_type)
    _engaged["nn.MultiheadAttention, nn.TransformerEncoderLayer"] += 1
    batch, tokens, _ = query.shape
    linear = torch.nn.functional.linear
    if key is query and value is query:
        q, k, v = linear(query, qkv_weight, qkv_bias).view(batch, tokens, 3, num_head, -1).permute(2, 0, 3, 1, 4)
    else:
        parts = zip((query, key, value), qkv_weight.chunk(3), qkv_bias.chunk(3), strict=True)
        q, k, v = (linear(x, w, b).view(batch, x.shape[1], num_head, -1).transpose(1, 2) for x, w, b in parts)
    options = list(DEFAULTS)
    if mask is not None:  # not 0, or True: the query does not see the key
        seen = mask.logical_not()
        options[AT["mask"]] = seen[:, None, None] if mask_type == 1 else seen
    o, _, weights = compute_attention(q, k, v, options, need_weights)
    if need_weights:
        weights = (weights.mean(1) if average_attn_weights else weights).to(query.dtype)
    return linear(o.transpose(1, 2).reshape(batch, tokens, embed_dim), proj_weight, proj_bias), weights


def _native_is_torch_s(query: Tensor, mask: Tensor | None, mask_type: int | None) -> str:
    if not torch.backends.cuda.flash_sdp_enabled():
        return "sdpa_kernel(SDPBackend.MATH) was chosen"
    if query.dtype not in FLOATS or query.dim() != 3:
        return f"type {query.dtype}" if query.dim() == 3 else "other numbers of axes"
    if mask is not None and mask_type not in (0, 1, 2):
        return "a mask of another kind"
    return ""


# ---- nested tensors ------------------------------------------------------------------------------------------------------------------


def _replace_nested_math(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0, is_causal: bool = False,
    dropout_mask: Tensor | None = None, *, scale: float | None = None, enable_gqa: bool = False,
) -> tuple[Tensor, Tensor]:
    """query, key, value   nested, [batch, heads, tokens, dim]"""
    why = _nested_math_is_torch_s(query, key, value, attn_mask, dropout_p, is_causal, dropout_mask)
    if why:
        _left[f"nested tensors: {why}"] += 1
        return _math.decompose(query, key, value, attn_mask, dropout_p, is_causal, dropout_mask, scale=scale, enable_gqa=enable_gqa)
    _engaged["scaled_dot_product_attention: nested tensors"] += 1
    (q, starts_q), (k, starts_kv), (v, _) = (_nested.packed(x.transpose(1, 2)) for x in (query, key, value))
    options = _packed_options(starts_q, starts_kv)
    options[AT["scale"]] = scale
    if dropout_p:
        options[AT["dropout"]], options[AT["seed"]] = dropout_p, torch.randint(2**63 - 1, (), dtype=torch.int64)
    o = compute_attention(q, k, v, options)[0]
    return _nested.nested(o, starts_q, query).transpose(1, 2).contiguous(), o.new_empty(0)


def _nested_math_is_torch_s(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout_p: float, causal: bool, dropout_mask: Tensor | None,
) -> str:
    if not torch.backends.cuda.flash_sdp_enabled():
        return "sdpa_kernel(SDPBackend.MATH) was chosen"
    if mask is not None or dropout_mask is not None or causal:
        return "a mask was given"
    if any(x.dtype not in FLOATS or x.dtype != query.dtype for x in (query, key, value)):
        return f"type {query.dtype}, {key.dtype}, {value.dtype}"
    if not 0 <= dropout_p <= 1:
        return "dropout_p that is no probability"
    q, k, v = (x.transpose(1, 2) if x.is_nested and x.dim() == 4 else x for x in (query, key, value))
    if not all(_nested.fits(x, 4) for x in (q, k, v)):
        return "shapes that are not [batch, heads, tokens, dim]"
    (_, k_lengths), (_, v_lengths) = _nested.packed(k), _nested.packed(v)
    if q.size(0) != k.size(0) or not torch.equal(k_lengths, v_lengths) or not q.size(2) == k.size(2) == v.size(2) or q.size(3) != k.size(3):
        return "shapes that do not fit"
    return ""


def _replace_nested_native(
    keys: Any, query: Tensor, key: Tensor, value: Tensor, embed_dim: int, num_head: int, qkv_weight: Tensor, qkv_bias: Tensor, proj_weight: Tensor,
    proj_bias: Tensor, mask: Tensor | None = None, need_weights: bool = True, average_attn_weights: bool = True, mask_type: int | None = None,
) -> tuple[Tensor, Tensor]:
    """query, key, value   nested, [batch, tokens, embed_dim]"""
    why = _nested_native_is_torch_s(query, key, value, mask)
    if why:
        _left[f"_native_multi_head_attention: nested tensors: {why}"] += 1
        return _stock_native["NestedTensorCPU"].call_boxed(
            keys, query, key, value, embed_dim, num_head, qkv_weight, qkv_bias, proj_weight, proj_bias, mask, need_weights, average_attn_weights,
            mask_type)
    _engaged["nn.MultiheadAttention, nn.TransformerEncoderLayer: nested tensors"] += 1
    x, starts = _nested.packed(query)
    linear = torch.nn.functional.linear
    q, k, v = linear(x, qkv_weight, qkv_bias).view(x.shape[0], 3, num_head, -1).unbind(1)
    weights = None
    if need_weights:
        options = list(DEFAULTS)
        options[AT["layout"]], options[AT["lengths_q"]], options[AT["lengths_kv"]] = 1, starts.diff(), starts.diff()
        o, _, weights = compute_attention(*(_nested.padded(part, starts) for part in (q, k, v)), options, True)
        o, weights = o[_nested.present(starts)], (weights.mean(1) if average_attn_weights else weights).to(query.dtype)
    else:
        o = compute_attention(q, k, v, _packed_options(starts, starts))[0]
    return _nested.nested(linear(o.flatten(1), proj_weight, proj_bias), starts, query), weights  # type: ignore[return-value]


def _nested_native_is_torch_s(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> str:
    if not torch.backends.cuda.flash_sdp_enabled():
        return "sdpa_kernel(SDPBackend.MATH) was chosen"
    if mask is not None:
        return "a mask was given"
    if query.dtype not in FLOATS:
        return f"type {query.dtype}"
    if key is not query or value is not query:
        return "query, key and value are not the same"
    return "" if _nested.fits(query, 3) else "shapes that are not [batch, tokens, channels]"


def _packed_options(starts_q: Tensor, starts_kv: Tensor) -> list[Any]:
    options = list(DEFAULTS)
    options[AT["layout"]], options[AT["cu_seqlens_q"]], options[AT["cu_seqlens_kv"]] = 2, starts_q, starts_kv
    return options
