# SPDX-License-Identifier: MIT
"""libattn.torch.enable(): unchanged callers of PyTorch's attention, what they get, and what they are told."""
import pathlib
import subprocess
import sys
import threading

import pytest

torch = pytest.importorskip("torch", minversion="2.10")

import libattn.torch as lib  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch_problems import check_forward, check_gradients, qkv, reference, tensors  # noqa: E402

sdpa = F.scaled_dot_product_attention
PLAIN = "scaled_dot_product_attention"
DROPOUT, FEW, OTHER = (f"{PLAIN}: {kind}" for kind in ("dropout", "three axes or fewer", "other head sizes, gradients of masks and other cases"))
NESTED = f"{PLAIN}: nested tensors"
LAYERS = "nn.MultiheadAttention, nn.TransformerEncoderLayer"
CHOSEN = "sdpa_kernel(SDPBackend.MATH) was chosen"


@pytest.fixture(autouse=True)
def engaged():
    with lib.using():
        lib.stats(reset=True)
        yield
    assert not lib.enabled()


def used():
    """What libattn computed since the last call."""
    return lib.stats(reset=True)["libattn"]


def stock(call, *arguments, **options):
    """What PyTorch computes itself, in the type of the arguments."""
    lib.disable()
    try:
        return call(*arguments, **options)
    finally:
        lib.enable()


