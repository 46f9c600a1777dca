# SPDX-License-Identifier: MIT
"""Linear attention over ranks: libattn.linear, of which each rank has some of the tokens."""
from __future__ import annotations

import ctypes
import weakref
from dataclasses import dataclass
from typing import Any, Literal, Mapping, Unpack, cast, get_args

import numpy as np

from .. import _abi, _native
from .._arguments import choice
from .._arrays import Array, is_tensor, like
from .._linear import DIFFERENTIABLE, FORMS, Call, Forward, Gradients, Options
from .._slots import summed
from ._agree import same, together
from ._graphs import outside_graphs
from ._groups import transport_of
from ._plan import Autograd, asked_of, call_on_all
from ._split import WAYS, Split, check_tokens
from ._sums import owners_of, tree_sum
from ._transport import Transport, messages

LinearLayout = Literal["contiguous"]
LinearWay = Literal["auto", "ring", "direct"]
OPERATIONS = {"forward": _abi.ATTN_FORWARD, "backward": _abi.ATTN_BACKWARD}
LINEAR_WAYS: dict[str, int] = {name: WAYS[name] for name in get_args(LinearWay)}
PER_TOKEN = ("decay", "beta", "erase", "write")  # of size 1 along the tokens where they are constant
TOKENS = 2  # the axis of them, of four


@dataclass(frozen=True)
class LinearDescription:
    """What linear attention over ranks does on this rank."""

    parts_q: int  #: parts of queries of the whole
    parts_kv: int
    queries: int  #: tokens of this rank
    keys: int
    groups: int  #: of heads, or entries of the batch, whose states travel apart
    calls: int  #: of the library, one for a part and a group, in an execution
    messages: int  #: that this rank sends in an execution
    bytes: int  #: of these
    state_bytes: int  #: of the states of all heads, with their sums
    chunk: int  #: tokens; 1 if recurrent
    workspace_bytes: int
    form: str  #: "chunked" or "recurrent"
    way: str  #: "ring" or "direct"
    ranks: int


