# SPDX-License-Identifier: MIT
"""attention_backward, jvp and attention_double_backward against their definition in double, within the derived bounds."""
import numpy as np
import pytest
from problems import BFLOAT16
from test_attention import NAMES, SHAPES, arrays, options_of

import libattn
from libattn import _bound, _definition
from libattn import _derivative_definition as definition

DTYPES = [np.float32, np.float64, np.float16, *BFLOAT16]


class Case:
    """One problem, its forward results, and random gradients and tangents."""

    def __init__(self, shape, options, dtype):
        self.q, self.k, self.v = arrays(shape, dtype)
        self.double = dtype == np.float64
        self.options = options
        self.o, self.lse = libattn.attention(self.q, self.k, self.v, return_lse=True, **options)
        exact = {n: x.astype("f") if isinstance(x, np.ndarray) and x.dtype == float and n != "bias" and not self.double else x
                 for n, x in options.items()}
        self.exact = exact
        self.found = _definition.forward(self.q, self.k, self.v, exact)
        self.terms = definition.terms(self.q, self.k, self.v, exact)
        rng = np.random.default_rng(7)
        self.grad_o = rng.standard_normal(self.o.shape).astype(dtype)
        self.grad_lse = np.where(np.isfinite(self.lse), rng.standard_normal(self.lse.shape), 0).astype(self.lse.dtype)
        self.tangents = {"tan_" + n: rng.standard_normal(x.shape).astype(dtype) for n, x in zip("qkv", (self.q, self.k, self.v))}
        if options.get("bias") is not None:
            self.tangents["tan_bias"] = rng.standard_normal(options["bias"].shape).astype(options["bias"].dtype)

    def forward(self):
        return self.q, self.k, self.v, self.o, self.lse

    def sizes(self, factors):
        lost = definition.lost_by_storing(self.o)
        return definition.sizes(self.terms, self.found, self.exact, self.double, factors, lost, self.grad_o)

    def close(self, got, want, size, name):
        most = abs(size) + _bound.storage(got) + 1e-36
        if self.double and got.dtype == np.float32:  # of a bias of that type
            most = most + abs(want) * 2.0**-24
        error = abs(np.asarray(got, float) - want)
        assert got.shape == want.shape and (error <= most).all(), f"{name}: {error.max()} of {most.ravel()[error.argmax()]}"


def supported(name):
    return name not in ("uniform", "one")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES[:3])
@pytest.mark.parametrize("name", [name for name in NAMES if supported(name)])
def test_backward(name, shape, dtype):
    options = options_of(name, shape)
    case = Case(shape, options, dtype)
    extra = [n for n in ("bias", "alibi_slopes", "sink") if n in options] + ["scale"]
    grads = libattn.attention_backward(*case.forward(), case.grad_o, grad_lse=case.grad_lse, grads=extra, **options)
    want = definition.backward(case.terms, case.grad_o, case.grad_lse)
    size = definition.backward(case.sizes(2), case.grad_o, case.grad_lse)
    for n, got in zip(["q", "k", "v", *extra], grads, strict=True):
        of = np.shape(options[n]) if n in ("bias", "alibi_slopes") else want[n].shape
        case.close(got, *(definition.reduced(x[n], of) for x in (want, size)), n)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES[:3])
@pytest.mark.parametrize("name", [name for name in NAMES if supported(name)])
def test_forward_mode_and_double_backward(name, shape, dtype):
    options = options_of(name, shape)
    case = Case(shape, options, dtype)
    tan_o, tan_lse = libattn.jvp(*case.forward(), **case.tangents, return_lse=True, **options)
    want, size = definition.jvp(case.terms, **case.tangents), definition.jvp(case.sizes(2), **case.tangents)
    lost = (case.sizes(2).plain * abs(definition.tangent(case.sizes(2), *(case.tangents.get("tan_" + n) for n in ("q", "k", "bias")))[1]))
    case.close(tan_o, want["o"], size["o"] + lost.sum(-1, keepdims=True) * definition.lost_by_storing(case.o), "tan_o")
    case.close(tan_lse, want["lse"], size["lse"], "tan_lse")
    bias = "bias" in options
    results = libattn.attention_double_backward(
        *case.forward(), case.grad_o, grad_lse=case.grad_lse, **case.tangents, return_bias=bias, return_grad_lse=True, **options
    )
    assert (results[0] == tan_o).all() and (results[-1] == tan_lse).all()
    more = {"grad_o": case.grad_o, "grad_lse": case.grad_lse, **case.tangents}
    want, size = definition.double_backward(case.terms, **more), definition.double_backward(case.sizes(3), **more)
    for n, got in zip(["q", "k", "v", *["bias"] * bias], results[1:], strict=False):
        of = np.shape(options[n]) if n == "bias" else want[n].shape
        case.close(got, *(definition.reduced(x[n], of) for x in (want, size)), "second_" + n)


