# SPDX-License-Identifier: MIT
"""FlexAttention in graphs that torch.compile makes, forward and backward.

Dynamo traces score_mod and mask_mod for an operator of higher order, as it does for PyTorch's own: with Dynamo's part of that one, but of
a name of ours, so that nothing of PyTorch's is changed, and a graph stays right after disable().  What comes after Dynamo sees
torch.ops.libattn.flex, an ordinary operator, since the traced functions become text (_flex_text.py): functionalisation, partitioning,
caches on disk and Inductor treat it as any other.  When it runs, it reads the functions and the mask as a call outside of a graph does.
"""
from __future__ import annotations

import contextlib
import inspect
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Callable, Iterator

import torch
from torch._subclasses.fake_tensor import is_fake
from torch.nn.attention import flex_attention as stock

from . import _flex_masks, _flex_rows, _flex_scores
from ._fake import compute, dense, register
from ._flex_attend import attend, checked, exact, options_of, working
from ._flex_text import bound, parted, unchanged, written
from ._flex_tiles import Tiles, wanted
from ._shim import AT, OPS, WANTS

Tensor = torch.Tensor
STOCK = ("self", "query", "key", "value", "score_mod", "block_mask", "scale", "kernel_options", "score_mod_other_buffers", "mask_mod_other_buffers")
SECOND = "libattn has no second derivatives of FlexAttention in compiled graphs"
MASKS, BYTES = 32, 2**28  # that are kept, and how many bytes of them

# What stats() shows: set by _flex.replace.
count: Callable[[], None] = lambda: None  # noqa: E731
left: Callable[[str], None] = lambda why: None  # noqa: E731

# ---- the operators ---------------------------------------------------------------------------------------------------------------------

_OPTIONS = (
    "str score, Tensor[] score_tensors, SymInt[] score_numbers, str mask, Tensor[] mask_tensors, SymInt[] mask_numbers, Tensor[] blocks, "
    "SymInt[] block_size, float? scale, bool tiles")
_library = torch.library.Library("libattn", "FRAGMENT")
_library.define(f"flex(Tensor q, Tensor k, Tensor v, {_OPTIONS}, bool largest, bool instead) -> (Tensor o, Tensor lse, Tensor top)")
_library.define(
    f"flex_backward(Tensor? grad_o, Tensor? grad_lse, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, bool[] needs, {_OPTIONS})"
    " -> (Tensor grad_q, Tensor grad_k, Tensor grad_v, Tensor[] grad_score_tensors)")


with ThreadPoolExecutor(1) as _thread:  # whose state is that of the outside of all operators
    _keys = _thread.submit(lambda: (torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set())).result()


@contextlib.contextmanager
def _outside() -> Iterator[None]:
    """Within a kernel, operators do what they do outside: also torch.vmap, which has no effect within a mode, and derivatives."""
    with torch.inference_mode(False), torch._C._ForceDispatchKeyGuard(*_keys):
        yield


@dataclass(frozen=True)
class Blocks:
    """What is read of a BlockMask."""

    kv_num_blocks: Tensor
    kv_indices: Tensor
    full_kv_num_blocks: Tensor | None
    full_kv_indices: Tensor | None
    BLOCK_SIZE: tuple[int, int]
    mask_mod: Callable[..., Any]


_kept: list[tuple[Any, tuple[Tensor, ...], _flex_masks.Seen]] = []
_lock = threading.Lock()


def _seen(blocks: Blocks | None, what: Any, reads: tuple[Tensor, ...], q: Tensor, k: Tensor) -> _flex_masks.Seen:
    """_flex_masks.seen of tensors that may have any identity, and memory that is used again: they are compared with copies."""
    if blocks is None:
        return _flex_masks.Seen()
    key = (what, q.shape[:3], k.shape[2], *((x.shape, x.dtype) for x in reads))
    with _lock:
        kept = [one for one in _kept if one[0] == key]
    for one in kept:
        if all(torch.equal(x, y) for x, y in zip(reads, one[1], strict=True)):
            return one[2]
    found = _flex_masks._evaluated(blocks, q, k)
    with _lock:
        _kept.append((key, tuple(x.clone() for x in reads), found))
        while len(_kept) > MASKS or (len(_kept) > 1 and sum(_bytes(*one[1:]) for one in _kept) > BYTES):
            del _kept[0]
    return found


