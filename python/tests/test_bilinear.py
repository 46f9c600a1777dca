# SPDX-License-Identifier: MIT
"""libattn.bilinear against NumPy in double."""
import numpy as np
import pytest

import libattn
from libattn import bilinear
from problems import EPS, arrays, close

RNG = np.random.default_rng(1)
G = RNG.normal(size=(5, 5))
METRIC = G @ G.T + np.eye(5)


def test_metric_scaled():
    assert np.array_equal(bilinear.metric_scaled(4, scale=3), 3 * np.eye(4))
    close(bilinear.metric_scaled(3), np.eye(3) / np.sqrt(3), EPS)
    for wrong, name in [({"dim": 0}, "dim is 0"), ({"dim": 2.5}, "dim is of type float"), ({"dim": 2, "scale": 0}, "scale is 0"),
                        ({"dim": 2, "scale": np.inf}, "scale"), ({"dim": 2, "scale": "x"}, "scale is of type str")]:
        with pytest.raises((ValueError, TypeError), match=name):
            bilinear.metric_scaled(**wrong)


def test_metric_diagonal():
    assert np.array_equal(bilinear.metric_diagonal([1, 2, 3]), np.diag([1.0, 2, 3]))
    with pytest.raises(ValueError, match=r"diagonal has shape \[2, 2\]; it must be \[dim\]"):
        bilinear.metric_diagonal(np.eye(2))


def test_metric_learned():
    w, grad = RNG.normal(size=(3, 5)), RNG.normal(size=(5, 5))
    close(bilinear.metric_learned(w), w.T @ w, 8 * EPS * (abs(w).T @ abs(w)))
    close(bilinear.metric_learned_backward(w, grad), w @ (grad + grad.T), 16 * EPS * (abs(w) @ (abs(grad) + abs(grad.T))))
    with pytest.raises(ValueError, match=r"grad_g has shape \[4, 4\]; it must be \[dim, dim\], where dim is 5 as in w"):
        bilinear.metric_learned_backward(w, np.eye(4))


def test_metric_inverse():
    inverse, grad = bilinear.metric_inverse(METRIC), RNG.normal(size=(5, 5))
    condition = np.linalg.cond(METRIC)
    close(inverse @ METRIC, np.eye(5), 32 * EPS * condition)
    close(bilinear.metric_inverse_backward(inverse, grad), -inverse.T @ grad @ inverse.T, 32 * EPS * (abs(inverse.T) @ abs(grad) @ abs(inverse.T)))
    for singular in (np.zeros((2, 2)), np.ones((3, 3)), np.full((2, 2), np.nan)):
        with pytest.raises(ValueError):
            bilinear.metric_inverse(singular)
    with pytest.raises(ValueError, match=r"g has shape \[2, 3\]; it must be \[dim, dim\]"):
        bilinear.metric_inverse(np.ones((2, 3)))


def test_metric_check():
    found = bilinear.metric_check(METRIC)
    values = np.linalg.eigvalsh(METRIC)
    assert found and found.symmetric and found.positive_definite and found.valid
    close(found.min_eigenvalue, values[0], 64 * EPS * values[-1])
    close(found.max_eigenvalue, values[-1], 64 * EPS * values[-1])
    assert not bilinear.metric_check([[1, 0.5], [0.3, 1]]).symmetric
    assert bilinear.metric_check([[1, 0.5], [0.3, 1]], tolerance=0.5)
    for matrix in (np.diag([1.0, -1]), np.diag([1.0, 0])):  # indefinite; semidefinite
        found = bilinear.metric_check(matrix)
        assert found.symmetric and not found.positive_definite and not found
    for tolerance in (0, -1):
        with pytest.raises(ValueError, match="tolerance"):
            bilinear.metric_check(METRIC, tolerance=tolerance)


@pytest.mark.parametrize("front", [(), (4,), (2, 3), (0,)])
def test_vectors(front):
    u, v = RNG.normal(size=(2, *front, 5))
    bound = 16 * EPS * (abs(u) @ abs(G) * abs(v)).sum(-1)
    form = bilinear.bilinear_form(u, v, G)
    close(form, (u @ G * v).sum(-1), bound)
    assert isinstance(form, float) == (front == ())
    close(bilinear.quadratic_form(v, G), (v @ G * v).sum(-1), 16 * EPS * (abs(v) @ abs(G) * abs(v)).sum(-1))
    close(bilinear.inner_product(u, v), (u * v).sum(-1) / np.sqrt(5), 16 * EPS * abs(u * v).sum(-1))
    close(bilinear.inner_product(u, v, metric="euclidean"), (u * v).sum(-1), 16 * EPS * abs(u * v).sum(-1))
    lowered = bilinear.index_lower(v, METRIC)
    close(lowered, v @ METRIC.T, 16 * EPS * (abs(v) @ abs(METRIC)))
    close(bilinear.index_raise(lowered, bilinear.metric_inverse(METRIC)), v, 256 * EPS * np.linalg.cond(METRIC) * (1 + abs(v)))

    grad_v, grad_g = bilinear.index_backward(v, G, u)
    close(grad_v, u @ G, 16 * EPS * (abs(u) @ abs(G)))
    flat_u, flat_v = u.reshape(-1, 5), v.reshape(-1, 5)
    close(grad_g, flat_u.T @ flat_v, 16 * EPS * (abs(flat_u).T @ abs(flat_v)))

    grad = RNG.normal(size=front)
    grad_u, grad_v, grad_g = bilinear.bilinear_form_backward(u, v, G, grad)
    close(grad_u, grad[..., None] * (v @ G.T), 16 * EPS * abs(grad)[..., None] * (abs(v) @ abs(G.T)))
    close(grad_v, grad[..., None] * (u @ G), 16 * EPS * abs(grad)[..., None] * (abs(u) @ abs(G)))
    weighed = np.ravel(grad)[:, None] * flat_u
    close(grad_g, weighed.T @ flat_v, 16 * EPS * (abs(weighed).T @ abs(flat_v)))