def test_the_definition_is_the_derivative():
    """The formulas themselves, against differences of the definition of attention."""
    options = {"softcap": 2.0, "bias": np.random.default_rng(3).standard_normal((5, 7)), "causal": True, "sink": np.ones(4)}
    case = Case(SHAPES[0], options, np.float64)
    step, t = 1e-5, case.tangents

    def moved(sign):
        inputs = [x + sign * step * t["tan_" + n] for n, x in zip("qkv", (case.q, case.k, case.v))]
        return inputs, {**options, "bias": options["bias"] + sign * step * t["tan_bias"]}

    def results(sign):
        inputs, there = moved(sign)
        found = _definition.forward(*inputs, there)
        return found.o, found.lse, definition.backward(definition.terms(*inputs, there), case.grad_o, case.grad_lse)

    up, down = results(1), results(-1)
    tangents = definition.jvp(case.terms, **t)
    assert abs((up[0] - down[0]) / (2 * step) - tangents["o"]).max() < 1e-8
    assert abs((up[1] - down[1]) / (2 * step) - tangents["lse"]).max() < 1e-8
    first = definition.backward(case.terms, case.grad_o, case.grad_lse)
    loss = (tangents["o"] * case.grad_o).sum() + (tangents["lse"] * case.grad_lse).sum()
    inner = sum((first[n] * t["tan_" + n]).sum() for n in "qkv") + (definition.reduced(first["bias"], (5, 7)) * t["tan_bias"]).sum()
    assert abs(loss - inner) < 1e-10
    second = definition.double_backward(case.terms, case.grad_o, case.grad_lse, **t)
    for n in "qkv":  # the Hessian is symmetric: its product is how the gradient moves along the tangents
        assert abs((up[2][n] - down[2][n]) / (2 * step) - second[n]).max() < 1e-7, n


def test_numbers_by_hand():
    """Three keys of two channels, with numbers that were worked out elsewhere."""
    q, k, v = np.array([[1.0, 0], [0, 1]]), np.array([[1.0, 0], [0, 1], [1, 1]]), np.array([[2.0, 0], [0, 2], [1, 1]])
    o, lse, weights, entropy = libattn.attention(q, k, v, return_lse=True, return_weights=True, outputs=["entropy"])
    near = {"rtol": 0, "atol": 1e-8}
    assert np.allclose(weights, [[0.401112093, 0.197775815, 0.401112093], [0.197775815, 0.401112093, 0.401112093]], **near)
    assert np.allclose(entropy, 1.053362978, **near) and np.allclose(o, [[1.203336278, 0.796663722], [0.796663722, 1.203336278]], **near)
    assert np.allclose(np.exp(lse), 5.0562, atol=1e-4)
    grad_q, grad_k, grad_v = libattn.attention_backward(q, k, v, o, lse, np.array([[1.0, 2], [-1, 3]]))
    assert np.allclose(grad_v, [[0.203336278, 1.395551629], [-0.203336278, 1.598887907], [0, 2.005560463]], **near)
    assert np.allclose(grad_q, [[-0.168284918, 0.225956999], [-0.903827997, 0.67313967]], **near)
    assert np.allclose(grad_k, [[-0.225956999, -0.67313967], [0.168284918, 0.903827997], [0.057672082, -0.230688326]], **near)


def test_what_is_masked_has_no_effect():
    case = Case(SHAPES[0], {}, np.float32)
    mask = np.array([1, 1, 0, 1, 0, 1, 1], bool)
    options = {"mask": mask, "lengths_kv": [7, 6]}
    o, lse = libattn.attention(case.q, case.k, case.v, return_lse=True, **options)
    grads = libattn.attention_backward(case.q, case.k, case.v, o, lse, case.grad_o, **options)
    k, v = case.k.copy(), case.v.copy()
    for x in (k, v):
        x[:, :, ~mask] = np.nan
        x[1, :, 6:] = np.inf
    again = libattn.attention(case.q, k, v, return_lse=True, **options)
    assert (again[0] == o).all() and (again[1] == lse).all()
    again = libattn.attention_backward(case.q, k, v, o, lse, case.grad_o, **options)
    assert all((a == b).all() for a, b in zip(again, grads, strict=True)) and (again[1][:, :, ~mask] == 0).all()


def test_outputs_may_be_given():
    case = Case(SHAPES[0], {}, np.float32)
    out = [np.empty_like(case.q), None, np.empty_like(case.v)]
    made = libattn.attention_backward(*case.forward(), case.grad_o, out=out)
    assert made[0] is out[0] and made[2] is out[2]
    again = libattn.attention_backward(*case.forward(), case.grad_o)
    assert all((a == b).all() for a, b in zip(made, again))
    sink = np.zeros(4, np.float32)
    given = {"sink": np.empty(4, np.float32)}
    made = libattn.attention_backward(*case.forward(), case.grad_o, sink=sink, grads=given)
    assert made[3] is given["sink"]


@pytest.mark.parametrize(
    "change, error, sentence",
    [
        ({"out": [None]}, ValueError, r"out has 1 arrays; it must have 3: grad_q, grad_k, grad_v"),
        ({"grads": ["bias"]}, ValueError, r"grad_bias is set and bias is not"),
        ({"grads": ["nothing"]}, TypeError, r"'grad_nothing' is not an option or a tensor of attention"),
        ({"grad_lse": [1.0]}, ValueError, r"grad_lse has the shape \(1,\); it must be \(2, 4, 5\)"),
    ],
)
def test_errors(change, error, sentence):
    case = Case(SHAPES[0], {}, np.float32)
    with pytest.raises(error, match=sentence):
        libattn.attention_backward(*case.forward(), case.grad_o, **change)
