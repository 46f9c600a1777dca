# SPDX-License-Identifier: MIT
"""libattn.jax against its definition (jax_definition.py), in double: values, every order of derivatives, transformations, errors."""
import functools
import inspect
import itertools
import os
import pathlib
import shutil
import subprocess

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2"

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

import libattn  # noqa: E402
import libattn.jax as attn  # noqa: E402
from jax_definition import Definition, along, definition  # noqa: E402
from problems import nothing_leaks  # noqa: E402

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_disable_most_optimizations", True)  # of what runs for milliseconds

OLD = tuple(map(int, jax.__version__.split(".")[:2])) < (0, 7)
B, H, G, S, T, D, E = 2, 4, 2, 5, 7, 8, 6
EPSILON = np.finfo(np.float64).eps


def draw(seed, *shape):
    return jnp.asarray(np.random.default_rng([seed, *shape]).standard_normal(shape))


def arrays(layout="bhsd"):
    found = [draw(0, B, H, S, D), draw(1, B, G, T, D), draw(2, B, G, T, E)]
    return [jnp.swapaxes(x, 1, 2) for x in found] if layout == "bshd" else found


# Options that have no derivative, and inputs that have one.
OPTIONS = {
    "none": {},
    "causal": {"causal": "bottom-right"},
    "top-left": {"causal": "top-left"},
    "window": {"window": (2, 1)},
    "window top-left": {"window": (1, 2), "align": "top-left"},
    "scale": {"scale": 0.3},
    "softcap": {"softcap": 1.5},
    "mask": {"mask": jnp.asarray(np.random.default_rng(3).random((B, 1, S, T)) < 0.7)},
    "lengths": {"lengths_q": jnp.array([S, 3]), "lengths_kv": jnp.array([5, T])},
    "bshd": {"layout": "bshd"},
}
INPUTS = {
    "none": {},
    "bias": {"bias": draw(4, B, H, S, T)},
    "bias b1": {"bias": draw(5, 1, H, 1, T)},
    "bias 1111": {"bias": draw(6, 1, 1, 1, 1)},
    "sink": {"sink": draw(7, H)},
    "slopes": {"alibi_slopes": jnp.abs(draw(8, H))},
}
PAIRS = list(itertools.product(OPTIONS, INPUTS))


def problem(option, extra):
    """(f, g, x): the library and the definition as functions of the differentiable inputs x."""
    options, names = OPTIONS[option], list(INPUTS[extra])
    x = (*arrays(options.get("layout", "bhsd")), *INPUTS[extra].values())

    def f(q, k, v, *others):
        return finite(attn.attention(q, k, v, **options, **dict(zip(names, others, strict=True)), return_lse=True))

    return f, Definition(*names, **options), x


def finite(pair):
    """o and lse, which is -inf for a row without keys."""
    return pair[0], jnp.where(jnp.isfinite(pair[1]), pair[1], 0)


def assert_same(found, expected, terms, epsilon=EPSILON):
    """Equal to a multiple of the rounding of a type: `terms` counts the additions behind a number and its derivatives' conditions."""
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=0, atol=terms * epsilon * float(np.max(np.abs(b), initial=1.0)))


def scalar(f):
    """A function whose gradients are those that `gradients` has of the definition."""

    def total(*x):
        return sum(jnp.vdot(draw(9 + n, *y.shape), y) for n, y in enumerate(f(*x)))

    return total


def gradients(g):
    return functools.partial(g.gradients, lambda o, lse: (draw(9, *o.shape), draw(10, *lse.shape)))


def squared(g):
    """The gradients of the sum of o^2."""
    return functools.partial(g.gradients, lambda o, lse: (2 * o, 0 * lse))


@pytest.mark.parametrize(("option", "extra"), PAIRS)
def test_forward(option, extra):
    f, g, x = problem(option, extra)
    assert_same(f(*x), g(*x), 16 * (D + T))


@pytest.mark.parametrize(("option", "extra"), PAIRS)
def test_gradients(option, extra):
    f, g, x = problem(option, extra)
    every = tuple(range(len(x)))
    first = jax.grad(scalar(f), every)
    assert_same((first if "none" in (option, extra) else jax.jit(first))(*x), gradients(g)(*x), 64 * (D + T))


