# SPDX-License-Identifier: MIT
"""Masks of transformers as intervals: the first key that a query sees, and one past the last.

transformers describes a mask by a function of (batch, head, query, key), which it composes of a few of its own.  Those are recognised
by their code, and their bounds computed from what they close over; verify() drops each that does not mean here what it means to
the release at hand.  Other functions are evaluated, some rows at a time.  What is no interval becomes a matrix, as in transformers.
"""
from __future__ import annotations

from types import CodeType
from typing import Any, Callable

import torch
import transformers.masking_utils as stock

Tensor = torch.Tensor
Bounds = tuple[Tensor | None, Tensor | None]  # None: no bound on this side
ROWS = 128  # of a mask that are evaluated at once


class Mask(torch.Tensor):
    """A mask of booleans, [batch, 1, queries, keys], by its ranges, [batch or 1, 1, queries, 2], and perhaps by the keys that all queries of
    a batch entry may see, [batch, 1, 1, keys].

    What attention reads are these.  Any other operation sees the matrix, which is then made; only slices of queries, and of
    the first keys, are masks of this kind again.
    """

    ranges: Tensor
    kept: Tensor | None

    @staticmethod
    def __new__(cls, ranges: Tensor, batch: int, keys: int, kept: Tensor | None = None) -> Mask:
        self = torch.Tensor._make_wrapper_subclass(cls, (batch, 1, ranges.shape[2], keys), dtype=torch.bool, device=ranges.device)  # type: ignore[attr-defined]
        self.ranges, self.kept = ranges, kept
        return self

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    def matrix(self) -> Tensor:
        j = torch.arange(self.shape[3], device=self.ranges.device)
        seen = (j >= self.ranges[..., :1]) & (j < self.ranges[..., 1:])
        return (seen if self.kept is None else seen & self.kept).expand(self.shape)

    def part(self, axis: int, start: int, end: int) -> Mask | None:
        """A slice, if it is a mask of this kind."""
        if axis == 2:
            return Mask(self.ranges[:, :, start:end], self.shape[0], self.shape[3], self.kept)
        if axis == 3 and start == 0:
            return Mask(self.ranges, self.shape[0], end, None if self.kept is None else self.kept[..., :end])
        return self if (start, end) == (0, self.shape[axis]) else None

    def numpy(self, *, force: bool = False) -> Any:
        return self.matrix().numpy(force=force)

    def tolist(self) -> Any:
        return self.matrix().tolist()

    def __tensor_flatten__(self) -> tuple[list[str], tuple[()]]:
        return ["ranges"] if self.kept is None else ["ranges", "kept"], ()

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Tensor], _: Any, size: Any, stride: Any) -> Mask:
        return Mask(inner["ranges"], size[0], size[3], inner.get("kept"))

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"Mask({tuple(self.shape)}, ranges={self.ranges})"

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        if function in (torch.ops.aten.detach.default, torch.ops.aten.alias.default):
            whole = arguments[0]
            return Mask(function(whole.ranges), whole.shape[0], whole.shape[3], None if whole.kept is None else function(whole.kept))
        if function is torch.ops.aten.slice.Tensor:
            axis, start, end, step = (*arguments[1:], *(0, None, None, 1)[len(arguments) - 1:])
            axis %= 4
            start, end, step = slice(start, end, step).indices(arguments[0].shape[axis])
            part = arguments[0].part(axis, start, max(start, end)) if step == 1 else None
            if part is not None:
                return part
        arguments, options = torch.utils._pytree.tree_map_only(Mask, Mask.matrix, (arguments, options or {}))
        return function(*arguments, **options)


