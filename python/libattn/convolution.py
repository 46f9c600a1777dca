# SPDX-License-Identifier: MIT
"""The short causal convolution of hybrid models (Mamba, GatedDeltaNet), before linear attention.  (The header attn/convolution.h.)

    y[t] = f(bias + sum_i weight[:, i] x[t - (width-1) + i])       f the identity, or silu: f(s) = s / (1 + exp(-s))

for each channel, with a width of 2 to 4; the width-1 tokens before the first one are a sequence's state, or 0.

    y = convolution.convolve(x, weight, bias, silu=True)
    done = convolution.forward(x, weight, bias, silu=True)             # with the state, with which a sequence goes on
    grads = convolution.backward(x, weight, grad_y, bias, silu=True)

Shapes: x [batch, tokens, channels] or [tokens, channels]; weight [channels, width], as that of torch.nn.Conv1d without its middle axis;
bias [channels].  x is of float32, float16, bfloat16 or float64, and so are y and the states.

Ragged batches: with cu_seqlens [sequences + 1], sequence b is tokens cu_seqlens[b] .. cu_seqlens[b+1]-1 of x [tokens, channels].  A
sequence has the same bits in any batch, and however it is cut.
"""
from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np

from . import _abi, _native
from ._arguments import integer
from ._arrays import Array, like
from ._execution import Execution, execution
from ._linear import starts_of
from ._slots import Fixed, Slots, exactly, floats, integers, output

__all__ = ["Forward", "Gradients", "Pool", "backward", "convolve", "forward"]


@dataclass(frozen=True)
class Forward:
    """What forward computed, in arrays of the library of x."""

    y: Any  #: as x
    final_state: Any  #: [batch, width-1, channels]: the initial_state of the tokens that follow


@dataclass(frozen=True)
class Gradients:
    """Gradients of the tensors of these names, with their shapes; None for those that were absent."""

    x: Any
    weight: Any
    bias: Any
    initial_state: Any


class _Call:
    """The problem and the tensors of one call, checked."""

    def __init__(self, op: int, x: Any, weight: Any, bias: Any, silu: bool, cu_seqlens: Any, options: Execution) -> None:
        self.source, tokens = x, floats(x, "x")
        self.shape, self.weight_source = tokens.shape, weight
        starts, longest = (None, 0) if cu_seqlens is None else starts_of(cu_seqlens)
        if tokens.ndim not in ((2, 3) if starts is None else (2,)):
            wanted = "[batch, tokens, channels] or [tokens, channels]" if starts is None else "[tokens, channels], with cu_seqlens"
            raise ValueError(f"x has {tokens.ndim} axes; it must be {wanted}")
        weights = floats(weight, "weight")
        if weights.ndim != 2 or weights.shape[0] != tokens.shape[-1]:
            raise ValueError(f"weight has shape {list(weights.shape)}; it must be [channels, width] = [{tokens.shape[-1]}, width]")
        self.x = tokens if tokens.ndim == 3 else tokens[np.newaxis]
        self.channels, self.width = weights.shape
        if starts is not None and starts[-1] != tokens.shape[0]:  # (rows of no sequence would not be computed)
            raise ValueError(f"cu_seqlens ends at {starts[-1]}; there are {tokens.shape[0]} tokens of x")
        self.batch = self.x.shape[0] if starts is None else len(starts) - 1
        self.options = execution(options)
        self.problem = _native.struct(
            _abi.attn_convolution_problem, op=op, width=self.width, silu=int(bool(silu)), batch=self.batch,
            len=self.x.shape[1] if starts is None else longest, channels=self.channels,
        )
        slots = self.slots = Slots(_abi.attn_convolution_tensors)
        slots.put("x", self.x, (0, 2, 3))
        slots.put("weight", np.ascontiguousarray(weights.T), (2, 3))
        if bias is not None:
            slots.put("bias", exactly(floats(bias, "bias"), "bias", (self.channels,), "[channels]"), (3,))
        if starts is not None:
            slots.put("cu_seqlens", starts, (0,))

    def states(self, name: str, x: Any) -> None:
        """A tensor of states, [batch, width-1, channels], of x's type."""
        if x is not None:
            shape = (self.batch, self.width - 1, self.channels)
            self.slots.put(name, exactly(floats(x, name, self.x.dtype), name, shape, "[batch, width-1, channels]"), (0, 2, 3))

    def new(self, name: str, shape: tuple[int, ...], axes: tuple[int, ...], dtype: Any, out: Any = None) -> Array:
        array = output(out, "out", shape, dtype)
        self.slots.put(name, array if array.ndim == len(axes) else array[np.newaxis], axes)
        return array

    def run(self) -> None:
        _native.call("attn_convolution", ctypes.byref(self.problem), self.slots.reference, self.options)


def convolve(
    x: Any, weight: Any, bias: Any = None, *, silu: bool = False, cu_seqlens: Any = None, initial_state: Any = None, out: Any = None,
    **options: Unpack[Execution],
) -> Any:
    """y, with x's shape, type and library.  initial_state [batch, width-1, channels]: the tokens before the first; out: where y goes.

    Raises ValueError, TypeError, NotImplementedError (a width that is not 2 to 4) or MemoryError, with a sentence.
    """
    call = _Call(_abi.ATTN_FORWARD, x, weight, bias, silu, cu_seqlens, options)
    call.states("initial_state", initial_state)
    y = call.new("y", call.shape, (0, 2, 3), call.x.dtype, out)
    call.run()
    return out if out is not None else like(y, call.source)


