# SPDX-License-Identifier: MIT
"""libattn.analysis against NumPy in double, and golden numbers."""
import copy
import pickle

import numpy as np
import pytest

from libattn import analysis
from problems import EPS, arrays, close

RNG = np.random.default_rng(2)
FRONTS = [(), (3,), (2, 3), (0,)]
ZERO = (ValueError, "temperature")


def weights(*shape):
    scores = RNG.normal(size=shape)
    return np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)


def bound(n, scores=0.0):
    """Of a weight, relative: the rounding of s / T in the exponent, and of a sum of n."""
    return (2 * n + 16 + 8 * np.max(np.abs(scores), initial=0)) * EPS


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("temperature", [0.25, 1, 3])
def test_softmax(front, temperature):
    scores = RNG.normal(size=(*front, 7)) * 3
    keep = RNG.random((*front, 7)) < 0.7
    keep[..., 0] = True
    for mask in (None, keep):
        kept = scores if mask is None else np.where(mask, scores, -np.inf)
        expected = np.exp(kept / temperature)
        z = expected.sum(-1)
        expected = expected / z[..., None]
        slack = bound(7, scores / temperature)
        found, gibbs = analysis.softmax(scores, temperature=temperature, keep=mask, return_gibbs=True)
        close(found, expected, slack * expected)
        if front == (3,):
            assert np.array_equal(analysis.softmax(scores, temperature=temperature, keep=mask), found)
        close(analysis.log_softmax(scores, temperature=temperature, keep=mask), kept / temperature - np.log(z)[..., None], 4 * slack * 20)
        logs = np.log(np.where(expected > 0, expected, 1))
        mean, entropy = (expected * np.where(expected > 0, scores, 0)).sum(-1), -(expected * logs).sum(-1)
        close(gibbs.log_partition, np.log(z), slack * 20)
        close(gibbs.free_energy, -temperature * np.log(z), slack * 60)
        close(gibbs.mean_energy, -mean, slack * 20)
        close(gibbs.entropy, entropy, slack * 20)
        close(gibbs.effective_states, np.exp(entropy), slack * 200)
        spread = (expected * (scores - mean[..., None]) ** 2).sum(-1) / temperature**2
        close(gibbs.heat_capacity, spread, slack * 20 * (1 + np.max(spread, initial=0)))
        assert isinstance(gibbs.entropy, float) == (front == ())


@pytest.mark.parametrize("temperature, expected, entropy, free, states", [
    (0.25, [0.981690, 0.017980, 0.000329], 0.093035, -2.004620, 1.0975), (0.5, [0.866813, 0.117310, 0.015876], 0.441057, -2.071466, None),
    (1, [0.665241, 0.244728, 0.090031], 0.832396, -2.407606, 2.298819), (2, [0.506480, 0.307196, 0.186324], 1.020191, -3.360539, None),
])
def test_golden_numbers(temperature, expected, entropy, free, states):
    found, gibbs = analysis.softmax([2, 1, 0], temperature=temperature, return_gibbs=True)
    close(found, expected, 5.1e-7)
    close([gibbs.entropy, gibbs.free_energy], [entropy, free], 5.1e-7)
    assert states is None or abs(gibbs.effective_states - states) < 5.1e-5
    close(analysis.temperature_sweep([2, 1, 0], [temperature, 2 * temperature])[0], expected, 5.1e-7)
    close(analysis.entropy(found), entropy, 5.1e-7)


def test_golden_jacobian():
    close(analysis.softmax([1, 2]), [0.2689, 0.7311], 5.1e-5)
    close(analysis.softmax_jacobian(analysis.softmax([1, 2])), [[0.1966, -0.1966], [-0.1966, 0.1966]], 5.1e-5)


def test_no_score_counts():
    found, gibbs = analysis.softmax([[1, 2], [3, 4]], keep=[[True, False], [False, False]], return_gibbs=True)
    assert np.array_equal(found, [[1, 0], [0, 0]])
    assert gibbs.log_partition[1] == -np.inf and gibbs.free_energy[1] == np.inf and gibbs.entropy[1] == 0


def test_scores_that_overflow_do_not():
    found, gibbs = analysis.softmax([1000, 0, -1000], return_gibbs=True)
    assert np.array_equal(found, [1, 0, 0]) and gibbs.log_partition == 1000


def test_out():
    scores, other = RNG.normal(size=(3, 4)), RNG.normal(size=(3, 4))
    expected, logs = analysis.softmax(scores), analysis.log_softmax(scores)
    p, expected_product = analysis.softmax(other), analysis.softmax_jvp(analysis.softmax(other), scores)
    room = np.empty((3, 4))
    assert analysis.softmax(scores, out=room) is room and np.array_equal(room, expected)
    for function, right in ((analysis.softmax, expected), (analysis.log_softmax, logs)):
        place = scores.copy()
        assert function(place, out=place) is place and np.array_equal(place, right)
    place = scores.copy()
    analysis.softmax_jvp(p, place, out=place)
    assert np.array_equal(place, expected_product)
    locked = np.empty((3, 4))
    locked.flags.writeable = False
    for wrong, sentence in ((np.empty((4, 3)), "out has shape"), (np.empty((3, 4), "f"), "out has .*float32"), (locked, "out is read-only"),
                            (np.empty((3, 8))[:, ::2], "out is not contiguous")):
        with pytest.raises(ValueError, match=sentence):
            analysis.softmax(scores, out=wrong)


def test_temperature_sweep():
    found, entropy = analysis.temperature_sweep([2, 1, 0], [0.5, 1, 1e6], return_entropy=True)
    for row, h, temperature in zip(found, entropy, [0.5, 1, 1e6]):
        assert np.array_equal(row, analysis.softmax([2, 1, 0], temperature=temperature))
        close(h, analysis.entropy(row), 16 * EPS)
    assert np.all(np.diff(entropy) > 0)


