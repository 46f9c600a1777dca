# SPDX-License-Identifier: MIT
"""Linear attention against the loop at the top of libattn/linear.py, in double, and its gradients against differences."""
import re
import threading

import numpy as np
import pytest

from libattn import _abi, _linear, linear

RANDOM = ("favor", "fourier", "trigonometric")


def features(kind, x, matrix=None):
    """f(x) in double, and the same with nothing that cancels: what its rounding is relative to."""
    if matrix is not None:
        y = x * x.shape[-1] ** -0.25
        projected, half = y @ matrix.T, (y * y).sum(-1, keepdims=True) / 2
        root = len(matrix) ** 0.5
        if kind == "favor":
            return np.exp(projected - half) / root
        both = np.concatenate([np.cos(projected), np.sin(projected)], -1) / root
        return both * np.exp(half) if kind == "trigonometric" else both
    return {
        "elu1": lambda: np.maximum(x, 0) + np.exp(np.minimum(x, 0)), "identity": lambda: x, "relu": lambda: np.maximum(x, 0),
        "softmax": lambda: np.exp(x) / np.exp(x).sum(-1, keepdims=True),
    }[kind]()


def loop(
    q, k, v, *, causal=False, kind="elu1", matrix=None, denominator="clamp", epsilon=1e-6, scale=None, decay=None, beta=None, erase=None,
    write=None, lengths=None, state=None, total=None, absolute=False,
):
    """The definition: o, denominators, final state, final sum.  absolute: of the absolute values of all terms."""
    batch, heads, n, dim = q.shape
    group = heads // k.shape[1]
    fq, fk = features(kind, q, matrix), features(kind, k, matrix)
    size = fq.shape[-1]
    if scale is None:
        scale = 1.0 if denominator != "none" else dim**-0.5
    if absolute:
        fq, fk, v = abs(fq), abs(fk), abs(v)
        erase, write = (None, None) if erase is None else (abs(erase), abs(write))
    sign = 1 if absolute else -1
    o, den = np.zeros((batch, heads, n, v.shape[3])), np.zeros((batch, heads, n))
    S = np.zeros((batch, k.shape[1], size, v.shape[3])) + (0 if state is None else abs(state) if absolute else state)
    z = np.zeros((batch, k.shape[1], size)) + (0 if total is None else total)
    for b in range(batch):
        end = k.shape[2] if lengths is None else lengths[b]
        for g in range(k.shape[1]):
            def read(t, b=b, g=g):
                for h in range(g * group, (g + 1) * group):
                    n_t = den[b, h, t] = scale * fq[b, h, t] @ z[b, g]
                    n_t = {"clamp": max(n_t, epsilon), "add": n_t + epsilon, "none": 1.0}[denominator]
                    o[b, h, t] = scale * S[b, g].T @ fq[b, h, t] / n_t

            for t in range(end):
                before = S[b, g].copy()
                keep = 1 if decay is None else np.exp(np.broadcast_to(decay, (*k.shape[:3], decay.shape[3]))[b, g, t])[:, None]
                S[b, g], z[b, g] = keep * S[b, g], (keep * z[b, g][:, None])[:, 0]
                u = v[b, g, t]
                if beta is not None:
                    u = beta[b, g, t] * (u + sign * S[b, g].T @ fk[b, g, t])
                S[b, g] += np.outer(fk[b, g, t], u)
                z[b, g] += fk[b, g, t]
                if erase is not None:
                    S[b, g] += np.outer(write[b, g, t], before.T @ erase[b, g, t])
                if causal:
                    read(t)
            if not causal:
                for t in range(n):
                    read(t)
    return o, den, S, z


def bound(unit, dim, size, n, dim_v, magnitude):
    """A term of o passes through the roundings of its features (a product over dim and a few units of exp), of n updates of the state,
    each a product over F, and of the product that reads it; the denominator through as many."""
    count = 2 * (dim + size + 4 * n + dim_v + 24)
    return count * unit / (1 - count * unit) * magnitude + np.finfo(float).tiny


