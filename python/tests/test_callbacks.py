# SPDX-License-Identifier: MIT
"""Functions of Python that the library calls: modify_scores, modify_slopes, visit_rows."""
import threading

import numpy as np
import pytest

import libattn


def arrays(dtype=np.float64, len_q=50, len_kv=70):
    rng = np.random.default_rng(0)
    return [rng.standard_normal(s).astype(dtype) for s in ((2, 4, len_q, 16), (2, 2, len_kv, 16), (2, 2, len_kv, 16))]


def table(tile):
    """A bias that depends on all indices of a pair."""
    i = tile.first_q + np.arange(tile.scores.shape[0])[:, None]
    j = tile.first_kv + np.arange(tile.scores.shape[1])
    return np.cos(i * 0.3 + j * 0.7 + tile.head + 3 * tile.batch)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("causal", [False, True])
def test_modified_scores_are_a_bias(dtype, causal):
    q, k, v = arrays(dtype)

    def modify(tile):
        tile.scores[...] += table(tile)

    def slopes(tile):
        tile.slopes[...] = 1

    b, h, i, j = np.ogrid[0:2, 0:4, 0:50, 0:70]
    bias = np.cos(i * 0.3 + j * 0.7 + h + 3 * b).astype(dtype)
    close = 1e-12 if dtype == np.float64 else 2e-5
    o, lse = libattn.attention(q, k, v, modify_scores=modify, causal=causal, return_lse=True)
    want, want_lse = libattn.attention(q, k, v, bias=bias, causal=causal, return_lse=True)
    assert abs(o - want).max() < close and abs(lse - want_lse).max() < close
    got = libattn.attention_backward(q, k, v, o, lse, o, modify_scores=modify, modify_slopes=slopes, causal=causal)
    want = libattn.attention_backward(q, k, v, o, lse, o, bias=bias, causal=causal)
    assert all(abs(a - b).max() < 50 * close for a, b in zip(got, want, strict=True))


def test_the_gradient_of_a_parameter():
    q, k, v = arrays()
    factor, step = 0.7, 1e-6
    grad_o = np.random.default_rng(4).standard_normal(q.shape)

    def forward(parameter):
        return libattn.attention(q, k, v, modify_scores=lambda t: t.scores.__imul__(parameter), return_lse=True)

    sums, lock = [], threading.Lock()

    def slopes(tile):
        tile.slopes[...] = factor
        if not tile.again:
            with lock:
                sums.append((tile.gradients * tile.scores).sum())

    o, lse = forward(factor)
    libattn.attention_backward(q, k, v, o, lse, grad_o, modify_scores=lambda t: t.scores.__imul__(factor), modify_slopes=slopes)
    up, down = (np.sum(forward(factor + s)[0] * grad_o) for s in (step, -step))
    assert abs(sum(sums) - (up - down) / (2 * step)) < 1e-6


def test_rows_are_the_weights():
    q, k, v = arrays(np.float32)
    seen = np.full((2, 4, 50, 70), np.nan, np.float32)

    def visit(rows):
        assert not rows.values.flags.writeable
        seen[rows.batch, rows.head, rows.first:rows.first + len(rows.values)] = rows.values

    _, weights = libattn.attention(q, k, v, visit_rows=visit, rows_stage="weights", return_weights=True)
    assert (seen == weights).all()
    _, raw = libattn.attention(q, k, v, visit_rows=visit, outputs=["scores"])
    assert (seen == raw).all()


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
def test_an_exception_ends_the_call(kind):
    q, k, v = arrays()

    def broken(rows):
        raise kind("from inside")

    with pytest.raises(kind, match="from inside"):
        libattn.attention(q, k, v, visit_rows=broken)
    with pytest.raises(TypeError, match="modify_scores must be a function, not 3"):
        libattn.attention(q, k, v, modify_scores=3)


def test_a_function_may_attend():
    q, k, v = arrays()
    want = libattn.attention(q, k, v)
    inner = []

    def visit(rows):
        inner.append((libattn.attention(q, k, v) == want).all())

    assert (libattn.attention(q, k, v, visit_rows=visit, threads=1) == want).all()
    assert inner and all(inner)


def test_a_plan_may_have_functions():
    q, k, v = arrays()
    plan = libattn.Plan(q, k, v, modify_scores=lambda tile: tile.scores.fill(0))
    assert abs(plan.execute(q, k, v) - np.repeat(v.mean(2, keepdims=True), 2, 1)).max() < 1e-12
