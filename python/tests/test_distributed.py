# SPDX-License-Identifier: MIT
"""libattn.distributed with NumPy arrays, over ranks that are threads: the same bits for any number of them, and errors on all alike.

It is long because all of it compares ranks with the same few problems.
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import types

import numpy as np
import pytest

import gloo
import libattn
from libattn import distributed
from problems import close

BATCH, HEADS, HEADS_KV, LEN, KEYS, DIM, DIM_V, PART = 2, 4, 2, 37, 45, 8, 6, 4
RNG = np.random.default_rng(7)
STARTS = np.array([0, 9, 9, 30, 37]), np.array([0, 12, 15, 41, 45])  # one sequence without queries


def floats(*shape):
    return RNG.standard_normal(shape)


Q, K, V, GRAD = floats(BATCH, HEADS, LEN, DIM), floats(BATCH, HEADS_KV, KEYS, DIM), floats(BATCH, HEADS_KV, KEYS, DIM_V), floats(BATCH, HEADS, LEN, DIM_V)
LSE = floats(BATCH, HEADS, LEN)
SLOPES = 2.0 ** -np.arange(1, 5)
CASES = {  # options, and names of arrays whose gradients are asked for
    "full": ({}, ()),
    "causal": ({"causal": True}, ()),
    "top-left": ({"causal": "top-left", "window": (7, 0)}, ()),
    "window": ({"window": (9, 5), "alibi_slopes": SLOPES, "softcap": 5.0}, ("alibi_slopes",)),
    "dropout": ({"causal": True, "dropout": 0.3, "seed": 11, "dropout_offset": 2}, ()),
    "bias": ({"bias": floats(BATCH, HEADS, LEN, KEYS), "mask": RNG.random((1, HEADS, LEN, KEYS)) < 0.7}, ("bias",)),
    "one head's bias": ({"bias": floats(1, 1, LEN, KEYS), "mask": RNG.random((1, 1, 1, KEYS)) < 0.7}, ()),
    "a bias for all queries": ({"bias": floats(HEADS, 1, KEYS), "causal": True, "sink": floats(HEADS)}, ("bias", "sink")),
    "a bias for all keys": ({"bias": floats(BATCH, 1, LEN, 1), "causal": True}, ("bias",)),
    "sink": ({"sink": floats(HEADS), "scale": np.array([0.3, 0.4, 0.5, 0.6]), "causal": True}, ("sink", "scale")),
    "lengths": ({"lengths_q": [37, 20], "lengths_kv": [40, 45], "causal": True}, ()),
    "offset": ({"offset_q": [3, -2], "causal": True}, ()),
    "table": ({"bias_table": floats(HEADS, 9), "bias_table_kind": "clipped"}, ("bias_table",)),
    "relative": ({"relative_keys": floats(HEADS, 9, DIM), "relative_first": -4, "window": (4, 4)}, ("relative_keys",)),
    "ranges": ({"ranges": np.sort(RNG.integers(0, KEYS, (BATCH, 1, LEN, 2)))}, ()),
    "blocks": ({"block_mask": RNG.random((1, HEADS, 19, 23)) < 0.6, "block_q": 2, "block_kv": 2}, ()),
    "global": ({"window": (3, 3), "global_q": 2, "global_kv": 3, "dilation": 2}, ()),
    "chunk": ({"chunk": 10}, ()),
    "sigmoid": ({"normaliser": "sigmoid", "shift": -2.0}, ()),
    "cosine": ({"score": "cosine", "temperature": 0.2}, ()),
}
ROWS = {"mask": PART, "bias": PART, "ranges": PART, "block_mask": PART // 2}  # the rows of a part

# Of packed sequences, four of at most 21 queries and 26 keys.
PACKED = {"alibi_slopes": np.outer([1, 2, 3, 4], SLOPES), "bias": floats(4, 1, 21, 26), "mask": RNG.random((1, HEADS, 21, 26)) < 0.8}


def cut(group, layout, keys=False, rows=PART):
    """How arrays are cut along their last axis but one."""
    return lambda x: x if x.shape[-2] == 1 else distributed.shard(x, x.ndim - 2, group=group, layout=layout, part=rows, of="kv" if keys else "q")


def passed(given, group, layout):
    """A rank's options."""
    return {name: cut(group, layout, rows=ROWS[name])(x) if name in ROWS else x for name, x in given.items()}


