# SPDX-License-Identifier: MIT
"""libattn.distributed.linear_attention over ranks that are threads: the bits of one call for any number of them, and errors on all alike."""
import numpy as np
import pytest

from libattn import distributed, linear

BATCH, HEADS, HEADS_KV, LEN, DIM, DIM_V, PART = 2, 4, 2, 37, 6, 5, 8
RNG = np.random.default_rng(7)


def floats(*shape):
    return RNG.standard_normal(shape)


Q, K, V, GRAD = floats(BATCH, HEADS, LEN, DIM), floats(BATCH, HEADS_KV, LEN, DIM), floats(BATCH, HEADS_KV, LEN, DIM_V), floats(BATCH, HEADS, LEN, DIM_V)
STATE, SUM = floats(BATCH, HEADS_KV, DIM, DIM_V), 1 + RNG.random((BATCH, HEADS_KV, DIM))
GRAD_STATE, GRAD_SUM = floats(BATCH, HEADS_KV, DIM, DIM_V), floats(BATCH, HEADS_KV, DIM)
ROWS = {"decay": -RNG.random((BATCH, HEADS_KV, LEN, 1)), "channels": -RNG.random((BATCH, HEADS_KV, LEN, DIM)), "beta": RNG.random((BATCH, HEADS_KV, LEN)),
        "erase": floats(BATCH, HEADS_KV, LEN, DIM) / 3, "write": floats(BATCH, HEADS_KV, LEN, DIM) / 3}
CASES = {  # options; those of ROWS are cut
    "full": {}, "causal": {"causal": True}, "lengths": {"causal": True, "lengths": [37, 11]},
    "decay": {"causal": True, "decay": ROWS["decay"], "form": "recurrent"}, "channels": {"causal": True, "decay": ROWS["channels"], "denominator": "add"},
    "retention": {"causal": True, "decay": -RNG.random((1, HEADS_KV, 1, 1)), "form": "recurrent"},
    "delta": {"causal": True, "beta": ROWS["beta"], "features": "softmax"},
    "constant beta": {"causal": True, "beta": np.full((BATCH, HEADS_KV, 1), 0.5), "decay": ROWS["decay"], "form": "chunked", "features": "softmax"},
    "low rank": {"causal": True, "erase": ROWS["erase"], "write": ROWS["write"]},
    "favor": {"features": "favor", "feature_matrix": floats(DIM, DIM)},
    "states": {"causal": True, "initial_state": STATE, "initial_sum": SUM},
}


def cut(x, group, axis=2):
    return distributed.shard(x, axis, group=group, part=PART)


def compute(case, group, way="auto", dtype=np.float64):
    """Outputs, states and gradients of the whole, over ranks."""
    given = {name: cut(x, group) if any(x is y for y in ROWS.values()) else x for name, x in CASES[case].items()}
    given = {name: x.astype(dtype) if isinstance(x, np.ndarray) else x for name, x in given.items()}
    q, k, v, grad = (cut(x.astype(dtype), group) for x in (Q, K, V, GRAD))
    how = {"group": group, "part": PART, "way": way, "chunk": 4, **given}
    done = distributed.linear_forward(q, k, v, **how)
    guarded = done.final_sum is not None
    more = {"grad_final_state": GRAD_STATE, "grad_final_sum": GRAD_SUM if guarded else None}
    found = distributed.linear_backward(q, k, v, grad, o=done.o, denominators=done.denominators, **more, **how)
    result = {"o": whole(done.o, group), "state": done.final_state, "sum": done.final_sum}
    for name in ("q", "k", "v", "decay", "beta", "erase", "write"):
        x = getattr(found, name)
        if x is not None:
            x = whole(x, group) if name in ("q", "k", "v") or np.shape(given[name])[2] != 1 or name == "beta" and CASES[case]["beta"].shape[2] > 1 else x
        result[name] = x
    return {**result, "initial_state": found.initial_state, "initial_sum": found.initial_sum}


def whole(x, group):
    return distributed.unshard(x, 2, group=group, part=PART)


def plain(case):
    given = CASES[case]
    done = linear.forward(Q, K, V, chunk=4, **given)
    more = {"grad_final_state": GRAD_STATE, "grad_final_sum": GRAD_SUM if done.final_sum is not None else None}
    found = linear.backward(Q, K, V, GRAD, o=done.o, denominators=done.denominators, chunk=4, **more, **given)
    names = ("q", "k", "v", "decay", "beta", "erase", "write", "initial_state", "initial_sum")
    return {"o": done.o, "state": done.final_state, "sum": done.final_sum, **{name: getattr(found, name) for name in names}}


