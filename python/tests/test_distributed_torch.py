# SPDX-License-Identifier: MIT
"""libattn.distributed with tensors of PyTorch, over processes that torch.distributed joins with gloo."""
import importlib
import os
import time

import numpy as np
import pytest

torch = pytest.importorskip("torch")
if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("PyTorch has no gloo", allow_module_level=True)

import torch.distributed as dist  # noqa: E402
import torch.distributed.tensor  # noqa: E402

import gloo  # noqa: E402
import libattn.torch  # noqa: E402
from libattn import distributed  # noqa: E402

BATCH, HEADS, HEADS_KV, LEN, DIM, PART = 2, 4, 2, 70, 16, 8
LAYOUTS = ("contiguous", "zigzag", "striped")


def whole():
    generator = torch.Generator().manual_seed(3)
    shapes = [(BATCH, heads, LEN, DIM) for heads in (HEADS, HEADS_KV, HEADS_KV, HEADS)]
    return [torch.randn(shape, generator=generator) for shape in (*shapes, (BATCH, HEADS, LEN, LEN), (HEADS,), (HEADS,))]


STARTS = torch.tensor([0, 20, 23, 61, LEN])
CASES = {
    "full": {}, "causal": {"causal": True}, "window": {"window": (11, 4), "softcap": 8.0}, "dropout": {"dropout": 0.2, "seed": 5, "causal": True},
    "bias": {"bias": True, "causal": True}, "slopes": {"alibi_slopes": True, "sink": True, "causal": True},
    "packed": {"cu_seqlens_q": STARTS, "cu_seqlens_kv": STARTS, "causal": True}, "half": {"dtype": torch.bfloat16, "causal": True},
}


def call(case, layout="contiguous", way="auto", plain=False):
    """o, lse and gradients of the whole as bytes, on every rank; plain: of libattn.torch.attention, as tensors."""
    given = dict(CASES[case])
    packed, dtype = "cu_seqlens_q" in given, given.pop("dtype", torch.float32)
    axis = 0 if packed else 2
    q, k, v, grad, bias, slopes, sink = whole()
    q, k, v, grad = (x[0].swapaxes(0, 1).contiguous() if packed else x.to(dtype) for x in (q, k, v, grad))
    for name, x in (("bias", bias), ("alibi_slopes", slopes.abs() / 8), ("sink", sink)):
        if name in given:
            given[name] = x
    if plain:
        own, cut = [q, k, v], lambda x, axis: x.clone()
    else:
        def cut(x, axis):
            return distributed.shard(x, axis, layout=layout, part=PART)

        own = [cut(x, axis) for x in (q, k, v)]
        if "bias" in given:
            given["bias"] = cut(bias, 2)
    leaves = [x.clone().requires_grad_() for x in own]
    more = [name for name in ("bias", "alibi_slopes", "sink") if name in given]
    given.update({name: given[name].clone().requires_grad_() for name in more})
    if plain:
        o, lse = libattn.torch.attention(*leaves, return_lse=True, layout="thd" if packed else "bhsd", **given)
    else:
        o, lse = distributed.attention(*leaves, return_lse=True, layout=layout, part=PART, way=way, axes="thd" if packed else "bhsd", **given)
    ((o * cut(grad, axis)).sum() + (lse * cut(grad, axis)[..., 0]).sum()).backward()
    found = [o.detach(), lse.detach(), *(x.grad for x in leaves), *(given[name].grad for name in more)]
    if plain:
        return found
    names = ["o", "lse", "q", "k", "v", *more]
    found = [x if name in ("alibi_slopes", "sink") else distributed.unshard(x, axis, layout=layout, part=PART) for name, x in zip(names, found)]
    return [x.float().numpy().copy() for x in found]


WAYS = ("ring", "heads", "gather", "direct", "heads-ring")


def every_case():
    """All of them, on this rank; of more than one rank a layout and a way each."""
    ranks = dist.get_world_size()
    return [call(case, LAYOUTS[(n + ranks) % 3], WAYS[(n + ranks) % 5]) for n, case in enumerate(CASES)]


