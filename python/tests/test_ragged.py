# SPDX-License-Identifier: MIT
"""Ragged batches: packed queries over caches and pages, as inference engines have them."""
import numpy as np
import pytest

import libattn

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


@pytest.mark.parametrize("options, message", [
    ({"k": CACHE[0][0]}, "k has 3 axes; it must have 4"),
    ({"lengths_kv": [9, 12, 7, 13]}, "lengths_kv.3. .13. is not between 0 and 12"),
    ({"lengths_q": [1, 5, 0, 3]}, "cu_seqlens_q and lengths_q are both set; set only one of them"),
])
def test_rejected(options, message):
    given = {"k": CACHE[0], "v": CACHE[1], "lengths_kv": LENGTHS, **options}
    with pytest.raises(ValueError, match=message):
        ragged(given.pop("k"), given.pop("v"), **given)
