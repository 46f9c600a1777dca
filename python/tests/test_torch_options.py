# SPDX-License-Identifier: MIT
"""Options of libattn.torch.attention beyond dot products and softmax: results are those of libattn.attention, gradients those of differences."""
from typing import get_args

import pytest

torch = pytest.importorskip("torch", minversion="2.10")

import libattn  # noqa: E402
import libattn.torch  # noqa: E402
from libattn import _problem  # noqa: E402
from libattn.torch import _attention  # noqa: E402
from torch_problems import qkv, tensors  # noqa: E402

F64 = torch.float64
SMALL = {"batch": 2, "heads": 2, "len_q": 3, "len_kv": 4, "dim": 3, "dtype": F64, "grad": True}


def random(*shape):
    return tensors(shape, dtype=F64, grad=True, seed=5)[0]


CASES = {
    "additive": {"score": "additive", "score_matrix": random(2, 1, 3)}, "additive, one row": {"score": "additive", "score_matrix": random(1, 3)},
    "additive, biases": {"score": "additive", "score_matrix": random(2, 2, 3), "scale": 0.7}, "general": {"score": "general", "score_matrix": random(2, 3, 3)},
    "metric": {"score": "metric", "score_matrix": random(2, 2, 3)}, "cosine": {"score": "cosine"}, "distance": {"score": "distance"},
    "temperature": {"temperature": 2.5}, "softmax-one": {"normaliser": "softmax-one"}, "sigmoid": {"normaliser": "sigmoid", "shift": 0.5},
    "relative keys and values": {"relative_keys": random(2, 5, 3), "relative_values": random(2, 5, 3), "relative_first": -2},
    "shared relative keys": {"relative_keys": random(5, 3), "relative_first": -2, "causal": True},
    "Transformer-XL": {"relative_keys": random(2, 6, 3), "relative_u": random(2, 3), "relative_v": random(2, 3), "relative_first": -3},
    "one bias table": {"bias_table": random(1, 8)}, "dilation": {"window": (2, 1), "dilation": 2, "global_q": 1, "global_kv": 1}, "others": {"least_distance": 1},
}


@pytest.mark.parametrize("name", CASES)
def test_results_and_gradients(name):
    given = CASES[name]
    learned = [key for key, x in given.items() if isinstance(x, torch.Tensor)]
    rest = {key: x for key, x in given.items() if key not in learned}
    for dtype in (F64, torch.float32):
        inputs = [x.detach().to(dtype) for x in qkv(**SMALL)]
        own = {key: given[key].detach().to(dtype) for key in learned}
        found = libattn.torch.attention(*inputs, **rest, **own)
        want = libattn.attention(*(x.numpy() for x in inputs), **rest, **{key: x.numpy() for key, x in own.items()})
        assert torch.equal(found, torch.from_numpy(want))

    def call(q, k, v, *more):
        return libattn.torch.attention(q, k, v, **rest, **dict(zip(learned, more, strict=True)))

    assert torch.autograd.gradcheck(call, (*qkv(**SMALL), *(given[key] for key in learned)))


def test_words_are_those_of_the_enums():
    for words, literal, enum in ((_attention.SCORES, _attention.Score, "attn_score_kind"), (_attention.NORMALISERS, _attention.Normaliser, "attn_normaliser")):
        assert words == _problem.enum(enum) and set(words) == set(get_args(literal))


def test_compiled():
    torch._dynamo.reset()
    q, k, v = qkv(**SMALL)
    given = CASES["Transformer-XL"]
    keys = ["relative_keys", "relative_u", "relative_v"]
    call = torch.compile(lambda *a: libattn.torch.attention(*a[:3], **dict(zip(keys, a[3:], strict=True)), relative_first=-3), fullgraph=True, backend="aot_eager")
    inputs = (q, k, v, *(given[key] for key in keys))
    found = torch.autograd.grad(call(*inputs).square().sum(), inputs)
    want = torch.autograd.grad(libattn.torch.attention(q, k, v, **given).square().sum(), inputs)
    torch.testing.assert_close(found, want, rtol=0, atol=1e-12)


def test_sentences():
    q, k, v = qkv(**SMALL)
    for options, kind, text in (
        ({"score": "sum"}, ValueError, "score is 'sum'; known: 'dot', 'general'"), ({"normaliser": "max"}, ValueError, "normaliser is 'max'"),
        ({"temperature": 0}, ValueError, "temperature is 0; it must be above 0"), ({"score": "additive"}, ValueError, "score_matrix is missing"),
        ({"relative_keys": random(3)}, ValueError, r"relative_keys has 1 axes; it must be \[heads, rows, channels\]"),
        ({"relative_keys": random(2, 5, 2)}, ValueError, r"relative_keys has the shape \[2, 5, 2\]; it must be \[2, 5, 3\]"),
        ({"relative_keys": random(2, 5, 3), "relative_values": random(2, 4, 3)}, ValueError, "relative_keys has the shape"),
    ):
        with pytest.raises(kind, match=text):
            libattn.torch.attention(q, k, v, **options)


@pytest.mark.parametrize("name, text", [
    ("additive", "second derivative with respect to score_matrix"), ("general", "second derivative with respect to score_matrix"), ("sigmoid", "softmax only"),
    ("cosine", "dot products only"), ("Transformer-XL", "second derivative with respect to relative_"),
])
def test_second_derivatives_that_are_not_there(name, text):
    q, k, v = qkv(**SMALL)
    first, = torch.autograd.grad(libattn.torch.attention(q, k, v, **CASES[name]).square().sum(), q, create_graph=True)
    with pytest.raises(NotImplementedError, match=text):
        first.sum().backward()


@pytest.mark.parametrize("causal", [False, True, "top-left"])
@pytest.mark.parametrize("scale", [None, 0.3])
def test_a_call_without_options_is_the_same(causal, scale):
    """Few options, and no lse, take an operator with few arguments."""
    q, k, v = torch.randn(2, 4, 5, 8), torch.randn(2, 2, 9, 8), torch.randn(2, 2, 9, 6)
    o, _ = libattn.torch.attention(q, k, v, causal=causal, scale=scale, return_lse=True)
    out = torch.empty_like(o)
    assert torch.equal(libattn.torch.attention(q, k, v, causal=causal, scale=scale), o)
    assert libattn.torch.attention(q, k, v, causal=causal, scale=scale, out=out) is out and torch.equal(out, o)
    with pytest.raises(ValueError, match="k has the shape"):
        libattn.torch.attention(q, k[..., :3], v, causal=causal, scale=scale)


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
def test_a_scale_of_one_number_has_a_gradient(layout):
    x = torch.randn(3, 1, 3, 3, 4, dtype=torch.float64)
    scale = torch.tensor(0.4, dtype=torch.float64, requires_grad=True)
    torch.autograd.gradcheck(lambda scale: libattn.torch.attention(*x, scale=scale, layout=layout), scale)