def _bytes(reads: tuple[Tensor, ...], found: _flex_masks.Seen) -> int:
    return sum(x.nbytes for x in (*reads, found.ranges, found.mask) if x is not None)


def _problem(q: Tensor, k: Tensor, options: Any, score_tensors: Any = None) -> tuple[Any, Any, Any]:
    """score_mod, the BlockMask and what it lets queries see."""
    score, tensors, numbers, mask, mask_tensors, mask_numbers, lists, sizes = options[:8]
    score_mod = bound(score, tensors if score_tensors is None else score_tensors, numbers) if score else None
    if not lists:
        return score_mod, None, _flex_masks.Seen()
    blocks = Blocks(*lists, *[None] * (4 - len(lists)), tuple(sizes), bound(mask, mask_tensors, mask_numbers))  # type: ignore[arg-type]
    return score_mod, blocks, _seen(blocks, (mask, *mask_numbers, *sizes), (*mask_tensors, *lists), q, k)


def _tiles(problem: _flex_rows.Problem, q: Tensor, k: Tensor, v: Tensor, options: Any, compute: Callable[[Tiles], Any]) -> Any:
    """What compiled parts compute; None: they cannot, or there is one part only."""
    score, tensors, numbers = options[:3]
    if not (options[9] and score) or score in _failed or q.shape[0] * q.shape[1] * q.shape[2] * k.shape[2] <= _flex_rows.SCORES:
        return None
    try:
        with torch.no_grad():
            return compute(Tiles(problem, score, tensors, numbers, q, k, v))
    except torch._dynamo.exc.TorchDynamoException as raised:
        _failed.add(score)
        left(f"flex_attention: a score_mod was not compiled, and PyTorch's operators compute it ({type(raised).__name__})")
        return None


_failed: set[str] = set()


def _like(x: Tensor, fake: Tensor) -> Tensor:
    """x with strides that were promised."""
    return x if x.stride() == fake.stride() else fake.copy_(x)


def _forward(q: Tensor, k: Tensor, v: Tensor, *options: Any) -> tuple[Tensor, Tensor, Tensor]:
    largest, instead = options[-2:]
    if instead:
        count()
    with _outside(), torch.no_grad():
        problem = _problem(q, k, options)
        o, lse, top = attend(q, k, v, *problem, options[8], largest, lambda found: _tiles(found, q, k, v, options, Tiles.filled))
        o = o.to(q.dtype)
        return _like(o, dense(o.shape, q)), lse.contiguous(), top.clone() if largest and top is not None else q.new_empty(0)


def _backward(
    grad_o: Tensor | None, grad_lse: Tensor | None, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, needs: list[bool], *options: Any,
) -> Any:
    """Of what score_mod becomes, the gradients are libattn's, and autograd's from there on."""
    with _outside(), exact(), torch.enable_grad():
        tensors = [x.detach().requires_grad_(need) for x, need in zip(options[1], needs, strict=True)]
        learned = [x for x in tensors if x.requires_grad]
        score_mod, blocks, found = _problem(q, k, options, tensors)
        reader = None if score_mod is None else _flex_scores.read(score_mod, working(q))
        try:
            mine = options_of(q, k, reader, score_mod, blocks, found, options[8])
        except _flex_scores.OtherForm:
            problem = _flex_rows.problem_of(q, score_mod, blocks, found, options[8])
            grads = [torch.zeros_like(x) if grad is None else grad for x, grad in ((o, grad_o), (lse, grad_lse))]
            whole = _tiles(problem, q, k, v, options, lambda tiles: tiles.gradients(needs, o, lse, *grads))
            if whole is None:
                whole = problem.gradients((q, k, v, *learned), [True] * (3 + len(learned)), *grads, False)
            first, rest = whole[:3], whole[3:]
        else:
            names = [name for name in WANTS if mine[AT[name]] is not None and mine[AT[name]].requires_grad]
            with torch.no_grad():
                results = OPS.attention_backward.default(grad_o, grad_lse, q, k, v, o, lse, sum(WANTS[name] for name in names), *mine)
            first, by_name = results[:3], dict(zip(WANTS, results[3:], strict=True))
            rest = learned and torch.autograd.grad([mine[AT[name]] for name in names], learned, [by_name[name] for name in names], allow_unused=True)
    rest = [torch.zeros_like(x) if gradient is None else gradient for x, gradient in zip(learned, rest, strict=True)]
    return (*(_like(x.to(of.dtype), dense(of.shape, of)) for x, of in zip(first, (q, k, v), strict=True)), [x.contiguous() for x in rest])