def problem(seed, heads=4, heads_kv=2, n=13, dim=6, dim_v=5, dtype=np.float64, batch=2):
    rng = np.random.default_rng(seed)
    q = rng.standard_normal((batch, heads, n, dim)) / 2
    k = rng.standard_normal((batch, heads_kv, n, dim)) / 2
    v = rng.standard_normal((batch, heads_kv, n, dim_v))
    return rng, *(x.astype(dtype) for x in (q, k, v))


CASES = [
    {}, {"causal": True}, {"causal": True, "denominator": "add", "epsilon": 0.25}, {"causal": True, "denominator": "none"},
    {"features": "relu", "denominator": "add"}, {"features": "softmax", "causal": True}, {"features": "identity", "denominator": "none"},
    {"features": "favor", "causal": True}, {"features": "fourier", "denominator": "none"},
    {"features": "trigonometric", "denominator": "none"},
    {"causal": True, "decay": 1}, {"causal": True, "decay": 6}, {"causal": True, "decay": "retention", "denominator": "none"},
    {"causal": True, "beta": True, "features": "identity"}, {"causal": True, "beta": True, "decay": 1, "features": "softmax"},
    {"causal": True, "erase": True, "features": "identity", "scale": 0.3}, {"causal": True, "lengths": True},
    {"lengths": True}, {"causal": True, "state": True}, {"causal": True, "form": "recurrent"}, {"causal": True, "form": "quadratic"},
    {"causal": True, "form": "chunked", "chunk": 4}, {"threads": 2, "causal": True}, {"isa": "scalar"},
]


def arguments(case, seed, dtype=np.float64):
    """The keywords of libattn and those of the loop."""
    rng, q, k, v = problem(seed, dtype=dtype)
    case = dict(case)
    tensors, own = {}, {}
    kind = case.get("features", "elu1")
    if kind in RANDOM:
        tensors["feature_matrix"] = own["matrix"] = linear.random_features(8, 6, seed=3, dtype=dtype)
    size = {"favor": 8, "fourier": 16, "trigonometric": 16}.get(kind, 6)
    shape = k.shape[:3]
    if "decay" in case:
        decay = case.pop("decay")
        tensors["decay"] = own["decay"] = (
            np.array([[-0.1], [-0.02]]).reshape(1, 2, 1, 1) if decay == "retention" else -rng.random((*shape, decay)) / 3
        ).astype(dtype)
    if case.pop("beta", False):
        tensors["beta"] = own["beta"] = rng.random(shape).astype(dtype)
        own["denominator"] = "none"
    if case.pop("erase", False):
        for name in ("erase", "write"):
            tensors[name] = own[name] = (rng.standard_normal((*shape, size)) / 4).astype(dtype)
        own["denominator"] = "none"
    if case.pop("lengths", False):
        tensors["lengths"] = own["lengths"] = np.array([13, 7])
    if case.pop("state", False):
        tensors["initial_state"] = own["state"] = rng.standard_normal((2, 2, size, 5)).astype(dtype)
        tensors["initial_sum"] = own["total"] = rng.random((2, 2, size)).astype(dtype)
    own |= {name: case[name] for name in ("causal", "denominator", "epsilon", "scale") if name in case}
    return (q, k, v), tensors, case, {**own, "kind": kind}


