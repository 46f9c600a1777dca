# SPDX-License-Identifier: MIT
"""FlexAttention on a CPU, forward and backward: torch.nn.attention.flex_attention.flex_attention.

A mask_mod is evaluated in rows of blocks, and only once for a BlockMask as long as the tensors that it reads stay as they are.  Where
each query sees an interval of keys (causal, windows, documents, prefixes) it becomes two numbers a query, else a mask of bytes.  A
score_mod is called with an object in place of the score, which notes what happens to it: a factor, a softcap, what is added, and
-inf somewhere.  What is of another form is computed by its formula in PyTorch, with the matrix of all scores.
"""
from __future__ import annotations

import math
import types
import weakref
from typing import Any, Callable

import torch
from torch.nn.attention import flex_attention as stock

from ._attention import compute_attention
from ._shim import AT, DEFAULTS

Tensor = torch.Tensor
ROWS = 128  # of a mask at once


class OtherForm(Exception):
    """A score_mod that is not factor, softcap, sum and mask in this order; its text says why."""


class Score:
    """The score in a call of score_mod: factor * score, capped if cap is set, plus `added`."""

    def __init__(self, factor: float = 1.0, cap: float | None = None, added: Any = 0.0, inside: bool = False) -> None:
        self.factor, self.cap, self.added, self.inside = factor, cap, added, inside

    def _plus(self, other: Any, sign: int = 1) -> Score:
        if isinstance(other, Score):
            raise OtherForm("the score appears twice")
        if self.inside:
            raise OtherForm("a tanh without its factor")
        return Score(self.factor, self.cap, self.added + other if sign > 0 else self.added - other)

    def _times(self, number: Any) -> Score:
        if isinstance(number, Tensor) and number.dim() == 0 and not number.requires_grad:
            number = number.item()
        if not isinstance(number, (int, float)):
            raise OtherForm("the score is multiplied by a tensor")
        if self.inside:  # tanh(factor * score) * number
            if not math.isclose(self.factor * number, 1, rel_tol=1e-6):
                raise OtherForm("a tanh whose factors are not each other's inverse")
            return Score(1.0, float(number), 0.0)
        if self.cap is not None or isinstance(self.added, Tensor) or self.added:
            raise OtherForm("a factor behind a sum or a softcap")
        return Score(self.factor * number)

    def _tanh(self) -> Score:
        if self.cap is not None or self.inside or isinstance(self.added, Tensor) or self.added:
            raise OtherForm("a tanh behind a sum or another tanh")
        return Score(self.factor, inside=True)

    def _where(self, keep: Tensor, other: Any) -> Score:
        if isinstance(other, Score):
            if (self.factor, self.cap, self.inside, other.inside) != (other.factor, other.cap, False, False):
                raise OtherForm("scores of two forms")
            return Score(self.factor, self.cap, torch.where(keep, self.added, other.added))
        if self.inside or not bool((torch.as_tensor(other) == -math.inf).all()):
            raise OtherForm("a score that is replaced by a number")
        return Score(self.factor, self.cap, torch.where(keep, self.added, -math.inf))

    def __add__(self, other: Any) -> Score:
        return self._plus(other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Score:
        return self._plus(other, -1)

    def __mul__(self, other: Any) -> Score:
        return self._times(other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Score:
        return self._times(1 / other)

    def tanh(self) -> Score:
        return self._tanh()

    def masked_fill(self, drop: Tensor, value: Any) -> Score:
        return self._where(drop.logical_not(), value)

    def __getattr__(self, name: str) -> Any:
        raise OtherForm(f"{name} of the score")

    @classmethod
    def __torch_function__(cls, function: Any, kinds: Any, arguments: Any = (), options: Any = None) -> Any:
        name, (first, *rest) = function.__name__.strip("_"), arguments
        if options:
            raise OtherForm(f"{name} with options")
        if name in ("add", "radd") and len(rest) == 1:
            return first + rest[0] if isinstance(first, Score) else rest[0]._plus(first)
        if name == "sub" and len(rest) == 1 and isinstance(first, Score):
            return first - rest[0]
        if name in ("mul", "rmul", "multiply") and len(rest) == 1:
            return first._times(rest[0]) if isinstance(first, Score) else rest[0]._times(first)
        if name in ("div", "truediv", "true_divide") and len(rest) == 1 and isinstance(first, Score):
            return first / rest[0]
        if name == "tanh":
            return first._tanh()
        if name == "where" and len(rest) == 2:
            if isinstance(rest[0], Score):
                return rest[0]._where(first, rest[1])
            return rest[1]._where(first.logical_not(), rest[0])
        raise OtherForm(f"{name} of the score")


def flex_attention(
    query: Tensor, key: Tensor, value: Tensor, score_mod: Callable[..., Any] | None = None, block_mask: Any = None, scale: float | None = None,
    enable_gqa: bool = False, return_lse: bool = False, kernel_options: Any = None, *, return_aux: Any = None,
) -> Any:
    """torch.nn.attention.flex_attention.flex_attention on a CPU, with gradients, also of tensors that score_mod reads.

    query, key, value   [batch, heads, tokens, dim]; with enable_gqa key and value may have fewer heads
    score_mod           score_mod(score, b, h, q_idx, kv_idx); called with index tensors that broadcast
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
    maximum = return_aux is not None and return_aux.max_scores
    options = list(DEFAULTS)
    options[AT["align"]] = 0
    try:
        if maximum:
            raise OtherForm("max_scores")
        options[AT["scale"]] = _score(score_mod, query, key, scale, options)
    except OtherForm:
        o, lse, top = _formula(query, key, value, score_mod, block_mask, scale)
    else:
        if block_mask is not None:
            options[AT["ranges"]], options[AT["mask"]] = _mask(block_mask, query, key)
            _blocks(block_mask, options, query, key)
        o, lse, _ = compute_attention(query, key, value, options)
        top = None
    if return_aux is not None:
        return o, stock.AuxOutput(lse=lse if return_aux.lse else None, max_scores=top)
    return (o, lse) if return_lse else o


def _indices(query: Tensor, key: Tensor, first: int = 0, end: int | None = None) -> tuple[Tensor, ...]:
    """b, h, q_idx and kv_idx, of shapes that broadcast to [batch, heads, queries, keys]."""
    sizes = (range(query.shape[0]), range(query.shape[1]), range(first, query.shape[2] if end is None else end), range(key.shape[2]))
    return tuple(torch.arange(r.start, r.stop).view([-1 if i == axis else 1 for i in range(4)]) for axis, r in enumerate(sizes))


def _score(score_mod: Any, query: Tensor, key: Tensor, scale: float | None, options: list[Any]) -> float | None:
    """score_mod as options; returns the scale."""
    if score_mod is None:
        return scale
    found = score_mod(Score(), *_indices(query, key))
    if not isinstance(found, Score) or found.inside:
        raise OtherForm("the result is not the score with something added")
    if found.cap is not None:
        options[AT["softcap"]] = found.cap
    if isinstance(found.added, Tensor):
        if found.added.dim() > 4:
            raise OtherForm("what is added has more than four axes")
        options[AT["bias"]] = found.added.to(torch.float64 if query.dtype == torch.float64 else torch.float32)
    elif found.added:
        raise OtherForm("a constant is added")
    return (query.shape[-1] ** -0.5 if scale is None else scale) * found.factor if found.factor != 1 else scale


# ---- masks -------------------------------------------------------------------------------------------------------------------------

_kept: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
_masks: dict[int, tuple[Any, Any]] = {}


def _reads(function: Any, seen: set[int]) -> list[Any]:
    """What the result of a function depends on, as far as Python shows it: tensors that it reads, by address and version, numbers."""
    if id(function) in seen or not isinstance(function, types.FunctionType):
        return []
    seen.add(id(function))
    values = [cell.cell_contents for cell in function.__closure__ or ()]
    values += [function.__globals__[name] for name in function.__code__.co_names if name in function.__globals__]
    values += list(function.__defaults__ or ())
    found: list[Any] = []
    while values:
        x = values.pop()
        if isinstance(x, Tensor):
            found.append((id(x), x.data_ptr(), x._version))
        elif isinstance(x, (bool, int, float)):
            found.append(x)
        elif isinstance(x, (list, tuple)):
            values += x
        elif isinstance(x, types.FunctionType):
            found += _reads(x, seen)
        elif not isinstance(x, (types.ModuleType, types.BuiltinFunctionType, type)) and x is not None:
            found.append(object())  # it may change: never the same as before
    return found


def _mask(block_mask: Any, query: Tensor, key: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """ranges and mask."""
    reads = (_reads(block_mask.mask_mod, set()), query.shape[:3], key.shape[2], [x if x is None else (x.data_ptr(), x._version) for x in _lists(block_mask)])
    number = id(block_mask)
    if _kept.get(number) is block_mask and _masks[number][0] == reads:
        return _masks[number][1]
    found = _evaluated(block_mask, query, key)
    if number not in _masks:
        weakref.finalize(block_mask, _masks.pop, number, None)
    _kept[number], _masks[number] = block_mask, (reads, found)
    return found


def _lists(block_mask: Any) -> tuple[Any, ...]:
    return block_mask.kv_num_blocks, block_mask.kv_indices, block_mask.full_kv_num_blocks, block_mask.full_kv_indices


def _dense(numbers: Tensor | None, indices: Tensor | None, keys: int) -> Tensor | None:
    """Lists of blocks as a matrix of booleans, [batch, heads, blocks of queries, blocks of keys]."""
    if numbers is None or indices is None:
        return None
    listed = torch.arange(indices.shape[-1]) < numbers[..., None]
    whole = torch.zeros(*indices.shape[:-1], keys + 1, dtype=torch.bool)
    return whole.scatter_(-1, torch.where(listed, indices.long(), keys), True)[..., :keys]


def _evaluated(block_mask: Any, query: Tensor, key: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """ranges, if each query sees an interval of keys; else a mask."""
    rows, columns = block_mask.BLOCK_SIZE
    queries, keys = query.shape[2], key.shape[2]
    partial, full = _matrices(block_mask, keys)

    def sees(first: int, end: int) -> Tensor:
        at = torch.arange(first, end) // rows
        found = block_mask.mask_mod(*_indices(query, key, first, end)) & _wide(partial[:, :, at], columns, keys)
        return found if full is None else found | _wide(full[:, :, at], columns, keys)

    bounds = []
    for first in range(0, queries if keys else 0, ROWS):
        part = sees(first, min(first + ROWS, queries))
        count = part.sum(-1)
        begin, behind = part.to(torch.uint8).argmax(-1), part.flip(-1).to(torch.uint8).argmax(-1)
        end = torch.where(count > 0, keys - behind, begin)
        if not torch.equal(end - begin, count):
            return None, sees(0, queries)
        bounds.append(torch.stack([begin, end], -1))
    return (torch.cat(bounds, 2), None) if bounds else (None, None)


def _matrices(block_mask: Any, keys: int) -> tuple[Any, Any]:
    """Which blocks are seen in part, and which in full (or None)."""
    across = -(-keys // block_mask.BLOCK_SIZE[1])
    lists = _lists(block_mask)
    return _dense(lists[0], lists[1], across), _dense(lists[2], lists[3], across)


def _wide(blocks: Tensor, columns: int, keys: int) -> Tensor:
    """One number for each key in place of one for each block of keys."""
    return blocks.repeat_interleave(min(columns, max(keys, 1)), -1)[..., :keys]


def _blocks(block_mask: Any, options: list[Any], query: Tensor, key: Tensor) -> None:
    """With a mask of bytes, the blocks say what to leave out."""
    rows, columns = block_mask.BLOCK_SIZE
    if options[AT["mask"]] is None or rows > query.shape[2] or columns > key.shape[2]:
        return
    partial, full = _matrices(block_mask, key.shape[2])
    options[AT["block_mask"]] = partial if full is None else partial | full
    options[AT["block_q"]], options[AT["block_kv"]] = rows, columns


# ---- what has another form -----------------------------------------------------------------------------------------------------------


def _formula(query: Tensor, key: Tensor, value: Tensor, score_mod: Any, block_mask: Any, scale: float | None) -> tuple[Tensor, Tensor, Tensor]:
    """o, lse and the largest scores, by the matrix of all scores."""
    kind = torch.float64 if query.dtype == torch.float64 else torch.float32
    group = query.shape[1] // max(key.shape[1], 1)
    q, k, v = (x.to(kind) for x in (query, key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)))
    s = q @ k.transpose(-1, -2) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if score_mod is not None:
        s = score_mod(s, *_indices(query, key)).to(kind)
    if block_mask is not None:
        ranges, mask = _mask(block_mask, query, key)
        if ranges is not None:
            j = torch.arange(key.shape[2])
            mask = (j >= ranges[..., :1]) & (j < ranges[..., 1:])
        if mask is not None:
            s = s.masked_fill(mask.logical_not(), -math.inf)
    top = s.amax(-1) if s.shape[-1] else s.new_full(s.shape[:-1], -math.inf)
    lse = s.logsumexp(-1)
    w = (s - torch.where(lse == -math.inf, 0, lse)[..., None]).exp()
    return (w @ v).to(query.dtype), lse, top


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
