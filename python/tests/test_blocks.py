# SPDX-License-Identifier: MIT
"""Keys and values of 8 and 4 bits: rows and blocks against their formulas, attention and caches over them against the numbers they stand for."""
import struct

import numpy as np
import pytest
from problems import arrays

import libattn
from libattn import cache
from libattn.cache import Blocks, Cache, Quantised, dequantise, quantise
from libattn.positions import Rope

ROWS = ("q8_0", "q4_0", "q4_1")
FORMATS = (*ROWS, "q4_1c")
B, HQ, H, N, D, DV = 2, 4, 2, 96, 64, 32
RANDOM = np.random.default_rng(5)
Q, K, V = (RANDOM.standard_normal(shape).astype("f4") for shape in ((B, HQ, 3, D), (B, H, N, D), (B, H, N, DV)))
SIZES = {"q8_0": 34, "q4_0": 18, "q4_1": 20, "q4_1c": 20}


def block(x, form):
    """One block of 32 numbers, in the words of cache.h."""
    x, one = x.astype(np.float32), np.float32(1)
    if form == "q8_0":
        d = abs(x).max() / np.float32(127)
        y = x * (one / d if d else 0)
        return struct.pack("<e", d) + (np.sign(y) * np.floor(abs(y) + np.float32(0.5))).astype(np.int8).tobytes()
    if form == "q4_0":
        d, m = x[abs(x).argmax()] / np.float32(-8), None
        steps = np.minimum(np.floor(x * (one / d if d else 0) + np.float32(8.5)), 15)
    else:
        m = x.min()
        d = (x.max() - m) / np.float32(15)
        steps = np.minimum(np.floor((x - m) * (one / d if d else 0) + np.float32(0.5)), 15)
    steps = steps.astype(np.uint8)
    return struct.pack("<e", d) + (b"" if m is None else struct.pack("<e", m)) + (steps[:16] | steps[16:] << 4).tobytes()