def double(x):
    return x.astype(np.float64) if isinstance(x, np.ndarray) and x.dtype.kind == "f" else x


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("case", range(len(CASES)))
def test_the_loop(case, dtype):
    (q, k, v), tensors, options, own = arguments(CASES[case], case, dtype)
    done = linear.forward(q, k, v, **tensors, **options)
    exact = [double(x) for x in (q, k, v)]
    own = {name: double(x) for name, x in own.items()}
    o, den, S, z = loop(*exact, **own)
    # The terms of o over its denominator, for signed features too; where it is clamped or small, so is what it divides.
    bare = {name: x for name, x in own.items() if name != "denominator"}
    scale = own.get("scale") or (1.0 if own.get("denominator", "clamp") != "none" else 6**-0.5)
    magnitude = loop(*exact, **{**bare, "scale": scale}, denominator="none", absolute=True)
    unit, size = np.finfo(dtype).eps / 2, S.shape[2]
    wide = bound(unit, 6, size, 13, 5, 1)
    divisor = {"clamp": lambda: np.maximum(den, 1e-6), "add": lambda: den + own.get("epsilon", 1e-6), "none": lambda: den * 0 + 1}
    divisor = divisor[own.get("denominator", "clamp")]()[..., None]
    assert (abs(done.o - o) <= wide * magnitude[0] / divisor).all()
    assert (abs(done.final_state - S) <= wide * magnitude[2]).all()
    if own.get("denominator", "clamp") == "none":
        assert done.denominators is None and done.final_sum is None
    else:
        assert (abs(done.denominators - den) <= wide * den).all()
        assert (abs(done.final_sum - z) <= wide * abs(z)).all()
    assert done.o.dtype == dtype
    assert np.array_equal(linear.attention(q, k, v, **tensors, **options), done.o)


@pytest.mark.parametrize("case", [one for one, case in enumerate(CASES) if case.get("features") != "relu" and "lengths" not in case])
def test_backward_is_the_derivative(case):
    (q, k, v), tensors, options, own = arguments(CASES[case], 100 + case)
    tensors = {"q": q, "k": k, "v": v, **tensors}
    rng = np.random.default_rng(case)
    done = linear.forward(**tensors, **options)
    grad_o, grad_state = rng.standard_normal(done.o.shape), rng.standard_normal(done.final_state.shape)
    more = {} if done.final_sum is None else {"grad_final_sum": rng.standard_normal(done.final_sum.shape)}
    grads = linear.backward(**tensors, grad_o=grad_o, grad_final_state=grad_state, **more, **options)
    again = linear.backward(
        **tensors, grad_o=grad_o, o=done.o, denominators=done.denominators, grad_final_state=grad_state, **more, **options
    )

    def loss(**moved):
        found = linear.forward(**{**tensors, **moved}, **options)
        total = (found.o * grad_o).sum() + (found.final_state * grad_state).sum()
        return total + ((found.final_sum * more["grad_final_sum"]).sum() if more else 0)

    step = 1e-5
    for name in ("q", "k", "v", "decay", "beta", "erase", "write", "initial_state", "initial_sum"):
        grad = getattr(grads, name)
        if name not in tensors:
            assert grad is None
            continue
        x = tensors[name]
        assert grad.shape == x.shape and np.array_equal(grad, getattr(again, name))
        way = rng.standard_normal(x.shape)
        slope = (loss(**{name: x + step * way}) - loss(**{name: x - step * way})) / (2 * step)
        # Central differences: third derivatives times step^2, and rounding of the loss over step.
        assert slope == pytest.approx((grad * way).sum(), abs=1e-7 * (1 + abs(grad * way).sum()))


def test_axes_may_be_missing():
    rng, q, k, v = problem(8, heads=2)
    whole = linear.forward(q, k, v, causal=True)
    beta = rng.random(k.shape[:3])
    delta = linear.forward(q, k, v, causal=True, beta=beta)
    for b in range(2):
        part = linear.forward(q[b], k[b], v[b], causal=True)
        for name in ("o", "denominators", "final_state", "final_sum"):
            assert np.array_equal(getattr(part, name), getattr(whole, name)[b]), name
        for h in range(2):
            grads = linear.backward(q[b, h], k[b, h], v[b, h], v[b, h], causal=True, beta=beta[b, h])
            assert np.array_equal(linear.attention(q[b, h], k[b, h], v[b, h], causal=True, beta=beta[b, h]), delta.o[b, h])
            assert grads.q.shape == q[b, h].shape and grads.beta.shape == beta[b, h].shape


