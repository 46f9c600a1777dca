# SPDX-License-Identifier: MIT
"""Element types, and conversions rounded once."""
import fractions

import numpy as np
import pytest

import libattn
from libattn import _abi, _types
from problems import arrays


def test_names():
    assert libattn.dtype_name(np.float32) == "f32" and libattn.dtype_name("float16") == "f16" and libattn.dtype_name(bool) == "bool"
    assert libattn.dtype_size(np.float64) == 8 and libattn.dtype_size("bf16") == 2 and libattn.dtype_size(np.int64) == 8
    assert sorted(_types.NAMES.values()) == sorted(value for value in _abi.ENUMS["attn_dtype"].values() if value)
    with pytest.raises(TypeError, match="complex"):
        libattn.dtype_name(np.complex64)


def nearest(x, bits):
    """x rounded to `bits` bits of mantissa, ties to even, in exact arithmetic (no subnormal numbers)."""
    x = fractions.Fraction(float(x))
    if x == 0:
        return 0.0
    step = fractions.Fraction(2) ** (int(np.floor(np.log2(float(abs(x))))) - bits + 1)
    return float(round(x / step) * step)


@pytest.mark.parametrize("dtype, bits", [("f32", 24), ("f16", 11), ("bf16", 8)])
def test_rounded_once(dtype, bits):
    rng = np.random.default_rng(0)
    x = rng.standard_normal(200)
    # Just above a tie of the target, by less than a float32 shows: a float32 between would round to even.
    ties = (1 + (2 * np.arange(16) + 1) * 2.0**-bits) * (1 + 2.0**-50)
    x = np.concatenate([x, ties, -ties]).reshape(8, -1)
    if dtype == "bf16":
        pytest.importorskip("ml_dtypes")
    found = libattn.convert(x, dtype)
    assert np.array_equal(found.astype(float), np.vectorize(lambda one: nearest(one, bits))(x))
    assert np.array_equal(libattn.convert(found, np.float64), found.astype(float))
    out = np.empty(x.shape, found.dtype)
    assert libattn.convert(x[:, ::-1], dtype, out=out) is out and np.array_equal(out, found[:, ::-1])


@arrays
def test_libraries(make):
    x = make(np.linspace(0, 1, 7).reshape(1, 7))
    assert type(libattn.convert(x, np.float32)) is type(x)


def test_torch_bfloat16():
    torch = pytest.importorskip("torch")
    pytest.importorskip("ml_dtypes")
    x = torch.randn(5, 3, dtype=torch.float64)
    found = libattn.convert(x, "bf16")
    assert found.dtype == torch.bfloat16 and torch.equal(libattn.convert(found, "f32"), found.float())
    assert libattn.convert([], "f16").shape == (0,)


@pytest.mark.parametrize("make, kind, message", [
    (lambda: libattn.convert([1.0], np.int32), NotImplementedError, "i32|int32"),
    (lambda: libattn.convert(np.array([1]), "f32"), NotImplementedError, "i64|int64"),
    (lambda: libattn.convert([1.0], "f80"), TypeError, "dtype is 'f80'"),
    (lambda: libattn.convert("x", "f32"), (TypeError, ValueError), "."),
    (lambda: libattn.convert([1.0], "f32", out=np.zeros(1)), ValueError, "out has type"),
])
def test_errors(make, kind, message):
    with pytest.raises(kind, match=message):
        make()
