# SPDX-License-Identifier: MIT
"""FlexAttention in graphs of torch.compile, all with fullgraph=True: against the dense definition in float64.

Graphs are traced and differentiated by AOT autograd, but not compiled further, except for a test of Inductor: a compilation takes
seconds, so that one graph has many calls.
"""
import threading

import pytest

torch = pytest.importorskip("torch", minversion="2.10")

import libattn.torch as lib  # noqa: E402
from libattn.torch import _flex_compiled, _flex_rows, _flex_scores, _flex_text, _flex_tiles  # noqa: E402
from test_torch_flex import (  # noqa: E402
    DOCUMENTS_K, F64, GATES, H, MASKS, OTHERS, POINTS, SCORES, SLOPES, TABLE, VECTOR, WHOLE, S, T, block_mask, dense, problem, tensors,
)
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention  # noqa: E402

PARAMETERS = (SLOPES, TABLE, WHOLE, GATES, VECTOR, POINTS)
SCORE = {name: score for name, (score, *_) in {**SCORES, **OTHERS}.items()}
FEW = (
    ("none", "none"), ("none", "heads, dilated"), ("alibi", "causal"), ("table", "window"), ("bias", "documents"), ("softcap, alibi", "lengths"),
    ("rows of a table", "prefix"), ("gated", "causal"), ("points", "dilated"), ("tanh of a sum", "nothing"),
)

pytestmark = pytest.mark.skipif(bool(_flex_compiled.unknown()), reason="PyTorch traces FlexAttention in another way")


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(_flex_scores, "FEW", 0)
    monkeypatch.setattr(_flex_rows, "SCORES", 0)
    torch._dynamo.reset()
    with lib.using():
        lib.stats(reset=True)
        yield


def compiled(function, backend="aot_eager", **options):
    return torch.compile(function, backend=backend, fullgraph=True, **options)


def same(found, want, inputs, bound=1e-11):
    """Values, and gradients of a sum with given factors."""
    found, want = list(found), list(want)
    torch.testing.assert_close(found, want, rtol=0, atol=bound)
    factors = [tensors(x.shape, dtype=F64, seed=8 + i)[0].to(x.dtype) for i, x in enumerate(found)]
    both = (torch.autograd.grad(x, inputs, factors, allow_unused=True) for x in (found, want))
    torch.testing.assert_close(*both, rtol=1e-12 if bound < 1e-9 else 1e-4, atol=bound)


def check(cases, **options):
    q, k, v = problem()
    masks = [block_mask(mask) for _, mask in cases]
    found = compiled(lambda q, k, v: [flex_attention(q, k, v, SCORE[score], mask) for (score, _), mask in zip(cases, masks, strict=True)], **options)(q, k, v)
    want = [dense(q, k, v, SCORE[score], MASKS[mask])[0] for score, mask in cases]
    same(found, want, (q, k, v, *PARAMETERS))
    assert lib.stats(reset=True) == {"libattn": {"flex_attention": len(cases)}, "torch": {}}


def test_many_in_one_graph():
    check(FEW)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, len(SCORE) + len(MASKS), 10))  # (a graph of all takes three times as long as of ten each)
def test_all_in_graphs(first):
    cases = [(score, "dilated" if i % 2 else "causal") for i, score in enumerate(SCORE)] + [("alibi", mask) for mask in MASKS]
    check(cases[first : first + 10], dynamic=True)


