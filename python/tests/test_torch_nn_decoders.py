# SPDX-License-Identifier: MIT
"""libattn.torch.nn's grouped and latent attention: against definitions in plain PyTorch, and token by token against the whole."""
import copy
import pickle

import pytest

torch = pytest.importorskip("torch", minversion="2.10")

import libattn.torch.nn as nn  # noqa: E402
from libattn import latent as reference  # noqa: E402
from libattn import positions  # noqa: E402
from torch_modules import attend, draw, gradients, heads, made, same, turned  # noqa: E402

F64 = torch.float64
THREADS = 1  # the tensors are small


# ---- grouped -------------------------------------------------------------------------------------------------------------------------

GROUPED = [
    {}, {"num_kv_heads": 2}, {"num_kv_heads": 1, "head_dim": 6, "bias": True, "out_bias": True}, {"num_kv_heads": 2, "rope": True, "qk_norm": True, "sinks": True},
    {"num_kv_heads": 2, "rope": positions.Rope(base=500.0), "window": (3, 0), "softcap": 2.0}, {"alibi": True, "causal": False, "window": 2},
]


def define(module, x, context=None, added=None, mask=None, **options):
    source = x if context is None else context
    q, k, v = heads(module.q_proj(x), 4), *(heads(f(source), module.num_kv_heads) for f in (module.k_proj, module.v_proj))
    if options.get("qk_norm"):
        q, k = (y * (y.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * norm.weight for y, norm in ((q, module.q_norm), (k, module.k_norm)))
    if options.get("rope"):
        q, k = (turned(y, options["rope"]) for y in (q, k))
    o = attend(q, k, v, **options | {"bias": added, "mask": mask, "sinks": module.sinks, "causal": module.causal, "first": k.shape[2] - q.shape[2]})
    return module.o_proj(o.transpose(1, 2).flatten(2))


@pytest.mark.parametrize("number", range(len(GROUPED)))
def test_grouped(number):
    options = GROUPED[number]
    module = made(nn.GroupedQueryAttention, 16, 4, **options)
    x = draw(2, 7, 16).requires_grad_()
    bias, mask = draw(7, 7, seed=2).requires_grad_(), draw(2, 4, 7, 7, seed=3) > -1
    padding = torch.arange(7) >= torch.tensor([[7], [5]])
    for more, ours in (({}, {}), ({"added": bias}, {"attn_mask": bias}), ({"mask": mask}, {"attn_mask": mask}), ({"mask": ~padding[:, None, None]}, {"key_padding_mask": padding}),
                       ({"mask": mask & ~padding[:, None, None]}, {"attn_mask": mask, "key_padding_mask": padding})):
        found, want = module(x, **ours), define(module, x, **more, **options)
        same(found, want)
        given = [x, bias] if "added" in more else [x]
        same(gradients(found, module, given), gradients(want, module, given))


def test_grouped_with_a_context():
    module = made(nn.GroupedQueryAttention, 16, 4, 2, kdim=5, causal=False)
    x, context = draw(2, 3, 16).requires_grad_(), draw(2, 6, 5, seed=2).requires_grad_()
    found, want = module(x, context), define(module, x, context)
    same(found, want)
    same(gradients(found, module, [x, context]), gradients(want, module, [x, context]))


def test_the_names_are_those_of_models():
    module = nn.GroupedQueryAttention(16, 4, 2, qk_norm=True, sinks=True)
    assert sorted(module.state_dict()) == ["k_norm.weight", "k_proj.weight", "o_proj.weight", "q_norm.weight", "q_proj.weight", "sinks", "v_proj.weight"]
    module = nn.LatentAttention(16, 2, kv_lora_rank=4, qk_nope_head_dim=6, qk_rope_head_dim=2, q_lora_rank=3)
    names = ["kv_a_layernorm", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj", "q_a_layernorm", "q_a_proj", "q_b_proj"]
    assert sorted(module.state_dict()) == [f"{name}.weight" for name in names]


def decoded(module, x, sizes, **more):
    cache = module.cache(x.shape[0], 12, **more)
    parts, at = [], 0
    for size in sizes:
        parts.append(module(x[:, at:at + size], cache=cache))
        at += size
    return torch.cat(parts, 1), cache


LATENT = {"kv_lora_rank": 6, "qk_nope_head_dim": 4, "qk_rope_head_dim": 2, "v_head_dim": 5}
DECODERS = [
    lambda: made(nn.GroupedQueryAttention, 16, 4, 2, rope=True), lambda: made(nn.GroupedQueryAttention, 16, 4, 2, rope=True, window=(3, 0), sinks=True, qk_norm=True),
    lambda: made(nn.GroupedQueryAttention, 16, 4, alibi=True), lambda: made(nn.LatentAttention, 16, 3, **LATENT), lambda: made(nn.LatentAttention, 16, 3, q_lora_rank=7, **LATENT),
]


@pytest.mark.parametrize("number", range(len(DECODERS)))
def test_token_by_token(number):
    module = DECODERS[number]()
    x = draw(2, 9, 16)
    whole = module(x).detach()
    for sizes in ([9], [1] * 9, [4, 1, 1, 3]):
        found, cache = decoded(module, x, sizes)
        same(found, whole)
        assert not found.requires_grad and cache.lengths.tolist() == [9, 9]


@pytest.mark.parametrize("number", [0, 3])
def test_sequences_of_different_lengths(number):
    module = DECODERS[number]()
    x, lengths = draw(2, 6, 16), torch.tensor([6, 4])
    cache = module.cache(2, 12)
    module(x, cache=cache, lengths=lengths)
    assert cache.lengths.tolist() == [6, 4]
    new = draw(2, 2, 16, seed=5)
    found = module(new, cache=cache)
    for b in range(2):
        want = module(torch.cat([x[b:b + 1, :int(lengths[b])], new[b:b + 1]], 1))[:, -2:]
        same(found[b:b + 1], want)


def test_lengths_without_a_cache():
    module, x, lengths = DECODERS[0](), draw(2, 6, 16), torch.tensor([6, 4])
    found = module(x, lengths=lengths)
    same(found[1:, :4], module(x[1:, :4]))
    assert not found[1, 4:].any()


def test_a_cache_says_what_does_not_fit():
    module = DECODERS[0]()
    cache = module.cache(2, 3)
    module(draw(2, 2, 16), cache=cache)
    with pytest.raises(ValueError, match=r"2 tokens after \[2, 2\] do not fit into a cache of capacity 3"):
        module(draw(2, 2, 16), cache=cache)
    assert cache.lengths.tolist() == [2, 2] and "capacity 3, lengths [2, 2]" in repr(cache)
    with pytest.raises(ValueError, match="x has 3 batch entries, and the cache 2"):
        module(draw(3, 1, 16), cache=cache)
    with pytest.raises(ValueError, match=r"lengths is \[2, 0\]; it must have 2 numbers between 0 and 1"):
        module(draw(2, 1, 16), cache=cache, lengths=torch.tensor([2, 0]))


@pytest.mark.parametrize("wrong", [
    {"key_padding_mask": torch.zeros(2, 3, dtype=torch.bool)}, {"attn_mask": torch.ones(3, 3, dtype=torch.bool)}, {"attn_mask": torch.ones(3, 12, dtype=torch.int64)},
    {"lengths": torch.tensor([1.0, 2.0])}, {"lengths": torch.tensor([1, 4])},
])
def test_a_call_that_raises_leaves_the_cache_as_it_was(wrong):
    module = DECODERS[0]()
    x, cache = draw(2, 6, 16), module.cache(2, 12)
    first = module(x[:, :3], cache=cache)
    with pytest.raises((ValueError, TypeError), match=next(iter(wrong))):
        module(x[:, 3:], cache=cache, **wrong)
    assert cache.lengths.tolist() == [3, 3]
    same(torch.cat([first, module(x[:, 3:], cache=cache)], 1), module(x))


@pytest.mark.parametrize("number", [0, 3])
def test_so_does_one_that_is_found_wrong_by_attention_itself(number):
    module = DECODERS[number]()
    cache = module.cache(2, 12)
    module.train().dropout = 2.0
    with pytest.raises(ValueError, match="dropout"):
        module(draw(2, 3, 16), cache=cache)
    assert cache.lengths.tolist() == [0, 0]


@pytest.mark.parametrize("number", [0, 3])
def test_copies_of_a_cache(number):
    module = DECODERS[number]()
    x = draw(2, 7, 16)
    _, cache = decoded(module, x[:, :6], [6])
    for one in (copy.deepcopy(cache), pickle.loads(pickle.dumps(cache))):
        same(module(x[:, 6:], cache=one), module(x)[:, 6:])
        assert one.lengths.tolist() == [7, 7] and cache.lengths.tolist() == [6, 6]
        if number == 3:
            assert one.values.data_ptr() == one.keys.data_ptr() and torch.equal(one.values, one.keys[..., :6])


@pytest.mark.parametrize("make", [
    lambda: nn.GroupedQueryAttention(16, 4, 2, rope=True, qk_norm=True), lambda: nn.LatentAttention(16, 3, **LATENT),
    lambda: nn.MultiheadAttention(16, 4, rope=positions.Rope(frequencies=[1.0, 0.1])), lambda: nn.LinearAttention(16, 4, decay="fixed", features="favor", num_features=8),
])
def test_weights_that_come_later(make):
    """Made without memory, as large models are, then filled."""
    with torch.device("meta"):
        module = make()
    x = draw(2, 7, 16, dtype=torch.float32)
    inputs = [x] * (3 if isinstance(module, nn.MultiheadAttention) else 1)
    shape = module(*(x.to("meta") for x in inputs))
    want = make()
    module.to_empty(device="cpu").load_state_dict(want.state_dict())
    found, want = module(*inputs), want(*inputs)
    if len(inputs) == 3:
        shape, found, want = shape[0], found[0], want[0]
    assert shape.shape == want.shape and torch.equal(found, want)


def test_a_cache_of_another_type():
    module = DECODERS[0]().float()
    x = draw(2, 9, 16, dtype=torch.float32)
    found, cache = decoded(module, x, [5, 4], dtype=torch.bfloat16)
    assert cache.keys.dtype == torch.bfloat16
    # Keys and values are rounded to 8 bits once; results are below 10.
    torch.testing.assert_close(found, module(x), rtol=0, atol=0.2)


# ---- latent --------------------------------------------------------------------------------------------------------------------------


def define_latent(module, x, mask=None):
    def norm(y, weight):
        return y * (y.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * weight

    q = module.q_proj(x) if module.q_proj else module.q_b_proj(norm(module.q_a_proj(x), module.q_a_layernorm.weight))
    q = heads(q, 3)
    down = module.kv_a_proj_with_mqa(x)
    up = heads(module.kv_b_proj(norm(down[..., :6], module.kv_a_layernorm.weight)), 3)
    rope = positions.Rope()
    q = torch.cat([q[..., :4], turned(q[..., 4:], rope)], -1)
    k = torch.cat([up[..., :4], turned(down[:, None, :, 6:], rope).expand(-1, 3, -1, -1)], -1)
    o = attend(q, k, up[..., 4:], causal=module.causal, mask=mask)
    return module.o_proj(o.transpose(1, 2).flatten(2))


@pytest.mark.parametrize("more", [{}, {"q_lora_rank": 7}, {"causal": False}])
def test_latent(more):
    module = made(nn.LatentAttention, 16, 3, **LATENT, **more)
    x, padding = draw(2, 7, 16).requires_grad_(), torch.arange(7) >= torch.tensor([[7], [5]])
    for mask in (None, padding):
        found, want = module(x, key_padding_mask=mask), define_latent(module, x, None if mask is None else ~mask[:, None, None])
        same(found, want)
        same(gradients(found, module, [x]), gradients(want, module, [x]))


def test_latent_has_the_weights_of_the_library_s():
    module = made(nn.LatentAttention, 16, 3, q_lora_rank=7, **LATENT)
    weights = {name: getattr(module, theirs).weight.detach().numpy() for name, theirs in (
        ("query_down", "q_a_proj"), ("query", "q_b_proj"), ("down", "kv_a_proj_with_mqa"), ("up", "kv_b_proj"), ("output", "o_proj"), ("query_norm", "q_a_layernorm"),
        ("norm", "kv_a_layernorm"))}
    layer = reference.Latent(16, 3, head_dim=4, head_dim_v=5, rank=6, rank_query=7, dim_rotary=2, dtype="float64", weights=weights)
    x = draw(2, 7, 16)
    same(module(x).detach(), torch.from_numpy(layer(x.numpy(), causal=True)))


# ---- the rest of PyTorch -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [1, 4])
def test_compiled(number):
    torch._dynamo.reset()
    module = DECODERS[number]()
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    x = draw(2, 7, 16).requires_grad_()
    found, want = compiled(x), module(x)
    same(found, want)
    same(gradients(found, module, [x]), gradients(want, module, [x]))


@pytest.mark.parametrize("number", [1, 3])
def test_autocast(number):
    module = DECODERS[number]().float()
    x = draw(2, 7, 16, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = module(x)
    assert found.dtype == torch.bfloat16
    want = module(x)
    torch.testing.assert_close(found.float(), want, rtol=0, atol=0.05 * float(want.detach().abs().max()))


def test_sentences():
    grouped, latent = DECODERS[0](), DECODERS[3]()
    x = draw(2, 4, 16)
    for call, kind, text in (
        (lambda: grouped(x[0]), ValueError, r"x has shape \[4, 16\]; it must be \[batch, tokens, channels\] with 16 channels"),
        (lambda: grouped(x.float()), TypeError, "x has type torch.float32, and the weights torch.float64"),
        (lambda: grouped(x.to("meta")), TypeError, "x is on the device meta, and the weights on cpu"), (lambda: grouped(x, draw(3, 4, 16)), ValueError, "context has 3 batch entries"),
        (lambda: grouped(x, x, cache=grouped.cache(2, 8)), ValueError, "a cache is for self-attention"),
        (lambda: grouped(x, key_padding_mask=torch.ones(2, 3, dtype=torch.bool)), ValueError, "key_padding_mask has shape"),
        (lambda: grouped(x, key_padding_mask=torch.ones(2, 4)), TypeError, "key_padding_mask has type torch.float32"),
        (lambda: grouped(x, positions=torch.arange(3)), ValueError, r"positions has shape \[3\]; it must be \[4\] or \[2, 4\]"),
        (lambda: latent(x, lengths=torch.tensor([1, 1])), ValueError, "lengths is set, which is for a call with a cache"),
        (lambda: grouped(x, positions=[0, 1, 2, 3]), TypeError, "positions is of type list"), (lambda: grouped(x, lengths=[4, 4]), TypeError, "lengths is of type list"),
        (lambda: grouped(x, lengths=torch.tensor([4])), ValueError, r"lengths has shape \[1\]; it must be \[2\]"),
        (lambda: grouped(x, key_padding_mask=[[False] * 4] * 2), TypeError, "key_padding_mask is of type list"),
        (lambda: grouped(x, attn_mask=x.numpy()), TypeError, "attn_mask is of type ndarray"),
        (lambda: grouped(x, attn_mask=torch.ones(4, 4, dtype=torch.int64)), TypeError, "attn_mask has type torch.int64"),
        (lambda: grouped(x, attn_mask=torch.ones(3, 4)), ValueError, r"attn_mask has shape \[3, 4\]; it must be \[2, 4, 4, 4\], or what broadcasts to it"),
        (lambda: grouped(x, attn_mask=torch.ones(1, 2, 4, 4, 4)), ValueError, "attn_mask has shape"), (lambda: grouped(x, cache="a"), TypeError, "cache is of type str"),
        (lambda: latent(x, cache=7), TypeError, "cache is of type int"), (lambda: latent(x[..., :3]), ValueError, "x has shape"), (lambda: nn.GroupedQueryAttention(16, 4, 3), ValueError, r"num_heads \(4\) is not a multiple of num_kv_heads \(3\)"),
        (lambda: nn.LatentAttention(16, 2, kv_lora_rank=4, qk_nope_head_dim=4, qk_rope_head_dim=3), ValueError, r"dim_rotary \(3\)"),
        (lambda: nn.GroupedQueryAttention(16, 4, 2, kdim=5)(torch.rand(1, 2, 16)), ValueError, "context is missing"),
    ):
        with pytest.raises(kind, match=text):
            call()
