# SPDX-License-Identifier: MIT
"""FlexAttention with a score_mod of any form: some queries at a time, over the keys that they may see.

A part is computed again for its gradient, so memory grows with the length and not with its square.
"""
from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Callable, Sequence

import torch

from ._flex_calls import everywhere
from ._flex_masks import Seen, keys_of

Tensor = torch.Tensor
SCORES = 2**20  # that a part has, unless its queries are few
FEW = 16


@dataclass(frozen=True)
class Problem:
    """What does not change from part to part."""

    score_mod: Callable[..., Any] | None
    block_mask: Any
    found: Seen
    scale: float

    def part(self, q: Tensor, k: Tensor, v: Tensor, first: int, keys: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """o, lse and the largest scores of queries first, first + 1, ... over some keys."""
        kind = torch.float64 if q.dtype == torch.float64 else torch.float32
        batch, heads, queries, dim = q.shape
        heads_kv, count = k.shape[1], k.shape[2]
        wide, k, v = q.to(kind).reshape(batch, heads_kv, heads // heads_kv * queries, dim), k.to(kind), v.to(kind)
        s = (wide @ k.transpose(-1, -2) * self.scale).view(batch, heads, queries, count)
        if self.score_mod is not None and count:
            s = everywhere(self.score_mod, torch.arange(batch), torch.arange(heads), torch.arange(first, first + queries), keys, s).to(kind)
        mask = self.found.part(first, first + queries, keys)
        if mask is not None:
            s = s.masked_fill(mask.logical_not(), -math.inf)
        top = s.detach().amax(-1) if count else s.new_full(s.shape[:-1], -math.inf)
        some = top != -math.inf
        most = torch.where(some, top, 0)
        w = (s - most[..., None]).exp()
        total = torch.where(some, w.sum(-1), 1)
        lse, w = torch.where(some, most + total.log(), -math.inf), w / total[..., None]
        o = (w.view(batch, heads_kv, wide.shape[2], count) @ v).view(batch, heads, queries, v.shape[3])
        return o.to(q.dtype), lse, top

    def parts(self, query: Tensor, key: Tensor) -> Any:
        """The first query, the end, the keys that are seen, and how to take them."""
        batch, heads, queries, _ = query.shape
        rows = max(FEW, SCORES // max(batch * heads * key.shape[2], 1))
        for first in range(0, queries, rows):
            end = min(first + rows, queries)
            keys = keys_of(self.found, self.block_mask, first, end, key.shape[2])
            whole = len(keys) and int(keys[-1]) - int(keys[0]) == len(keys) - 1
            yield first, end, keys, slice(int(keys[0]), int(keys[-1]) + 1) if whole else keys

    def filled(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        """All parts, without derivatives.  Kept results of parts would lie between freed scores in memory, which glibc before 2.38
        then does not use again for aligned memory of the same size: all scores, in the end."""
        kind = torch.float64 if query.dtype == torch.float64 else torch.float32
        rows = query.shape[:3]
        found = query.new_empty(*rows, value.shape[3]), query.new_empty(rows, dtype=kind), query.new_empty(rows, dtype=kind)
        for first, end, keys, at in self.parts(query, key):
            part = self.part(query[:, :, first:end], key[:, :, at], value[:, :, at], first, keys)
            for whole, some in zip(found, part, strict=True):
                whole[:, :, first:end] = some
        return found

    def whole(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        """The same of operations that have derivatives."""
        parts = [
            self.part(query[:, :, first:end], key[:, :, at], value[:, :, at], first, keys) for first, end, keys, at in self.parts(query, key)
        ]
        return tuple(torch.cat(x, 2) for x in zip(*parts, strict=True))

    def gradients(self, tensors: Sequence[Tensor], needs: Sequence[bool], grad_o: Tensor, grad_lse: Tensor, again: bool) -> list[Any]:
        """Of query, key, value and what score_mod reads, where it is needed; again: they have derivatives."""
        query, key, value, *others = tensors
        grads = [torch.zeros_like(x) if need else None for x, need in zip(tensors, needs, strict=True)]
        with torch.enable_grad():
            for first, end, keys, at in self.parts(query, key):
                mine = [x[:, :, to] for x, to in ((query, slice(first, end)), (key, at), (value, at))]
                if not again:
                    mine = [x.detach().requires_grad_(need) for x, need in zip(mine, needs, strict=False)]
                o, lse, _ = self.part(*mine, first, keys)
                inputs = [x for x, need in zip((*mine, *others), needs, strict=True) if need]
                results = [(x, grad) for x, grad in ((o, grad_o[:, :, first:end]), (lse, grad_lse[:, :, first:end])) if x.requires_grad]
                found = iter(torch.autograd.grad([x for x, _ in results], inputs, [grad for _, grad in results], create_graph=again, allow_unused=True))
                for whole, place in zip(grads, (slice(first, end), at, at, *[None] * len(others)), strict=True):
                    if whole is None:
                        continue
                    part = next(found)
                    if part is not None and place is None:
                        whole += part
                    elif part is not None:
                        whole[:, :, place] += part
        return grads


class Rows(torch.autograd.Function):
    """(problem, query, key, value, *what score_mod reads) -> o, lse, the largest scores"""

    @staticmethod
    def forward(ctx: Any, problem: Problem, *tensors: Tensor) -> Any:
        found = problem.filled(*tensors[:3])
        ctx.problem = problem
        ctx.mark_non_differentiable(found[2])
        ctx.save_for_backward(*tensors)
        return found

    @staticmethod
    def backward(ctx: Any, grad_o: Tensor, grad_lse: Tensor, _: Any) -> Any:
        return None, *ctx.problem.gradients(ctx.saved_tensors, ctx.needs_input_grad[1:], grad_o, grad_lse, torch.is_grad_enabled())


def problem_of(query: Tensor, score_mod: Callable[..., Any] | None, block_mask: Any, found: Seen, scale: float | None) -> Problem:
    return Problem(score_mod, block_mask, found, query.shape[-1] ** -0.5 if scale is None else scale)


def attend(
    query: Tensor, key: Tensor, value: Tensor, score_mod: Callable[..., Any] | None, block_mask: Any, found: Seen, scale: float | None,
    reads: Sequence[Tensor],
) -> tuple[Tensor, ...]:
    """o, lse and the largest scores; reads: the tensors with gradients that score_mod reads."""
    problem = problem_of(query, score_mod, block_mask, found, scale)
    if not query.shape[2] or not key.shape[1]:
        lse = query.new_full(query.shape[:3], -math.inf, dtype=torch.float64 if query.dtype == torch.float64 else torch.float32)
        return query.new_zeros(*query.shape[:3], value.shape[3]), lse, lse
    if torch._C._are_functorch_transforms_active() or torch.autograd.forward_ad._current_level >= 0:
        return problem.whole(query, key, value)  # which see through it, in memory for all scores
    return Rows.apply(problem, query, key, value, *reads)