def attention_mask(
    batch_size: int, q_length: int, kv_length: int, q_offset: int | Tensor = 0, kv_offset: int = 0,
    mask_function: Callable[..., Any] = stock.causal_mask_function, attention_mask: Tensor | None = None, allow_is_causal_skip: bool = True,
    allow_is_bidirectional_skip: bool = False, use_vmap: bool = False, device: Any = "cpu", **more: Any,
) -> Tensor | None:
    """sdpa_mask of transformers.masking_utils: a Mask, a matrix of booleans, or None where every query sees every key.

    In a graph that is traced, whose mask cannot depend on whether padding is at the ends: a Mask with the padding as it is, where
    mask_function is causal_mask_function or bidirectional_mask_function itself; else that of transformers.
    """
    tracing = torch.compiler.is_compiling() or torch.jit.is_tracing()
    sizes = {"batch_size": batch_size, "kv_length": kv_length, "kv_offset": kv_offset, "mask_function": mask_function,
             "attention_mask": attention_mask, "use_vmap": use_vmap, "device": device, **more}
    if tracing or torch.device(device).type != "cpu":
        padding = stock.prepare_padding_mask(attention_mask, kv_length, kv_offset)
        skips = padding is None and (allow_is_bidirectional_skip or (allow_is_causal_skip and q_length == kv_length and not isinstance(q_offset, Tensor)))
        if torch.compiler.is_dynamo_compiling() and not skips and torch.device(device).type == "cpu" and (
                mask_function is stock.causal_mask_function or mask_function is stock.bidirectional_mask_function):
            begin = torch.zeros(q_length, dtype=torch.int64)
            end = begin + kv_length
            if mask_function is stock.causal_mask_function:
                end = (torch.arange(1, q_length + 1) + (q_offset - kv_offset)).clamp(0, kv_length)
            kept = None if padding is None else padding[:, kv_offset:kv_offset + kv_length].bool()[:, None, None]
            return _made(torch.stack([begin, end], -1)[None, None], batch_size, kv_length, kept)
        return stock.sdpa_mask(
            q_length=q_length, q_offset=q_offset, allow_is_causal_skip=allow_is_causal_skip and q_length == kv_length,
            allow_is_bidirectional_skip=allow_is_bidirectional_skip, **sizes)
    first = int(q_offset)
    padding = stock.prepare_padding_mask(attention_mask, kv_length, kv_offset)
    found: Bounds | None = (None, None) if padding is None else _run(padding[:, kv_offset:kv_offset + kv_length], kv_offset)
    if found is not None:
        form = _bounds(mask_function, torch.arange(first, first + q_length)[None])
        found = _evaluated(q_length, first, sizes) if form is None else _both(found, form)
    if found is None:
        return stock.sdpa_mask(q_length=q_length, q_offset=first, allow_is_causal_skip=False, **sizes)
    begin, end = found
    begin = torch.zeros(1, 1, dtype=torch.int64) if begin is None else (begin - kv_offset).clamp_(0, kv_length)
    end = torch.full((1, 1), kv_length) if end is None else (end - kv_offset).clamp_(0, kv_length)
    if (allow_is_bidirectional_skip or (allow_is_causal_skip and q_length == 1)) and not begin.any() and bool((end == kv_length).all()):
        return None
    ranges = torch.stack(torch.broadcast_tensors(begin, end), -1)
    return Mask(ranges.expand(-1, q_length, 2)[:, None], batch_size, kv_length)


@torch._dynamo.allow_in_graph
def _made(ranges: Tensor, batch: int, keys: int, kept: Tensor | None) -> Mask:
    """A Mask within a graph of torch.compile, which looks at this function's result only."""
    return Mask(ranges, batch, keys, kept)


def _run(seen: Tensor, offset: int) -> Bounds | None:
    """The bounds of what is True in each row of [batch, keys], if nothing between is False."""
    count = seen.sum(-1, keepdim=True)
    if bool((count == seen.shape[-1]).all()):
        return None, None
    rows = seen.to(torch.uint8)
    begin = rows.argmax(-1, keepdim=True)
    end = seen.shape[-1] - rows.flip(-1).argmax(-1, keepdim=True)
    end = torch.where(count > 0, end, begin)
    return (begin + offset, end + offset) if torch.equal(end - begin, count) else None


def _both(one: Bounds, other: Bounds) -> Bounds:
    """The bounds of what is within both."""
    (begin, end), (first, last) = one, other
    return (
        first if begin is None else begin if first is None else torch.maximum(begin, first),
        last if end is None else end if last is None else torch.minimum(end, last),
    )


def _evaluated(q_length: int, first: int, sizes: dict[str, Any]) -> Bounds | None:
    """The bounds of any mask, if it has such, by its values."""
    bounds = []
    for at in range(0, q_length, ROWS):
        rows = stock.sdpa_mask(q_length=min(ROWS, q_length - at), q_offset=first + at, allow_is_causal_skip=False, **sizes)
        found = None if rows is None or rows.shape[1] != 1 else _run(rows[:, 0].flatten(0, 1), sizes["kv_offset"])
        if found is None or rows is None:
            return None
        size = (rows.shape[0], rows.shape[2])
        begin, end = found
        if begin is None or end is None:
            begin, end = torch.full(size, sizes["kv_offset"]), torch.full(size, sizes["kv_offset"] + sizes["kv_length"])
        bounds.append((begin.view(size), end.view(size)))
    return (torch.cat([b for b, _ in bounds], 1), torch.cat([e for _, e in bounds], 1)) if bounds else (None, None)


