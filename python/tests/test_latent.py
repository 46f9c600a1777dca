# SPDX-License-Identifier: MIT
"""libattn.latent against its formula in NumPy and central differences."""
import copy
import pickle

import numpy as np
import pytest

from libattn import files, latent
from problems import arrays, close, data
from test_layers import bound, differences

RNG = np.random.default_rng(6)
SIZES = {
    "plain": dict(dim_model=12, heads=3), "rotated": dict(dim_model=10, heads=2, head_dim=4, rank=6, dim_rotary=2, head_dim_v=3, dim_output=7),
    "query latent": dict(dim_model=8, heads=2, rank=5, rank_query=6, dim_rotary=4),
}


def make(name, dtype=np.float64, norms=True):
    layer = latent.Latent(**SIZES[name], dtype=dtype).initialise(seed=2)
    layer.weights = {key: (RNG.normal(size=x.shape) / 2).astype(dtype) for key, x in layer.weights.items() if norms or not key.endswith("norm")}
    return layer


def norm(x, gain):
    return x if gain is None else x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * gain


def rotate(x):
    """Interleaved pairs, base 10000, positions from 0."""
    half = x.shape[-1] // 2
    angle = np.arange(x.shape[-2])[:, None] * 10000.0 ** (-np.arange(half) / half)
    y = np.empty_like(x)
    y[..., ::2] = x[..., ::2] * np.cos(angle) - x[..., 1::2] * np.sin(angle)
    y[..., 1::2] = x[..., ::2] * np.sin(angle) + x[..., 1::2] * np.cos(angle)
    return y


def by_formula(layer, x, z=None, causal=False):
    w = {name: np.asarray(one, float) for name, one in layer.weights.items()}
    z = x if z is None else z
    down = z @ w["down"].T
    c, r = norm(down[..., :layer.rank], w.get("norm")), rotate(down[..., layer.rank:])
    up = w["up"].reshape(layer.heads, -1, layer.rank)
    both = np.einsum("hcr,bjr->bhjc", up, c)
    k = np.concatenate([both[..., :layer.head_dim], np.repeat(r[:, None], layer.heads, 1)], -1)
    source = norm(x @ w["query_down"].T, w.get("query_norm")) if layer.rank_query else x
    q = np.einsum("hcr,bir->bhic", w["query"].reshape(layer.heads, -1, source.shape[-1]), source)
    q = np.concatenate([q[..., :layer.head_dim], rotate(q[..., layer.head_dim:])], -1)
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(layer.head_dim + layer.dim_rotary)
    if causal:
        scores = np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    o = (weights @ both[..., layer.head_dim:]).swapaxes(1, 2)
    return o.reshape(*o.shape[:2], -1) @ w["output"].T, weights


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("norms", [True, False])
@pytest.mark.parametrize("name", SIZES)
def test_forward(name, norms, dtype):
    layer = make(name, dtype, norms)
    x, z = (RNG.normal(size=(2, tokens, layer.dim_model)).astype(dtype) for tokens in (5, 6))
    done = layer.forward(x, z, outputs=["weights"])
    expected, weights = by_formula(layer, x.astype(float), z.astype(float))
    close(done.output, expected, 8 * bound(layer, x, z))
    close(done.outputs["weights"], weights, 8 * bound(layer, x, z))
    close(layer(x, causal=True), by_formula(layer, x.astype(float), causal=True)[0], 8 * bound(layer, x))
    assert layer(x[0]).shape == (5, layer.dim_output)