@pytest.mark.parametrize("front", FRONTS)
def test_numbers_of_distributions(front):
    p, q = weights(*front, 6), weights(*front, 6)
    h = -(p * np.log(p)).sum(-1)
    close(analysis.entropy(p), h, 64 * EPS)
    close(analysis.normalised_entropy(p), h / np.log(6), 64 * EPS)
    close(analysis.effective_states(p), np.exp(h), 64 * 6 * EPS)
    close(analysis.kl_divergence(p, q), (p * np.log(p / q)).sum(-1), 128 * EPS)
    jacobian = analysis.softmax_jacobian(p, temperature=2)
    close(jacobian, (np.eye(6) * p[..., None] - p[..., None] * p[..., None, :]) / 2, 8 * EPS * p[..., None])
    close(analysis.softmax_jvp(p, q, temperature=2), (jacobian @ q[..., None])[..., 0], 64 * EPS)
    assert isinstance(analysis.entropy(p), float) == (front == ())


def test_edges_of_entropy():
    assert analysis.entropy([1, 0, 0]) == 0 and analysis.entropy([]) == 0 and analysis.normalised_entropy([1.0]) == 0
    close(analysis.max_entropy(10), np.log(10), 4 * EPS)
    assert analysis.max_entropy(1) == 0
    assert analysis.kl_divergence([0.5, 0.5], [1, 0]) == np.inf
    assert np.array_equal(analysis.entropy(np.ones((3, 0))), np.zeros(3))


@pytest.mark.parametrize("front", [(), (2,)])
def test_heads(front):
    p = weights(*front, 3, 4, 6)
    h = -(p * np.log(p)).sum(-1)
    close(analysis.head_entropy(p), h.mean(-1), 64 * EPS)
    mean = p.mean(-2)
    information = -(mean * np.log(mean)).sum(-1) - h.mean(-1)
    close(analysis.mutual_information(p), information, 256 * EPS)
    flat = (p if not front else p[0]).reshape(3, -1)
    flat = flat / np.linalg.norm(flat, axis=1, keepdims=True)
    cosines = flat @ flat.T
    close(analysis.head_diversity(p if not front else p[0]), 1 - cosines[np.triu_indices(3, 1)].mean(), 256 * EPS)
    assert analysis.head_diversity(p[:1]) == 0
    assert isinstance(analysis.mutual_information(p[0] if not front else p[0, 0]), float)


@pytest.mark.parametrize("wrong, error, sentence", [
    (lambda: analysis.softmax([1], temperature=0), *ZERO), (lambda: analysis.softmax([1], temperature=np.nan), *ZERO),
    (lambda: analysis.softmax(np.empty((0, 3)), temperature=-1), *ZERO), (lambda: analysis.log_softmax(np.empty((0, 3)), temperature=-1), *ZERO),
    (lambda: analysis.softmax_jacobian([1], temperature=0), *ZERO), (lambda: analysis.softmax_jvp([1], [1], temperature=0), *ZERO),
    (lambda: analysis.temperature_sweep([1], [1, 0]), *ZERO), (lambda: analysis.softmax([1], temperature="hot"), TypeError, "temperature is of type str"),
    (lambda: analysis.softmax([1, 2], keep=[True, False, True]), ValueError, r"keep has shape \(3,\), which does not broadcast to \(2,\)"),
    (lambda: analysis.softmax([1, 2], keep=[0.5, 1]), TypeError, "keep has type float64; it must be of booleans"),
    (lambda: analysis.softmax(3), ValueError, r"scores has shape \[\]; it must be \[..., n\]"),
    (lambda: analysis.softmax(["a"]), TypeError, "scores"), (lambda: analysis.entropy(object()), TypeError, "p is of type object"),
    (lambda: analysis.kl_divergence([1, 0], [1]), ValueError, r"q has shape \[1\]; it must be \[..., n\], where n is 2 as in p"),
    (lambda: analysis.softmax_jvp([1, 0], [1]), ValueError, "x has shape"),
    (lambda: analysis.mutual_information([1, 0]), ValueError, "weights has shape"), (lambda: analysis.head_diversity([1, 0]), ValueError, "weights has shape"),
    (lambda: analysis.head_entropy([[1, 0]]), ValueError, r"weights has shape \[1, 2\]; it must be \[..., heads, rows, n\]"),
    (lambda: analysis.max_entropy(1.5), TypeError, "n is of type float"), (lambda: analysis.max_entropy(2**63), ValueError, "n is 9223372036854775808"),
])
def test_errors_name_the_argument(wrong, error, sentence):
    with pytest.raises(error, match=sentence):
        wrong()


@arrays
def test_results_are_of_the_library_of_the_first_argument(make):
    p = make(weights(3, 4))
    found, gibbs = analysis.softmax(p, return_gibbs=True)
    for result in (found, gibbs.entropy, analysis.entropy(p), analysis.softmax_jacobian(p), analysis.softmax_jvp(p, p), analysis.log_softmax(p, out=make(np.empty((3, 4))))):
        assert type(result) is type(p)
    close(np.asarray(analysis.entropy(p)), analysis.entropy(np.asarray(p)), 0)


def test_float32_is_read_exactly():
    scores = RNG.normal(size=5).astype("f")
    assert np.array_equal(analysis.softmax(scores), analysis.softmax(scores.astype(float)))


def test_statistics_are_copied_and_pickled():
    gibbs = analysis.softmax([2, 1, 0], return_gibbs=True)[1]
    assert copy.copy(gibbs) == gibbs == copy.deepcopy(gibbs) == pickle.loads(pickle.dumps(gibbs))
