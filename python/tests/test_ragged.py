# SPDX-License-Identifier: MIT
"""Ragged batches: packed queries over caches and pages, as inference engines have them."""
import numpy as np
import pytest

import libattn
from libattn import cache

COUNTS, LENGTHS, PAGE, H, HKV, D = [1, 5, 0, 3], [9, 12, 7, 3], 4, 4, 2, 8
RANDOM = np.random.default_rng(3)
Q = RANDOM.standard_normal((sum(COUNTS), H, D)).astype("f4")
CACHE = [RANDOM.standard_normal((len(COUNTS), 12, HKV, D)).astype("f4") for _ in range(2)]  # [sequence, token, head, channel]
STARTS = np.concatenate([[0], np.cumsum(COUNTS)]).astype("i4")
ORDER = RANDOM.permutation(12)  # page 3 b + i has the tokens of entry b from 4 i on
PAGES = [np.ascontiguousarray(x.reshape(12, PAGE, HKV, D)[np.argsort(ORDER)]) for x in CACHE]
TABLE = ORDER.reshape(4, 3)


def near(a, b):
    return a.shape == b.shape and np.allclose(a, b, rtol=1e-5, atol=1e-6)


def wanted(**options):
    rows = []
    for b, (count, length) in enumerate(zip(COUNTS, LENGTHS)):
        k, v = (x[b:b + 1, :length] for x in CACHE)
        rows.append(libattn.attention(Q[None, STARTS[b]:STARTS[b] + count], k, v, layout="bshd", causal=True, **options)[0])
    return np.concatenate(rows)


def ragged(k, v, q=Q, **options):
    return libattn.attention(q, k, v, layout="thd", cu_seqlens_q=STARTS, causal=True, **options)


def test_caches():
    assert near(ragged(*CACHE, lengths_kv=LENGTHS), wanted())
    o, lse = ragged(*CACHE, lengths_kv=LENGTHS, return_lse=True)
    assert o.shape == Q.shape and lse.shape == Q.shape[:2]


def test_pages():
    assert near(ragged(*PAGES, lengths_kv=LENGTHS, page_table=TABLE, window=(3, 0)), wanted(window=(3, 0)))