# ---- the functions of transformers ---------------------------------------------------------------------------------------------------
# Each is given what the function closes over, the positions of queries, [batch or 1, queries], and whether it is only asked within a
# packed sequence.


def _bounds(function: Any, q: Tensor, packed: bool = False) -> Bounds | None:
    """The bounds of a mask function of a known form."""
    code = getattr(function, "__code__", None)
    if code not in _forms:
        return None
    closed = dict(zip(code.co_freevars, (cell.cell_contents for cell in function.__closure__ or ()), strict=True))
    return _forms[code](closed, q, packed)


def _sliding(closed: Any, q: Tensor, packed: bool) -> Bounds:
    return q - closed["sliding_window"] + 1, None


def _sliding_both(closed: Any, q: Tensor, packed: bool) -> Bounds:
    return q - closed["sliding_window"], q + closed["sliding_window"] + 1


def _chunked(closed: Any, q: Tensor, packed: bool) -> Bounds:
    size, start = closed["chunk_size"], closed["left_padding"][:, None]
    begin = (q - start) // size * size + start
    return begin, begin + size


def _packed(closed: Any, q: Tensor, packed: bool) -> Bounds:
    numbers = closed["packed_sequence_mask"].contiguous()  # ascending
    own = numbers[:, q[0]]
    return torch.searchsorted(numbers, own), torch.searchsorted(numbers, own, right=True)


def _remapped(closed: Any, q: Tensor, packed: bool) -> Bounds | None:
    if not packed:
        return None
    place = closed["position_ids"][:, q[0]]
    found = _bounds(closed["mask_function"], place)
    if found is None:
        return None
    begin, end = found
    return None if begin is None else begin + (q - place), None if end is None else end + (q - place)


def _and(closed: Any, q: Tensor, packed: bool) -> Bounds | None:
    parts = closed["mask_functions"]
    packed = packed or any(_forms.get(getattr(part, "__code__", None)) is _packed for part in parts)
    whole: Bounds | None = (None, None)
    for part in parts:
        found = _bounds(part, q, packed)
        if found is None or whole is None:
            return None
        whole = _both(whole, found)
    return whole


Form = Callable[[Any, Tensor, bool], Bounds | None]
_forms: dict[CodeType | None, Form] = {}


def _known() -> dict[Form, tuple[Callable[[], Any], Callable[[], Any] | None]]:
    """Of each form: an example, and what it is verified within if it does not stand alone."""
    numbers = torch.tensor([[0, 0, 0, 1, 1, 1, 1], [0, 1, 1, 1, 1, 1, 2]])
    places = torch.tensor([[0, 1, 2, 0, 1, 2, 3], [4, 0, 1, 2, 3, 4, 0]])
    padding = torch.tensor([0, 2])

    def remapped() -> Any:
        return stock.remap_positions_for_packed_sequence(stock.sliding_window_causal_mask_function(2), places)

    return {
        lambda _, q, packed: (None, q + 1): (lambda: stock.causal_mask_function, None),
        lambda _, q, packed: (None, None): (lambda: stock.bidirectional_mask_function, None),
        _sliding: (lambda: stock.sliding_window_overlay(2), None),
        _sliding_both: (lambda: stock.sliding_window_bidirectional_overlay(2), None),
        _chunked: (lambda: stock.chunked_overlay(3, padding), None),
        _and: (lambda: stock.and_masks(stock.causal_mask_function, stock.chunked_overlay(2, padding)), None),
        _packed: (lambda: stock.packed_sequence_mask_function(numbers), None),
        _remapped: (remapped, lambda: stock.and_masks(remapped(), stock.packed_sequence_mask_function(numbers))),
    }


def verify() -> None:
    """Fills _forms with the functions of this release, but for those that it does not have, or that mean something else in it."""
    if _forms:
        return
    for form, (example, within) in _known().items():
        code = None
        try:
            function = example()
            code = function.__code__
            _forms[code] = form
            function = within() if within else function
            for q_length, first, offset in ((7, 0, 0), *([] if form in (_packed, _remapped) else [(3, 4, 0), (2, 5, 1)])):
                sizes: dict[str, Any] = {"batch_size": 2, "q_length": q_length, "kv_length": 7 - offset, "q_offset": first, "kv_offset": offset}
                want = stock.sdpa_mask(mask_function=function, allow_is_causal_skip=False, **sizes)
                if not torch.equal(attention_mask(mask_function=function, allow_is_causal_skip=False, **sizes), want):
                    raise ValueError("it means something else")
        except Exception:  # whatever another release does to what is asked of it here
            _forms.pop(code, None)