def test_options():
    def model(q, k, v, few_k, few_v, one_k, one_v):
        o, lse = flex_attention(q, k, v, SCORE["gated"], causal, scale=0.3, return_lse=True, kernel_options={"PRESCALE_QK": True})
        other, aux = flex_attention(q, few_k, few_v, SCORE["alibi"], enable_gqa=True, return_aux=AuxRequest(lse=True, max_scores=True))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            low = flex_attention(q.float(), k.float(), v.float())
        return o, lse, other, aux.lse, flex_attention(q, one_k, one_v), low, aux.max_scores

    causal = block_mask("causal")
    (q, k, v), (_, few_k, few_v) = problem(), problem(2)
    one_k, one_v = k[:1].detach().clone().requires_grad_(), v[:1].detach().clone().requires_grad_()
    *found, low, top = compiled(model)(q, k, v, few_k, few_v, one_k, one_v)
    assert low.dtype == torch.bfloat16 and (low - dense(q, k, v, None, None)[0]).abs().max() < 0.1
    s = torch.einsum("bhid,bhjd->bhij", q, few_k.repeat_interleave(2, 1)) / 4 - SLOPES[:, None, None] * (torch.arange(S)[:, None] - torch.arange(T)).abs()
    torch.testing.assert_close(top, s.amax(-1), rtol=0, atol=1e-12)
    want = (
        *dense(q, k, v, SCORE["gated"], MASKS["causal"], 0.3), *dense(q, few_k, few_v, SCORE["alibi"], None),
        dense(q, one_k.expand_as(k), one_v.expand_as(v), None, None)[0])
    same(found, want, (q, k, v, few_k, few_v, one_k, one_v, SLOPES, GATES))