def _fake_forward(q: Tensor, k: Tensor, v: Tensor, *options: Any) -> tuple[Tensor, Tensor, Tensor]:
    rows, kind = q.shape[:-1], compute(q)
    return dense([*rows, v.shape[-1]], q), q.new_empty(rows, dtype=kind), q.new_empty(rows if options[-2] else 0, dtype=kind if options[-2] else None)


def _fake_backward(grad_o: Any, grad_lse: Any, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, needs: Any, *options: Any) -> Any:
    return (*(dense(x.shape, x) for x in (q, k, v)), [x.new_empty(x.shape) for x, need in zip(options[1], needs, strict=True) if need])


for _name, _kernel, _fake in (("flex", _forward, _fake_forward), ("flex_backward", _backward, _fake_backward)):
    _library.impl(_name, _kernel, "CPU")
    register(_name, lib=_library)(_fake)


# ---- derivatives -----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Call:
    """The arguments of an operator that are no tensors, and how many there are of the others behind q, k and v."""

    score: str
    score_numbers: list[Any]
    mask: str
    mask_numbers: list[Any]
    block_size: list[Any]
    scale: float | None
    tiles: bool
    counts: tuple[int, int]

    def options(self, tensors: Any) -> tuple[Any, ...]:
        one, two = self.counts[0], sum(self.counts)
        return (
            self.score, list(tensors[:one]), self.score_numbers, self.mask, list(tensors[one:two]), self.mask_numbers, list(tensors[two:]),
            self.block_size, self.scale, self.tiles)


class Flex(torch.autograd.Function):
    """(call, largest, instead, q, k, v, *tensors) -> o, lse, top"""

    @staticmethod
    def forward(call: Call, largest: bool, instead: bool, q: Tensor, k: Tensor, v: Tensor, *tensors: Tensor) -> Any:
        return torch.ops.libattn.flex.default(q, k, v, *call.options(tensors), largest, instead)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.call = inputs[0]
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(output[2])
        ctx.save_for_backward(*inputs[3:], *output[:2])

    @staticmethod
    def backward(ctx: Any, grad_o: Any, grad_lse: Any, _: Any) -> Any:
        q, k, v, *tensors, o, lse = ctx.saved_tensors
        none = [None] * (len(tensors) + 6)
        if grad_o is None and grad_lse is None:
            return tuple(none)
        needs = list(ctx.needs_input_grad[6:6 + ctx.call.counts[0]])
        *first, rest = FlexBackward.apply(ctx.call, needs, grad_o, grad_lse, q, k, v, o, lse, *tensors)
        gradient = iter(rest)
        return (None, None, None, *first, *(next(gradient) if need else None for need in needs), *none[6 + len(needs):])


class FlexBackward(torch.autograd.Function):
    """(call, needs, grad_o, grad_lse, q, k, v, o, lse, *tensors) -> gradients"""

    @staticmethod
    def forward(call: Call, needs: list[bool], grad_o: Any, grad_lse: Any, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, *tensors: Tensor) -> Any:
        return torch.ops.libattn.flex_backward.default(grad_o, grad_lse, q, k, v, o, lse, needs, *call.options(tensors))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise NotImplementedError(SECOND)


# ---- what Dynamo sees ------------------------------------------------------------------------------------------------------------------