def test_strides_and_out():
    _, q, k, v = problem(9)
    want = linear.attention(q, k, v)
    tokens_first = [np.ascontiguousarray(x.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3) for x in (q, k, v)]
    reverse = [np.ascontiguousarray(x[..., ::-1])[..., ::-1] for x in (q, k, v)]  # a last axis that must be copied
    out = np.full((2, 13, 4, 5), np.nan).transpose(0, 2, 1, 3)
    assert linear.attention(*tokens_first, out=out) is out
    assert np.array_equal(out, want) and np.array_equal(linear.attention(*reverse), want)
    constant = np.broadcast_to(0.0, want.shape)
    for bad, what in ((np.empty((2, 4, 13, 4)), "shape"), (np.empty((2, 4, 13, 5), np.float32), "type"), (constant, "read-only")):
        with pytest.raises(ValueError, match=f"out .*{what}"):
            linear.attention(q, k, v, out=bad)
    with pytest.raises(TypeError, match="out is of type list"):
        linear.attention(q, k, v, out=[1.0])


def test_plans():
    _, q, k, v = problem(10, n=4000)
    plan = linear.Plan(q, k, v, causal=True, form="chunked", chunk=16, threads=2, isa="scalar")
    about = plan.description
    assert (about.form, about.chunk, about.threads, about.isa, about.compute, about.dim_features) == ("chunked", 16, 2, "scalar", "f64", 6)
    o = linear.TensorPlan("output", np.dtype(np.float64), (2, 4, 4000, 5), (80000, 20000, 5, 1), 2 * 4 * 4000 * 5 * 8)
    assert plan.tensors["o"] == o
    assert "decay" not in plan.tensors and plan.tensors["q"].role == "input"
    want = linear.forward(q, k, v, causal=True, form="chunked", chunk=16, isa="scalar")
    found = [None] * 8

    def run(i):
        found[i] = plan(q, k, v)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one in found:
        assert np.array_equal(one.o, want.o) and np.array_equal(one.final_state, want.final_state)
    with pytest.raises(ValueError, match="decay"):
        plan(q, k, v, decay=np.zeros((2, 2, 4000, 1)))
    back = linear.BackwardPlan(q, k, v, want.o, o=want.o, denominators=want.denominators, causal=True)
    grads = back(q, k, v, want.o, o=want.o, denominators=want.denominators)
    assert np.array_equal(grads.k, linear.backward(q, k, v, want.o, o=want.o, denominators=want.denominators, causal=True).k)
    assert back.tensors["grad_q"].role == "output" and back.description.flops > about.flops


@pytest.mark.parametrize("kind, count", [("elu1", 6), ("favor", 8), ("fourier", 16), ("trigonometric", 16)])
def test_number_of_features(kind, count):
    assert linear.features_count(kind, 6, random_features=8) == count


def test_random_features():
    matrix = linear.random_features(9, 4, seed=2**64 - 1, draw=5, dtype=np.float64)
    for block in (matrix[:4], matrix[4:8]):
        products = block @ block.T
        assert abs(products - np.diag(np.diag(products))).max() < 1e-12
    assert abs(linear.random_features(9, 4, seed=2**64 - 1, draw=5) - matrix).max() < 1e-6  # Gram-Schmidt in f32
    normal = linear.random_features(4000, 4, rows="normal", dtype=np.float64)
    assert abs(normal.mean()) < 5 / 16000**0.5 and abs(normal.var() - 1) < 5 * (2 / 16000) ** 0.5
    assert abs(normal[:4] @ normal[:4].T)[np.triu_indices(4, 1)].max() > 0.01  # not orthogonal
    for other in ({"seed": 1, "draw": 5}, {"seed": 2**64 - 1, "draw": 6}):
        assert not np.array_equal(matrix, linear.random_features(9, 4, dtype=np.float64, **other))
    with pytest.raises(NotImplementedError):
        linear.random_features(3, 3, dtype=np.float16)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_linformer(shared, dtype):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 3, 11, 4)).astype(dtype)
    projection = rng.standard_normal((11, 5) if shared else (3, 11, 5)).astype(dtype)
    grad_y = rng.standard_normal((2, 3, 5, 4)).astype(dtype)
    full = np.broadcast_to(projection, (3, 11, 5))
    sums = {"y": "hjr,bhjc->bhrc", "x": "hjr,bhrc->bhjc", "projection": "bhjc,bhrc->jr" if shared else "bhjc,bhrc->hjr"}
    y = linear.linformer_project(x, projection, threads=1)
    grad_x, grad_projection = linear.linformer_backward(x, projection, grad_y)
    for found, name, a, b in ((y, "y", full, x), (grad_x, "x", full, grad_y), (grad_projection, "projection", x, grad_y)):
        want = np.einsum(sums[name], a.astype(float), b.astype(float))
        magnitude = np.einsum(sums[name], abs(a.astype(float)), abs(b.astype(float)))
        assert found.shape == want.shape and found.dtype == dtype
        assert (abs(found - want) <= 2 * (24 + 11) * np.finfo(dtype).eps * magnitude).all()
    out = np.empty((2, 3, 5, 4), dtype)
    assert linear.linformer_project(x, projection, out=out) is out and np.array_equal(out, y)
    with pytest.raises(ValueError, match="projection has shape"):
        linear.linformer_project(x, projection[..., :4, :])