def test_the_same_bits_and_gradients_on_any_number_of_ranks():
    alone = gloo.run(1, every_case)[0]
    for case, found in zip(CASES, alone, strict=True):
        tolerance = 0.03 if case == "half" else 2e-5
        for a, b in zip(found, call(case, plain=True), strict=True):
            assert torch.allclose(torch.from_numpy(a), b.float(), rtol=tolerance, atol=tolerance * max(1, float(b.abs().max()))), case
    for ranks in (2, 3, 4):
        for results in gloo.run(ranks, every_case):
            for case, a, b in zip(CASES, results, alone, strict=True):
                assert len(a) == len(b) and all(x.tobytes() == y.tobytes() for x, y in zip(a, b)), (ranks, case)


# ---- second derivatives


def penalty(case, layout="contiguous", way="auto", plain=False):
    """Gradients of the squared gradients: with q, k, v and, if there is one, bias."""
    given = dict(CASES[case])
    packed = "cu_seqlens_q" in given
    axis, q, k, v, grad, bias, slopes, sink = 0 if packed else 2, *whole()
    q, k, v, grad = (x[0].swapaxes(0, 1).contiguous() if packed else x for x in (q, k, v, grad))
    cut = (lambda x, axis: x) if plain else lambda x, axis: distributed.shard(x, axis, layout=layout, part=PART)  # noqa: E731
    leaves = [cut(x, axis).clone().requires_grad_() for x in (q, k, v, grad)]
    given.update({name: x for name, x in (("alibi_slopes", slopes.abs() / 8), ("sink", sink)) if name in given})
    if "bias" in given:
        leaves.append(cut(bias, 2).clone().requires_grad_())
        given["bias"] = leaves[-1]
    if plain:
        o, lse = libattn.torch.attention(*leaves[:3], return_lse=True, layout="thd" if packed else "bhsd", **given)
    else:
        o, lse = distributed.attention(*leaves[:3], return_lse=True, layout=layout, part=PART, way=way, axes="thd" if packed else "bhsd", **given)
    of = leaves[:3] + leaves[4:]
    first = torch.autograd.grad((o * leaves[3]).sum() + (lse * leaves[3][..., 0]).sum(), of, create_graph=True)
    sum((x * x).sum() for x in first).backward()
    if plain:
        return [x.grad for x in leaves]
    return [distributed.unshard(x.grad, axis, layout=layout, part=PART).numpy().copy() for x in leaves]


SECOND = ("full", "causal", "window", "dropout", "bias", "slopes", "packed")


def every_penalty():
    ranks = dist.get_world_size()
    return [penalty(case, LAYOUTS[(n + ranks) % 3], WAYS[(n + ranks) % 5]) for n, case in enumerate(SECOND)]


def test_second_derivatives_on_any_number_of_ranks():
    alone = gloo.run(1, every_penalty)[0]
    for case, found in zip(SECOND, alone, strict=True):
        for a, b in zip(found, penalty(case, plain=True), strict=True):
            assert torch.allclose(torch.from_numpy(a), b, rtol=1e-4, atol=1e-4 * max(1, float(b.abs().max()))), case
    for ranks in (2, 3):
        for results in gloo.run(ranks, every_penalty):
            for case, a, b in zip(SECOND, results, alone, strict=True):
                assert len(a) == len(b) and all(x.tobytes() == y.tobytes() for x, y in zip(a, b)), (ranks, case)


# ---- what autograd asks


class Marked(torch.Tensor):
    """A tensor whose type is not of PyTorch's modules."""


