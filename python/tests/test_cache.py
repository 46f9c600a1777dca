# SPDX-License-Identifier: MIT
"""Caches of keys and values against attention over whole sequences, computed in double."""
import threading

import numpy as np
import pytest

import libattn
from libattn import cache
from libattn.cache import Cache
from libattn.positions import Rope
from problems import arrays, close

B, HQ, H, N, D, DV = 2, 4, 2, 11, 8, 6


def draw(seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape).astype(dtype) for shape in ((B, HQ, N, D), (B, H, N, D), (B, H, N, DV))]


def attention(q, k, v, scale=D**-0.5, softcap=None, window=None, slopes=None, sink=None, temperature=1.0):
    """Causal attention of all tokens, in double: o and lse."""
    n, group = q.shape[2], q.shape[1] // k.shape[1]
    k, v = k.repeat(group, 1), v.repeat(group, 1)
    s = scale / temperature * q @ k.swapaxes(2, 3)
    if softcap:
        s = softcap * np.tanh(s / softcap)
    distance = np.subtract.outer(np.arange(n), np.arange(n))
    if slopes is not None:
        s = s - np.reshape(slopes, (-1, 1, 1)) * abs(distance)
    s = np.where((distance >= 0) & (distance <= (n if window is None else window)), s, -np.inf)
    top = s.max(3, keepdims=True)
    weights = np.exp(s - top)
    total = weights.sum(3, keepdims=True)
    if sink is not None:
        total = total + np.exp(np.reshape(sink, (-1, 1, 1)) - top)
    return weights @ v / total, (np.log(total) + top)[..., 0]


# Scores below 10 of 8 products, weights of 11 keys: a few hundred roundings of numbers below 4.
NEAR = 500 * 4 * 2.0**-53


@pytest.mark.parametrize("page_size", [None, 3, 4, 16])
@pytest.mark.parametrize("rope", [None, Rope(pairs="halves", base=100.0)])
def test_decode(page_size, rope):
    q, k, v = draw()
    kept = Cache.empty(B, H, 12, D, DV, dtype=np.float64, page_size=page_size, rope=rope)
    where = np.arange(N)
    want, lse = attention(*(x if rope is None else rope(x, where) for x in (q, k)), v)
    for start, end in ((0, 5), (5, 6), (6, 6), (6, 9), (9, 11)):
        cut = np.s_[:, :, start:end]
        o, sums = kept.attend(q[cut], k[cut], v[cut], return_lse=True)
        close(o, want[cut], NEAR)
        close(sums, lse[cut], NEAR)
    assert kept.lengths.tolist() == [N, N]
    last = np.s_[:, :, 9:]
    turned = q[last] if rope is None else rope(q[last], np.arange(9, 11))
    close(libattn.attention(turned, kept.k, kept.v, causal=True, **kept.arguments()), want[last], NEAR)
    with pytest.raises(ValueError, match="do not fit"):
        kept.append(k[:, :, :6], v[:, :, :6])
    assert kept.lengths.tolist() == [N, N]


def test_different_lengths():
    q, k, v = draw(1)
    kept = Cache.empty(B, H, 12, D, DV, dtype=np.float64)
    kept.append(k[:, :, :4], v[:, :, :4], [4, 2])
    o = kept.attend(q[:, :, :3], k[:, :, 4:7], v[:, :, 4:7], np.int32([3, 1]))
    assert kept.lengths.tolist() == [7, 3]
    for b, (old, new) in enumerate(((4, 3), (2, 1))):
        keys, values = (np.concatenate([x[b:b + 1, :, :old], x[b:b + 1, :, 4:4 + new]], 2) for x in (k, v))
        queries = np.concatenate([np.zeros((1, HQ, old, D)), q[b:b + 1, :, :new]], 2)
        close(o[b, :, :new], attention(queries, keys, values)[0][0, :, old:], NEAR)
        assert not o[b, :, new:].any()


@pytest.mark.parametrize("options", [
    {"scale": 0.7}, {"softcap": 2.0}, {"window": 3}, {"alibi_slopes": [0.5, 0.25, 0.1, 0.0]}, {"sink": [0.0, 1.0, -1.0, 2.0]},
    {"temperature": 2.0, "threads": 2}, {"window": (3, None), "isa": "scalar"},
])
def test_options(options):
    q, k, v = draw(2)
    kept = Cache.empty(B, H, N, D, DV, dtype=np.float64)
    own = {"slopes" if name == "alibi_slopes" else name: x for name, x in options.items() if name not in ("threads", "isa")}
    if isinstance(own.get("window"), tuple):
        own["window"] = own["window"][0]
    want, _ = attention(q, k, v, **own)
    for start, end in ((0, 6), (6, 7), (7, 11)):
        cut = np.s_[:, :, start:end]
        out = np.empty(want[cut].shape)
        assert kept.attend(q[cut], k[cut], v[cut], out=out, **options) is out
        close(out, want[cut], NEAR)