def compute(group, layout, way, given, grads, dtype=np.float64):
    """o, lse and gradients of the whole, over ranks."""
    rows, keys = cut(group, layout), cut(group, layout, True)
    q, k, v, grad = rows(Q.astype(dtype)), keys(K.astype(dtype)), keys(V.astype(dtype)), rows(GRAD.astype(dtype))
    how = {"group": group, "layout": layout, "part": PART, "way": way, **passed(given, group, layout)}
    o, lse = distributed.attention(q, k, v, return_lse=True, **how)
    grad_lse = rows(LSE[..., None])[..., 0] if given.get("normaliser") is None else None
    gradients = distributed.attention_backward(q, k, v, o, lse, grad, grad_lse=grad_lse, grads=grads, **how)

    def whole(x, keys=False):
        return distributed.unshard(x, 2, group=group, layout=layout, part=PART, of="kv" if keys else "q")

    found = [whole(o), whole(lse), whole(gradients[0]), whole(gradients[1], True), whole(gradients[2], True)]
    return [*found, *(whole(x) if name == "bias" and x.shape[-2] != 1 else x for name, x in zip(grads, gradients[3:], strict=True))]


@pytest.mark.parametrize("axes", ["bhsd", "bshd"])
def test_outputs(axes):
    """The bits of one rank on others, and near one call, whose results have the order of axes of attn.h."""
    names, order = ["row_max", "entropy", "effective_keys", "topk_index", "topk_weight"], (0, 2, 1, 3) if axes == "bshd" else (0, 1, 2, 3)
    options = {"causal": True, "sink": np.ones(HEADS), "topk": 3}

    def work(group):
        how = {"group": group, "layout": "zigzag", "part": PART}
        q, k, v = (distributed.shard(x, 2, of=of, **how).transpose(order) for x, of in ((Q, "q"), (K, "kv"), (V, "kv")))
        o, *found = distributed.attention(q, k, v, axes=axes, outputs=names, **how, **options)
        assert o.shape == (*q.shape[:-1], DIM_V)
        return [distributed.unshard(x.transpose(order[:x.ndim]), 2, **how) for x in found]

    one, many = distributed.in_threads(1, work)[0], distributed.in_threads(3, work)
    assert all(same(one, x) for x in many)
    _, *plain = libattn.attention(Q, K, V, outputs=names, **options)
    for name, x, y in zip(names, one, plain, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-13, err_msg=name)


@pytest.mark.parametrize("axes", ["bhsd", "bshd"])
def test_weights(axes):
    """Weights and scores are rows of the rank's queries, and sums of columns its own keys; all have the bits of one rank."""
    names, order = ["weights", "scores", "dropout_keep", "column_sum"], (0, 2, 1, 3) if axes == "bshd" else (0, 1, 2, 3)
    options = {"causal": True, "dropout": 0.25, "seed": 3, "scores_stage": "biased", "column_heads": "group", "column_queries": 20}

    def work(group, way="auto"):
        how = {"group": group, "layout": "zigzag", "part": PART}
        q, k, v = (distributed.shard(x, 2, of=of, **how).transpose(order) for x, of in ((Q, "q"), (K, "kv"), (V, "kv")))
        _, *pairs, columns = distributed.attention(q, k, v, axes=axes, outputs=names, way=way, **how, **options)
        columns = columns.transpose(order[:3])
        return [*(distributed.unshard(x, 2, **how) for x in pairs), distributed.unshard(columns, 2, of="kv", **how)]

    one = distributed.in_threads(1, work)[0]
    assert all(same(one, x) for ranks, way in ((3, "auto"), (2, "heads")) for x in distributed.in_threads(ranks, lambda g, way=way: work(g, way)))
    _, *plain = libattn.attention(Q, K, V, outputs=names, **options)
    for name, x, y in zip(names, one, plain, strict=True):
        np.testing.assert_allclose(x.reshape(y.shape), y, rtol=1e-12, atol=1e-13, err_msg=name)


def test_mean_of_all():
    """Of queries that see no key, with the gradients."""
    options = {"causal": True, "least_distance": 1, "empty": "uniform"}

    def work(group):
        how = {"group": group, "layout": "striped", "part": PART}
        q, k, v = (distributed.shard(x, 2, of=of, **how) for x, of in ((Q, "q"), (K, "kv"), (V, "kv")))
        grad = distributed.shard(GRAD, 2, **how)
        o, lse = distributed.attention(q, k, v, return_lse=True, **how, **options)
        found = [o, *distributed.attention_backward(q, k, v, o, lse, grad, **how, **options)]
        return [distributed.unshard(x, 2, of=of, **how) for x, of in zip(found, ("q", "q", "kv", "kv"), strict=True)]

    one, many = distributed.in_threads(1, work)[0], distributed.in_threads(3, work)
    assert all(same(one, x) for x in many)
    o, lse = libattn.attention(Q, K, V, return_lse=True, **options)
    for x, y in zip(one, (o, *libattn.attention_backward(Q, K, V, o, lse, GRAD, **options)), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12)


