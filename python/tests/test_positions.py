# SPDX-License-Identifier: MIT
"""Positions against their formulas in double; the golden numbers of RoPE and ALiBi."""
import numpy as np
import pytest

import libattn
from libattn import _abi, positions
from libattn.positions import DistanceBias, Rope
from problems import EPS, arrays, close

UNIT = {np.dtype(np.float64): 2.0**-53, np.dtype(np.float32): 2.0**-24, np.dtype(np.float16): 2.0**-11}


def rotated(x, where, angles_of, pairs, width, magnitude=1.0):
    """The definition; angles_of[i] times the position is the angle of pair i."""
    y = x.astype(float)
    angle = np.asarray(where, float)[..., None, :, None] * angles_of
    c, s = magnitude * np.cos(angle), magnitude * np.sin(angle)
    first, second = np.s_[..., 0:width:2], np.s_[..., 1:width:2]
    if pairs == "halves":
        first, second = np.s_[..., :width // 2], np.s_[..., width // 2:width]
    a, b = y[first].copy(), y[second].copy()
    y[first], y[second] = a * c - b * s, a * s + b * c
    return y


def frequencies(width, base=10000.0):
    return base ** (-np.arange(0, width, 2) / width)


# Angles are positions (up to 40 here) times powers with a few roundings; a rotated number is two products of them.
def room(x, width, dtype):
    size = np.abs(x.astype(float)).max()
    return size * (2 * UNIT[np.dtype(dtype)] + 2 * (4 + 40 * 8) * EPS)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
@pytest.mark.parametrize("pairs", ["interleaved", "halves"])
@pytest.mark.parametrize("width", [8, 4])
def test_rope(pairs, width, dtype):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 3, 5, 8)).astype(dtype)
    where = rng.integers(0, 40, (2, 5))
    rope = Rope(pairs=pairs, dim_rotary=width)
    y = rope(x, where)
    assert y.dtype == dtype
    close(y, rotated(x, where, frequencies(width), pairs, width), room(x, width, dtype))
    close(rope(x[0], where[0].astype(np.int32)), y[0], 0)
    close(rope(x[0, 0]), rotated(x[0, :1], np.arange(5), frequencies(width), pairs, width)[0], room(x, width, dtype))
    close(rope.inverse(rope(x.astype(float), where), where), x.astype(float), 4 * room(x.astype(float), width, float))
    out = x.copy()
    assert rope(out, where, out=out) is out
    close(out, y, 0)
    assert rope(x, where, out=np.empty(x.shape, np.float64)).dtype == np.float64


def test_rope_options():
    rng = np.random.default_rng(1)
    x = rng.standard_normal((1, 2, 6, 8))
    own = rng.random(4)
    where = np.arange(6)
    near = room(x, 8, float) * 4
    close(Rope(base=100.0)(x), rotated(x, where, frequencies(8, 100.0), "interleaved", 8), near)
    close(Rope(stretch=4.0)(x), rotated(x, where / 4, frequencies(8), "interleaved", 8), near)
    close(Rope(frequencies=own, magnitude=1.5)(x), rotated(x, where, own, "interleaved", 8, 1.5), near)
    table = rng.standard_normal((2, 9, 4))
    tables = Rope(cosines=table[0], sines=table[1], pairs="halves")
    c, s = table[:, 2:8]
    want = np.concatenate([x[..., :4] * c - x[..., 4:] * s, x[..., :4] * s + x[..., 4:] * c], -1)
    close(tables(x, where + 2), want, 8 * EPS * np.abs(want).max() + 8 * EPS)
    with pytest.raises(ValueError, match="the tables have 9 rows"):
        tables(x, where + 4)


def test_golden_rope():
    x = np.array([[1.0, 0, 1, 0]])
    close(Rope()(x, [2]), [[-0.4161, 0.9093, 0.9998, 0.0200]], 5e-5)
    close(Rope(base=100.0)(x, [2]), [[-0.4161, 0.9093, 0.9801, 0.1987]], 5e-5)


def test_scores_depend_on_differences():
    rng = np.random.default_rng(2)
    q, k = rng.standard_normal((2, 1, 16))
    rope = Rope(pairs="halves")
    close([rope(q, [i + 7])[0] @ rope(k, [i])[0] for i in (0, 5, 29)], np.full(3, rope(q, [7])[0] @ k[0]), 1e-12)


