# SPDX-License-Identifier: MIT
"""libattn.torch.nn's additive and multiplicative, relative, T5's and Hopfield's attention, against definitions in plain PyTorch."""
import copy
import doctest
import math
import pickle

import pytest

torch = pytest.importorskip("torch", minversion="2.10")

import libattn  # noqa: E402
import libattn.torch.nn as nn  # noqa: E402
from libattn import hopfield  # noqa: E402
from torch_modules import draw, gradients, heads, made, same  # noqa: E402

F64 = torch.float64
THREADS = 1  # the tensors are small


def weigh(s, v, mask=None, causal=False):
    """Weights of scores [..., queries, keys], and the result."""
    if causal:
        s = s.masked_fill(torch.ones(s.shape[-2:], dtype=torch.bool).triu(1 + s.shape[-1] - s.shape[-2]), -torch.inf)
    w = (s if mask is None else s.masked_fill(mask, -torch.inf)).softmax(-1)
    return w @ v, w


def joined(o):
    return o.transpose(1, 2).flatten(2)


PADDING = torch.arange(7) >= torch.tensor([[7], [4]])

# ---- Bahdanau, Luong -----------------------------------------------------------------------------------------------------------------


def bahdanau(module, query, memory, mask):
    z = module.query_proj(query)[:, :, None] + module.memory_proj(memory)[:, None]
    s = (z if module.bias is None else z + module.bias).tanh() @ module.weight
    return weigh(s, memory, mask)


def luong(module, query, memory, mask):
    if module.method == "concat":
        both = torch.cat([query[:, :, None].expand(-1, -1, memory.shape[1], -1), memory[:, None].expand(-1, query.shape[1], -1, -1)], -1)
        s = module.concat_proj(both).tanh() @ module.weight
    else:
        s = query @ (module.memory_proj(memory) if module.method == "general" else memory).transpose(1, 2)
    context, weights = weigh(s, memory, mask)
    return context if module.combine is None else module.combine(torch.cat([context, query], -1)).tanh(), weights


@pytest.mark.parametrize("define, kind, sizes, options", [
    (bahdanau, nn.BahdanauAttention, (5, 6, 4), {}), (bahdanau, nn.BahdanauAttention, (5,), {"bias": False}), (luong, nn.LuongAttention, (5, 5, "dot"), {}),
    (luong, nn.LuongAttention, (5, 6, "general"), {"output_dim": 3}), (luong, nn.LuongAttention, (5, 6, "concat"), {"hidden_dim": 4, "output_dim": 5}),
])
def test_decoders(define, kind, sizes, options):
    module = made(kind, *sizes, **options)
    query, memory = draw(2, 3, 5).requires_grad_(), draw(2, 7, module.memory_dim, seed=2).requires_grad_()
    for mask in (None, PADDING):
        found, weights = module(query, memory, memory_padding_mask=mask)
        want, expected = define(module, query, memory, None if mask is None else mask[:, None])
        same(found, want)
        same(weights, expected.detach())
        same(gradients(found, module, [query, memory]), gradients(want, module, [query, memory]))
    one, row = module(query[:, 1], memory, memory_padding_mask=PADDING)
    same(one, found[:, 1])
    same(row, weights[:, 1])
    assert module(query, memory, need_weights=False)[1] is None
    if define is bahdanau:
        same(module(query, memory, projected=module.project(memory))[0], module(query, memory)[0])


# ---- relative positions --------------------------------------------------------------------------------------------------------------


def shaw(module, x, mask):
    q, k, v = (heads(f(x), 2) for f in (module.q_proj, module.k_proj, module.v_proj))
    n, at = module.max_distance, torch.arange(x.shape[1])
    t = (at[:, None] - at).clamp(-n, n) + n
    s = (q[..., None, :] * (k[:, :, None] + module.relative_keys[t])).sum(-1) / q.shape[-1] ** 0.5
    o, w = weigh(s, v, mask, module.causal)
    if module.relative_values is not None:
        o = o + (w[..., None] * module.relative_values[t]).sum(-2)
    return module.o_proj(joined(o))


@pytest.mark.parametrize("options", [{}, {"values": False, "causal": True}, {"bias": False, "causal": True}])
def test_shaw(options):
    module, x = made(nn.ShawAttention, 8, 2, 2, **options), draw(2, 7, 8).requires_grad_()
    for mask in (None, PADDING):
        found, want = module(x, key_padding_mask=mask), shaw(module, x, None if mask is None else mask[:, None, None])
        same(found, want)
        same(gradients(found, module, [x]), gradients(want, module, [x]))