@pytest.mark.parametrize("saved", [True, False])
@pytest.mark.parametrize("name", SIZES)
def test_backward(name, saved):
    layer = make(name)
    x, z = (RNG.normal(size=(1, tokens, layer.dim_model)) for tokens in (3, 4))
    grad = RNG.normal(size=(1, 3, layer.dim_output))
    found = layer.backward(grad, x, z, saved=layer.forward(x, z, saved=True).saved if saved else None)
    close(found.query, differences(lambda x: (layer(x, z) * grad).sum(), x), 1e-6)
    close(found.key, differences(lambda z: (layer(x, z) * grad).sum(), z), 1e-6)
    assert found.value is None and set(found.weights) == set(layer.weights)
    for weight in layer.weights:
        def loss(one, weight=weight):
            twin = copy.copy(layer)
            twin.weights = {**layer.weights, weight: one}
            return (twin(x, z) * grad).sum()
        close(found.weights[weight], differences(loss, layer.weights[weight]), 1e-6)


def test_files(tmp_path):
    layer = make("query latent")
    layer.save(tmp_path / "a.safetensors", "layers.0.")
    loaded = latent.Latent.load(tmp_path / "a.safetensors", "layers.0.", dtype="f8", **SIZES["query latent"])
    assert {"layers.0.kv_b_proj.weight", "layers.0.q_a_layernorm.weight"} <= set(files.load(tmp_path / "a.safetensors"))
    x = RNG.normal(size=(2, 4, 8))
    assert np.array_equal(loaded(x), layer(x)) and set(loaded.weights) == set(layer.weights)


def test_the_drawn_file():
    with files.Archive.read(data("drawn_latent.safetensors")) as file:
        assert len(file) > 0


def test_counts_and_copies():
    layer = make("rotated")
    counts = layer.count(2, 5)
    assert counts.parameters == sum(x.size for x in layer.weights.values()) and counts.cache_per_token == (6 + 2) * 8
    x = RNG.normal(size=(2, 4, 10))
    for twin in (copy.copy(layer), copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert np.array_equal(twin(x), layer(x)) and repr(twin) == repr(layer)


@arrays
def test_arrays_of_other_libraries(make):
    layer = latent.Latent(12, 3, dtype="f8").initialise()
    x = make(RNG.normal(size=(2, 4, 12)))
    assert type(layer(x)) is type(x) and type(layer.backward(layer(x), x).query) is type(x)


@pytest.mark.parametrize("wrong, error, sentence", [
    (lambda: latent.Latent(12, 5), ValueError, r"dim_model \(12\) is not a multiple of heads \(5\)"), (lambda: latent.Latent(12, 3, dim_rotary=3), ValueError, "dim_rotary is 3; it must be even"),
    (lambda: latent.Latent(12, 3, rank=0), ValueError, "rank is 0"), (lambda: latent.Latent(12, 3, weights={"query_down": 1}), ValueError, "weights has 'query_down'"),
    (lambda: latent.Latent(12, 3)(np.ones((2, 12), "f4")), ValueError, "query"), (lambda: latent.Latent(12, 3, norm_epsilon="x"), TypeError, "norm_epsilon is of type str"),
    (lambda: latent.Latent(12, 3).load_weights(files.Archive()), ValueError, "kv_a_proj_with_mqa|q_proj"),
    (lambda: latent.Latent(12, 3).initialise()(np.ones((2, 12), "f4"), np.ones((2, 11), "f4")), ValueError, r"key has shape \[2, 11\]; it must have 12 channels"),
])
def test_errors_name_the_argument(wrong, error, sentence):
    with pytest.raises(error, match=sentence):
        wrong()


@pytest.mark.parametrize("chunks", [[1] * 5, [3, 2]])
@pytest.mark.parametrize("name", SIZES)
def test_decode(name, chunks):
    layer = make(name)
    x = RNG.normal(size=(2, 5, layer.dim_model))
    kept, parts, start = layer.cache(2, 6), [], 0
    for count in chunks:
        parts.append(layer.decode(kept, x[:, start:start + count], causal=True))
        start += count
    close(np.concatenate(parts, 1), layer(x, causal=True), 64 * bound(layer, x))
    assert kept.lengths.tolist() == [5, 5] and kept.v.base is not None and np.shares_memory(kept.k, kept.v)
