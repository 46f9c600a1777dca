# SPDX-License-Identifier: MIT
"""Tensors of four axes for C: arrays with fewer axes get axes of size 1 in front; what broadcasts is broadcast; memory stays alive."""
from __future__ import annotations

import ctypes
from typing import Any, Sequence

import numpy as np

from . import _abi, _native
from ._arrays import Array, TYPES, asarray, rows, slot

LAYOUT = "[batch, heads, tokens, channels]"
FLOATS = {dtype for dtype, value in TYPES.items() if value in (_abi.ATTN_F32, _abi.ATTN_F64, _abi.ATTN_F16, _abi.ATTN_BF16)}


def plain(x: Any) -> bool:
    """A number or nested lists of numbers, which have no type of their own."""
    return isinstance(x, (list, tuple, int, float))


def floats(x: Any, name: str, dtype: Any = None) -> Array:
    """x as an array of a float type, its last axis contiguous; numbers and lists become double (or dtype)."""
    array = asarray(x, name, np.float64 if plain(x) and dtype is None else dtype)
    if array.dtype not in FLOATS:
        raise TypeError(f"{name} has type {array.dtype}; it must be of a float type")
    return rows(array)


def integers(x: Any, name: str) -> Array:
    """x as a dense array of int64 or int32; other integers become int64."""
    array = asarray(x, name)
    if array.dtype.kind not in "iu" and array.size:
        raise TypeError(f"{name} has type {array.dtype}; it must be of integers")
    if array.dtype not in (np.dtype(np.int32), np.dtype(np.int64)):
        if array.dtype == np.uint64 and array.size and int(array.max()) >= 2**63:
            raise ValueError(f"{name} has a number above 2^63 - 1")
        array = array.astype(np.int64)
    return np.require(array, requirements=["C", "A"])


def booleans(x: Any, name: str) -> Array:
    """x as an array of bool or uint8; other integers become bool, 1 where they are not 0."""
    array = asarray(x, name)
    if array.dtype.kind not in "biu" and array.size:
        raise TypeError(f"{name} has type {array.dtype}; it must be of booleans")
    return array if array.dtype in (np.dtype(np.bool_), np.dtype(np.uint8)) else array != 0


def four(array: Array, name: str, least: int = 2, layout: str = LAYOUT) -> Array:
    """The array with four axes, those in front of size 1.  Nothing is copied."""
    if not least <= array.ndim <= 4:
        raise ValueError(f"{name} has {array.ndim} axes; it must have {least} to 4, the last ones of {layout}")
    return array[(np.newaxis,) * (4 - array.ndim)]


def fits(array: Array, name: str, shape: Sequence[int], axes: str) -> Array:
    """The array, broadcast to this shape: each of its axes has this size or 1."""
    if array.ndim != len(shape) or any(have not in (1, want) for have, want in zip(array.shape, shape)):
        raise ValueError(f"{name} has shape {list(array.shape)}; it must be {axes} = {list(shape)}, or 1 where it is constant")
    return np.broadcast_to(array, tuple(shape))


def exactly(array: Array, name: str, shape: Sequence[int], axes: str) -> Array:
    """The array, if it has this shape."""
    if array.shape != tuple(shape):
        raise ValueError(f"{name} has shape {list(array.shape)}; it must be {axes} = {list(shape)}")
    return array


def output(out: Any, name: str, shape: Sequence[int] | None, dtype: Any = None) -> Array:
    """Where a result goes: a new array, or the memory of `out` if it has this shape (None: any), a last axis that is contiguous, and
    (unless dtype is None, which leaves it to C) this type."""
    if out is None:
        return np.empty(tuple(shape or ()), dtype)
    if plain(out):
        raise TypeError(f"{name} is of type {type(out).__name__}, not an array to write to")
    array = asarray(out, name)
    if shape is not None and array.shape != tuple(shape):
        raise ValueError(f"{name} has shape {list(array.shape)}; it must be {list(shape)}")
    if dtype is not None and array.dtype != dtype:
        raise ValueError(f"{name} has type {array.dtype}; it must be {np.dtype(dtype)}")
    if not array.flags.writeable:
        raise ValueError(f"{name} is read-only")
    if array.size and not array.flags.aligned:
        raise ValueError(f"{name} is not aligned to its elements")
    if rows(array) is not array:
        raise ValueError(f"{name} has a last axis that is not contiguous")
    return array


def summed(grad: Array, shape: Sequence[int]) -> Array:
    """The gradient of an array of this shape that was broadcast: summed, in double, over the axes where it has size 1."""
    axes = tuple(axis for axis, (have, want) in enumerate(zip(grad.shape, shape)) if have != want)
    return grad.sum(axes, np.float64, keepdims=True).astype(grad.dtype) if axes else grad


def input_slot(array: Array | None, axes: Sequence[int] | None = None) -> Any:
    """An attn_input over the array, which the caller keeps alive."""
    return slot(_abi.attn_input, array, axes)


def output_slot(array: Array | None, axes: Sequence[int] | None = None) -> Any:
    """An attn_output over the array."""
    return slot(_abi.attn_output, array, axes)


class Slots:
    """A struct of tensors with the arrays behind its slots, which live as long as it does."""

    def __init__(self, kind: type[ctypes.Structure]) -> None:
        self.struct = _native.struct(kind)
        self.kinds: dict[str, Any] = {field[0]: field[1] for field in kind._fields_}
        self.arrays: dict[str, Array] = {}

    def put(self, name: str, array: Array | None, axes: Sequence[int] | None = None) -> None:
        """Fills the slot of this name; None leaves it absent."""
        if array is not None:
            self.arrays[name] = array
            setattr(self.struct, name, slot(self.kinds[name], array, axes))

    def __getitem__(self, name: str) -> Array:
        return self.arrays[name]

    def get(self, name: str) -> Array | None:
        return self.arrays.get(name)

    @property
    def reference(self) -> Any:
        return ctypes.byref(self.struct)


class Fixed:
    """Objects over memory that C knows: their attributes are set once, so that no array is replaced behind its back."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__:
            raise AttributeError(f"{name} of a {type(self).__name__} cannot be replaced; of an array, write to the elements")
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{name} of a {type(self).__name__} cannot be deleted")


class Workspaces:
    """Memory for executions of one plan: as many blocks as run at once, kept for the next ones."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.spare: list[Array] = []

    def take(self) -> Array:
        try:
            return self.spare.pop()
        except IndexError:
            return np.empty(self.size, np.uint8)

    def give(self, block: Array) -> None:
        self.spare.append(block)