GENERATOR = torch.Generator().manual_seed(2)
BOOLEAN = torch.rand(2, 1, 8, 8, generator=GENERATOR) < 0.7
FLOAT = torch.randn(2, 4, 8, 8, generator=GENERATOR)
CASES = {
    "plain": ({}, {}, {}, PLAIN), "causal": ({}, {"is_causal": True}, {"causal": "top-left"}, PLAIN),
    "cross causal": ({"len_q": 5, "len_kv": 9}, {"is_causal": True}, {"causal": "top-left"}, PLAIN),
    "scale": ({}, {"scale": 0.4}, {"scale": 0.4}, PLAIN), "boolean": ({}, {"attn_mask": BOOLEAN}, {"mask": BOOLEAN}, PLAIN),
    "boolean of two axes": ({}, {"attn_mask": BOOLEAN[0, 0]}, {"mask": BOOLEAN[0, 0]}, PLAIN),
    "float": ({}, {"attn_mask": FLOAT}, {"bias": FLOAT}, PLAIN), "groups": ({"heads_kv": 2}, {"enable_gqa": True}, {}, PLAIN),
    "values": ({"dim_v": 24}, {}, {}, OTHER), "float of three axes": ({}, {"attn_mask": FLOAT[0]}, {"bias": FLOAT[0]}, OTHER),
    "groups, values": ({"heads_kv": 2, "dim_v": 24}, {"enable_gqa": True, "is_causal": True}, {"causal": "top-left"}, OTHER),
    "one query": ({"len_q": 1, "len_kv": 70}, {}, {}, PLAIN),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", CASES)
def test_scaled_dot_product_attention(name, dtype):
    shape, options, ours, kind = CASES[name]
    q, k, v = qkv(**shape, dtype=dtype)
    options = {n: x.to(dtype) if n == "attn_mask" and x.is_floating_point() else x for n, x in options.items()}
    ours = {n: options["attn_mask"] if n == "bias" else x for n, x in ours.items()}
    o = sdpa(q, k, v, **options)
    assert used() == {kind: 1}
    check_forward(o, q, k, v, **ours)
    assert o.stride() == stock(sdpa, q, k, v, **options).stride() or kind != PLAIN
    q, k, v = (x.requires_grad_() for x in (q, k, v))
    o = sdpa(q, k, v, **options)
    if dtype in (torch.float32, torch.float64):
        grad_o, = tensors(o.shape, dtype=dtype, seed=5)
        check_gradients(torch.autograd.grad(o, (q, k, v), grad_o), grad_o, q, k, v, **ours)
        assert used() == {kind: 1, **({f"{PLAIN} backward": 1} if kind == PLAIN else {})}


def test_three_axes_and_others():
    q, k, v = qkv(grad=True)
    for index in (0, (0, 0)):
        part = [x[index] for x in (q, k, v)]
        used()
        o = sdpa(*part)
        check_forward(o.view(1, -1, 8, 16), *(x.view(1, -1, 8, 16) for x in part))
        assert used() in ({FEW: 1}, {PLAIN: 1})  # (PyTorch 2.14 has given them the first axis already)
        torch.testing.assert_close(torch.autograd.grad(o.square().sum(), q), torch.autograd.grad(reference(*part).square().sum(), q), rtol=0, atol=1e-5)
    used()
    o = sdpa(*(x[None] for x in (q, k, v)))
    assert torch.equal(o[0], lib.attention(q, k, v)) and used() == {OTHER: 1}


def test_a_gradient_of_the_mask():
    q, k, v = qkv(dtype=torch.float64, grad=True)
    mask = FLOAT[:, :1].double().requires_grad_()
    found = torch.autograd.grad(sdpa(q, k, v, attn_mask=mask).square().sum(), (q, mask))
    assert used() == {OTHER: 1}
    torch.testing.assert_close(found, torch.autograd.grad(reference(q, k, v, bias=mask).square().sum(), (q, mask)), rtol=0, atol=1e-12)


def test_rows_that_see_nothing_are_zeros():
    q, k, v = qkv(grad=True)
    mask = torch.ones(8, 8, dtype=torch.bool)
    mask[3] = False
    o = sdpa(q, k, v, attn_mask=mask)
    assert not o[:, :, 3].any() and not torch.isnan(torch.autograd.grad(o.sum(), q)[0]).any()


def test_dropout():
    q, k, v = qkv(grad=True)
    torch.manual_seed(4)
    o = sdpa(q, k, v, dropout_p=0.3)
    torch.manual_seed(4)
    again = sdpa(q, k, v, dropout_p=0.3)
    assert torch.equal(o, again) and not torch.equal(o, sdpa(q, k, v, dropout_p=0.3)) and used() == {DROPOUT: 3}
    torch.manual_seed(4)
    seed = torch.randint(2**63 - 1, (), dtype=torch.int64).item()
    check_forward(o, q, k, v, dropout=0.3, seed=seed)
    grad_o, = tensors(o.shape, seed=5)
    check_gradients(torch.autograd.grad(o, (q, k, v), grad_o), grad_o, q, k, v, dropout=0.3, seed=seed)


def test_the_user_s_choice_of_math():
    q, k, v = qkv()
    with sdpa_kernel(SDPBackend.MATH):
        for part, options in (((q, k, v), {}), ((q[0], k[0], v[0]), {}), ((q, k, v), {"dropout_p": 0.5})):
            torch.manual_seed(1)
            found = sdpa(*part, **options)
            torch.manual_seed(1)
            assert torch.equal(found, stock(sdpa, *part, **options))
    assert lib.stats() == {"libattn": {}, "torch": {CHOSEN: 3}}


def test_what_is_left_to_torch_says_why():
    q, k, v = qkv()
    sdpa(q[:1], k, v)  # PyTorch lets batches broadcast
    assert lib.stats(reset=True) == {"libattn": {}, "torch": {"batches that broadcast": 1}}
    with pytest.raises(RuntimeError):  # as without libattn
        sdpa(q.int(), k.int(), v.int())
    assert lib.stats(reset=True)["torch"] == {"type torch.int32, torch.int32, torch.int32": 1}


# ---- nested tensors ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_an_encoder_makes_nested_tensors_of_padding(mode):
    torch.manual_seed(0)
    encoder = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), 3).eval()
    x, hidden = torch.randn(4, 8, 64), torch.arange(8) >= torch.tensor([[8], [5], [1], [0]])
    with mode():
        found = encoder(x, src_key_padding_mask=hidden)
        assert lib.stats(reset=True) == {"libattn": {f"{LAYERS}: nested tensors": 3}, "torch": {}}
        torch.testing.assert_close(found, stock(encoder, x, src_key_padding_mask=hidden), rtol=0, atol=6e-5)  # three layers as below
        with sdpa_kernel(SDPBackend.MATH):
            torch.testing.assert_close(encoder(x, src_key_padding_mask=hidden), stock(encoder, x, src_key_padding_mask=hidden), rtol=0, atol=0)
    assert lib.stats() == {"libattn": {}, "torch": {f"_native_multi_head_attention: nested tensors: {CHOSEN}": 3}}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_nested_tensors_of_multi_head_attention(dtype):
    torch.manual_seed(0)
    heads = torch.nn.MultiheadAttention(64, 4, batch_first=True, dtype=dtype).eval()
    x = torch.nested.nested_tensor([torch.randn(n, 64, dtype=dtype) for n in (5, 0, 8)])
    for options in ({"need_weights": False}, {}, {"average_attn_weights": False}):
        with torch.no_grad():
            o, weights = heads(x, x, x, **options)
            want, theirs = stock(heads, x, x, x, **options)
        assert used() == {f"{LAYERS}: nested tensors": 1} and (weights is None) == (theirs is None)
        bound = {"rtol": 0, "atol": 200 * torch.finfo(dtype).eps}  # of sums of 64 terms below 1, twice
        torch.testing.assert_close(o.to_padded_tensor(0.0), want.to_padded_tensor(0.0), **bound)
        if weights is not None:
            torch.testing.assert_close(weights, theirs, **bound)
    with torch.no_grad():
        call = (heads.embed_dim, heads.num_heads, heads.in_proj_weight, heads.in_proj_bias, heads.out_proj.weight, heads.out_proj.bias)
        torch._native_multi_head_attention(x, x, x.clone(), *call)
    assert lib.stats() == {"libattn": {}, "torch": {"_native_multi_head_attention: nested tensors: query, key and value are not the same": 1}}


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_nested_tensors_of_scaled_dot_product_attention(layout):
    each = [qkv(batch=1, len_q=n, len_kv=m, dtype=torch.float64, seed=n, grad=True) for n, m in ((3, 4), (6, 1), (1, 5))]
    if layout is torch.jagged:
        q, k, v = (torch.nested.as_nested_tensor([x[0].transpose(0, 1) for x in parts], layout=layout).transpose(1, 2) for parts in zip(*each, strict=True))
    else:
        q, k, v = (torch.nested.as_nested_tensor([x[0] for x in parts]) for parts in zip(*each, strict=True))
    o = sdpa(q, k, v, scale=0.3)
    assert used() == {NESTED: 1} and o.is_nested and o.layout is layout and (o.size(0), o.size(1)) == (q.size(0), q.size(1))
    assert o.is_contiguous() == stock(sdpa, q, k, v).is_contiguous()
    grads = torch.autograd.grad(sum(x.square().sum() for x in o.unbind()), [x for one in each for x in one])
    for i, (one, found) in enumerate(zip(each, o.unbind(), strict=True)):
        want = reference(*one, scale=0.3)
        torch.testing.assert_close(found, want[0], rtol=0, atol=1e-12)
        torch.testing.assert_close(grads[3 * i:3 * i + 3], torch.autograd.grad(want.square().sum(), one), rtol=0, atol=1e-12)
    with sdpa_kernel(SDPBackend.MATH):
        sdpa(q, k, v)
    assert lib.stats() == {"libattn": {}, "torch": {f"nested tensors: {CHOSEN}": 1}}