def test_half_precision():
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    _, q, k, v = problem(11)
    for dtype, unit in ((np.float16, 2**-11), (bfloat16, 2**-8)):
        x = [one.astype(dtype) for one in (q, k, v)]
        o = linear.attention(*x, causal=True)
        want = linear.attention(*(one.astype(np.float32) for one in x), causal=True)
        assert o.dtype == dtype and (abs(o.astype(np.float32) - want) <= unit * abs(want) * (1 + 2**-10) + 2**-24).all()


def test_other_libraries():
    torch = pytest.importorskip("torch")
    _, q, k, v = problem(12, dtype=np.float32)
    tensors = [torch.from_numpy(x) for x in (q, k, v)]
    done = linear.forward(*tensors, causal=True)
    assert isinstance(done.o, torch.Tensor) and np.array_equal(done.o.numpy(), linear.attention(q, k, v, causal=True))
    half = linear.attention(*(x.bfloat16() for x in tensors))
    assert half.dtype == torch.bfloat16
    out = torch.empty(2, 4, 13, 5)
    assert linear.attention(*tensors, causal=True, out=out) is out and torch.equal(out, done.o)
    assert isinstance(linear.backward(*tensors, done.o, causal=True).k, torch.Tensor)
    assert np.array_equal(linear.attention([[1.0, 2]], [[1.0, 2]], [[3.0]]), [[3.0]])


REJECTED = [
    ({"k": np.zeros((2, 2, 13, 5))}, ValueError, "k has shape"), ({"v": np.zeros((2, 2, 12, 5))}, ValueError, "v has shape"),
    ({"q": np.zeros(3)}, ValueError, "q has 1 axes"), ({"k": np.zeros((13, 6))}, ValueError, "k has 2 axes; it must have 4"),
    ({"q": np.zeros((2, 4, 13, 6), np.int32)}, TypeError, "q has type int32"), ({"q": "text"}, TypeError, "q has type"),
    ({"k": np.zeros((2, 3, 13, 6)), "v": np.zeros((2, 3, 13, 5))}, ValueError, r"heads_q \(4\) is not a multiple of heads_kv \(3\)"),
    ({"k": np.zeros((2, 2, 12, 6)), "v": np.zeros((2, 2, 12, 5)), "causal": True}, ValueError, "causal"),
    ({"decay": np.zeros((2, 2, 13, 1))}, NotImplementedError, "causal"),
    ({"decay": np.zeros((2, 2, 13, 3))}, ValueError, "decay has shape"),
    ({"decay": np.zeros((2, 1, 1)), "causal": True}, ValueError, "decay has 3 axes; it must have 4"),
    ({"beta": np.zeros((2, 2, 12)), "causal": True}, ValueError, "beta has shape"),
    ({"beta": np.zeros((2, 2, 13)), "erase": np.zeros((2, 2, 13, 6)), "causal": True}, ValueError, "set only one"),
    ({"erase": np.zeros((2, 2, 13, 6)), "causal": True}, ValueError, "write"),
    ({"features": "favor"}, ValueError, "feature_matrix is missing"),
    ({"features": "elu"}, ValueError, "features is 'elu'; it must be"), ({"denominator": 1}, TypeError, "denominator is 1"),
    ({"epsilon": 0}, ValueError, "epsilon is 0"), ({"epsilon": -1}, ValueError, "epsilon"), ({"scale": float("nan")}, ValueError, "scale"),
    ({"form": "recurrent"}, NotImplementedError, "causal"),
    ({"threads": 0}, ValueError, "threads is 0"), ({"threads": 1.5}, TypeError, "threads"),
    ({"isa": "sse"}, ValueError, "isa is 'sse'"), ({"chunks": 3}, TypeError, "chunks is not an option"),
    ({"lengths": np.array([13, 14])}, ValueError, "lengths"), ({"lengths": np.array([1.0, 2])}, TypeError, "lengths has type"),
    ({"initial_state": np.zeros((2, 2, 6, 5))}, ValueError, "initial_sum"),
    ({"feature_matrix": np.zeros((8, 5)), "features": "favor"}, ValueError, "feature_matrix has shape"),
    ({"causal": True, "beta": np.zeros((2, 2, 13)), "denominator": "clamp"}, NotImplementedError, "denominator"),
    ({"reproducible": True}, NotImplementedError, "reproducible"),
    ({"workspace_limit": 1}, MemoryError, "workspace"), ({"workspace_limit": 0}, ValueError, "workspace_limit is 0"),
]