def transformer_xl(module, x, memory, mask):
    whole = torch.cat([memory, x], 1)
    q, k, v = (heads(y, 2) for y in module.qkv_net(whole).chunk(3, -1))
    q = q[:, :, memory.shape[1]:]
    distance = torch.arange(memory.shape[1], whole.shape[1])[:, None] - torch.arange(whole.shape[1])
    angles = distance.double()[..., None] * 10000.0 ** (-torch.arange(0, 8, 2, dtype=F64) / 8)
    r = module.r_net(torch.cat([angles.sin(), angles.cos()], -1)).unflatten(-1, (2, -1)).permute(2, 0, 1, 3)
    s = (q + module.r_w_bias[:, None]) @ k.transpose(-1, -2) + ((q + module.r_r_bias[:, None])[..., None, :] * r).sum(-1)
    return module.o_net(joined(weigh(s / q.shape[-1] ** 0.5, v, mask, module.causal)[0]))


@pytest.mark.parametrize("causal", [True, False])
def test_transformer_xl(causal):
    module = made(nn.TransformerXLAttention, 8, 2, head_dim=3, causal=causal)
    x, memory = draw(2, 4, 8).requires_grad_(), draw(2, 3, 8, seed=2).requires_grad_()
    for mask in (None, PADDING):
        found, want = module(x, memory, key_padding_mask=mask), transformer_xl(module, x, memory, None if mask is None else mask[:, None, None])
        same(found, want)
        same(gradients(found, module, [x, memory]), gradients(want, module, [x, memory]))
    same(module(x), transformer_xl(module, x, memory[:, :0], None))
    for before in (None, memory[:, :0], memory[:, :1], memory):
        assert module(x[:, :0], before).shape == (2, 0, 8)
    assert sorted(module.state_dict()) == ["o_net.weight", "qkv_net.weight", "r_net.weight", "r_r_bias", "r_w_bias"]


def bucket(distance, causal, count, longest):
    """Of query minus key (Raffel et al. 2020, and the paper's code)."""
    at = 0
    if not causal:
        count //= 2
        at = count if distance < 0 else 0
        distance = abs(distance)
    distance = max(distance, 0)
    exact = count // 2
    if distance < exact:
        return at + distance
    return at + min(exact + int(math.log(distance / exact) / math.log(longest / exact) * (count - exact)), count - 1)


def t5(module, x, source, mask, table):
    q, k, v = heads(module.q(x), 2), heads(module.k(source), 2), heads(module.v(source), 2)
    s = q @ k.transpose(-1, -2)
    if table is not None:
        which = torch.tensor([[bucket(i - j, module.causal, table.shape[1], module.max_distance) for j in range(source.shape[1])] for i in range(x.shape[1])])
        s = s + table[:, which]
    return module.o(joined(weigh(s, v, mask, module.causal)[0]))


@pytest.mark.parametrize("causal", [True, False])
def test_t5(causal):
    options = {"d_kv": 3, "causal": causal, "num_buckets": 8, "max_distance": 20}
    first, other = (made(nn.T5Attention, 8, 2, has_relative_attention_bias=has, **options) for has in (True, False))
    assert sorted(first.state_dict()) == ["k.weight", "o.weight", "q.weight", "relative_attention_bias.weight", "v.weight"]
    x, padding = draw(2, 30, 8).requires_grad_(), torch.arange(30) >= torch.tensor([[30], [4]])
    for mask in (None, padding):
        wide = None if mask is None else mask[:, None, None]
        found, want = first(x, key_padding_mask=mask), t5(first, x, x, wide, first.relative_attention_bias.weight.T)
        same(found, want)
        same(gradients(found, first, [x]), gradients(want, first, [x]))
        same(other(x, key_padding_mask=mask, bias_table=first.bias_table()), t5(other, x, x, wide, first.relative_attention_bias.weight.T))
    if not causal:
        source = draw(2, 7, 8, seed=3)
        same(other(x, source, key_padding_mask=PADDING), t5(other, x, source, PADDING[:, None, None], None))


# ---- Hopfield ------------------------------------------------------------------------------------------------------------------------


def associate(module, state, stored, mask=None):
    if module.state_norm is not None:
        state, stored = (torch.nn.functional.layer_norm(y, y.shape[-1:], f.weight, f.bias) for y, f in ((state, module.state_norm), (stored, module.stored_norm)))
    count = module.num_heads
    x, k, v = heads(module.q_proj(state), count), heads(module.k_proj(stored), count), heads(module.v_proj(stored), count)
    beta = module.beta[:, None, None] if isinstance(module.beta, torch.Tensor) else module.beta
    for _ in range(module.steps):
        x = weigh(beta * x @ k.transpose(-1, -2), k, mask)[0]
    return module.out_proj(joined(weigh(beta * x @ k.transpose(-1, -2), v, mask)[0]))