@pytest.mark.parametrize("case", CASES)
def test_the_bits_of_one_call_on_any_number_of_ranks(case):
    alone, one = compute(case, None), plain(case)
    for name, x in one.items():
        if x is None:
            assert alone[name] is None, name
        elif np.shape(CASES[case].get(name, x))[-2] == 1 or case == "constant beta":  # sums over parts
            np.testing.assert_allclose(alone[name], x, rtol=1e-11, atol=1e-12)
        else:
            np.testing.assert_array_equal(alone[name], x, err_msg=name)
    for ranks in (2, 3, 6):
        for found in distributed.in_threads(ranks, lambda group: compute(case, group)):
            for name, x in alone.items():
                np.testing.assert_array_equal(found[name], x, err_msg=f"{name} on {ranks} ranks", strict=x is not None)


@pytest.mark.parametrize("case", CASES)
def test_a_scan(case):
    alone, one = compute(case, None, "direct"), plain(case)
    for name, x in one.items():
        if x is not None:
            np.testing.assert_allclose(alone[name], x, rtol=1e-9, atol=1e-9 * np.abs(x).max(), err_msg=name)
    for ranks in (2, 5):
        for found in distributed.in_threads(ranks, lambda group: compute(case, group, "direct")):
            for name, x in alone.items():
                np.testing.assert_array_equal(found[name], x, err_msg=f"{name} on {ranks} ranks", strict=x is not None)


def test_what_is_described():
    def on_rank(group):
        q, k, v = (cut(x, group) for x in (Q, K, V))
        return distributed.linear_describe(q, k, v, group=group, part=PART, causal=True, chunk=4)

    d = distributed.linear_describe(Q, K, V, part=PART)
    assert d.chunk == PART  # so few tokens are one chunk, and the bits those of one call
    found, one = (f(Q, K, V, **how) for f, how in ((distributed.linear_attention, {"layout": "contiguous", "part": PART}), (linear.attention, {"chunk": PART, "form": d.form})))
    np.testing.assert_array_equal(found, one)
    for rank, d in enumerate(distributed.in_threads(3, on_rank)):
        assert (d.parts_q, d.groups, d.ranks, d.form, d.chunk, d.way) == (5, 4, 3, "chunked", 4, "ring")
        assert d.queries == d.keys == (16, 16, 5)[rank] and d.state_bytes == 8 * BATCH * HEADS_KV * DIM * (DIM_V + 1)


@pytest.mark.parametrize("wrong", [
    ({"features": "cosine"}, ValueError, "features is 'cosine'"), ({"chunk": 0}, ValueError, "chunk"), ({"part": 4}, ValueError, "part=8"),
    ({"way": "split-keys"}, ValueError, "way is 'split-keys'; it must be 'auto', 'ring' or 'direct'"), ({"way": "direct"}, ValueError, "ranks disagree"),
    ({"layout": "zigzag"}, ValueError, "layout is 'zigzag'; each rank has one range"), ({"tensors": 0}, TypeError, "q is missing"), ({"return_state": np.ones(2)}, ValueError, "truth value"), ({"wrong": 1}, TypeError, "features, form, invariant"),
    ({"epsilon": 1.0}, ValueError, "ranks disagree"), ({"decay": ROWS["decay"]}, ValueError, "decay has shape"), ({"wrong": 1}, TypeError, "wrong is not an option"),
    ({"rows": 3}, ValueError, "owns"), ({"causal": False}, ValueError, "ranks disagree"), ({"beta": np.ones((BATCH, HEADS_KV, 1))}, ValueError, "ranks disagree"),
])
def test_errors_are_the_same_on_all_ranks(wrong):
    given, kind, sentence = wrong

    def on_rank(group):
        q, k, v = (cut(x, group) for x in (Q, K, V))
        how = {"part": PART, "causal": True, **(given if group.rank == 1 else {})}
        rows, tensors = how.pop("rows", None), [None] * 3 if how.pop("tensors", None) is not None else [q, k, v]
        with pytest.raises(kind) as found:
            distributed.linear_attention(*(x if x is None else x[:, :, :rows] for x in tensors), group=group, **how)
        return type(found.value), str(found.value)

    found = distributed.in_threads(3, on_rank)
    assert sentence in found[0][1] and found == found[:1] * 3