def same(a, b):
    return all(x.shape == y.shape and x.tobytes() == y.tobytes() for x, y in zip(a, b, strict=True))


OWNERS = distributed.Owners(np.arange(10) * 7 % 3, np.arange(12)[::-1] * 5 % 3)
WAYS = [(1, "zigzag", "ring"), (2, "contiguous", "direct"), (3, "striped", "ring"), (3, OWNERS, "direct"), (4, "zigzag", "direct"), (4, "striped", "auto"),
        (3, "zigzag", "heads"), (4, OWNERS, "heads-ring"), (3, OWNERS, "gather")]


@pytest.mark.parametrize("case", CASES)
def test_the_same_bits_on_any_number_of_ranks(case):
    given, grads = CASES[case]
    alone = compute(None, "contiguous", "auto", given, grads)
    o, lse = libattn.attention(Q, K, V, return_lse=True, **given)
    plain = [o, lse, *libattn.attention_backward(Q, K, V, o, lse, GRAD, grad_lse=LSE if "normaliser" not in given else None, grads=grads, **given)]
    for a, b in zip(alone, plain, strict=True):
        close(a, b, 1e-12 * (1 + np.abs(b)))
    for ranks, layout, way in WAYS:
        if case == "a bias for all keys" and way in ("heads", "heads-ring", "gather"):  # and for all heads
            with pytest.raises(NotImplementedError, match="grad_bias is set, of a tensor that all heads share"):
                distributed.in_threads(ranks, lambda group, layout=layout, way=way: compute(group, layout, way, given, grads))
            continue
        for found in distributed.in_threads(ranks, lambda group, layout=layout, way=way: compute(group, layout, way, given, grads)):
            assert same(found, alone), (ranks, layout, way)


@pytest.mark.parametrize("case", CASES)
def test_keys_that_stay(case):
    """With way="split-keys" each rank has all queries, and gets all of o and lse with the bits of one rank."""
    given, _ = CASES[case]
    how = {"part": PART, "return_lse": True, **given}
    o, lse = distributed.in_threads(1, lambda group: distributed.attention(Q, K, V, group=group, **how))[0]

    def on_rank(group):
        k, v = (distributed.shard(x, 2, group=group, layout="striped", part=PART, of="kv") for x in (K, V))
        return distributed.attention(Q, k, v, group=group, layout="striped", way="split-keys", **how)

    for ranks in (2, 3):
        for found in distributed.in_threads(ranks, on_rank):
            np.testing.assert_array_equal(found[0], o)
            np.testing.assert_array_equal(found[1], lse)
    with pytest.raises(NotImplementedError, match="it is for forward"):
        distributed.attention_backward(Q, K, V, o, lse, GRAD, way="split-keys", group=None, part=PART, **given)


def test_groups_that_divide_the_heads():
    """ranks_heads is in the description, and must divide the ranks."""
    def on_rank(group, way="heads-ring", ranks_heads=0):
        rows = {"group": group, "part": PART}
        q, k, v = (distributed.shard(x, 2, of=of, **rows) for x, of in ((Q, "q"), (K, "kv"), (V, "kv")))
        return distributed.Plan(q, k, v, way=way, ranks_heads=ranks_heads, **rows).description

    for way, ranks, asked, taken in (("heads-ring", 4, 0, 2), ("heads-ring", 4, 4, 4), ("heads", 3, 0, 3), ("direct", 2, 0, 1), ("gather", 2, 0, 1)):
        for found in distributed.in_threads(ranks, lambda group, way=way, asked=asked: on_rank(group, way, asked)):
            assert (found.way, found.ranks, found.ranks_heads) == (way, ranks, taken)
    with pytest.raises(ValueError, match="^ranks_heads is 3; it must divide the number of ranks, 4"):
        distributed.in_threads(4, lambda group: on_rank(group, ranks_heads=3))


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_other_types(dtype):
    given, grads = CASES["causal"]
    alone = compute(None, "contiguous", "auto", given, grads, dtype)
    assert alone[0].dtype == alone[2].dtype == dtype and alone[1].dtype == np.float32
    for found in distributed.in_threads(3, lambda group: compute(group, "zigzag", "ring", given, grads, dtype)):
        assert same(found, alone)
    close(alone[0], libattn.attention(*(x.astype(dtype) for x in (Q, K, V)), **given), 1e-5 if dtype == np.float32 else 2e-3)