@pytest.mark.parametrize("options", [{}, {"num_heads": 2, "stored_dim": 5, "beta": 2.0, "steps": 2}, {"num_heads": 2, "learn_beta": True, "steps": 1, "normalise": False, "bias": False}])
def test_hopfield(options):
    module = made(nn.Hopfield, 8, **options)
    state, stored = draw(2, 3, 8).requires_grad_(), draw(2, 7, module.stored_dim, seed=2).requires_grad_()
    for mask in (None, PADDING):
        found, want = module(state, stored, stored_padding_mask=mask), associate(module, state, stored, None if mask is None else mask[:, None, None])
        same(found, want)
        same(gradients(found, module, [state, stored]), gradients(want, module, [state, stored]))


def test_pooling_and_layer():
    pooling, layer = made(nn.HopfieldPooling, 8, 2, quantity=3, stored_dim=5, steps=1), made(nn.HopfieldLayer, 8, 2, quantity=4, stored_dim=5)
    x, stored = draw(2, 3, 8).requires_grad_(), draw(2, 7, 5, seed=2).requires_grad_()
    for module, found, want, given in (
        (pooling, pooling(stored, stored_padding_mask=PADDING), associate(pooling.association, pooling.states.expand(2, -1, -1), stored, PADDING[:, None, None]), stored),
        (layer, layer(x), associate(layer.association, x, layer.patterns.expand(2, -1, -1)), x),
    ):
        same(found, want)
        same(gradients(found, module, [given]), gradients(want, module, [given]))
    assert pooling(stored).shape == (2, 3, 8)


def test_hopfield_retrieves_as_the_library_does():
    module = nn.Hopfield(5, beta=3.0, steps=3, normalise=False, bias=False, dtype=F64)
    for layer in (module.q_proj, module.k_proj, module.v_proj, module.out_proj):
        torch.nn.init.eye_(layer.weight)
    patterns, states = draw(6, 5), draw(4, 5, seed=2)
    want = hopfield.Hopfield(patterns.numpy(), beta=3.0).retrieve(states.numpy(), most=4, tolerance=0).updated
    same(module(states[None], patterns[None])[0].detach(), torch.from_numpy(want))


# ---- all -----------------------------------------------------------------------------------------------------------------------------

ALL = {
    "Bahdanau": (lambda **kind: nn.BahdanauAttention(8, **kind), 2), "Luong": (lambda **kind: nn.LuongAttention(8, **kind), 2),
    "Luong, concat": (lambda **kind: nn.LuongAttention(8, 8, "concat", **kind), 2), "Shaw": (lambda **kind: nn.ShawAttention(8, 2, 2, **kind), 1),
    "Transformer-XL": (lambda **kind: nn.TransformerXLAttention(8, 2, **kind), 1), "T5": (lambda **kind: nn.T5Attention(8, 2, has_relative_attention_bias=True, **kind), 1),
    "Hopfield": (lambda **kind: nn.Hopfield(8, 2, steps=1, learn_beta=True, **kind), 2),
}


def first(result):
    return result[0] if isinstance(result, tuple) else result


@pytest.mark.parametrize("name", ALL)
def test_types_and_compile(name):
    make, count = ALL[name]
    torch.manual_seed(0)
    module = make(dtype=F64)
    inputs = [draw(2, 5, 8, seed=i).requires_grad_() for i in range(count)]
    torch._dynamo.reset()
    found, want = (first(f(*inputs)) for f in (torch.compile(module, fullgraph=True, backend="aot_eager"), module))
    same(found, want)
    same(gradients(found, module, inputs), gradients(want, module, inputs))
    small, module = [x.detach().float() for x in inputs], module.float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = first(module(*small))
    assert rounded.isfinite().all()
    torch.testing.assert_close(first(module(*small)).double(), want, rtol=0, atol=1e-5)
    torch.testing.assert_close(rounded.double(), want, rtol=0, atol=0.1 * float(want.detach().abs().max()))
    sixteen = module.to(torch.bfloat16)
    assert first(sixteen(*(x.bfloat16() for x in small))).dtype == torch.bfloat16


@pytest.mark.parametrize("name", ALL)
def test_sentences(name):
    make, count = ALL[name]
    module = make(dtype=F64)
    good = [draw(2, 5, 8)] * count
    for at in range(count):
        for bad, kind, text in (
            (draw(2, 5, 7), ValueError, r"has shape \[2, 5, 7\]; it must be"), (draw(2, 5, 8, dtype=torch.float32), TypeError, "has type torch.float32, and the weights torch.float64"),
            (draw(2, 5, 8).to("meta"), TypeError, "is on the device meta, and the weights on cpu"), (7, TypeError, "is of type int"),
        ):
            with pytest.raises(kind, match=text):
                module(*[bad if i == at else x for i, x in enumerate(good)])
    if count == 2:
        with pytest.raises(ValueError, match="has 2 batch entries, and .* 3"):
            module(good[0], draw(3, 5, 8))


