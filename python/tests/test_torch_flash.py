# SPDX-License-Identifier: MIT
"""The functions of other libraries, against the definition."""
import math

import pytest

torch = pytest.importorskip("torch", minversion="2.10")

import libattn.torch as lib  # noqa: E402
from torch_problems import check_forward, qkv, reference, tensors  # noqa: E402

F64 = torch.float64


def bshd(*tensors):
    return [x.transpose(1, 2).contiguous() for x in tensors]


@pytest.mark.parametrize("options, ours", [
    ({}, {}), ({"causal": True}, {"causal": True}), ({"window_size": (3, 1)}, {"window": (3, 1)}), ({"causal": True, "window_size": (2, -1)}, {"causal": True, "window": (2, None)}),
    ({"softmax_scale": 0.3, "softcap": 2.0}, {"scale": 0.3, "softcap": 2.0}), ({"alibi_slopes": torch.tensor([0.5, 0.25, 0.1, 0.0])}, {"alibi_slopes": torch.tensor([0.5, 0.25, 0.1, 0.0])}),
    ({"deterministic": True}, {}),
])
def test_flash_attn_func(options, ours):
    q, k, v = qkv(heads_kv=2, len_q=6, len_kv=9)
    o = lib.flash_attn_func(*bshd(q, k, v), **options)
    check_forward(o.transpose(1, 2), q, k, v, **ours)
    o, lse, weights = lib.flash_attn_func(*bshd(q, k, v), return_attn_probs=True, **options)
    check_forward((o.transpose(1, 2), lse, weights), q, k, v, **ours)


def test_flash_attn_func_drops_out():
    q, k, v = bshd(*qkv())
    torch.manual_seed(1)
    one = lib.flash_attn_func(q, k, v, 0.5)
    torch.manual_seed(1)
    assert torch.equal(one, lib.flash_attn_func(q, k, v, dropout_p=0.5)) and not torch.equal(one, lib.flash_attn_func(q, k, v))


LENGTHS = [(3, 5), (1, 1), (7, 9), (0, 2)]
STARTS_Q, STARTS_K = (torch.tensor([0, *(pair[i] for pair in LENGTHS)]).cumsum(0) for i in range(2))


def packed(dtype=F64, grad=False):
    return tensors((11, 4, 16), (17, 2, 16), (17, 2, 16), dtype=dtype, grad=grad)


def each(q, k, v, used=None, **options):
    """One sequence after the other."""
    parts = []
    for i, (_, size) in enumerate(LENGTHS):
        a, b = int(STARTS_Q[i]), int(STARTS_K[i])
        size = size if used is None else int(used[i])
        one = [x.transpose(0, 1) for x in (q[a:int(STARTS_Q[i + 1])], k[b:b + size], v[b:b + size])]
        parts.append(reference(*one, **options).transpose(0, 1))
    return torch.cat(parts)


@pytest.mark.parametrize("options, ours", [({}, {}), ({"causal": True}, {"causal": True}), ({"window_size": (2, 0)}, {"window": (2, 0)}), ({"softmax_scale": 0.2}, {"scale": 0.2})])
def test_flash_attn_varlen_func(options, ours):
    q, k, v = packed(grad=True)
    o = lib.flash_attn_varlen_func(q, k, v, STARTS_Q.int(), STARTS_K.int(), 7, 9, **options)
    want = each(q, k, v, **ours)
    torch.testing.assert_close(o, want, rtol=0, atol=1e-13)
    found, expected = (torch.autograd.grad(x.square().sum(), (q, k, v)) for x in (o, want))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("window, ours", [((-1, -1), {}), ((-1, 0), {"causal": True}), ((3, 0), {"causal": True, "window": (3, 0)})])
def test_varlen_attn(window, ours):
    from torch.nn.attention.varlen import AuxRequest

    q, k, v = packed()
    o, lse = lib.varlen_attn(q, k, v, STARTS_Q, STARTS_K, 7, 9, window_size=window, enable_gqa=True, return_aux=AuxRequest(lse=True))
    torch.testing.assert_close(o, each(q, k, v, **ours), rtol=0, atol=1e-13)
    assert lse.shape == (4, 11) and torch.equal(o, lib.varlen_attn(q, k, v, STARTS_Q, STARTS_K, 7, 9, window_size=window, enable_gqa=True))
    used = torch.tensor([4, 1, 7, 0])
    o = lib.varlen_attn(q, k, v, STARTS_Q, STARTS_K, 7, 9, window_size=window, enable_gqa=True, seqused_k=used)
    torch.testing.assert_close(o, each(q, k, v, used, **ours), rtol=0, atol=1e-13)


