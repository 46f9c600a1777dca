# SPDX-License-Identifier: MIT
"""Parts of FlexAttention (_flex_rows.py) as functions that Inductor compiles, where Inductor compiles the graph that they are in.

One function for the forward and one for the backward of a score_mod, for any number of queries and keys.  They are compiled when they
run first; PyTorch keeps the result on disk.  The backward is a formula, from o and lse, in place of autograd's: what is differentiated is
score_mod alone.
"""
from __future__ import annotations

import functools
import itertools
import math
import sys
import types
from typing import Any, Callable, Sequence

import torch

from ._flex_calls import everywhere
from ._flex_rows import Problem
from ._flex_text import merged, source

Tensor = torch.Tensor
_numbers = itertools.count()


def wanted() -> bool:
    """Does Inductor compile the graph that is traced now?"""
    virtualized = sys.modules.get("torch._inductor.virtualized")
    return virtualized is not None and getattr(getattr(virtualized, "V", None), "fake_mode", None).__class__.__name__ == "FakeTensorMode"


def _weights(s: Tensor, lse: Tensor, mask: Tensor | None) -> Tensor:
    sees = (lse != -math.inf)[..., None]
    return torch.where(sees if mask is None else sees & mask, (s - lse[..., None]).exp(), 0)


def _product(q: Tensor, k: Tensor) -> Tensor:
    """[batch, heads, queries, keys]; heads of k are shared."""
    batch, heads, queries, dim = q.shape
    return (q.reshape(batch, k.shape[1], heads // k.shape[1] * queries, dim) @ k.transpose(-1, -2)).view(batch, heads, queries, k.shape[2])


def _functions(function: Callable[..., Any], kinds: str, learned: Sequence[int]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """learned: which of the tensors that score_mod reads have gradients."""

    def modified(s: Tensor, at: Any, tensors: Any, numbers: Any) -> Tensor:
        reads = merged(kinds, tensors, numbers)
        return everywhere(lambda score, b, h, i, j: function(None, score, b, h, i, j, *reads), *at, s).to(s.dtype)

    def forward(q: Tensor, k: Tensor, v: Tensor, at: Any, mask: Tensor | None, tensors: Any, numbers: Any) -> tuple[Tensor, Tensor]:
        s = modified(_product(q, k), at, tensors, numbers)
        if mask is not None:
            s = torch.where(mask, s, -math.inf)
        top = s.amax(-1)
        some = top != -math.inf
        most = torch.where(some, top, 0)
        w = (s - most[..., None]).exp()
        total = torch.where(some, w.sum(-1), 1)
        o = w.view(q.shape[0], k.shape[1], -1, k.shape[2]) @ v
        return o.view(*q.shape[:3], v.shape[3]) / total[..., None], torch.where(some, most + total.log(), -math.inf)

    def backward(
        q: Tensor, k: Tensor, v: Tensor, at: Any, mask: Tensor | None, tensors: Any, numbers: Any, lse: Tensor, delta: Tensor, grad_o: Tensor,
    ) -> tuple[Tensor, ...]:
        def pulled(s: Tensor, *mine: Tensor) -> Tensor:
            whole = list(tensors)
            for place, x in zip(learned, mine):
                whole[place] = x
            return modified(s, at, whole, numbers)

        s, pull = torch.func.vjp(pulled, _product(q, k), *(tensors[place] for place in learned))
        w = _weights(s, lse, mask)
        wide = (q.shape[0], k.shape[1], -1)
        grad_s, *rest = pull(w * (_product(grad_o, v) - delta[..., None]))
        grad_s, grad_w = grad_s.view(*wide, k.shape[2]), grad_o.reshape(*wide, v.shape[3])
        grad_v = w.view(*wide, k.shape[2]).transpose(-1, -2) @ grad_w
        return (grad_s @ k).view(q.shape), grad_s.transpose(-1, -2) @ q.reshape(*wide, q.shape[3]), grad_v, *rest

    return forward, backward


@functools.lru_cache(64)
def _compiled(text: str, learned: tuple[int, ...]) -> list[Callable[..., Any]]:
    """With code of their own, as what Dynamo keeps, and how much of it, goes by code."""
    found = []
    for function in _functions(*source(text), learned):
        code = function.__code__.replace(co_name=f"{function.__name__}_{next(_numbers)}")
        found.append(torch.compile(types.FunctionType(code, function.__globals__, code.co_name, None, function.__closure__)))
    return found


class Tiles:
    """The parts of a problem, whose score_mod has a text and reads tensors and numbers."""

    def __init__(self, problem: Problem, text: str, tensors: Sequence[Tensor], numbers: Sequence[int], q: Tensor, k: Tensor, v: Tensor) -> None:
        kind = torch.float64 if q.dtype == torch.float64 else torch.float32
        self.problem, self.text, self.tensors, self.numbers = problem, text, [x.detach() for x in tensors], list(numbers)
        self.q, self.k, self.v = q.to(kind) * problem.scale, k.to(kind).contiguous(), v.to(kind).contiguous()

    def _parts(self) -> Any:
        """From the last on, which is of the usual size: the first queries of a causal mask see few keys."""
        heads = [torch.arange(n) for n in self.q.shape[:2]]
        for first, end, keys, at in reversed(list(self.problem.parts(self.q, self.k))):
            mask = self.problem.found.part(first, end, keys)
            mask = None if mask is None else mask[(None,) * (4 - mask.dim())]
            if len(keys):
                where = (*heads, torch.arange(first, end), keys)
                yield slice(first, end), at, (self.q[:, :, first:end], self.k[:, :, at], self.v[:, :, at], where, mask, self.tensors, self.numbers)

    def filled(self) -> tuple[Tensor, Tensor]:
        """o and lse, of the type of scores."""
        o, lse = self.q.new_zeros(*self.q.shape[:3], self.v.shape[3]), self.q.new_full(self.q.shape[:3], -math.inf)
        for rows, _, arguments in self._parts():
            o[:, :, rows], lse[:, :, rows] = _call(_compiled(self.text, ())[0], arguments)
        return o, lse

    def gradients(self, learned: Sequence[bool], o: Tensor, lse: Tensor, grad_o: Tensor, grad_lse: Tensor) -> list[Tensor]:
        """Of q, k, v and the tensors that are learned."""
        places = tuple(place for place, one in enumerate(learned) if one)
        grad_o = grad_o.to(self.q.dtype)
        delta = (o * grad_o).sum(-1) - grad_lse
        found = [torch.zeros_like(x) for x in (self.q, self.k, self.v, *(self.tensors[place] for place in places))]
        for rows, at, arguments in self._parts():
            parts = _call(_compiled(self.text, places)[1], (*arguments, lse[:, :, rows], delta[:, :, rows], grad_o[:, :, rows]))
            for whole, where, part in zip(found, (rows, at, at), parts, strict=False):
                whole[:, :, where] += part
            for whole, part in zip(found[3:], parts[3:], strict=True):
                whole += part
        found[0] *= self.problem.scale
        return found


def _call(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """With any number of queries and keys: no two are the same by chance."""
    q, k, v, (b, h, i, j), mask, tensors, numbers, *rows = arguments
    axes = [(q, (2,)), (k, (2,)), (v, (2,)), (i, (0,)), (j, (0,)), *((x, (2,)) for x in rows)]
    if mask is not None:
        axes.append((mask, (2, 3)))
    for x, some in axes:
        for axis in some:
            if x.shape[axis] > 1:
                torch._dynamo.maybe_mark_dynamic(x, axis)
    with torch.fx.experimental._config.patch(use_duck_shape=False):
        return function(*arguments)