def packed(group, layout):
    def own(x, keys=False):
        return distributed.shard(x, 0, group=group, layout=layout, part=PART, of="kv" if keys else "q")

    q, k, v, grad = own(Q[0].swapaxes(0, 1)), own(K[0].swapaxes(0, 1), True), own(V[0].swapaxes(0, 1), True), own(GRAD[0].swapaxes(0, 1))
    how = {"group": group, "layout": layout, "part": PART, "axes": "thd", "causal": True, "cu_seqlens_q": STARTS[0], "cu_seqlens_kv": STARTS[1],
           **PACKED}
    o, lse = distributed.attention(q, k, v, return_lse=True, **how)
    gradients = distributed.attention_backward(q, k, v, o, lse, grad, grads=["alibi_slopes", "bias"], **how)
    whole = [distributed.unshard(x, 0, group=group, layout=layout, part=PART, of="kv" if n in (3, 4) else "q")
             for n, x in enumerate([o, lse, *gradients[:3]])]
    return [*whole, *gradients[3:]]


def test_packed_sequences():
    alone = packed(None, "contiguous")
    q, k, v, grad = (np.ascontiguousarray(x[0].swapaxes(0, 1)) for x in (Q, K, V, GRAD))
    given = {"layout": "thd", "causal": True, "cu_seqlens_q": STARTS[0], "cu_seqlens_kv": STARTS[1], **PACKED}
    o, lse = libattn.attention(q, k, v, return_lse=True, **given)
    for a, b in zip(alone, [o, lse, *libattn.attention_backward(q, k, v, o, lse, grad, grads=["alibi_slopes", "bias"], **given)], strict=True):
        close(a, b, 1e-12 * (1 + np.abs(b)))
    for part in (24, 1024):  # between the longest sequence and all tokens, and beyond
        more = {"part": part, "axes": "thd", **{name: x for name, x in given.items() if name != "layout"}}
        *_, found = distributed.attention_backward(q, k, v, o, lse, grad, grads=["bias"], **more)
        close(found, alone[-1], 1e-12 * (1 + np.abs(alone[-1])))
    owners = distributed.balance(3, part=PART, causal=True, cu_seqlens_q=STARTS[0], cu_seqlens_kv=STARTS[1])
    assert {*owners.q} == {0, 1, 2} and len(owners.q) == 10 and len(owners.kv) == 12
    for ranks, layout in ((3, owners), (4, "striped")):
        assert all(same(found, alone) for found in distributed.in_threads(ranks, lambda group, layout=layout: packed(group, layout)))


def test_one_query_has_a_bias_that_all_ranks_share():
    """Also those that have no query, and get its gradient."""
    def work(group, way="auto"):
        q, grad = (distributed.shard(x[:, :, :1], 2, group=group, part=PART) for x in (Q, GRAD))
        k, v = (distributed.shard(x, 2, group=group, part=PART, of="kv") for x in (K, V))
        how = {"group": group, "part": PART, "way": way, "bias": np.multiply.outer(SLOPES, np.arange(KEYS) / KEYS)[:, np.newaxis]}
        o, lse = distributed.attention(q, k, v, return_lse=True, **how)
        return distributed.attention_backward(q, k, v, o, lse, grad, grads=["bias"], **how)[3:]

    alone, = distributed.in_threads(1, work)
    assert alone[0].shape == (HEADS, 1, KEYS) and abs(alone[0]).max() > 0.01
    for way in ("direct", "heads"):
        assert all(same(found, alone) for found in distributed.in_threads(3, lambda group, way=way: work(group, way)))


def test_orders_of_axes():
    def heads_last(group):
        own = [distributed.shard(x.swapaxes(1, 2), 1, group=group, part=PART, of=of) for x, of in ((Q, "q"), (K, "kv"), (V, "kv"))]
        return distributed.unshard(distributed.attention(*own, group=group, part=PART, axes="bshd"), 1, group=group, part=PART)

    def no_batch(group):
        own = [distributed.shard(x[0], 1, group=group, part=PART, of=of) for x, of in ((Q, "q"), (K, "kv"), (V, "kv"))]
        return distributed.unshard(distributed.attention(*own, group=group, part=PART), 1, group=group, part=PART)

    expected = distributed.attention(Q, K, V, part=PART)
    for found in distributed.in_threads(2, heads_last):
        assert same([np.ascontiguousarray(found.swapaxes(1, 2))], [expected])
    for found in distributed.in_threads(2, no_batch):
        assert same([found], [expected[0]])


