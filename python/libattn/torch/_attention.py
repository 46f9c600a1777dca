# SPDX-License-Identifier: MIT
"""libattn.torch.attention."""
from __future__ import annotations

from typing import Any, Literal, Never

import torch
from torch.autograd import forward_ad

from .. import _names
from ._autograd import Attention, below
from ._composed import are_moved, composed
from ._fake import compute
from ._shim import AT, DEFAULTS, NAMES, OPS, WANTS, error

Tensor = torch.Tensor
STRIDED = torch.strided
Causal = bool | Literal["top-left", "bottom-right"]
Window = int | tuple[int | None, int | None] | None
Score = Literal["dot", "general", "metric", "cosine", "distance", "additive"]
Normaliser = Literal["softmax", "softmax-one", "sigmoid", "relu"]

LAYOUTS = {"bhsd": 0, "bshd": 1, "thd": 2}
CAUSAL = {False: (0, 1), True: (1, 1), "top-left": (1, 0), "bottom-right": (1, 1)}
TABLES = {"t5": 0, "clipped": 1}
SCORES = {"dot": 0, "general": 1, "metric": 2, "cosine": 3, "distance": 4, "additive": 5}
NORMALISERS = {"softmax": 0, "softmax-one": 1, "sigmoid": 2, "relu": 3}
FIRST, ALIGN = AT["causal"], AT["align"]
CONVERTED = tuple(AT[name] for name in ("sink", "alibi_slopes", "relative_u", "relative_v"))
PASSED = tuple(AT[name] for name in (
    "bias", "lengths_q", "lengths_kv", "cu_seqlens_q", "cu_seqlens_kv", "page_table", "ranges", "block_mask", "threads", "bias_table", "score_matrix",
    "relative_keys", "relative_values"))
NUMBERS = tuple(AT[name] for name in (
    "chunk", "relative_first", "dilation", "global_q", "global_kv", "least_distance", "shift", "table_distance", "table_causal"))
INTEGERS = tuple(AT[name] for name in (
    "lengths_q", "lengths_kv", "offset_q", "cu_seqlens_q", "cu_seqlens_kv", "page_table", "ranges"))
THREADS = AT["threads"]
DIFFERENTIABLE = tuple(AT[name] for name in WANTS)

PLAIN = len(OPS.attention_plain.default._schema.arguments) - 3  # the options of this operator, which are the first

_operator, _plain = OPS.attention.default, OPS.attention_plain.default
_transforms = torch._C._are_functorch_transforms_active
_compiling = torch.compiler.is_compiling