def test_torch_func():
    q, k, v = qkv(dtype=torch.float64)
    func = torch.func
    found = func.grad(lambda a: sdpa(a, k, v).square().sum())(q)
    assert used() == {PLAIN: 1, f"{PLAIN} backward": 1}
    torch.testing.assert_close(found, func.grad(lambda a: reference(a, k, v).square().sum())(q), rtol=0, atol=1e-12)
    found = func.vmap(lambda a: sdpa(a, k, v))(torch.stack([q, k]))
    torch.testing.assert_close(found, torch.stack([reference(q, k, v), reference(k, k, v)]), rtol=0, atol=1e-12)
    q, k, v = qkv(dtype=torch.float64, dim_v=24)  # (PyTorch's own kernel, which is called for equal head sizes, has no forward mode)
    found = func.jvp(func.grad(lambda a: sdpa(a, k, v).square().sum()), (q,), (k,))
    torch.testing.assert_close(found, func.jvp(func.grad(lambda a: reference(a, k, v).square().sum()), (q,), (k,)), rtol=0, atol=1e-12)


def test_autocast_and_inference():
    q, k, v = qkv()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        o = sdpa(q, k, v)
    assert o.dtype == torch.bfloat16 and used() == {PLAIN: 1}
    check_forward(o, *(x.bfloat16() for x in (q, k, v)))
    with torch.inference_mode():
        assert torch.equal(sdpa(q, k, v), lib.attention(q, k, v))


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", ["plain", "dropout", "three axes"])
def test_compile(name, dynamic):
    torch._dynamo.reset()
    q, k, v = qkv(grad=True)
    turn = torch.eye(16).flip(0)  # (Inductor compiles kernels of elementwise work, for seconds, and calls PyTorch's for products)
    call = {"plain": lambda q, k, v: sdpa(q.sin(), k, v, is_causal=True).sin(), "dropout": lambda q, k, v: sdpa(q @ turn, k, v, dropout_p=0.5) @ turn,
            "three axes": lambda q, k, v: sdpa(q[0] @ turn, k[0], v[0], is_causal=True) @ turn}[name]
    compiled = torch.compile(call, fullgraph=True, dynamic=dynamic, backend="aot_eager" if dynamic else "inductor")
    found = torch.autograd.grad(compiled(q, k, v).sum(), (q, k, v))
    assert used()
    if name != "dropout":
        torch.testing.assert_close(found, torch.autograd.grad(call(q, k, v).sum(), (q, k, v)), rtol=0, atol=1e-5)