@pytest.mark.parametrize("case", range(len(REJECTED)))
def test_errors_name_the_argument(case):
    _, q, k, v = problem(0)
    changes, kind, message = REJECTED[case]
    with pytest.raises(kind, match=message):
        linear.attention(**{"q": q, "k": k, "v": v, **changes})


@pytest.mark.parametrize("enum, known", [
    ("attn_features", _linear.FEATURES), ("attn_denominator", _linear.DENOMINATORS), ("attn_linear_form", _linear.FORMS),
    ("attn_random_rows", linear.RANDOM_ROWS),
])
def test_every_choice_has_its_name(enum, known):
    assert sorted(known.values()) == sorted(_abi.ENUMS[enum].values())


def test_ragged():
    """Concatenated sequences: the bits of each alone, forward and backward, and states of their own."""
    rng = np.random.default_rng(11)
    starts = np.array([0, 4, 4, 5, 12], np.int32)
    q, k, v = rng.normal(size=(12, 4, 6)), rng.normal(size=(12, 2, 6)), rng.normal(size=(12, 2, 3))
    decay, beta = -rng.random((12, 2, 1)), rng.random((12, 2))
    states, grad = rng.normal(size=(4, 2, 6, 3)), rng.normal(size=(12, 4, 3))
    options = {"features": "softmax", "causal": True, "form": "chunked"}
    done = linear.forward(q, k, v, decay=decay, beta=beta, cu_seqlens=starts, initial_state=states, **options)
    grads = linear.backward(q, k, v, grad, decay=decay, beta=beta, cu_seqlens=starts, initial_state=states, **options)
    assert done.o.shape == (12, 4, 3) and done.final_state.shape == states.shape

    def turned(x):
        return np.moveaxis(x, 0, 1)[None]

    for b in range(4):
        part = slice(starts[b], starts[b + 1])
        own = [turned(x[part]) for x in (q, k, v)]
        rest = {"decay": turned(decay[part]), "beta": turned(beta[part]), "initial_state": states[b:b + 1]}
        alone = linear.forward(*own, **rest, **options)
        np.testing.assert_array_equal(turned(done.o[part]), alone.o)
        np.testing.assert_array_equal(done.final_state[b], alone.final_state[0])
        each = linear.backward(*own, turned(grad[part]), **rest, **options)
        for name in ("q", "k", "v", "decay", "beta"):
            np.testing.assert_array_equal(turned(getattr(grads, name)[part]), getattr(each, name), name)
        np.testing.assert_array_equal(grads.initial_state[b], each.initial_state[0])
    plan = linear.Plan(q, k, v, decay=decay, beta=beta, cu_seqlens=starts, initial_state=states, **options)
    again = plan(q, k, v, decay=decay, beta=beta, cu_seqlens=starts, initial_state=states)
    np.testing.assert_array_equal(again.o, done.o)
    with pytest.raises(ValueError, match="with cu_seqlens it must be"):
        linear.attention(q[None], k, v, cu_seqlens=starts)
    for end in (11, 13):  # (rows past the last sequence would have no numbers)
        with pytest.raises(ValueError, match=f"cu_seqlens ends at {end}; there are 12 tokens of q and 12 of k"):
            linear.attention(q, k, v, cu_seqlens=[0, end])
        with pytest.raises(ValueError, match=f"cu_seqlens ends at {end}"):
            linear.backward(q, k, v, grad, decay=np.zeros((1, 2, 1)), cu_seqlens=[0, end], **options)


