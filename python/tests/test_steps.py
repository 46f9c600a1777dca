# SPDX-License-Identifier: MIT
"""libattn.analysis: one attention step by step, against NumPy and golden numbers."""
import numpy as np
import pytest

from libattn import analysis, files
from problems import EPS, arrays, close, data

RNG = np.random.default_rng(8)
Q, K, V = np.array([[1.0, 0], [0, 1]]), np.array([[1.0, 0], [0, 1], [1, 1]]), np.array([[2.0, 0], [0, 2], [1, 1]])


def test_golden_numbers():
    steps = analysis.decompose(Q, K, V)
    a, b = 0.401112093, 0.197775815
    close(steps.weights, [[a, b, a], [b, a, a]], 6e-10)
    close(steps.output, [[1.203336278, 0.796663722], [0.796663722, 1.203336278]], 6e-10)
    close(steps.raw, Q @ K.T, 0)
    close(steps.scores, Q @ K.T / np.sqrt(2), 4 * EPS)
    close(steps.partition, [5.0562, 5.0562], 6e-5)
    close(np.exp(steps.log_partition), steps.partition, 64 * EPS)
    flow = analysis.gradient_flow(Q, K, V)
    close(flow.grad_v, [[0.640233549, 0.557542265], [0.557542265, 0.640233549], [0.802224185, 0.802224185]], 6e-10)
    close(flow.grad_scores, [[0.129952806, -0.096784332, -0.033168474], [-0.096784332, 0.129952806, -0.033168474]], 6e-10)
    close(flow.grad_q, [[0.068436858, -0.09189051], [-0.09189051, 0.068436858]], 6e-10)
    close(flow.grad_k, [[0.09189051, -0.068436858], [-0.068436858, 0.09189051], [-0.023453653, -0.023453653]], 6e-10)
    other = analysis.gradient_flow(Q, K, V, [[1, 2], [-1, 3]])
    close(other.grad_q, [[-0.168284918, 0.225956999], [-0.903827997, 0.67313967]], 6e-10)
    close(other.grad_k, [[-0.225956999, -0.67313967], [0.168284918, 0.903827997], [0.057672082, -0.230688326]], 6e-10)


