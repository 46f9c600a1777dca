# SPDX-License-Identifier: MIT
"""libattn.torch.linear_attention: results are those of libattn.linear, which has its own tests; derivatives in every mode."""
import numpy as np
import pytest

torch = pytest.importorskip("torch", minversion="2.10")

import libattn.torch  # noqa: E402
from libattn import linear  # noqa: E402
from torch_problems import tensors  # noqa: E402

F64 = torch.float64
call = libattn.torch.linear_attention
SHAPES = {"q": (2, 4, 5, 3), "k": (2, 2, 5, 3), "v": (2, 2, 5, 2)}


def inputs(dtype=F64, grad=True):
    return tensors(*SHAPES.values(), dtype=dtype, grad=grad)


def random(*shape, seed=7):
    return tensors(shape, dtype=F64, seed=seed)[0]


CASES = {
    "plain": {}, "causal": {"causal": True}, "features": {"features": "relu", "denominator": "add", "epsilon": 1e-3},
    "favor": {"features": "favor", "feature_matrix": random(6, 3)}, "fourier": {"features": "fourier", "feature_matrix": random(6, 3), "denominator": "none"},
    "retention": {"causal": True, "features": "identity", "denominator": "none", "decay": -random(1, 2, 1, 1).abs()},
    "gated": {"causal": True, "decay": -random(2, 2, 5, 3).abs()}, "delta": {"causal": True, "features": "softmax", "beta": random(2, 2, 5).sigmoid()},
    "low rank": {"causal": True, "features": "identity", "erase": random(2, 2, 5, 3), "write": random(2, 2, 5, 3, seed=8)},
    "continued": {"causal": True, "initial_state": random(2, 2, 3, 2), "initial_sum": random(2, 2, 3).abs()}, "lengths": {"causal": True, "lengths": torch.tensor([5, 2])},
}


def parts(name):
    given = CASES[name]
    learned = [key for key, x in given.items() if isinstance(x, torch.Tensor) and key not in ("feature_matrix", "lengths")]
    return {key: x for key, x in given.items() if key not in learned}, learned, [given[key].clone().requires_grad_() for key in learned]


@pytest.mark.parametrize("name", CASES)
def test_results_and_gradients(name):
    rest, learned, own = parts(name)
    for dtype in (F64, torch.float32):
        q, k, v = inputs(dtype, grad=False)
        more = {key: x.to(dtype) if isinstance(x, torch.Tensor) and x.is_floating_point() else x for key, x in CASES[name].items()}
        want = linear.forward(q.numpy(), k.numpy(), v.numpy(), **{key: x.numpy() if isinstance(x, torch.Tensor) else x for key, x in more.items()})
        o, state, total = call(q, k, v, return_state=True, **more)
        np.testing.assert_array_equal(o, want.o)
        np.testing.assert_array_equal(state, want.final_state)
        assert (total is None) == (want.final_sum is None) and torch.equal(call(q, k, v, **more), o)

    def run(q, k, v, *tensors):
        found = call(q, k, v, return_state=True, **rest, **dict(zip(learned, tensors, strict=True)))
        return tuple(x for x in found if x is not None)

    assert torch.autograd.gradcheck(run, (*inputs(), *own), check_batched_grad=True)


def test_a_gradient_of_one_result():
    q, k, v = inputs()
    for at in range(3):
        assert torch.autograd.gradcheck(lambda *a, at=at: call(*a, causal=True, return_state=True)[at], (q, k, v), check_undefined_grad=False)


def test_a_sequence_in_parts():
    q, k, v = inputs(grad=False)
    whole = call(q, k, v, causal=True)
    first, state, total = call(*(x[:, :, :2] for x in (q, k, v)), causal=True, return_state=True)
    second = call(*(x[:, :, 2:] for x in (q, k, v)), causal=True, initial_state=state, initial_sum=total)
    torch.testing.assert_close(torch.cat([first, second], 2), whole, rtol=0, atol=1e-14)


def test_transforms_and_compile():
    q, k, v = inputs()

    def loss(q):
        return call(q, k, v, causal=True).square().sum()

    want, = torch.autograd.grad(loss(q), q)
    assert torch.equal(torch.func.grad(loss)(q), want)
    both = torch.stack([q, 2 * q])
    for way in (lambda f: torch.func.vmap(f)(both), lambda f: torch.stack([f(x) for x in both])):
        assert torch.equal(way(torch.func.grad(loss))[0], want)
    assert torch.equal(torch.func.vmap(loss)(both), torch.stack([loss(x) for x in both]))
    torch._dynamo.reset()
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    assert torch.equal(torch.autograd.grad(compiled(q), q)[0], want)


def test_fakes():
    for name in ("favor", "delta", "continued"):
        q, k, v = inputs(grad=False)
        more = CASES[name]
        real = call(q, k, v, return_state=True, **more)
        meta = call(*(x.to("meta") for x in (q, k, v)), return_state=True, **{key: x.to("meta") if isinstance(x, torch.Tensor) else x for key, x in more.items()})
        for a, b in zip(real, meta, strict=True):
            assert (a is None and b is None) or (a.shape == b.shape and a.dtype == b.dtype and a.stride() == b.stride())


def test_types():
    for dtype in (torch.float16, torch.bfloat16):
        q, k, v = inputs(dtype)
        o = call(q, k, v, causal=True)
        assert o.dtype == dtype and all(x.dtype == dtype for x in torch.autograd.grad(o.sum(), (q, k, v)))
        want = call(*(x.double() for x in (q, k, v)), causal=True)
        torch.testing.assert_close(o.double(), want, rtol=2.0**-7 if dtype == torch.bfloat16 else 2.0**-10, atol=1e-5)
    q, k, v = inputs(torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert call(q, k, v).dtype == torch.bfloat16


def test_what_is_not_there():
    q, k, v = inputs()
    first, = torch.autograd.grad(call(q, k, v).square().sum(), q, create_graph=True)
    with pytest.raises(NotImplementedError, match="no second derivatives of linear attention"):
        first.sum().backward()
    with pytest.raises(NotImplementedError, match="no forward mode of linear attention"):
        torch.func.jvp(lambda x: call(x, k, v), (q.detach(),), (q.detach(),))


@pytest.mark.parametrize("change, kind, text", [
    ({"features": "cube"}, ValueError, "features is 'cube'"), ({"denominator": "max"}, ValueError, "denominator is 'max'"),
    ({"decay": -random(1, 2, 1, 1).abs()}, NotImplementedError, "a decay is causal; set causal"), ({"features": "favor"}, ValueError, "feature_matrix is missing"),
    ({"v": random(2, 1, 5, 2)}, ValueError, r"v has shape \[2, 1, 5, 2\]"), ({"q": 1}, TypeError, "q is of type int; it must be a torch.Tensor"),
    ({"q": random(2, 4, 5, 3).to("meta")}, TypeError, "k is on the device cpu"), ({"q": torch.ones(2, 4, 5, 3, dtype=torch.int32)}, TypeError, "q has type int32"),
])
def test_sentences(change, kind, text):
    given = dict(zip("qkv", inputs(), strict=True)) | change
    with pytest.raises(kind, match=text):
        call(**given)