def test_lists():
    counts = [(n + PAGE - 1) // PAGE for n in LENGTHS]
    lists = {
        "page_starts": np.concatenate([[0], np.cumsum(counts)]), "page_index": np.concatenate([row[:n] for row, n in zip(TABLE, counts)]),
    }
    last = [n - (pages - 1) * PAGE for n, pages in zip(LENGTHS, counts)]
    assert near(ragged(*PAGES, lengths_last_page=last, **lists), wanted())
    assert near(ragged(*PAGES, lengths_kv=LENGTHS, **lists), wanted())


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
def test_lists_without_packed_queries_do_not_depend_on_earlier_calls(layout):
    """The longest list is a number in an array: plans are kept for each."""
    q, (k, v) = Q[:2, None], PAGES
    if layout == "bhsd":
        q, k, v = (x.swapaxes(1, 2) for x in (q, k, v))
    for starts in ([0, 2, 4], [0, 3, 5], [0, 1, 2], [0, 1, 5], [0, 2, 4]):
        index = ORDER[:starts[-1]]
        lists = {"page_starts": np.array(starts), "page_index": index, "lengths_last_page": np.array([PAGE, PAGE])}
        o, weights = libattn.attention(q, k, v, layout=layout, return_weights=True, **lists)
        assert weights.shape[-1] == PAGE * np.diff(starts).max()
        for b in range(2):
            keys, values = (np.concatenate(x[index[starts[b]:starts[b + 1]]])[None] for x in PAGES)
            want = libattn.attention(Q[None, b:b + 1], keys, values, layout="bshd")
            assert near(o[b:b + 1], want.swapaxes(1, 2) if layout == "bhsd" else want), (starts, b)


def test_trees():
    bits = RANDOM.integers(0, 2**60, (len(Q), 1, 1), np.uint64) | np.uint64(1 << 3)
    got = ragged(*CACHE, lengths_kv=LENGTHS, tree=bits, tree_keys=4)
    rows = []
    for b, (count, length) in enumerate(zip(COUNTS, LENGTHS)):
        k, v = (x[b:b + 1, :length] for x in CACHE)
        keys = np.arange(length) - (length - 4)
        mask = (keys < 0) | ((bits[STARTS[b]:STARTS[b] + count, 0] >> np.maximum(keys, 0).astype("u8")) & np.uint64(1) != 0)
        rows.append(libattn.attention(Q[None, STARTS[b]:STARTS[b] + count], k, v, layout="bshd", causal=True, mask=mask)[0])
    assert near(got, np.concatenate(rows))
    one = libattn.check(Q[None, :5].swapaxes(1, 2), *(x[1:2].swapaxes(1, 2) for x in CACHE), causal=True, tree=bits[None, :5, 0][:, None], tree_keys=4)
    assert one.passed, one


@pytest.mark.parametrize("page_size", [4, None])
def test_choice(page_size):
    kept = cache.Cache.empty(batch=2, heads=HKV, capacity=24, dim_qk=D, page_size=page_size)
    k, v = (RANDOM.standard_normal((2, HKV, 22, D)).astype("f4") for _ in range(2))
    q = RANDOM.standard_normal((2, H, 1, D)).astype("f4")
    kept.append(k[:, :, :13], v[:, :, :13], [13, 9])
    rows = kept.page_bounds(block=0 if page_size else 4)
    before = kept.lengths.copy()
    kept.append(k[:, :, 13:], v[:, :, 13:])
    assert kept.page_bounds(rows, before, block=0 if page_size else 4) is rows
    scores = kept.page_scores(rows, q, block=0 if page_size else 4)
    lists = cache.choose_blocks(scores, kept.lengths, 3, 4, keep_last=1)
    mask = np.zeros((2, H, 1, 24), bool)
    for b, length in enumerate(kept.lengths):
        keys = kept.k[kept.page_table[b]].swapaxes(0, 1).reshape(HKV, 24, D) if page_size else kept.k[b]
        for g in range(HKV):
            blocks = [keys[g, n:min(n + 4, length)] for n in range(0, length, 4)]
            most = [max(np.maximum(q[b, h, 0] * x.min(0), q[b, h, 0] * x.max(0)).sum() for h in (2 * g, 2 * g + 1)) for x in blocks]
            assert np.allclose(scores[b, g, :len(most)], most, rtol=1e-5) and np.all(scores[b, g, len(most):] == -np.inf)
            chosen = sorted([*np.argsort(most[:-1])[-2:], len(most) - 1])
            assert chosen == list(lists.block_index[lists.block_starts[2 * b + g]:lists.block_starts[2 * b + g + 1]])
            for n in chosen:
                mask[b, 2 * g:2 * g + 2, :, 4 * n:4 * n + 4] = True
    options = {"causal": True, **kept.arguments()}
    got = libattn.attention(q, kept.k, kept.v, block_heads=True, block_q=1, block_kv=4, **lists._asdict(), **options)
    assert near(got, libattn.attention(q, kept.k, kept.v, mask=mask, **options))
    with pytest.raises(ValueError, match="^first has shape"):
        kept.page_bounds(rows, [1], block=0 if page_size else 4)
    with pytest.raises(ValueError, match="keep_first .2. and keep_last .2. are together more than count .3."):
        cache.choose_blocks(scores, kept.lengths, 3, 4, keep_first=2, keep_last=2)


@pytest.mark.parametrize("options, message", [
    ({"k": CACHE[0][0]}, "k has 3 axes; it must have 4"),
    ({"lengths_kv": [9, 12, 7, 13]}, "lengths_kv.3. .13. is not between 0 and 12"),
    ({"lengths_q": [1, 5, 0, 3]}, "cu_seqlens_q and lengths_q are both set; set only one of them"),
])
def test_rejected(options, message):
    given = {"k": CACHE[0], "v": CACHE[1], "lengths_kv": LENGTHS, **options}
    with pytest.raises(ValueError, match=message):
        ragged(given.pop("k"), given.pop("v"), **given)