def test_the_library_rejects_on_all_ranks():
    """What Python lets pass."""
    def on_rank(group):
        q, k, v = (cut(x, group) for x in (Q, K, V))
        with pytest.raises(NotImplementedError) as found:
            distributed.linear_attention(q, k, v, group=group, part=PART, decay=cut(ROWS["decay"], group))
        return str(found.value)

    assert set(distributed.in_threads(2, on_rank)) == {"a decay is causal; set causal"}


def test_tensors_have_gradients():
    torch = pytest.importorskip("torch")
    dtype = torch.float32

    def on_rank(group):
        leaves = [cut(torch.tensor(x, dtype=dtype), group).clone().requires_grad_() for x in (Q, K, V)]
        decay = torch.tensor(CASES["retention"]["decay"], dtype=dtype, requires_grad=True)
        state, total = (torch.tensor(x, dtype=dtype, requires_grad=True) for x in (STATE, SUM))
        o, after, _ = distributed.linear_attention(
            *leaves, group=group, part=PART, causal=True, decay=decay, initial_state=state, initial_sum=total, return_state=True)
        ((o * cut(torch.tensor(GRAD, dtype=dtype), group)).sum() + (after * torch.tensor(GRAD_STATE, dtype=dtype)).sum()).backward()
        rows = [whole(x, group) for x in (o.detach(), *(x.grad for x in leaves))]
        return [x.numpy().copy() for x in (*rows, decay.grad, state.grad, total.grad, after.detach())]

    alone = distributed.in_threads(1, on_rank)[0]
    given = {"causal": True, "decay": CASES["retention"]["decay"], "initial_state": STATE, "initial_sum": SUM}
    done = linear.forward(Q, K, V, **given)
    found = linear.backward(Q, K, V, GRAD, o=done.o, denominators=done.denominators, grad_final_state=GRAD_STATE, grad_final_sum=0 * GRAD_SUM, **given)
    for a, b in zip(alone, (done.o, found.q, found.k, found.v, found.decay, found.initial_state, found.initial_sum, done.final_state), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=2e-5 * (1 + np.abs(b).max()))
    for ranks in (2, 5):
        for other in distributed.in_threads(ranks, on_rank):
            for a, b in zip(other, alone, strict=True):
                np.testing.assert_array_equal(a, b)


def test_gradients_are_asked_for_on_all_ranks():
    """And not where they would be lost."""
    torch = pytest.importorskip("torch")

    def on_rank(group, who, given):
        tensors = {name: cut(torch.tensor(x), group) for name, x in zip("qkv", (Q, K, V), strict=True)}
        tensors["v"].requires_grad_(group.rank == who)
        with pytest.raises((TypeError, ValueError)) as found:
            distributed.linear_attention(**{**tensors, **(given(tensors) if group.rank == who else {})}, group=group, part=PART, return_state=who == 0)
        return str(found.value)

    for who, given, sentence in (
        (1, lambda x: {}, "ranks disagree: rank 0 has gradients=False, and rank 1 has gradients=True"),
        (0, lambda x: {}, "ranks disagree: rank 0 has gradients=True, and rank 1 has gradients=False"),
        (1, lambda x: {"k": x["k"].numpy()}, "a tensor requires a gradient, which goes neither with out nor with arrays"),
        (1, lambda x: {"out": torch.empty(*x["q"].shape[:-1], DIM_V)}, "a tensor requires a gradient, which goes neither with out"),
    ):
        found = distributed.in_threads(2, lambda group, who=who, given=given: on_rank(group, who, given))
        assert found[0].startswith(sentence) and found[0] == found[1], found


def test_there_are_no_second_derivatives():
    torch = pytest.importorskip("torch")
    q, k, v = (torch.tensor(x, requires_grad=True) for x in (Q, K, V))
    o = distributed.linear_attention(q, k, v, part=PART, causal=True, chunk=4)
    grad, = torch.autograd.grad(o.square().sum(), q, create_graph=True)
    with pytest.raises(NotImplementedError, match="second derivatives"):
        grad.sum().backward()


def test_out():
    out = np.empty_like(GRAD)
    assert distributed.linear_attention(Q, K, V, part=PART, chunk=4, out=out) is out
    np.testing.assert_array_equal(out, linear.attention(Q, K, V, chunk=4))