def asked():
    q, k, v = (distributed.shard(x, 2, part=PART) for x in whole()[:3])
    with torch.no_grad():
        assert not distributed.attention(q.requires_grad_(), k, v, part=PART).requires_grad
    o = distributed.attention(q, k, v, part=PART, causal=True)
    assert o.requires_grad
    one, = torch.autograd.grad(o.sum(), q)  # k and v have no gradients
    marked = q.detach().as_subclass(Marked).requires_grad_()
    distributed.attention(marked, k, v, part=PART, causal=True).sum().backward()
    assert torch.equal(marked.grad, one)
    with torch.autocast("cpu", torch.bfloat16):
        assert distributed.attention(q, k, v, part=PART).dtype == torch.bfloat16
    messages = []
    for slopes, third in ((torch.ones(HEADS, requires_grad=True), False), (torch.ones(HEADS), True)):
        o = distributed.attention(q, k, v, part=PART, alibi_slopes=slopes)
        gradient, = torch.autograd.grad(o.square().sum(), q, create_graph=True)
        try:
            second, = torch.autograd.grad(gradient.square().sum(), q, create_graph=third)
            second.sum().backward()
        except NotImplementedError as error:
            messages.append(str(error))
    sizes = [x.shape for x in (one, gradient)]
    assert sizes == [q.shape] * 2
    into = torch.empty(q.shape)
    assert distributed.attention(q.detach(), k, v, part=PART, out=into) is into
    torch.manual_seed(dist.get_rank())  # rank 0 draws the seed of dropout
    dropped = distributed.attention(q.detach(), k, v, part=PART, dropout=0.5)
    torch.manual_seed(0)
    seed = int(torch.randint(2**63 - 1, (), dtype=torch.int64))
    assert torch.equal(dropped, distributed.attention(q.detach(), k, v, part=PART, dropout=0.5, seed=seed))
    return messages


def test_modes_of_autograd():
    for messages in gloo.run(3, asked):
        assert messages == [
            "libattn.distributed has second derivatives of q, k, v and bias only, and not of alibi_slopes: detach it, or call backward "
            "without create_graph", "libattn has no third derivatives"]


def groups():
    """Two groups of two ranks, each with its own sequence."""
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "sequence"))
    entry = mesh.get_local_rank("data")
    q, k, v = (x[entry:entry + 1] for x in whole()[:3])
    found = []
    for group in (mesh["sequence"], mesh["sequence"].get_group()):
        own = [distributed.shard(x, 2, group=group, part=PART) for x in (q, k, v)]
        found.append(distributed.unshard(distributed.attention(*own, group=group, part=PART, causal=True), 2, group=group, part=PART))
    try:
        distributed.attention(*own, group=mesh)
    except ValueError as error:
        return entry, found, str(error)


def beside():
    """Messages of the caller's own, with the tags that the library has."""
    q, k, v = (distributed.shard(x, 2, part=PART) for x in whole()[:3])
    other, own, sent = 1 - dist.get_rank(), torch.full((1,), float(dist.get_rank())), []
    for tag in range(1, 10):
        sent.append(dist.isend(own, other, tag=tag))
    o = distributed.unshard(distributed.attention(q, k, v, part=PART), 2, part=PART)
    for tag in range(1, 10):
        got = torch.empty(1)
        dist.recv(got, other, tag=tag)
        assert got == other
    for work in sent:
        work.wait()
    return o


def test_messages_of_the_caller():
    expected = distributed.attention(*whole()[:3], part=PART)
    assert all(torch.equal(o, expected) for o in gloo.run(2, beside))


def test_groups_and_meshes():
    expected = distributed.attention(*whole()[:3], part=PART, causal=True)
    for entry, found, said in gloo.run(4, groups):
        assert all(torch.equal(x, expected[entry:entry + 1]) for x in found)
        assert said.startswith("group is a mesh of 2 axes; pass the axis of the sequence")