@pytest.mark.parametrize("call, text", [
    (lambda: nn.LuongAttention(4, 5, "dot"), r"memory_dim \(5\) is not query_dim \(4\)"), (lambda: nn.LuongAttention(4, 5, "sum"), "method is 'sum'; known"),
    (lambda: nn.LuongAttention(4, 5, hidden_dim=3), "hidden_dim is set"), (lambda: nn.ShawAttention(8, 2, -1), "max_distance is -1"),
    (lambda: nn.ShawAttention(8, 3, 1), r"embed_dim \(8\) is not a multiple of num_heads \(3\)"), (lambda: nn.T5Attention(8, 2).bias_table(), "this layer has no table"),
    (lambda: nn.Hopfield(8, beta=0.0), "beta is 0.0; it must be above 0"), (lambda: nn.Hopfield(8, steps=-1), "steps is -1"),
    (lambda: nn.BahdanauAttention(4)(torch.rand(1, 2, 4), torch.rand(1, 3, 4), projected=torch.rand(1, 3, 2)), r"projected has shape \[1, 3, 2\]"),
    (lambda: nn.TransformerXLAttention(8, 2)(torch.rand(2, 3, 8), torch.rand(1, 3, 8)), "memory has 1 batch entries, and x 2"),
    (lambda: nn.T5Attention(8, 2, has_relative_attention_bias=True, num_buckets=7), "num_buckets is 7; it must be even and at least 4"),
    (lambda: nn.T5Attention(8, 2, causal=True, has_relative_attention_bias=True, max_distance=16), "max_distance is 16; it must be at least 17"),
    (lambda: nn.T5Attention(8, 2, max_distance=0), "max_distance is 0; it must be at least 1"),
])
def test_more_sentences(call, text):
    with pytest.raises(ValueError, match=text):
        call()


MODELS = {
    "grouped": lambda: nn.GroupedQueryAttention(16, 4, 2, rope=True, sinks=True, window=(3, 0)), "latent": lambda: nn.LatentAttention(16, 2, kv_lora_rank=4, qk_nope_head_dim=4, qk_rope_head_dim=2),
    "linear": lambda: nn.LinearAttention(16, 4, features="identity", delta=True, decay="head"), "Shaw": lambda: nn.ShawAttention(16, 2, 3),
    "Transformer-XL": lambda: nn.TransformerXLAttention(16, 2), "T5": lambda: nn.T5Attention(16, 2, has_relative_attention_bias=True), "Hopfield": lambda: nn.HopfieldPooling(16, 2),
}


@pytest.mark.parametrize("name", MODELS)
def test_copies_and_pickles(name):
    module, x = MODELS[name](), draw(2, 7, 16, dtype=torch.float32)
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert torch.equal(other(x), module(x))


@pytest.mark.parametrize("name", nn.__all__)
def test_examples_of_docstrings(name):
    known = {"torch": torch, "libattn": libattn, **{x: torch.rand(1, 5, 512) for x in "xab"}}
    for example in doctest.DocTestFinder(recurse=False).find(getattr(nn, name), name, globs=known):
        assert not doctest.DocTestRunner().run(example).failed


@pytest.mark.parametrize("make", [
    lambda p: nn.GroupedQueryAttention(16, 4, 2, dropout=p), lambda p: nn.LatentAttention(16, 2, kv_lora_rank=4, qk_nope_head_dim=4, qk_rope_head_dim=2, dropout=p),
    lambda p: nn.ShawAttention(16, 2, 3, dropout=p), lambda p: nn.TransformerXLAttention(16, 2, dropout=p), lambda p: nn.T5Attention(16, 2, dropout=p),
    lambda p: nn.HopfieldPooling(16, 2, dropout=p),
])
def test_dropout_in_training_alone(make):
    module, plain, x = make(0.5), make(0.0), draw(2, 7, 16, dtype=torch.float32)
    plain.load_state_dict(module.state_dict())
    assert torch.equal(module.eval()(x), plain(x)) and not torch.equal(module.train()(x), plain(x))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["grouped", "linear", "Transformer-XL", "T5"])
def test_exported_and_compiled_for_any_length(name):
    module, x, y = MODELS[name]().eval(), draw(2, 7, 16, dtype=torch.float32), draw(2, 11, 16, seed=2, dtype=torch.float32)
    tokens = torch.export.Dim("tokens", min=2, max=512)
    torch._dynamo.reset()
    for other in (torch.export.export(module, (x,), dynamic_shapes=({1: tokens},)).module(), torch.compile(module, fullgraph=True, dynamic=True, backend="aot_eager")):
        for z in (x, y):
            torch.testing.assert_close(other(z), module(z), rtol=0, atol=1e-5)
