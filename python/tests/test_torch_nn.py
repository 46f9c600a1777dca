# SPDX-License-Identifier: MIT
"""libattn.torch.nn.MultiheadAttention against PyTorch's, and its further options against a definition in plain PyTorch."""
import itertools
import math

import pytest

torch = pytest.importorskip("torch", minversion="2.10")

import libattn.torch.nn  # noqa: E402
from torch_modules import attend, draw, gradients, made, same, turned  # noqa: E402

F64 = torch.float64
THREADS = 1  # the tensors are small
Ours, Theirs = libattn.torch.nn.MultiheadAttention, torch.nn.MultiheadAttention

SHAPES = {
    "plain": {}, "no bias": {"bias": False}, "bias_kv": {"add_bias_kv": True}, "zero": {"add_zero_attn": True}, "both": {"add_bias_kv": True, "add_zero_attn": True},
    "kdim": {"kdim": 5, "vdim": 7}, "all": {"kdim": 5, "add_bias_kv": True, "add_zero_attn": True},
}
CAUSAL = torch.ones(6, 9, dtype=torch.bool).triu(1)
MASKS = {
    "none": {}, "padding": {"key_padding_mask": torch.arange(9) >= torch.tensor([[9], [4], [1]])}, "causal": {"attn_mask": CAUSAL, "is_causal": True},
    "mask": {"attn_mask": torch.arange(54).view(6, 9) % 4 == 3}, "floats": {"attn_mask": draw(6, 9)}, "each": {"attn_mask": draw(12, 6, 9)},
    "each and padding": {"attn_mask": draw(12, 6, 9) > 1.5, "key_padding_mask": torch.arange(9) >= torch.tensor([[9], [7], [9]])},
    "both floats": {"attn_mask": draw(6, 9), "key_padding_mask": draw(3, 9)},
}


def pair(batch_first=True, dtype=F64, **options):
    torch.manual_seed(0)
    theirs = Theirs(16, 4, batch_first=batch_first, dtype=dtype, **options)
    for p in theirs.parameters():
        torch.nn.init.normal_(p, std=0.4)
    ours = Ours(16, 4, batch_first=batch_first, dtype=dtype, **options)
    assert {name: x.shape for name, x in ours.state_dict().items()} == {name: x.shape for name, x in theirs.state_dict().items()}
    ours.load_state_dict(theirs.state_dict())
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


def inputs(kdim=16, vdim=16, batch_first=True, dtype=F64, **_):
    found = [draw(3, 6, 16, dtype=dtype), draw(3, 9, kdim, seed=2, dtype=dtype), draw(3, 9, vdim, seed=3, dtype=dtype)]
    return [(x if batch_first else x.transpose(0, 1).contiguous()).requires_grad_() for x in found]


def nested(*lengths, channels=16, seed=1, layout=torch.strided, grad=False):
    return torch.nested.nested_tensor([draw(n, channels, seed=seed) for n in lengths], layout=layout, requires_grad=grad)


@pytest.mark.parametrize("shape", SHAPES)
def test_results_and_gradients_are_those_of_pytorch(shape):
    for masks, (batch_first, weights, average) in itertools.product(MASKS, [(True, True, True), (False, True, False), (True, False, True)]):
        ours, theirs = pair(batch_first, **SHAPES[shape])
        given = inputs(batch_first=batch_first, **SHAPES[shape])
        more = {"need_weights": weights, "average_attn_weights": average, **MASKS[masks]}
        # With the hint PyTorch's hides bias_k and the zeros from all queries, but only if there are no weights to return.
        found, want = ours(*given, **more), theirs(*given, **{**more, "is_causal": False})
        same(found[0], want[0])
        assert (found[1] is None) == (want[1] is None)
        if weights:
            same(found[1], want[1])
        if average:
            same(gradients(found[0], ours, given), gradients(want[0], theirs, given))