def test_plans():
    tangents = floats(*Q.shape), floats(*K.shape), floats(*V.shape)
    grad, bias, tan_bias = floats(*Q.shape[:-1], DIM_V), floats(1, 1, LEN, KEYS), floats(1, 1, LEN, KEYS)

    def work(group):
        rows, keys = cut(group, "zigzag"), cut(group, "zigzag", True)
        q, k, v = rows(Q), keys(K), keys(V)
        how = {"group": group, "layout": "zigzag", "part": PART, "causal": True}
        plan = distributed.Plan(np.zeros_like(q), k, v, return_lse=True, **how)
        into = np.empty((*q.shape[:-1], DIM_V))
        o, lse = plan.execute(q, k, v, out=into)
        again = plan.execute(q, k, v)
        assert o is into and same(again, (o, lse)) and plan.description.ranks == group.ranks
        moved = dict(zip(("tan_q", "tan_k", "tan_v"), (rows(tangents[0]), keys(tangents[1]), keys(tangents[2])), strict=True))
        tangent = distributed.Plan(q, k, v, op="jvp", arrays={"o": o, "lse": lse, **moved}, **how)
        first, second = tangent.execute(q, k, v), tangent.execute(q, k, v, tan_q=2 * moved["tan_q"], tan_k=2 * moved["tan_k"], tan_v=2 * moved["tan_v"])
        assert same([second], [2 * first])
        biased = distributed.attention(q, k, v, bias=rows(bias), return_lse=True, **how)
        arrays = {"o": biased[0], "lse": biased[1], "grad_o": rows(grad), "bias": rows(bias), "tan_bias": rows(tan_bias), **moved}
        twice = distributed.Plan(q, k, v, op="double_backward", return_lse=True, grads=["bias"], arrays=arrays, **how)
        results = o, lse, first, *twice.execute(q, k, v)
        return [distributed.unshard(x, 2, group=group, layout="zigzag", part=PART) for x in results], plan.description

    (alone, _), = distributed.in_threads(1, work)
    o, lse = libattn.attention(Q, K, V, causal=True, return_lse=True)
    expected = libattn.jvp(Q, K, V, o, lse, tan_q=tangents[0], tan_k=tangents[1], tan_v=tangents[2], causal=True)
    close(alone[2], expected, 1e-12 * (1 + np.abs(expected)))
    expected = libattn.attention_double_backward(
        Q, K, V, *libattn.attention(Q, K, V, causal=True, bias=bias, return_lse=True), grad, **dict(zip(("tan_q", "tan_k", "tan_v"), tangents, strict=True)), causal=True, bias=bias, return_bias=True,
        tan_bias=np.broadcast_to(tan_bias, (*Q.shape[:-1], KEYS)), return_grad_lse=True)
    assert len(alone) == 3 + len(expected)
    for a, b in zip(alone[3:], expected, strict=True):
        close(a, b, 1e-11 * (1 + np.abs(b)))
    found = distributed.in_threads(4, work)
    assert all(same(one, alone) for one, _ in found)
    about = [one for _, one in found]
    assert sum(one.cells for one in about) == about[0].cells_total and max(one.cells for one in about) == about[0].cells_most
    assert sum(one.queries for one in about) == LEN and about[0].why.startswith(about[0].way) and about[0].messages > 4 and about[0].parts_q == 10


def test_parts_cover_the_whole():
    for ranks in (1, 2, 3, 5):
        owners = distributed.Owners([n * n % ranks for n in range(10)], [0] * 10)
        for layout in ("contiguous", "zigzag", "striped", owners):
            found = distributed.in_threads(ranks, lambda group, layout=layout: distributed.parts(LEN, group=group, layout=layout, part=PART))
            tokens = sorted(t for own in found for p in own for t in range(p.first, p.first + p.tokens))
            assert tokens == list(range(LEN))
            assert all(p.local == sum(other.tokens for other in own[:n]) and p.number * PART == p.first for own in found for n, p in enumerate(own))
            cut_up = distributed.in_threads(ranks, lambda group, layout=layout: distributed.shard(Q, 2, group=group, layout=layout, part=PART))
            for own, rows in zip(found, cut_up, strict=True):
                assert same([rows], [np.concatenate([Q[:, :, :0], *(Q[:, :, p.first:p.first + p.tokens] for p in own)], 2)])


def test_more_ranks_than_parts():
    few = Q[:, :, :3], K[:, :, :3], V[:, :, :3]

    def work(group):
        own = [distributed.shard(x, 2, group=group, part=2) for x in few]
        return distributed.unshard(distributed.attention(*own, group=group, part=2), 2, group=group, part=2)

    assert all(same([found], [distributed.attention(*few, part=2)]) for found in distributed.in_threads(5, work))


# ---- what is wrong


def outcomes(ranks, function):
    """The exception of each rank."""

    def work(group):
        try:
            return function(group)
        except Exception as error:
            return error

    return distributed.in_threads(ranks, work)


