# SPDX-License-Identifier: MIT
"""libattn.seq2seq against its formula in NumPy and central differences."""
import copy
import pickle

import numpy as np
import pytest

from libattn import seq2seq
from problems import arrays, close
from test_layers import bound, differences

RNG = np.random.default_rng(7)
MODULES = {
    "dot": dict(score="dot", dim_state=6), "general": dict(score="general", dim_state=6, dim_memory=5), "additive": dict(score="additive", dim_state=6, dim_memory=5, dim_hidden=7),
    "combined": dict(score="additive", dim_state=6, dim_memory=4, dim_output=3), "luong": dict(score="general", dim_state=5, dim_output=4),
}


def make(name, dtype=np.float64):
    module = seq2seq.Seq2Seq(**MODULES[name], dtype=dtype).initialise(seed=2)
    module.weights = {key: (RNG.normal(size=x.shape) / 2).astype(dtype) for key, x in module.weights.items()}
    module.dim_model = module.dim_state  # for bound
    return module


def by_formula(module, h, m, keep=None):
    w = {name: np.asarray(one, float) for name, one in module.weights.items()}
    if module.score == "additive":
        hidden = np.tanh((h @ w["state"].T)[..., :, None, :] + (m @ w["memory"].T)[..., None, :, :] + w.get("bias", 0))
        scores = hidden @ w["w"]
    else:
        scores = h @ (w["w"] if module.score == "general" else np.eye(h.shape[-1])) @ m.swapaxes(-1, -2)
    if keep is not None:
        scores = np.where(keep, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    context = weights @ m
    return (np.tanh(np.concatenate([context, h], -1) @ w["combine"].T) if module.dim_output else context), weights


def inputs(module, dtype=np.float64, batch=(2,)):
    return [RNG.normal(size=(*batch, tokens, width)).astype(dtype) for tokens, width in ((3, module.dim_state), (5, module.dim_memory))]


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("batch", [(2,), ()])
@pytest.mark.parametrize("name", MODULES)
def test_forward(name, batch, dtype):
    module = make(name, dtype)
    h, m = inputs(module, dtype, batch)
    done = module.forward(h, m, outputs=["weights_mean"])
    expected, weights = by_formula(module, h.astype(float), m.astype(float))
    close(done.output, expected, bound(module, h, m))
    close(done.outputs["weights_mean"], weights, bound(module, h, m))
    close(module(h, m), expected, bound(module, h, m))
    if batch:
        lengths = np.array([2, 5])
        close(module(h, m, lengths_kv=lengths), by_formula(module, h.astype(float), m.astype(float), np.arange(5) < lengths[:, None, None])[0], bound(module, h, m))


@pytest.mark.parametrize("saved", [True, False])
@pytest.mark.parametrize("name", MODULES)
def test_backward(name, saved):
    module = make(name)
    h, m = inputs(module)
    grad = RNG.normal(size=module(h, m).shape)
    found = module.backward(grad, h, m, saved=module.forward(h, m, saved=True).saved if saved else None)
    close(found.query, differences(lambda h: (module(h, m) * grad).sum(), h), 1e-7)
    close(found.key, differences(lambda m: (module(h, m) * grad).sum(), m), 1e-7)
    assert set(found.weights) == set(module.weights)
    for weight in module.weights:
        def loss(one, weight=weight):
            twin = copy.copy(module)
            twin.weights = {**module.weights, weight: one}
            return (twin(h, m) * grad).sum()
        close(found.weights[weight], differences(loss, module.weights[weight]), 1e-7)


@pytest.mark.parametrize("name", MODULES)
def test_files_counts_and_copies(tmp_path, name):
    module = make(name)
    h, m = inputs(module)
    module.save(tmp_path / "a.npz", "decoder.")
    loaded = seq2seq.Seq2Seq.load(tmp_path / "a.npz", "decoder.", dtype="f8", **MODULES[name])
    assert np.array_equal(loaded(h, m), module(h, m)) and set(loaded.weights) == set(module.weights)
    assert module.count(2, 3, 5).parameters == sum(x.size for x in module.weights.values())
    for twin in (copy.copy(module), copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert np.array_equal(twin(h, m), module(h, m)) and repr(twin) == repr(module)


def test_biases_are_optional():
    module = seq2seq.Seq2Seq("additive", dim_state=4).initialise(biases=False)
    assert set(module.weights) == {"w", "state", "memory"} and set(module.initialise().weights) == {"w", "state", "memory", "bias"}


@arrays
def test_arrays_of_other_libraries(make):
    module = seq2seq.Seq2Seq("additive", dim_state=4, dtype="f8").initialise()
    h, m = make(RNG.normal(size=(2, 3, 4))), make(RNG.normal(size=(2, 5, 4)))
    assert type(module(h, m)) is type(h) and type(module.backward(module(h, m), h, m).key) is type(h)


MODULE = seq2seq.Seq2Seq("general", dim_state=4).initialise()
X = np.ones((2, 3, 4), "f4")


@pytest.mark.parametrize("wrong, error, sentence", [
    (lambda: seq2seq.Seq2Seq("cosine", dim_state=4), ValueError, "score is 'cosine'; it must be 'dot', 'general' or 'additive'"),
    (lambda: seq2seq.Seq2Seq("dot", dim_state=4, dim_memory=5), ValueError, r"dim_memory \(5\) is not dim_state \(4\)"),
    (lambda: seq2seq.Seq2Seq("dot", dim_state=4, dim_hidden=5), ValueError, "dim_hidden is set"), (lambda: seq2seq.Seq2Seq("dot", dim_state=4, weights={"w": 1}), ValueError, "weights has 'w'"),
    (lambda: MODULE(X, None), TypeError, "memory is None"), (lambda: MODULE(X, X[..., :3]), ValueError, r"memory has shape \[2, 3, 3\]; it must have 4 channels"),
    (lambda: MODULE(X[:1], X), ValueError, r"memory has shape \[2, 3, 4\]; it must have 1 entries, as states has"), (lambda: MODULE(X.astype("f8"), X), TypeError, "states has type float64"),
    (lambda: MODULE.step(3, X), TypeError, "cache is of type int"), (lambda: MODULE.remember(3, X), TypeError, "cache is of type int"),
    (lambda: MODULE(X, X, score="dot", scale=3, score_matrix=np.eye(4)), ValueError, "score_matrix"),
])
def test_errors_name_the_argument(wrong, error, sentence):
    with pytest.raises(error, match=sentence):
        wrong()


@pytest.mark.parametrize("name", MODULES)
def test_step(name):
    module = make(name)
    h, m = inputs(module)
    kept, lengths = module.cache(2, 8), np.array([3, 5])
    module.remember(kept, m, lengths=lengths)
    assert kept.lengths.tolist() == [3, 5]
    expected = module.forward(h, m, lengths_kv=lengths, outputs=["weights_mean"])
    for i in range(3):
        close(module.step(kept, h[:, i:i + 1]), expected.output[:, i:i + 1], bound(module, h, m))
    close(module.step(kept, h, outputs=["weights_mean"]).outputs["weights_mean"], expected.outputs["weights_mean"], bound(module, h, m))
    for wrong in (np.array([6, 1]), np.array([1])):
        with pytest.raises(ValueError, match="lengths must be 2 numbers between 0 and 5"):
            module.remember(kept, m, lengths=wrong)