def attention(
    q: Tensor, k: Tensor, v: Tensor, *, causal: Causal = False, window: Window = None, mask: Tensor | None = None, bias: Tensor | None = None,
    scale: float | Tensor | None = None, softcap: float | None = None, sink: Tensor | None = None, alibi_slopes: Tensor | None = None,
    dropout: float = 0.0, seed: int | Tensor | None = None, lengths_q: Tensor | None = None, lengths_kv: Tensor | None = None,
    cu_seqlens_q: Tensor | None = None, cu_seqlens_kv: Tensor | None = None, page_table: Tensor | None = None,
    layout: Literal["bhsd", "bshd", "thd"] = "bhsd", out: Tensor | None = None, return_lse: bool = False, return_weights: bool = False,
    threads: int | None = None, offset_q: Tensor | None = None, chunk: int = 0, ranges: Tensor | None = None, block_mask: Tensor | None = None,
    block_size: tuple[int, int] | None = None, bias_table: Tensor | None = None, bias_table_kind: Literal["t5", "clipped"] = "t5",
    bias_table_max_distance: int = 0, bias_table_causal: bool = False, score: Score = "dot", score_matrix: Tensor | None = None,
    temperature: float | None = None, normaliser: Normaliser = "softmax", shift: float = 0.0, relative_keys: Tensor | None = None,
    relative_values: Tensor | None = None, relative_u: Tensor | None = None, relative_v: Tensor | None = None, relative_first: int = 0,
    dilation: int = 0, global_q: int = 0, global_kv: int = 0, least_distance: int = 0, **unknown: Never,
) -> Any:
    """Attention over tensors on the CPU: libattn.attention, with gradients.

    The formula, shapes and options are those of libattn.attention; q, k and v are float32, float64, float16 or bfloat16 tensors, and
    under torch.autocast("cpu") become its type.  What differs:

    dropout, seed  without a seed, one is drawn from PyTorch's generator, so torch.manual_seed makes a run repeatable
    out            o is copied into it, for results without gradients only
    threads        at most so many; default: torch.get_num_threads()
    offset_q       [batch]: the position of the first query among the keys
    chunk          a query sees keys of its own chunk of this many only
    ranges         [batch, heads_q, queries, 2]: the first key that a query may see, and one past the last
    block_mask     bool, [batch, heads_q, blocks of queries, blocks of keys] or what broadcasts to it, with block_size, the numbers
                   of queries and keys of a block: which blocks are seen at all
    bias_table     [heads_q, buckets]: a bias by distance, of the kind "t5" or "clipped" (attn/relative.h)
    score          "dot", "general", "metric", "cosine", "distance" or "additive", and score_matrix [heads_q, rows, channels] for those
                   that have weights: what is compared (attn_score)
    temperature    scores are divided by it, before the softcap
    normaliser     "softmax", "softmax-one", "sigmoid" (of scores + shift) or "relu": how scores become weights
    relative_keys, relative_values, relative_u, relative_v, relative_first
                   [heads_q, rows, dim], [heads_q, rows, dim_v], [heads_q, dim], [heads_q, dim]: keys and values by distance, of which
                   row 0 is for the distance relative_first (Shaw; Transformer-XL; attn/relative.h)
    dilation, global_q, global_kv, least_distance
                   every n-th key of a window; the first queries that see all keys, and the first keys that all queries see; 1: a query
                   does not see its own key

    Gradients: of q, k, v and every tensor of floats among the options; of q, k, v, bias, sink, alibi_slopes, scale (a tensor) and
    bias_table in forward mode too, and twice (dot products and softmax only), by torch.autograd and torch.func alike, under torch.vmap,
    and in torch.compile and torch.export without a break (there, of options other than the bias once only).  Forward mode and second
    derivatives with respect to alibi_slopes and bias_table take memory for every pair of query and key.  lse has gradients, weights
    have none.

    Raises ValueError, TypeError or NotImplementedError with a sentence that names the argument.

        >>> q = k = v = torch.rand(1, 8, 512, 64, requires_grad=True)
        >>> libattn.torch.attention(q, k, v, causal=True).sum().backward()
    """
    if unknown:
        raise _names.unknown(unknown)
    if torch.is_autocast_enabled("cpu"):
        kind = torch.get_autocast_dtype("cpu")
        q, k, v = (x.to(kind) if x.is_floating_point() and x.dtype != torch.float64 else x for x in (q, k, v))
    if not (type(q) is type(k) is type(v) is Tensor and q.is_cpu and k.is_cpu and v.is_cpu and q.layout is k.layout is v.layout is STRIDED):
        check_tensors(q=q, k=k, v=v)
    given: dict[int, Any] = {}  # what is not the default: the others cost nothing
    if causal is not False or layout != "bhsd" or bias_table_kind != "t5" or score != "dot" or normaliser != "softmax":
        try:
            given[FIRST], given[ALIGN] = CAUSAL[causal]
            given[AT["layout"]] = LAYOUTS[layout]
            given[AT["table_kind"]] = TABLES[bias_table_kind]
            given[AT["score"]] = SCORES[score]
            given[AT["normaliser"]] = NORMALISERS[normaliser]
        except (KeyError, TypeError):
            raise ValueError(_choice(causal, layout, bias_table_kind, score, normaliser)) from None
    if window is not None:
        given[AT["window_left"]], given[AT["window_right"]] = _window(window)
    if mask is not None:
        if _tensor(mask, "mask").dtype not in (torch.bool, torch.uint8):
            raise TypeError(f"mask has type {mask.dtype}; it must be of booleans, True where a query sees a key (bias is added)")
        given[AT["mask"]] = mask
    if isinstance(scale, Tensor) and (scale.dim() or scale.requires_grad):
        given[AT["scales"]] = (scale if scale.dim() else scale.expand(q.shape[-3 if layout == "bhsd" else -2])).to(compute(q))
    elif scale is not None:
        given[AT["scale"]] = float(scale)
    for at, x in zip(CONVERTED, (sink, alibi_slopes, relative_u, relative_v), strict=True):
        if x is not None:
            given[at] = _tensor(x, NAMES[at]).to(compute(q))
    for at, x in zip(PASSED, (
        bias, lengths_q, lengths_kv, cu_seqlens_q, cu_seqlens_kv, page_table, ranges, block_mask, threads, bias_table, score_matrix, relative_keys,
        relative_values,
    ), strict=True):
        if x is not None:
            given[at] = _integers(x, at) if at in INTEGERS else x if at == THREADS else _tensor(x, NAMES[at])
    for at, number in zip(NUMBERS, (
        chunk, relative_first, dilation, global_q, global_kv, least_distance, shift, bias_table_max_distance, bias_table_causal,
    ), strict=True):
        if number != 0:
            given[at] = number
    if softcap is not None:
        given[AT["softcap"]] = float(softcap)
    if dropout:
        given[AT["dropout"]] = float(dropout)
        given[AT["seed"]] = _seed(seed)
    if offset_q is not None:
        given[AT["offset_q"]], given[ALIGN] = _integers(offset_q, AT["offset_q"]), 0
    if block_size is not None:
        given[AT["block_q"]], given[AT["block_kv"]] = block_size
    if temperature is not None:
        if not temperature > 0:
            raise ValueError(f"temperature is {temperature}; it must be above 0")
        given[AT["temperature"]] = float(temperature)
    options: Any = DEFAULTS
    if given:
        options = list(DEFAULTS)
        for at, x in given.items():
            options[at] = x
    count = len(DEFAULTS) if _compiling() else 1 + max(given, default=-1)
    if count <= PLAIN and not (return_lse or return_weights or differentiated(q, k, v, options)):
        with below():
            try:
                o = _plain(q, k, v, *options[:count])
            except RuntimeError as raised:
                raise error(raised) from None
        return o if out is None else out.copy_(o)
    o, lse, weights = compute_attention(q, k, v, options, return_weights, count)
    if out is not None:
        if o.requires_grad or out.requires_grad:
            raise ValueError("out is set; a result with gradients cannot be written into it")
        o = out.copy_(o)
    if not (return_lse or return_weights):
        return o
    return (o, *([lse] if return_lse else []), *([weights] if return_weights else []))