@pytest.mark.parametrize(("option", "extra"), [pair for pair in PAIRS if "none" in pair])  # pairs: second derivatives, which use them
def test_tangents(option, extra):
    f, g, x = problem(option, extra)
    t = tuple(draw(20 + n, *y.shape) for n, y in enumerate(x))
    assert_same(jax.jvp(f, x, t), (g(*x), along(g, x, t)), 64 * (D + T))


# The Hessian times a direction, in every way.
SECOND = {
    "jvp of grad": lambda f, every, x, t: jax.jvp(jax.grad(f, every), x, t)[1],
    "grad of grad": lambda f, every, x, t: jax.grad(
        lambda *y: sum(jnp.vdot(a, b) for a, b in zip(jax.grad(f, every)(*y), t, strict=True)), every
    )(*x),
    "grad of jvp": lambda f, every, x, t: jax.grad(lambda *y: jax.jvp(f, y, t)[1], every)(*x),
}


TWICE = [(o, e) for o, e in PAIRS if e != "slopes"]


@pytest.mark.parametrize(("option", "extra", "way"), [(*pair, way) for pair, way in zip(TWICE, itertools.cycle(SECOND))])
def test_second_derivatives(option, extra, way):
    f, g, x = problem(option, extra)
    every, t = tuple(range(len(x))), tuple(draw(30 + n, *y.shape) for n, y in enumerate(x))
    assert_same(jax.jit(functools.partial(SECOND[way], scalar(f), every))(x, t), along(gradients(g), x, t), 512 * (D + T))


STARTS_Q, STARTS_KV = np.array([0, 2, 2, S + 2]), np.array([0, 3, 4, T + 4], np.int32)
PACKED = {
    "none": {}, "causal": {"causal": True}, "window": {"window": (1, 1)}, "bias": {"bias": draw(40, 3, H, S, T)}, "sink": {"sink": draw(41, H)},
    "slopes": {"alibi_slopes": jnp.abs(draw(42, H))}, "mask": {"mask": jnp.asarray(np.random.default_rng(43).random((3, 1, S, T)) < 0.8)},
}


def packed(name):
    """f of packed sequences, the definition of one after the other, and arrays of [tokens, heads, channels]."""
    options = dict(PACKED[name])
    sink = {"sink": options.pop("sink")} if name == "sink" else {}
    longest = {"max_seqlen_q": S, "max_seqlen_kv": T} if name in ("bias", "mask") else {}

    def f(q, k, v, *others, starts=(STARTS_Q, STARTS_KV)):
        mine = options | longest | dict(zip(sink, others, strict=True))
        return finite(attn.attention(q, k, v, layout="thd", cu_seqlens_q=starts[0], cu_seqlens_kv=starts[1], return_lse=True, **mine))

    def one_by_one(q, k, v, grad=None, **options):
        parts, given = [], grad and grad(*one_by_one(q, k, v, **options))
        for b in range(3):
            rows, columns = slice(STARTS_Q[b], STARTS_Q[b + 1]), slice(STARTS_KV[b], STARTS_KV[b + 1])
            one = [np.swapaxes(x[None, at], 1, 2) for x, at in ((q, rows), (k, columns), (v, columns))]
            mine = {name: x[b:b + 1, :, :one[0].shape[2], :one[1].shape[2]] if name in ("bias", "mask") else x for name, x in options.items()}
            parts.append(definition(*one, **mine, grad=grad and (lambda o, lse, rows=rows: [np.swapaxes(x[None, rows], 1, 2) for x in given])))
        if not grad:
            return [np.concatenate([np.swapaxes(x[0], 0, 1) for x in xs]) for xs in zip(*parts, strict=True)]
        return {name: sum(part[name] for part in parts) if name == "sink" else np.concatenate([np.swapaxes(part[name][0], 0, 1) for part in parts]) for name in ("q", "k", "v", *sink)}

    x = (draw(44, S + 2, H, D), draw(45, T + 4, G, D), draw(46, T + 4, G, E))
    return f, Definition(*sink, of=one_by_one, **options), (*x, *sink.values())