def test_self_attention_and_no_batch():
    ours, theirs = pair()
    x = inputs()[0]
    for y in (x, x[0]):
        for found, want in zip(ours(y, y, y), theirs(y, y, y), strict=True):
            same(found, want)
    padding = torch.arange(6) > 3
    same(ours(x[0], x[0], x[0], key_padding_mask=padding)[0], theirs(x[0], x[0], x[0], key_padding_mask=padding)[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_other_types(dtype):
    ours, theirs = pair(dtype=dtype)
    given = inputs(dtype=dtype)
    found, weights = ours(*given)
    assert found.dtype == weights.dtype == dtype
    want = theirs.double()(*(x.double() for x in given))
    # Sums of 16 and of 9 terms below 4, rounded in each of the three products.
    for x, y in zip((found, weights), want, strict=True):
        torch.testing.assert_close(x.double(), y, rtol=0, atol=200 * torch.finfo(dtype).eps)


def test_a_query_without_keys_gets_zeros():
    ours, _ = pair(bias=False)
    o, weights = ours(*inputs(), attn_mask=torch.ones(6, 9, dtype=torch.bool))
    assert not o.any() and not weights.any()


def test_dropout():
    ours, _ = pair(dropout=0.5)
    given = inputs()
    torch.manual_seed(1)
    one = ours(*given)[0]
    torch.manual_seed(1)
    assert torch.equal(ours(*given)[0], one) and not torch.equal(ours(*given)[0], one)
    ours.eval()
    assert torch.equal(ours(*given)[0], ours(*given)[0])


# ---- further options -----------------------------------------------------------------------------------------------------------------

OPTIONS = [
    {"window": (2, 1)}, {"window": 1, "softcap": 2.0}, {"alibi": True}, {"sinks": True}, {"rope": True}, {"rope": libattn.positions.Rope(dim_rotary=2, base=100)},
    {"qk_norm": True}, {"scale": 0.3, "temperature": 2.0}, {"score": "cosine", "scale": 4.0}, {"normaliser": "softmax-one"},
    {"rope": True, "qk_norm": True, "sinks": True, "softcap": 3.0, "window": (3, 0)}, {"alibi": True, "sinks": True, "dilation": 2, "window": (4, 4)},
]


def define(module, x, bias=None, causal=False, **options):
    """A definition of self-attention with the module's weights."""
    q, k, v = torch.nn.functional.linear(x, module.in_proj_weight, module.in_proj_bias).unflatten(-1, (3, 4, 4)).permute(2, 0, 3, 1, 4)
    if options.get("qk_norm"):
        q, k = (y * (y.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * norm.weight for y, norm in ((q, module.q_norm), (k, module.k_norm)))
    rope = options.get("rope")
    if rope:
        q, k = (turned(y, rope) for y in (q, k))
    o = attend(q, k, v, bias=bias, causal=causal, **options | {"sinks": module.sinks})
    return module.out_proj(o.transpose(1, 2).flatten(2))


@pytest.mark.parametrize("number", range(len(OPTIONS)))
def test_options(number):
    options = OPTIONS[number]
    torch.manual_seed(0)
    module = Ours(16, 4, batch_first=True, dtype=F64, **options)
    for p in module.parameters():
        torch.nn.init.normal_(p, std=0.4)
    x, bias = draw(2, 7, 16).requires_grad_(), draw(7, 7, seed=4).requires_grad_()
    for causal, added in ((False, bias), (True, None)):
        found = module(x, x, x, attn_mask=added, is_causal=causal, need_weights=False)[0]
        want = define(module, x, added, causal, **options)
        same(found, want)
        given = [x] if added is None else [x, bias]
        same(gradients(found, module, given), gradients(want, module, given))


def test_extra_keys_are_seen_through_windows_and_causal_masks():
    ours, _ = pair(add_bias_kv=True, add_zero_attn=True)
    windowed = Ours(16, 4, batch_first=True, dtype=F64, add_bias_kv=True, add_zero_attn=True, window=(2, 1))
    windowed.load_state_dict(ours.state_dict())
    x = inputs()[0]
    far = torch.ones(6, 6, dtype=torch.bool).triu(2) | torch.ones(6, 6, dtype=torch.bool).tril(-3)
    for found, want in zip(windowed(x, x, x), ours(x, x, x, attn_mask=far), strict=True):
        same(found, want)
    for found, want in zip(ours(x, x, x, is_causal=True), ours(x, x, x, attn_mask=torch.ones(6, 6, dtype=torch.bool).triu(1)), strict=True):
        same(found, want)


# ---- the rest of PyTorch -------------------------------------------------------------------------------------------------------------


def test_in_a_transformer_layer():
    """With its options also where PyTorch goes round the forward of its own module: in evaluation, without gradients."""
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, dtype=F64).eval()
    x = draw(2, 5, 16)
    want = layer(x)
    for options in ({}, {"window": (1, 0)}):
        ours = Ours(16, 4, batch_first=True, dtype=F64, **options)
        ours.load_state_dict(layer.self_attn.state_dict())
        layer.self_attn = ours
        with torch.no_grad():
            same(layer(x), want if not options else layer.norm2(_after(layer, layer.norm1(x + ours(x, x, x)[0]))))


def _after(layer, x):
    return x + layer.linear2(layer.linear1(x).relu())


def test_second_derivatives_and_func():
    ours, _ = pair()
    small = [draw(1, 3, 16).requires_grad_(), draw(1, 4, 16, seed=2), draw(1, 4, 16, seed=3)]
    assert torch.autograd.gradgradcheck(lambda x: ours(x, *small[1:], need_weights=False)[0][..., :3], (small[0],))
    weights = dict(ours.named_parameters())

    def loss(weights, x):
        return torch.func.functional_call(ours, weights, (x[None], x[None], x[None]), {"need_weights": False})[0].square().sum()

    xs = draw(3, 4, 16)
    found = torch.func.vmap(torch.func.grad(loss), (None, 0))(weights, xs)
    for i, x in enumerate(xs):
        want = torch.autograd.grad(loss(weights, x), list(weights.values()))
        same([y[i] for y in found.values()], want)


def test_compiled():
    torch._dynamo.reset()
    module = Ours(16, 4, batch_first=True, dtype=F64, rope=True, sinks=True, window=(2, 0))
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    x = draw(2, 7, 16).requires_grad_()
    found, want = (f(x, x, x, need_weights=False)[0] for f in (compiled, module))
    same(found, want)
    same(gradients(found, module, [x]), gradients(want, module, [x]))


def test_it_learns():
    """To copy the token two places before, which a window of two places allows."""
    torch.manual_seed(0)
    module = Ours(16, 2, batch_first=True, window=(2, 0), rope=True)
    optimiser = torch.optim.Adam(module.parameters(), lr=1e-2)
    x = torch.randn(8, 12, 16)
    losses = []
    for _ in range(60):
        loss = (module(x, x, x, is_causal=True, need_weights=False)[0][:, 2:] - x[:, :-2]).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.5 * losses[0] and math.isfinite(losses[-1])


@pytest.mark.parametrize("change, kind, text", [
    ({"query": draw(3, 6, 15)}, ValueError, r"query has shape \[3, 6, 15\]; it must be .* with 16 channels"), ({"key": draw(9, 16)}, ValueError, "key has 2 axes; it must have 3"),
    ({"value": draw(3, 8, 16)}, ValueError, "3, 3 and 3 batch entries and 6, 9 and 8 tokens"), ({"key": draw(2, 9, 16), "value": draw(2, 9, 16)}, ValueError, "batch must agree"),
    ({"query": draw(3, 6, 16, dtype=torch.float32)}, TypeError, "query has type torch.float32, and the weights torch.float64"),
    ({"query": [1.0]}, TypeError, "query is of type list"), ({"key": draw(3, 9, 16).to("meta")}, TypeError, "key is on the device meta, and the weights on cpu"),
    ({"key": nested(9, 9, 9)}, ValueError, "query must be a nested tensor"), ({"query": nested(4, 2), "key": nested(2, 2), "value": nested(2, 1)}, ValueError, r"\[4, 2\], \[2, 2\], \[2, 1\]"),
    ({"query": nested(4, 2), "key": nested(4, 2), "value": nested(4, 2), "attn_mask": torch.ones(4, 4)}, NotImplementedError, "attn_mask is set"),
    ({"query": nested(4, 2), "key": nested(4, 2, channels=8), "value": nested(4, 2)}, ValueError, "key has shape .* with 16 channels"),
    ({"attn_mask": torch.ones(5, 9)}, ValueError, r"attn_mask has shape \[5, 9\]; it must be \[6, 9\] or \[12, 6, 9\]"),
    ({"attn_mask": [[0.0]]}, TypeError, "attn_mask is of type list"), ({"key_padding_mask": [True]}, TypeError, "key_padding_mask is of type list"),
    ({"attn_mask": torch.ones(6, 9, dtype=torch.int64)}, TypeError, "attn_mask has type torch.int64"),
    ({"key_padding_mask": torch.ones(3, 8, dtype=torch.bool)}, ValueError, r"key_padding_mask has shape \[3, 8\]; it must be \[3, 9\]"),
])
def test_sentences(change, kind, text):
    ours, _ = pair()
    with pytest.raises(kind, match=text):
        ours(**dict(zip(("query", "key", "value"), inputs(), strict=True)) | change)


def test_an_encoder_with_padding():
    encoder = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2).eval()
    x, hidden = torch.randn(2, 6, 16), torch.arange(6) >= torch.tensor([[6], [4]])
    with torch.no_grad():
        theirs = encoder(x, src_key_padding_mask=hidden)
        for layer in encoder.layers:
            ours = Ours(16, 2, batch_first=True)
            ours.load_state_dict(layer.self_attn.state_dict())
            layer.self_attn = ours.eval()
        for encoder.use_nested_tensor in (True, False):
            torch.testing.assert_close(encoder(x, src_key_padding_mask=hidden)[~hidden], theirs[~hidden], rtol=0, atol=1e-5)


# ---- nested tensors ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
@pytest.mark.parametrize("options", [
    {}, {"is_causal": True}, {"rope": True, "qk_norm": True, "window": (1, 0)}, {"alibi": True, "sinks": True}, {"kdim": 5, "vdim": 7}])
def test_nested_tensors_are_their_entries(options, layout):
    options = dict(options)
    call = {"is_causal": options.pop("is_causal", False)}
    ours, _ = pair(**options) if options.keys() <= {"kdim", "vdim"} else (made(Ours, 16, 4, batch_first=True, **options), None)
    x = nested(5, 1, 3, layout=layout, grad=True)
    given = [x, x, x]
    if "kdim" in options:
        given = [x, nested(2, 4, 6, channels=5, seed=2, layout=layout), nested(2, 4, 6, channels=7, seed=3, layout=layout)]
    o, none = ours(*given, need_weights=False, **call)
    again, weights = ours(*given, average_attn_weights=False, **call)
    assert o.is_nested and o.layout is layout and none is None and o.dtype == F64
    entries = [[one.detach() for one in y.unbind()] for y in (o, again, *given)]
    for i, (found, other, *inputs_) in enumerate(zip(*entries, strict=True)):
        want, w = ours(*(y[None] for y in inputs_), average_attn_weights=False, **call)
        same(found, want[0])
        same(other, want[0])
        same(weights[i, :, :w.shape[2], :w.shape[3]], w[0])
        assert not weights[i, :, w.shape[2]:].any() and not weights[i, :, :, w.shape[3]:].any()
    x.grad = None
    sum(one.square().sum() for one in o.unbind()).backward()
    for one, found in zip(x.unbind(), x.grad.unbind(), strict=True):
        y = one.detach().requires_grad_()
        if "kdim" not in options:
            same(found, torch.autograd.grad(ours(y[None], y[None], y[None], need_weights=False, **call)[0].square().sum(), y)[0])


def test_nested_tensors_need_the_batch_first():
    with pytest.raises(ValueError, match="batch_first=True"):
        Ours(16, 4, dtype=F64)(*[nested(4, 2)] * 3)
    with pytest.raises(NotImplementedError, match="add_bias_kv is set"):
        Ours(16, 4, dtype=F64, batch_first=True, add_bias_kv=True)(*[nested(4, 2)] * 3)
    with pytest.raises(TypeError, match="x is a nested tensor; pad it"):
        libattn.torch.nn.GroupedQueryAttention(16, 4, 2, dtype=F64)(nested(4, 2))


def test_sentences_of_the_constructor():
    for arguments, options, kind, text in (
        ((16, 3), {}, ValueError, r"embed_dim \(16\) is not a multiple of num_heads \(3\)"), ((16, 4), {"wide": 1}, TypeError, "wide is not an option; known: alibi"),
        ((16, 4), {"rope": 3}, TypeError, "rope is of type int"), ((12, 4), {"rope": True}, ValueError, "dim_rotary"),
        ((16, 4), {"alibi": True, "add_bias_kv": True}, NotImplementedError, "add_bias_kv is set, and alibi"),
    ):
        with pytest.raises(kind, match=text):
            Ours(*arguments, **options)
