# SPDX-License-Identifier: MIT
"""libattn.jax.sharded_attention: the bits of libattn.distributed, on any number of devices, and near one plain call."""
import os

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

import libattn.jax as attn  # noqa: E402
from libattn import distributed  # noqa: E402

jax.config.update("jax_disable_most_optimizations", True)  # of what runs for milliseconds
if tuple(map(int, jax.__version__.split(".")[:2])) < (0, 7):
    pytest.skip("shard_map needs JAX 0.7", allow_module_level=True)
if len(jax.devices()) < 8:  # another test file in this process
    pytest.skip("fewer than 8 devices", allow_module_level=True)

P = jax.sharding.PartitionSpec
B, H, G, S, D, E, PART = 2, 4, 2, 64, 8, 6, 8


def draw(seed, *shape, dtype=np.float32):
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def rows(dtype=np.float32, keys=S):
    return draw(0, B, H, S, D, dtype=dtype), draw(1, B, G, keys, D, dtype=dtype), draw(2, B, G, keys, E, dtype=dtype)


SEES = np.random.default_rng(3).random((B, 1, S, S)) < 0.8
# Options, and arrays that have a gradient.
CASES = {
    "sink": ({"causal": True, "dropout": 0.3, "seed": 5, "return_lse": True}, {"sink": draw(5, H)}),
    "mask": ({"mask": SEES, "window": (9, 3), "softcap": 2.0, "scale": 0.3}, {"bias": draw(6, B, H, S, S)}),
    "slopes": ({"causal": True, "window": (9, 0), "layout": "bshd", "return_lse": True}, {"alibi_slopes": abs(draw(4, H))}),
    "a bias of all heads and keys": ({"causal": True}, {"bias": draw(7, 1, 1, S, 1)}),
    "a bias of all queries": ({"window": (20, 3), "dtype": np.float16}, {"bias": draw(8, B, H, 1, S, dtype=np.float16)}),
    "bfloat16": ({"causal": True, "window": 11, "dtype": jnp.bfloat16}, {}),
    "float16, other keys": ({"dropout": 0.1, "dtype": np.float16, "keys": 128, "align": "top-left", "causal": True}, {}),
}


def specs(layout, others):
    """Of q, k and v, and of options."""
    row = P(None, "s", None, None) if layout == "bshd" else P(None, None, "s", None)
    return row, [P(None, None, "s", None) if name in ("bias", "mask") and x.shape[2] > 1 else P() for name, x in others.items()]


def by_devices(name, devices, checked=True):
    """o, (lse,) and gradients, computed by a number of devices."""
    given, inputs = CASES[name]
    options = dict(given)
    x = rows(options.pop("dtype", np.float32), options.pop("keys", S))
    mask = {"mask": options.pop("mask")} if "mask" in options else {}
    row, other = specs(options.get("layout"), {**inputs, **mask})
    if options.get("layout") == "bshd":
        x = [y.swapaxes(1, 2) for y in x]
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:devices]), ("s",))
    shape = (row, P(None, None, "s") if row[1] is None else P(None, "s", None)) if options.get("return_lse") else row

    def local(q, k, v, *more):
        return attn.sharded_attention(q, k, v, axis_name="s", part=PART, **options, **dict(zip([*inputs, *mask], more, strict=True)))

    f = jax.shard_map(local, mesh=mesh, in_specs=(row, row, row, *other), out_specs=shape, check_vma=checked)

    def both(*y):
        found, back = jax.vjp(lambda *z: f(*z, *mask.values()), *y)
        gradients = jax.tree.map(lambda z: jnp.sin(jnp.arange(z.size, dtype=jnp.float32)).reshape(z.shape).astype(z.dtype), found)
        return found, back(gradients), gradients

    found, grads, gradients = jax.jit(both)(*x, *inputs.values())
    return [np.asarray(y) for y in jax.tree.leaves((found, grads))], jax.tree.leaves(gradients)


def by_ranks(name, gradients):
    """The same by libattn.distributed, over three ranks."""
    given, inputs = CASES[name]
    options = {"align": "bottom-right", **given}
    x = rows(options.pop("dtype", np.float32), options.pop("keys", S))
    axes, lse = options.pop("layout", "bhsd"), options.pop("return_lse", False)
    x = [y.swapaxes(1, 2) for y in x] if axes == "bshd" else x
    token = 1 if axes == "bshd" else 2
    if "dropout" not in options:
        options.pop("seed", None)
    if options.pop("causal", False):
        options["causal"] = options["align"]
    options |= inputs

    def on_rank(group):
        how = {"group": group, "layout": "zigzag", "part": PART}
        mine = [distributed.shard(y, token, of=of, **how) for y, of in zip(x, ("q", "kv", "kv"), strict=True)]
        own = {key: distributed.shard(y, 2, **how) if key in ("bias", "mask") and y.shape[2] > 1 else y for key, y in options.items()}
        o, one = distributed.attention(*mine, **how, axes=axes, return_lse=True, **own)
        grad_lse = distributed.shard(np.asarray(gradients[1]), token if axes == "bshd" else 2, **how) if lse else None
        grads = distributed.attention_backward(
            *mine, o, one, distributed.shard(np.asarray(gradients[0]), token, **how), grad_lse=grad_lse, grads=tuple(inputs), **how, axes=axes, **own)
        found = [distributed.unshard(y, token, of=of, **how) for y, of in zip((o, *grads[:3]), ("q", "q", "kv", "kv"), strict=True)]
        if lse:
            found.insert(1, distributed.unshard(one, token if axes == "bshd" else 2, **how))
        return found + [distributed.unshard(y, 2, **how) if key == "bias" and inputs[key].shape[2] > 1 else y for key, y in zip(inputs, grads[3:], strict=True)]

    return distributed.in_threads(3, on_rank)[0]