@pytest.mark.parametrize("name", PACKED)
def test_packed_sequences(name):
    f, g, x = packed(name)
    everything = tuple(range(len(x)))
    assert_same(f(*x), g(*x), 16 * (D + T))
    assert_same(jax.jit(jax.grad(scalar(f), everything))(*x), gradients(g)(*x), 64 * (D + T) * S)
    if name in ("sink", "bias"):
        t = tuple(draw(47 + n, *y.shape) for n, y in enumerate(x))

        def every_order(x, t):
            return jax.jvp(f, x, t), *(SECOND[way](scalar(f), everything, x, t) for way in ("jvp of grad", "grad of grad"))

        tangents, *second = jax.jit(every_order)(x, t)
        assert_same(tangents, (g(*x), along(g, x, t)), 512 * (D + T) * S)
        assert_same(second, 2 * [along(gradients(g), x, t)], 512 * (D + T) * S)


def test_packed_sequences_under_transformations():
    f, g, x = packed("causal")
    many = [np.stack([y, 2 * y]) for y in x]
    expected = [np.stack(parts) for parts in zip(g(*x), g(*(2 * y for y in x)), strict=True)]
    assert_same(jax.vmap(f)(*many), expected, 16 * (D + T))
    starts = jax.jit(lambda a, b: f(*x, starts=(a, b)))
    assert_same(starts(STARTS_Q, STARTS_KV), g(*x), 16 * (D + T))
    for a, b, name in ((STARTS_Q + [0, 0, 0, 1], STARTS_KV, "q"), (STARTS_Q, np.minimum(STARTS_KV, T + 3), "k"), (STARTS_Q + [0, 9, 0, 0], STARTS_KV, "q")):
        with pytest.raises(Exception, match=f"cu_seqlens_{name}"):
            jax.block_until_ready(starts(a, b))
    assert_same(starts(STARTS_Q, STARTS_KV), g(*x), 16 * (D + T))


def test_some_inputs_only():
    f, g, x = problem("causal", "sink")
    for chosen in ((0,), (1,), (2,), (3,), (0, 3), (1, 2)):
        t = tuple(draw(40 + n, *x[n].shape) for n in chosen)

        def part(*y, chosen=chosen):
            return scalar(f)(*(y[chosen.index(n)] if n in chosen else x[n] for n in range(len(x))))

        some, every = tuple(x[n] for n in chosen), tuple(range(len(chosen)))
        moved = along(gradients(g), x, [t[chosen.index(n)] if n in chosen else np.zeros(y.shape) for n, y in enumerate(x)])
        found = jax.jit(lambda x, t, part=part, every=every: [way(part, every, x, t) for way in SECOND.values()])(some, t)
        assert_same(found, len(SECOND) * [[moved[n] for n in chosen]], 512 * (D + T))


MAPPED = ["all", "extra", "q", "kv", "last axis"]


@pytest.mark.parametrize(("extra", "mapped"), [(e, m) for e in INPUTS for m in (MAPPED if e == "bias b1" else MAPPED[:2])])
def test_vmap(extra, mapped):
    f, g, x = problem("lengths", extra)
    many = tuple(np.stack([y, 2 * y, -y]) for y in x)
    takes = {"q": {0}, "kv": {1, 2}, "extra": set(range(3, len(x))) or {0}, "all": set(range(len(x))), "last axis": {0, 1}}[mapped]
    axis = -1 if mapped == "last axis" else 0
    args = [np.moveaxis(many[n], 0, axis) if n in takes else x[n] for n in range(len(x))]
    axes = [axis if n in takes else None for n in range(len(x))]
    every = tuple(range(len(x)))
    each = [[many[n][one] if n in takes else x[n] for n in every] for one in range(3)]

    def stacked(h):
        return [np.stack(parts) for parts in zip(*(h(y) for y in each), strict=True)]

    t = tuple(draw(50 + n, *y.shape) for n, y in enumerate(x))
    first = jax.grad(scalar(f), every)
    orders = [f, first, lambda *y: jax.jvp(first, y, t)[1]][:2 if extra == "slopes" else 3]
    found = jax.jit(lambda *y: [jax.vmap(h, axes)(*y) for h in orders])(*args)
    assert_same(found[0], stacked(lambda y: g(*y)), 16 * (D + T))
    assert_same(found[1], stacked(lambda y: gradients(g)(*y)), 64 * (D + T))
    if extra != "slopes":
        assert_same(found[2], stacked(lambda y: along(gradients(g), y, t)), 512 * (D + T))


