# SPDX-License-Identifier: MIT
"""The memory of a cache: arrays, or blocks, that C writes to, with their scales."""
from __future__ import annotations

from typing import Any, cast

import numpy as np

from . import _abi
from ._arrays import Array, asarray, dtype_of, rows
from ._blocks import BLOCK, FORMATS, SIZES, Blocks, Format, blocks_slot, cells
from ._slots import integers, output, output_slot
from ._types import NAMES

FLOAT8 = ("float8_e4m3fn", "float8_e5m2")
STORED = ("float32", "float16", "bfloat16", "int8", "float64", *FLOAT8)
NUMBERS = {  # by NumPy's names that need ml_dtypes, and by the library's, of which NumPy reads "i8" and "f16" as other types
    "bfloat16": _abi.ATTN_BF16, "float8_e4m3fn": _abi.ATTN_F8_E4M3, "float8_e5m2": _abi.ATTN_F8_E5M2,
    **{name: NAMES[name] for name in ("f32", "f16", "bf16", "i8", "f64", "f8_e4m3", "f8_e5m2")},
}


def written(x: Any, name: str, shape: tuple[int, ...] | None, dtypes: tuple[str, ...]) -> Array:
    """An array that the cache writes to: not a copy, but a view, which cannot be resized: C knows the address."""
    array = output(x, name, shape)
    if str(array.dtype) not in dtypes:
        raise TypeError(f"{name} has type {array.dtype}; it must be {' or '.join(dtypes)}")
    return array[...]


def stored(x: Any, name: str) -> Array | Blocks:
    """The same for keys or values, which may be in blocks."""
    if not isinstance(x, Blocks):
        return written(x, name, None, STORED)
    found = Blocks(output(x.data, name, None, np.uint8)[...], x.format)
    if found.data.size and not np.may_share_memory(cells(found, name), found.data):
        raise ValueError(f"{name} has strides that are no whole blocks of {SIZES[x.format]} bytes")
    return found


def scale_of(x: Any, name: str, of: Array | Blocks) -> Array:
    """A scale for each row of int8 or float8, or of float8 the caller's, which all tokens share and which is only read."""
    shape = of.shape[:3]
    array = asarray(x, name)
    if isinstance(of, np.ndarray) and of.dtype.name in FLOAT8 and array.shape == shape and is_given(array):
        if array.dtype != np.float32:
            raise TypeError(f"{name} has type {array.dtype}; it must be float32")
        return array[...]
    return written(x, name, shape, ("float32",))


def is_given(scale: Array) -> bool:
    """Whether all tokens share it: of an axis of one token, the stride says so only if nobody can write there."""
    return scale.size > 0 and scale.strides[2] == 0 and (scale.shape[2] > 1 or not scale.flags.writeable)


def scale_slot(scale: Array) -> Any:
    """The slot of scales.  To C a stride of 0 along the tokens says that they are the caller's: of one token too."""
    made = output_slot(scale, (0, 1, 2))
    if is_given(scale):
        made.stride[0] = made.stride[0] if any(made.stride) else _abi.ATTN_BROADCAST
    elif scale.size:
        made.stride[0] = 0 if made.stride[0] == _abi.ATTN_BROADCAST else made.stride[0]
        made.stride[2] = made.stride[2] or 1
    return made


def table_of(x: Any) -> Array:
    """A page table over the caller's memory, so that what it writes there is seen; a list becomes an array."""
    array = asarray(x, "page_table")
    if array.ndim != 2:
        raise ValueError(f"page_table has {array.ndim} axes; it must have two, [batch, pages of a sequence]")
    if isinstance(x, (list, tuple)):
        return integers(array, "page_table")[...]
    if str(array.dtype) not in ("int64", "int32"):
        raise TypeError(f"page_table has type {array.dtype}; it must be int64 or int32")
    if rows(array) is not array:
        raise ValueError("page_table is not aligned to its elements, or has a last axis that is not contiguous")
    return array[...]


def kind_of(rows: Array | Blocks) -> str:
    """The name of the type of keys or values."""
    return rows.format if isinstance(rows, Blocks) else str(rows.dtype)


def bytes_of(rows: Array | Blocks) -> Array:
    return rows.data if isinstance(rows, Blocks) else rows


def channels(rows: Array | Blocks, count: int) -> Array | Blocks:
    """The first channels, in the same memory."""
    if not isinstance(rows, Blocks):
        return rows[..., :count]
    if count % BLOCK:
        raise ValueError(f"dtype is {rows.format}, and values are {count} of the channels; blocks need a multiple of {BLOCK}")
    return Blocks(rows.data[..., :count // BLOCK * SIZES[rows.format]], rows.format)


def rows_slot(rows: Array | Blocks) -> Any:
    """The slot of keys or values.  C tells by the strides whether values are the first channels of the keys, so that one channel has a
    stride too."""
    if isinstance(rows, Blocks):
        return blocks_slot(_abi.attn_output, rows)
    made = output_slot(rows)
    if rows.size and made.stride[0] != _abi.ATTN_BROADCAST:
        made.stride[3] = 1
    return made


def type_of(dtype: Any, name: str) -> np.dtype[Any] | Format:
    """The type of rows that a caller names: as `quantise` does, by another name of the library, or as NumPy takes types."""
    if isinstance(dtype, str) and dtype in FORMATS:
        return cast(Format, dtype)
    if isinstance(dtype, str) and dtype in NUMBERS:
        return dtype_of(NUMBERS[dtype])
    try:
        found = np.dtype(dtype)
    except (SyntaxError, TypeError, ValueError):  # what NumPy raises depends on what it takes a text for
        found = None
    if found is None or str(found) not in STORED:
        raise TypeError(f"{name} is {dtype!r}; known: {', '.join(dict.fromkeys((*STORED, *NUMBERS, *FORMATS)))}")
    return found


def zeros(shape: tuple[int, ...], dtype: Any, name: str = "dtype") -> Array | Blocks:
    kind = type_of(dtype, name)
    if not isinstance(kind, str):
        return np.zeros(shape, kind)
    if shape[-1] % BLOCK:
        raise ValueError(f"{name} is {kind}, and rows have {shape[-1]} channels; blocks need a multiple of {BLOCK}")
    return Blocks(np.zeros((*shape[:-1], shape[-1] // BLOCK * SIZES[kind]), np.uint8), kind)
