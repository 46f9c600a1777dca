# SPDX-License-Identifier: MIT
"""Rows of keys and values to formats of 8 and 4 bits, and back; rotated before.  (attn_quantise and attn_hadamard in attn/cache.h.)"""
from __future__ import annotations

import ctypes
from typing import Any, Literal, NamedTuple, overload

import numpy as np

from . import _abi, _native
from ._arrays import Array, TYPES, asarray, dtype_of, like
from ._blocks import BLOCK, BY_CHANNEL, FORMATS, SIZES, Blocks, Format, blocks_slot, check_format, memory
from ._slots import floats, input_slot, output_slot
from ._types import code

FLOATS = (_abi.ATTN_F32, _abi.ATTN_F64, _abi.ATTN_F16, _abi.ATTN_BF16)
QUANTISED = {"i8": _abi.ATTN_I8, "f8_e4m3": _abi.ATTN_F8_E4M3, "f8_e5m2": _abi.ATTN_F8_E5M2}


class Quantised(NamedTuple):
    """Rows of int8 or float8, each with its own scale."""

    values: Any  #: [..., dim] of int8, float8_e4m3fn or float8_e5m2
    scales: Any  #: [...] of float32; None: all are 1 (float8)


def _rows(x: Any) -> tuple[Array, Array]:
    """x as an array, and as rows, [.., dim]."""
    array = floats(x, "x")
    if array.ndim == 0:
        raise ValueError("x has no axes; it must have at least one, the channels of a row")
    return array, array.reshape(int(np.prod(array.shape[:-1])), array.shape[-1])


@overload
def quantise(x: Any, format: Literal["i8", "f8_e4m3", "f8_e5m2"] = "i8", *, scales: bool = True) -> Quantised: ...
@overload
def quantise(x: Any, format: Format, *, scales: bool = True) -> Blocks: ...
def quantise(x: Any, format: str = "i8", *, scales: bool = True) -> Quantised | Blocks:
    """Rows of float32, float64, float16 or bfloat16, [..., dim], in a format of keys and values.

    "i8": int8, each row with its own scale (k_scale and v_scale of attention):

        scales[i]    = max_c |x[i, c]| / 127, rounded to float32
        values[i, c] = x[i, c] / scales[i] rounded to nearest, ties to even; 0 if the scale is 0

    so that the error of a number is at most half a scale, as long as the scale is a normal number of float32.  A NaN or infinity makes
    its row's scale NaN, and so the whole row.

    "f8_e4m3", "f8_e5m2": float8 (ml_dtypes), likewise with the type's largest number, 448 or 57344, for 127; scales=False: without
    scales, x rounded to the type, what is beyond its largest number being that.

    "q8_0", "q4_0", "q4_1", "q4_1c": Blocks, with the bits of ggml's quantize_row_q8_0_ref, ...; dim is a multiple of 32.  A block with
    a NaN or infinity gets a d of NaN.  For q4_1c, which is q4_1 of each channel of 32 keys, x is [..., keys, dim], with a multiple of 32
    keys, and rounded to float16 first.
    """
    check_format(format, (*QUANTISED, *FORMATS))
    array, flat = _rows(x)
    source = input_slot(flat, (2, 3))
    if format in FORMATS:
        if format == BY_CHANNEL and array.ndim > 1 and array.shape[-2] % BLOCK:
            raise ValueError(f"x has {array.shape[-2]} keys, of the format {format}; groups need a multiple of {BLOCK}")
        bytes_of_row = flat.shape[1] // BLOCK * SIZES[format]
        made = Blocks(np.empty((len(flat), bytes_of_row), np.uint8), format)  # pyright: ignore[reportArgumentType]
        slots = source, blocks_slot(_abi.attn_output, made, (2, 3)), output_slot(None)
        _native.call("attn_quantise", *flat.shape, *(ctypes.byref(one) for one in slots))
        return Blocks(like(made.data.reshape(*array.shape[:-1], bytes_of_row), x), made.format)
    values, numbers = np.empty(flat.shape, dtype_of(QUANTISED[format])), np.empty(len(flat), np.float32) if scales else None
    slots = source, output_slot(values, (2, 3)), output_slot(numbers, (2,))
    _native.call("attn_quantise", *flat.shape, *(ctypes.byref(one) for one in slots))
    return Quantised(like(values.reshape(array.shape), x), None if numbers is None else like(numbers.reshape(array.shape[:-1]), x))