def test_export_and_trace():
    class Model(torch.nn.Module):
        def forward(self, q, k, v):
            return sdpa(q, k, v, is_causal=True)

    q, k, v = qkv()
    want = sdpa(q, k, v, is_causal=True)
    program = torch.export.export(Model(), (q, k, v))
    for module in (program.module(), program.run_decompositions({}).module(), torch.jit.trace(Model(), (q, k, v))):
        used()
        assert torch.equal(module(q, k, v), want) and used() == {PLAIN: 1}


def _layers():
    torch.manual_seed(0)
    x = torch.randn(2, 8, 64)
    padding = torch.zeros(2, 8, dtype=torch.bool)
    padding[1, 5:] = True
    above = torch.ones(8, 8, dtype=torch.bool).triu(1)
    heads = torch.nn.MultiheadAttention(64, 4, batch_first=True).eval()
    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True).eval()
    return {
        "plain": lambda: heads(x, x, x, need_weights=False)[0], "weights": lambda: heads(x, x, x)[1],
        "weights of heads": lambda: heads(x, x, x, average_attn_weights=False)[1], "padding": lambda: heads(x, x, x, key_padding_mask=padding)[0],
        "mask": lambda: heads(x, x, x, attn_mask=above)[0], "both": lambda: heads(x, x, x, attn_mask=above, key_padding_mask=padding)[0],
        "layer": lambda: layer(x), "layer with padding": lambda: layer(x, src_key_padding_mask=padding)[~padding],
        "layer with mask": lambda: layer(x, src_mask=above),
    }


@pytest.mark.parametrize("name", _layers())
def test_fast_paths_of_layers(name):
    call = _layers()[name]
    with torch.no_grad():
        found = call()
        assert used() == {LAYERS: 1}
        # Three linear maps of 64 to 128 terms below 4, in float32, by PyTorch's order of sums and by ours.
        torch.testing.assert_close(found, stock(call), rtol=0, atol=2e-5)
        with sdpa_kernel(SDPBackend.MATH):
            torch.testing.assert_close(call(), stock(call), rtol=0, atol=0)


def test_training_of_a_layer():
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, dropout=0.1, batch_first=True).train()
    layer(torch.randn(2, 8, 64)).sum().backward()
    assert used() == {DROPOUT: 1}


def test_other_threads_have_it_too():
    q, k, v = qkv()
    worker = threading.Thread(target=lambda: sdpa(q, k, v))
    worker.start()
    worker.join()
    assert used() == {PLAIN: 1}


def test_calls_nest():
    q, k, v = qkv()
    lib.enable()
    lib.disable()
    assert lib.enabled()
    lib.disable()
    assert not lib.enabled()
    sdpa(q, k, v)
    assert used() == {}
    lib.disable()  # has no effect
    lib.enable()
    sdpa(q, k, v)
    assert used() == {PLAIN: 1}


def test_a_program_that_knows_nothing_of_it(tmp_path):
    script = tmp_path / "program.py"
    script.write_text("import sys, torch, torch.nn.functional as F\nx = torch.ones(1, 2, 3, 4)\nF.scaled_dot_product_attention(x, x, x)\n"
                      "import libattn.torch\nprint(sys.argv[1:], libattn.torch.stats()['libattn'])\n")
    done = subprocess.run([sys.executable, "-m", "libattn", "run", str(script), "a"], capture_output=True, text=True, check=False,
                          cwd=pathlib.Path(lib.__file__).parents[2])
    assert done.returncode == 0 and done.stderr == "", done.stderr  # and nothing is printed of kernels that were replaced
    assert done.stdout == f"['a'] {{'{PLAIN}': 1}}\n"
