# SPDX-License-Identifier: MIT
"""The counts of cost against their formulas, and golden numbers."""
import numpy as np
import pytest

from libattn import _abi, cost

SIZES = {"batch": 2, "heads_q": 8, "heads_kv": 2, "len_q": 100, "len_kv": 300, "dim_qk": 64, "dim_v": 32}


@pytest.mark.parametrize("dtype, size", [(np.float32, 4), (np.float64, 8), ("f16", 2), ("bf16", 2)])
def test_formulas(dtype, size):
    found = cost.estimate(**SIZES, dtype=dtype, rank=128)
    scores = 2 * 8 * 100 * 300
    assert found.scores == found.pairs == scores
    assert found.operations == 2 * (64 + 32) * scores and found.backward_operations == 2.5 * found.operations
    assert found.qkv_bytes == size * 2 * (8 * 100 * 64 + 2 * 300 * 96) and found.output_bytes == size * 2 * 8 * 100 * 32
    assert found.matrix_bytes == size * scores and found.cache_bytes == size * 2 * 300 * 2 * 96
    assert found.latent_bytes == size * 2 * 300 * 128 and found.lse_bytes == max(size, 4) * 2 * 8 * 100
    assert found.intensity == pytest.approx(found.operations / found.traffic_bytes, rel=1e-15)
    matrix = cost.estimate(**SIZES, dtype=dtype, method="matrix")
    assert matrix.traffic_bytes == found.qkv_bytes + found.output_bytes + 2 * found.matrix_bytes
    linear = cost.estimate(**SIZES, dtype=dtype, method="linear", features=128)
    assert linear.operations == 2 * 128 * 32 * 2 * (2 * 300 + 8 * 100) and linear.state_bytes == size * 2 * 2 * 128 * 32
    assert linear.backward_operations == 2 * linear.operations


@pytest.mark.parametrize("k, v, k_scaled, row", [("i8", "f16", False, 68 + 64), ("f8_e4m3", "i8", True, 68 + 36), ("q8_0", "q4_0", False, 68 + 18)])
def test_formats(k, v, k_scaled, row):
    found = cost.estimate(**SIZES, dtype="bf16", k_dtype=k, v_dtype=v, k_scaled=k_scaled)
    assert found.cache_bytes == 2 * 300 * 2 * row and found.qkv_bytes == 2 * 2 * 8 * 100 * 64 + found.cache_bytes


def test_claims():
    assert cost.estimate(len_q=4096, dim_qk=64).matrix_bytes == 64 * 2**20
    assert cost.estimate(len_q=8192, heads_q=32, dim_qk=64, dtype=np.float16).matrix_bytes == 2 * 32 * 8192**2
    assert cost.estimate(len_q=1000, dim_qk=64).scores == 1e6
    assert cost.estimate(len_q=10, dim_qk=4, pairs=55).operations == 2 * 8 * 55
    few = cost.estimate(len_q=8192, dim_qk=64, fast_elements=10000)
    assert few.traffic_bytes > cost.estimate(len_q=8192, dim_qk=64).traffic_bytes
    again = cost.estimate(len_q=4096, dim_qk=1024, fast_elements=2**18, method="matrix").traffic_bytes
    assert again == (14 * 32 + 64 + 4 * 64 + 14 * 16 + 16) * 2**20
    assert cost.attainable_rate(156e12, 1.5e12, 64) == 96e12 and cost.attainable_rate(156e12, 1.5e12, 1000) == 156e12


@pytest.mark.parametrize("changes, kind, message", [
    ({"len_q": -1}, ValueError, "len_q is -1"), ({"method": "flash"}, ValueError, "method is 'flash'"),
    ({"pairs": 0}, ValueError, "pairs is 0"),
    ({"dtype": np.complex64}, TypeError, "dtype"), ({"dtype": np.int8}, (ValueError, NotImplementedError), "dtype"),
    ({"features": 0}, ValueError, "features is 0"), ({"heads_q": 3}, ValueError, "heads_q"), ({"pairs": 1e30}, ValueError, "pairs"),
])
def test_errors(changes, kind, message):
    with pytest.raises(kind, match=message):
        cost.estimate(**{**SIZES, **changes})


def test_every_method_has_its_name():
    assert sorted(cost.METHODS.values()) == sorted(_abi.ENUMS["attn_cost_method"].values())