@pytest.mark.parametrize("options", [{}, {"causal": True}, {"softcap": 2.0, "scale": 0.3}, {"window": 1}, {"temperature": 3.0}])
@pytest.mark.parametrize("front, groups", [((), 1), ((4,), 4), ((2, 4), 2)])
def test_steps(front, groups, options):
    kv = (*front[:-1], groups) if front else ()
    q, k, v = RNG.normal(size=(*front, 5, 3)), RNG.normal(size=(*kv, 5, 3)), RNG.normal(size=(*kv, 5, 2))
    steps = analysis.decompose(q, k, v, **options)
    wide = [np.repeat(x, 4 // groups, -3) if front else x for x in (k, v)]
    raw = q @ wide[0].swapaxes(-1, -2)
    close(steps.raw, raw, 16 * EPS * (abs(q) @ abs(wide[0]).swapaxes(-1, -2)))
    scores = raw * options.get("scale", 1 / np.sqrt(3)) / options.get("temperature", 1)
    if "softcap" in options:
        scores = 2 * np.tanh(scores / 2)
    i, j = np.indices((5, 5))
    keep = (j <= i if "causal" in options else True) & (abs(i - j) <= options.get("window", 9))
    scores = np.where(keep, scores, -np.inf)
    close(steps.scores, scores, 64 * EPS * (1 + abs(raw)))
    weights = np.exp(scores)
    z = weights.sum(-1)
    weights /= z[..., None]
    slack = 256 * EPS * (1 + abs(raw).max())
    close(steps.weights, weights, slack)
    close(steps.log_partition, np.log(z), slack)
    close(steps.output, weights @ wide[1], slack * abs(v).max() * 5)

    grad = RNG.normal(size=steps.output.shape)
    flow = analysis.gradient_flow(q, k, v, grad, **options)
    grad_weights = np.where(keep, grad @ wide[1].swapaxes(-1, -2), 0)
    close(flow.grad_weights, grad_weights, slack * 20)
    ds = weights * (grad_weights - (weights * grad_weights).sum(-1, keepdims=True))
    close(flow.grad_scores, ds, slack * 40)
    close(flow.grad_scores.sum(-1), np.zeros(front + (5,)), slack * 40)
    for name, array in (("grad_o", grad), ("grad_weights", flow.grad_weights), ("grad_scores", flow.grad_scores), ("grad_q", flow.grad_q), ("grad_k", flow.grad_k), ("grad_v", flow.grad_v)):
        norm = np.linalg.norm(array)
        close(getattr(flow, f"norm_{name}"), norm, 64 * EPS * norm)
    assert flow.grad_q.shape == q.shape and flow.grad_k.shape == k.shape and flow.grad_v.shape == v.shape

    found = analysis.verify_gradients(q, k, v, grad, **options)
    assert found and found.correct and found.max_error <= found.limit and found.checked == q.size + k.size + v.size
    assert analysis.verify_gradients(q, k, v, most=2, **options).checked == 6


def test_dropout_is_for_verifying_only():
    q = RNG.normal(size=(6, 3))
    assert analysis.verify_gradients(q, q, q, dropout=0.5, seed=3)
    with pytest.raises(NotImplementedError, match="dropout"):
        analysis.gradient_flow(q, q, q, dropout=0.5)
    assert not np.array_equal(analysis.decompose(q, q, q, dropout=0.5, seed=1).output, analysis.decompose(q, q, q, dropout=0.5, seed=2).output)


def test_a_real_model():
    with files.Archive.read(data("animal_street.safetensors")) as file:
        q, k, v, o, weights = (np.array(file[name]) for name in ("q", "k", "v", "o", "weights"))
    steps = analysis.decompose(q, k, v)
    close(steps.weights, weights, 2e-6)
    close(steps.output, o, 4e-6)
    entropy = analysis.head_entropy(steps.weights)
    assert entropy.shape == (6, 12) and np.all((0 < entropy) & (entropy < np.log(14)))


@arrays
def test_results_are_of_the_library_of_q(make):
    q = make(RNG.normal(size=(3, 4, 2)))
    steps, flow = analysis.decompose(q, q, q), analysis.gradient_flow(q, q, q)
    for result in (steps.output, steps.weights, steps.log_partition, flow.grad_q, flow.grad_scores):
        assert type(result) is type(q)


ONE = np.ones((4, 3))


@pytest.mark.parametrize("wrong, error, sentence", [
    (lambda: analysis.decompose(ONE, ONE[:, :2], ONE), ValueError, r"k has shape \[4, 2\]; it must be \[batch, heads_kv, len_kv, dim\]"),
    (lambda: analysis.decompose(ONE, ONE, ONE[:3]), ValueError, r"v has shape \[3, 3\]"), (lambda: analysis.decompose(ONE[0], ONE, ONE), ValueError, "q has 1 axes"),
    (lambda: analysis.decompose("a", ONE, ONE), TypeError, "q has type"), (lambda: analysis.decompose(ONE, ONE, ONE, mask=np.ones((3, 3), bool)), ValueError, "mask has shape"),
    (lambda: analysis.decompose(ONE, ONE, ONE, colour=1), TypeError, "colour is not an option"), (lambda: analysis.decompose(np.ones((3, 4, 2)), np.ones((2, 4, 2)), np.ones((2, 4, 2))), ValueError, r"heads_q \(3\)"),
    (lambda: analysis.gradient_flow(ONE, ONE, ONE, ONE[:2]), ValueError, r"grad_o has shape \[2, 3\]; it must be \[4, 3\]"),
    (lambda: analysis.verify_gradients(ONE, ONE, ONE, step=0), ValueError, "step is 0.0; it must be above 0"), (lambda: analysis.verify_gradients(ONE, ONE, ONE, most=-1), ValueError, "most"),
    (lambda: analysis.decompose(ONE, ONE, ONE, cu_seqlens_q=[0, 4], cu_seqlens_kv=[0, 4]), NotImplementedError, "cu_seqlens_q is set"),
])
def test_errors_name_the_argument(wrong, error, sentence):
    with pytest.raises(error, match=sentence):
        wrong()
