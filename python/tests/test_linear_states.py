# SPDX-License-Identifier: MIT
"""Linear attention token by token: states, pools of them, and what plans and they say of tokens of another rule."""
import sys

import numpy as np
import pytest

from libattn import linear
from test_linear import problem


@pytest.mark.parametrize("options", [{}, {"delta": True, "features": "identity"}, {"denominator": "none", "features": "identity"}])
def test_a_state_decodes(options):
    rng, q, k, v = problem(7)
    beta = rng.random(k.shape[:3]) if options.get("delta") else None
    decay = -rng.random((*k.shape[:3], 1))
    rest = {name: x for name, x in options.items() if name != "delta"}
    whole = linear.forward(q, k, v, causal=True, beta=beta, decay=decay, **rest)
    state = linear.State(2, 2, 6, 5, dtype=np.float64, **options)
    parts = []
    for start, end in ((0, 5), (5, 6), (6, 7), (7, 13)):
        cut = np.s_[:, :, start:end]
        parts.append(state.attend(q[cut], k[cut], v[cut], beta=None if beta is None else beta[cut], decay=decay[cut]))
    assert np.allclose(np.concatenate(parts, 2), whole.o, rtol=1e-12, atol=1e-13)
    assert np.allclose(state.state, whole.final_state, rtol=1e-12, atol=1e-13)
    assert (state.sum is None) == (whole.final_sum is None)
    kept = state.state.copy()
    with pytest.raises(ValueError, match="state of shape"):
        state.attend(q[:1], k[:1], v[:1])
    assert np.array_equal(state.state, kept)


@pytest.mark.parametrize("kind", ["State", "Pool"])
def test_states_are_of_one_rule(kind):
    """Not the additive rule, silently, where beta was forgotten."""
    rng, q, k, v = problem(7)
    beta, low = rng.random(k.shape[:3]), {name: rng.standard_normal(k.shape) for name in ("erase", "write")}
    rows = {"slots": [0, 1]} if kind == "Pool" else {}

    def attend(tensors, **options):
        kept = getattr(linear, kind)(2, 2, 6, 5, dtype=np.float64, features="identity", **options)
        try:
            return kept.attend(q, k, v, **rows, **tensors)
        finally:
            assert kept.state.any() == (sys.exc_info()[0] is None)

    with pytest.raises(ValueError, match=f"^beta is missing; with delta=True the tokens of a {kind} come with beta, or with erase and write$"):
        attend({}, delta=True)
    for tensors, says in (({"beta": beta}, "beta is"), (low, "erase and write are"), ({"write": low["write"]}, "write is")):
        with pytest.raises(ValueError, match=f"^{says} set; the {kind} has sums .*: make it with delta=True$"):
            attend(tensors)
    for name in low:
        with pytest.raises(ValueError, match=f"^{name} is missing; it is needed with the low-rank rule$"):
            attend({one: x for one, x in low.items() if one != name}, delta=True)
    for tensors in ({"beta": beta}, low):
        want = linear.attention(q, k, v, causal=True, features="identity", **tensors)
        for options in ({"delta": True}, {"denominator": "none"}):
            assert np.array_equal(attend(tensors, **options), want)


def test_a_plan_is_of_one_rule():
    rng, q, k, v = problem(7)
    tensors = {name: rng.standard_normal(k.shape[:3] if name == "beta" else k.shape) for name in ("beta", "erase", "write")}
    low = {name: tensors[name] for name in ("erase", "write")}
    for made, given, says in (({}, {"beta": tensors["beta"]}, "beta is set; the plan was made without it"), (low, {}, "erase is missing; the plan was made with it"),
                              ({}, low, "erase is set; the plan was made without it"), (low, {"beta": tensors["beta"]}, "beta is set; the plan was made without it")):
        plan = linear.Plan(q, k, v, causal=True, features="identity", **made)
        with pytest.raises(ValueError, match=f"^{says}$"):
            plan(q, k, v, **given)


def test_a_state_is_not_replaced():
    state = linear.State(2, 2, 6, 5)
    with pytest.raises(AttributeError, match="state of a State cannot be replaced"):
        state.state = state.state[:1]


def test_pool():
    """Decoding with drafts of which some are refused: the outputs of decoding without."""
    rng = np.random.default_rng(12)
    q, k, v = (rng.normal(size=(9, 2, 5)).astype(np.float32) for _ in range(3))
    beta = rng.random((9, 2)).astype(np.float32)
    options = {"features": "softmax", "form": "recurrent"}
    expected = linear.attention(q, k, v, beta=beta, cu_seqlens=[0, 9], causal=True, **options)
    pool = linear.Pool(rows=5, heads=2, dim_qk=5, dim_v=5, delta=True, **options)
    final, at, slot = np.array([[3, 0, 2]]), 0, 2
    while at + 3 <= 9:
        part = slice(at, at + 3)
        o = pool.attend(q[part], k[part], v[part], [slot], final_slots=final, cu_seqlens=[0, 3], beta=beta[part])
        np.testing.assert_array_equal(o, expected[part])
        accepted = 1 + at % 3
        slot, at = final[0, 3 - accepted], at + accepted
    with pytest.raises(ValueError, match=r"final_slots\[1\] is 2, as is final_slots\[0\]"):
        pool.attend(q[:2], k[:2], v[:2], [2, 2], cu_seqlens=[0, 1, 2], beta=beta[:2])
    with pytest.raises(ValueError, match=r"final_slots has shape \[1, 0\]"):
        pool.attend(q[:1], k[:1], v[:1], [2], final_slots=np.zeros((1, 0), int), cu_seqlens=[0, 1], beta=beta[:1])
    half = linear.Pool(rows=2, heads=2, dim_qk=5, dim_v=5, dtype=np.float16, delta=True, **options)
    half.attend(q[:1], k[:1], v[:1], [1], cu_seqlens=[0, 1], beta=beta[:1])
    exact = linear.forward(q[:1], k[:1], v[:1], cu_seqlens=[0, 1], beta=beta[:1], causal=True, **options).final_state
    np.testing.assert_array_equal(half.state[1], exact[0].astype(np.float16))
    assert not half.state[0].any()
