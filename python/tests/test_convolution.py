# SPDX-License-Identifier: MIT
"""The short causal convolution against its definition in double, and its gradients against differences."""
import numpy as np
import pytest

from libattn import convolution

random = np.random.default_rng(5)
STARTS = np.array([0, 3, 3, 4, 9])


def defined(x, weight, bias, silu, before):
    """y of one sequence [tokens, channels]."""
    width = weight.shape[1]
    inputs = np.concatenate([before, x])
    total = sum(weight[:, i] * inputs[i:i + len(x)] for i in range(width)) + bias
    return total / (1 + np.exp(-total)) if silu else total


def drawn(width, tokens=9, channels=5):
    return random.normal(size=(tokens, channels)), random.normal(size=(channels, width)), random.normal(size=channels)


@pytest.mark.parametrize("width", [2, 3, 4])
@pytest.mark.parametrize("silu", [False, True])
def test_ragged(width, silu):
    x, weight, bias = drawn(width)
    states = random.normal(size=(4, width - 1, 5))
    done = convolution.forward(x, weight, bias, silu=silu, cu_seqlens=STARTS, initial_state=states)
    for b in range(4):
        part = slice(STARTS[b], STARTS[b + 1])
        np.testing.assert_allclose(done.y[part], defined(x[part], weight, bias, silu, states[b]), rtol=0, atol=1e-12)
        np.testing.assert_array_equal(done.final_state[b], np.concatenate([states[b], x[part]])[-(width - 1):])
    alone = convolution.convolve(x[None, 4:], weight, bias, silu=silu, initial_state=states[3:])
    np.testing.assert_array_equal(alone[0], done.y[4:])


def test_gradients():
    x, weight, bias = drawn(3)
    states, grad, last = random.normal(size=(4, 2, 5)), random.normal(size=(9, 5)), random.normal(size=(4, 2, 5))
    given = {"x": x, "weight": weight, "bias": bias, "initial_state": states}

    def loss(values):
        done = convolution.forward(**values, silu=True, cu_seqlens=STARTS)
        return (done.y * grad).sum() + (done.final_state * last).sum()

    found = convolution.backward(x, weight, grad, bias, silu=True, cu_seqlens=STARTS, initial_state=states, grad_final_state=last)
    for name, array in given.items():
        way = random.normal(size=array.shape)
        slope = (loss({**given, name: array + 1e-6 * way}) - loss({**given, name: array - 1e-6 * way})) / 2e-6
        assert abs(slope - (getattr(found, name) * way).sum()) < 1e-6, name


def test_pool():
    """Token by token with drafts that are refused: what a model without drafts has."""
    x, weight, bias = drawn(4, tokens=7)
    expected = convolution.convolve(x, weight, bias)
    pool = convolution.Pool(rows=6, channels=5, width=4, dtype=np.float64)
    pool.state[4] = 0
    final, at, slot = np.array([[1, 5, 4]]), 0, 4
    while at + 3 <= 7:
        y = pool.convolve(x[at:at + 3], weight, bias, [slot], final_slots=final, cu_seqlens=[0, 3])
        np.testing.assert_array_equal(y, expected[at:at + 3])
        accepted = 1 + at % 2
        slot, at = final[0, 3 - accepted], at + accepted
    with pytest.raises(ValueError, match=r"initial_slots\[0\] is 6; it must be -1 or below pool \(6\)"):
        pool.convolve(x[:1], weight, bias, [6])
    with pytest.raises(ValueError, match=r"final_slots has shape \[1, 0\]"):
        pool.convolve(x[:1], weight, bias, [4], final_slots=np.zeros((1, 0), int))


def test_rejected():
    x, weight, bias = drawn(3)
    with pytest.raises(ValueError, match="weight has shape"):
        convolution.convolve(x, weight.T, bias)
    for end in (8, 10):  # (rows past the last sequence would have no numbers)
        with pytest.raises(ValueError, match=f"cu_seqlens ends at {end}; there are 9 tokens of x"):
            convolution.convolve(x, weight, bias, cu_seqlens=[0, end])
        with pytest.raises(ValueError, match=f"cu_seqlens ends at {end}"):
            convolution.backward(x, weight, x, bias, cu_seqlens=[0, end])
    with pytest.raises(NotImplementedError, match="width is 5"):
        convolution.convolve(x, np.zeros((5, 5)))
    with pytest.raises(ValueError, match="the pool has"):
        convolution.Pool(2, 4, 3, dtype=np.float64).convolve(x, weight, bias, [0], cu_seqlens=[0, 9])