def test_varlen_attn_over_pages():
    q, k, v = packed()
    size, table = 4, torch.tensor([[5, 1, 0], [2, 0, 0], [7, 3, 6], [4, 0, 0]], dtype=torch.int32)
    pages = [torch.zeros(8, size, 2, 16, dtype=F64) for _ in range(2)]
    used = STARTS_K.diff()
    for i in range(4):
        for j in range(int(used[i])):
            for page, x in zip(pages, (k, v), strict=True):
                page[table[i, j // size], j % size] = x[int(STARTS_K[i]) + j]
    want = each(q, k, v, causal=True)
    found = lib.varlen_attn(q, *pages, STARTS_Q, None, 7, 12, window_size=(-1, 0), enable_gqa=True, seqused_k=used, block_table=table)
    torch.testing.assert_close(found, want, rtol=0, atol=1e-13)
    found = lib.flash_attn_varlen_func(q, *pages, STARTS_Q, STARTS_K, 7, 12, causal=True, block_table=table)
    torch.testing.assert_close(found, want, rtol=0, atol=1e-13)


def rotated(x, cosine, sine, first, interleaved):
    """By complex numbers."""
    angles = torch.complex(cosine, sine)[first:first + x.shape[1]][None, :, None]
    n = angles.shape[-1]
    pairs = x[..., :2 * n].unflatten(-1, (n, 2)) if interleaved else x[..., :2 * n].unflatten(-1, (2, n)).transpose(-1, -2)
    turned = torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * angles)
    turned = turned.flatten(-2) if interleaved else turned.transpose(-1, -2).flatten(-2)
    return torch.cat([turned, x[..., 2 * n:]], -1)


@pytest.mark.parametrize("rotary", [None, True, False], ids=["", "interleaved", "halves"])
@pytest.mark.parametrize("pages", [False, True], ids=["", "pages"])
def test_flash_attn_with_kvcache(pages, rotary):
    generator = torch.Generator().manual_seed(3)

    def random(*shape):
        return torch.randn(shape, generator=generator)

    lengths, new = torch.tensor([5, 2], dtype=torch.int32), 3
    rows = random(2, 12, 2, 16), random(2, 12, 2, 16)
    q, k, v = random(2, new, 4, 16), random(2, new, 2, 16), random(2, new, 2, 16)
    table = torch.tensor([[2, 0, 4], [3, 1, 5]], dtype=torch.int32) if pages else None
    caches = []
    for whole in rows:
        cache = torch.zeros(6, 4, 2, 16) if pages else whole.clone()
        if table is not None:
            for b in range(2):
                cache[table[b].long()] = whole[b].view(3, 4, 2, 16)
        caches.append(cache)
    angles = random(16, 6)
    turn = {} if rotary is None else {"rotary_cos": angles.cos(), "rotary_sin": angles.sin(), "rotary_interleaved": rotary}
    o, lse = lib.flash_attn_with_kvcache(q, *caches, k, v, cache_seqlens=lengths, causal=True, block_table=table, return_softmax_lse=True, **turn)
    for b in range(2):
        n = int(lengths[b])
        one, key = q[b:b + 1], k[b:b + 1]
        if turn:
            one, key = (rotated(x, turn["rotary_cos"], turn["rotary_sin"], n, rotary) for x in (one, key))
        keys, values = (torch.cat([whole[b:b + 1, :n], x], 1) for whole, x in zip(rows, (key, v[b:b + 1]), strict=True))
        stored = [cache[table[b].long()].flatten(0, 1) if table is not None else cache[b] for cache in caches]
        torch.testing.assert_close(stored[0][:n + new], keys[0], rtol=0, atol=1e-6)
        want = reference(*(x.transpose(1, 2).double() for x in (one, keys, values)), causal=True).transpose(1, 2)
        torch.testing.assert_close(o[b:b + 1].double(), want, rtol=0, atol=2e-6)
    assert lse.shape == (2, 4, 3)


def test_a_cache_without_new_keys():
    q, k, v = qkv(heads_kv=2, len_q=1, len_kv=9)
    rows = bshd(q, k, v)
    check_forward(lib.flash_attn_with_kvcache(*rows).transpose(1, 2), q, k, v)
    check_forward(lib.flash_attn_with_kvcache(*rows, cache_seqlens=4).transpose(1, 2), q, k[:, :, :4], v[:, :, :4])
    check_forward(lib.flash_attn_with_kvcache(*rows, cache_batch_idx=torch.tensor([1, 0])).transpose(1, 2), q, k.flip(0), v.flip(0))
    check_forward(lib.flash_attn_with_kvcache(*rows, cache_leftpad=torch.tensor([3, 3])).transpose(1, 2), q, k[:, :, 3:], v[:, :, 3:])
    with pytest.raises(ValueError, match="do not fit into a cache of 9"):
        lib.flash_attn_with_kvcache(*rows, *bshd(k[:, :, :1], v[:, :, :1]), cache_seqlens=9)
    with pytest.raises(ValueError, match="cache_seqlens is missing"):
        lib.flash_attn_with_kvcache(*rows, *bshd(k, v))


@pytest.mark.parametrize("given, says", [
    ({"cache_seqlens": torch.tensor([-1, 0])}, "cache_seqlens has -1"),
    ({"block_table": torch.tensor([[-1, 0], [1, 2]])}, "block_table has -1 to 1"),
    ({"block_table": torch.tensor([[4, 0], [1, 2]])}, "block_table has 1 to 4"),
    ({"cache_batch_idx": torch.tensor([-1, 0])}, "cache_batch_idx has -1 to 0"),
    ({"q": torch.ones(2, 1, 3, 5)}, "q"), ({"k": torch.ones(2, 1, 1, 4)}, r"k has shape \[2, 1, 1, 4\]; it must be \[2, 1, 2, 4\]"),
    ({"softcap": -1.0}, "softcap"), ({"alibi_slopes": torch.ones(7)}, "alibi_slopes"),
])
def test_flash_attn_with_kvcache_writes_nothing_if_it_refuses(given, says):
    caches, one = [torch.zeros(4, 4, 2, 4) for _ in range(2)], torch.ones(2, 1, 2, 4)
    rest = {"q": one, "k": one, "v": one, "cache_seqlens": torch.tensor([0, 0]), "cache_batch_idx": torch.tensor([0, 1]), **given}
    if "block_table" in given:
        del rest["cache_batch_idx"]
    with pytest.raises(ValueError, match=says):
        lib.flash_attn_with_kvcache(rest.pop("q"), *caches, **rest)
    assert not caches[0].any() and not caches[1].any()


@pytest.mark.parametrize("entries, says", [([-1, 1], "cache_batch_idx has -1 to 1; there are 3"), ([0, 3], "cache_batch_idx has 0 to 3; there are 3"),
                                           ([0], r"cache_batch_idx has shape \[1\]; it must be \[2\]"), (None, "k has the shape|q has entries 0 to 1")])
@pytest.mark.parametrize("new", [True, False])
def test_entries_that_a_cache_does_not_have(entries, says, new):
    caches, one = [torch.zeros(3 if entries else 1, 4, 2, 4) for _ in range(2)], torch.ones(2, 1, 2, 4)
    rest = {"k": one, "v": one} if new else {}
    with pytest.raises(ValueError, match=says):
        lib.flash_attn_with_kvcache(one, *caches, cache_seqlens=torch.tensor([0, 0]), cache_batch_idx=None if entries is None else torch.tensor(entries), **rest)


class LowerTriangularMask:
    """As xformers has it, where it matters."""


class LowerTriangularFromBottomRightMask:
    pass


class LocalAttentionFromBottomRightMask:
    window_left, window_right = 2, 1


class Starts:
    def __init__(self, seqstart):
        self.seqstart = seqstart


class BlockDiagonalCausalMask:
    q_seqinfo = k_seqinfo = Starts(torch.tensor([0, 3, 8], dtype=torch.int32))


class Unknown:
    def materialize(self, shape, dtype, device):
        return torch.full(shape, -math.inf, dtype=dtype, device=device).triu(2)


def test_memory_efficient_attention():
    q, k, v = qkv(heads=4, len_q=8, len_kv=8)
    rows, bias = bshd(q, k, v), torch.randn(2, 4, 8, 8, generator=torch.Generator().manual_seed(1))
    late = torch.ones(8, 8, dtype=torch.bool).tril(1)
    for given, ours in ((None, {}), (bias, {"bias": bias}), (LowerTriangularMask(), {"causal": "top-left"}), (Unknown(), {"mask": late}),
                        (LowerTriangularFromBottomRightMask(), {"causal": True}), (LocalAttentionFromBottomRightMask(), {"window": (2, 1)})):
        check_forward(lib.memory_efficient_attention(*rows, given).transpose(1, 2), q, k, v, **ours)
    want = lib.attention(q, k, v, scale=0.2)
    assert torch.equal(lib.memory_efficient_attention(*rows, scale=0.2).transpose(1, 2), want)
    one = [x[:, :, 0] for x in rows]
    assert torch.equal(lib.memory_efficient_attention(*one, scale=0.2), want[:, 0])
    five = [x.unflatten(2, (2, 2)) for x in rows]
    assert torch.equal(lib.memory_efficient_attention(*five, scale=0.2).flatten(2, 3).transpose(1, 2), want)
    assert lib.memory_efficient_attention(*rows, output_dtype=F64).dtype == F64
    found = lib.memory_efficient_attention(*(x[:1] for x in rows), BlockDiagonalCausalMask())[0]
    parts = [lib.attention(*(x[:1, :, a:b] for x in (q, k, v)), causal=True)[0].transpose(0, 1) for a, b in ((0, 3), (3, 8))]
    assert torch.equal(found, torch.cat(parts))


def test_sentences():
    q, k, v = packed()
    with pytest.raises(ValueError, match="enable_gqa"):
        lib.varlen_attn(q, k, v, STARTS_Q, STARTS_K, 7, 9)
    with pytest.raises(ValueError, match="cu_seq_k is missing"):
        lib.varlen_attn(q, k, v, STARTS_Q, None, 7, 9, enable_gqa=True)
    with pytest.raises(ValueError, match="seqused_k is"):
        lib.varlen_attn(q, k, v, STARTS_Q, STARTS_K, 7, 9, enable_gqa=True, seqused_k=torch.tensor([9, 1, 1, 1]))
    with pytest.raises(ValueError, match="seqused_k is missing"):
        lib.varlen_attn(q, k, v, STARTS_Q, None, 7, 9, enable_gqa=True, block_table=torch.zeros(4, 3, dtype=torch.int32))
    with pytest.raises(TypeError, match="attn_bias is of type str"):
        lib.memory_efficient_attention(q[None], q[None], q[None], "causal")
    with pytest.raises(ValueError, match="2 axes"):
        lib.memory_efficient_attention(q[0], q[0], q[0])


def test_ragged():
    """Packed queries over pages and over caches."""
    counts, lengths = [1, 5, 0, 3], [9, 12, 7, 3]
    starts = torch.tensor([0, 1, 6, 6, 9], dtype=torch.int32)
    q, caches = torch.randn(9, 4, 8), [torch.randn(4, 12, 2, 8) for _ in range(2)]
    pages, table = [x.reshape(12, 4, 2, 8) for x in caches], torch.arange(12).reshape(4, 3)
    rows = [lib.attention(q[None, starts[b]:starts[b] + n], *(x[b:b + 1, :lengths[b]] for x in caches), layout="bshd", causal=True)[0]
            for b, n in enumerate(counts)]
    for k, v, more in ((*pages, {"page_table": table}), (*caches, {})):
        o = lib.attention(q, k, v, layout="thd", cu_seqlens_q=starts, lengths_kv=torch.tensor(lengths), causal=True, **more)
        assert torch.allclose(o, torch.cat(rows), rtol=1e-5, atol=1e-6)
