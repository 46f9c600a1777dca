# SPDX-License-Identifier: MIT
"""FlexAttention on a CPU: libattn.torch.flex_attention, and PyTorch's own function while libattn is enabled."""
import math
import subprocess
import sys

import numpy
import pytest

torch = pytest.importorskip("torch", minversion="2.10")

import libattn.torch as lib  # noqa: E402
from libattn.torch import _flex_calls, _flex_masks, _flex_rows, _flex_scores  # noqa: E402
from libattn.torch._shim import AT, DEFAULTS  # noqa: E402
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention  # noqa: E402
from torch_problems import qkv, tensors  # noqa: E402

F64 = torch.float64
B, H, S, T = 2, 4, 70, 90


def parameter(*shape, seed=1):
    return tensors(shape, dtype=F64, seed=seed)[0].requires_grad_()


SLOPES, TABLE, WHOLE, GATES, VECTOR = parameter(H), parameter(H, S + T), parameter(B, H, S, T), parameter(B, T), parameter(S + T)
POINTS = parameter(T, 3)
DOCUMENTS_Q, DOCUMENTS_K = (torch.tensor([0] * (n // 3) + [1] * (n // 5) + [2] * (n - n // 3 - n // 5)) for n in (S, T))
LENGTHS = torch.tensor([90, 33])

MASKS = {
    "none": None, "causal": lambda b, h, i, j: i >= j, "window": lambda b, h, i, j: (i >= j) & (i - j < 20), "prefix": lambda b, h, i, j: (j < 9) | (i >= j),
    "documents": lambda b, h, i, j: DOCUMENTS_Q[i] == DOCUMENTS_K[j], "lengths": lambda b, h, i, j: j < LENGTHS[b],
    "heads": lambda b, h, i, j: i - j < 4 * h, "dilated": lambda b, h, i, j: (i - j) % 3 == 0, "nothing": lambda b, h, i, j: (i > 60) & (j < 0) | (i < 60) & (j < 5),
    "heads, dilated": lambda b, h, i, j: (i - j) % (h + 2) != 0,
}
INTERVALS = {"causal", "window", "prefix", "documents", "lengths", "heads", "nothing"}
# name: (score_mod, the parameters that it reads, the option that takes what is added)
SCORES = {
    "none": (None, (), None), "alibi": (lambda s, b, h, i, j: s - SLOPES[h] * (i - j).abs(), (SLOPES,), "alibi_slopes"),
    "signed alibi": (lambda s, b, h, i, j: s + SLOPES[h] * (j - i), (SLOPES,), "bias_table"),
    "entries": (lambda s, b, h, i, j: s - GATES[b, h] * 0.5 * (j - i).abs().float(), (GATES,), "alibi_slopes"),
    "table": (lambda s, b, h, i, j: s + TABLE[h, i - j + T], (TABLE,), "bias_table"),
    "clipped": (lambda s, b, h, i, j: s + TABLE[h, (j - i).clamp(-7, 7) + 7] * 2, (TABLE,), "bias_table"),
    "buckets": (lambda s, b, h, i, j: s + TABLE[h, torch.where(i - j < 8, (i - j).abs(), 8 + ((i - j).clamp(min=1) / 8).log2().long())], (TABLE,), "bias_table"),
    "bias": (lambda s, b, h, i, j: WHOLE[b, h, i, j] + s, (WHOLE,), "bias"), "gates": (lambda s, b, h, i, j: torch.add(s, GATES[b, j]), (GATES,), "bias"),
    "queries": (lambda s, b, h, i, j: s - GATES[b, i] * SLOPES[h], (GATES, SLOPES), "bias"), "constant": (lambda s, b, h, i, j: s + 1, (), "bias"),
    "softcap": (lambda s, b, h, i, j: 2.0 * torch.tanh(s / 2.0), (), None),
    "softcap, alibi": (lambda s, b, h, i, j: (s / 3).tanh() * 3 + SLOPES[h] * (i - j).abs(), (SLOPES,), "alibi_slopes"),
    "factor": (lambda s, b, h, i, j: s * 0.5 + GATES[b, j], (GATES,), "bias"), "where": (lambda s, b, h, i, j: torch.where(i >= j, s, -math.inf), (), "bias_table"),
    "where, sum": (lambda s, b, h, i, j: torch.where((i - j).abs() < 30, s + SLOPES[h], -float("inf")), (SLOPES,), "bias_table"),
    "fill": (lambda s, b, h, i, j: s.masked_fill(i < j, -math.inf), (), "bias_table"), "two": (lambda s, b, h, i, j: torch.where(i > j, s, s - SLOPES[h]), (SLOPES,), "bias_table"),
    "rows of a table": (lambda s, b, h, i, j: s + (TABLE[h] * VECTOR).sum() + VECTOR[j], (TABLE, VECTOR), "bias"),
}
OTHERS = {
    "square": (lambda s, b, h, i, j: s * s, ()), "gated": (lambda s, b, h, i, j: s * GATES[b, j], (GATES,)), "late factor": (lambda s, b, h, i, j: (s + 1) * 2, ()),
    "number": (lambda s, b, h, i, j: torch.where(i > j, s, 0.5), ()), "sigmoid": (lambda s, b, h, i, j: torch.sigmoid(s), ()), "minus": (lambda s, b, h, i, j: GATES[b, j] - s, (GATES,)),
    "tanh": (lambda s, b, h, i, j: torch.tanh(s), ()), "tanh of a sum": (lambda s, b, h, i, j: 2 * torch.tanh((s + SLOPES[h]) / 2), (SLOPES,)),
    "half a softcap": (lambda s, b, h, i, j: 2 * torch.tanh(s / 3), ()), "clamp": (lambda s, b, h, i, j: s.clamp(max=0.5), ()),
    "points": (lambda s, b, h, i, j: s - (POINTS[i] - POINTS[j]).pow(2).sum(), (POINTS,)), "product": (lambda s, b, h, i, j: s + SLOPES[h] * i * j / 99, (SLOPES,)),
    "documents": (lambda s, b, h, i, j: torch.where(DOCUMENTS_Q[i] == DOCUMENTS_K[j], s, -math.inf), ()), "parity": (lambda s, b, h, i, j: s + SLOPES[h] * ((i + j) % 2), (SLOPES,)),
}


@pytest.fixture(autouse=True)
def no_bias_of_pairs(monkeypatch):
    """However small: these problems are."""
    monkeypatch.setattr(_flex_scores, "FEW", 0)
    monkeypatch.setattr(_flex_rows, "SCORES", 0)


def dense(q, k, v, score_mod, mask_mod, scale=None):
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    at = [torch.arange(n).view([-1 if i == axis else 1 for i in range(4)]) for axis, n in enumerate((*q.shape[:3], k.shape[2]))]
    s = q @ k.transpose(-1, -2) * (scale or q.shape[-1] ** -0.5)
    if score_mod is not None:
        for dims in ((0, None, None, None, 0), (0, None, None, 0, None), (0, None, 0, None, None), (0, 0, None, None, None)):
            score_mod = torch.vmap(score_mod, in_dims=dims)
        with _flex_calls.Items():
            s = score_mod(s, *(x.flatten() for x in at))
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
        found = _flex_masks.seen(block_mask(name, size), q, k)
        assert (found.mask is None) == (name in INTERVALS) and found.causal == (name == "causal")
        assert found.backward == (name in ("causal", "window"))


def taken(score, causal=False):
    """The options that a score_mod becomes."""
    q, k, _ = problem()
    options = list(DEFAULTS)
    _flex_scores.as_options(_flex_scores.read(score, F64), score, q, k, None, causal, options)
    return {name for name in ("alibi_slopes", "bias_table", "bias") if options[AT[name]] is not None}


@pytest.mark.parametrize("mask", ["none", "causal", "dilated"])
@pytest.mark.parametrize("name", [*SCORES, *OTHERS])
def test_scores(name, mask, monkeypatch):
    score, parameters, *option = SCORES.get(name) or OTHERS[name]
    if name in SCORES:  # without a matrix of scores
        monkeypatch.setattr(_flex_rows, "attend", None)
        assert score is None or taken(score) == {*option} - {None}
    else:
        with pytest.raises(_flex_scores.OtherForm):
            taken(score)
    compare(lib.flex_attention, *problem(), score, mask, parameters)


def test_where_no_later_key_is_seen_slopes_may_be_signed():
    assert taken(SCORES["signed alibi"][0], causal=True) == {"alibi_slopes"}
    assert taken(lambda s, b, h, i, j: s - SLOPES[h] * (i - j - 1), causal=True) == {"bias_table"}


def test_a_score_mod_within_torch_func():
    q, k, v = (x.detach() for x in problem())
    for score in (lambda x: lambda s, b, h, i, j: s - x[h] * (i - j).abs(), lambda x: lambda s, b, h, i, j: s * x[h]):
        found, want = (torch.func.grad(lambda x: call(x).square().sum())(SLOPES.detach()) for call in (  # noqa: B023
            lambda x: lib.flex_attention(q, k, v, score(x)), lambda x: dense(q, k, v, score(x), None)[0]))  # noqa: B023
        torch.testing.assert_close(found, want, rtol=0, atol=1e-11)


@pytest.mark.parametrize("name", ["gates", "table", "alibi", "square", "gated"])
def test_second_derivatives(name):
    score, parameters, *_ = SCORES.get(name) or OTHERS[name]
    q, k, v = problem()
    first, second = [], []
    for call in (lib.flex_attention, dense):
        o = call(q, k, v, score, None)
        o = o[0] if isinstance(o, tuple) else o
        first.append(torch.autograd.grad(o.square().sum(), (q, k, v, *parameters), create_graph=True))
        second.append(torch.autograd.grad(sum(x.square().sum() for x in first[-1]), (q, k, v, *parameters)))
    torch.testing.assert_close(*second, rtol=1e-9, atol=1e-9)


def test_rows_that_see_nothing():
    compare(lib.flex_attention, *problem(), OTHERS["gated"][0], "nothing", (GATES,), return_lse=True)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_square():
    """In a program of its own, as the largest resident set of a process never shrinks."""
    program = """
import resource, torch, libattn.torch as lib
from libattn.torch import _flex_rows
_flex_rows.SCORES = 2**18
slopes = torch.rand(4, requires_grad=True)
def call(n, score):
    lib.flex_attention(*(torch.randn(1, 4, n, 16, requires_grad=True) for _ in range(3)), score).sum().backward()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for score in lambda s, b, h, i, j: s - slopes[h] * (i - j), lambda s, b, h, i, j: s * s - slopes[h] * i:
    before = call(256, score)
    print((call(2048, score) - before) * 1024)
"""
    used = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()
    assert all(int(one) < 4 * 4 * 2048**2 / 2 for one in used), used  # half a matrix of scores


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


def test_a_score_divided_by_zero():
    q, k, v = (x.detach() for x in problem())
    found = lib.flex_attention(q, k, v, lambda s, b, h, i, j: torch.where(j < 0, s / 0, s))  # which is not chosen
    torch.testing.assert_close(found, dense(q, k, v, None, None)[0], rtol=0, atol=1e-12)


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
    assert _flex_masks.seen(kept, q, k) is _flex_masks.seen(kept, q, k)
    number = id(kept)
    del kept
    assert number not in _flex_masks._masks


def test_a_mask_notices_another_tensor_in_the_place_of_one_that_is_gone():
    q, k, v = (x.detach() for x in problem())
    box = [torch.zeros(T, dtype=torch.int64)]
    blocks = create_block_mask(lambda b, h, i, j: box[0][i] == box[0][j], None, None, S, T, device="cpu")
    for _ in range(4):
        box[0] = torch.randint(2, (T,))
        want = dense(q, k, v, None, lambda b, h, i, j: box[0][i] == box[0][j])[0]
        torch.testing.assert_close(lib.flex_attention(q, k, v, block_mask=blocks), want, rtol=0, atol=1e-12)


def test_a_mask_notices_what_changes_without_a_new_version():
    q, k, v = (x.detach() for x in problem())
    documents = torch.zeros(T, dtype=torch.int64)
    blocks = create_block_mask(lambda b, h, i, j: documents[i] == documents[j], None, None, S, T, device="cpu")
    for change in (lambda: None, lambda: documents.numpy()[40:].fill(1), lambda: documents.data[:20].fill_(2)):
        change()
        want = dense(q, k, v, None, lambda b, h, i, j: documents[i] == documents[j])[0]
        torch.testing.assert_close(lib.flex_attention(q, k, v, block_mask=blocks), want, rtol=0, atol=1e-12)


def test_a_mask_notices_other_functions_and_keywords():
    q, k, v = (x.detach() for x in problem())

    def within(most):
        return lambda b, h, i, j, *, most=most: i - j <= most

    compared = torch.ge

    def ordered(b, h, i, j):
        return compared(i, j)

    mask = create_block_mask(within(10000), None, None, q.shape[2], k.shape[2], device="cpu")
    first = lib.flex_attention(q, k, v, block_mask=mask)
    mask.mask_mod = within(0)
    assert not torch.equal(lib.flex_attention(q, k, v, block_mask=mask), first)
    mask.mask_mod = ordered
    first = lib.flex_attention(q, k, v, block_mask=mask)
    compared = torch.le
    assert not torch.equal(lib.flex_attention(q, k, v, block_mask=mask), first)


def test_a_mask_may_read_what_has_no_truth_value():
    q, k, v = (x.detach() for x in problem())
    widths = numpy.array([3, 4])
    mask = create_block_mask(lambda b, h, i, j: i - j <= int(widths[0]), None, None, q.shape[2], k.shape[2], device="cpu")
    first = lib.flex_attention(q, k, v, block_mask=mask)
    widths[0] = 0
    assert not torch.equal(lib.flex_attention(q, k, v, block_mask=mask), first)


def test_a_mask_of_inference_mode():
    q, k, v = (x.detach() for x in problem())
    want = lib.flex_attention(q, k, v, block_mask=block_mask("causal"))
    with torch.inference_mode():
        mask = create_block_mask(MASKS["causal"], None, None, q.shape[2], k.shape[2], device="cpu", BLOCK_SIZE=16)
        assert torch.equal(lib.flex_attention(q, k, v, block_mask=mask), want)


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
    torch._dynamo.reset()  # PyTorch's own, of which some versions have no backward on a CPU
    lib.stats(reset=True)
    torch.testing.assert_close(flex_attention(q.detach(), k.detach(), v.detach()), dense(q, k, v, None, None)[0].detach(), rtol=0, atol=1e-11)
    assert not lib.stats()["libattn"]


def test_other_types():
    for dtype, unit in ((torch.float32, 2.0**-24), (torch.bfloat16, 2.0**-8)):
        q, k, v = (x.detach().to(dtype) for x in problem())
        want = dense(*(x.double() for x in (q, k, v)), SCORES["softcap, alibi"][0], MASKS["causal"])[0].detach()
        with torch.no_grad():
            o = lib.flex_attention(q, k, v, SCORES["softcap, alibi"][0], block_mask("causal"))
        # A mean of values below 5, whose weights are off by e^(2 e) with scores below 20 of 16 terms each, then rounded to the type.
        assert o.dtype == dtype and (o.double() - want).abs().max() < 5 * (2 * 20 * 40 * 2.0**-24 + 2 * unit)
