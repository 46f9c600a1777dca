# SPDX-License-Identifier: MIT
"""libattn.torch.attention: results against the definition, and derivatives in every mode."""
import math
import threading

import numpy as np
import pytest

torch = pytest.importorskip("torch", minversion="2.10")

import libattn.torch  # noqa: E402
from problems import nothing_leaks  # noqa: E402
from torch_problems import check_forward, check_gradients, qkv, reference, tensors  # noqa: E402

attention = libattn.torch.attention
func = torch.func
OPS = torch.ops.libattn
F64 = torch.float64
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
SHAPES = {
    "plain": {}, "groups": {"heads": 4, "heads_kv": 2}, "cross": {"len_q": 5, "len_kv": 23}, "values": {"dim": 8, "dim_v": 24}, "one": {"len_q": 1, "len_kv": 40},
    "long": {"batch": 1, "heads": 2, "len_q": 70, "len_kv": 150, "dim": 40},
}


def options_of(name, shape):
    batch, heads, len_q = 2 if shape != "long" else 1, 2 if shape == "long" else 4, SHAPES[shape].get("len_q", 8)
    len_kv = SHAPES[shape].get("len_kv", len_q)
    generator = torch.Generator().manual_seed(7)

    def random(*size):
        return torch.rand(size, generator=generator, dtype=F64).float()

    return {
        "none": {}, "causal": {"causal": True}, "top-left": {"causal": "top-left"}, "window": {"window": (3, 2)}, "left": {"causal": True, "window": (4, None)},
        "mask": {"mask": random(batch, 1, len_q, len_kv) < 0.7}, "mask2": {"mask": random(len_q, len_kv) < 0.7}, "bias": {"bias": random(1, heads, len_q, len_kv)},
        "bias3": {"bias": random(heads, 1, len_kv)}, "scale": {"scale": 0.3}, "scales": {"scale": random(heads)}, "softcap": {"softcap": 2.0},
        "sink": {"sink": random(heads)}, "alibi": {"alibi_slopes": random(heads)}, "dropout": {"dropout": 0.3, "seed": 5},
        "lengths": {"lengths_kv": torch.tensor([len_kv, 3][:batch]), "lengths_q": torch.tensor([len_q, 1][:batch])},
        "offset": {"causal": True, "offset_q": torch.tensor([1, 2][:batch])}, "chunk": {"chunk": 5},
        "blocks": {"block_mask": random(-(-len_q // 2), -(-len_kv // 3)) < 0.6, "block_size": (2, 3)},
    }[name]


OPTIONS = ["none", "causal", "top-left", "window", "left", "mask", "mask2", "bias", "bias3", "scale", "scales", "softcap", "sink", "alibi", "dropout", "lengths",
           "offset", "chunk", "blocks"]


def defined(options):
    """For the definition, which names two options otherwise."""
    options = dict(options)
    if "block_size" in options:
        options["block_q"], options["block_kv"] = options.pop("block_size")
    return options


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", OPTIONS)
def test_results_are_those_of_the_definition(name, shape):
    for dtype in DTYPES:
        q, k, v = qkv(**SHAPES[shape], dtype=dtype)
        options = options_of(name, shape)
        results = attention(q, k, v, return_lse=True, return_weights=True, **options)
        assert [x.dtype for x in results] == [dtype] + 2 * [F64 if dtype == F64 else torch.float32]
        check_forward(results, q, k, v, **defined(options))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", [name for name in OPTIONS if name not in ("softcap", "scales", "offset")])
def test_gradients_are_within_their_bounds(name, shape):
    for dtype in (torch.float32, F64):
        q, k, v = qkv(**SHAPES[shape], dtype=dtype, grad=True)
        options = options_of(name, shape)
        o = attention(q, k, v, **options)
        grad_o, = tensors(o.shape, dtype=dtype, seed=3)
        check_gradients(torch.autograd.grad(o, (q, k, v), grad_o), grad_o, q, k, v, **defined(options))


@pytest.mark.parametrize("layout, order", [("bshd", (0, 2, 1, 3)), ("thd", None)])
def test_layouts(layout, order):
    q, k, v = qkv(heads_kv=2)
    want = attention(q, k, v, causal=True, return_lse=True)
    if layout == "bshd":
        o, lse = attention(*(x.transpose(1, 2).contiguous() for x in (q, k, v)), causal=True, layout=layout, return_lse=True)
        assert torch.equal(o.transpose(1, 2), want[0]) and torch.equal(lse.transpose(1, 2), want[1])
        return
    starts = torch.tensor([0, 8, 16])
    packed = [x.transpose(1, 2).flatten(0, 1) for x in (q, k, v)]
    o, lse = attention(*packed, causal=True, layout=layout, cu_seqlens_q=starts, cu_seqlens_kv=starts.int(), return_lse=True)
    assert torch.equal(o, want[0].transpose(1, 2).flatten(0, 1)) and torch.equal(lse, want[1].transpose(1, 2).flatten(0, 1))


def test_fewer_axes_and_strides():
    q, k, v = qkv()
    whole = attention(q, k, v)
    assert torch.equal(attention(q[0], k[0], v[0]), whole[0]) and torch.equal(attention(q[0, 0], k[0, 0], v[0, 0]), whole[0, 0])
    wide = torch.zeros(2, 8, 4, 3, 16)
    for i, x in enumerate((q, k, v)):
        wide[:, :, :, i] = x.transpose(1, 2)
    strided = [wide[:, :, :, i].transpose(1, 2) for i in range(3)]
    found = attention(*strided)
    assert torch.equal(found, whole) and found.transpose(1, 2).is_contiguous()
    across = [x.transpose(-1, -2).contiguous().transpose(-1, -2) for x in (q, k, v)]  # the last axis is not contiguous
    assert torch.equal(attention(*across), whole)
    check_forward(attention(q, k[:1].expand(2, -1, -1, -1), v), q, k[:1].expand(2, -1, -1, -1), v)


def test_pages():
    q, k, v = qkv(len_q=1, len_kv=12)
    pages = [torch.stack([x[b, :, 4 * p:4 * p + 4] for b in range(2) for p in range(3)]) for x in (k, v)]
    table, lengths = torch.arange(6).view(2, 3), torch.tensor([12, 7])
    found = attention(q, *pages, page_table=table, lengths_kv=lengths, causal=True)
    check_forward(found, q, k, v, lengths_kv=lengths, causal=True)


def test_out():
    q, k, v = qkv()
    out = torch.zeros_like(q)
    assert attention(q, k, v, out=out) is out and torch.equal(out, attention(q, k, v))
    with pytest.raises(ValueError, match="out is set"):
        attention(q.requires_grad_(), k, v, out=out)


def test_empty():
    for shape in ({"batch": 0}, {"len_q": 0, "len_kv": 3}, {"len_q": 3, "len_kv": 0}):
        q, k, v = qkv(**{"batch": 2, **shape}) if shape.get("batch", 1) else tensors((0, 4, 8, 16), (0, 4, 8, 16), (0, 4, 8, 16))
        q.requires_grad_()
        o = attention(q, k, v)
        assert o.shape == q.shape and not o.any()
        assert not torch.autograd.grad(o.sum(), q)[0].any()


# ---- derivatives -------------------------------------------------------------------------------------------------------------------

SMALL = {"batch": 1, "heads": 2, "len_q": 3, "len_kv": 4, "dim": 3, "dtype": F64, "grad": True}


@pytest.mark.parametrize("more", [{}, {"causal": True, "window": (1, 0)}, {"softcap": 1.5}, {"dropout": 0.4, "seed": 3}, {"lengths_kv": torch.tensor([2])}])
def test_gradcheck_in_every_mode(more):
    q, k, v = qkv(**SMALL, heads_kv=1)
    bias, = tensors((2, 3, 4), dtype=F64, grad=True, seed=4)

    def call(q, k, v, bias):
        return attention(q, k, v, bias=bias, return_lse=True, **more)

    assert torch.autograd.gradcheck(call, (q, k, v, bias), check_forward_ad=True, check_batched_grad=True, check_batched_forward_grad=True)
    assert torch.autograd.gradgradcheck(call, (q, k, v, bias), check_fwd_over_rev=True, check_rev_over_rev=True)


PARAMETERS = {"sink": (2,), "alibi_slopes": (2,), "slopes of entries": (1, 2), "scale": (2,), "bias_table": (2, 8)}
WITH = [{}, {"causal": True, "lengths_q": torch.tensor([2]), "lengths_kv": torch.tensor([3])}, {"softcap": 1.5, "window": (1, 1)}, {"layout": "bshd"}, {"layout": "thd"}]


@pytest.mark.parametrize("more", WITH, ids=["plain", "lengths", "softcap", "bshd", "thd"])
@pytest.mark.parametrize("name", PARAMETERS)
def test_gradients_of_parameters(name, more):
    q, k, v = qkv(**SMALL)
    x = torch.rand(PARAMETERS[name], dtype=F64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    if "layout" in more:
        q, k, v = (y.detach().transpose(1, 2).contiguous().requires_grad_() for y in (q, k, v))
    if more.get("layout") == "thd":
        q, k, v = (y.detach()[0].requires_grad_() for y in (q, k, v))
        more = {**more, "cu_seqlens_q": torch.tensor([0, 1, 3]), "cu_seqlens_kv": torch.tensor([0, 2, 4])}
        x = (x.repeat(2, 1) if name == "slopes of entries" else x).detach().requires_grad_()
    key = "alibi_slopes" if name == "slopes of entries" else name

    def call(q, k, v, x):
        o, lse = attention(q, k, v, return_lse=True, **{key: x}, **more)
        return o, lse.masked_fill(lse == -math.inf, 0)

    inputs = (q, k, v, x)
    assert torch.autograd.gradcheck(call, inputs, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(call, inputs, check_fwd_over_rev=True, fast_mode=True)


def test_second_derivatives_of_parameters_together():
    q, k, v = qkv(**SMALL, heads_kv=1)
    bias, = tensors((2, 3, 4), dtype=F64, grad=True, seed=4)
    parameters = [torch.rand(2, dtype=F64, generator=torch.Generator().manual_seed(i)).requires_grad_() for i in range(3)]

    def call(q, k, v, bias, sink, slopes, scale):
        return attention(q, k, v, bias=bias, sink=sink, alibi_slopes=slopes, scale=scale, dropout=0.3, seed=5, causal=True, return_lse=True)

    inputs = (q, k, v, bias, *parameters)
    assert torch.autograd.gradgradcheck(call, inputs, fast_mode=True)
    loss = lambda sink: call(q, k, v, bias, sink, *parameters[1:])[0].square().sum()  # noqa: E731
    found = func.jacrev(func.grad(loss))(parameters[0].detach())
    torch.testing.assert_close(found, torch.autograd.functional.hessian(loss, parameters[0].detach()), rtol=1e-9, atol=1e-12)


def test_third_derivatives_are_rejected():
    q, k, v = qkv(**SMALL)
    one, = torch.autograd.grad(attention(q, k, v).sum(), q, create_graph=True)
    two, = torch.autograd.grad(one.square().sum(), q, create_graph=True)
    with pytest.raises(NotImplementedError, match="third"):
        torch.autograd.grad(two.sum(), q)


def test_a_bias_that_was_expanded():
    q, k, v = qkv(dtype=F64)
    row = tensors((4, 1, 8), dtype=F64, seed=9)[0].requires_grad_()
    found = torch.autograd.grad(attention(q, k, v, bias=row.expand(2, 4, 8, 8)).square().sum(), row)[0]
    want = torch.autograd.grad(reference(q, k, v, bias=row).square().sum(), row)[0]
    torch.testing.assert_close(found, want, rtol=0, atol=1e-12)


B = tensors((2, 1, 8, 8), (3, 4, 8, 8), dtype=F64, seed=11)
TRANSFORMS = {
    "grad": lambda s, q, k, v: func.grad(lambda a: s(a, k, v, causal=True).pow(2).sum())(q),
    "jvp": lambda s, q, k, v: func.jvp(lambda a, b: s(a, b, v, causal=True), (q, k), (k, q)),
    "vmap": lambda s, q, k, v: func.vmap(lambda a: s(a, k, v))(torch.stack([q, k])),
    "vmap of three axes": lambda s, q, k, v: func.vmap(lambda *a: s(*a, causal=True))(q, k, v),
    "vmap of two axes": lambda s, q, k, v: func.vmap(func.vmap(lambda *a: s(*a, causal=True)))(q, k, v),
    "vmap in_dims": lambda s, q, k, v: func.vmap(lambda a, b, c: s(a, b, c), in_dims=(1, 1, None))(q, k, v[:, 0]),
    "vmap of a bias": lambda s, q, k, v: func.vmap(lambda b: s(q, k, v, bias=b))(B[1]),
    "vmap of a mask": lambda s, q, k, v: func.vmap(lambda b: s(q, k, v, mask=b > 0))(B[1]),
    "vmap with a bias": lambda s, q, k, v: func.vmap(lambda a: s(a, k, v, bias=B[0]))(torch.stack([q, k])),
    "vmap(grad) of a bias": lambda s, q, k, v: func.vmap(func.grad(lambda b: s(q, k, v, bias=b).pow(2).sum()))(B[1]),
    "vmap(grad)": lambda s, q, k, v: func.vmap(func.grad(lambda a: s(a, k, v).pow(2).sum()))(torch.stack([q, k])),
    "vmap(jvp)": lambda s, q, k, v: func.vmap(lambda a: func.jvp(lambda x: s(x, k, v), (a,), (q,))[1])(torch.stack([q, k])),
    "jacrev": lambda s, q, k, v: func.jacrev(lambda a: s(a, k[:1, :1], v[:1, :1]).sum((0, 1, 3)))(q[:1, :1]),
    "jacfwd": lambda s, q, k, v: func.jacfwd(lambda a: s(a, k[:1, :1], v[:1, :1]).sum((0, 1, 3)))(q[:1, :1]),
    "hessian": lambda s, q, k, v: func.hessian(lambda a: s(a, k[:1, :1], v[:1, :1]).pow(2).sum())(q[:1, :1, :2]),
    "jvp(grad)": lambda s, q, k, v: func.jvp(func.grad(lambda a: s(a, k, v, bias=B[0]).pow(2).sum()), (q,), (k,)),
    "grad(jvp)": lambda s, q, k, v: func.grad(lambda a: func.jvp(lambda x: s(x, k, v), (a,), (k,))[1].pow(2).sum())(q),
    "grad(jvp) of a bias": lambda s, q, k, v: func.grad(lambda b: func.jvp(lambda x: s(q, k, v, bias=x), (b,), (b.sin(),))[1].pow(2).sum())(B[0]),
}


def operator(q, k, v, causal=False, bias=None, mask=None):
    """The operator itself."""
    return OPS.attention(q, k, v, int(causal), 1, None, mask, bias)[0]


@pytest.mark.parametrize("way", [attention, operator], ids=["attention", "operator"])
@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms(name, way):
    q, k, v = qkv(dtype=F64)
    found, want = (TRANSFORMS[name](s, q, k, v) for s in (way, reference))
    # Sums of a few hundred terms of at most 100 each, in double.
    torch.testing.assert_close(found, want, rtol=0, atol=1e-11)


@pytest.mark.parametrize("way", [attention, operator], ids=["attention", "operator"])
def test_forward_mode_of_forward_mode_is_rejected(way):
    q, k, v = qkv(dtype=F64)

    def tangent(a):
        return func.jvp(lambda x: way(x, k, v), (a,), (k,))[1]

    with pytest.raises(NotImplementedError, match="forward mode of forward mode"):
        func.jvp(tangent, (q,), (q,))


@pytest.mark.parametrize("name", ["grad", "jvp", "vmap", "vmap of a bias", "jvp(grad)", "vmap(grad)"])
def test_transforms_within_compile(name):
    torch._dynamo.reset()
    q, k, v = qkv(dtype=F64)
    found = torch.compile(lambda *a: TRANSFORMS[name](attention, *a), fullgraph=True, backend="aot_eager")(q, k, v)
    torch.testing.assert_close(found, TRANSFORMS[name](reference, q, k, v), rtol=0, atol=1e-11)


def test_vmap_with_dropout():
    q, k, v = qkv()
    both = torch.stack([q, q])
    same = func.vmap(lambda a: attention(a, k, v, dropout=0.5), randomness="same")(both)
    other = func.vmap(lambda a: attention(a, k, v, dropout=0.5), randomness="different")(both)
    assert torch.equal(same[0], same[1]) and not torch.equal(other[0], other[1])
    given = func.vmap(lambda a: attention(a, k, v, dropout=0.5, seed=3))(both)
    assert torch.equal(given[0], attention(q, k, v, dropout=0.5, seed=3)) and torch.equal(given[0], given[1])


def test_the_seed_comes_from_torch():
    q, k, v = qkv()
    torch.manual_seed(1)
    one, two = (attention(q, k, v, dropout=0.5) for _ in range(2))
    torch.manual_seed(1)
    assert torch.equal(attention(q, k, v, dropout=0.5), one) and not torch.equal(one, two)
    for seed in (2**64 - 1, 2**63, 0):
        check_forward(attention(q, k, v, dropout=0.5, seed=seed), q, k, v, dropout=0.5, seed=seed)


def test_checkpoint_draws_the_same_dropout():
    from torch.utils.checkpoint import checkpoint

    q, k, v = qkv(grad=True)
    gradients = []
    for way in (lambda f: f(q, k, v), lambda f: checkpoint(f, q, k, v, use_reentrant=False)):
        torch.manual_seed(3)
        gradients.append(torch.autograd.grad(way(lambda *a: attention(*a, dropout=0.5)).square().sum(), (q, k, v)))
    assert all(torch.equal(*pair) for pair in zip(*gradients, strict=True))


# ---- the rest of PyTorch -------------------------------------------------------------------------------------------------------------


def _samples():
    q, k, v = qkv(dtype=F64)
    o, lse, _ = OPS.attention(q, k, v, 0, 1, None, None, B[0])
    return {
        "forward": (OPS.attention, (q, k, v)), "strides": (OPS.attention, (q.transpose(1, 2).contiguous().transpose(1, 2), k, v, 1)),
        "bias": (OPS.attention, (q, k, v, 0, 1, None, None, B[0])), "backward": (OPS.attention_backward, (o, None, q, k, v, o, lse, 0)),
        "backward of a bias": (OPS.attention_backward, (o, lse, q, k, v, o, lse, 1, 0, 1, None, None, B[0])),
        "tangent": (OPS.attention_jvp, (q, k, None, None, q, k, v, o, lse, 0, 1, None, None, B[0])),
        "double": (OPS.attention_double_backward, (o, None, q, k, v, None, q, k, v, o, lse, 0, 1, None, None, B[0])),
    }


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", ["forward", "strides", "bias", "backward", "backward of a bias", "tangent", "double"])
def test_opcheck(name, grad):
    operator, arguments = _samples()[name]
    if grad and name == "double":
        return  # has no derivatives
    arguments = tuple(x.clone().requires_grad_() if grad and isinstance(x, torch.Tensor) else x for x in arguments)
    assert set(torch.library.opcheck(operator.default, arguments).values()) == {"SUCCESS"}


# What is around attention: elementwise work is kernels that Inductor compiles for seconds, products are calls of PyTorch's own.
TURN = tensors((16, 16), dtype=F64, seed=12)[0] / 4
AROUND = {"static": torch.sin, "dynamic": lambda x: x @ TURN}


@pytest.mark.parametrize("sizes", AROUND)
def test_compile(sizes):
    torch._dynamo.reset()
    q, k, v = qkv(dtype=F64, grad=True)

    def call(s, q, k, v, bias):
        return AROUND[sizes](s(AROUND[sizes](q), k, v, causal=True, bias=bias))

    dynamic = sizes == "dynamic"
    compiled = torch.compile(lambda *a: call(attention, *a), fullgraph=True, dynamic=dynamic)
    for batch in (2, 1) if dynamic else (2,):
        part = [x.detach()[:batch].requires_grad_() for x in (q, k, v)]
        bias = B[0][:batch].clone().requires_grad_()
        found = torch.autograd.grad(compiled(*part, bias).sum(), (*part, bias))
        want = torch.autograd.grad(call(reference, *part, bias).sum(), (*part, bias))
        torch.testing.assert_close(found, want, rtol=0, atol=1e-12)
    torch.testing.assert_close(compiled(q.detach(), k.detach(), v.detach(), B[0]), call(attention, q, k, v, B[0]).detach(), rtol=0, atol=1e-14)


def test_compile_with_dropout():
    torch._dynamo.reset()
    q, k, v = qkv(grad=True)
    compiled = torch.compile(lambda *a: attention(*a, dropout=0.5, return_weights=True), fullgraph=True)
    o, weights = compiled(q, k, v)
    torch.autograd.grad(o.sum(), (q, k, v))
    assert not torch.equal(o, attention(q, k, v)) and torch.allclose(weights.sum(-1), torch.ones(()))


def test_export():
    class Model(torch.nn.Module):
        def forward(self, q, k, v):
            return attention(q, k, v, causal=True, window=(3, 0))

    q, k, v = qkv()
    for strict in (False, True):
        program = torch.export.export(Model(), (q, k, v), strict=strict, dynamic_shapes={name: {0: torch.export.Dim("batch")} for name in "qkv"})
        assert any(str(node.target) == "libattn.attention.default" for node in program.graph.nodes)
        assert torch.equal(program.module()(q[:1], k[:1], v[:1]), Model()(q[:1], k[:1], v[:1]))


def test_autocast():
    q, k, v = qkv(grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        o = attention(q, k, v)
    assert o.dtype == torch.bfloat16 and torch.equal(o, attention(*(x.bfloat16() for x in (q, k, v))))
    assert torch.autograd.grad(o.sum(), q)[0].dtype == torch.float32


def test_meta_tensors():
    q, k, v = (x.to("meta") for x in qkv(heads_kv=2, dim_v=24))
    o, lse, weights = attention(q, k, v, return_lse=True, return_weights=True)
    assert (o.shape, lse.shape, weights.shape) == ((2, 4, 8, 24), (2, 4, 8), (2, 4, 8, 8)) and o.is_meta


def test_threads():
    q, k, v = qkv(len_q=64)
    want = attention(q, k, v)
    found = [None] * 8

    def work(i):
        found[i] = all(torch.equal(attention(q, k, v, causal=i % 2 == 1), attention(q, k, v, causal=i % 2 == 1)) for _ in range(20))

    workers = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert all(found)
    before = torch.get_num_threads()
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            assert torch.equal(attention(q, k, v), want)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(attention(q, k, v, threads=1), want)


def in_a_worker(i):
    q, k, v = qkv()
    return bool(torch.equal(attention(q, k, v), attention(q, k, v))), attention(q, k, v).sum().item()


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        return in_a_worker(i)[1]


def test_workers_of_a_data_loader():
    want = in_a_worker(0)[1]  # the parent has computed before it forks
    loader = torch.utils.data.DataLoader(Numbers(), num_workers=2, timeout=120)
    assert all(np.float32(x.item()) == np.float32(want) for x in loader)


Q, K, V = qkv()
WRONG = {
    "k is on the device meta": lambda: attention(Q, K.to("meta"), V),
    "q is of type ndarray": lambda: attention(Q.numpy(), K, V),
    "v has the layout torch.sparse_coo": lambda: attention(Q, K, V.to_sparse()),
    "k has the shape [2, 4, 8, 3]; it must be [2, 4, 8, 16]": lambda: attention(Q, K[..., :3], V),
    "v has the shape [2, 4, 7, 16]; it must be [2, 4, 8, 16]": lambda: attention(Q, K, V[:, :, :7]),
    "v has the shape [2, 3, 8, 16]; it must be [2, 4, 8, 16]": lambda: attention(Q, K, V[:, :3]),
    "k has the shape [1, 4, 8, 16]; it must be [2, 4, 8, 16]": lambda: attention(Q, K[:1], V),
    "k has 3 axes; it must have 4": lambda: attention(Q, K[0], V),
    "q has more than 4 axes": lambda: attention(Q[None], K[None], V[None]),
    "heads_q (4) is not a multiple of heads_kv (3)": lambda: attention(Q, K[:, :3], V[:, :3]),
    "q.dtype is i32": lambda: attention(Q.int(), K, V),
    "q has a type that libattn does not know": lambda: attention(Q.to(torch.complex64), K, V),
    "v.dtype is f64": lambda: attention(Q, K, V.double()),
    "mask has type torch.float32": lambda: attention(Q, K, V, mask=Q),
    "mask has the shape [3, 3]; it must be [2, 4, 8, 8], or 1": lambda: attention(Q, K, V, mask=torch.ones(3, 3, dtype=torch.bool)),
    "bias has the shape [7]": lambda: attention(Q, K, V, bias=torch.ones(7)),
    "sink has the shape [3]; it must be [4]": lambda: attention(Q, K, V, sink=torch.ones(3)),
    "sink has 2 axes; it must have at most 1": lambda: attention(Q, K, V, sink=torch.ones(1, 4)),
    "lengths_kv": lambda: attention(Q, K, V, lengths_kv=torch.tensor([1, 9])),
    "causal is 'left'; known": lambda: attention(Q, K, V, causal="left"),
    "layout is 'sbhd'; known": lambda: attention(Q, K, V, layout="sbhd"),
    "window is (1, 2, 3)": lambda: attention(Q, K, V, window=(1, 2, 3)),
    "cu_seqlens_q is missing": lambda: attention(Q[0], K[0], V[0], layout="thd"),
    "cu_seqlens_q ends at 3, but there are 8 tokens": lambda: attention(*(x[0].transpose(0, 1) for x in (Q, K, V)), layout="thd",
                                                                      cu_seqlens_q=torch.tensor([0, 3]), cu_seqlens_kv=torch.tensor([0, 8])),
    "cu_seqlens_q[1] (9) is not between 0 and 8": lambda: attention(*(x[0].transpose(0, 1) for x in (Q, K, V)), layout="thd",
                                                                  cu_seqlens_q=torch.tensor([0, 9, 8]), cu_seqlens_kv=torch.tensor([0, 8, 8])),
    "cu_seqlens_q and cu_seqlens_kv need the layout thd": lambda: attention(Q, K, V, cu_seqlens_q=torch.tensor([0, 8]), cu_seqlens_kv=torch.tensor([0, 8])),
    "dropout": lambda: attention(Q, K, V, dropout=1.5),
    "softcap is -1": lambda: attention(Q, K, V, softcap=-1),
    "threads is 2000": lambda: attention(Q, K, V, threads=2000),
}


@pytest.mark.parametrize("sentence", WRONG)
def test_a_sentence_names_what_is_wrong(sentence):
    with pytest.raises((ValueError, TypeError, NotImplementedError)) as raised:
        WRONG[sentence]()
    assert sentence in str(raised.value)


def test_a_gradient_may_be_anything():
    q, k, v = qkv(grad=True)
    o = attention(q, k, v)
    expanded = torch.autograd.grad(o, (q, k, v), torch.ones(()).expand(o.shape), retain_graph=True)
    assert all(torch.equal(*pair) for pair in zip(expanded, torch.autograd.grad(o, (q, k, v), torch.ones(o.shape)), strict=True))
    lse = attention(q, k, v, return_lse=True)[1]
    only = torch.autograd.grad(lse.sum(), (q, k))
    s = q.detach().double().requires_grad_(), k.detach().double().requires_grad_()
    want = torch.autograd.grad((s[0] @ s[1].transpose(-1, -2) / 4).logsumexp(-1).sum(), s)
    torch.testing.assert_close([x.double() for x in only], list(want), rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["calls", "gradients", "errors"])
def test_no_memory_is_lost(kind):
    q, k, v = qkv(batch=1, heads=1, len_q=4, dim=8, grad=True)
    mask = torch.ones(4, 4, dtype=torch.bool)

    def once():
        if kind == "calls":
            attention(q.detach(), k, v.detach(), mask=mask)
        elif kind == "gradients":
            torch.autograd.grad(attention(q, k, v, causal=True).sum(), (q, k, v))
        else:
            with pytest.raises(ValueError):
                attention(q, k[..., :3], v)

    nothing_leaks(once, 4000)