def yarn(dim, factor, length, base=10000.0, fast=32.0, slow=1.0):
    f = frequencies(dim, base)
    ends = [dim * np.log(length / (2 * np.pi * turns)) / (2 * np.log(base)) for turns in (fast, slow)]
    a, b = np.floor(ends[0]), np.ceil(ends[1])
    r = np.clip((np.arange(dim // 2) - a) / (b - a), 0, 1)
    return (1 - r) * f + r * f / factor


def llama3(dim, factor, length, base, fast=4.0, slow=1.0):
    f = frequencies(dim, base)
    s = np.clip((length * f / (2 * np.pi) - slow) / (fast - slow), 0, 1)
    return (1 - s) * f / factor + s * f


@pytest.mark.parametrize("arguments, want", [
    (("linear", 8, 4.0), frequencies(8) / 4), (("ntk", 8, 4.0), frequencies(8, 10000 * 4 ** (8 / 6))),
    (("ntk_dynamic", 8, 2.0, {"original_length": 100, "length": 300}), frequencies(8, 10000 * (2 * 300 / 100 - 1) ** (8 / 6))),
    (("ntk_dynamic", 8, 2.0, {"original_length": 100, "length": 80}), frequencies(8)),
    (("yarn", 64, 8.0, {"original_length": 4096}), yarn(64, 8.0, 4096)),
    (("llama3", 64, 8.0, {"original_length": 8192, "base": 500000.0}), llama3(64, 8.0, 8192, 500000.0)),
    (("llama3", 64, 8.0, {"original_length": 8192, "base": 500000.0, "fast": 3, "slow": 2}), llama3(64, 8.0, 8192, 500000.0, 3.0, 2.0)),
])
def test_rope_frequencies(arguments, want):
    found = positions.rope_frequencies(*arguments[:3], **(arguments[3] if len(arguments) > 3 else {}))
    close(found.frequencies, want, 64 * EPS * want)
    assert found.magnitude == pytest.approx(0.1 * np.log(8) + 1 if arguments[0] == "yarn" else 1.0, rel=1e-15)


@pytest.mark.parametrize("channels", [6, 7])
def test_sinusoidal(channels):
    where = np.array([0, 3, 31])
    angles = where[:, None] * 10000.0 ** (-2 * np.arange((channels + 1) // 2) / channels)
    sines, cosines = np.sin(angles), np.cos(angles)[:, :channels // 2]
    want = np.empty((3, channels))
    want[:, 0::2], want[:, 1::2] = sines, cosines
    close(positions.sinusoidal(3, channels, positions=where, dtype=np.float64), want, 31 * 8 * EPS)
    close(positions.sinusoidal(3, channels, positions=where), want, 2.0**-24)
    halves = positions.sinusoidal(3, channels, positions=where, order="halves", dtype=np.float64)
    close(halves, np.concatenate([sines, cosines], 1), 31 * 8 * EPS)
    out = np.empty((3, channels), np.float16)
    assert positions.sinusoidal(3, channels, out=out) is out and out[0, 0] == 0
    close(positions.sinusoidal(3, channels, base=7.0, dtype=np.float64)[:, 0], np.sin(np.arange(3)), 16 * EPS)


def test_learned_positions():
    rng = np.random.default_rng(3)
    x, table, where = rng.standard_normal((2, 3, 5, 4)), rng.standard_normal((9, 4)), rng.integers(0, 9, (2, 5))
    close(positions.add(x, table, where), x + table[where][:, None], EPS * 8)
    close(positions.add(x[0], table), x[0] + table[:5], EPS * 8)
    want = np.zeros((9, 4))
    for b in range(2):
        for t in range(5):
            want[where[b, t]] += x[b, :, t].sum(0)
    close(positions.add_backward(x, 9, where), want, 30 * EPS * np.abs(x).sum((0, 1, 2)))
    for bad in (9, -1):
        with pytest.raises(ValueError, match="position"):
            positions.add(x, table, np.full(5, bad))
    with pytest.raises(ValueError, match="table has 3 channels"):
        positions.add(x, table[:, :3])


@pytest.mark.parametrize("rows", [1, 4, 7, 20])
def test_resize(rows):
    rng = np.random.default_rng(4)
    x = rng.standard_normal((7, 3))
    spread = np.zeros((rows, 7))
    for t in range(rows):
        s = max((t + 0.5) * 7 / rows - 0.5, 0)
        low = min(int(s), 6)
        high = min(low + 1, 6)
        spread[t, low] += 1 - (s - low if high > low else 0)
        spread[t, high] += s - low if high > low else 0
    grad = rng.standard_normal((rows, 3))
    close(positions.resize(x, rows), spread @ x, 32 * EPS * np.abs(x).max())
    close(positions.resize_backward(grad, 7), spread.T @ grad, 64 * EPS * np.abs(grad).sum(0).max())
    assert positions.resize(x.astype(np.float32), rows).dtype == np.float32


def test_alibi_slopes():
    close(positions.alibi_slopes(8), 2.0 ** -np.arange(1, 9), 0)
    # 12 heads: those of 8, then every other one of 16.
    close(positions.alibi_slopes(12, dtype=np.float64), [*2.0 ** -np.arange(1, 9), *2.0 ** -np.array([0.5, 1.5, 2.5, 3.5])], 4 * EPS)


def t5(d, buckets=32, most=128, causal=False):
    n, offset = (max(d, 0), 0) if causal else (abs(d), buckets // 2 if d < 0 else 0)
    count = buckets if causal else buckets // 2
    exact = count // 2
    if n < exact:
        return offset + n
    return offset + min(count - 1, exact + int(np.log(n / exact) / np.log(most / exact) * (count - exact) + 1e-12))


@pytest.mark.parametrize("rule, bucket, count", [
    (DistanceBias("t5"), t5, 32), (DistanceBias("t5", causal=True), lambda d: t5(d, causal=True), 32),
    (DistanceBias("t5", buckets=8, max_distance=20), lambda d: t5(d, 8, 20), 8),
    (DistanceBias("clipped", max_distance=3), lambda d: min(max(d, -3), 3) + 3, 7),
])
def test_distance_bias(rule, bucket, count):
    assert rule.number_of_buckets == count
    assert [rule.bucket(d) for d in range(-300, 301)] == [bucket(d) for d in range(-300, 301)]
    rng = np.random.default_rng(5)
    table = rng.standard_normal((2, count))
    which = np.array([[bucket(i + 4 - j) for j in range(9)] for i in range(6)])
    close(rule.matrix(table, 6, 9, offset_q=4), table[:, which], 0)
    q, k, v = (rng.standard_normal((1, 2, n, 4)) for n in (6, 9, 9))
    o = libattn.attention(q, k, v, offset_q=[4], **rule.arguments(table))
    close(o, libattn.attention(q, k, v, bias=rule.matrix(table, 6, 9, offset_q=4)), 1e-14 * 9 * np.abs(v).max())
    grad = rng.standard_normal((2, 6, 9))
    want = np.stack([np.bincount(which.ravel(), one.ravel(), count) for one in grad])
    close(rule.backward(grad, offset_q=4), want, 54 * EPS * np.abs(grad).sum())
    assert rule.matrix(table.astype(np.float32), 2, 2).dtype == np.float32


def gate(q, w, b, a):
    z = q @ w + b
    half = w.shape[1] // 2
    u, r = (1 / (1 + np.exp(-one.sum(-1))) for one in (z[..., :half], z[..., half:]))
    return u * (r * np.reshape(a, (-1, 1)) - 1) + 2


def test_bias_gate():
    rng = np.random.default_rng(6)
    tensors = {"q": rng.standard_normal((2, 3, 5, 4)), "w": rng.standard_normal((4, 6)) / 2}
    tensors |= {"b": rng.standard_normal(6), "a": rng.random(3)}
    size = (np.abs(tensors["q"]) @ np.abs(tensors["w"])).sum(-1) + np.abs(tensors["b"]).sum() + 8
    close(positions.bias_gate(**tensors), gate(**tensors), 16 * EPS * size)
    grad = rng.standard_normal((2, 3, 5))
    found = positions.bias_gate_backward(**tensors, grad_gates=grad)
    for name, x in tensors.items():
        way = rng.standard_normal(x.shape)
        slope = sum(sign * (gate(**{**tensors, name: x + sign * 1e-5 * way}) * grad).sum() for sign in (1, -1)) / 2e-5
        got = getattr(found, name)
        assert got.shape == x.shape and (got * way).sum() == pytest.approx(slope, abs=1e-7 * (1 + abs(slope)))
    single = positions.bias_gate(tensors["q"], tensors["w"], tensors["b"], 0.5)
    close(single, gate(tensors["q"], tensors["w"], tensors["b"], [0.5]), 16 * EPS * size)
    shared = positions.bias_gate_backward(tensors["q"], tensors["w"], tensors["b"], np.array([0.5]), grad)
    apart = positions.bias_gate_backward(tensors["q"], tensors["w"], tensors["b"], np.full(3, 0.5), grad)
    close(shared.a, [apart.a.sum()], 4 * EPS * np.abs(apart.a).sum())


@arrays
def test_libraries(make):
    x = make(np.random.default_rng(7).standard_normal((1, 2, 3, 4)))
    for y in (Rope()(x), positions.add(x, make(np.zeros((3, 4))))):
        assert type(y) is type(x)
    assert type(positions.resize(make(np.zeros((3, 4))), 5)) is type(x)


X = np.zeros((2, 3, 5, 8))


@pytest.mark.parametrize("make, kind, message", [
    (lambda: Rope(dim_rotary=3)(X), ValueError, "an even number"),
    (lambda: Rope(dim_rotary=10)(X), ValueError, "dim_rotary"),
    (lambda: Rope(pairs="both")(X), ValueError, "pairs is 'both'"),
    (lambda: Rope(base=0)(X), ValueError, "base is 0"),
    (lambda: Rope(frequencies=[1.0])(X), ValueError, "frequencies has shape"),
    (lambda: Rope(cosines=[[1.0] * 4])(X), ValueError, "sines is missing"),
    (lambda: Rope(cosines=np.zeros((3, 4)), sines=np.zeros((2, 4)))(X), ValueError, "sines has shape"),
    (lambda: Rope()(X, np.zeros((3, 5), int)), ValueError, "positions has shape"),
    (lambda: Rope()(X, [0.5] * 5), TypeError, "positions has type"),
    (lambda: Rope()(X.astype(int)), TypeError, "x has type"),
    (lambda: Rope()(X, out=np.empty((2, 3, 5, 7))), ValueError, "out has shape"),
    (lambda: Rope()(X, out=np.empty(X.shape, np.int8)), (NotImplementedError, TypeError, ValueError), "y|out"),
    (lambda: positions.rope_frequencies("ntk", 2, 2.0), ValueError, "dim"),
    (lambda: positions.rope_frequencies("linear", 8, 0.5), ValueError, "factor"),
    (lambda: positions.rope_frequencies("yarn", 8, 2.0), ValueError, "original_length"),
    (lambda: positions.sinusoidal(-1, 3), ValueError, "tokens is -1"),
    (lambda: positions.alibi_slopes(4, dtype=np.float16), NotImplementedError, "slopes"),
    (lambda: DistanceBias("t5", max_distance=4), ValueError, "max_distance"),
    (lambda: DistanceBias("alibi"), ValueError, "kind is 'alibi'"),
    (lambda: DistanceBias("t5").matrix(np.zeros((2, 31)), 3, 3), ValueError, "table has shape"),
    (lambda: positions.bias_gate(X, np.zeros((8, 5)), np.zeros(5), 1.0), ValueError, "w has shape"),
    (lambda: positions.resize(np.zeros((0, 3)), 2), ValueError, "rows"),
    (lambda: positions.resize(np.zeros(3), 2), ValueError, "x has 1 axes"),
])
def test_errors(make, kind, message):
    with pytest.raises(kind, match=message):
        make()


@pytest.mark.parametrize("enum, known", [
    ("attn_rope_pairs", positions.PAIRS), ("attn_rope_scaling_kind", positions.SCALINGS), ("attn_distance_kind", positions.DISTANCES),
])
def test_every_choice_has_its_name(enum, known):
    assert sorted(known.values()) == sorted(_abi.ENUMS[enum].values())