def test_vmap_of_vmap():
    f, g, x = problem("none", "bias b1")
    factors = np.array([[1, -1], [1, 0.5]])
    args = [np.multiply.outer(factors, y) for y in x]
    expected = [np.reshape(parts, (2, 2, *parts[0].shape)) for parts in zip(*(g(*(c * y for y in x)) for c in factors.ravel()), strict=True)]
    assert_same(jax.vmap(jax.vmap(f))(*args), expected, 16 * (D + T))


def test_hessian():
    q, k, v = draw(0, 1, 1, 2, 2), draw(1, 1, 1, 3, 2), draw(2, 1, 1, 3, 2)
    found = jax.jit(jax.hessian(lambda x: (attn.attention(x, k, v) ** 2).sum()))(q)
    columns = [along(lambda x: squared(Definition())(x, k, v)[:1], (q,), (t.reshape(q.shape),))[0] for t in np.eye(q.size)]
    assert_same(found, np.stack(columns, -1).reshape(2 * q.shape), 4096)


def test_transformations():
    f, g, x = problem("causal", "bias")

    def total(*y):
        return f(*y)[0].sum()

    def first(grad_o, *y):
        return g.gradients(lambda o, lse: (np.broadcast_to(grad_o, o.shape), 0 * lse), *y)

    expected = first(1.0, *x)
    assert_same(jax.jit(jax.grad(total, (0, 1, 2, 3)))(*x), expected, 64 * (D + T))
    assert_same(jax.grad(jax.checkpoint(total), (0, 1, 2, 3))(*x), expected, 64 * (D + T))

    def repeated(q, k, v, bias):
        return jax.lax.scan(lambda c, _: (f(c, k, v[..., :1] * jnp.ones(D), bias)[0], 0), q, None, length=3)[0].sum()

    q, k, v, bias = map(np.asarray, x)
    wide, steps = np.repeat(v[..., :1], D, -1), [q]
    for _ in range(2):
        steps.append(g(steps[-1], k, wide, bias)[0])
    grad_o, parts = 1.0, []
    for step in reversed(steps):
        grad_o, *rest = first(grad_o, step, k, wide, bias)
        parts.append(rest)
    grad_k, grad_v, grad_bias = (sum(xs) for xs in zip(*parts, strict=True))
    grad_v = np.concatenate([grad_v.sum(-1, keepdims=True), np.zeros(v.shape)[..., 1:]], -1)
    assert_same(jax.grad(repeated, (1, 2, 3))(*x), (grad_k, grad_v, grad_bias), 512 * (D + T))


@pytest.mark.skipif(len(jax.devices()) < 2, reason="one device")
@pytest.mark.skipif(OLD, reason="shard_map needs JAX 0.7")
def test_shard_map():
    x, g = arrays(), Definition(causal=True)
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:2]), ("batch",))
    spec = jax.sharding.PartitionSpec("batch")
    f = jax.shard_map(lambda *y: attn.attention(*y, causal=True), mesh=mesh, in_specs=(spec, spec, spec), out_specs=spec)

    def total(*y):
        return (f(*y) ** 2).sum()

    t = [draw(60 + n, *y.shape) for n, y in enumerate(x)]
    first = jax.grad(total, (0, 1, 2))
    found = jax.jit(lambda *y: (f(*y), first(*y), jax.jvp(first, y, tuple(t))[1]))(*x)
    assert_same(found[0], g(*x)[0], 16 * (D + T))
    assert_same(found[1], squared(g)(*x), 64 * (D + T))
    assert_same(found[2], along(squared(g), x, t), 512 * (D + T))