def numbers(data, form):
    """The 32 numbers of a block, one by one."""
    d, = struct.unpack_from("<e", data)
    if form == "q8_0":
        return [d * struct.unpack_from("b", data, 2 + c)[0] for c in range(32)]
    steps = [data[-16 + c % 16] >> 4 * (c // 16) & 15 for c in range(32)]
    if form == "q4_0":
        return [d * (step - 8) for step in steps]
    return [float(np.float32(d * step + struct.unpack_from("<e", data, 2)[0])) for step in steps]


@pytest.mark.parametrize("form", ROWS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_blocks_of_rows(form, dtype):
    x = (RANDOM.standard_normal((3, 2, 64)) * 10.0 ** RANDOM.integers(-3, 3, (3, 2, 1))).astype(dtype)
    x[1, 1, :32] = 0
    made = quantise(x, form)
    assert isinstance(made, Blocks) and made.format == form and made.shape == x.shape and made.data.shape == (3, 2, 2 * SIZES[form])
    flat = made.data.reshape(-1, SIZES[form])
    assert [row.tobytes() for row in flat] == [block(row, form) for row in x.reshape(-1, 32)]
    back = dequantise(made)
    assert back.dtype == np.float32 and back.shape == x.shape
    assert back.reshape(-1, 32).tolist() == [numbers(row.tobytes(), form) for row in flat]
    assert (dequantise(made, np.float64) == back).all()
    x[0, 0, 40] = np.inf
    assert np.isnan(dequantise(quantise(x, form))[0, 0, 32:]).all() and np.isfinite(dequantise(quantise(x, form))[0, 0, :32]).all()
    assert quantise(np.zeros((0, 32)), form).shape == (0, 32)


def test_blocks_by_channel():
    x = RANDOM.standard_normal((2, 96, 64)).astype("f4")
    made = quantise(x, "q4_1c")
    assert made.shape == x.shape and made.data.shape == (2, 96, 40)
    back = dequantise(made)
    for b in range(2):
        for g in range(3):
            group, cells = x[b, 32 * g:32 * g + 32].astype(np.float16), made.data[b, 32 * g:32 * g + 32].reshape(64, 20)
            for c in range(64):
                assert cells[c].tobytes() == block(group[:, c], "q4_1")
                assert back[b, 32 * g:32 * g + 32, c].tolist() == numbers(cells[c].tobytes(), "q4_1")


@pytest.mark.parametrize("form, largest", [("f8_e4m3", 448), ("f8_e5m2", 57344)])
def test_float8(form, largest):
    types = pytest.importorskip("ml_dtypes")
    kind = types.float8_e4m3fn if form == "f8_e4m3" else types.float8_e5m2
    values, scales = quantise(K, form)
    assert values.dtype == kind and (scales == (abs(K).max(3).astype("f4") / np.float32(largest))).all()
    assert (dequantise(cache.Quantised(values, scales), np.float64) == values.astype(float) * scales[..., None].astype(float)).all()
    plain = quantise(K * 1000, form, scales=False)
    assert plain.scales is None and (dequantise(plain) == plain.values.astype("f4")).all() and abs(dequantise(plain)).max() <= largest
    want = libattn.attention(Q, dequantise(cache.Quantised(values, scales)), V)
    assert np.allclose(libattn.attention(Q, values, V, k_scale=scales), want, rtol=1e-5, atol=1e-6)


def test_int8_back():
    values, scales = quantise(K)
    assert (dequantise(cache.Quantised(values, scales), np.float64) == values * scales[..., None].astype(float)).all()
    assert abs(dequantise(quantise(K)) - K).max() <= scales.max()


# ---- attention


def same(k, v, *, q=Q, k_numbers=None, **options):
    """With invariant, attention over blocks has the bits of attention over the numbers that they stand for."""
    for more in ({"isa": "scalar"}, {}):
        got = libattn.attention(q, k, v, invariant=True, **more, **options)
        both = [dequantise(x) if isinstance(x, Blocks) else x for x in (k, v)]
        tail = {name: x for name, x in options.items() if name != "k_tail"}
        assert (got == libattn.attention(q, both[0] if k_numbers is None else k_numbers, both[1], invariant=True, **more, **tail)).all()
    return got


@pytest.mark.parametrize("k_form", [None, *ROWS])
@pytest.mark.parametrize("v_form", [None, *ROWS])
def test_attention(k_form, v_form):
    k, v = (x if form is None else quantise(x, form) for x, form in ((K, k_form), (V, v_form)))
    o = same(k, v, causal=True, window=(40, 0), softcap=5.0)
    same(k, v, q=np.repeat(Q, 20, 2), lengths_kv=[70, 96])
    near = libattn.attention(Q, k, v, causal=True, window=(40, 0), softcap=5.0)  # without invariant, sums have another order
    assert np.allclose(near, o, rtol=1e-4, atol=1e-4)


def test_layouts():
    turned = [Blocks(np.ascontiguousarray(x.data.swapaxes(1, 2)), x.format) for x in (quantise(K, "q8_0"), quantise(V, "q4_1"))]
    o = same(quantise(K, "q8_0"), quantise(V, "q4_1"))
    assert (same(*turned, q=Q.swapaxes(1, 2), layout="bshd").swapaxes(1, 2) == o).all()
    views = [Blocks(x.data.swapaxes(1, 2), x.format) for x in turned]  # strides of whole blocks: no copy
    assert (same(*views) == o).all()
    packed = [Blocks(np.ascontiguousarray(x.data.reshape(B * N, H, -1)), x.format) for x in turned]
    same(*packed, q=Q.swapaxes(1, 2).reshape(B * 3, HQ, D), layout="thd", cu_seqlens_q=[0, 3, 6], cu_seqlens_kv=[0, 50, B * N])
    same(*turned, q=Q.swapaxes(1, 2).reshape(B * 3, HQ, D), layout="thd", cu_seqlens_q=[0, 1, 6], lengths_kv=[50, N], causal=True)
    one = [Blocks(x.data[0, 0], x.format) for x in (quantise(K, "q8_0"), quantise(V, "q4_1"))]
    assert (same(*one, q=Q[0, 0]) == o[0, 0]).all()


def test_pages():
    table = RANDOM.permutation(6).reshape(B, 3)
    pages = [np.empty((6, H, 32, x.shape[3]), "f4") for x in (K, V)]
    for x, y in zip((K, V), pages):
        y[table.ravel()] = x.reshape(B, H, 3, 32, -1).swapaxes(1, 2).reshape(6, H, 32, -1)
    forms = [quantise(x, form) for x, form in zip(pages, ("q4_0", "q8_0"))]
    o = same(*forms, page_table=table, lengths_kv=[80, 96], causal=True)
    assert (same(quantise(K, "q4_0"), quantise(V, "q8_0"), lengths_kv=[80, 96], causal=True) == o).all()


def test_memory_of_all_strides():
    k, v = quantise(K, "q8_0"), quantise(V, "q8_0")
    both = np.concatenate([k.data, v.data], -1)  # a token's keys, then its values: 68 + 34 bytes
    o = same(k, v)
    assert (libattn.attention(Q, Blocks(both[..., :68], "q8_0"), Blocks(both[..., 68:], "q8_0"), invariant=True) == o).all()
    odd = np.zeros((B, H, N, 70), np.uint8)  # no whole blocks between tokens: a copy
    odd[..., 1:69] = k.data
    assert (libattn.attention(Q, Blocks(odd[..., 1:69], "q8_0"), v, invariant=True) == o).all()
    spread = np.stack([k.data, k.data], -1)[..., 0]
    assert (libattn.attention(Q, Blocks(spread, "q8_0"), v, invariant=True) == o).all()
    assert (libattn.attention(Q, Blocks(k.data[:, :, ::-1].copy()[:, :, ::-1], "q8_0"), v, invariant=True) == o).all()


@pytest.mark.parametrize("length", [0, 5, 32, 63, 64, 90, 96])
def test_keys_by_channel(length):
    stored, tail, exact = quantise(K, "q4_1c"), np.full((B, H, 64, D), np.nan, np.float16), dequantise(quantise(K, "q4_1c"))
    for j in range(length - length % 32, length):
        tail[:, :, j % 64] = exact[:, :, j] = K[:, :, j].astype(np.float16)
    same(stored, quantise(V, "q4_0"), k_numbers=exact, k_tail=tail, lengths_kv=[length, length], causal=True)


@arrays
def test_libraries(make):
    x = make(K)
    stored = quantise(x, "q8_0")
    assert type(stored.data) is type(x) and type(dequantise(stored)) is type(x) and stored.shape == K.shape
    o = libattn.attention(make(Q), stored, quantise(make(V), "q4_0"))
    assert type(o) is type(x) and (np.asarray(o) == libattn.attention(Q, quantise(K, "q8_0"), quantise(V, "q4_0"))).all()


def test_plan():
    spec = libattn.Spec(K.shape, "q8_0")
    plan = libattn.Plan(Q, spec, quantise(V, "q4_1"), causal=True)
    assert plan.inputs["k"] == spec and plan.inputs["v"] == libattn.Spec(V.shape, "q4_1") and "q8_0" in str(plan)
    k, v = quantise(K, "q8_0"), quantise(V, "q4_1")
    assert (plan.execute(Q, k, v) == libattn.attention(Q, k, v, causal=True)).all()
    for bad, says in ((K, "k has the type float32; the plan was made with q8_0"), (quantise(K, "q4_0"), "k has the type q4_0"),
                      (quantise(K[:, :, :32], "q8_0"), r"k has the shape \(2, 2, 32, 64\)")):
        with pytest.raises(ValueError, match=says):
            plan.execute(Q, bad, v)
    with pytest.raises(ValueError, match="k is of q8_0 and has 48 channels; blocks need a multiple of 32"):
        libattn.Plan((1, 2, 3, 48), libattn.Spec((1, 2, 3, 48), "q8_0"), (1, 2, 3, 48))


# ---- caches


@pytest.mark.parametrize("page_size", [None, 32])
@pytest.mark.parametrize("rope", [None, Rope(pairs="halves", base=100.0)])
@pytest.mark.parametrize("form, v_form", [("q8_0", None), ("q4_0", "float32"), ("float32", "q4_1"), ("q4_1", "q8_0"), ("q4_1c", "q4_1"), ("q4_1c", "float16")])
def test_cache(form, v_form, rope, page_size):
    kept = Cache.empty(B, H, N, D, DV, dtype=form, v_dtype=v_form, page_size=page_size, rope=rope)
    assert f"capacity {N}, {form}" in repr(kept) or f"pages of 32, {form}" in repr(kept)
    q = RANDOM.standard_normal((B, HQ, N, D)).astype("f4")
    assert (kept.k_tail is not None) == (form == "q4_1c")
    parts = []
    for start, end in ((0, 40), (40, 41), (41, 41), (41, 70), (70, 90)):
        o = kept.attend(q[:, :, start:end], K[:, :, start:end], V[:, :, start:end], invariant=True)
        parts.append(o)
        # What is stored is what quantise makes of the (rotated) rows.
        where = np.arange(start, end)
        queries = q[:, :, start:end] if rope is None else rope(q[:, :, start:end], where)
        assert (libattn.attention(queries, kept.k, kept.v, causal=True, invariant=True, **kept.arguments()) == o).all()
    keys, values = (read(x) for x in (kept.k, kept.v))
    if page_size:
        keys, values = (x[kept.page_table].swapaxes(1, 2).reshape(B, H, -1, x.shape[3]) for x in (keys, values))
    if kept.k_tail is not None:
        for j in range(64, 90):
            keys[:, :, j] = kept.k_tail[:, :, j % 64]
    assert kept.lengths.tolist() == [90, 90]
    if rope is None:
        exact = K.astype("f2") if form == "q4_1c" else K
        want = exact.astype("f4") if form == "float32" else dequantise(quantise(exact, form))
        assert (keys[:, :, :64] == want[:, :, :64]).all()
        assert (keys[:, :, 64:90] == (exact if form == "q4_1c" else want)[:, :, 64:90]).all()
    want = V.astype(v_form) if v_form in ("float32", "float16") else dequantise(quantise(V, v_form or form))
    assert (values[:, :, :90] == want[:, :, :90]).all()
    queries = q[:, :, 70:90] if rope is None else rope(q[:, :, 70:90], np.arange(70, 90))
    assert (libattn.attention(queries, keys[:, :, :90], values[:, :, :90], causal=True, invariant=True) == parts[-1]).all()


def read(x):
    return dequantise(x) if isinstance(x, Blocks) else x.astype("f4")


@pytest.mark.parametrize("form", ["q8_0", "q4_1c", "float32"])
def test_packed_tokens(form):
    """A ragged batch is appended by cu_seqlens as by lengths."""
    one, other = (Cache.empty(B, H, N, D, DV, dtype=form, v_dtype="q4_0", page_size=32) for _ in range(2))
    at = [0, 0]
    for counts in ([40, 3], [1, 0], [7, 33]):
        k, v = (np.concatenate([x[b, :, at[b]:at[b] + n] for b, n in enumerate(counts)], 1).swapaxes(0, 1) for x in (K, V))
        one.append(k, v, cu_seqlens=np.array([0, counts[0], sum(counts)], np.int32))
        padded = [np.zeros((B, H, max(counts), x.shape[3]), "f4") for x in (K, V)]
        for b, n in enumerate(counts):
            for x, y in zip((K, V), padded):
                y[b, :, :n] = x[b, :, at[b]:at[b] + n]
            at[b] += n
        other.append(*padded, counts)
    assert one.lengths.tolist() == other.lengths.tolist() == at == [48, 36]
    assert all(bytes(memory(x)) == bytes(memory(y)) for x, y in ((one.k, other.k), (one.v, other.v), (one.k_tail, other.k_tail)) if x is not None)
    for bad, says in (({"lengths": [1, 1]}, "cu_seqlens and lengths are both set"), ({"slots": [0, 1]}, "cu_seqlens and slots are both set"),
                      ({"cu_seqlens": [0, 1]}, "cu_seqlens has shape"), ({"cu_seqlens": [0, 2, 1]}, r"cu_seqlens\[2\] \(1\) is not between"),
                      ({"cu_seqlens": [1, 1, 2]}, r"cu_seqlens\[0\] \(1\) is not 0")):
        with pytest.raises(ValueError, match=says):
            one.append(K[0, :, :2].swapaxes(0, 1), V[0, :, :2].swapaxes(0, 1), **{"cu_seqlens": [0, 1, 2], **bad})
    with pytest.raises(ValueError, match="k has 4 axes; with cu_seqlens it must have three"):
        one.append(K, V, cu_seqlens=[0, 1, 2])


def memory(x):
    return x.data if isinstance(x, Blocks) else x


@pytest.mark.parametrize("form", ROWS)
def test_slots_moves_bounds(form):
    kept = Cache.empty(B, H, N, D, DV, dtype=form, page_size=16)
    kept.append(K[0, :, :20].swapaxes(0, 1), V[0, :, :20].swapaxes(0, 1), slots=np.arange(20) + 32)
    want = quantise(K, form).data
    assert (kept.k.data[2, :, :16] == want[0, :, :16]).all() and (kept.k.data[3, :, :4] == want[0, :, 16:20]).all()
    kept.move(np.arange(32, 48), np.arange(96, 112))
    assert (kept.k.data[6] == kept.k.data[2]).all() and (kept.v.data[6] == kept.v.data[2]).all()
    kept = Cache.empty(B, H, N, D, DV, dtype=form, page_size=16)
    kept.append(K[:, :, :40], V[:, :, :40])
    rows = kept.page_bounds()
    first = dequantise(quantise(K, form))[:, :, 16:32]
    assert rows.dtype == np.float32 and (rows[kept.page_table[:, 1], :, 0] == first.min(2)).all() and (rows[kept.page_table[:, 1], :, 1] == first.max(2)).all()
    assert kept.page_scores(rows, Q).shape == (B, H, 6)
    kept.shift([3, 8], keep=2)
    assert kept.lengths.tolist() == [37, 32] and (kept.k.data[kept.page_table[0, 0], :, 2:5] == want[0, :, 5:8]).all()
    kept.evict([[4, 0], [1, 2]])
    assert (kept.k.data[kept.page_table[0, 0], :, :2] == want[0][:, [7, 0]]).all() and kept.lengths.tolist() == [2, 2]


def test_scales_of_yours():
    pytest.importorskip("ml_dtypes")
    scales = np.broadcast_to(np.float32([0.5, 0.25])[:, None], (B, H, N))  # of each head
    kept = Cache(np.zeros((B, H, N, D), "float8_e4m3fn"), np.zeros((B, H, N, DV), "f4"), np.zeros(B, np.int64), k_scale=scales)
    kept.append(K, V)
    assert (kept.k == (K / np.float32([0.5, 0.25])[:, None, None]).astype("float8_e4m3fn")).all()
    o = kept.attend(Q[:, :, :0], K[:, :, :0], V[:, :, :0])
    assert o.shape == (B, HQ, 0, DV)
    want = libattn.attention(Q, kept.k.astype("f4") * scales[..., None], V, causal=True)
    assert np.allclose(libattn.attention(Q, kept.k, kept.v, causal=True, **kept.arguments()), want, rtol=1e-5, atol=1e-6)
    kept.evict([[3, 1], [2, 0]])
    whole = Cache(np.zeros((B, H, N, D), "float8_e4m3fn"), np.zeros((B, H, N, DV), "f4"), np.zeros(B, np.int64), k_scale=np.broadcast_to(np.float32(0.5), (B, H, N)))
    whole.append(K, V)
    assert (whole.k == (K / np.float32(0.5)).astype("float8_e4m3fn")).all()


def test_your_memory():
    torch = pytest.importorskip("torch")
    k, v = torch.zeros(B, H, N, 68, dtype=torch.uint8), torch.zeros(B, H, N, 20, dtype=torch.uint8)
    kept = Cache(Blocks(k, "q8_0"), Blocks(v, "q4_1"), torch.zeros(B, dtype=torch.int64))
    o = kept.attend(torch.from_numpy(Q), *(torch.from_numpy(x[:, :, :3].copy()) for x in (K, V)))
    assert isinstance(o, torch.Tensor) and k[:, :, :3].numpy().tobytes() == quantise(K[:, :, :3], "q8_0").data.tobytes()
    assert v[:, :, :3].numpy().tobytes() == quantise(V[:, :, :3], "q4_1").data.tobytes() and not k[:, :, 3:].any()


@pytest.mark.parametrize("form", ["float32", "float16", "int8", *ROWS])
@pytest.mark.parametrize("page_size", [None, 16])
def test_values_in_keys(form, page_size):
    """Latents: the values are the first channels of the keys, in the same memory, and are written with them."""
    x = RANDOM.standard_normal((B, 1, N, D)).astype("f4")
    plain = Cache.empty(B, 1, N, D, dtype=form, page_size=page_size)
    k = plain.k
    v = Blocks(k.data[..., :SIZES[form]], form) if isinstance(k, Blocks) else k[..., :DV]
    kept = Cache(k, v, plain.lengths, page_table=plain.page_table, k_scale=plain.k_scale)
    assert kept.v_scale is kept.k_scale or np.shares_memory(kept.v_scale, kept.k_scale)
    assert Cache(k, v, plain.lengths, page_table=plain.page_table, k_scale=plain.k_scale, v_scale=plain.k_scale)._v_is_k
    kept.append(x[:, :, :40])
    o = kept.attend(Q[:, :, :3], x[:, :, 40:43], invariant=True)
    kept.append(x[:, :, 43:50].swapaxes(1, 2).reshape(14, 1, D), cu_seqlens=[0, 7, 14])
    assert kept.lengths.tolist() == [50, 50]
    stored = quantise(x, form if form in ROWS else "i8")
    exact = x.astype(form).astype("f4") if form.startswith("f") else dequantise(stored)
    want = libattn.attention(Q, exact[:, :, :43], np.ascontiguousarray(exact[:, :, :43, :DV]), causal=True, invariant=True)
    assert np.allclose(o, want, rtol=1e-5, atol=1e-5) if form == "int8" else (o == want).all()
    keep = np.array([[4, 0, 2], [1, 3, 0]])
    kept.evict(keep)
    o = libattn.attention(Q, kept.k, kept.v, causal=True, **kept.arguments())
    chosen = np.take_along_axis(exact, keep[:, None, :, None], 2)
    assert np.allclose(o, libattn.attention(Q, chosen, np.ascontiguousarray(chosen[..., :DV]), causal=True), rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match="v is set, and the cache's v is its k; the values are the first channels of k"):
        kept.append(x[:, :, :1], x[:, :, :1, :DV])
    with pytest.raises(ValueError, match="^v is missing$"):
        Cache.empty(B, 1, N, D, DV).append(x[:, :, :1])


@pytest.mark.parametrize("form", ROWS)
def test_latent_layers(form):
    layer = libattn.latent.Latent(48, 2, rank=32, dim_rotary=32).initialise(seed=1)
    x = RANDOM.standard_normal((1, 40, 48)).astype("f4")
    want = layer.decode(layer.cache(1, 64), x)
    got = layer.decode(layer.cache(1, 64, dtype=form), x)
    assert 0 < abs(got - want).max() < (0.05 if form == "q8_0" else 0.5) * abs(want).max()
    with pytest.raises(ValueError, match=f"dtype is {form}, and values are 24 of the channels; blocks need a multiple of 32"):
        libattn.latent.Latent(48, 2, rank=24, dim_rotary=8).cache(1, 64, dtype=form)


def test_layers():
    layer = libattn.layers.Layer(64, 2).initialise(seed=1)
    x = RANDOM.standard_normal((1, 40, 64)).astype("f4")
    want = layer.decode(layer.cache(1, 64), x)
    got = layer.decode(layer.cache(1, 64, dtype="q8_0", v_dtype="float16"), x)
    assert 0 < abs(got - want).max() < 0.05 * abs(want).max()
    with pytest.raises(NotImplementedError, match="the cache's k is q4_1c; keys by channel are not there yet in layers"):
        layer.decode(Cache.empty(1, 2, 64, 32, dtype="q4_1c", v_dtype="float32"), x)


# ---- errors

C = np.zeros((B, H, N, 68), np.uint8)
LENGTHS = np.zeros(B, np.int64)


def by_channel(**options):
    kept = Cache.empty(B, H, N, D, DV, dtype="q4_1c", v_dtype="q4_1", **options)
    kept.append(K[:, :, :40], V[:, :, :40])
    return kept


@pytest.mark.parametrize("make, kind, message", [
    (lambda: Blocks(C, "q5_0"), ValueError, "format is 'q5_0'; known: q8_0, q4_0, q4_1, q4_1c"),
    (lambda: Blocks(K, "q8_0"), TypeError, "data has type float32; blocks are bytes, of uint8"),
    (lambda: Blocks(C, "q4_0"), ValueError, "data has 68 bytes in a row; a block of q4_0 has 18"),
    (lambda: Blocks(np.uint8(3), "q4_0"), ValueError, "data has no axes"),
    (lambda: quantise(K, "q3"), ValueError, "format is 'q3'; known: i8, f8_e4m3, f8_e5m2, q8_0, q4_0, q4_1, q4_1c"),
    (lambda: quantise(K[..., :40], "q8_0"), ValueError, "values is q8_0 and dim is 40; blocks need a multiple of 32"),
    (lambda: quantise(K[0, 0, 0], "q4_1c"), ValueError, "values is q4_1c and rows is 1; groups need a multiple of 32"),
    (lambda: quantise(K[:, :, :33], "q4_1c"), ValueError, "x has 33 keys, of the format q4_1c; groups need a multiple of 32"),
    (lambda: dequantise(Blocks(C[:, :, :33, :40], "q4_1c")), ValueError, "x has 33 keys"),
    (lambda: dequantise(quantise(K), np.int32), TypeError, "dtype is <class 'numpy.int32'>; it must be float32, float64, float16 or bfloat16"),
    (lambda: dequantise(quantise(K, "q8_0"), "q8_0"), TypeError, "dtype is 'q8_0'; it must be float32"),
    (lambda: dequantise(K), TypeError, "x is of type ndarray; it must be what quantise returns"),
    (lambda: dequantise(cache.Quantised(K, None)), TypeError, "x.values has type float32"),
    (lambda: libattn.attention(quantise(Q, "q8_0"), K, V), TypeError, "q has type q8_0; it must be float32, float64, float16 or bfloat16"),
    (lambda: libattn.attention(Q, K, V, bias=quantise(K, "q8_0")), TypeError, "bias has type q8_0"),
    (lambda: libattn.attention(Q, K, quantise(K, "q4_1c")), NotImplementedError, "v.dtype is q4_1c; only keys are quantised by channel"),
    (lambda: libattn.attention(Q, quantise(K, "q4_1c"), V), ValueError, "k_tail is missing; k.dtype is q4_1c"),
    (lambda: libattn.attention(Q, K, V, k_tail=np.zeros((B, H, 64, D), "f2")), ValueError, "k_tail is set and k.dtype is f32"),
    (lambda: libattn.attention(Q, quantise(K, "q4_1c"), V, k_tail=np.zeros((B, H, 63, D), "f2")), ValueError, r"k_tail has the shape .*63.*64"),
    (lambda: libattn.attention(Q, quantise(K, "q8_0"), V, k_scale=np.ones((B, H, N), "f4")), ValueError, "k_scale is set and k.dtype is neither"),
    (lambda: libattn.attention(Q.astype(float), quantise(K, "q8_0"), V.astype(float)), NotImplementedError, "f64"),
    (lambda: libattn.attention_backward(Q, quantise(K, "q8_0"), V, *[x for x in libattn.attention(Q, K, V, return_lse=True)], Q[..., :DV]), NotImplementedError,
     "k.dtype is q8_0 and op is not forward; quantised keys and values have no gradients"),
    (lambda: libattn.attention(Q, Blocks(C[..., :34], "q8_0"), V), ValueError, r"k has the shape \(2, 2, 96, 32\); it must be \(2, 2, 96, 64\)"),
    (lambda: cache.hadamard(quantise(K, "q8_0")), TypeError, "x is of type Blocks"),
    (lambda: Cache(Blocks(C[0], "q8_0"), V, LENGTHS), ValueError, "k has 3 axes"),
    (lambda: Cache(Blocks(np.zeros((B, H, N, 70), np.uint8)[..., :68], "q8_0"), V, LENGTHS), ValueError, "k has strides that are no whole blocks of 34 bytes"),
    (lambda: Cache(Blocks(np.broadcast_to(C[:1], C.shape), "q8_0"), V, LENGTHS), ValueError, "k is read-only"),
    (lambda: Cache(Blocks(C, "q8_0"), V, LENGTHS, k_scale=np.ones((B, H, N), "f4")), ValueError, "k_scale is set, and k is of q8_0"),
    (lambda: Cache(Blocks(C, "q8_0"), V, LENGTHS, k_tail=np.ones((B, H, 64, D), "f2")), ValueError, "k_tail is set, and k is of q8_0"),
    (lambda: Cache(quantise(K, "q4_1c"), V, LENGTHS), ValueError, "k_tail is missing, and k is of q4_1c"),
    (lambda: Cache(quantise(K, "q4_1c"), V, LENGTHS, k_tail=np.ones((B, H, 32, D), "f2")), ValueError, "k_tail has shape"),
    (lambda: Cache(quantise(K, "q4_1c"), V, LENGTHS, k_tail=np.ones((B, H, 64, D), "f4")), TypeError, "k_tail has type float32; it must be float16"),
    (lambda: quantise(K, ["q8_0"]), TypeError, r"^format is \['q8_0'\]; known: i8, f8_e4m3, f8_e5m2, q8_0, q4_0, q4_1, q4_1c$"),
    (lambda: Blocks(C, ["q8_0"]), TypeError, r"^format is \['q8_0'\]; known: q8_0, q4_0, q4_1, q4_1c$"),
    (lambda: dequantise(Quantised(np.ones((2, 3, 4), np.int8), np.ones((2, 1), "f4"))), ValueError,
     r"^x.scales has shape \[2, 1\]; it must be \[2, 3\], one for each row of x.values$"),
    (lambda: dequantise(Quantised(np.ones((2, 3, 4), np.int8), 1.0)), ValueError, r"^x.scales has shape \[\]; it must be \[2, 3\]"),
    (lambda: libattn.check(Q, quantise(K, "q8_0"), V), NotImplementedError,
     r"^k is Blocks, which check does not compare; pass cache.dequantise\(k\), the same numbers, or see attn check$"),
    (lambda: Cache.empty(B, H, N, 40, dtype="q8_0"), ValueError, "dtype is q8_0, and rows have 40 channels; blocks need a multiple of 32"),
    (lambda: Cache.empty(B, H, N, D, dtype="q4_1c").append(K, K), NotImplementedError, "v is q4_1c; only keys are quantised by channel"),
    (lambda: by_channel(page_size=24), ValueError, "k is q4_1c and page_size is 24; it must be a multiple of 32"),
    (lambda: by_channel().append(K[0].swapaxes(0, 1), V[0].swapaxes(0, 1), slots=np.arange(N)), NotImplementedError, "k is q4_1c and slots is set"),
    (lambda: by_channel().shift(1), NotImplementedError, "k is q4_1c; a shift would move keys out of their groups"),
    (lambda: by_channel().move([0], [1]), NotImplementedError, "k is q4_1c; its keys are in groups, not in slots"),
    (lambda: by_channel().evict([[0], [1]]), NotImplementedError, "k is q4_1c; its keys are in groups, not in slots"),
    (lambda: by_channel(page_size=32).page_bounds(), NotImplementedError, "k is q4_1c; bounds of keys by channel are not there yet"),
])
def test_errors(make, kind, message):
    with pytest.raises(kind, match=message):
        make()


def test_what_changed_since_is_seen():
    data = quantise(K, "q8_0").data
    made = Blocks(data, "q8_0")
    data.shape = (B, H, N * 2, 34)
    assert made.shape == (B, H, 2 * N, 32)
    data.shape = (B, H, N * 34, 2)
    with pytest.raises(ValueError, match="k is no array of whole blocks of 34 bytes, of uint8"):
        libattn.attention(Q, made, V)
    with pytest.raises(AttributeError):
        made.format = "q4_0"
