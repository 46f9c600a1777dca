# SPDX-License-Identifier: MIT
"""libattn.hopfield against NumPy in double, and golden numbers."""
import copy
import pickle

import numpy as np
import pytest

from libattn import hopfield
from problems import EPS, arrays, close

RNG = np.random.default_rng(3)
TYPES = {np.float64: EPS, np.float32: 2.0**-24}


def modern(patterns, states, beta):
    scores = beta * states @ patterns.T
    top = scores.max(-1, keepdims=True)
    weights = np.exp(scores - top)
    z = weights.sum(-1, keepdims=True)
    energy = -(np.log(z) + top)[..., 0] / beta + (states**2).sum(-1) / 2
    return weights / z @ patterns, energy


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("front", [(), (4,), (2, 3), (0,)])
def test_update(dtype, front):
    patterns, states = RNG.normal(size=(6, 8)).astype(dtype), RNG.normal(size=(*front, 8)).astype(dtype)
    memory = hopfield.Hopfield(patterns, beta=2)
    updated, energy = memory.update(states, return_energy=True)
    expected, expected_energy = modern(patterns.astype(float), states.astype(float), 2)
    scale = 2 * np.abs(states.astype(float)) @ np.abs(patterns.T.astype(float))
    slack = (64 + 16 * np.max(scale, initial=0)) * TYPES[dtype]
    close(updated, expected, slack * np.abs(patterns).max())
    close(energy, expected_energy, slack * (1 + np.max(np.abs(expected_energy), initial=0)))
    assert updated.dtype == dtype and np.array_equal(updated, memory.update(states))
    assert isinstance(energy, float) == (front == ())


def test_golden_numbers():
    patterns, state = np.array([[1, 0], [0, 1], [0.7, 0.7]]), np.array([0.9, 0.1])
    for beta, expected in ((1, [0.6936, 0.4508]), (5, [0.9072, 0.1990])):
        close(hopfield.Hopfield(patterns, beta=beta).update(state), expected, 5.1e-5)


def test_update_backward():
    """Against central differences of the formula."""
    patterns, states = RNG.normal(size=(5, 4)), RNG.normal(size=(3, 4))
    grad_updated, grad_energy = RNG.normal(size=(3, 4)), RNG.normal(size=3)
    grads = hopfield.Hopfield(patterns, beta=1.5).update_backward(states, grad_updated=grad_updated, grad_energy=grad_energy)

    def loss(patterns, states):
        updated, energy = modern(patterns, states, 1.5)
        return (updated * grad_updated).sum() + (energy * grad_energy).sum()

    step = 1e-5
    for found, which in ((grads[0], 1), (grads[1], 0)):
        for place in np.ndindex(found.shape):
            values = []
            for sign in (1, -1):
                moved = [patterns.copy(), states.copy()]
                moved[which][place] += sign * step
                values.append(loss(*moved))
            close(found[place], (values[0] - values[1]) / (2 * step), 1e-8)
    memory = hopfield.Hopfield(patterns, beta=1.5)
    both = [memory.update_backward(states, grad_updated=grad_updated), memory.update_backward(states, grad_energy=grad_energy)]
    for i in range(2):
        close(both[0][i] + both[1][i], grads[i], 256 * EPS * (1 + abs(grads[i])))
    single = memory.update_backward(states[0], grad_updated=grad_updated[0], grad_energy=grad_energy[0])
    close(single[0], grads[0][0], 256 * EPS * (1 + abs(grads[0][0])))


def test_retrieve():
    patterns = np.sign(RNG.normal(size=(5, 64)))
    memory = hopfield.Hopfield(patterns, beta=4)
    noisy = patterns + 0.3 * RNG.normal(size=patterns.shape)
    found = memory.retrieve(noisy, most=20, return_energies=True)
    close(found.updated, patterns, 1e-6)
    assert found.iterations.dtype == np.int64 and np.all(found.iterations >= 1) and np.all(found.iterations <= 20)
    assert found.energies.shape == (5, 21) and np.all(np.diff(found.energies) <= 1e-12)
    close(found.energies[:, 0], memory.update(noisy, return_energy=True)[1], 1e-12)
    assert memory.retrieve(noisy).energies is None
    state, steps = noisy[0], 0
    while steps < 20:
        moved, steps = memory.update(state), steps + 1
        still = np.max(np.abs(moved - state)) < 1e-6
        state = moved
        if still:
            break
    single = memory.retrieve(noisy[0], most=20)
    assert type(single.iterations) is int and single.iterations == steps
    close(single.updated, state, 1e-12)


def test_classical():
    patterns = np.sign(RNG.normal(size=(3, 40)))
    states = np.sign(RNG.normal(size=(4, 40)))
    w = patterns.T @ patterns / 40
    updated, energy = hopfield.Hopfield(patterns).classical(states, return_energy=True)
    assert np.array_equal(updated, np.sign(states @ w))
    close(energy, -(states @ w * states).sum(-1) / 2, 1e-12)
    one = states.copy()
    for unit in range(40):
        one[:, unit] = np.sign(one @ w[unit])
    assert np.array_equal(hopfield.Hopfield(patterns).classical(states, order="asynchronous"), one)