def test_types():
    for dtype, exact in ((jnp.float32, jnp.float32), (jnp.float16, jnp.float32), (jnp.bfloat16, jnp.float32), (jnp.float64, jnp.float64)):
        x = [y.astype(dtype) for y in arrays()]
        o, lse = attn.attention(*x, return_lse=True)
        assert o.dtype == dtype and lse.dtype == exact
        exactly = [np.asarray(y).astype(float) for y in x]
        bound = (float(jnp.finfo(dtype).eps) + 16 * (D + T) * float(jnp.finfo(exact).eps)) * abs(exactly[2]).max()
        assert abs(np.asarray(o).astype(float) - definition(*exactly)[0]).max() <= bound
        grads = jax.grad(lambda *y: attn.attention(*y).astype(jnp.float32).sum(), (0, 1, 2))(*x)
        assert all(grad.dtype == dtype for grad in grads)


def test_dot_product_attention_is_that_of_jax():
    q, k, v = (draw(70 + n, B, T, heads, D).astype(jnp.float32) for n, heads in enumerate((H, G, G)))
    q = q[:, :S]
    bias, mask = draw(74, B, 1, S, T), jnp.asarray(np.random.default_rng(75).random((1, H, S, T)) < 0.8).at[..., 0].set(True)
    cases = (
        {}, {"scale": 0.2}, {"bias": bias.astype(jnp.float32)}, {"mask": mask}, {"is_causal": True}, {"local_window_size": 3},
        {"local_window_size": (2, 1)}, {"key_value_seq_lengths": jnp.array([5, T], jnp.int32)}, {"mask": mask, "is_causal": True},
        {"return_residual": True},
    )
    if "return_residual" not in inspect.signature(jax.nn.dot_product_attention).parameters:  # such a JAX forgets a window without a mask
        cases = [options for options in cases if not {"return_residual", "local_window_size"} & set(options)]
    one = ([options, (q[0], k[0], v[0])] for options in cases if not {"mask", "bias", "key_value_seq_lengths"} & set(options))
    calls = [*([options, (q, k, v)] for options in cases), *one]
    expected = jax.jit(lambda: [jax.nn.dot_product_attention(*x, **options) for options, x in calls])()
    for (options, x), want in zip(calls, expected, strict=True):
        assert_same(attn.dot_product_attention(*x, **options), want, 16 * (D + T), np.finfo(np.float32).eps)


def test_dropout():
    x = tuple(arrays())
    once = attn.attention(*x, dropout=0.4, seed=3)
    assert (once == attn.attention(*x, dropout=0.4, seed=jnp.uint32(3))).all() and (once != attn.attention(*x, dropout=0.4, seed=4)).any()
    assert attn.attention(*x, dropout=0.4, seed=jax.random.key(1)).shape == once.shape
    jitted = jax.jit(lambda seed: attn.attention(*x, dropout=0.4, seed=seed))
    assert (jitted(3) == once).all() and (jitted(4) != once).any()
    # The weights that forward drops, from values that are unit vectors; then backward by finite differences is the chain rule's.
    kept = attn.attention(x[0], x[1], jnp.broadcast_to(jnp.eye(T), (B, G, T, T)), dropout=0.4, seed=3)
    weights = attn.attention(x[0], x[1], jnp.broadcast_to(jnp.eye(T), (B, G, T, T)))
    np.testing.assert_allclose(kept, weights * np.where(kept != 0, 1 / 0.6, 0), rtol=1e-13)

    def total(*y):
        return (attn.attention(*y, dropout=0.4, seed=3) ** 2).sum()

    t, g = tuple(draw(80 + n, *y.shape) for n, y in enumerate(x)), squared(Definition(keep=np.where(kept != 0, 1 / 0.6, 0)))
    assert_same(jax.grad(total, (0, 1, 2))(*x), g(*x), 64 * (D + T))
    moved = along(g, x, t)
    for way in SECOND.values():
        assert_same(way(total, (0, 1, 2), x, t), moved, 512 * (D + T))


def test_same_bits():
    x = [draw(90 + n, 1, 8, 300, 64).astype(jnp.float32) for n in range(3)]
    f = jax.jit(lambda *y: attn.attention(*y, causal=True))
    assert all((f(*x) == f(*x)).all() for _ in range(5))
    np.testing.assert_array_equal(f(*x), libattn.attention(*map(np.asarray, x), causal=True, threads=1))


