# SPDX-License-Identifier: MIT
"""Masks by name against their formulas, and what attention is told of them."""
import gc

import numpy as np
import pytest

import libattn
from libattn import masks


def first_word(seed, n, t):
    """The first number of Philox4x32-10 with key = seed and counter = (0, n, t, 0) (Salmon et al. 2011)."""
    key, counter = [seed & 0xFFFFFFFF, seed >> 32], [0, n, t, 0]
    for _ in range(10):
        high = [(0xD2511F53 * counter[0]) >> 32, (0xCD9E8D57 * counter[2]) >> 32]
        low = [(0xD2511F53 * counter[0]) & 0xFFFFFFFF, (0xCD9E8D57 * counter[2]) & 0xFFFFFFFF]
        counter = [high[1] ^ counter[1] ^ key[0], low[1], high[0] ^ counter[3] ^ key[1], low[0]]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return counter[0]


def bigbird(block, window, first, random, seed, len_q, len_kv):
    rows, columns = -(-len_q // block), -(-len_kv // block)
    seen = np.zeros((rows, columns), bool)
    for n in range(rows):
        for k in range(columns):
            seen[n, k] = abs(n - k) <= window // 2 or k < first or n < first
        for t in range(random):
            left = np.flatnonzero(~seen[n])
            if len(left):
                seen[n, left[(first_word(seed, n, t) * len(left)) >> 32]] = True
    return seen.repeat(block, 0).repeat(block, 1)[:len_q, :len_kv]


def documents(lengths_q, lengths_kv, len_q, len_kv):
    keep = np.zeros((len_q, len_kv), bool)
    for (a, b), (c, d) in zip(zip(lengths_q, lengths_kv), zip(np.cumsum(lengths_q), np.cumsum(lengths_kv))):
        keep[c - a:c, d - b:d] = True
    return keep


N, M = 13, 17
BLOCKS = np.random.default_rng(0).random((5, 5)) < 0.5
ROW, COLUMN = np.mgrid[:N, :M]
FORMULAS = [
    (masks.causal(), COLUMN <= ROW),
    (masks.window(2, 1), (ROW - 2 <= COLUMN) & (COLUMN <= ROW + 1)),
    (masks.window(-1, 3), COLUMN <= ROW + 3),
    (masks.sliding_window(3), (ROW - 3 < COLUMN) & (COLUMN <= ROW)),
    (masks.sliding_window(1), ROW == COLUMN),
    (masks.radius(2), abs(ROW - COLUMN) <= 2),
    (masks.local(5), abs(ROW - COLUMN) <= 2),
    (masks.local(4), abs(ROW - COLUMN) <= 2),
    (masks.block_diagonal(4), ROW // 4 == COLUMN // 4),
    (masks.strided(3), ROW % 3 == COLUMN % 3),
    (masks.columns(3), COLUMN % 3 == 0),
    (masks.dilated(2, 3), (abs(ROW - COLUMN) <= 6) & (ROW % 3 == COLUMN % 3)),
    (masks.fixed(4, 1), (ROW // 4 == COLUMN // 4) | (COLUMN % 4 >= 3)),
    (masks.global_local(4, 2), (abs(ROW - COLUMN) <= 2) | (COLUMN < 2) | (ROW < 2)),
    (masks.bigbird(3, 1, 1, 1, seed=2**40 + 5), bigbird(3, 1, 1, 1, 2**40 + 5, N, M)),
    (masks.prefix(5), (COLUMN <= ROW) | (COLUMN < 5)),
    (masks.lengths(4, 6), (ROW < 4) & (COLUMN < 6)),
    (masks.documents([3, 0, 5, 2], np.int32([4, 1, 2, 9])), documents([3, 0, 5, 2], [4, 1, 2, 9], N, M)),
    (masks.documents([6, 7]), documents([6, 7], [6, 7], N, M)),
    (masks.block_map(3, 4, BLOCKS), BLOCKS.repeat(3, 0).repeat(4, 1)[:N, :M]),
]


@pytest.mark.parametrize("case", range(len(FORMULAS)))
def test_formulas(case):
    pattern, want = FORMULAS[case]
    both = masks.PatternSet(N, M, pattern)
    keep = both.matrix()
    assert keep.dtype == bool and np.array_equal(keep, want)
    assert both.sees(4, 4) == want[4, 4] and not both.sees(N, 0) and not both.sees(0, -1)
    counts = both.count(4, 5)
    tiles = [want[i:i + 4, j:j + 5].any() for i in range(0, N, 4) for j in range(0, M, 5)]
    assert counts == masks.Counts(want.sum(), counts.sparsity, len(tiles), tiles.count(False), (~want.any(1)).sum())
    assert counts.sparsity == pytest.approx(1 - want.mean(), abs=1e-15)


def test_bottom_right_moves_all_positions():
    positions = ROW + M - N
    found = masks.PatternSet(N, M, masks.causal_bottom_right(), masks.block_diagonal(4), masks.local(6)).matrix()
    assert np.array_equal(found, (COLUMN <= positions) & (positions // 4 == COLUMN // 4) & (abs(positions - COLUMN) <= 3))


def test_text_and_names():
    both = masks.PatternSet(2, 2, masks.causal())
    assert both.text() == "#.\n##" and masks.PatternSet(2, 3).text() == "###\n###"
    assert repr(masks.PatternSet(2, 3, masks.window(1, 0))) == "masks.PatternSet(2, 3, masks.window(left=1, right=0))"


def attention(q, k, v, keep):
    scores = np.where(keep, q @ k.T / q.shape[1] ** 0.5, -np.inf)
    weights = np.exp(scores - scores.max(1, keepdims=True, initial=-1e300))
    total = weights.sum(1, keepdims=True)
    return np.divide(weights @ v, total, out=np.zeros((len(q), v.shape[1])), where=total > 0)


TOGETHER = [[one] for one, _ in FORMULAS] + [
    [masks.causal_bottom_right(), masks.local(6)], [masks.causal(), masks.prefix(3)], [masks.block_diagonal(5), masks.causal()], [],
    [masks.columns(2), masks.causal()], [masks.block_map(3, 4, BLOCKS), masks.causal()],
]


@pytest.mark.parametrize("case", range(len(TOGETHER)))
def test_attention_with_patterns(case):
    both = masks.PatternSet(N, M, *TOGETHER[case])
    keep = both.matrix()
    try:
        arguments = both.arguments()
    except NotImplementedError as error:
        assert "matrix" in str(error) or "mask" in str(error)
        arguments = {"mask": keep, "align": "top-left"}
    del both
    gc.collect()  # the arguments outlive the set
    rng = np.random.default_rng(case)
    q, k, v = (rng.standard_normal(shape) for shape in ((N, 4), (M, 4), (M, 3)))
    assert np.allclose(libattn.attention(q, k, v, **arguments), attention(q, k, v, keep), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("patterns", [
    [masks.documents([6, 7], [8, 9])], [masks.columns(3)], [masks.block_map(3, 4, BLOCKS)], [masks.bigbird(3, 1, 1, 1, seed=3)],
    [masks.causal_bottom_right(), masks.local(6)], [masks.prefix(4)], [masks.global_local(4, 2), masks.causal()],
])
def test_heads_layouts_and_gradients(patterns):
    both = masks.PatternSet(N, M, *patterns)
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal(shape) for shape in ((2, 4, N, 8), (2, 2, M, 8), (2, 2, M, 8)))
    found, want = [], []
    for results, arguments in ((found, both.arguments()), (want, {"mask": both.matrix(), "align": "top-left"})):
        o, lse = libattn.attention(q, k, v, return_lse=True, **arguments)
        results += [o, lse, *libattn.attention_backward(q, k, v, o, lse, o, **arguments)]
        other = libattn.attention(*(x.transpose(0, 2, 1, 3) for x in (q, k, v)), layout="bshd", **arguments)
        results.append(other.transpose(0, 2, 1, 3))
    for one, two in zip(found, want):
        assert np.allclose(one, two, rtol=1e-11, atol=1e-12)
    assert np.allclose(found[0], found[-1], rtol=1e-12, atol=1e-13)


def test_arguments():
    both = masks.PatternSet(N, M, masks.causal_bottom_right(), masks.local(6))
    assert both.arguments() == {"causal": "bottom-right", "window": (3, 3)}
    found = masks.PatternSet(N, M, masks.documents([6, 7])).arguments()
    assert sorted(found) == ["align", "ranges"] and found["ranges"].shape == (N, 2) and found["ranges"].tolist()[5:7] == [[0, 6], [6, 13]]
    columns = masks.PatternSet(N, M, masks.columns(3)).arguments()["mask"]
    assert columns.dtype == bool and np.array_equal(columns, [np.arange(M) % 3 == 0])
    lists = masks.PatternSet(N, M, masks.block_map(3, 4, BLOCKS)).arguments()
    assert (lists["block_q"], lists["block_kv"]) == (3, 4) and np.array_equal(lists["block_index"], np.nonzero(BLOCKS)[1])
    assert np.array_equal(lists["block_starts"], [0, *np.cumsum(BLOCKS.sum(1))])
    none = masks.PatternSet(N, M, masks.block_map(3, 4, np.zeros((5, 5), bool))).arguments()
    assert none["block_index"].shape == (0,)


def test_arrays_are_kept():
    blocks = BLOCKS.copy()
    both = masks.PatternSet(N, M, masks.block_map(3, 4, blocks), masks.documents(list(range(4))))
    want = both.matrix()
    blocks[:] = ~blocks  # the pattern has its own
    gc.collect()
    assert np.array_equal(both.matrix(), want)


@pytest.mark.parametrize("make, kind, message", [
    (lambda: masks.PatternSet(-1, 3), ValueError, "len_q"), (lambda: masks.PatternSet(3, 3, masks.strided(0)), ValueError, "stride"),
    (lambda: masks.PatternSet(3, 3, masks.window(-2, 0)), ValueError, "left"), (lambda: masks.window(1.5, 0), TypeError, "left"),
    (lambda: masks.PatternSet(3, 3, "causal"), TypeError, "a pattern is of type str"),
    (lambda: masks.PatternSet(13, 17, masks.block_map(3, 4, BLOCKS[:4])), ValueError, "blocks has shape"),
    (lambda: masks.PatternSet(13, 17, masks.block_map(0, 4, BLOCKS)), ValueError, "block_q"),
    (lambda: masks.documents([1, 2], [1]), ValueError, "lengths_kv has 1"),
    (lambda: masks.documents([[1]]), ValueError, "lengths_q has 2 axes"),
    (lambda: masks.documents([0.5]), TypeError, "lengths_q has type"),
    (lambda: masks.PatternSet(3, 3, masks.documents([2, 2])), ValueError, "lengths"),
    (lambda: masks.bigbird(2, 1, 1, 1, seed=-1), ValueError, "seed is -1"), (lambda: masks.PatternSet(3, 3).count(0), ValueError, "tile_q"),
    (lambda: masks.PatternSet(3, 3).matrix(out=np.zeros((3, 2), bool)), ValueError, "out has shape"),
    (lambda: masks.PatternSet(3, 3).matrix(out=np.zeros((3, 3), np.int16)), NotImplementedError, "keep"),
    (lambda: masks.block_map(2, 2, [1]), ValueError, "blocks has 1 axes"),
])
def test_errors(make, kind, message):
    with pytest.raises(kind, match=message):
        make()


def test_a_set_does_not_change():
    both = masks.PatternSet(N, M, masks.causal())
    with pytest.raises(AttributeError, match="len_q of a PatternSet cannot be replaced"):
        both.len_q = 3


def test_forms():
    drop = np.random.default_rng(1).random((3, 4, 5)) < 0.5
    keep = masks.keep_from_drop(drop)
    assert keep.dtype == bool and np.array_equal(keep, ~drop)
    bytes_of = drop.astype(np.uint8)
    assert masks.keep_from_drop(bytes_of, out=bytes_of) is bytes_of and np.array_equal(bytes_of, ~drop)
    assert np.array_equal(masks.bias_from_keep(keep), np.where(keep, 0, -np.inf)) and masks.bias_from_keep(keep).dtype == np.float32
    assert np.array_equal(masks.bias_from_keep(keep, fill=-1e9, dtype=np.float64), np.where(keep, 0, -1e9))
    assert np.array_equal(masks.bias_from_keep(np.array([0, 256, -1])), [-np.inf, 0, 0])
    assert np.isneginf(masks.bias_from_keep([0], fill=-1e9, dtype=np.float16)).all()
    torch = pytest.importorskip("torch")
    assert isinstance(masks.bias_from_keep(torch.tensor(keep)), torch.Tensor)
    with pytest.raises(TypeError, match="drop has type float64"):
        masks.keep_from_drop([0.5])
