# SPDX-License-Identifier: MIT
"""DLPack for the types that NumPy's own lacks, bfloat16 and float8: memory of another library as an array, and the reverse."""
from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _abi

Array = NDArray[Any]

# DLDataTypeCode and bits, and integers of the same size, which NumPy takes and gives.
CODES: dict[int, tuple[int, type[np.generic]]] = {
    _abi.ATTN_BF16: (4, np.uint16), _abi.ATTN_F8_E4M3: (10, np.uint8), _abi.ATTN_F8_E5M2: (12, np.uint8),
}
READ_ONLY = 1  # a flag of DLManagedTensorVersioned

capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
_set_name = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_SetName", ctypes.pythonapi))
_deleter = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
    ]


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class _Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64), ("tensor", _Tensor),
    ]


VERSIONED = b"dltensor_versioned", _Versioned, b"used_dltensor_versioned"  # (a capsule points to its name)
BEFORE = b"dltensor", _Managed, b"used_dltensor"


def _opened(capsule: Any) -> tuple[Any, bytes]:
    """The struct in a capsule, and the name of a used one."""
    name, kind, used = VERSIONED if _is_valid(capsule, VERSIONED[0]) else BEFORE
    return kind.from_address(capsule_pointer(capsule, name)), used


class _Owner:
    """Keeps the memory of a producer while an array over it lives."""

    def __init__(self, managed: Any, capsule: Any, used: bytes, item: np.dtype[Any]) -> None:
        t = managed.tensor
        shape = tuple(t.shape[i] for i in range(t.ndim))
        self._managed, self._capsule, self._delete = managed, capsule, _deleter
        self.__array_interface__ = {
            "version": 3, "shape": shape, "typestr": item.str, "data": ((t.data or 0) + t.byte_offset, getattr(managed, "flags", READ_ONLY) & READ_ONLY != 0),
            "strides": tuple(t.strides[i] * item.itemsize for i in range(t.ndim)) if t.strides else None,
        }
        _set_name(capsule, used)

    def __del__(self) -> None:
        if self._managed.deleter:
            self._delete(self._managed.deleter)(ctypes.addressof(self._managed))


def take(x: Any) -> tuple[Array, int] | None:
    """x over the same memory as an array of integers, and the attn_dtype that they stand for; None if x is of another type, or not to
    be had."""
    try:
        try:
            capsule = x.__dlpack__(max_version=(1, 1))
        except TypeError:  # before DLPack 1.0
            capsule = x.__dlpack__()
        managed, used = _opened(capsule)
    except (BufferError, RuntimeError, TypeError, ValueError):
        return None
    t = managed.tensor
    for value, (code, integer) in CODES.items():
        item = np.dtype(integer)
        if (t.code, t.bits, t.lanes) == (code, 8 * item.itemsize, 1):
            if any(t.shape[i] == 0 for i in range(t.ndim)):
                return np.empty(tuple(t.shape[i] for i in range(t.ndim)), item), value
            return np.asarray(_Owner(managed, capsule, used, item)), value
    return None


class Exported:
    """An array of bfloat16 or float8, for libraries that take DLPack."""

    def __init__(self, array: Array, value: int) -> None:
        self._code, integer = CODES[value]
        self._array = array.view(integer)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()

    def __dlpack__(self, **arguments: Any) -> Any:
        wanted = {name: x for name, x in arguments.items() if x is not None}
        try:
            capsule = self._array.__dlpack__(**wanted)
        except TypeError:  # before NumPy 2.1, which knows DLPack 1.0
            capsule = self._array.__dlpack__()
        _opened(capsule)[0].tensor.code = self._code  # of a struct that NumPy has just made
        return capsule
