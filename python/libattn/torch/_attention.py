# SPDX-License-Identifier: MIT
"""libattn.torch.attention."""
from __future__ import annotations

from typing import Any, Literal

import torch

from ._autograd import Attention, below
from ._fake import compute
from ._shim import AT, DEFAULTS, OPS, error

Tensor = torch.Tensor
Causal = bool | Literal["top-left", "bottom-right"]
Window = int | tuple[int | None, int | None] | None

LAYOUTS = {"bhsd": 0, "bshd": 1, "thd": 2}
CAUSAL = {False: (0, 1), True: (1, 1), "top-left": (1, 0), "bottom-right": (1, 1)}
TABLES = {"t5": 0, "clipped": 1}
FIRST, ALIGN = AT["causal"], AT["align"]
DIFFERENTIABLE = tuple(AT[name] for name in ("bias", "alibi_slopes", "sink", "scales", "bias_table"))

_operator = OPS.attention.default
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
    bias_table_max_distance: int = 0, bias_table_causal: bool = False,
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

    Gradients: of q, k, v, bias, sink, alibi_slopes, scale (a tensor) and bias_table; of q, k, v and bias in forward mode too, and
    twice, by torch.autograd and torch.func alike, under torch.vmap, and in torch.compile and torch.export without a break.  lse has
    gradients, weights have none.

    Raises ValueError, TypeError or NotImplementedError with a sentence that names the argument.

        >>> q = k = v = torch.rand(1, 8, 512, 64, requires_grad=True)
        >>> libattn.torch.attention(q, k, v, causal=True).sum().backward()
    """
    if torch.is_autocast_enabled("cpu"):
        kind = torch.get_autocast_dtype("cpu")
        q, k, v = (x.to(kind) if x.is_floating_point() and x.dtype != torch.float64 else x for x in (q, k, v))
    _check(q, k, v)
    options = list(DEFAULTS)
    try:
        options[FIRST], options[ALIGN] = CAUSAL[causal]
        options[AT["layout"]] = LAYOUTS[layout]
        options[AT["table_kind"]] = TABLES[bias_table_kind]
    except (KeyError, TypeError):
        raise ValueError(_choice(causal, layout, bias_table_kind)) from None
    if window is not None:
        options[AT["window_left"]], options[AT["window_right"]] = _window(window)
    if mask is not None:
        if mask.dtype not in (torch.bool, torch.uint8):
            raise TypeError(f"mask has type {mask.dtype}; it must be of booleans, True where a query sees a key (bias is added)")
        options[AT["mask"]] = mask
    if isinstance(scale, Tensor) and scale.dim():
        options[AT["scales"]] = scale.to(compute(q))
    elif scale is not None:
        options[AT["scale"]] = float(scale)
    for name, x in (("sink", sink), ("alibi_slopes", alibi_slopes)):
        if x is not None:
            options[AT[name]] = x.to(compute(q))
    if softcap is not None:
        options[AT["softcap"]] = float(softcap)
    if dropout:
        options[AT["dropout"]] = float(dropout)
        options[AT["seed"]] = _seed(seed)
    for name, x in (
        ("bias", bias), ("lengths_q", lengths_q), ("lengths_kv", lengths_kv), ("cu_seqlens_q", cu_seqlens_q), ("cu_seqlens_kv", cu_seqlens_kv),
        ("page_table", page_table), ("ranges", ranges), ("block_mask", block_mask), ("threads", threads), ("bias_table", bias_table),
    ):
        if x is not None:
            options[AT[name]] = x
    if offset_q is not None:
        options[AT["offset_q"]], options[ALIGN] = offset_q, 0
    if block_size is not None:
        options[AT["block_q"]], options[AT["block_kv"]] = block_size
    options[AT["chunk"]] = chunk
    options[AT["table_distance"]], options[AT["table_causal"]] = bias_table_max_distance, int(bias_table_causal)
    o, lse, weights = compute_attention(q, k, v, options, return_weights)
    if out is not None:
        if o.requires_grad or out.requires_grad:
            raise ValueError("out is set; a result with gradients cannot be written into it")
        o = out.copy_(o)
    if not (return_lse or return_weights):
        return o
    return (o, *([lse] if return_lse else []), *([weights] if return_weights else []))


def compute_attention(q: Tensor, k: Tensor, v: Tensor, options: Any, weights: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """o, lse and weights, by the way that the caller's mode of autograd needs."""
    if _compiling():
        return _operator(q, k, v, *options, weights)
    try:
        if differentiated(q, k, v, options):
            return Attention.apply(q, k, v, *options, weights)
        if weights:
            with below():
                return _operator(q, k, v, *options, weights)
        end = len(options)
        while end and options[end - 1] is DEFAULTS[end - 1]:  # arguments that are left out cost nothing
            end -= 1
        with below():
            return _operator(q, k, v, *options[:end])
    except RuntimeError as raised:
        raise error(raised) from None


def differentiated(q: Tensor, k: Tensor, v: Tensor, options: Any) -> bool:
    """Is a derivative requested, or a transform of torch.func active?"""
    if _transforms() or torch.autograd.forward_ad._current_level >= 0:
        return True
    if not torch.is_grad_enabled():
        return False
    if q.requires_grad or k.requires_grad or v.requires_grad:
        return True
    return any(options[i] is not None and options[i].requires_grad for i in DIFFERENTIABLE)


def _check(q: Any, k: Any, v: Any) -> None:
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, Tensor):
            raise TypeError(f"{name} is of type {type(x).__name__}; it must be a torch.Tensor (libattn.attention takes other arrays)")
        if not (x.is_cpu or x.is_meta) or x.is_meta != q.is_meta:
            raise TypeError(f"{name} is on the device {x.device}, and libattn computes on the CPU")
        if x.layout != torch.strided:
            raise TypeError(f"{name} has the layout {x.layout}; it must be a dense tensor")


def _choice(causal: Any, layout: Any, kind: Any) -> str:
    for name, x, known in (("causal", causal, CAUSAL), ("layout", layout, LAYOUTS)):
        try:
            if x in known:
                continue
        except TypeError:
            pass
        return f"{name} is {x!r}; known: {', '.join(map(repr, known))}"
    return f"bias_table_kind is {kind!r}; known: {', '.join(map(repr, TABLES))}"


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
