# SPDX-License-Identifier: MIT
"""The types of caches: their names, what is allocated for them, and values that are the first channel of the keys."""
import re
import subprocess
import sys

import numpy as np
import pytest

import libattn
from libattn.cache import Blocks, Cache, dequantise, quantise

RNG = np.random.default_rng(0)


def test_layers_by_names_of_quantise():
    layer = libattn.layers.Layer(64, 2).initialise(seed=1)
    x = RNG.standard_normal((1, 40, 64)).astype("f4")
    kept = layer.cache(1, 64, dtype="i8", v_dtype="f16")
    assert kept.k.dtype == np.int8 and kept.v.dtype == np.float16
    assert np.array_equal(layer.decode(kept, x), layer.decode(layer.cache(1, 64, dtype=np.int8, v_dtype=np.float16), x))
    latent = libattn.latent.Latent(48, 2, rank=32, dim_rotary=32).initialise(seed=1)
    x = RNG.standard_normal((1, 40, 48)).astype("f4")
    want, kept = latent.decode(latent.cache(1, 64), x), latent.cache(1, 64, dtype="i8")
    got = latent.decode(kept, x)
    assert 0 < abs(got - want).max() < 0.05 * abs(want).max() and kept.k_scale[:, :, :40].all() and kept.v_scale is not None
    assert np.array_equal(got, latent.decode(latent.cache(1, 64, dtype=np.int8), x))
    with pytest.raises(NotImplementedError, match="^dtype is q4_1c, which is of keys alone, and a latent is also the value; q4_1 has as many bits$"):
        latent.cache(1, 64, dtype="q4_1c")


@pytest.mark.parametrize("form", ["i8", "f8_e4m3", "f8_e5m2", "q8_0", "q4_0", "q4_1", "q4_1c"])
def test_names_are_those_of_quantise(form):
    """One name, one type: also "i8", by which NumPy means int64."""
    pytest.importorskip("ml_dtypes") if form.startswith("f8") else None
    kept = Cache.empty(2, 2, 32, 64, dtype=form, v_dtype=form)
    made = quantise(RNG.standard_normal((2, 2, 32, 64)).astype("f4"), form)
    for rows in (kept.k, kept.v):
        assert rows.format == form if isinstance(made, Blocks) else rows.dtype == made.values.dtype


def test_names_of_types():
    for name, kind in (("f32", "float32"), ("f64", "float64"), ("f16", "float16"), ("f8", "float64"), ("<f2", "float16"), ("i1", "int8"), (float, "float64")):
        assert Cache.empty(1, 1, 2, 3, dtype=name).k.dtype == np.dtype(kind), name
    known = "known: float32, float16, bfloat16, int8, float64, .*, i8, .*, f8_e4m3, .*, q8_0, q4_0, q4_1, q4_1c$"
    for name in ("q5_0", "i16", "i4", np.int64, ">f4", complex, ["q8_0"], "f4,f4", "(", "float128"):
        for options, of in (({"dtype": name}, "dtype"), ({"v_dtype": name}, "v_dtype")):
            with pytest.raises(TypeError, match=f"^{of} is {re.escape(repr(name))}; {known}"):
                Cache.empty(1, 1, 2, 3, **options)
    with pytest.raises(TypeError, match=f"^dtype is 'q5_0'; {known}"):
        libattn.layers.Layer(64, 2).cache(1, 4, dtype="q5_0")
    with pytest.raises(TypeError, match=f"^dtype is 'q5_0'; {known}"):
        libattn.latent.Latent(48, 2).cache(1, 4, dtype="q5_0")
    with pytest.raises(ValueError, match="^v_dtype is q8_0, and rows have 20 channels"):
        Cache.empty(1, 1, 2, 32, 20, v_dtype="q8_0")


def test_names_without_ml_dtypes():
    """The error names the package, not the type as unknown."""
    code = """
import sys
sys.modules["ml_dtypes"] = None
from libattn.cache import Cache
for name in ("bfloat16", "bf16", "float8_e4m3fn", "f8_e4m3", "f8_e5m2"):
    try:
        Cache.empty(1, 1, 2, 3, dtype=name)
    except NotImplementedError as error:
        assert "need the package ml_dtypes" in str(error)
    else:
        raise AssertionError(name)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize("batch, capacity", [(2, 6), (1, 1)])
def test_values_are_the_first_channel_of_keys(dtype, batch, capacity):
    """An axis of one channel has no stride by which values would be told from those of their own."""
    plain = Cache.empty(batch, 1, capacity, 8, 1, dtype=dtype)
    kept = Cache(plain.k, plain.k[..., :1], plain.lengths, k_scale=plain.k_scale)
    x = RNG.standard_normal((batch, 1, capacity, 8)).astype("f4")
    kept.append(x)
    exact = dequantise(quantise(x)) if dtype == "int8" else x
    o = libattn.attention(x, kept.k, kept.v, **kept.arguments())
    assert np.allclose(o, libattn.attention(x, exact, np.ascontiguousarray(exact[..., :1])), rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match="v is set, and the cache's v is its k"):
        kept.append(x, x[..., :1])
    with pytest.raises(ValueError, match="^v is missing$"):
        plain.append(x)
    layer = libattn.latent.Latent(16, 2, rank=1, dim_rotary=4).initialise(seed=2)
    tokens = RNG.standard_normal((batch, capacity, 16)).astype("f4")
    want, got = layer(tokens, causal=True), layer.decode(layer.cache(batch, capacity, dtype=dtype), tokens, causal=True)
    assert np.allclose(got, want, rtol=1e-5, atol=1e-5) if dtype == "float32" else abs(got - want).max() < 0.05 * abs(want).max()
