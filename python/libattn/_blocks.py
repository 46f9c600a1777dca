# SPDX-License-Identifier: MIT
"""Keys and values in ggml's blocks, which no type of NumPy is: rows of bytes, and the name of their format.  (attn_dtype in attn/types.h.)"""
from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, Literal, Sequence

import numpy as np

from . import _abi, _native
from ._arrays import Array, asarray, rows, slot

Format = Literal["q8_0", "q4_0", "q4_1", "q4_1c"]

FORMATS: dict[str, int] = {"q8_0": _abi.ATTN_Q8_0, "q4_0": _abi.ATTN_Q4_0, "q4_1": _abi.ATTN_Q4_1, "q4_1c": _abi.ATTN_Q4_1C}
NAMES = {value: name for name, value in FORMATS.items()}
SIZES: dict[str, int] = {name: _native.call("attn_dtype_size", value) for name, value in FORMATS.items()}  # bytes of a block
BLOCK: int = _abi.ATTN_BLOCK
TAIL: int = _abi.ATTN_TAIL
BY_CHANNEL = "q4_1c"


def check_format(x: Any, known: Sequence[str]) -> None:
    """Raises ValueError for the name of another format, TypeError for what is no name."""
    if not isinstance(x, str) or x not in known:
        raise (ValueError if isinstance(x, str) else TypeError)(f"format is {x!r}; known: {', '.join(known)}")


@dataclass(frozen=True, eq=False)
class Blocks:
    """Keys or values in blocks of 32 channels, bit for bit as ggml has them: k and v of attention and of caches.

    data     [..., bytes of a row] of uint8, an array of any library: a row of dim channels is dim // 32 blocks, one after the other
    format   "q8_0": blocks of 34 bytes, d (float16), then 32 of int8; channel c is d * q[c]
             "q4_0": of 18, d, then 16 bytes, of which byte c has q[c] below and q[c + 16] above; channel c is d * (q[c] - 8)
             "q4_1": of 20, d and m, then 16 bytes as in q4_0; channel c is d * q[c] + m, rounded to float32
             "q4_1c": keys only, whose blocks are those of q4_1, each of one channel of 32 keys; beside them attention and caches have
                      the last keys of each sequence, exact, in k_tail

        stored = cache.quantise(k, "q8_0")
        o = libattn.attention(q, stored, cache.quantise(v, "q4_1"))

    Raises TypeError or ValueError for another type or format, and for rows that are no whole blocks.
    """

    data: Any  #: as it was given: memory is shared
    format: Format

    def __post_init__(self) -> None:
        check_format(self.format, tuple(FORMATS))
        memory(self, "data")

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the numbers that it stands for: [..., dim]."""
        *first, last = np.shape(self.data)
        return *first, last // SIZES[self.format] * BLOCK

    def __repr__(self) -> str:
        return f"<libattn Blocks of {self.format}, {list(self.shape)}>"


def memory(blocks: Blocks, name: str, array: Array | None = None) -> Array:
    """The bytes, over the same memory; `array`: if they are one already."""
    array = asarray(blocks.data, name) if array is None else array
    size = SIZES[blocks.format]
    if array.dtype != np.uint8:
        raise TypeError(f"{name} has type {array.dtype}; blocks are bytes, of uint8")
    if array.ndim == 0:
        raise ValueError(f"{name} has no axes; it must have at least one, the bytes of a row")
    if array.shape[-1] % size:
        raise ValueError(f"{name} has {array.shape[-1]} bytes in a row; a block of {blocks.format} has {size}")
    return array


def cells(blocks: Blocks, name: str) -> Array:
    """An array with an element for each block, over the same memory, or over a copy where strides are no whole blocks."""
    array, size = rows(memory(blocks, name)), SIZES[blocks.format]
    if any(step % size for step, count in zip(array.strides[:-1], array.shape) if count > 1):
        array = np.ascontiguousarray(array)
    return array.view(np.dtype((np.void, size)))


def blocks_slot(kind: type[ctypes.Structure], blocks: Blocks, axes: Sequence[int] | None = None) -> Any:
    """An attn_input or attn_output over blocks, whose data the caller keeps alive."""
    array = cells(blocks, "blocks")
    made = slot(kind, array, axes, FORMATS[blocks.format])
    if array.size:  # also of one block, so that values that are the first block of keys have the strides of these
        if made.stride[0] == _abi.ATTN_BROADCAST:
            made.stride[0] = 0
        made.stride[array.ndim - 1 if axes is None else axes[-1]] = 1
    return made