def compute_attention(
    q: Tensor, k: Tensor, v: Tensor, options: Any, weights: bool = False, count: int = len(DEFAULTS),
) -> tuple[Tensor, Tensor, Tensor]:
    """o, lse and weights, by the way that the caller's mode of autograd needs; after the first `count` options, all are the defaults."""
    if _compiling():
        return _operator(q, k, v, *options, weights)
    try:
        if differentiated(q, k, v, options):
            if forward_ad._current_level >= 0 and not weights and are_moved(options):
                return (*composed(Attention.apply, q, k, v, *options), q.new_empty(0))
            return Attention.apply(q, k, v, *options, weights)
        if weights:
            with below():
                return _operator(q, k, v, *options, weights)
        with below():
            return _operator(q, k, v, *options[:count])
    except RuntimeError as raised:
        raise error(raised) from None


def differentiated(q: Tensor, k: Tensor, v: Tensor, options: Any) -> bool:
    """Is a derivative requested, or a transform of torch.func active?"""
    if _transforms() or forward_ad._current_level >= 0:
        return True
    if not torch.is_grad_enabled():
        return False
    if q.requires_grad or k.requires_grad or v.requires_grad:
        return True
    return options is not DEFAULTS and any(options[i] is not None and options[i].requires_grad for i in DIFFERENTIABLE)


def check_tensors(**tensors: Any) -> None:
    """Are these dense tensors in this computer's memory, or all of them meta tensors?"""
    meta = None
    for name, x in tensors.items():
        if not isinstance(x, Tensor):
            raise TypeError(f"{name} is of type {type(x).__name__}; it must be a torch.Tensor (libattn.attention takes other arrays)")
        meta = x.is_meta if meta is None else meta
        if not (x.is_cpu or x.is_meta) or x.is_meta != meta:
            raise TypeError(f"{name} is on the device {x.device}, and libattn computes on the CPU")
        if x.layout != torch.strided:
            raise TypeError(f"{name} has the layout {x.layout}; it must be a dense tensor")


def _choice(causal: Any, layout: Any, kind: Any, score: Any, normaliser: Any) -> str:
    for name, x, known in (
        ("causal", causal, CAUSAL), ("layout", layout, LAYOUTS), ("bias_table_kind", kind, TABLES), ("score", score, SCORES),
        ("normaliser", normaliser, NORMALISERS),
    ):
        try:
            found = x in known
        except TypeError:
            found = False
        if not found:
            return f"{name} is {x!r}; known: {', '.join(map(repr, known))}"
    raise AssertionError


def _tensor(x: Any, name: str) -> Tensor:
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} is of type {type(x).__name__}; it must be a torch.Tensor")
    return x


def _integers(x: Any, at: int) -> Tensor:
    if _tensor(x, NAMES[at]).dtype not in (torch.int32, torch.int64):
        raise TypeError(f"{NAMES[at]} has type {x.dtype}; it must be torch.int64 or torch.int32")
    return x


def _window(window: Any) -> tuple[int, int]:
    sides = window if isinstance(window, (tuple, list)) else (window, window)
    if len(sides) != 2 or not all(side is None or isinstance(side, (int, torch.SymInt)) for side in sides):
        raise TypeError(f"window is {window!r}; it must be an integer or (left, right)")
    left, right = (-1 if side is None else side for side in sides)
    return left, right


def _seed(seed: int | Tensor | None) -> Tensor:
    if seed is None:
        return torch.randint(2**63 - 1, (), dtype=torch.int64)
    if isinstance(seed, Tensor):
        return seed
    return torch.full((), seed - 2**64 if seed >= 2**63 else seed, dtype=torch.int64)