@torch._dynamo.config.patch(error_on_recompile=True)  # (monkeypatch leaves it deleted)
def test_other_lengths_in_the_same_graph():
    def model(q, k, v, mask, table, factor):
        return flex_attention(q, k, v, lambda s, b, h, i, j: s + factor * table[h, i - j + table.shape[1] // 2], mask) * 2

    call = compiled(model, dynamic=True)
    for n, factor in ((40, 0.5), (57, 0.25), (33, 2.0)):
        q, k, v, table = (x.requires_grad_() for x in tensors((2, 5, n, 8), (2, 5, n, 8), (2, 5, n, 8), (5, 2 * n), dtype=F64, seed=n))
        mask = create_block_mask(MASKS["causal"], None, None, n, n, device="cpu", BLOCK_SIZE=16)
        found = call(q, k, v, mask, table, factor)
        want = dense(q, k, v, lambda s, b, h, i, j: s + factor * table[h, i - j + n], MASKS["causal"])[0] * 2  # noqa: B023
        same([found], [want], (q, k, v, table))


def test_a_graph_is_right_before_and_after():
    """It was made while libattn was enabled, or not."""
    q, k, v = problem()
    plain = [x.detach() for x in (q, k, v)]
    want = dense(q, k, v, SCORE["gated"], MASKS["causal"])[0]
    mask = block_mask("causal")
    call = compiled(lambda q, k, v: flex_attention(q, k, v, SCORE["gated"], mask))
    for expected in (1, 0, 1):
        (lib.enable if expected else lib.disable)()
        with torch.no_grad():
            torch.testing.assert_close(call(*plain), want.detach(), rtol=0, atol=1e-11)
        if expected:
            same([call(q, k, v)], [dense(q, k, v, SCORE["gated"], MASKS["causal"])[0]], (q, k, v, GATES))
    lib.disable()
    same([call(q, k, v)], [want], (q, k, v, GATES))  # still libattn's


def test_made_without_libattn():
    plain = [x.detach() for x in problem()]
    lib.disable()
    try:
        call = compiled(flex_attention)
        want = call(*plain, SCORE["softcap"])
        assert not lib.stats()["libattn"]
    finally:
        lib.enable()
    torch.testing.assert_close(call(*plain, SCORE["softcap"]), want, rtol=0, atol=1e-11)
    assert lib.stats()["libattn"] == {"flex_attention": 1}


def test_libattn_s_own_function():
    q, k, v = problem()
    lib.disable()
    try:
        found = compiled(lib.flex_attention)(q, k, v, SCORE["alibi"], block_mask("causal"))
    finally:
        lib.enable()
    same([found], [dense(q, k, v, SCORE["alibi"], MASKS["causal"])[0]], (q, k, v, SLOPES))
    assert not lib.stats()["libattn"]


def test_graphs_that_are_not_compiled_further():
    """backend="eager": also second derivatives."""
    q, k, v = problem()
    mask, inputs = block_mask("documents"), (q, k, v, SLOPES, GATES)
    call = compiled(lambda q, k, v: flex_attention(q, k, v, SCORE["alibi"], mask) + flex_attention(q, k, v, SCORE["gated"], mask), "eager")
    second = []
    for o in (call(q, k, v), sum(dense(q, k, v, SCORE[name], MASKS["documents"])[0] for name in ("alibi", "gated"))):
        first = torch.autograd.grad(o.square().sum(), inputs, create_graph=True)
        second.append(torch.autograd.grad(sum(x.square().sum() for x in first), inputs))
    torch.testing.assert_close(*second, rtol=1e-9, atol=1e-9)
    assert lib.stats()["libattn"] == {"flex_attention": 2}


def test_what_a_mask_reads_may_change():
    """In place, in a graph, and in memory that another tensor had."""
    q, k, v = (x.detach() for x in problem())
    documents = torch.zeros(T, dtype=torch.int64)
    mask = create_block_mask(lambda b, h, i, j: documents[i] == documents[j], None, None, S, T, device="cpu")

    def model(q, k, v, documents, mask):
        documents = documents // 2  # a tensor of the graph
        return flex_attention(q, k, v, lambda s, b, h, i, j: torch.where(documents[i] == documents[j], s, -float("inf")), mask)

    call = compiled(model)
    for seed in range(3):
        documents.copy_(torch.randint(4, (T,), generator=torch.Generator().manual_seed(seed)))
        want = dense(q, k, v, None, lambda b, h, i, j: documents[i] == documents[j])[0]
        torch.testing.assert_close(call(q, k, v, documents * 2, mask), want, rtol=0, atol=1e-12)
    assert len(_flex_compiled._kept) <= _flex_compiled.MASKS


def test_kept_masks_are_bounded(monkeypatch):
    monkeypatch.setattr(_flex_compiled, "_kept", [])
    monkeypatch.setattr(_flex_compiled, "BYTES", 2**15)
    q, k, _ = (x.detach() for x in problem())

    def seen(number):
        lists = [torch.ones(1, 1, 1, dtype=torch.int32), torch.zeros(1, 1, 1, 1, dtype=torch.int32)]
        blocks = _flex_compiled.Blocks(*lists, None, None, (128, 128), lambda b, h, i, j: (i - j) % number == 0)
        return _flex_compiled._seen(blocks, number, tuple(lists), q, k)

    first = [seen(n) for n in range(2, 9)]
    assert len(_flex_compiled._kept) == 2**15 // (S * T + 8) and seen(8) is first[-1] and seen(2) is not first[0]


def test_threads():
    q, k, v = (x.detach() for x in problem())
    names, masks = ("alibi", "gated", "bias"), {name: block_mask(name) for name in ("causal", "documents")}
    call = compiled(lambda q, k, v: [flex_attention(q, k, v, SCORE[name], mask) for name in names for mask in masks.values()])
    want, wrong = call(q, k, v), []

    def work():
        for _ in range(3):
            wrong.extend(not torch.equal(x, y) for x, y in zip(call(q, k, v), want, strict=True))

    crew = [threading.Thread(target=work) for _ in range(4)]
    for one in crew:
        one.start()
    for one in crew:
        one.join()
    assert len(wrong) == 4 * 3 * 6 and not any(wrong)


def test_inference_mode():
    q, k, v = (x.detach() for x in problem())
    with torch.inference_mode():
        found = compiled(flex_attention)(q, k, v, SCORE["gated"], block_mask("causal"))
    torch.testing.assert_close(found, dense(q, k, v, SCORE["gated"], MASKS["causal"])[0].detach(), rtol=0, atol=1e-12)


def test_what_does_not_fit():
    q, k, v = (x.detach() for x in problem())
    larger = create_block_mask(MASKS["causal"], None, None, S + 1, T, device="cpu")
    elsewhere = block_mask("causal")
    elsewhere.kv_num_blocks = elsewhere.kv_num_blocks.to("meta")
    for call in (flex_attention, compiled(flex_attention)):
        with pytest.raises(Exception, match="block_mask is for 71 queries and 90 keys; there are 70 and 90"):
            call(q, k, v, block_mask=larger)
        with pytest.raises(Exception, match="block_mask is on the device meta"):
            call(q, k, v, block_mask=elsewhere)
        with pytest.raises(Exception, match="enable_gqa"):
            call(q, k[:, :2], v[:, :2])
    with pytest.raises(Exception, match="graphs of its own, as torch.cond"):
        compiled(flex_attention)(q, k, v, lambda s, b, h, i, j: torch.cond(h > 1, lambda: s * 2, lambda: s.clone()))


def test_a_pytorch_that_traces_it_in_another_way(monkeypatch):
    monkeypatch.setattr(_flex_compiled, "STOCK", (*_flex_compiled.STOCK, "more"))
    q, k, v = (x.detach() for x in problem())
    found = compiled(flex_attention)(q, k, v, SCORE["softcap"])
    torch.testing.assert_close(found, dense(q, k, v, SCORE["softcap"], None)[0], rtol=0, atol=1e-11)
    (why, calls), = lib.stats()["torch"].items()
    assert "in another way" in why and calls == 1 and not lib.stats()["libattn"]
    with pytest.raises(Exception, match="in another way"):
        compiled(lib.flex_attention)(q, k, v)


def parts(backend, score="gated"):
    q, k, v = problem(2)
    mask, inputs = block_mask("nothing"), (q, k, v, *OTHERS[score][1])
    found = compiled(flex_attention, backend)(q, k, v, SCORE[score], mask, enable_gqa=True, return_lse=True)
    want = dense(q, k, v, SCORE[score], MASKS["nothing"])
    same([found[0], found[1].nan_to_num(neginf=0)], [want[0], want[1].nan_to_num(neginf=0)], inputs)
    return lib.stats(reset=True)["torch"]


def test_parts_by_formula(monkeypatch):
    """What Inductor would compile."""
    monkeypatch.setattr(_flex_compiled, "wanted", lambda: True)
    calls = []

    def plain(text, learned):
        calls.append(learned)
        return _flex_tiles._functions(*_flex_text.source(text), learned)

    monkeypatch.setattr(_flex_tiles, "_compiled", plain)
    for score in ("gated", "points"):
        assert not parts("aot_eager", score)
        assert set(calls) == {(), (0,)}
        calls.clear()


def test_parts_that_are_not_compiled(monkeypatch):
    monkeypatch.setattr(_flex_compiled, "wanted", lambda: True)
    monkeypatch.setattr(_flex_compiled, "_failed", set())

    def fails(text, learned):
        raise torch._dynamo.exc.TorchDynamoException("no compiler")

    monkeypatch.setattr(_flex_tiles, "_compiled", fails)
    (why, times), = parts("aot_eager").items()
    assert "was not compiled" in why and times == 1


@pytest.mark.slow
def test_parts_that_inductor_compiles(monkeypatch):
    calls, filled = [], _flex_tiles.Tiles.filled
    monkeypatch.setattr(_flex_tiles.Tiles, "filled", lambda self: calls.append(1) or filled(self))
    assert not parts("inductor") and calls


def test_inductor(monkeypatch):
    """A model with parameters of its own, in float32."""

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.gates = torch.nn.Linear(24, 72), torch.nn.Parameter(torch.rand(3))

        def forward(self, x, mask, call=flex_attention):
            q, k, v = self.qkv(x).view(*x.shape[:2], 3, 3, 8).permute(2, 0, 3, 1, 4)
            o = call(q, k, v, lambda s, b, h, i, j: s + self.gates[h] * (i - j), mask)
            return o + call(o, k, v, lambda s, b, h, i, j: s * self.gates[h] + (documents[i] == documents[j]), mask)

    monkeypatch.setattr(_flex_rows, "SCORES", 2**20)  # one part, which PyTorch's operators compute
    documents = DOCUMENTS_K[:40]
    model, x = Model(), tensors((2, 40, 24))[0]
    mask = create_block_mask(MASKS["causal"], None, None, 40, 40, device="cpu", BLOCK_SIZE=16)
    found = compiled(model, "inductor")(x, mask)
    want = model(x, None, lambda q, k, v, score, _: dense(q, k, v, score, MASKS["causal"])[0])
    same([found], [want], tuple(model.parameters()), 1e-3)
    assert lib.stats()["libattn"] == {"flex_attention": 2} and H == 4