class _Bound:
    """A call of this rank, agreed with the others: its plan, and what it computes with."""

    def __init__(
        self, op: str, tensors: Mapping[str, Any], options: Mapping[str, Any], group: Any, how: tuple[Any, Any, Any], out: Any, states: Any,
        autograd: Autograd,
    ) -> None:
        self.transport: Transport = transport_of(group)

        def local() -> tuple[Call, Split]:
            if autograd.refused:
                raise autograd.refused
            layout, part, way = how
            if not (isinstance(layout, str) and layout == "contiguous"):
                raise ValueError(f"layout is {layout!r}; each rank has one range of the parts in linear attention: 'contiguous'")
            choice(way, "way", LINEAR_WAYS)
            call = Call(OPERATIONS[op], tensors, cast(Options, dict(options)))
            if op == "forward":
                call.outputs(bool(states), True, out)
            else:
                call.gradients(tensors)
            return call, Split(layout, part, way)

        def says(found: tuple[Call, Split]) -> dict[str, Any]:
            return _said(op, *found, tensors, {**options, "return_state": bool(states), "gradients": autograd.gradients})

        (self.call, self.split), said = together(self.transport, local, says)
        same(said)
        tokens = [sum(one["tokens"][n] for one in said) for n in (0, 1)]
        for axis, name, n in (("q", "q", 0), ("kv", "k", 1)):
            for rank, one in enumerate(said):
                check_tokens(self.split, name, axis, one["tokens"][n], tokens[n], rank, self.transport.ranks)
        # A rank with one token cannot tell.
        self.constant = sorted({name for one in said if one["tokens"][1] != 1 for name in one["constant"]})
        self.call.problem.shape.len_q, self.call.problem.shape.len_kv = tokens
        self.tokens = tokens[1]
        self.pointer = ctypes.c_void_p()
        split, way = ctypes.byref(self.split.struct), ctypes.byref(messages(self.transport).struct)

        def arguments(call: Call | None) -> tuple[Any, ...]:
            assert call is not None
            return ctypes.byref(self.pointer), ctypes.byref(call.problem), call.slots.reference, split, way, call.options

        self.forward = op == "forward"
        call_on_all(self.transport, "attn_distributed_linear_plan_create", lambda: self.call, arguments, self, self.forward)
        weakref.finalize(self, _native.call, "attn_distributed_linear_plan_destroy", self.pointer)

    def run(self) -> Call:
        size = _native.call("attn_distributed_linear_workspace_size", self.pointer)

        def arguments(block: Array | None) -> tuple[Any, ...]:
            return self.pointer, self.call.slots.reference if block is not None else None, block.ctypes.data if block is not None else None, size

        call_on_all(self.transport, "attn_distributed_linear_execute", lambda: np.empty(size, np.uint8), arguments, self, self.forward)
        return self.call

    def describe(self) -> LinearDescription:
        found = _native.struct(_abi.attn_distributed_linear_description)
        _native.call("attn_distributed_linear_describe", self.pointer, ctypes.byref(found))
        forms = {value: name for name, value in FORMS.items()}
        ways = {value: name for name, value in WAYS.items()}
        names = [name for name, _ in found._fields_ if name not in ("struct_size", "form", "way", "reserved")]
        return LinearDescription(form=forms[found.form], way=ways[found.way], **{name: getattr(found, name) for name in names})

    def gradients(self) -> Gradients:
        """Those of the call; of what is constant along the tokens, the sum over the parts of all ranks."""
        call, made = self.call, self.call.collect_gradients()
        found = {name: getattr(made, name) for name in DIFFERENTIABLE}
        for name in self.constant:
            whole = call.slots[f"grad_{name}"]
            shape = call.full(name)
            parts = list(self.split.parts(self.tokens, "kv", self.transport.rank, self.transport.ranks))
            rows = [np.ascontiguousarray(whole[:, :, p.local:p.local + p.tokens]).astype(np.float64) for p in parts]
            own = np.stack([summed(x, shape) for x in rows]) if rows else np.empty((0, *shape))
            owners = owners_of(self.split, -(-self.tokens // self.split.part), "kv", self.transport.ranks)
            total = tree_sum(self.transport, own, owners)
            found[name] = like(np.asarray(total).astype(whole.dtype).reshape(call.shapes[name]), call.source)
        return Gradients(**found)


def _said(op: str, call: Call, split: Split, tensors: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """What a rank tells the others."""
    q, k = call.slots["q"], call.slots["k"]
    given = {**options, **{name: x for name, x in tensors.items() if name not in ("q", "k", "v")}}
    constant = [name for name in PER_TOKEN if name in call.shapes and call.full(name)[TOKENS] == 1]
    asked = {"op": op, "batch": str(q.shape[0]), "heads": f"{q.shape[1]}, {k.shape[1]}", "dim": f"{q.shape[3]}, {call.dim_v}",
             "q.dtype": str(q.dtype), "part": str(split.part), "way": split.way_name, **asked_of(given)}
    return {"tokens": [q.shape[2], k.shape[2]], "asked": asked, "constant": constant}


TENSORS = ("q", "k", "v", "feature_matrix", "decay", "beta", "erase", "write", "lengths", "initial_state", "initial_sum")


def _tensors(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {name: arguments.get(name) for name in TENSORS}


@outside_graphs
def linear_attention(
    q: Any, k: Any, v: Any, *, group: Any = None, layout: LinearLayout = "contiguous", part: int = 1024, way: LinearWay = "auto",
    feature_matrix: Any = None, decay: Any = None, beta: Any = None, erase: Any = None, write: Any = None, lengths: Any = None,
    initial_state: Any = None, initial_sum: Any = None, out: Any = None,
    return_state: bool = False, **options: Unpack[Options],
) -> Any:
    """libattn.linear.attention of a sequence that is divided among the ranks of a group, with the same bits for any number of ranks.

        mine = [distributed.shard(x, 2, part=256) for x in (q, k, v)]
        o = distributed.linear_attention(*mine, part=256, causal=True)                # the rows of this rank

    Collective: every rank calls it, in the same order as other calls over the group, and with the same options.  Each rank has one
    range of the sequence (layout="contiguous", the only one), in parts of `part` tokens; what travels are states, whose size does
    not depend on the length.

    q, k, v, decay, beta, erase, write    the rank's own rows; the last four may be of size 1 along the tokens where they are constant
                                          (which a sequence of which each rank has one token cannot say)
    feature_matrix, lengths, initial_state, initial_sum
                                          those of the whole, the same on all ranks; lengths count tokens of the whole
    out                                   an array that o is written to; not with gradients: TypeError
    return_state                          also returns the state and the sum (None without a denominator) after the last token, which all
                                          ranks get
    options                               those of libattn.linear.Options
    group                                 as in distributed.attention
    way                                   "ring" (and "auto"): a chain, in which each rank gets the states of the rank before, of one
                                          group of heads after another; "direct": a scan, in which all ranks begin at once, with up to
                                          three times the work: for few heads on many ranks

    Returns o, the rank's rows, or (o, final_state, final_sum).  The bits of a chain are those of one plain call with the form and chunk
    that linear_describe says, if that chunk divides the part; a scan adds in another order (docs/distributed.md).

    Tensors of PyTorch have gradients: of every tensor of floats but feature_matrix.  Every rank must come to backward.  Gradients of what
    all ranks have alike (states, and what is constant along the tokens) are those of the whole, on all ranks; a loss must use the final
    state on all ranks alike, where it counts once.  Gradients are asked for on all ranks, or on none.

    Raises what libattn.linear.attention raises, on all ranks alike and with the sentence of the lowest rank that was asked something
    wrong; ValueError if ranks were asked different things; ConnectionError if a message fails.
    """
    tensors = _tensors(locals())
    if any(map(is_tensor, (q, k, v))):
        from . import _linear_torch

        found = _linear_torch.forward(tensors, dict(options), group, (layout, part, way), out, return_state)
    else:
        found = forward(tensors, options, group, (layout, part, way), out, return_state, Autograd(None))
    return (found.o, found.final_state, found.final_sum) if return_state else found.o


def forward(
    tensors: Mapping[str, Any], options: Mapping[str, Any], group: Any, how: tuple[Any, Any, Any], out: Any, states: Any, autograd: Autograd,
) -> Forward:
    """linear_forward of tensors by name; how: layout, part and way; states: whether the final ones are found."""
    return _Bound("forward", tensors, options, group, how, out, states, autograd).run().collect(out)


def linear_forward(
    q: Any, k: Any, v: Any, *, group: Any = None, layout: LinearLayout = "contiguous", part: int = 1024, way: LinearWay = "auto",
    feature_matrix: Any = None, decay: Any = None, beta: Any = None, erase: Any = None, write: Any = None, lengths: Any = None,
    initial_state: Any = None, initial_sum: Any = None, out: Any = None,
    **options: Unpack[Options],
) -> Forward:
    """libattn.linear.forward over ranks: linear_attention with the denominators, which linear_backward reads, and the final state and
    sum.  Collective; without gradients.  Raises what linear_attention raises."""
    return forward(_tensors(locals()), options, group, (layout, part, way), out, True, Autograd(None))


def linear_backward(
    q: Any, k: Any, v: Any, grad_o: Any, *, o: Any = None, denominators: Any = None, grad_final_state: Any = None, grad_final_sum: Any = None,
    group: Any = None, layout: LinearLayout = "contiguous", part: int = 1024, way: LinearWay = "auto", feature_matrix: Any = None,
    decay: Any = None, beta: Any = None, erase: Any = None, write: Any = None, lengths: Any = None, initial_state: Any = None,
    initial_sum: Any = None, **options: Unpack[Options],
) -> Gradients:
    """libattn.linear.backward over ranks: gradients of the rank's rows, and of what all ranks have alike.  Collective.

    The arguments are those of linear_attention, the rank's rows of grad_o, and, with a denominator, o and denominators of
    linear_forward.  Gradients of the final state and sum are passed on all ranks, with the same numbers.  For tensors of PyTorch,
    linear_attention itself has gradients.  Raises what linear_attention raises.
    """
    tensors = {**_tensors(locals()), "grad_o": grad_o, "o": o, "denominators": denominators, "grad_final_state": grad_final_state,
               "grad_final_sum": grad_final_sum}
    return backward(tensors, options, group, (layout, part, way))


def backward(tensors: Mapping[str, Any], options: Mapping[str, Any], group: Any, how: tuple[Any, Any, Any]) -> Gradients:
    """linear_backward of tensors by name."""
    bound = _Bound("backward", tensors, options, group, how, None, False, Autograd(None))
    bound.run()
    return bound.gradients()


def linear_describe(
    q: Any, k: Any, v: Any, *, group: Any = None, layout: LinearLayout = "contiguous", part: int = 1024, way: LinearWay = "auto",
    feature_matrix: Any = None, decay: Any = None, beta: Any = None, erase: Any = None, write: Any = None, lengths: Any = None,
    initial_state: Any = None, initial_sum: Any = None,
    **options: Unpack[Options],
) -> LinearDescription:
    """What linear_attention with these arguments does on this rank: its form and chunk, messages and memory.  Collective; computes
    nothing.  Raises what linear_attention raises."""
    return _Bound("forward", _tensors(locals()), options, group, (layout, part, way), None, False, Autograd(None)).describe()


