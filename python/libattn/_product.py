# SPDX-License-Identifier: MIT
"""Matrix products, which layers need besides attention.  (The header attn/product.h.)"""
from __future__ import annotations

import ctypes
from typing import Any, Unpack

import numpy as np

from . import _abi, _native
from ._arguments import choice, integer
from ._arrays import Array, asarray, like
from ._execution import Execution, execution
from ._slots import Slots, floats, output

TYPES = {"float32": _abi.ATTN_F32, "float64": _abi.ATTN_F64}


def _matrix(x: Any, name: str, dtype: Any = None) -> Array:
    """A matrix whose rows or columns are contiguous; others are copied."""
    array = asarray(x, name, dtype) if isinstance(x, np.ndarray) else floats(x, name, dtype)
    if array.ndim != 2:
        raise ValueError(f"{name} has {array.ndim} axes; it must have two")
    aligned = array.flags.aligned and all(step % array.itemsize == 0 for step in array.strides)
    contiguous = any(size <= 1 or step == array.itemsize for size, step in zip(array.shape, array.strides))
    return array if aligned and contiguous else np.ascontiguousarray(array)


def _problem(rows: int, columns: int, inner: int, dtype: np.dtype[Any], add: bool = False) -> Any:
    made = _native.struct(_abi.attn_product_problem, rows=rows, columns=columns, inner=inner, add=int(add))
    made.dtype = choice(str(dtype), "the type of a product", TYPES)
    return made


def product(
    a: Any, b: Any, *, out: Any = None, add: bool = False, workspace: Any = None, **options: Unpack[Execution],
) -> Any:
    """The matrix product c[i,j] = sum_k a[i,k] b[k,j], for a [rows, inner] and b [inner, columns], both of float32 or both of float64.

    The result has the same bits for any number of threads, any strides and any alignment, and a row has the same bits whatever rows are
    beside it (products of at most 4 rows whose sums run along memory have an order of their own, but with invariant=True).  The error of
    an element is at most (5 + min(inner, 256) + inner/256 + add) u sum_k |a[i,k] b[k,j]|, plus u |c| with add.  NaN and infinities stay in
    their row or column.  Transposed matrices (weight.T) are used without a copy.

    out: a matrix to write c to; with add=True, a b is added to what it holds.  workspace: an array of bytes (uint8) of at least
    product_workspace_size, so that nothing is allocated.  Returns c in the library of a, or out.

    Raises ValueError, TypeError, NotImplementedError or MemoryError, with out untouched.
    """
    left, right = _matrix(a, "a"), _matrix(b, "b")
    if left.dtype != right.dtype:
        raise ValueError(f"a has type {left.dtype}, b {right.dtype}; they must agree")
    if left.shape[1] != right.shape[0]:
        raise ValueError(f"a has shape {list(left.shape)}, b {list(right.shape)}; columns of a and rows of b must agree")
    if add and out is None:
        raise ValueError("add is set, and out is missing: the matrix that a b is added to")
    problem = _problem(left.shape[0], right.shape[1], left.shape[1], left.dtype, add)
    c = output(out, "out", (left.shape[0], right.shape[1]), left.dtype)
    slots = Slots(_abi.attn_product_tensors)
    for name, array in (("a", left), ("b", right), ("c", c)):
        slots.put(name, array, (2, 3))
    if workspace is None:
        _native.call("attn_product", ctypes.byref(problem), slots.reference, execution(options))
    else:
        block = output(workspace, "workspace", np.shape(workspace))
        if not block.flags.c_contiguous:
            raise ValueError("workspace is not contiguous")
        _native.call("attn_product_in", ctypes.byref(problem), slots.reference, block.ctypes.data, block.nbytes, execution(options))
    return like(c, a) if out is None else out


def product_workspace_size(rows: int, columns: int, inner: int, *, dtype: Any = np.float32, **options: Unpack[Execution]) -> int:
    """Bytes of workspace that `product` needs for matrices of these sizes, and for all that are no larger in any size, with the same dtype
    and options: the largest sizes of a program serve it all."""
    sizes = integer(rows, "rows", 0), integer(columns, "columns", 0), integer(inner, "inner", 0)
    problem, size = _problem(*sizes, np.dtype(dtype)), ctypes.c_size_t()
    _native.call("attn_product_workspace_size", ctypes.byref(problem), ctypes.addressof(size), execution(options))
    return size.value