NAN = float("nan")
WRONG = {  # what a rank asks that is wrong, and what all ranks say
    "option": ({"softcap": -1.0}, ValueError, "softcap"),
    "kind": ({"causal": 7}, TypeError, "causal"),
    "unknown": ({"is_causal": True}, TypeError, "is_causal"),
    "layout": ({"layout": "bhsd"}, ValueError, "axes='bhsd'"),
    "way": ({"way": "round"}, ValueError, "way is 'round'"),
    "part": ({"part": 0}, ValueError, "part is 0"),
    "axes": ({"axes": "sbh"}, ValueError, "axes is 'sbh'"),
    "axes, in a list": ({"axes": ["bhsd"]}, TypeError, r"axes is \['bhsd'\]; it must be"),
    "outputs": ({"outputs": 3}, TypeError, "outputs is of type int; it must be a sequence of names"),
    "any order": ({"any_order": "no"}, TypeError, "any_order is of type str; it must be True or False"),
    "heads of no way": ({"ranks_heads": 3, "way": "ring"}, ValueError, "ranks_heads is 3 and way is 'ring'; it is for 'heads-ring'"),
    "other way": ({"way": "gather"}, ValueError, r"ranks disagree: rank 0 has way=(auto|gather), and rank \d has way=(auto|gather)"),
    "other window": ({"window": (3, 3)}, ValueError, r"ranks disagree: rank 0 has .*window.*, and rank \d has .*window"),
    "other part": ({"part": 8}, ValueError, r"ranks disagree: rank 0 has part=\d, and rank \d has part=\d"),
    "other lengths": ({"lengths_kv": [3, 5]}, ValueError, "ranks disagree about the problem"),
    "bias": ({"bias": np.zeros((1, 1, 2, 2))}, ValueError, "bias"),
    "slopes": ({"alibi_slopes": np.zeros(3)}, ValueError, "alibi_slopes"),
    "no array": ({"mask": object()}, TypeError, "mask"),
    "overlap": ({"out": "q"}, ValueError, "out and q share elements"),
    "rows": ({"rows": 1}, ValueError, r"q has \d+ tokens on rank \d"),
    "channels": ({"channels": 5}, ValueError, "k has 5 channels; it must have 8, as q has"),
    "a name twice": ({"outputs": ["entropy", "entropy"]}, ValueError, "outputs has 'entropy' twice"),
    "cu_seqlens": ({"cu_seqlens_q": [0, 37]}, ValueError, "axes=\"thd\""),
    "nan": ({"scale": NAN}, ValueError, "scale"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_on_one_rank_is_said_by_all(what):
    wrong, kind, sentence = WRONG[what]
    for who in range(3):
        kept = []

        def work(group, who=who, kept=kept):
            q, k, v = (distributed.shard(x, 2, group=group, part=PART, of=of) for x, of in ((Q, "q"), (K, "kv"), (K, "kv")))
            given = {"part": PART, "lengths_kv": [40, 45], **(wrong if group.rank == who else {})}
            q, k = q[:, :, given.pop("rows", 0):], k[..., :given.pop("channels", DIM)]
            o = np.full(q.shape, 7.0)
            kept.append(o)
            return distributed.attention(q, k, v, group=group, out=q if given.pop("out", None) else o, **given)

        found = outcomes(3, work)
        assert all(type(one) is kind for one in found), found
        assert len({str(one) for one in found}) == 1
        with pytest.raises(kind, match=sentence):
            raise found[0]
        assert all((o == 7).all() for o in kept)


def test_the_lowest_rank_is_heard():
    def work(group):
        q, k, v = (distributed.shard(x, 2, group=group, part=PART) for x in (Q[:, :2], Q[:, :2], Q[:, :2]))
        return distributed.attention(q, k, v, group=group, part=PART, **({}, {"softcap": -1.0}, {}, {"causal": 7})[group.rank])

    assert {(type(one), str(one)) for one in outcomes(4, work)} == {(ValueError, "softcap is -1.0; it must be above 0")}


def test_ranks_go_on_after_an_error():
    def work(group):
        q, k, v = (distributed.shard(x, 2, group=group, part=PART, of=of) for x, of in ((Q, "q"), (K, "kv"), (V, "kv")))
        with pytest.raises(ValueError, match="softcap"):
            distributed.attention(q, k, v, group=group, part=PART, softcap=-1.0 if group.rank == 1 else 2.0)
        return distributed.unshard(distributed.attention(q, k, v, group=group, part=PART), 2, group=group, part=PART)

    assert all(same([found], [distributed.attention(Q, K, V, part=PART)]) for found in distributed.in_threads(3, work))


def test_plans_reject_on_all_ranks():
    def work(group):
        q, k, v = (distributed.shard(x, 2, group=group, part=PART, of=of) for x, of in ((Q, "q"), (K, "kv"), (V, "kv")))
        plan = distributed.Plan(q, k, v, group=group, part=PART)
        said = []
        for wrong in ({"q": q[:, :, :1]}, {"bias": np.zeros((1, 1, 1, KEYS))}, {"seed": -1}, {"q": np.array(q, order="F")}):
            try:
                plan.execute(**{"q": q, "k": k, "v": v, **(wrong if group.rank == 1 else {})})
            except Exception as error:
                said.append(str(error))
        with pytest.raises(ValueError, match="op is 'triple'; it must be 'forward'"):
            distributed.Plan(q, k, v, group=group, part=PART, op="triple")
        return said

    found = distributed.in_threads(3, work)
    assert found[0] == found[1] == found[2] and len(found[0]) >= 3
    assert "the plan was made with" in found[0][0] and "the plan was made without it" in found[0][1] and "seed" in found[0][2]


def test_no_memory_on_one_rank(monkeypatch):
    poor = threading.local()

    def empty(*arguments):
        if getattr(poor, "on", False):
            raise MemoryError("no memory is left")
        return np.empty(*arguments)

    monkeypatch.setattr(distributed._plan, "np", types.SimpleNamespace(empty=empty, generic=np.generic, uint8=np.uint8))

    def work(group):
        q, k, v = (distributed.shard(x, 2, group=group, part=PART, of=of) for x, of in ((Q, "q"), (K, "kv"), (V, "kv")))
        o = np.full((*q.shape[:-1], DIM_V), 7.0)
        poor.on = group.rank == 1
        try:
            distributed.attention(q, k, v, group=group, part=PART, out=o)
        except MemoryError as error:
            return str(error), bool((o == 7).all())

    assert distributed.in_threads(3, work) == [("no memory is left", True)] * 3


def test_a_transport_that_fails():
    class Failing(distributed.Transport):
        """Fails at its n-th message."""

        def __init__(self, inner, left):
            super().__init__(inner.rank, inner.ranks)
            self.inner, self.left = inner, left

        def send(self, to, tag, data):
            self.left -= 1
            if self.left == 0:
                raise RuntimeError("the wire is cut")
            return self.inner.send(to, tag, data)

        def receive(self, source, tag, data):
            assert data.flags.owndata or data.size > 4096  # small ones lie on the library's stack, where nothing may be written later
            return self.inner.receive(source, tag, data)

        def wait(self, requests):
            self.inner.wait(requests)

    calls = {}

    def work(group, left):
        mine = Failing(group, left if group.rank == 1 else 0)
        q, k, v = (distributed.shard(x, 2, group=mine, part=PART, of=of) for x, of in ((Q, "q"), (K, "kv"), (V, "kv")))
        try:
            distributed.attention(q, k, v, group=mine, part=PART)
        except ConnectionError as error:
            calls[group.rank] = str(error)
            with pytest.raises(ConnectionError, match="make a new group"):
                distributed.attention(q, k, v, group=mine, part=PART)
            raise
        return left + mine.left

    for left in range(1, 100):
        calls.clear()
        try:
            assert distributed.in_threads(3, lambda group, left=left: work(group, left)) and left > 10
            break
        except ConnectionError:
            assert "the wire is cut" in calls[1] and calls[1].startswith("rank 1: "), calls
    else:
        raise AssertionError("it never ends")


def test_groups():
    with pytest.raises(TypeError, match="group is of type int; it must be"):
        distributed.attention(Q, K, V, group=3)
    with pytest.raises(ValueError, match="rank is 2"):
        distributed.in_threads(1, lambda group: type(group)(None, 2, 2))
    with pytest.raises(TypeError, match=r"layout is of type list; it must be 'contiguous'.*Owners"):
        distributed.attention(Q, K, V, layout=[0, 1])
    with pytest.raises(ValueError, match=r"layout\.q has 2 numbers; 37 tokens have 10 parts of 4"):
        distributed.attention(Q, K, V, part=PART, layout=distributed.Owners([0, 0], [0] * 12))
    with pytest.raises(ValueError, match=r"layout\.kv\[1\] is 1; it must be a rank, 0 to 0"):
        distributed.attention(Q, K, V, part=PART, layout=distributed.Owners([0] * 10, [0, 1] * 6))
    with pytest.raises(ZeroDivisionError):
        distributed.in_threads(3, lambda group: 1 // 0 if group.rank == 1 else distributed.attention(Q, K, V, group=group))
    with pytest.raises(ConnectionError, match="the thread of rank 1 has returned"):
        distributed.in_threads(2, lambda group: group.rank or distributed.unshard(Q, 2, group=group))
    found = outcomes(2, lambda group: distributed.Plan(Q, K, V, group=group, arrays=5 if group.rank == 1 else None))
    assert [str(error) for error in found] == ["arrays is of type int; it must be a dict of arrays by name"] * 2
    for wrong, sentence in (({"grads": ["sink", "sink"]}, "grads has 'sink' twice"), ({"grads": 5}, "grads is of type int; it must be a sequence of names")):
        found = outcomes(2, lambda group, wrong=wrong: distributed.attention_backward(
            Q, K, V, GRAD, LSE, GRAD, sink=np.ones(HEADS), group=group, **(wrong if group.rank == 1 else {})))
        assert [str(error) for error in found] == [sentence] * 2
    assert distributed.shard([[1.0, 2.0]], 1).shape == (1, 2)
    with pytest.raises(TypeError, match="len_q is missing"):
        distributed.balance(2)
    with pytest.raises(ValueError, match="ranks is 4294967297; it must be at most"):
        distributed.balance(2**32 + 1, len_q=5, len_kv=5)
    with pytest.raises(ValueError, match="tokens is 1152921504606846976; it must be 0 to 2\\^48"):
        distributed.balance(2, len_q=2**60, len_kv=2**60)


def test_ranks_that_wait_for_each_other_can_be_interrupted():
    threads = []

    def work(group):
        threads.append(threading.current_thread())
        if group.rank:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        group.wait([group.receive(1 - group.rank, 1, np.empty(1, np.uint8))])

    with pytest.raises(KeyboardInterrupt):
        distributed.in_threads(2, work)
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


@pytest.mark.parametrize("op", ["forward", "backward"])
def test_any_order(op):
    """Near the sums of trees on any number of ranks, with fewer results that wait, and the bits of the last time."""
    draw, how = np.random.default_rng(4), {"layout": "zigzag", "part": 2, "causal": True}
    q, g = (draw.standard_normal((1, 2, 64, 8), dtype=np.float32) for _ in "qg")
    o, lse = libattn.attention(q, q, q, causal=True, return_lse=True)

    def work(group, any_order):
        three = [distributed.shard(x, 2, group=group, layout="zigzag", part=2) for x in (q, q, q)]
        more = {} if op == "forward" else {"o": o, "lse": lse, "grad_o": g}
        mine = {name: distributed.shard(x, 2, group=group, layout="zigzag", part=2) for name, x in more.items()}
        plan = distributed.Plan(*three, op=op, arrays=mine, group=group, way="direct", any_order=any_order, **how)
        found, again = (plan.execute(*three) for _ in range(2))
        first = found if op == "forward" else found[0]
        assert np.array_equal(first, again if op == "forward" else again[0])
        d = plan.description
        return distributed.unshard(first, 2, group=group, layout="zigzag", part=2), d.row_nodes + d.column_nodes

    (trees, waiting), = distributed.in_threads(1, lambda group: work(group, False))
    for ranks in (1, 3):
        for x, fewer in distributed.in_threads(ranks, lambda group: work(group, True)):
            np.testing.assert_allclose(x, trees, rtol=1e-5, atol=1e-5)
            assert fewer < waiting
    with pytest.raises(ValueError, match="rank 0 has any_order=False, and rank 1 has any_order=True"):
        distributed.in_threads(2, lambda group: work(group, group.rank == 1))


def run_program(*words):
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1"}
    found = subprocess.run(words, capture_output=True, text=True, check=False, env={**os.environ, **root})
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout


def test_mpi():
    assert run_program(*gloo.mpirun(3), sys.executable, str(pathlib.Path(__file__).parent / "mpi_ranks.py")) == "as one\n"


@pytest.mark.parametrize("more", [["--window=100"], ["--dense=10"]])
def test_million(more):
    """bench/million.py, with fewer tokens."""
    program = [sys.executable, str(pathlib.Path(__file__).parents[2] / "bench/million.py"), "--tokens=3000", "--part=64", *more]
    two, one = (json.loads(run_program(*start, *program)) for start in (gloo.mpirun(2), []))
    assert two["results"] == one["results"] and two["ranks"] == len(two["memory"]) == 2
    rows = 8 * 64 * 3000 + 3000 if "window" in one else 2 * 64 * 3000 + 2 * 64 * 300
    assert one["tensors"] == 4 * rows and one["share"] == round(one["memory"][0] / one["tensors"], 3)


def test_nothing_of_a_framework_is_imported():
    code = "import sys, libattn.distributed as d, numpy as n; x = n.ones((2, 5, 4)); d.attention(x, x, x, part=2); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