class Twice(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.factor = torch.nn.Parameter(torch.full((), 1.5))

    def forward(self, x):
        return self.factor * x


def compiled(backend):
    """Differences between a function and what torch.compile makes of it."""
    torch.manual_seed(1)
    twice, (q, k, v) = Twice(), whole()[:3]

    def loss(q, k, v):
        q, k, v = (distributed.shard(x * 0.5, 2, part=PART) for x in (q, k, v))
        o = distributed.attention(distributed.by_parts(twice, q, axis=2, part=PART), k, v, part=PART, causal=True) + 1
        assert distributed.unshard(o, 2, part=PART).shape == (BATCH, HEADS, LEN, DIM)
        return distributed.sum_parts((o * o).sum().expand(1))

    losses = []
    for function in (loss, torch.compile(loss, backend=backend)):
        losses.append(function(q, k, v))
        losses[-1].backward()
        losses.append(twice.factor.grad)
        twice.factor.grad = None
    return [float(abs(a - b).detach()) for a, b in zip(losses[:2], losses[2:])]


def test_compiled():
    importlib.import_module("torch._dynamo")  # once for all ranks
    for found in gloo.run(2, compiled, "aot_eager"):
        assert found == [0.0, 0.0]


# ---- what is wrong


def rejected():
    said = []
    q, k, v = (distributed.shard(x, 2, part=PART).requires_grad_() for x in whole()[:3])
    for wrong in ({"softcap": -1.0}, {"window": (3, 3)}, {"bias": torch.zeros(3)}, {"layout": "thd"}, {"dropout": "a lot"}, {"dropout": np.ones(2)}):
        for who in range(dist.get_world_size()):
            try:
                distributed.attention(q, k, v, **{"part": PART, **(wrong if dist.get_rank() == who else {})})
            except Exception as error:
                said.append((type(error), str(error)))
    into, mine = torch.full(q.shape, 7.0), dist.get_rank() == 1
    for given in ({"out": into if mine else None}, {"k": k.detach().numpy() if mine else k}, {"q": q.detach(), "k": k if mine else k.detach(), "v": v.detach()}):
        try:  # gradients that cannot be, and of one rank alone
            distributed.attention(**{"q": q, "k": k, "v": v, "part": PART, **given})
        except Exception as error:
            said.append((type(error), str(error)))
    assert (into == 7).all()
    some = dist.new_group([0, 2])
    if mine:
        with pytest.raises(ValueError, match="this process is not among its ranks"):
            distributed.parts(LEN, group=some)
    sharded = dist.tensor.distribute_tensor(q.detach(), dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),)), [dist.tensor.Shard(2)])
    try:
        distributed.attention(sharded if dist.get_rank() == 1 else q, k, v, part=PART)
    except TypeError as error:
        said.append((TypeError, str(error)))
    if dist.get_rank() == 1:
        k = k.detach()
    try:  # gradients that ranks do not agree about
        distributed.attention(q, k, v, part=PART, sink=torch.zeros(HEADS, requires_grad=dist.get_rank() == 0)).sum().backward()
    except ValueError as error:
        said.append((ValueError, str(error)))
    return said


def test_what_is_wrong_on_one_rank_is_said_by_all():
    first, *others = gloo.run(3, rejected)
    assert len(first) == 23 and [kind for kind, _ in first[18:20]] == [TypeError] * 2 and "out" in first[18][1]
    assert first[20] == (ValueError, "ranks disagree: rank 0 has no gradients, and rank 1 has gradients=True")
    assert first[-2] == (TypeError, "q is a DTensor, of which this process has a part; pass q.to_local()")
    assert all(one == first for one in others)
    assert first[0] == (ValueError, "softcap is -1.0; it must be above 0") and "axes='thd'" in first[9][1]
    assert first[-1] == (ValueError, "ranks disagree: rank 0 has grads=sink, and rank 1 has grads=")


def killed(when):
    """Rank 2 ends itself: before it calls, or in its n-th message."""
    transport = distributed._groups.transport_of(None)
    q, k, v = (distributed.shard(x, 2, layout="zigzag", part=PART).requires_grad_() for x in whole()[:3])
    out = torch.full(q.shape, 7.0)
    distributed.attention(q.detach(), k, v, layout="zigzag", part=PART)
    if dist.get_rank() == 2:
        left, inner = [when], transport.send

        def send(*arguments):
            left[0] -= 1
            return inner(*arguments) if left[0] >= 0 else os._exit(9)

        transport.send = send
    begin = time.monotonic()
    try:
        distributed.attention(q.detach(), k.detach(), v.detach(), layout="zigzag", part=PART, out=out)
        distributed.attention(q, k, v, layout="zigzag", part=PART).sum().backward()
    except ConnectionError as error:
        again = None
        try:
            distributed.attention(q, k, v, part=PART)
        except ConnectionError as second:
            again = str(second)
        return str(error), again, time.monotonic() - begin


@pytest.mark.parametrize("when", [0, 3, 9, 14, 20])
def test_a_killed_rank_is_an_exception_on_the_others(when):
    found = gloo.run(4, killed, when, lost=(2,))
    for rank in (0, 1, 3):
        sentence, again, seconds = found[rank]
        assert sentence.startswith(f"rank {rank}: ") and "make a new group" in again
        assert seconds < gloo.SECONDS / 2