def test_empty():
    q, k, v = arrays()
    assert attn.attention(q[:0], k[:0], v[:0]).shape == (0, H, S, E)
    assert (attn.attention(q, k[:, :, :0], v[:, :, :0]) == 0).all()
    assert jax.grad(lambda x: attn.attention(x, k[:, :, :0], v[:, :, :0]).sum())(q).shape == q.shape


Q, K, V = arrays()
WRONG = {
    "axes": (ValueError, "q has 3 axes, not 4", lambda: attn.attention(Q[0], K, V)),
    "heads": (ValueError, r"heads_q \(3\) is not a multiple of heads_kv \(2\)", lambda: attn.attention(Q[:, :3], K, V)),
    "type": (TypeError, "k has type int64", lambda: attn.attention(Q, K.astype(jnp.int64), V)),
    "mixed": (NotImplementedError, "f64", lambda: attn.attention(Q, K.astype(jnp.float32), V)),
    "mask type": (TypeError, "mask has type float64, not bool", lambda: attn.attention(Q, K, V, mask=jnp.ones((S, T)))),
    "mask shape": (ValueError, r"mask has shape \(4, 7\), which does not broadcast", lambda: attn.attention(Q, K, V, mask=jnp.ones((4, T), bool))),
    "sink": (ValueError, r"sink has shape \(3,\), not \(4,\)", lambda: attn.attention(Q, K, V, sink=jnp.ones(3))),
    "lengths": (TypeError, "lengths_kv has type float64", lambda: attn.attention(Q, K, V, lengths_kv=jnp.ones(2))),
    "length": (Exception, "lengths_kv", lambda: attn.attention(Q, K, V, lengths_kv=jnp.array([3, 99])).block_until_ready()),
    "layout": (ValueError, "layout is 'sbhd'", lambda: attn.attention(Q, K, V, layout="sbhd")),
    "causal": (ValueError, "causal is 'yes'", lambda: attn.attention(Q, K, V, causal="yes")),
    "align": (ValueError, "align is 'left'", lambda: attn.attention(Q, K, V, align="left")),
    "window": (ValueError, "window is", lambda: attn.attention(Q, K, V, window=(1, 2, 3))),
    "softcap": (ValueError, "softcap", lambda: attn.attention(Q, K, V, softcap=-1.0)),
    "scale": (ValueError, "scale", lambda: attn.attention(Q, K, V, scale=float("nan"))),
    "scale of heads": (ValueError, r"^scale has shape \(4,\); it must be one number; multiply q by it, and pass scale=1.0$", lambda: attn.attention(Q, K, V, scale=jnp.ones(H))),
    "scale of text": (TypeError, "^scale is 'large'; it must be a number$", lambda: attn.attention(Q, K, V, scale="large")),
    "traced scale": (TypeError, "^scale is traced by JAX .* it must be known .*; multiply q by it, and pass scale=1.0", lambda: jax.jit(lambda x: attn.attention(Q, K, V, scale=x))(0.5)),
    "traced softcap": (TypeError, "^softcap is traced by JAX", lambda: jax.grad(lambda x: attn.attention(Q, K, V, softcap=x).sum())(5.0)),
    "traced dropout": (TypeError, "^dropout is traced by JAX", lambda: jax.jit(lambda x: attn.attention(Q, K, V, dropout=x))(0.5)),
    "traced window": (TypeError, "^window is traced by JAX", lambda: jax.jit(lambda x: attn.attention(Q, K, V, window=(x, 0)))(2)),
    "traced causal": (TypeError, "^causal is traced by JAX", lambda: jax.jit(lambda x: attn.attention(Q, K, V, causal=x))(True)),
    "window of a fraction": (TypeError, "^window is 1.5; it must be an integer", lambda: attn.attention(Q, K, V, window=1.5)),
    "dropout": (ValueError, "dropout", lambda: attn.attention(Q, K, V, dropout=1.5)),
    "seed": (ValueError, "seed", lambda: attn.attention(Q, K, V, dropout=0.5, seed=-1)),
    "lengths of k and v": (ValueError, "v has", lambda: attn.attention(Q, K, V[:, :, :3])),
    "batch": (ValueError, "k has", lambda: attn.attention(Q, K[:1], V)),
    "channels": (ValueError, "k has", lambda: attn.attention(Q, K[..., :3], V)),
    "packed": (ValueError, "cu_seqlens_q is missing", lambda: attn.attention(Q[0], K[0], V[0], layout="thd")),
    "starts": (ValueError, "cu_seqlens_kv is set", lambda: attn.attention(Q, K, V, cu_seqlens_kv=jnp.array([0, T]))),
    "numbers of starts": (ValueError, "sequences", lambda: attn.attention(Q[0], K[0], V[0], layout="thd", cu_seqlens_q=jnp.array([0, 2, 5]), cu_seqlens_kv=jnp.array([0, 7]))),
    "type of starts": (ValueError, "cu_seqlens_q has shape", lambda: attn.attention(Q[0], K[0], V[0], layout="thd", cu_seqlens_q=jnp.zeros(2), cu_seqlens_kv=jnp.array([0, 7]))),
    "third": (NotImplementedError, "third", lambda: jax.grad(lambda x: jax.grad(lambda y: jax.grad(lambda z: attn.attention(z, K, V).sum())(y).sum())(x).sum())(Q)),
    "jvp of jvp": (NotImplementedError, "jax.jvp of jax.grad", lambda: jax.jvp(lambda y: jax.jvp(lambda z: attn.attention(z, K, V), (y,), (y,))[1], (Q,), (Q,))),
    "slopes": (NotImplementedError, "alibi_slopes", lambda: jax.jvp(jax.grad(lambda y: attn.attention(Q, K, V, alibi_slopes=y).sum()), (jnp.ones(H),), (jnp.ones(H),))),
}


