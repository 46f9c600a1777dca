# SPDX-License-Identifier: MIT
"""Matrix products within the bound of their docstring."""
import numpy as np
import pytest

import libattn
from problems import arrays, close


def bound(a, b, c=None):
    inner = a.shape[1]
    unit = np.finfo(a.dtype).eps / 2
    size = (5 + min(inner, 256) + inner / 256 + (c is not None)) * (np.abs(a.astype(float)) @ np.abs(b.astype(float)))
    return unit * (size + (0 if c is None else np.abs(c))) + inner * 2.0**-52 * np.abs(a.astype(float)) @ np.abs(b.astype(float))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rows, columns, inner", [(1, 1, 1), (3, 40, 300), (70, 33, 513), (5, 0, 3), (0, 4, 2), (4, 5, 0)])
def test_products(rows, columns, inner, dtype):
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((rows, inner)).astype(dtype), rng.standard_normal((inner, columns)).astype(dtype)
    want = a.astype(float) @ b.astype(float)
    c = libattn.product(a, b)
    assert c.dtype == dtype
    close(c, want, bound(a, b))
    for left, right in ((a, np.asfortranarray(b)), (np.asfortranarray(a), b), (a[::-1][::-1], b), (a, b[:, ::-1][:, ::-1])):
        close(libattn.product(left, right, invariant=True), libattn.product(a, b, invariant=True), 0)
    start = rng.standard_normal((rows, columns)).astype(dtype)
    out = start.copy()
    assert libattn.product(a, b, out=out, add=True, threads=2) is out
    close(out, want + start, bound(a, b, start))
    workspace = np.empty(libattn.product_workspace_size(rows, columns, inner, dtype=dtype), np.uint8)
    close(libattn.product(a, b, workspace=workspace), c, 0)
    strided = rng.standard_normal((rows, 2 * inner)).astype(dtype)[:, ::2]
    close(libattn.product(strided, b), strided.astype(float) @ b.astype(float), bound(strided, b))


def test_rows_of_a_larger_matrix():
    rng = np.random.default_rng(1)
    whole = np.zeros((4, 10))
    a, b = rng.standard_normal((4, 3)), rng.standard_normal((3, 5))
    libattn.product(a, b, out=whole[:, 2:7])
    close(whole[:, 2:7], a @ b, bound(a, b))
    assert not whole[:, :2].any() and not whole[:, 7:].any()


@arrays
def test_libraries(make):
    a = make(np.eye(3))
    assert type(libattn.product(a, a)) is type(a)


A = np.zeros((3, 4))


@pytest.mark.parametrize("make, kind, message", [
    (lambda: libattn.product(A, A), ValueError, "columns of a and rows of b"),
    (lambda: libattn.product(A, A.T.astype(np.float32)), ValueError, "b float32"),
    (lambda: libattn.product(A[0], A.T), ValueError, "a has 1 axes"),
    (lambda: libattn.product(A, A.T, add=True), ValueError, "out is missing"),
    (lambda: libattn.product(A, A.T, out=np.zeros((3, 4))), ValueError, "out has shape"),
    (lambda: libattn.product(np.ones((64, 300)), np.ones((300, 64)), workspace=np.empty(1, np.uint8)), MemoryError, "workspace"),
    (lambda: libattn.product(A.astype(np.float16), A.T.astype(np.float16)), ValueError, "float16"),
    (lambda: libattn.product(A.astype(int), A.T.astype(int)), (TypeError, ValueError), "int64"),
    (lambda: libattn.product_workspace_size(-1, 2, 3), ValueError, "rows is -1"),
    (lambda: libattn.product(A, A.T, isa="neon" if libattn.cpu().isa != "neon" else "avx2"), NotImplementedError, "."),
])
def test_errors(make, kind, message):
    with pytest.raises(kind, match=message):
        make()
