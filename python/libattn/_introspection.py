# SPDX-License-Identifier: MIT
"""What there is: the tensors of attention, and the kernels of this CPU."""
from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass

import numpy as np

from . import _abi, _arrays, _native

OPERATIONS = ("forward", "backward", "jvp", "double_backward")


@dataclass(frozen=True)
class Tensor:
    """One row of the table of tensors (attn_tensor_describe), which holds for every problem."""

    name: str  #: as in attn.h and in the keywords of libattn.attention
    inputs: tuple[str, ...]  #: the operations that read it
    outputs: tuple[str, ...]  #: those that write it
    required: tuple[str, ...]  #: those that need it
    axes: tuple[str, str, str, str]  #: what each of its four axes counts: "batch", "head_q", ...; "one": nothing
    dtypes: tuple[str, ...]  #: the types that some problem allows: "f32", "bf16", ...
    gradient_of: str | None  #: the tensor whose gradient or tangent it is


@dataclass(frozen=True)
class Kernel:
    """One kernel (attn_kernel_describe)."""

    name: str
    needs: tuple[str, ...]  #: features of the CPU
    op: str
    isa: str
    compute: str
    usable: bool  #: this CPU can run it
    decode: bool  #: for few queries and many keys


def _enum(name: str, value: int) -> str:
    found = next(key for key, number in _abi.ENUMS[name].items() if number == value)
    return found.removeprefix(name.upper() + "_").removeprefix("ATTN_").lower()


def _name(number: int) -> str:
    row = _native.struct(_abi.attn_tensor_description)
    _native.call("attn_tensor_describe", _abi.ATTN_FAMILY_ATTENTION, number, ctypes.byref(row))
    return row.name.decode()


@functools.cache
def tensors() -> tuple[Tensor, ...]:
    """All tensors of attention, in the order of attn.h: what each operation does with them, their axes and types."""
    made: list[Tensor] = []
    row = _native.struct(_abi.attn_tensor_description)
    for number in range((ctypes.sizeof(_abi.attn_tensors) - _abi.attn_tensors.q.offset) // ctypes.sizeof(_abi.attn_input)):
        _native.call("attn_tensor_describe", _abi.ATTN_FAMILY_ATTENTION, number, ctypes.byref(row))
        roles, needs = list(row.role), list(row.need)
        a, b, c, d = (_enum("attn_axis", axis) for axis in row.axes)
        made.append(Tensor(
            row.name.decode(), tuple(op for n, op in enumerate(OPERATIONS) if roles[n] == _abi.ATTN_ROLE_INPUT),
            tuple(op for n, op in enumerate(OPERATIONS) if roles[n] == _abi.ATTN_ROLE_OUTPUT),
            tuple(op for n, op in enumerate(OPERATIONS) if needs[n] == _abi.ATTN_NEED_ALWAYS), (a, b, c, d),
            tuple(_native.call("attn_dtype_name", t).decode() for t in range(32) if row.types >> t & 1),
            None if row.gradient_of < 0 else _name(row.gradient_of),
        ))
    return tuple(made)


@functools.cache
def kernels() -> tuple[Kernel, ...]:
    """All kernels of this library, in the order of preference; those that are not `usable` need another CPU."""
    made: list[Kernel] = []
    row = _native.struct(_abi.attn_kernel_description)
    while True:
        try:
            _native.call("attn_kernel_describe", len(made), ctypes.byref(row))
        except ValueError:
            return tuple(made)
        made.append(Kernel(
            row.name.decode(), tuple(row.needs.decode().split()), _enum("attn_op", row.op), _native.call("attn_isa_name", row.isa).decode(),
            _native.call("attn_dtype_name", row.compute).decode(), bool(row.usable), bool(row.decode),
        ))


def dtypes() -> dict[str, np.dtype]:
    """The types of arrays by their names in attn.h ("f32", "bf16", ...); bf16 needs the package ml_dtypes."""
    return {_native.call("attn_dtype_name", number).decode(): dtype for number, dtype in sorted(_arrays.DTYPES.items())}