@pytest.mark.parametrize("name", WRONG)
def test_errors(name):
    kind, sentence, call = WRONG[name]
    with pytest.raises(kind, match=sentence):
        call()


def test_options_of_numpy_and_jax():
    expected = attn.attention(Q, K, V, scale=0.5, softcap=3.0, window=(2, 2))
    assert (attn.attention(Q, K, V, scale=jnp.float32(0.5), softcap=np.float64(3), window=np.int32(2)) == expected).all()
    assert (jax.jit(lambda x: attn.attention(x * 0.5, K, V, scale=1.0))(Q) == attn.attention(Q * 0.5, K, V, scale=1.0)).all()
    for on, truth in ((np.bool_(False), False), (0, False), (np.bool_(True), True), (1, True)):
        assert (attn.attention(Q, K, V, causal=on) == attn.attention(Q, K, V, causal=truth)).all(), on


def test_a_failed_call_leaves_nothing_behind():
    f = jax.jit(lambda n: attn.attention(Q, K, V, lengths_kv=n))
    for _ in range(3):
        with pytest.raises(Exception, match="lengths_kv"):
            f(jnp.array([1, T + 1])).block_until_ready()
        assert_same(f(jnp.array([2, T])), definition(Q, K, V, lengths_kv=jnp.array([2, T]))[0], 16 * (D + T))


def test_layout_of_structs():
    """The declarations of python/xla/ffi.h are those of the header that jaxlib ships."""
    import jaxlib

    include = pathlib.Path(jaxlib.__file__).parent / "include"
    source = pathlib.Path(__file__).parent / "xla_layout.c"
    compiler = shutil.which("cc")
    if not (include / "xla/ffi/api/c_api.h").exists():
        pytest.skip("this jaxlib ships no header")
    if not compiler:
        pytest.skip("there is no C compiler")
    subprocess.run([compiler, "-std=c11", "-fsyntax-only", "-I", include, "-I", source.resolve().parent.parent, source], check=True)


@pytest.mark.slow
def test_memory_stays():
    x = [y.astype(jnp.float32) for y in arrays()]
    f = jax.jit(lambda *y: attn.attention(*y, causal=True))
    nothing_leaks(lambda: f(*x).block_until_ready(), 5000)