def test_all_pairs():
    q, k, grad = RNG.normal(size=(3, 5)), RNG.normal(size=(7, 5)), RNG.normal(size=(3, 7))
    close(bilinear.bilinear_form_batch(q, k, G), q @ G @ k.T, 32 * EPS * (abs(q) @ abs(G) @ abs(k.T)))
    grad_q, grad_k, grad_g = bilinear.bilinear_form_batch_backward(q, k, G, grad)
    close(grad_q, grad @ k @ G.T, 32 * EPS * (abs(grad) @ abs(k) @ abs(G.T)))
    close(grad_k, grad.T @ q @ G, 32 * EPS * (abs(grad.T) @ abs(q) @ abs(G)))
    close(grad_g, q.T @ grad @ k, 32 * EPS * (abs(q.T) @ abs(grad) @ abs(k)))
    with pytest.raises(ValueError, match=r"grad has shape \[7, 3\]; it must be \[len_q, len_kv\], where len_q is 3 as in q and len_kv is 7 as in k"):
        bilinear.bilinear_form_batch_backward(q, k, G, grad.T)


def test_golden_number():
    """By hand: 4 / sqrt(3)."""
    assert bilinear.bilinear_form([1, 2, 1], [2, 1, 0], bilinear.metric_scaled(3)) == pytest.approx(2.309401, abs=5e-7)
    assert bilinear.inner_product([1, 2, 1], [2, 1, 0]) == pytest.approx(2.309401, abs=5e-7)


@pytest.mark.parametrize("wrong, sentence", [
    (lambda: bilinear.bilinear_form([1, 2], [1, 2, 3], np.eye(2)), r"v has shape \[3\]; it must be \[..., dim\], where dim is 2 as in u"),
    (lambda: bilinear.bilinear_form(np.ones((2, 2)), np.ones((3, 2)), np.eye(2)), r"v has shape \[3, 2\]; .* where ... is \[2\] as in u"),
    (lambda: bilinear.bilinear_form(1, 2, np.eye(2)), r"u has shape \[\]"),
    (lambda: bilinear.inner_product([1], [2], metric="taxicab"), "taxicab"),
    (lambda: bilinear.inner_product([], []), "dim"),
])
def test_values_that_do_not_fit(wrong, sentence):
    with pytest.raises(ValueError, match=sentence):
        wrong()


@pytest.mark.parametrize("wrong, name", [
    (lambda: bilinear.bilinear_form(["a"], [1], [[1]]), "u"), (lambda: bilinear.bilinear_form([1], [1j], [[1]]), "v"),
    (lambda: bilinear.bilinear_form([1], [1], object()), "g"), (lambda: bilinear.inner_product([1], [2], metric=3), "metric is of type int"),
])
def test_things_that_are_no_numbers(wrong, name):
    with pytest.raises(TypeError, match=name):
        wrong()


@arrays
def test_results_are_of_the_library_of_the_first_argument(make):
    u, g = make(RNG.normal(size=(4, 5))), make(METRIC)
    for result in (bilinear.bilinear_form(u, u, g), bilinear.index_lower(u, g), bilinear.metric_inverse(g), bilinear.bilinear_form_batch(u, u, g)):
        assert type(result) is type(u)
    close(np.asarray(bilinear.index_lower(u, g)), np.asarray(u) @ METRIC.T, 16 * EPS * (abs(np.asarray(u)) @ abs(METRIC)))


def test_any_layout_and_type():
    u = RNG.normal(size=(6, 10)).astype(np.float32)
    close(bilinear.bilinear_form(u[::2, ::2], u[1::2, ::2], np.asfortranarray(G)), (u[::2, ::2].astype(float) @ G * u[1::2, ::2]).sum(-1),
          16 * EPS * (abs(u[::2, ::2]).astype(float) @ abs(G) * abs(u[1::2, ::2])).sum(-1))


def test_attention():
    q, k, v = RNG.normal(size=(2, 3, 4, 5)), RNG.normal(size=(2, 3, 6, 5)), RNG.normal(size=(2, 3, 6, 7))
    for scale in (None, 0.5):
        scores = (scale or 1) * (q @ G @ k.swapaxes(-1, -2))
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        close(bilinear.bilinear_attention(q, k, v, G, scale=scale), weights @ v, 64 * EPS * (1 + np.abs(scores).max()) * np.abs(v).max() * 8)
    plain = libattn.attention(q, k, v)
    close(bilinear.bilinear_attention(q, k, v, bilinear.metric_scaled(5)), plain, 256 * EPS * np.abs(v).max())
    with pytest.raises(ValueError, match="g has shape"):
        bilinear.bilinear_attention(q, k, v, np.ones((5, 4)))
    with pytest.raises(ValueError, match="score_matrix|dim"):
        bilinear.bilinear_attention(q, k, v, np.eye(4))
