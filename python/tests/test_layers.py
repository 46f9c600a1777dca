# SPDX-License-Identifier: MIT
"""libattn.layers against its formula in NumPy, torch's modules, central differences, and a layer of a real model."""
import copy
import pickle

import numpy as np
import pytest

import libattn
from libattn import files, layers
from problems import arrays, close, data

RNG = np.random.default_rng(5)
EPS = {np.dtype("f4"): 2.0**-24, np.dtype("f8"): 2.0**-53}


def split(x, heads):
    return x.reshape(*x.shape[:-1], heads, -1).swapaxes(-2, -3)


def by_formula(layer, query, key=None, value=None, keep=None, bias=0.0, scale=None):
    """The layer in double: (output, weights)."""
    key = query if key is None else key
    value = key if value is None else value
    w = {name: np.asarray(x, float).reshape(x.shape) for name, x in layer.weights.items()}

    def project(x, name, heads):
        if name in w:
            x = x @ w[name].reshape(-1, x.shape[-1]).T
        return split(x + w.get(f"{name}_bias", np.zeros(1)).ravel(), heads)

    q, k, v = project(query, "query", layer.heads_q), project(key, "key", layer.heads_kv), project(value, "value", layer.heads_kv)
    group = layer.heads_q // layer.heads_kv
    k, v = np.repeat(k, group, -3), np.repeat(v, group, -3)
    scores = q @ k.swapaxes(-1, -2) * (1 / np.sqrt(q.shape[-1]) if scale is None else scale) + bias
    if keep is not None:
        scores = np.where(keep, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    joined = (weights @ v).swapaxes(-2, -3)
    joined = joined.reshape(*joined.shape[:-2], -1)
    if "output" in w:
        joined = joined @ w["output"].reshape(layer.dim_output, -1).T
    return joined + w.get("output_bias", 0), weights


def bound(layer, *inputs):
    """A few roundings for each of the sums, times the largest numbers in them."""
    sizes = [np.max(np.abs(np.asarray(x, float)), initial=0) for x in (*inputs, *layer.weights.values())]
    return EPS[layer.dtype] * 64 * layer.dim_model * (1 + max(sizes)) ** 3


def randomise(layer):
    layer.weights = {name: (RNG.normal(size=x.shape) / 2).astype(layer.dtype) for name, x in layer.weights.items()}
    return layer


LAYERS = {
    "heads": dict(dim_model=12, heads_q=3), "one head": dict(dim_model=8, heads_q=1), "grouped": dict(dim_model=12, heads_q=4, heads_kv=2, head_dim=5),
    "all sizes": dict(dim_model=10, heads_q=2, head_dim=3, head_dim_v=4, dim_key=7, dim_value=6, dim_output=9),
    "no projections": dict(dim_model=12, heads_q=3, no_query=True, no_key=True, no_value=True, no_output=True),
}


def make(name, dtype=np.float64):
    return randomise(layers.Layer(**LAYERS[name], dtype=dtype).initialise(seed=3))


def inputs(layer, batch=(2,), len_q=5, len_kv=6):
    widths = layer._channels()[0]
    return [RNG.normal(size=(*batch, tokens, width)).astype(layer.dtype) for tokens, width in zip((len_q, len_kv, len_kv), widths)]


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("batch", [(2,), (), (1,)])
@pytest.mark.parametrize("name", LAYERS)
def test_cross_attention(name, batch, dtype):
    layer = make(name, dtype)
    q, k, v = inputs(layer, batch)
    done = layer.forward(q, k, v, outputs=["weights_mean", "weights", "lse"])
    expected, weights = by_formula(layer, *(x.astype(float) for x in (q, k, v)))
    slack = bound(layer, q, k, v)
    close(done.output, expected, slack)
    close(done.outputs["weights"], weights, slack)
    close(done.outputs["weights_mean"], weights.mean(-3), slack)
    assert done.saved is None and done.output.dtype == layer.dtype and done.outputs["lse"].shape == weights.shape[:-1]
    close(layer(q, k, v), expected, slack)
    assert np.array_equal(layer(q, k, v), layer.forward(q, k, v, saved=True).output)


def test_self_attention_with_options():
    layer = make("heads")
    x = inputs(layer)[0]
    causal = np.tril(np.ones((5, 5), bool))
    close(layer(x, causal=True), by_formula(layer, x, keep=causal)[0], bound(layer, x))
    close(layer(x, window=1), by_formula(layer, x, keep=abs(np.subtract.outer(range(5), range(5))) <= 1)[0], bound(layer, x))
    close(layer(x, window=(2, 0)), by_formula(layer, x, keep=causal & (np.subtract.outer(range(5), range(5)) <= 2))[0], bound(layer, x))
    mask, bias = RNG.random((2, 1, 5, 5)) < 0.6, RNG.normal(size=(3, 5, 5))
    mask[..., 0] = True
    close(layer(x, mask=mask, bias=bias, scale=0.3), by_formula(layer, x, keep=mask, bias=bias, scale=0.3)[0], bound(layer, x))
    lengths = np.array([3, 5])
    close(layer(x, lengths_kv=lengths), by_formula(layer, x, keep=np.arange(5) < lengths[:, None, None, None])[0], bound(layer, x))
    slopes = np.array([0.5, 0.25, 0.125])
    close(layer(x, alibi_slopes=slopes), by_formula(layer, x, bias=-slopes[:, None, None] * abs(np.subtract.outer(range(5), range(5))))[0], bound(layer, x))
    defaults = copy.copy(layer)
    defaults.options = {"causal": True}
    assert np.array_equal(defaults(x), layer(x, causal=True)) and np.array_equal(defaults(x, causal=False), layer(x))
    assert np.array_equal(layer(x, threads=1), layer(x, threads=2))
    made = layers.Layer(12, 3, dtype="f8", weights=layer.weights, causal=True, scale=0.1)
    close(made(x), by_formula(layer, x, keep=causal, scale=0.1)[0], bound(layer, x))


def test_dropout():
    layer = make("heads")
    x = inputs(layer)[0]
    one, same, other = (layer.forward(x, dropout=0.5, seed=seed, outputs=["dropout_keep"]) for seed in (1, 1, 2))
    assert np.array_equal(one.output, same.output) and not np.array_equal(one.output, other.output)
    assert one.outputs["dropout_keep"].dtype == bool and 0 < one.outputs["dropout_keep"].mean() < 1


def differences(f, x, step=1e-5):
    grad = np.empty(x.shape)
    for place in np.ndindex(x.shape):
        values = []
        for sign in (1, -1):
            moved = x.copy()
            moved[place] += sign * step
            values.append(f(moved))
        grad[place] = (values[0] - values[1]) / (2 * step)
    return grad


@pytest.mark.parametrize("saved", [True, False])
@pytest.mark.parametrize("name", ["grouped", "all sizes"])
def test_backward(name, saved):
    """Against central differences of forward, for every input and weight."""
    layer = make(name)
    given = inputs(layer, (2,), 3, 4)
    grad = RNG.normal(size=layer(*given).shape)
    memory = layer.forward(*given, saved=saved).saved
    assert (memory is not None) == saved
    found = layer.backward(grad, *given, saved=memory)

    for i, one in enumerate((found.query, found.key, found.value)):
        close(one, differences(lambda x, i=i: (layer(*given[:i], x, *given[i + 1:]) * grad).sum(), given[i]), 1e-7)
    assert set(found.weights) == set(layer.weights) and found.grads == {}
    for weight in layer.weights:
        def loss(x, weight=weight):
            twin = copy.copy(layer)
            twin.weights = {**layer.weights, weight: x}
            return (twin(*given) * grad).sum()
        close(found.weights[weight], differences(loss, layer.weights[weight]), 1e-7)


def test_backward_of_self_attention_and_tensors():
    layer = make("heads")
    x = inputs(layer, (2,), 3)[0]
    grad, bias, sink, slopes = RNG.normal(size=x.shape), RNG.normal(size=(3, 1, 3)), RNG.normal(size=3), np.abs(RNG.normal(size=(2, 3)))
    options = dict(bias=bias, sink=sink, alibi_slopes=slopes, causal=True)
    found = layer.backward(grad, x, grads=["bias", "sink", "alibi_slopes", "scale"], **options)
    assert found.key is None and found.value is None
    close(found.query, differences(lambda x: (layer(x, **options) * grad).sum(), x), 1e-7)
    for name in ("bias", "sink", "alibi_slopes"):
        expected = differences(lambda one, name=name: (layer(x, **{**options, name: one}) * grad).sum(), options[name])
        close(found.grads[name].reshape(expected.shape), expected, 1e-7)
    scale = differences(lambda s: (layer(x, **options, scale=s) * grad).sum(), np.full(3, 0.5))
    close(found.grads["scale"], scale, 1e-7)


def test_shapes_of_weights():
    """Matrices, heads apart, rows of a fused matrix, and transposes are all the same weights."""
    layer = make("heads")
    x = inputs(layer)[0]
    expected = layer(x)
    fused = np.concatenate([layer.weights[name] for name in ("query", "key", "value")])
    other = copy.copy(layer)
    other.weights = {**layer.weights, **{name: fused[i * 12:(i + 1) * 12] for i, name in enumerate(("query", "key", "value"))}}
    assert np.array_equal(other(x), expected)
    turned = np.ascontiguousarray(fused.T)
    other.weights = {**layer.weights, **{name: turned[:, i * 12:(i + 1) * 12].T for i, name in enumerate(("query", "key", "value"))}}
    close(other(x), expected, bound(layer, x))
    other.weights = {**layer.weights, "query": layer.weights["query"].reshape(3, 4, 12), "output": layer.weights["output"].reshape(12, 3, 4),
                     "query_bias": layer.weights["query_bias"].reshape(3, 4)}
    assert np.array_equal(other(x), expected)
    assert other.backward(np.ones_like(x), x).weights["query"].shape == (3, 4, 12)


def test_extra_key():
    torch = pytest.importorskip("torch")
    module = torch.nn.MultiheadAttention(12, 3, add_bias_kv=True, batch_first=True, dtype=torch.float64)
    tensors = {name: x.detach() for name, x in module.state_dict().items()}
    layer = layers.Layer.load(files.Archive(tensors), heads_q=3)
    assert layer.dtype == np.float64 and {"extra_key", "extra_value", "query_bias"} <= set(layer.weights)
    x = inputs(layer)[0]
    expected, mean = module(*[torch.from_numpy(x)] * 3)
    done = layer.forward(x, outputs=["weights_mean"])
    close(done.output, expected.detach(), bound(layer, x))
    close(done.outputs["weights_mean"], mean.detach(), bound(layer, x))


@pytest.mark.parametrize("sizes", [{}, {"kdim": 7, "vdim": 6}])
def test_torch(sizes):
    """Forward and every gradient of torch.nn.MultiheadAttention, from a file of its state."""
    torch = pytest.importorskip("torch")
    module = torch.nn.MultiheadAttention(12, 3, batch_first=True, dtype=torch.float64, **sizes)
    archive = files.Archive({f"attn.{name}": x.detach() for name, x in module.state_dict().items()})
    layer = layers.Layer.load(archive, "attn.", heads_q=3)
    given = inputs(layer)
    theirs = [torch.from_numpy(x).requires_grad_() for x in given]
    output, _ = module(*theirs)
    close(layer(*given), output.detach(), bound(layer, *given))
    grad = RNG.normal(size=output.shape)
    output.backward(torch.from_numpy(grad))
    found = layer.backward(grad, *given)
    for one, their in zip((found.query, found.key, found.value), theirs):
        close(one, their.grad, 8 * bound(layer, *given))
    close(found.weights["output"], module.out_proj.weight.grad, 8 * bound(layer, *given))
    joined = np.concatenate([found.weights[f"{name}_bias"] for name in ("query", "key", "value")])
    close(joined, module.in_proj_bias.grad, 8 * bound(layer, *given))
    back = files.Archive()
    layer.store(back, "attn.")
    for name, x in archive.items():
        assert np.array_equal(back[name], x), name


def test_a_layer_of_a_real_model(tmp_path):
    path = data("animal_street_layer2.safetensors")
    layer = layers.Layer.load(path, heads_q=12)
    with files.Archive.read(path) as file:
        x, y, weights = np.array(file["x"]), np.array(file["y"]), np.array(file["weights"])
    done = layer.forward(x, outputs=["weights"])
    close(done.output, y, 4e-6)
    close(done.outputs["weights"], weights.reshape(done.outputs["weights"].shape), 2e-6)
    assert layer.count(1, 14).parameters == 4 * 384 * 384 + 4 * 384
    layer.save(tmp_path / "again.safetensors", "a.")
    again = layers.Layer.load(tmp_path / "again.safetensors", "a.", heads_q=12)
    assert np.array_equal(again(x), done.output)
    grouped = layer.group_heads(4)
    assert grouped.heads_kv == 4 and layer.heads_kv == 12 and grouped(x).shape == y.shape
    close(grouped.weights["key"].reshape(4, 32, 384), np.asarray(layer.weights["key"]).reshape(4, 3, 32, 384).mean(1), 1e-6)


def test_rope():
    positions = libattn.positions
    layer = make("heads")
    layer.rope = positions.Rope()
    x = inputs(layer)[0]
    bare = make("no projections")
    w = layer.weights
    q, k, v = (x @ w[name].T + w[f"{name}_bias"] for name in ("query", "key", "value"))
    q, k = (np.ascontiguousarray(layer.rope(np.ascontiguousarray(split(one, 3))).swapaxes(-2, -3)).reshape(x.shape) for one in (q, k))
    bare.weights = {}
    close(layer(x), bare(q, k, v) @ w["output"].T + w["output_bias"], bound(layer, x))
    turned = layer.forward(x, positions_q=np.full((2, 5), 7), positions_kv=np.full((2, 5), 7)).output
    layer.rope = None
    close(turned, layer(x), bound(layer, x))


def test_packed():
    layer = make("heads")
    x = inputs(layer, (), 9)[0]
    starts = np.array([0, 4, 4, 9])
    done = layer.forward(x, cu_seqlens_q=starts, cu_seqlens_kv=starts, causal=True, saved=True, outputs=["lse"])
    grad = RNG.normal(size=x.shape)
    found = layer.backward(grad, x, saved=done.saved, cu_seqlens_q=starts, cu_seqlens_kv=starts, causal=True)
    sums = {}
    for begin, end in ((0, 4), (4, 9)):
        part = layer.forward(x[begin:end], causal=True, outputs=["lse"])
        close(done.output[begin:end], part.output, bound(layer, x))
        close(done.outputs["lse"][:, begin:end], part.outputs["lse"], bound(layer, x))
        grads = layer.backward(grad[begin:end], x[begin:end], causal=True)
        close(found.query[begin:end], grads.query, 8 * bound(layer, x))
        for name, one in grads.weights.items():
            sums[name] = sums.get(name, 0) + one
    for name, one in sums.items():
        close(found.weights[name], one, 8 * bound(layer, x))


def test_initialise():
    for init, limit in (("xavier", np.sqrt(6 / 24)), ("torch", np.sqrt(6 / 48))):
        query = layers.Layer(12, 3).initialise(init, seed=1).weights["query"]
        assert 0.8 * limit < np.abs(query).max() <= limit
    one, same, other = (layers.Layer(12, 3).initialise("small", seed=seed, biases=False) for seed in (1, 1, 2))
    assert set(one.weights) == {"query", "key", "value", "output"} and np.array_equal(one.weights["key"], same.weights["key"])
    assert not np.array_equal(one.weights["key"], other.weights["key"])


@arrays
def test_arrays_of_other_libraries(make):
    layer = randomise(layers.Layer(12, 3, dtype="f8").initialise())
    layer.weights = {name: make(x) for name, x in layer.weights.items()}
    x = make(inputs(layer)[0])
    done = layer.forward(x, outputs=["weights_mean"])
    found = layer.backward(done.output, x)
    for array in (done.output, done.outputs["weights_mean"], found.query, *found.weights.values()):
        assert type(array) is type(x)
    room = make(np.empty((2, 5, 12)))
    assert layer(x, out=room) is room and np.array_equal(np.asarray(room), np.asarray(layer(x)))


def test_copies_and_pickles():
    layer = make("grouped")
    layer.options["causal"] = True
    x = inputs(layer)[0]
    for twin in (copy.copy(layer), copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert np.array_equal(twin(x), layer(x)) and repr(twin) == repr(layer)
    assert repr(layers.Layer(12, 3)) == "Layer(12 channels, 3 heads of 4, float32, weights: none)"


X = np.ones((2, 5, 12))
LAYER = layers.Layer(12, 3, dtype="f8").initialise()


@pytest.mark.parametrize("wrong, error, sentence", [
    (lambda: layers.Layer(12, 5), ValueError, r"dim_model \(12\) is not a multiple of heads_q \(5\)"),
    (lambda: layers.Layer(12, 4, heads_kv=3), ValueError, r"heads_q \(4\) is not a multiple of heads_kv \(3\)"),
    (lambda: layers.Layer(12.0, 4), TypeError, "dim_model is of type float"), (lambda: layers.Layer(12, 0), ValueError, "heads_q is 0; it must be at least 1"),
    (lambda: layers.Layer(12, 3, dtype="f2"), TypeError, "dtype is float16"), (lambda: layers.Layer(12, 3, rope=3), TypeError, "rope is of type int"),
    (lambda: layers.Layer(12, 3, weights={"q": X}), ValueError, "weights has 'q'; known: query, key"),
    (lambda: layers.Layer(12, 3, weights={"query": np.ones((12, 12))}), TypeError, "query has type float64; it must be float32, as the layer is"),
    (lambda: layers.Layer(12, 3, dtype="f8", weights={"key": np.ones((12, 11))}), ValueError, r"key has shape \[12, 11\]; it must be \[12, 12\] or \[3, 4, 12\]"),
    (lambda: layers.Layer(12, 3, colour=3), TypeError, "colour is not an option here"), (lambda: LAYER(X, page_table=[[0]]), TypeError, "page_table is not an option"),
    (lambda: LAYER(X[..., :11]), ValueError, r"query has shape \[2, 5, 11\]; it must have 12 channels"), (lambda: LAYER(X[0, 0]), ValueError, r"query has shape \[12\]"),
    (lambda: LAYER(X.astype("f4")), TypeError, "query has type float32; it must be float64, as the layer is"),
    (lambda: LAYER(X, X[:1]), ValueError, r"key has shape \[1, 5, 12\]; it must have 2 entries, as query has"), (lambda: LAYER(X, X[0]), ValueError, "key has shape"),
    (lambda: LAYER(X, X, X[:, :4]), ValueError, "value has 4 tokens; it must have 5, as key has"),
    (lambda: LAYER(X, mask=np.ones((2, 2), bool)), ValueError, r"mask has shape \[2, 2\]; it must be \[2, 3, 5, 5\]"),
    (lambda: LAYER(X, mask=np.ones((5, 5))), TypeError, "mask has type float64; it must be of booleans"), (lambda: LAYER(X, lengths_kv=[1]), ValueError, r"lengths_kv has shape \[1\]"),
    (lambda: LAYER(X, lengths_kv=[1, 9]), ValueError, r"lengths_kv\[1\] \(9\)"), (lambda: LAYER(X, causal="left"), ValueError, "causal is 'left'"),
    (lambda: LAYER(X, causal=1), TypeError, "causal is 1"), (lambda: LAYER(X, temperature=0), ValueError, "temperature is 0.0"), (lambda: LAYER(X, window=-2), ValueError, "window is -2"),
    (lambda: LAYER(X, threads=0), ValueError, "threads is 0"), (lambda: LAYER(X, dropout=2), ValueError, "dropout"), (lambda: LAYER(X, out=np.empty((2, 5, 11))), ValueError, "out has shape"),
    (lambda: LAYER.forward(X, outputs=["loss"]), ValueError, "outputs has 'loss'; known: weights_mean"), (lambda: LAYER.forward(X, outputs="lse"), TypeError, "outputs must be names"),
    (lambda: LAYER.forward(X, positions_q=[1]), ValueError, "positions_q has shape"), (lambda: LAYER.backward(X[:1], X), ValueError, "grad_output has shape"),
    (lambda: LAYER.backward(X, X, grads=["bias"]), ValueError, "grads has 'bias', which is not given"), (lambda: LAYER.backward(X, X, grads=["x"]), ValueError, "grads has 'x'; known: bias"),
    (lambda: LAYER.backward(X, X, saved=np.zeros(3, "u1")), ValueError, "saved has 3 bytes"), (lambda: LAYER(X[0], cu_seqlens_q=[0, 5]), ValueError, "cu_seqlens_kv is missing"),
    (lambda: LAYER(X[0], cu_seqlens_q=[0, 4], cu_seqlens_kv=[0, 5]), ValueError, "cu_seqlens_q must end with the 5 tokens"),
    (lambda: layers.Layer(12, 3)(np.ones((5, 12), "f4")), ValueError, "query"), (lambda: LAYER.group_heads(2), ValueError, r"heads_kv \(3\) is not a multiple of groups \(2\)"),
    (lambda: LAYER.initialise("he"), ValueError, "init is 'he'"), (lambda: LAYER.decode(None, X), TypeError, "cache is of type NoneType"), (lambda: LAYER.count(-1, 2), ValueError, "batch is -1"),
    (lambda: layers.Layer.load(files.Archive({"wq": np.eye(12)}), heads_q=3), ValueError, "wk"), (lambda: LAYER.store({}), TypeError, "archive is of type dict"),
])
def test_errors_name_the_argument(wrong, error, sentence):
    with pytest.raises(error, match=sentence):
        wrong()


@pytest.mark.parametrize("chunks", [[1] * 7, [4, 3], [7]])
@pytest.mark.parametrize("name, options", [("heads", {"causal": True}), ("grouped", {"causal": True, "window": (2, None)}), ("heads", {"rope": True, "causal": True})])
def test_decode(name, options, chunks):
    """Token by token, or in chunks, as forward over the whole."""
    layer, options = make(name), dict(options)
    if options.pop("rope", None):
        layer.rope = libattn.positions.Rope()
    x = inputs(layer, (2,), 7)[0]
    expected = layer(x, **options)
    for kept in (layer.cache(2, 7), layer.cache(2, 7, page_size=2)):
        parts, start = [], 0
        for count in chunks:
            parts.append(layer.decode(kept, x[:, start:start + count], **options))
            start += count
        close(np.concatenate(parts, 1), expected, bound(layer, x))
        assert kept.lengths.tolist() == [7, 7]


def test_decode_with_lengths_and_memory():
    layer = make("heads")
    x, memory, _ = inputs(layer, (2,), 4, 6)
    kept = layer.cache(2, 9)
    done = layer.decode(kept, x, causal=True, lengths_q=[2, 4], outputs=["weights_mean"])
    assert kept.lengths.tolist() == [2, 4] and done.outputs["weights_mean"].shape == (2, 4, 4)
    close(done.output[0, :2], layer(x[:1, :2], causal=True)[0], bound(layer, x))
    close(done.output[1], layer(x[1:], causal=True)[0], bound(layer, x))
    cross = layer.cache(2, 6)
    close(layer.decode(cross, x, memory), layer(x, memory), bound(layer, x))
    close(layer.decode(cross, x, only_cached=True), layer(x, memory), bound(layer, x))
    assert cross.lengths.tolist() == [6, 6]
    with pytest.raises(ValueError, match="6 more do not fit"):
        layer.decode(cross, x, memory)
    with pytest.raises(ValueError, match=r"lengths_q has shape \[1\]; it must be \[2\]"):
        layer.decode(kept, x, lengths_q=[1])
    assert cross.lengths.tolist() == [6, 6]


def table(*shape):
    return RNG.normal(size=shape)


OPTIONS = {
    "nothing": {}, "top-left": {"causal": "top-left"}, "bottom-right": {"causal": "bottom-right"}, "window": {"window": (2, 1)}, "one side": {"window": (None, 0)},
    "mask": {"mask": RNG.random((2, 3, 4, 6)) < 0.7}, "mask of keys": {"mask": RNG.random((2, 1, 1, 6)) < 0.7}, "bias": {"bias": table(4, 6)}, "one bias": {"bias": table(2, 1, 1, 1)},
    "number": {"bias": np.array(0.5)}, "lengths": {"lengths_q": [2, 4], "lengths_kv": np.array([6, 3])}, "slopes": {"alibi_slopes": table(3)}, "slopes of entries": {"alibi_slopes": table(2, 3)},
    "scales": {"scale": table(3)}, "sink": {"sink": table(3)}, "softcap": {"softcap": 1.5, "temperature": 2.0}, "one": {"normaliser": "softmax-one"}, "sigmoid": {"normaliser": "sigmoid", "shift": -1.0},
    "relu": {"normaliser": "relu"}, "chunk": {"chunk": 2, "align": "top-left"}, "dilation": {"window": 4, "dilation": 2}, "global": {"window": 1, "global_q": 1, "global_kv": 2},
    "not itself": {"least_distance": 1}, "uniform": {"lengths_kv": [0, 6], "empty": "uniform"}, "ranges": {"ranges": np.sort(RNG.integers(0, 7, (2, 1, 4, 2)), -1)},
    "offset": {"offset_q": np.array([1, 2]), "causal": True}, "block mask": {"block_mask": RNG.random((2, 3, 2, 2)) < 0.7, "block_q": 2, "block_kv": 3},
    "block lists": {"block_starts": [0, 1, 3], "block_index": [0, 0, 1], "block_q": 2, "block_kv": 3}, "t5": {"bias_table": table(3, 8)}, "shared t5": {"bias_table": table(1, 8), "bias_table_causal": True},
    "clipped": {"bias_table": table(3, 5), "bias_table_kind": "clipped"}, "relative": {"relative_keys": table(3, 5, 4), "relative_values": table(3, 5, 4), "relative_first": -2},
    "xl": {"relative_keys": table(3, 9, 4), "relative_u": table(3, 4), "relative_v": table(3, 4), "relative_first": -5}, "cosine": {"score": "cosine", "scale": 3.0}, "distance": {"score": "distance"},
    "general": {"score": "general", "score_matrix": table(3, 4, 4)}, "one matrix": {"score": "general", "score_matrix": table(4, 4)}, "metric": {"score": "metric", "score_matrix": table(1, 2, 4)},
    "additive": {"score": "additive", "score_matrix": table(1, 2, 4)}, "dropout": {"dropout": 0.4, "seed": 7, "dropout_offset": 2},
    "given": {"dropout": 0.4, "dropout_given": RNG.random((2, 3, 4, 6)) < 0.6}, "isa": {"isa": "scalar", "invariant": True},
}
GRADIENTS = ("bias", "alibi_slopes", "sink", "score_matrix", "bias_table", "relative_keys", "relative_values", "relative_u", "relative_v")


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_is_that_of_attention(name):
    """A layer without projections is libattn.attention over heads side by side, forward and backward."""
    options = OPTIONS[name]
    layer = layers.Layer(12, 3, dtype="f8", no_query=True, no_key=True, no_value=True, no_output=True)
    q, k, v = RNG.normal(size=(2, 4, 12)), RNG.normal(size=(2, 6, 12)), RNG.normal(size=(2, 6, 12))
    heads = [x.reshape(2, -1, 3, 4) for x in (q, k, v)]
    expected, lse = libattn.attention(*heads, layout="bshd", return_lse=True, **options)
    slack = 1e-12
    done = layer.forward(q, k, v, saved=True, **options)
    close(done.output, expected.reshape(2, 4, 12), slack)
    softmax = options.get("normaliser", "softmax").startswith("softmax")
    if softmax:
        close(layer.forward(q, k, v, outputs=["lse"], **options).outputs["lse"], lse if lse.shape == (2, 3, 4) else np.moveaxis(lse, 1, 2), slack)
    grad = RNG.normal(size=(2, 4, 12))
    wanted = [one for one in GRADIENTS if one in options] + (["scale"] if np.ndim(options.get("scale")) else [])
    grads = libattn.attention_backward(*heads, expected, lse, grad.reshape(2, 4, 3, 4), grads=wanted, layout="bshd", **options)
    found = layer.backward(grad, q, k, v, saved=done.saved, grads=wanted, **options)
    for ours, theirs in zip((found.query, found.key, found.value), grads):
        close(ours, theirs.reshape(ours.shape), slack * 10)
    for one, theirs in zip(wanted, grads[3:]):
        close(found.grads[one].reshape(theirs.shape), theirs, slack * 100)


def test_a_general_score_between_heads_of_different_sizes():
    layer = layers.Layer(8, 2, dtype="f8", score="general", score_matrix=RNG.normal(size=(2, 4, 3))).initialise()
    assert layer.weights["key"].shape == (6, 8)
    x = RNG.normal(size=(5, 8))
    w = layer.weights
    q, k, v = (split(x @ w[name].T, 2) for name in ("query", "key", "value"))
    scores = np.einsum("hic,hcd,hjd->hij", q, layer.options["score_matrix"], k)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    close(layer(x), (weights @ v).swapaxes(0, 1).reshape(5, 8) @ w["output"].T, bound(layer, x))
    archive = files.Archive()
    layer.store(archive)
    assert np.array_equal(copy.copy(layer).load_weights(archive)(x), layer(x))
    assert layer.count(1, 5).cache_per_token == (6 + 8) * 8
    kept = layer.cache(1, 5)
    close(layer.decode(kept, x[np.newaxis])[0], layer(x), bound(layer, x))


@pytest.mark.parametrize("extra", [False, True])
def test_outputs_of_decoding_have_a_column_for_each_key_of_the_cache(extra):
    layer = make("heads")
    if extra:
        layer.weights |= {"extra_key": RNG.normal(size=12), "extra_value": RNG.normal(size=12)}
    x = inputs(layer, (2,), 5)[0]
    names = ["weights_mean"] if extra else ["weights_mean", "weights", "scores", "column_sum", "lse"]
    expected = layer.forward(x, causal=True, outputs=names)
    kept = layer.cache(2, 9, page_size=2)
    layer.decode(kept, x[:, :3], causal=True)
    bias = np.zeros((4, 5))
    done = layer.decode(kept, x[:, 3:], causal=True, outputs=names, bias=bias[:2])
    close(done.outputs["weights_mean"], expected.outputs["weights_mean"][:, 3:], bound(layer, x))
    if not extra:
        close(done.outputs["weights"], expected.outputs["weights"][:, :, 3:], bound(layer, x))
        close(done.outputs["column_sum"], expected.outputs["weights"][:, :, 3:].sum(2), bound(layer, x))
        close(done.outputs["scores"], expected.outputs["scores"][:, :, 3:], bound(layer, x))
    for wrong, sentence in ((x[:1, :1], "cache has 2 entries; it must have 1, as query has"), (x[:, :1, :3], "query has shape")):
        with pytest.raises(ValueError, match=sentence):
            layer.decode(kept, wrong)


@pytest.mark.parametrize("options, sentence", [
    ({"relative_values": np.ones((1, 6))}, r"relative_values has shape \[1, 6\]; it must be \[3, 1, 4\]"), ({"relative_keys": np.ones((3, 5, 3))}, "relative_keys has shape"),
    ({"relative_keys": np.ones((3, 5, 4)), "relative_values": np.ones((3, 4, 4))}, "relative_values has 4 rows; it must have 5, as relative_keys has"),
    ({"relative_keys": np.ones((3, 5, 4)), "relative_u": np.ones((3, 5))}, "relative_u has shape"), ({"score": "general", "score_matrix": np.ones((3, 4))}, "score_matrix has shape"),
    ({"score": "metric", "score_matrix": np.ones((2, 5))}, "score_matrix has shape"), ({"score": "additive", "score_matrix": np.ones((1, 5))}, "score_matrix has shape"),
    ({"score": "additive", "score_matrix": np.ones((3, 4))}, "score_matrix has shape"), ({"block_mask": np.ones((1, 1), bool)}, "block_mask is set; block_q and block_kv must be"),
    ({"block_mask": np.ones((2, 3), bool), "block_q": 2, "block_kv": 2}, "block_mask has shape"), ({"block_starts": [0, 1], "block_index": [0], "block_q": 2, "block_kv": 2}, "block_starts has shape"),
    ({"bias_table": np.array(1.0)}, "bias_table has shape"), ({"ranges": np.ones((5, 1), int)}, "ranges has shape"), ({"sink": np.ones(2)}, "sink has shape"),
])
def test_sizes_that_c_takes_for_granted(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        LAYER(X, **options)


def test_both_sequences_have_as_many_starts():
    with pytest.raises(ValueError, match="cu_seqlens_kv has shape"):
        LAYER(X[0], cu_seqlens_q=[0, 2, 5], cu_seqlens_kv=[0, 5])
