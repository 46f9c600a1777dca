# SPDX-License-Identifier: MIT
"""Arrays of any library as memory that C reads, and back.

An argument may be a NumPy array, anything with DLPack or the buffer protocol (torch and JAX tensors on a CPU, memoryview, array), a
list or a number.  Nothing is copied unless the last axis is not contiguous or the type differs from one that a function demands.
"""
from __future__ import annotations

import ctypes
import sys
from typing import Any, Sequence

import numpy as np
from numpy.typing import NDArray

from . import _abi, _dlpack

try:
    from ml_dtypes import bfloat16, float8_e4m3fn, float8_e5m2
except ImportError:  # then NumPy has no arrays of these types either
    bfloat16 = float8_e4m3fn = float8_e5m2 = None

Array = NDArray[Any]

TYPES: dict[np.dtype[Any], int] = {
    np.dtype(name): value
    for name, value in {
        "float32": _abi.ATTN_F32, "float64": _abi.ATTN_F64, "float16": _abi.ATTN_F16, "bool": _abi.ATTN_BOOL, "int8": _abi.ATTN_I8,
        "uint8": _abi.ATTN_U8, "int16": _abi.ATTN_I16, "uint16": _abi.ATTN_U16, "int32": _abi.ATTN_I32, "uint32": _abi.ATTN_U32,
        "int64": _abi.ATTN_I64, "uint64": _abi.ATTN_U64,
    }.items()
}
EXTRA = {_abi.ATTN_BF16: bfloat16, _abi.ATTN_F8_E4M3: float8_e4m3fn, _abi.ATTN_F8_E5M2: float8_e5m2}  # not NumPy's own
TYPES.update((np.dtype(kind), value) for value, kind in EXTRA.items() if kind is not None)
DTYPES = {value: dtype for dtype, value in TYPES.items()}

HOST = (1, 3, 11)  # kDLCPU, kDLCUDAHost and kDLROCMHost of DLPack: memory that the CPU reads, the last two pinned
LAZY = ("conj", "neg")  # what torch notes instead of changing memory, and DLPack does not hand on


def dtype_of(value: int) -> np.dtype[Any]:
    """The NumPy type of an attn_dtype."""
    if EXTRA.get(value, True) is None:
        raise NotImplementedError("arrays of bfloat16 and float8 need the package ml_dtypes")
    return DTYPES[value]


def asarray(x: Any, name: str, dtype: Any = None) -> Array:
    """x as a NumPy array over the same memory; a copy only if `dtype` is another one than its own.

    Raises TypeError, with `name` in its sentence, for what is not an array of numbers in this computer's memory.
    """
    array = _view(x, name)
    if dtype is not None and array.dtype != dtype:
        if not np.can_cast(array.dtype, dtype, "same_kind") and array.size:
            raise TypeError(f"{name} has type {array.dtype}, which does not become {np.dtype(dtype)} without loss")
        array = array.astype(dtype)
    if array.dtype not in TYPES:
        how = "" if array.dtype.isnative else f": its bytes are in another order; pass {name}.astype({name}.dtype.newbyteorder('='))"
        raise TypeError(f"{name} has type {array.dtype}, which libattn does not know{how}")
    return array


def _device(device: Any) -> int:
    """The kind of a device, or 0 for what DLPack does not know: torch's meta tensors."""
    try:
        return device()[0]
    except (BufferError, RuntimeError, ValueError):
        return 0


def _plain(x: Array, name: str) -> Array:
    """The array without its subclass, if that says no more than the numbers do: memmap, matrix, recarray."""
    if isinstance(x, np.ma.MaskedArray):
        how = "out.data" if name == "out" else "what numpy.ma.filled makes of it, and mask= to hide keys"
        raise TypeError(f"{name} is a masked array, whose mask would be ignored; pass {how}")
    kind = type(x)
    if kind is not np.ndarray and kind.__array_ufunc__ is not np.ndarray.__array_ufunc__:
        raise TypeError(f"{name} is of type {kind.__name__}, whose numbers may have a meaning (a unit) that would be lost; pass numpy.asarray({name})")
    return np.asarray(x)


def _masked_within(x: Any) -> bool:
    return any(map(_masked_within, x)) if isinstance(x, (list, tuple)) else isinstance(x, np.ma.MaskedArray)


