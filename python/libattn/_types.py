# SPDX-License-Identifier: MIT
"""Element types and rows of numbers converted from one to another.  (The header attn/types.h.)"""
from __future__ import annotations

from typing import Any

import numpy as np

from . import _abi, _native
from ._arrays import TYPES, asarray, dtype_of, like, pointer
from ._slots import output, plain

NAMES: dict[str, int] = {_native.call("attn_dtype_name", value).decode(): value for value in _abi.ENUMS["attn_dtype"].values() if value}


def code(dtype: Any, name: str) -> int:
    """The attn_dtype of a NumPy type or of a name of the library, "bf16"."""
    if isinstance(dtype, str) and dtype in NAMES:
        return NAMES[dtype]
    try:
        found = TYPES.get(np.dtype(dtype))
    except TypeError:
        found = None
    if found is None:
        raise TypeError(f"{name} is {dtype!r}; it must be a type of NumPy that libattn knows, or one of {', '.join(NAMES)}")
    return found


def dtype_name(dtype: Any) -> str:
    """The library's name of a type: "f32" for numpy.float32, "bf16" for ml_dtypes.bfloat16.  Raises TypeError for one it does not know."""
    return _native.call("attn_dtype_name", code(dtype, "dtype")).decode()


def dtype_size(dtype: Any) -> int:
    """Bytes of an element of a type, given as NumPy's or by the library's name."""
    return _native.call("attn_dtype_size", code(dtype, "dtype"))


def convert(x: Any, dtype: Any, *, out: Any = None) -> Any:
    """x in another float type, float32, float64, float16 or bfloat16 ("bf16"), rounded once, to nearest even: float64 to float16 or
    bfloat16 without a float32 between.  Any shape, in the library of x; or written to `out`, which must be contiguous.

    Raises TypeError, ValueError, or NotImplementedError for other types.
    """
    array = np.require(asarray(x, "x", np.float64 if plain(x) else None), requirements=["C", "A"])
    target = code(dtype, "dtype")
    made = output(out, "out", array.shape, dtype_of(target))
    if not made.flags.c_contiguous:
        raise ValueError("out is not contiguous")
    if array.size:
        _native.call("attn_convert", array.size, pointer(array), TYPES[array.dtype], pointer(made), target)
    return like(made, x) if out is None else out