def test_numbers_of_a_memory():
    patterns = RNG.normal(size=(4, 3))
    memory = hopfield.Hopfield(patterns, beta=2)
    distance = min(np.linalg.norm(patterns[i] - patterns[j]) for i in range(4) for j in range(i))
    close(memory.separation(), distance / np.linalg.norm(patterns, axis=1).mean(), 64 * EPS)
    assert hopfield.Hopfield([[1.0, 2]]).separation() == np.inf
    close(hopfield.Hopfield(np.eye(4)).separation(), np.sqrt(2), 8 * EPS)
    x, energy = memory.landscape(1, points=9, low=-1, high=3)
    close(x, np.linspace(-1, 3, 9), 8 * EPS)
    close(energy, modern(patterns, x[:, None] * np.eye(3)[1], 2)[1], 512 * EPS)
    assert memory.landscape()[0].shape == (100,)
    sharp = hopfield.Hopfield(10 * np.eye(8), beta=4)
    assert sharp.basin(3, noise=0.5) == 1
    weak = [memory.basin(0, samples=50, noise=2, seed=seed) for seed in (1, 1, 2)]
    assert weak[0] == weak[1] and 0 <= weak[2] <= 1
    close(hopfield.classical_capacity(100), 14, 64 * EPS)
    close(hopfield.modern_capacity(10), np.exp(5), 64 * EPS * np.exp(5))
    assert hopfield.modern_capacity(10**6) == np.inf


MEMORY = hopfield.Hopfield(np.eye(3))


@pytest.mark.parametrize("wrong, error, sentence", [
    (lambda: hopfield.Hopfield(np.ones(3)), ValueError, "patterns has shape"), (lambda: hopfield.Hopfield(np.ones((0, 3))), ValueError, "patterns has shape"),
    (lambda: hopfield.Hopfield([["a"]]), TypeError, "patterns"), (lambda: hopfield.Hopfield(np.eye(2), beta=0), ValueError, "beta is 0.0"),
    (lambda: hopfield.Hopfield(np.eye(2), beta=np.inf), ValueError, "beta"), (lambda: hopfield.Hopfield(np.eye(2), beta=None), TypeError, "beta is of type NoneType"),
    (lambda: hopfield.Hopfield(np.eye(2), threads=0), ValueError, "threads is 0; it must be at least 1"),
    (lambda: hopfield.Hopfield(np.eye(2), isa="mmx"), ValueError, "isa is 'mmx'; it must be 'scalar', 'avx2', 'avx512', 'neon' or 'wasm128'"),
    (lambda: hopfield.Hopfield(np.eye(2), isa=3), TypeError, "isa is 3"),
    (lambda: MEMORY.update(np.ones(4)), ValueError, r"states has shape \[4\]; it must be \[..., dim\], where dim is 3"),
    (lambda: MEMORY.update(np.ones(3, "f")), TypeError, "states has type float32; it must be float64, as the patterns"),
    (lambda: MEMORY.update_backward(np.ones(3), grad_updated=np.ones((1, 3))), ValueError, "grad_updated has shape"),
    (lambda: MEMORY.update_backward(np.ones(3), grad_energy=np.ones(2)), ValueError, "grad_energy has shape"),
    (lambda: MEMORY.retrieve(np.ones(3), most=-1), ValueError, "most is -1"), (lambda: MEMORY.retrieve(np.ones(3), tolerance=-1), ValueError, "tolerance"),
    (lambda: MEMORY.classical(np.ones(3), order="random"), ValueError, "order is 'random'; it must be 'synchronous' or 'asynchronous'"),
    (lambda: MEMORY.landscape(3), ValueError, "axis"), (lambda: MEMORY.landscape(points=1), ValueError, "points is 1"),
    (lambda: MEMORY.basin(3), ValueError, "index"), (lambda: MEMORY.basin(0, seed=-1), ValueError, "seed is -1"), (lambda: MEMORY.basin(0, samples=0), ValueError, "samples"),
    (lambda: hopfield.classical_capacity("10"), TypeError, "dim is of type str"),
])
def test_errors_name_the_argument(wrong, error, sentence):
    with pytest.raises(error, match=sentence):
        wrong()


@arrays
def test_results_are_of_the_library_of_the_states(make):
    memory = hopfield.Hopfield(make(np.eye(3)), beta=3)
    states = make(np.ones((2, 3)))
    updated, energy = memory.update(states, return_energy=True)
    found = memory.retrieve(states, return_energies=True)
    for result in (updated, energy, found.updated, found.iterations, found.energies, *memory.update_backward(states, grad_updated=states)):
        assert type(result) is type(states)


def test_patterns_are_borrowed_and_copies_have_their_own():
    patterns = np.eye(3)
    memory = hopfield.Hopfield(patterns, beta=3)
    shared, deep, pickled = copy.copy(memory), copy.deepcopy(memory), pickle.loads(pickle.dumps(memory))
    before = memory.update(np.ones(3))
    patterns *= 2
    assert not np.array_equal(memory.update(np.ones(3)), before) and np.array_equal(shared.update(np.ones(3)), memory.update(np.ones(3)))
    for own in (deep, pickled):
        assert np.array_equal(own.update(np.ones(3)), before) and own.beta == 3
    assert repr(memory) == "Hopfield(3 patterns of 3 channels, float64, beta=3.0)"


def test_threads_do_not_change_the_bits():
    patterns, states = RNG.normal(size=(300, 64)), RNG.normal(size=(300, 64))  # (one thread computes what is small)
    assert np.array_equal(hopfield.Hopfield(patterns, threads=1).update(states), hopfield.Hopfield(patterns, threads=2).update(states))
    assert np.array_equal(hopfield.Hopfield(patterns, isa="scalar").update(states), hopfield.Hopfield(patterns, isa="scalar").update(states))