@pytest.mark.parametrize("name", CASES)
def test_bits(name):
    one, gradients = by_devices(name, 1)
    for number, y in enumerate(by_ranks(name, gradients)):
        assert y.shape == one[number].shape and y.dtype == one[number].dtype
        assert np.array_equal(y, one[number]), f"result {number} of libattn.distributed"
    devices = (2, 4, 8)[list(CASES).index(name) % 3]
    for checked in (True, False) if name == "sink" else (True,):
        for number, (x, y) in enumerate(zip(one, by_devices(name, devices, checked)[0], strict=True)):
            assert x.tobytes() == y.tobytes(), f"result {number} on {devices} devices"


def test_transformations():
    """vmap, checkpoint and a mesh of two axes; against a plain call."""
    q, k, v = (np.stack([y, y[::-1]]) for y in rows())
    mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(2, 4), ("b", "s"))
    row = P("b", None, "s", None)
    f = jax.shard_map(lambda *x: attn.sharded_attention(*x, axis_name="s", part=PART, causal=True), mesh=mesh, in_specs=(row, row, row), out_specs=row)

    def total(g):
        return jax.grad(lambda *x: (jax.vmap(g)(*x) ** 2).sum(), (0, 1, 2))

    found = jax.jit(total(jax.checkpoint(f)))(q, k, v)
    expected = total(lambda *x: attn.attention(*x, causal=True))(q, k, v)
    for x, y in zip(found, expected, strict=True):
        assert abs(np.asarray(x) - np.asarray(y)).max() < 2e-5 * (1 + abs(np.asarray(y)).max())


def test_errors():
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:2]), ("s",))
    row = P(None, None, "s", None)

    def run(x=None, bias=None, differentiates=False, **options):
        def local(*y):
            return attn.sharded_attention(*y, axis_name="s", bias=bias, **{"part": PART, **options})

        f = jax.shard_map(local, mesh=mesh, in_specs=(row, row, row), out_specs=row)
        x = rows() if x is None else x
        return jax.grad(lambda *y: f(*y).sum())(*x) if differentiates else f(*x)

    for kind, sentence, options in (
        (ValueError, "each of 2 devices has 32 queries, in parts of 12; ", {"part": 12}),
        (ValueError, "each of 2 devices has 32 queries, in parts of 64; ", {"part": 64}),
        (ValueError, "part is 0; it must be at least 1", {"part": 0}),
        (TypeError, "part is of type float; it must be an integer", {"part": 8.0}),
        (NotImplementedError, "lengths_kv is not available over devices", {"lengths_kv": [32] * B}),
        (TypeError, "'is_causal' is not an option or a tensor of attention; write causal=True", {"is_causal": True}),
        (ValueError, "layout is 'thd', not 'bhsd' or 'bshd'", {"layout": "thd"}),
        (ValueError, "dropout", {"dropout": 2.0}),
        (ValueError, r"bias has shape \(32, 32\), which does not broadcast to", {"bias": jnp.zeros((32, 32))}),
        (NotImplementedError, "64 queries and 128 keys at the bottom right", {"x": rows(keys=128), "causal": True}),
    ):
        with pytest.raises(kind, match=sentence):
            run(**options)
    with pytest.raises(ValueError, match="each of 2 devices has 24 queries, in parts of 8"):
        run([y[:, :, :48] for y in rows()])
    q, k, v = rows()
    part = np.int64(PART)  # no int, but an integer
    found = jax.jit(lambda *x: run(x, part=part, differentiates=True))(q, k[:, :, :0], v[:, :, :0])
    assert found.shape == q.shape and not np.asarray(found).any()


def test_second_derivatives_are_refused():
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("s",))
    row = P(None, None, "s", None)
    f = jax.shard_map(lambda *x: attn.sharded_attention(*x, axis_name="s", part=PART), mesh=mesh, in_specs=(row, row, row), out_specs=row)
    q, k, v = rows()
    with pytest.raises(NotImplementedError, match="second derivatives of sharded_attention"):
        jax.make_jaxpr(jax.grad(lambda x: (jax.grad(lambda y: (f(y, k, v) ** 2).sum())(x) ** 2).sum()))(q)
