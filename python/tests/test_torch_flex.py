# SPDX-License-Identifier: MIT
"""FlexAttention on a CPU: libattn.torch.flex_attention, and PyTorch's own function while libattn is enabled."""
import math

import pytest

torch = pytest.importorskip("torch", minversion="2.10")

import libattn.torch as lib  # noqa: E402
from libattn.torch import _flex  # noqa: E402
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention  # noqa: E402
from torch_problems import qkv, tensors  # noqa: E402

F64 = torch.float64
B, H, S, T = 2, 4, 70, 90


def parameter(*shape, seed=1):
    return tensors(shape, dtype=F64, seed=seed)[0].requires_grad_()


SLOPES, TABLE, WHOLE, GATES = parameter(H), parameter(H, S + T), parameter(B, H, S, T), parameter(B, T)
DOCUMENTS_Q, DOCUMENTS_K = (torch.tensor([0] * (n // 3) + [1] * (n // 5) + [2] * (n - n // 3 - n // 5)) for n in (S, T))
LENGTHS = torch.tensor([90, 33])

MASKS = {
    "none": None, "causal": lambda b, h, i, j: i >= j, "window": lambda b, h, i, j: (i >= j) & (i - j < 20), "prefix": lambda b, h, i, j: (j < 9) | (i >= j),
    "documents": lambda b, h, i, j: DOCUMENTS_Q[i] == DOCUMENTS_K[j], "lengths": lambda b, h, i, j: j < LENGTHS[b],
    "heads": lambda b, h, i, j: i - j < 4 * h, "dilated": lambda b, h, i, j: (i - j) % 3 == 0, "nothing": lambda b, h, i, j: (i > 60) & (j < 0) | (i < 60) & (j < 5),
    "heads, dilated": lambda b, h, i, j: (i - j) % (h + 2) != 0,
}
INTERVALS = {"causal", "window", "prefix", "documents", "lengths", "heads", "nothing"}
SCORES = {
    "none": (None, ()), "alibi": (lambda s, b, h, i, j: s - SLOPES[h] * (i - j), (SLOPES,)), "table": (lambda s, b, h, i, j: s + TABLE[h, i - j + T], (TABLE,)),
    "bias": (lambda s, b, h, i, j: WHOLE[b, h, i, j] + s, (WHOLE,)), "gates": (lambda s, b, h, i, j: torch.add(s, GATES[b, j]), (GATES,)),
    "softcap": (lambda s, b, h, i, j: 2.0 * torch.tanh(s / 2.0), ()), "softcap, alibi": (lambda s, b, h, i, j: (s / 3).tanh() * 3 + SLOPES[h] * (j - i), (SLOPES,)),
    "factor": (lambda s, b, h, i, j: s * 0.5 + GATES[b, j], (GATES,)), "where": (lambda s, b, h, i, j: torch.where(i >= j, s, -math.inf), ()),
    "where, sum": (lambda s, b, h, i, j: torch.where((i - j).abs() < 30, s + SLOPES[h], -float("inf")), (SLOPES,)),
    "fill": (lambda s, b, h, i, j: s.masked_fill(i < j, -math.inf), ()), "two": (lambda s, b, h, i, j: torch.where(i > j, s, s - SLOPES[h]), (SLOPES,)),
}
OTHERS = {
    "square": (lambda s, b, h, i, j: s * s, ()), "gated": (lambda s, b, h, i, j: s * GATES[b, j], (GATES,)), "late factor": (lambda s, b, h, i, j: (s + 1) * 2, ()),
    "number": (lambda s, b, h, i, j: torch.where(i > j, s, 0.5), ()), "sigmoid": (lambda s, b, h, i, j: torch.sigmoid(s), ()), "minus": (lambda s, b, h, i, j: GATES[b, j] - s, (GATES,)),
    "tanh": (lambda s, b, h, i, j: torch.tanh(s), ()), "tanh of a sum": (lambda s, b, h, i, j: 2 * torch.tanh((s + SLOPES[h]) / 2), (SLOPES,)),
    "half a softcap": (lambda s, b, h, i, j: 2 * torch.tanh(s / 3), ()), "clamp": (lambda s, b, h, i, j: s.clamp(max=0.5), ()), "constant": (lambda s, b, h, i, j: s + 1, ()),
}


def dense(q, k, v, score_mod, mask_mod, scale=None):
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    at = [torch.arange(n).view([-1 if i == axis else 1 for i in range(4)]) for axis, n in enumerate((*q.shape[:3], k.shape[2]))]
    s = q @ k.transpose(-1, -2) * (scale or q.shape[-1] ** -0.5)
    s = s if score_mod is None else score_mod(s, *at)
    if mask_mod is not None:
        s = s.masked_fill(~mask_mod(*at).expand(s.shape), -math.inf)
    return s.softmax(-1).nan_to_num(0) @ v, s.logsumexp(-1)


def block_mask(name, size=16):
    mask = MASKS[name]
    if mask is None:
        return None
    one = {"lengths": (B, None), "heads": (None, H), "heads, dilated": (None, H)}.get(name, (None, None))
    return create_block_mask(mask, *one, S, T, device="cpu", BLOCK_SIZE=size)


def compare(call, q, k, v, score, mask, parameters, size=16, **options):
    o = call(q, k, v, score, block_mask(mask, size), **options)
    o, lse = o if isinstance(o, tuple) else (o, None)
    want, want_lse = dense(q, k, v, score, MASKS[mask], options.get("scale"))
    torch.testing.assert_close(o, want, rtol=0, atol=1e-12)
    if lse is not None:
        torch.testing.assert_close(lse, want_lse, rtol=0, atol=1e-12)
    every = (q, k, v, *parameters)
    grad_o, = tensors(o.shape, dtype=F64, seed=8)
    found, expected = (torch.autograd.grad(x, every, grad_o) for x in (o, want))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-11)


def problem(heads_kv=H):
    return qkv(B, H, heads_kv, S, T, 16, dtype=F64, grad=True)


@pytest.mark.parametrize("size", [16, 128])
@pytest.mark.parametrize("name", MASKS)
def test_masks(name, size):
    q, k, v = problem()
    compare(lib.flex_attention, q, k, v, None, name, (), size)
    if MASKS[name] is not None:
        ranges, mask = _flex._mask(block_mask(name, size), q, k)
        assert (ranges is not None) == (name in INTERVALS) and (mask is None) == (name in INTERVALS)


@pytest.mark.parametrize("mask", ["none", "causal", "dilated"])
@pytest.mark.parametrize("name", [*SCORES, *OTHERS])
def test_scores(name, mask, monkeypatch):
    if name in SCORES:  # without the matrix of scores
        monkeypatch.setattr(_flex, "_formula", None)
    score, parameters = {**SCORES, **OTHERS}[name]
    compare(lib.flex_attention, *problem(), score, mask, parameters)


@pytest.mark.parametrize("name", OTHERS)
def test_other_forms_are_seen(name):
    q, k, v = problem()
    with pytest.raises(_flex.OtherForm):
        _flex._score(OTHERS[name][0], q, k, None, list(_flex.DEFAULTS))


def test_options():
    compare(lib.flex_attention, *problem(2), SCORES["alibi"][0], "causal", (SLOPES,), enable_gqa=True, scale=0.3, return_lse=True)
    q, k, v = (x.detach() for x in problem())
    o, aux = lib.flex_attention(q, k, v, block_mask=block_mask("causal"), return_aux=AuxRequest(lse=True, max_scores=True))
    want, lse = dense(q, k, v, None, MASKS["causal"])
    torch.testing.assert_close((o, aux.lse), (want, lse), rtol=0, atol=1e-12)
    assert aux.max_scores.shape == (B, H, S) and lib.flex_attention(q, k, v, return_aux=AuxRequest())[1].lse is None
    with pytest.raises(ValueError, match="enable_gqa"):
        lib.flex_attention(q, k[:, :2], v[:, :2])
    with pytest.raises(ValueError, match="4 axes"):
        lib.flex_attention(q[0], k[0], v[0])


def test_a_mask_is_evaluated_once_unless_what_it_reads_changes():
    q, k, v = (x.detach() for x in problem())
    documents, calls = torch.zeros(T, dtype=torch.int64), []

    def mask(b, h, i, j):
        calls.append(1)
        return documents[i] == documents[j]

    blocks = create_block_mask(mask, None, None, S, T, device="cpu")
    calls.clear()
    one = lib.flex_attention(q, k, v, block_mask=blocks)
    assert sum(calls)
    before = sum(calls)
    documents[40:] = 1
    other = lib.flex_attention(q, k, v, block_mask=blocks)
    assert sum(calls) > before and not torch.equal(one, other)

    kept = create_block_mask(MASKS["documents"], None, None, S, T, device="cpu")
    assert _flex._mask(kept, q, k) is _flex._mask(kept, q, k)
    number = id(kept)
    del kept
    assert number not in _flex._masks


def test_blocks_that_are_left_out_are_not_seen():
    """Whatever mask_mod would say of them, as in PyTorch."""
    q, k, v = (x.detach() for x in problem())
    blocks = create_block_mask(MASKS["causal"], None, None, S, T, device="cpu", BLOCK_SIZE=16)
    blocks.kv_num_blocks, blocks.full_kv_num_blocks = blocks.kv_num_blocks.clone(), blocks.full_kv_num_blocks.clone()
    blocks.full_kv_num_blocks[..., 2] = 0
    o = lib.flex_attention(q, k, v, block_mask=blocks)
    want = dense(q, k, v, None, lambda b, h, i, j: (i >= j) & ((i // 16 != 2) | (j // 16 == 2)))[0]
    torch.testing.assert_close(o, want, rtol=0, atol=1e-12)


def test_unchanged_callers():
    q, k, v = problem()
    with lib.using():
        lib.stats(reset=True)
        compare(flex_attention, q, k, v, SCORES["alibi"][0], "window", (SLOPES,))
        assert lib.stats(reset=True)["libattn"] == {"flex_attention": 1}
        torch._dynamo.reset()
        compare(torch.compile(flex_attention), q, k, v, SCORES["alibi"][0], "causal", (SLOPES,))
        assert lib.stats()["libattn"] == {"flex_attention": 1}
    with pytest.raises(Exception, match="backward"):  # PyTorch's own
        torch._dynamo.reset()
        flex_attention(q, k, v).sum().backward()


def test_other_types():
    for dtype, unit in ((torch.float32, 2.0**-24), (torch.bfloat16, 2.0**-8)):
        q, k, v = (x.detach().to(dtype) for x in problem())
        want = dense(*(x.double() for x in (q, k, v)), SCORES["softcap, alibi"][0], MASKS["causal"])[0].detach()
        with torch.no_grad():
            o = lib.flex_attention(q, k, v, SCORES["softcap, alibi"][0], block_mask("causal"))
        # A mean of values below 5, whose weights are off by e^(2 e) with scores below 20 of 16 terms each, then rounded to the type.
        assert o.dtype == dtype and (o.double() - want).abs().max() < 5 * (2 * 20 * 40 * 2.0**-24 + 2 * unit)