class Traced(torch._ops.HigherOrderOperator):
    """query, key, value, score_mod, (*lists of blocks, rows, columns, mask_mod), scale, (largest, instead), and what the functions read."""

    def __init__(self) -> None:
        super().__init__("libattn_flex", cacheable=True)

    def __call__(
        self, query: Tensor, key: Tensor, value: Tensor, score_mod: Any, block_mask: Any, scale: float | None, how: Any, score_reads: Any = (),
        mask_reads: Any = (),
    ) -> tuple[Tensor, Tensor, Tensor]:
        *lists, mask_mod = block_mask
        lists, sizes = lists[:-2], lists[-2:]
        largest, instead = how
        (tensors, numbers), (mask_tensors, mask_numbers) = parted(score_reads), parted(mask_reads if lists else ())
        if not is_fake(query):
            return self._now(query, key, value, score_mod, lists, sizes, mask_mod, scale, largest, instead, score_reads, mask_reads)
        call = Call(
            "" if unchanged(score_mod) else written(score_mod, score_reads), numbers, written(mask_mod, mask_reads) if lists else "", mask_numbers, sizes,
            scale, wanted(), (len(tensors), len(mask_tensors)))
        return Flex.apply(call, largest, instead, query, key, value, *tensors, *mask_tensors, *lists)

    @staticmethod
    def _now(
        query: Tensor, key: Tensor, value: Tensor, score_mod: Any, lists: Any, sizes: Any, mask_mod: Any, scale: Any, largest: bool, instead: bool,
        score_reads: Any, mask_reads: Any,
    ) -> Any:
        """A graph that is not compiled further (backend="eager")."""
        if instead:
            count()
        blocks = Blocks(*lists, *[None] * (4 - len(lists)), tuple(sizes), lambda *at: mask_mod(*at, *mask_reads)) if lists else None  # type: ignore[arg-type]
        found = _seen(blocks, (mask_mod.code, *sizes, *parted(mask_reads)[1]), (*parted(mask_reads)[0], *lists), query, key)
        score = None if unchanged(score_mod) else lambda score, *at: score_mod(score, *at, *score_reads)
        o, lse, top = attend(query, key, value, score, blocks, found, scale, largest)
        return o, lse, query.new_empty(0) if top is None else top


_traced = Traced()


def constant(function: Any) -> Any:
    """torch.compiler.assume_constant_result, which imports all of Dynamo: it is called when Dynamo traces a call of it."""
    function._dynamo_marked_constant = True
    return function


@constant
def unknown() -> str:
    """Why Dynamo cannot trace it; "": it can."""
    from torch._dynamo.variables import higher_order_ops  # late: it takes a second

    names = getattr(higher_order_ops, "_hop_name_to_variable_class", {})
    call = inspect.signature(type(stock.flex_attention_hop).__call__)
    if "flex_attention" not in names or tuple(call.parameters) != STOCK:
        return f"flex_attention in torch.compile: PyTorch {torch.__version__} traces it in another way than libattn knows"
    names[_traced.__name__] = names["flex_attention"]
    return ""


def _score(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return score


def traced(
    query: Tensor, key: Tensor, value: Tensor, score_mod: Any, block_mask: Any, scale: float | None, enable_gqa: bool, return_lse: bool, return_aux: Any,
    instead: bool,
) -> Any:
    """flex_attention, for Dynamo to trace; instead: in the place of PyTorch's."""
    query, key, value = checked(query, key, value, block_mask, enable_gqa, return_lse, return_aux)
    blocks: Any = (1, 1, stock.noop_mask)
    if block_mask is not None:
        rows, columns = block_mask.BLOCK_SIZE
        blocks = (rows, columns, block_mask.mask_mod)
        if block_mask.full_kv_num_blocks is not None:
            blocks = (block_mask.full_kv_num_blocks, block_mask.full_kv_indices, *blocks)
        blocks = (block_mask.kv_num_blocks, block_mask.kv_indices, *blocks)
    largest = return_aux is not None and return_aux.max_scores
    o, lse, top = _traced(query, key, value, _score if score_mod is None else score_mod, blocks, scale, (largest, instead))
    return returned(o, lse, top if largest else None, return_lse, return_aux)


def returned(o: Tensor, lse: Tensor, top: Tensor | None, return_lse: bool, return_aux: Any) -> Any:
    """What flex_attention returns."""
    if return_aux is not None:
        return o, stock.AuxOutput(lse=lse if return_aux.lse else None, max_scores=top)
    return (o, lse) if return_lse else o
