# SPDX-License-Identifier: MIT
"""libattn.torch.nn.LinearAttention against the recurrence of its definition, token by token, in plain PyTorch."""
import pytest

torch = pytest.importorskip("torch", minversion="2.10")

import libattn.torch.nn as nn  # noqa: E402
from torch_modules import draw, gradients, heads, same  # noqa: E402

F64 = torch.float64
THREADS = 1  # the tensors are small
CASES = {
    "plain": {}, "groups": {"num_kv_heads": 2, "bias": True}, "all": {"causal": False, "features": "relu", "denominator": "add"}, "performer": {"features": "favor", "num_features": 5},
    "fourier": {"features": "fourier", "num_features": 3, "denominator": "none"}, "retention": {"features": "identity", "denominator": "none", "decay": "fixed", "norm": True},
    "gated": {"features": "identity", "denominator": "none", "decay": "channel", "norm": True}, "gated heads": {"decay": "head", "num_kv_heads": 2},
    "delta": {"features": "identity", "delta": True}, "gated delta": {"features": "identity", "delta": True, "decay": "head", "norm": True, "num_kv_heads": 1},
}


def made(name, dtype=F64):
    torch.manual_seed(0)
    module = nn.LinearAttention(16, 4, dtype=dtype, **CASES[name])
    for p in module.parameters():
        torch.nn.init.normal_(p, std=0.4)
    return module


def mapped(module, x):
    if module.feature_matrix is None:
        return {"elu1": lambda: x.clamp(min=0) + x.clamp(max=0).exp(), "identity": lambda: x, "relu": lambda: x.relu()}[module.features]()
    x, rows = x * x.shape[-1] ** -0.25, len(module.feature_matrix)
    projected = x @ module.feature_matrix.T
    if module.features == "favor":
        return (projected - x.square().sum(-1, keepdim=True) / 2).exp() / rows**0.5
    return torch.cat([projected.cos(), projected.sin()], -1) / rows**0.5


def define(module, x):
    q, k, v = heads(module.q_proj(x), 4), *(heads(f(x), module.num_kv_heads) for f in (module.k_proj, module.v_proj))
    if module.delta:
        q, k = q / q.norm(dim=-1, keepdim=True), k / k.norm(dim=-1, keepdim=True)
    q, k = mapped(module, q), mapped(module, k)
    keep = torch.ones(1, 1, x.shape[1], 1, dtype=F64)
    if module.decay == "fixed":
        keep = (1 - 2.0 ** (-5 - torch.arange(4.0, dtype=F64))).view(1, 4, 1, 1).expand(1, 4, x.shape[1], 1)
    elif module.decay:
        keep = heads(module.decay_proj(x), module.num_kv_heads).sigmoid()
    beta = module.b_proj(x).sigmoid().transpose(1, 2)[..., None, None] if module.delta else None
    group = 4 // module.num_kv_heads
    scale = module.head_dim**-0.5 if module.denominator == "none" else 1.0

    def read(state, total, t):
        o = scale * torch.einsum("bhf,bhfv->bhv", q[:, :, t], state.repeat_interleave(group, 1))
        n = scale * (q[:, :, t] * total.repeat_interleave(group, 1)).sum(-1, keepdim=True)
        return o if module.denominator == "none" else o / (n + 1e-6 if module.denominator == "add" else n.clamp(min=1e-6))

    state, total, rows = x.new_zeros(*k.shape[:2], k.shape[3], v.shape[3]), x.new_zeros(*k.shape[:2], k.shape[3]), []
    for t in range(x.shape[1]):
        state, total = keep[:, :, t, :, None] * state, keep[:, :, t] * total
        key, value = k[:, :, t, :, None], v[:, :, t, None]
        state = state + key @ (value if beta is None else beta[:, :, t] * (value - key.transpose(-1, -2) @ state))
        total = total + k[:, :, t]
        rows.append(read(state, total, t) if module.causal else None)
    if not module.causal:
        rows = [read(state, total, t) for t in range(x.shape[1])]
    o = torch.stack(rows, 2)
    if module.o_norm is not None:
        o = o * (o.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * module.o_norm.weight
    return module.o_proj(o.transpose(1, 2).flatten(2)), state


@pytest.mark.parametrize("name", CASES)
def test_results_and_gradients(name):
    module, x = made(name), draw(2, 6, 16).requires_grad_()
    found, last = module(x, return_state=True)
    want, state = define(module, x)
    same(found, want)
    same(last.state, state)
    same(gradients(found, module, [x]), gradients(want, module, [x]))


@pytest.mark.parametrize("name", [name for name in CASES if name != "all"])
def test_token_by_token(name):
    module, x = made(name), draw(2, 6, 16)
    whole, last = module(x, return_state=True)
    for size in (1, 4):
        state, parts = None, []
        for at in range(0, 6, size):
            y, state = module(x[:, at:at + size], state, return_state=True)
            parts.append(y)
        same(torch.cat(parts, 1), whole)
        same(state.state, last.state)
    short = module(x, lengths=torch.tensor([6, 3]))
    same(short[1, :3], module(x[1:, :3])[0])


def test_compiled_and_other_types():
    torch._dynamo.reset()
    module, x = made("gated delta"), draw(2, 6, 16).requires_grad_()
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    found, want = compiled(x), module(x)
    same(found, want)
    same(gradients(found, module, [x]), gradients(want, module, [x]))
    for name in ("gated delta", "performer"):
        module, small = made(name).float(), x.detach().float()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = module(small)
        assert y.dtype == torch.bfloat16
        torch.testing.assert_close(y.float(), module(small), rtol=0, atol=0.1 * float(module(small).detach().abs().max()))


def test_state_dict():
    for name in CASES:
        one, two = made(name), nn.LinearAttention(16, 4, dtype=F64, seed=9, **CASES[name])
        two.load_state_dict(one.state_dict())
        x = draw(1, 4, 16)
        assert torch.equal(one(x), two(x))
    assert sorted(made("gated delta").state_dict()) == [
        "b_proj.weight", "decay_proj.bias", "decay_proj.weight", "k_proj.weight", "o_norm.weight", "o_proj.weight", "q_proj.weight", "v_proj.weight"]


@pytest.mark.parametrize("options, kind, text", [
    ({"decay": "slow"}, ValueError, "decay is 'slow'; known"), ({"causal": False, "delta": True}, NotImplementedError, "delta is set, which needs causal"),
    ({"features": "favor"}, ValueError, "num_features is None, and features 'favor'"), ({"num_features": 3}, ValueError, "num_features is 3, and features 'elu1'"),
    ({"num_kv_heads": 3}, ValueError, r"num_heads \(4\) is not a multiple of num_kv_heads \(3\)"),
])
def test_sentences_of_the_constructor(options, kind, text):
    with pytest.raises(kind, match=text):
        nn.LinearAttention(16, 4, **options)


def test_sentences():
    module = made("plain")
    for x, kind, text in (
        (draw(6, 16), ValueError, r"x has shape \[6, 16\]"), (draw(1, 6, 16, dtype=torch.float32), TypeError, "x has type torch.float32"),
        (draw(1, 6, 16).to("meta"), TypeError, "x is on the device meta"),
    ):
        with pytest.raises(kind, match=text):
            module(x)
    with pytest.raises(ValueError, match="initial_state has shape"):
        module(draw(1, 6, 16), nn.State(draw(2, 4, 4, 4), draw(2, 4, 4)))