def _unpacked(blocks: Blocks) -> Array:
    """The numbers of each block, [..., blocks, 32] of float32, as the library computes with them."""
    data, size = memory(blocks, "x"), SIZES[blocks.format]
    cells = np.ascontiguousarray(data).reshape(*data.shape[:-1], data.shape[-1] // size, size)
    first = 4 if blocks.format in ("q4_1", BY_CHANNEL) else 2
    head = np.ascontiguousarray(cells[..., :first]).view(np.float16).astype(np.float32)
    rest = cells[..., first:]
    if blocks.format == "q8_0":
        return head * rest.view(np.int8).astype(np.float32)
    steps = np.concatenate([rest & 15, rest >> 4], -1).astype(np.float32)
    if blocks.format == "q4_0":
        return head * (steps - 8)
    return head[..., :1] * steps + head[..., 1:]  # the product is exact


def dequantise(x: Quantised | Blocks, dtype: Any = np.float32) -> Any:
    """The numbers that `quantise` has stored, [..., dim], of this float type: those with which attention computes.

    Those of blocks are numbers of float32; those of int8 and float8, products with a scale, are rounded once (float64 has them exactly).

    Raises TypeError for another type, or what `quantise` does not return, and ValueError for scales of another shape.
    """
    number = code(dtype, "dtype")
    if number not in FLOATS:
        raise TypeError(f"dtype is {dtype!r}; it must be float32, float64, float16 or bfloat16")
    wanted = dtype_of(number)
    if isinstance(x, Blocks):
        with np.errstate(invalid="ignore"):  # NaN and infinity, as they are stored
            numbers = _unpacked(x)
        if x.format == BY_CHANNEL:
            *first, keys, blocks, _ = numbers.shape if numbers.ndim > 2 else (1, *numbers.shape)
            if keys % BLOCK:
                raise ValueError(f"x has {keys} keys, of the format {x.format}; groups need a multiple of {BLOCK}")
            numbers = numbers.reshape(*first, keys // BLOCK, BLOCK * blocks, BLOCK).swapaxes(-1, -2)
        return like(np.ascontiguousarray(numbers.reshape(x.shape)).astype(wanted, copy=False), x.data)
    if not isinstance(x, Quantised):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"x is of type {type(x).__name__}; it must be what quantise returns, Quantised or Blocks")
    values = asarray(x.values, "x.values")
    if TYPES[values.dtype] not in QUANTISED.values():
        raise TypeError(f"x.values has type {values.dtype}; it must be int8, float8_e4m3fn or float8_e5m2")
    exact = values.astype(np.float64)
    if x.scales is not None:
        scales = asarray(x.scales, "x.scales")
        if scales.shape != values.shape[:-1]:
            raise ValueError(f"x.scales has shape {list(scales.shape)}; it must be {list(values.shape[:-1])}, one for each row of x.values")
        exact *= scales.astype(np.float64)[..., np.newaxis]
    return like(exact.astype(wanted, copy=False), x.values)


def hadamard(x: Any) -> Any:
    """Rows of float32, float64, float16 or bfloat16, [..., dim], times a Hadamard matrix, which spreads large channels over many, before
    they are quantised:

        y[i, a] = sum_b H[a, b] x[i, b] / sqrt(n)       H[a, b] = -1 if a and b have an odd number of common 1 bits, else 1

    in groups of n channels, the largest power of 2 that divides dim, at most 4096.  It is its own inverse, and scores of rotated queries
    and keys are those of the others.
    """
    array, rows = _rows(x)
    rotated = np.empty(rows.shape, rows.dtype)
    slots = input_slot(rows, (2, 3)), output_slot(rotated, (2, 3))
    _native.call("attn_hadamard", *rows.shape, *(ctypes.byref(slot) for slot in slots))
    return like(rotated.reshape(array.shape), x)