def tokens_of(shape, n):
    """Of tensors that are larger, so that strides do not tell the sizes."""
    return [np.ones((4, 4, 64, 5))[tuple(map(slice, (*shape, n)))] for _ in range(3)]


def test_a_plan_serves_no_other_sizes():
    """What strides do not tell: numbers would be written behind an array, or not at all."""
    plan = linear.Plan(*tokens_of((2, 2), 8), causal=True)
    back = linear.BackwardPlan(*tokens_of((2, 2), 8), tokens_of((2, 2), 8)[0], causal=True)
    for shape, n in (((2, 2), 4), ((2, 2), 12), ((1, 2), 8), ((3, 2), 8), ((2, 4), 8)):
        given, out = tokens_of(shape, n), np.zeros((4, 4, 64, 5))
        said = re.escape(f"q has shape {[*shape, n, 5]}; the plan was made with [2, 2, 8, 5]")
        with pytest.raises(ValueError, match=said):
            plan(*given, out=out[tuple(map(slice, (*shape, n)))])
        assert not out.any()
        with pytest.raises(ValueError, match=said):
            back(*given, given[0])
    random = {rows: np.ones((rows, 5)) for rows in (3, 4)}
    plan = linear.Plan(*tokens_of((2, 2), 8), features="favor", feature_matrix=random[3])
    with pytest.raises(ValueError, match=re.escape("feature_matrix has shape [4, 5]; the plan was made with [3, 5]")):
        plan(*tokens_of((2, 2), 8), feature_matrix=random[4])


def test_a_ragged_plan_serves_as_many_sequences():
    def tokens(n, heads=2):
        return [np.ones((n, 2, 5))[:, :heads] for _ in range(3)]

    plan = linear.Plan(*tokens(7), causal=True, cu_seqlens=[0, 3, 7])
    for starts in ([0, 3, 7], [0, 0, 2], [0, 4, 8]):
        done, want = (call(*tokens(starts[-1]), cu_seqlens=starts, **more) for call, more in ((plan, {}), (linear.forward, {"causal": True})))
        np.testing.assert_array_equal(done.o, want.o)
        np.testing.assert_array_equal(done.final_state, want.final_state)
    for starts in ([0, 7], [0, 3, 5, 7], [0]):
        with pytest.raises(ValueError, match=re.escape(f"cu_seqlens has shape [{len(starts)}]; the plan was made with [3]")):
            plan(*tokens(starts[-1]), cu_seqlens=starts)
    with pytest.raises(ValueError, match="cu_seqlens has a sequence of 5 tokens; the longest of the plan has 4"):
        plan(*tokens(7), cu_seqlens=[0, 2, 7])
    with pytest.raises(ValueError, match=re.escape("q has heads and channels [1, 5]; the plan was made with [2, 5]")):
        plan(*tokens(7, 1), cu_seqlens=[0, 3, 7])
    with pytest.raises(ValueError, match="cu_seqlens is missing; the plan was made with it"):
        plan(*tokens_of((1, 2), 4))
    with pytest.raises(ValueError, match="cu_seqlens is set; the plan was made without it"):
        linear.Plan(*tokens_of((1, 2), 4), causal=True)(*tokens(7), cu_seqlens=[0, 3, 7])