def _view(x: Any, name: str) -> Array:
    if isinstance(x, np.ndarray):
        return x if type(x) is np.ndarray else _plain(x, name)
    if getattr(x, "requires_grad", False):
        raise TypeError(f"{name} is a tensor that requires a gradient: use libattn.torch, or {name}.detach()")
    if hasattr(x, "to_local") and hasattr(x, "placements"):
        raise TypeError(f"{name} is a DTensor, of which this process has a part; pass {name}.to_local()")
    for bit in LAZY:
        if getattr(x, f"is_{bit}", bool)():
            raise TypeError(f"{name} is a tensor whose memory does not have its numbers yet; pass {name}.resolve_{bit}()")
    device = getattr(x, "__dlpack_device__", None)
    if device is not None:
        if _device(device) not in HOST:
            raise TypeError(f"{name} is on the device {getattr(x, 'device', 'of another kind')}, and libattn computes on the CPU")
        try:
            return np.from_dlpack(x)
        except (BufferError, RuntimeError, TypeError) as error:
            taken = _dlpack.take(x)
            if taken is not None:
                return taken[0].view(dtype_of(taken[1]))
            if not hasattr(x, "__array__"):
                raise TypeError(f"{name}: {error}") from error
    if _masked_within(x):
        raise TypeError(f"{name} has masked elements, whose mask would be ignored; pass what numpy.ma.filled makes of them")
    try:
        array = _plain(np.asanyarray(x), name)  # (what becomes a masked array is one)
    except RuntimeError as error:  # of torch
        raise TypeError(f"{name}: {error}") from error
    if array.dtype == object:
        raise TypeError(f"{name} is of type {type(x).__name__}, not an array of numbers")
    return array


def rows(array: Array) -> Array:
    """The array, or a copy of it if its last axis is not contiguous."""
    if array.ndim and array.shape[-1] > 1 and array.strides[-1] != array.itemsize:
        return np.ascontiguousarray(array)
    if any(stride % array.itemsize for stride in array.strides) or not array.flags.aligned:
        return np.ascontiguousarray(array).copy() if not array.flags.aligned else np.ascontiguousarray(array)
    return array


def slot(kind: type[ctypes.Structure], array: Array | None, axes: Sequence[int] | None = None, dtype: int | None = None) -> Any:
    """An attn_input or attn_output over the array's memory, which the caller keeps alive; None: an absent tensor.

    axes[i] says which of the slot's four axes axis i of the array is; by default they are the first ones.  dtype: the attn_dtype of
    elements that NumPy has no type for.
    """
    made = kind()
    if array is None:
        return made
    made.dtype = TYPES[array.dtype] if dtype is None else dtype
    if array.size == 0:
        made.data = _abi.ATTN_EMPTY
        return made
    made.data = array.ctypes.data
    axes = range(array.ndim) if axes is None else axes
    stride = [0, 0, 0, 0]
    for size, step, axis in zip(array.shape, array.strides, axes, strict=True):
        stride[axis] = 0 if size == 1 else step // array.itemsize
    if array.size > 1 and not any(stride):
        stride[0] = _abi.ATTN_BROADCAST
    made.stride[:] = stride
    return made


def pointer(array: Array | None) -> int | None:
    """The address for a `const double *` and its like; None for None."""
    return None if array is None else array.ctypes.data


def is_tensor(x: Any) -> bool:
    """Whether x is a tensor of PyTorch, which is not imported for that."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def dlpack(x: Any) -> Any:
    """x as an object that any library with DLPack takes by its from_dlpack, without a copy.

    Arrays of bfloat16 and float8 (ml_dtypes) need it, since NumPy's own DLPack has no such types; all others are as they are.

        torch.from_dlpack(libattn.dlpack(o))

    Raises TypeError for what is not an array of numbers in this computer's memory.
    """
    array = asarray(x, "x")
    return _dlpack.Exported(array, TYPES[array.dtype]) if TYPES[array.dtype] in EXTRA else array


def like(result: Array, x: Any) -> Any:
    """A result as an array of the library that x comes from: NumPy's by default; memory is shared where that library can."""
    if isinstance(x, np.ndarray) or not hasattr(x, "__dlpack__"):
        return result
    if is_tensor(x):
        import torch

        return torch.from_dlpack(dlpack(result)) if TYPES[result.dtype] in EXTRA else torch.from_numpy(result)
    namespace = getattr(x, "__array_namespace__", None)
    if namespace is None:
        return result
    library = namespace()
    try:
        return library.from_dlpack(dlpack(result))
    except (AttributeError, BufferError, RuntimeError, TypeError):
        return library.asarray(result)
