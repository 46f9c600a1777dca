# SPDX-License-Identifier: MIT
"""Merging parts of keys against the formulas in double, and against attention over all keys."""
import numpy as np
import pytest

import libattn
from problems import arrays, close


def formula(o_parts, lse_parts):
    o_parts, lse_parts = np.asarray(o_parts, float), np.asarray(lse_parts, float)
    top = lse_parts.max(0)
    with np.errstate(invalid="ignore", divide="ignore"):
        weights = np.exp(lse_parts - np.where(np.isneginf(top), 0, top))
        lse = np.log(weights.sum(0)) + top
        weights = np.where(weights.sum(0) > 0, weights / weights.sum(0), 0)
    o = np.where(weights[..., None] > 0, weights[..., None] * o_parts, 0).sum(0)
    return o, lse, weights


def draw(count, dtype, seed=0):
    rng = np.random.default_rng(seed)
    o = [rng.standard_normal((2, 3, 5, 4)).astype(dtype) for _ in range(count)]
    compute = np.float64 if dtype == np.float64 else np.float32
    return o, [(3 * rng.standard_normal((2, 3, 5))).astype(compute) for _ in range(count)], rng


# A weight is exp of a rounded difference of numbers below 16, over a sum of `count` of them; o is a sum of `count` products.
def room(count, dtype):
    unit = 2.0**-53 if dtype == np.float64 else 2.0**-24
    return (2 * count + 32) * unit, 2.0**-11 if dtype == np.float16 else 0.0


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
@pytest.mark.parametrize("count", [1, 2, 40])
def test_the_formula(count, dtype):
    o_parts, lse_parts, _ = draw(count, dtype)
    lse_parts[0][0, 0, 0] = -np.inf
    o_parts[0][0, 0, 0] = np.nan
    found = libattn.merge(o_parts, lse_parts)
    o, lse, _ = formula(o_parts, lse_parts)
    wide, storage = room(count, dtype)
    magnitude = np.abs(np.nan_to_num(np.asarray(o_parts, float))).max(0)
    close(found.o, np.nan_to_num(o), np.nan_to_num(wide * magnitude + storage * np.abs(o)) + 2**-24 * (storage > 0))
    close(found.lse, lse, wide * 16)
    assert found.o.dtype == dtype and found.lse.dtype == lse_parts[0].dtype


def test_all_empty():
    found = libattn.merge([np.full((2, 3), np.nan)] * 2, [np.full(2, -np.inf)] * 2)
    assert (found.o == 0).all() and np.isneginf(found.lse).all()


def test_parts_of_attention():
    rng = np.random.default_rng(1)
    q, k, v = (rng.standard_normal((2, 4, n, 8)) for n in (5, 12, 12))
    parts = [libattn.attention(q, k[:, :, cut], v[:, :, cut], return_lse=True) for cut in (np.s_[:3], np.s_[3:4], np.s_[4:])]
    o, lse = libattn.attention(q, k, v, return_lse=True)
    found = libattn.merge([one[0] for one in parts], [one[1] for one in parts])
    close(found.o, o, 1e-14 * np.abs(v).max())
    close(found.lse, lse, 1e-13)


def test_strides_and_out():
    o_parts, lse_parts, _ = draw(3, np.float64)
    want = libattn.merge(o_parts, lse_parts)
    turned = [np.ascontiguousarray(x.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3) for x in o_parts]
    close(libattn.merge(turned, [x.T.copy().T for x in lse_parts]).o, want.o, 0)
    close(libattn.merge([x[0, 0] for x in o_parts], [x[0, 0] for x in lse_parts], threads=2).o, want.o[0, 0], 0)
    own = [x.copy() for x in o_parts]
    found = libattn.merge(own, lse_parts, out=own[1])
    assert found.o is own[1]
    close(found.o, want.o, 0)


def test_backward():
    o_parts, lse_parts, rng = draw(3, np.float64, 2)
    grad_o, grad_lse = rng.standard_normal((2, 3, 5, 4)), rng.standard_normal((2, 3, 5))
    o, _, weights = formula(o_parts, lse_parts)
    for given in (grad_lse, None):
        found = libattn.merge_backward(o_parts, lse_parts, grad_o, grad_lse=given)
        for p in range(3):
            close(found.o_parts[p], weights[p][..., None] * grad_o, 64 * 2.0**-53 * np.abs(grad_o))
            inner = (grad_o * (o_parts[p] - o)).sum(-1) + (0 if given is None else given)
            size = (np.abs(grad_o) * (np.abs(o_parts[p]) + np.abs(o))).sum(-1) + 3
            close(found.lse_parts[p], weights[p] * inner, 128 * 2.0**-53 * size)


@arrays
def test_libraries(make):
    o_parts, lse_parts, _ = draw(2, np.float64)
    found = libattn.merge([make(x) for x in o_parts], [make(x) for x in lse_parts])
    grads = libattn.merge_backward([make(x) for x in o_parts], [make(x) for x in lse_parts], make(o_parts[0]))
    assert type(found.o) is type(found.lse) is type(grads.o_parts[1]) is type(make(o_parts[0]))


ZERO, NONE = np.zeros((2, 3)), np.zeros(2)


@pytest.mark.parametrize("make, kind, message", [
    (lambda: libattn.merge([], []), ValueError, "at least one part"),
    (lambda: libattn.merge([ZERO], []), ValueError, "lse_parts 0"),
    (lambda: libattn.merge([ZERO, ZERO[:1]], [NONE, NONE]), ValueError, r"o_parts\[1\] has shape"),
    (lambda: libattn.merge([ZERO, ZERO.astype(np.float32)], [NONE, NONE]), ValueError, r"o_parts\[1\] has type float32"),
    (lambda: libattn.merge([ZERO], [ZERO]), ValueError, r"lse_parts\[0\] has shape"),
    (lambda: libattn.merge([ZERO.astype(int)], [NONE]), TypeError, r"o_parts\[0\] has type"),
    (lambda: libattn.merge([ZERO], [NONE], out=np.zeros((2, 2))), ValueError, "out has shape"),
    (lambda: libattn.merge([ZERO], [NONE], thread=1), TypeError, "thread is not an option"),
    (lambda: libattn.merge_backward([ZERO], [NONE], ZERO[:1]), ValueError, "grad_o has shape"),
    (lambda: libattn.merge_backward([ZERO], [NONE], ZERO, grad_lse=ZERO), ValueError, "grad_lse has shape"),
    (lambda: libattn.merge_backward([ZERO], [NONE], ZERO, reproducible=True), NotImplementedError, "reproducible"),
])
def test_errors(make, kind, message):
    with pytest.raises(kind, match=message):
        make()