@pytest.mark.parametrize("dtype, v_dtype", [("float32", None), ("float16", None), ("int8", "int8"), ("int8", "float32"), ("float8_e4m3fn", "float8_e5m2")])
@pytest.mark.parametrize("page_size", [None, 4])
def test_types(dtype, v_dtype, page_size):
    pytest.importorskip("ml_dtypes") if dtype.startswith("float8") else None
    q, k, v = draw(3, np.float32)
    kept = Cache.empty(B, H, 12, D, DV, dtype=dtype, v_dtype=v_dtype, page_size=page_size)
    o = kept.attend(q, k, v)
    read = []
    for x, kind in ((k, dtype), (v, v_dtype or dtype)):
        values, scales = cache.quantise(x)
        read.append(values * scales[..., np.newaxis].astype(float) if kind == "int8" else x.astype(kind).astype(float))
    # Exact scores are those of the keys as stored; f32 has 2^29 times the rounding of double.
    close(o, attention(q.astype(float), *read)[0], NEAR * 2.0**29)
    again = libattn.attention(q[:, :, -1:], kept.k, kept.v, causal=True, **kept.arguments())
    close(again, o[:, :, -1:], NEAR * 2.0**29)


@pytest.mark.parametrize("page_size", [None, 4])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_slots(page_size, dtype):
    """Packed tokens to slots: the rows of the same tokens appended by lengths, with tables that are columns of one float array."""
    pytest.importorskip("ml_dtypes") if dtype == "bfloat16" else None
    angles = np.arange(20)[:, np.newaxis] * 100.0 ** (-np.arange(D // 2) / (D // 2))
    table = np.concatenate([np.cos(angles), np.sin(angles)], 1).astype(np.float32)
    rope = Rope(pairs="halves", cosines=table[:, :D // 2], sines=table[:, D // 2:])
    _, k, v = draw(7, np.float32)
    by_length, by_slot = (Cache.empty(B, H, 12, D, DV, dtype=dtype, page_size=page_size, rope=rope) for _ in range(2))
    by_length.append(k, v, threads=1)
    packed_k, packed_v = (x.transpose(0, 2, 1, 3).reshape(B * N, H, -1) for x in (k, v))
    slots = np.concatenate([np.arange(N), 12 + np.arange(N)]).astype(np.int32)
    order = np.random.default_rng(1).permutation(B * N)
    positions = np.tile(np.arange(N), B)
    by_slot.append(packed_k[order], packed_v[order], slots=slots[order], positions=positions[order], threads=2)
    assert by_slot.lengths.tolist() == [0, 0]
    for name in ("k", "v", "k_scale", "v_scale"):
        one, other = getattr(by_length, name), getattr(by_slot, name)
        assert one is None or one.tobytes() == other.tobytes()
    was = by_slot.k.tobytes()
    by_slot.append(packed_k[:2], packed_v[:2], slots=[-1, -1], positions=[0, 0])
    assert by_slot.k.tobytes() == was
    for bad, says in (({"slots": [3, 3]}, "both 3"), ({"slots": [0, 24]}, "below 24"), ({"slots": [0, 1], "positions": None}, "positions is missing"),
                      ({"slots": [0, 1], "lengths": [1, 1]}, "lengths and slots"), ({"slots": [0]}, "slots has shape"),
                      ({"slots": None, "positions": [0, 1]}, "positions is set")):
        with pytest.raises(ValueError, match=says):
            by_slot.append(packed_k[:2], packed_v[:2], **{"positions": [0, 1], **bad})
    assert by_slot.k.tobytes() == was


@pytest.mark.parametrize("page_size", [None, 4])
@pytest.mark.parametrize("rope", [None, Rope(pairs="halves", base=100.0)])
def test_shift(page_size, rope):
    _, k, v = draw(8)
    kept, fresh = (Cache.empty(B, H, 12, D, DV, dtype=np.float64, page_size=page_size, rope=rope) for _ in range(2))
    kept.append(k, v)
    kept.shift([3, 4], keep=2)
    for x, y in ((k, v),):
        left = [np.stack([np.concatenate([a[b, :, :2], a[b, :, 2 + drop:2 + drop + 5]], 1) for b, drop in enumerate((3, 4))]) for a in (x, y)]
        fresh.append(*left)
    assert kept.lengths.tolist() == [N - 3, N - 4] and fresh.lengths.tolist() == [7, 7]
    kept.lengths[:] = 7
    last = np.zeros((B, HQ, 1, D)), np.zeros((B, H, 1, D)), np.zeros((B, H, 1, DV))
    close(kept.attend(*last), fresh.attend(*last), NEAR)
    kept.shift(1)
    assert kept.lengths.tolist() == [7, 7]
    with pytest.raises(ValueError, match="holds 7 tokens, of which 2 are to be kept"):
        kept.shift(6, keep=2)
    with pytest.raises(ValueError, match="drop has shape"):
        kept.shift([1, 2, 3])


def test_move():
    _, k, v = draw(9, np.float32)
    kept = Cache.empty(B, H, 12, D, DV, dtype="int8", page_size=4)
    kept.append(k, v)
    was = kept.k[1].copy(), kept.k_scale[1].copy()
    kept.move(np.arange(4, 8), np.arange(20, 24, dtype=np.int32))  # page 1 to page 5
    assert (kept.k[5] == was[0]).all() and (kept.k_scale[5] == was[1]).all()
    for bad, says in (([24], "24"), ([0, 1], "target has shape")):
        with pytest.raises(ValueError, match=says):
            kept.move([0], bad)


def test_your_memory():
    torch = pytest.importorskip("torch")
    q, k, v = (torch.from_numpy(x) for x in draw(4, np.float32))
    memory = torch.zeros(B, H, 16, D + DV)
    lengths = torch.zeros(B, dtype=torch.int64)
    kept = Cache(memory[..., :D], memory[..., D:], lengths)
    o = kept.attend(q, k, v)
    assert isinstance(o, torch.Tensor) and lengths.tolist() == [N, N]
    assert torch.equal(memory[:, :, :N], torch.cat([k, v], 3)) and not memory[:, :, N:].any()
    # Two sequences that share the first page.
    table = np.array([[0, 1, 2], [0, 3, 4]])
    pages = np.zeros((5, H, 4, D)), np.zeros((5, H, 4, DV))
    shared = Cache(*pages, np.array([4, 4]), page_table=table)
    a, b, c = draw(5)
    pages[0][0], pages[1][0] = b[0, :, :4], c[0, :, :4]
    o = shared.attend(a[:, :, 4:], b[:, :, 4:], c[:, :, 4:])
    keys, values = (np.concatenate([x[:1, :, :4].repeat(2, 0), x[:, :, 4:]], 2) for x in (b, c))
    close(o, attention(a, keys, values)[0][:, :, 4:], NEAR)


@pytest.mark.parametrize("page_size", [None, 4])
@pytest.mark.parametrize("dtype", ["float64", "int8"])
def test_evict(page_size, dtype):
    q, k, v = draw(6, np.float64 if dtype == "float64" else np.float32)
    kept = Cache.empty(B, H, 12, D, DV, dtype=dtype, page_size=page_size)
    kept.append(k[:, :, :10], v[:, :, :10])
    keep = np.array([[[1, 3, 9, 4], [0, 2, 5, 9]], [[9, 8, 1, 0], [2, 1, 0, 0]]])
    kept.evict(keep, [4, 3])
    assert kept.lengths.tolist() == [4, 3]
    want = Cache.empty(B, H, 12, D, DV, dtype=dtype)
    chosen = [np.take_along_axis(x, keep[..., np.newaxis], 2) for x in (k, v)]
    want.append(*chosen, [4, 3])
    for one in (kept, want):
        one.evict([[2, 0], [1, 2]])
    last = np.s_[:, :, 10:]
    close(kept.attend(q[last], k[last], v[last]), want.attend(q[last], k[last], v[last]), 1e-5 if dtype == "int8" else NEAR)
    before = kept.k.copy()
    for bad, lengths in (([[3], [0]], None), ([[-1], [0]], None), ([[0], [0]], [2, 0])):
        with pytest.raises(ValueError):
            kept.evict(bad, lengths)
    assert np.array_equal(before, kept.k) and kept.lengths.tolist() == [3, 3]


@pytest.mark.parametrize("lengths, table, keep", [
    ([4, 2], [[0, 1], [3, -1]], [[2, 3, 0], [1, 0, 0]]),  # entry 1 has no page for a third token
    ([4, 4], [[0, 1], [2, 77]], [[3], [3]]), ([4, 4], [[-1, 0], [2, 3]], [[2], [1]]), ([4, 2**60], [[0, 1], [2, 3]], [[3], [2**50]]),
    ([4, -1], [[0, 1], [2, 3]], [[3], [0]]),
])
def test_evict_rejects_before_it_writes(lengths, table, keep):
    k = np.arange(16.0).reshape(4, 2, 2, 1)
    one = Cache(k, k + 100, np.array(lengths), page_table=np.array(table))
    before = one.k.copy(), one.v.copy()
    with pytest.raises(ValueError, match=r"page_table\[\d, \d\] is|lengths\[1\] is|keep of entry 1"):
        one.evict(keep)
    assert np.array_equal(one.k, before[0]) and np.array_equal(one.v, before[1]) and one.lengths.tolist() == lengths


def test_the_page_table_is_the_callers():
    """Columns of an engine's table, whose later entries are seen; what would be copied is refused."""
    whole = np.full((1, 8), -1, np.int32)
    one = Cache(np.zeros((4, 1, 2, 3)), np.zeros((4, 1, 2, 3)), np.zeros(1, np.int64), page_table=whole[:, :4])
    for page, at in ((2, 0), (1, 1)):
        whole[0, at] = page
        one.append(np.full((1, 1, 2, 3), page), np.ones((1, 1, 2, 3)))
    assert one.k[:, 0, 0, 0].tolist() == [0, 1, 2, 0] and one.lengths.tolist() == [4]
    for table, kind, says in ((whole.astype(np.int16), TypeError, "page_table has type int16; it must be int64 or int32"),
                              (whole[:, ::2], ValueError, "page_table is not aligned .* last axis that is not contiguous")):
        with pytest.raises(kind, match=says):
            Cache(one.k, one.v, np.zeros(1, np.int64), page_table=table)
    assert Cache(one.k, one.v, np.zeros(1, np.int64), page_table=[[0, 1]]).capacity == 4


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "int8"])
@pytest.mark.parametrize("pages, heads, page_size", [(1, 1, None), (1, 2, None), (4, 2, 1), (4, 2, 2), (1, 1, 1)])
def test_scales_of_one_token_are_the_caches(dtype, pages, heads, page_size):
    """An axis of one token has no stride that could say that the scale is the caller's."""
    kind = np.int8 if dtype == "int8" else getattr(pytest.importorskip("ml_dtypes"), dtype)
    x = np.random.default_rng(1).standard_normal((1, heads, 1, 4)).astype("f")
    memory, scales = np.zeros((pages, heads, page_size or 1, 4), kind), np.zeros((pages, heads, page_size or 1), "f")
    table = None if page_size is None else np.arange(pages)[np.newaxis]
    one = Cache(memory, memory.copy(), np.zeros(1, np.int64), page_table=table, k_scale=scales, v_scale=scales.copy())
    one.append(x, x)
    wanted = cache.quantise(x, {"int8": "i8", "float8_e4m3fn": "f8_e4m3"}[dtype])
    assert np.array_equal(one.k_scale[0, :, 0], wanted.scales[0, :, 0]) and one.k[0, :, 0].tobytes() == wanted.values[0, :, 0].tobytes()
    if dtype != "int8":
        given = np.broadcast_to(np.float32(2), scales.shape)
        one = Cache(memory, memory.copy(), np.zeros(1, np.int64), page_table=table, k_scale=given, v_scale=given)
        one.append(x, x)
        assert one.k[0, :, 0].astype("f").tobytes() == (x[0, :, 0] / 2).astype(kind).astype("f").tobytes()


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_quantise(dtype):
    rng = np.random.default_rng(7)
    x = (rng.standard_normal((3, 4, 9)) * 10.0 ** rng.integers(-3, 3, (3, 4, 1))).astype(dtype)
    x[1, 2] = 0
    values, scales = cache.quantise(x)
    assert (values.dtype, values.shape, scales.dtype, scales.shape) == (np.int8, x.shape, np.float32, x.shape[:-1])
    exact = x.astype(float)
    close(scales, np.abs(exact).max(2) / 127, 2.0**-24 * np.abs(exact).max(2) / 127)
    close(values * scales[..., None].astype(float), exact, 0.5 * scales[..., None].astype(float) * (1 + 2.0**-22))
    assert values[1, 2].tolist() == [0] * 9 and scales[1, 2] == 0
    x[0, 0, 3] = np.inf
    assert np.isnan(cache.quantise(x).scales[0, 0]) and cache.quantise(np.zeros((0, 4))).values.shape == (0, 4)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_hadamard(dtype):
    x = np.random.default_rng(8).standard_normal((3, 2, 24)).astype(dtype)
    y, matrix = cache.hadamard(x), np.array([[1.0]])
    for _ in range(3):  # 24 channels are groups of 8
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    assert y.dtype == x.dtype
    close(y, (x.astype(float).reshape(3, 2, 3, 8) @ matrix / np.sqrt(8)).reshape(x.shape), 16 * np.finfo(dtype).eps)
    assert cache.hadamard(np.zeros((0, 4))).shape == (0, 4)


@arrays
def test_libraries(make):
    x = make(np.eye(3)[None, None])
    kept = Cache.empty(1, 1, 4, 3, dtype=np.float64)
    assert type(kept.attend(x, x, x)) is type(cache.quantise(x).values) is type(x)


def test_calls_wait_for_each_other():
    _, k, v = draw(8)
    kept = Cache.empty(B, H, 400, D, DV, dtype=np.float64)
    threads = [threading.Thread(target=lambda: [kept.append(k[:, :, :1], v[:, :, :1]) for _ in range(50)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert kept.lengths.tolist() == [400, 400] and np.array_equal(kept.k, np.broadcast_to(k[:, :, :1], kept.k.shape))


@pytest.mark.parametrize("call", ["append", "attend", "evict"])
def test_a_call_waits(call):
    q, k, v = draw(9)
    one = Cache.empty(B, H, 40, D, DV, dtype=np.float64)
    one.append(k, v)
    arguments = {"append": (k, v), "attend": (q, k, v), "evict": ([[0], [1]],)}[call]
    thread = threading.Thread(target=getattr(one, call), args=arguments)
    with one._lock:  # as another call holds it
        thread.start()
        thread.join(0.1)
        assert thread.is_alive() and one.lengths.tolist() == [N, N]
    thread.join()
    assert one.lengths.tolist() == ([1, 1] if call == "evict" else [2 * N, 2 * N])


Q, K, V = draw()
C = np.zeros((B, H, 12, D))


def kept(**options):
    return Cache.empty(B, H, 12, D, DV, dtype=np.float64, **options)


@pytest.mark.parametrize("make, kind, message", [
    (lambda: Cache(C[0], C[0], np.zeros(H, np.int64)), ValueError, "k has 3 axes"),
    (lambda: Cache(C, C[:, :, :5], np.zeros(B, np.int64)), ValueError, "v has shape"),
    (lambda: Cache(C, C, np.zeros(3, np.int64)), ValueError, "lengths has shape"),
    (lambda: Cache(C, C, np.zeros(B, np.int32)), TypeError, "lengths has type int32"),
    (lambda: Cache(C, C, [0, 0]), TypeError, "lengths is of type list"),
    (lambda: Cache(C.astype(np.int16), C, np.zeros(B, np.int64)), TypeError, "k has type int16"),
    (lambda: Cache(C.astype(np.int8), C.astype(np.float32), np.zeros(B, np.int64)), ValueError, "k_scale is missing"),
    (lambda: Cache(C, C, np.zeros(B, np.int64), v_scale=np.zeros((B, H, 12), np.float32)), ValueError, "v_scale is set"),
    (lambda: Cache(C, C, np.zeros(B, np.int64), page_table=[0, 1]), ValueError, "page_table has 1 axes"),
    (lambda: Cache(np.broadcast_to(0.0, C.shape), C, np.zeros(B, np.int64)), ValueError, "k is read-only"),
    (lambda: Cache.empty(B, H, 12, D, dtype=np.float64, v_dtype=np.float32), NotImplementedError, "k is of float64 and v of float32"),
    (lambda: Cache.empty(B, H, 12, D).append(K, K), NotImplementedError, "k is of float64 and the cache's k of float32"),
    (lambda: kept().shift(1.9), TypeError, "drop is of type float"), (lambda: kept().shift(True), TypeError, "drop is of type bool"),
    (lambda: kept().shift("1"), TypeError, "drop is of type str"), (lambda: kept().shift(None), TypeError, "drop is of type NoneType"),
    (lambda: kept().shift(2**63), ValueError, "drop is 9223372036854775808; it must be at most"),
    (lambda: kept().shift(-1), ValueError, "drop is -1"),
    (lambda: kept().attend(Q, K, V, window=[1, 0, 2]), TypeError, r"window must be an integer or \(left, right\), not \[1, 0, 2\]"),
    (lambda: Cache.empty(-1, H, 12, D), ValueError, "batch is -1"),
    (lambda: kept(rope=Rope(dim_rotary=3)).append(K, V), ValueError, "even"),
    (lambda: kept(rope=Rope(cosines=np.ones((5, 4)), sines=np.ones((5, 4)))).append(K, V), ValueError, "5"),
    (lambda: kept().append(K[:, :1], V), ValueError, "k has shape"),
    (lambda: kept().append(K, V[..., :2]), ValueError, "v has shape"),
    (lambda: kept().append(K, V, [12, 1]), ValueError, "lengths"),
    (lambda: kept().attend(Q[:, :3], K, V), ValueError, "heads_q"),
    (lambda: kept().attend(Q[0], K, V), ValueError, "q has shape"),
    (lambda: kept().attend(Q, K, V, softcap=0), ValueError, "softcap is 0"),
    (lambda: kept().attend(Q, K, V, sink=[0.0]), ValueError, "sink has shape"),
    (lambda: kept().attend(Q, K, V, bias=Q), TypeError, "bias is not an option"),
    (lambda: kept().evict([1, 2]), ValueError, "keep has shape"),
    (lambda: cache.quantise(1.0), ValueError, "x has no axes"),
    (lambda: cache.hadamard(1.0), ValueError, "x has no axes"),
    (lambda: cache.quantise(np.zeros((2, 2), int)), TypeError, "x has type"),
])
def test_errors(make, kind, message):
    with pytest.raises(kind, match=message):
        make()


def test_what_is_only_read_and_what_is_more_than_there_is():
    """Rows of page_scores that cannot be written, windows that are lists, and more blocks than there are."""
    one, other = kept(page_size=4), kept(page_size=4)
    assert np.array_equal(one.attend(Q, K, V, window=[2, 0]), other.attend(Q, K, V, window=(2, 0)))
    rows = one.page_bounds()
    scores = one.page_scores(rows, Q)
    rows.flags.writeable = False
    assert np.array_equal(one.page_scores(rows, Q), scores)
    all_of, more = (cache.choose_blocks(scores, one.lengths, count, 4, keep_first=2, keep_last=2) for count in (5, 2**40))
    assert all(np.array_equal(x, y) for x, y in zip(all_of, more)) and len(more.block_index) == B * H * 3


def test_nothing_is_replaced():
    one = kept()
    for name in ("k", "lengths", "batch", "rope"):
        with pytest.raises(AttributeError, match=f"{name} of a Cache cannot be replaced"):
            setattr(one, name, None)
    with pytest.raises(AttributeError):
        del one.k


@pytest.mark.parametrize("dtype", ["int8", "q4_1c"])
def test_nothing_is_resized(dtype):
    """C knows the addresses."""
    one = Cache.empty(1, 1, 32, 32, dtype=dtype, v_dtype="int8", page_size=32)
    arrays = [one.k.data if dtype == "q4_1c" else one.k, one.v, one.lengths, one.page_table, one.k_scale, one.v_scale, one.k_tail]
    for array in filter(lambda x: x is not None, arrays):
        with pytest.raises(ValueError, match="resize"):
            array.resize((7, 7), refcheck=False)


def test_numbers_in_its_arrays_are_checked():
    for lengths, table in (([-1, 0], [[0], [1]]), ([13, 0], [[0], [1]]), ([0, 0], [[0], [2]]), ([0, 0], [[0], [-1]])):
        one = Cache(C, np.zeros((B, H, 12, DV)), np.array(lengths), page_table=np.array(table))
        for call in (lambda one=one: one.append(K, V), lambda one=one: one.attend(Q, K, V)):
            with pytest.raises(ValueError, match="lengths|page"):
                call()


def test_an_error_writes_nothing():
    one = kept()
    one.append(K[:, :, :3], V[:, :, :3])
    before = one.k.copy(), one.v.copy(), one.lengths.copy()
    with pytest.raises(ValueError, match="temperature"):
        one.attend(Q[:, :, :4], K[:, :, :4], V[:, :, :4], temperature=-1.0)
    assert all(np.array_equal(x, y) for x, y in zip(before, (one.k, one.v, one.lengths)))