def forward(
    x: Any, weight: Any, bias: Any = None, *, silu: bool = False, cu_seqlens: Any = None, initial_state: Any = None, out: Any = None,
    **options: Unpack[Execution],
) -> Forward:
    """The same with the final state: a sequence may be cut anywhere, with the final state of one part as the initial one of the next."""
    call = _Call(_abi.ATTN_FORWARD, x, weight, bias, silu, cu_seqlens, options)
    call.states("initial_state", initial_state)
    y = call.new("y", call.shape, (0, 2, 3), call.x.dtype, out)
    after = call.new("final_state", (call.batch, call.width - 1, call.channels), (0, 2, 3), call.x.dtype)
    call.run()
    return Forward(out if out is not None else like(y, call.source), like(after, call.source))


def backward(
    x: Any, weight: Any, grad_y: Any, bias: Any = None, *, silu: bool = False, cu_seqlens: Any = None, initial_state: Any = None,
    grad_final_state: Any = None, **options: Unpack[Execution],
) -> Gradients:
    """The gradients of all float tensors, from grad_y, of x's shape, and, if present, that of the final state."""
    call = _Call(_abi.ATTN_BACKWARD, x, weight, bias, silu, cu_seqlens, options)
    call.states("initial_state", initial_state)
    call.states("grad_final_state", grad_final_state)
    grad = exactly(floats(grad_y, "grad_y", call.x.dtype), "grad_y", call.shape, "the shape of x")
    call.slots.put("grad_y", grad if grad.ndim == 3 else grad[np.newaxis], (0, 2, 3))
    grad_x = call.new("grad_x", call.shape, (0, 2, 3), call.x.dtype)
    grad_weight = call.new("grad_weight", (call.width, call.channels), (2, 3), call.slots["weight"].dtype)
    grad_bias = None if bias is None else call.new("grad_bias", (call.channels,), (3,), call.slots["bias"].dtype)
    before = None
    if initial_state is not None:
        before = call.new("grad_initial_state", (call.batch, call.width - 1, call.channels), (0, 2, 3), call.x.dtype)
    call.run()
    found = [None if array is None else like(array, call.source) for array in (grad_x, np.ascontiguousarray(grad_weight.T), grad_bias, before)]
    return Gradients(*found)


class Pool(Fixed):
    """The states of all sequences that an engine serves, each in a row of its own, as linear.Pool has those of linear attention.

        pool = convolution.Pool(rows=64, channels=4096, width=4, dtype="float32")
        y = pool.convolve(x, weight, bias, slots, silu=True, cu_seqlens=starts)

    pool.state [rows, width-1, channels] has the last inputs of each sequence, the oldest first; it is 0 at first.  Not for several threads
    at once.
    """

    def __init__(self, rows: int, channels: int, width: int, *, dtype: Any = np.float32) -> None:
        """dtype: that of x.  Raises ValueError for sizes that are negative."""
        sizes = [integer(rows, "rows", 0), integer(width, "width", 2, 4) - 1, integer(channels, "channels", 0)]
        self.state: Array = np.zeros(sizes, dtype)

    def convolve(
        self, x: Any, weight: Any, bias: Any, slots: Any, *, final_slots: Any = None, silu: bool = False, cu_seqlens: Any = None,
        out: Any = None, **options: Unpack[Execution],
    ) -> Any:
        """y.  bias may be None; slots and final_slots are those of linear.Pool.attend.  On an error the pool is as before."""
        call = _Call(_abi.ATTN_FORWARD, x, weight, bias, silu, cu_seqlens, options)
        if self.state.shape[1:] != (call.width - 1, call.channels) or self.state.dtype != call.x.dtype:
            raise ValueError(
                f"the tokens need states of shape {[call.width - 1, call.channels]} and type {call.x.dtype}; the pool has "
                f"{list(self.state.shape[1:])} and {self.state.dtype}"
            )
        first = exactly(integers(slots, "slots"), "slots", (call.batch,), "[sequences]")
        last = first if final_slots is None else integers(final_slots, "final_slots")
        if last.ndim not in (1, 2) or last.shape[0] != call.batch or (last.ndim == 2 and not last.shape[1]):
            raise ValueError(f"final_slots has shape {list(last.shape)}; it must be [{call.batch}] or [{call.batch}, snapshots], with at least one")
        call.problem.pool, call.problem.snapshots = self.state.shape[0], last.shape[1] if last.ndim == 2 else 1
        for name in ("initial_state", "final_state"):
            call.slots.put(name, self.state, (0, 2, 3))
        call.slots.put("initial_slots", first, (0,))
        call.slots.put("final_slots", last, (0,) if last.ndim == 1 else (0, 3))
        y = call.new("y", call.shape, (0, 2, 3), call.x.dtype, out)
        call.run()
        return out if out is not None else like(y, call.source)
