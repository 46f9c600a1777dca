# SPDX-License-Identifier: MIT
"""Training over ranks: modules applied by parts, sums over parts, PyTorch's context parallelism, DDP and FSDP beside, the example."""
import importlib
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import threading

import numpy as np
import pytest

torch = pytest.importorskip("torch")
if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("PyTorch has no gloo", allow_module_level=True)

import torch.distributed as dist  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import gloo  # noqa: E402
from libattn import distributed  # noqa: E402

BATCH, LEN, WIDTH, HEADS, PART = 2, 22, 16, 2, 4
HOW = {"layout": "zigzag", "part": PART}


# ---- sums over parts


def tree(values):
    """The sum that every number of ranks has."""
    while len(values) > 1:
        values = [values[n] + values[n + 1] if n + 1 < len(values) else values[n] for n in range(0, len(values), 2)]
    return values[0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_sums_are_those_of_the_tree(dtype):
    rng = np.random.default_rng(0)
    for count in (1, 2, 5, 8, 13):
        values = rng.standard_normal((count, 3, 2)).astype(dtype)
        expected = tree([x.astype(np.float32 if dtype == np.float16 else dtype) for x in values]).astype(dtype)
        for ranks, layout in ((1, "contiguous"), (2, "striped"), (3, "zigzag"), (4, "contiguous"), (15, "striped")):
            owners = distributed.in_threads(ranks, lambda g, layout=layout, n=count: [p.number for p in distributed.parts(n, group=g, layout=layout, part=1)])
            found = distributed.in_threads(ranks, lambda g, layout=layout, v=values, o=owners: distributed.sum_parts(v[o[g.rank]], group=g, layout=layout))
            assert all(x.dtype == dtype and x.tobytes() == expected.tobytes() for x in found), (count, ranks)
    assert not np.array_equal(tree(list(values)), values.sum(0)) or dtype == np.float64


def test_sums_are_rejected_on_all_ranks():
    def work(group, wrong):
        try:
            distributed.sum_parts(wrong if group.rank == 1 else np.ones((2, 3)), group=group)
        except Exception as error:
            return type(error), str(error)

    for wrong, kind, text in ((np.ones((2, 3), int), TypeError, "floats"), (np.ones((3, 3)), ValueError, "x has 2 parts on rank 0; of 7 it owns 3"), (np.ones((2, 4)), ValueError, "disagree"), (torch.ones((), requires_grad=True), TypeError, "floats")):
        first, *others = distributed.in_threads(3, lambda group, wrong=wrong: work(group, wrong))
        assert all(one == first for one in others) and first[0] is kind and text in first[1]


# ---- a block of a Transformer


class Before(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.project = torch.nn.LayerNorm(WIDTH), torch.nn.Linear(WIDTH, 3 * WIDTH)
        self.frozen = torch.nn.Parameter(torch.ones(WIDTH), requires_grad=False)

    def forward(self, x):
        return self.project(self.norm(x) * self.frozen).unflatten(-1, (3, HEADS, WIDTH // HEADS)).unbind(2)


class After(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.project = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x, o):
        return x + self.project(o.flatten(2)).relu()


class Loss(torch.nn.Module):
    def forward(self, y):
        assert y.is_contiguous()  # the order of sums may depend on it
        return y.square().sum().view(1, 1)


def block():
    torch.manual_seed(5)
    return torch.nn.ModuleList([Before(), After(), After()]), torch.randn(BATCH, LEN, WIDTH)


def trained(layout="zigzag"):
    """The loss and all gradients, on this rank."""
    (before, after, unused), x = block()
    how = {**HOW, "layout": layout}
    mine = distributed.shard(x, 1, **how).requires_grad_()
    q, k, v = distributed.by_parts(before, mine, **how)
    y = distributed.by_parts(after, mine, distributed.attention(q, k, v, axes="bshd", causal=True, **how), **how)
    of_parts = distributed.by_parts(Loss(), y, **how)[0, :len(distributed.parts(LEN, **how))]
    loss = distributed.sum_parts(of_parts, layout=layout)
    loss.backward()
    found = [loss.detach(), *(p.grad for p in (*before.parameters(), *after.parameters()) if p.requires_grad), distributed.unshard(mine.grad, 1, **how)]
    return [x.numpy().copy() for x in found], all(p.grad is None for p in (*unused.parameters(), before.frozen))


def test_gradients_do_not_depend_on_the_ranks():
    (alone, frozen), = gloo.run(1, trained)
    assert frozen
    (before, after, _), x = block()
    x.requires_grad_()
    q, k, v = (t.transpose(1, 2) for t in before(x))
    loss = after(x, F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)).square().sum()
    loss.backward()
    for a, b in zip(alone, [loss, *(p.grad for p in (*before.parameters(), *after.parameters()) if p.requires_grad), x.grad], strict=True):
        assert np.allclose(a, b.detach(), rtol=1e-4, atol=1e-4)
    for ranks, layout in ((2, "striped"), (3, "zigzag"), (4, "contiguous"), (7, "striped")):
        for found, _ in gloo.run(ranks, trained, layout):
            assert all(a.tobytes() == b.tobytes() for a, b in zip(found, alone, strict=True)), ranks


def rejected():
    (before, after, _), x = block()
    mine, said = distributed.shard(x, 1, **HOW), []
    odd = torch.nn.Linear(WIDTH, WIDTH, dtype=torch.complex64)
    for wrong in (lambda: (odd, mine), lambda: (odd.forward, mine), lambda: (before, mine[:, 1:]), lambda: (before, mine, mine[:, :1]), lambda: (before, 3), lambda: (after, mine, mine)):
        try:
            distributed.by_parts(*(wrong() if dist.get_rank() == 1 else (before, mine)), **HOW)
        except Exception as error:
            said.append((type(error), str(error)))
    for module in (torch.nn.MSELoss(), After()):
        try:
            distributed.by_parts(module, mine, mine, **{**HOW, **({"axis": "1"} if isinstance(module, After) and dist.get_rank() == 1 else {})})
        except Exception as error:
            said.append((type(error), str(error)))
    return said


def test_modules_are_rejected_on_all_ranks():
    first, *others = gloo.run(3, rejected)
    assert all(one == first for one in others) and [kind for kind, _ in first] == [TypeError, TypeError, ValueError, ValueError, TypeError, ValueError, TypeError, TypeError]
    assert first[1][1].startswith("module is of type method; it must be a torch.nn.Module") and first[-1][1].startswith("axis is of type str")
    assert first[-2][1] == "the module returns a tensor of shape []; it must be a tensor with tokens along axis 1, or a tuple of such"


# ---- context parallelism as PyTorch has it


def within():
    layer = torch.nn.TransformerEncoderLayer(WIDTH, HEADS, 32, batch_first=True, dropout=0.0)
    torch.manual_seed(0)
    for p in layer.parameters():
        torch.nn.init.normal_(p, std=0.2)
    x, kept = torch.randn(BATCH, LEN, WIDTH), torch.randn(LEN, 3)
    mask = torch.nn.Transformer.generate_square_subsequent_mask(LEN)
    original, mesh = x.clone(), dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
    with torch.no_grad():
        whole = layer.eval()(x, mask, is_causal=True)
    theirs = F.scaled_dot_product_attention
    same = []
    for mode, grad in ((layer.eval, False), (layer.eval, True), (layer.train, True)):
        mode()
        with torch.set_grad_enabled(grad), distributed.context_parallel(mesh, buffers=[x, kept], buffer_seq_dims=[1, 0], no_restore_buffers={kept}, part=PART):
            assert x.shape[1] == kept.shape[0] == distributed.shard(original, 1, **HOW).shape[1]
            # The causal flag reaches F.scaled_dot_product_attention where weights are not asked for.
            y = layer(x, torch.empty(LEN, LEN), is_causal=True)
            if grad:
                y.sum().backward()
            same.append(distributed.context_parallel_unshard(mesh, [y], [1], part=PART)[0])
        assert torch.equal(x, original) and F.scaled_dot_product_attention is theirs and torch.backends.mha.get_fastpath_enabled()
        kept = torch.randn(LEN, 3)
    gradients = torch.cat([p.grad.flatten() for p in layer.parameters()])
    dist.all_reduce(gradients)
    return whole.numpy(), [y.numpy() for y in same], gradients.numpy()


def test_context_parallel():
    alone = gloo.run(1, within)[0]
    for ranks in (2, 4):
        for whole, found, gradients in gloo.run(ranks, within):
            assert all(np.allclose(y, whole, atol=1e-5) for y in found)
            assert np.allclose(gradients, alone[2], rtol=1e-4, atol=1e-4)


def test_context_parallel_rejects():
    x = torch.ones(2, 3)
    with pytest.raises(ValueError, match="buffer_seq_dims has 0 numbers and buffers 1"), distributed.context_parallel(None, buffers=[x]):
        pass
    with pytest.raises(ValueError, match="not among buffers"), distributed.context_parallel(None, no_restore_buffers={x}):
        pass
    with pytest.raises(ValueError, match="enable_gqa"), distributed.context_parallel(None):
        F.scaled_dot_product_attention(torch.ones(1, 4, 3, 2), torch.ones(1, 2, 3, 2), torch.ones(1, 2, 3, 2))
    with pytest.raises(ZeroDivisionError), distributed.context_parallel(None, buffers=[x], buffer_seq_dims=[1], part=2):
        raise ZeroDivisionError
    with pytest.raises(ValueError, match="buffer 1 requires a gradient"), distributed.context_parallel(None, buffers=[x, x.clone().requires_grad_()], buffer_seq_dims=[1, 1]):
        pass
    assert F.scaled_dot_product_attention.__module__ != "libattn.distributed._context" and x.shape == (2, 3)


@pytest.mark.parametrize("wrong", [{"buffer_seq_dims": 2}, {"buffers": torch.ones(2, 2)}, {"no_restore_buffers": torch.ones(2, 2)}, {"buffers": [None]}, {"way": "round"}])
def test_context_parallel_agrees_about_arguments(wrong):
    """Arguments of a wrong kind on rank 1, at entry."""
    def work(group):
        given = {"buffers": [torch.ones(1, 4, 8, 4)], "buffer_seq_dims": [2], **(wrong if group.rank else {})}
        with pytest.raises((TypeError, ValueError)) as raised, distributed.context_parallel(group, part=2, **given):
            pass
        return str(raised.value)

    first, second = distributed.in_threads(2, work)
    assert first == second and re.match("(buffer 0|buffers|buffer_seq_dims|no_restore_buffers) is of type|way is 'round'", first), first


@pytest.mark.parametrize("wrong, sentence", [
    ({"attn_mask": "m"}, "attn_mask is of type str"), ({"query": 3}, "query is of type int"), ({"key": torch.ones(3)}, "k has 1 axes"),
    ({"colour": 1}, r"^scaled_dot_product_attention\(\) got an unexpected keyword argument 'colour'")])
def test_calls_within_context_parallel_agree(wrong, sentence):
    """The same in a call within; and then the lists of context_parallel_unshard."""
    def work(group):
        x = torch.ones(1, 4, 8, 4)
        with distributed.context_parallel(group, buffers=[x], buffer_seq_dims=[2], part=2):
            with pytest.raises((TypeError, ValueError), match=sentence):
                F.scaled_dot_product_attention(**{"query": x, "key": x, "value": x, **(wrong if group.rank else {})})
            with pytest.raises(ValueError, match="ranks disagree: rank 0 has seq_dims=2, 2, and rank 1 has seq_dims=2"):
                distributed.context_parallel_unshard(group, [x] * (2 - group.rank), [2] * (2 - group.rank), part=2)

    distributed.in_threads(2, work)


@pytest.mark.parametrize("sentence", ["buffer_seq_dims has 0 numbers", "not among buffers", "buffer 0 requires a gradient", "enable_gqa", "seq_dims has 0",
                                      "ranks disagree: rank 0 has part=2, and rank 1 has part=4"])
def test_context_parallel_rejects_on_one_rank(sentence):
    """What rank 1 alone does wrong, all ranks raise, at entry or in the next call within; no rank waits."""
    def work(group):
        wrong, x = group.rank == 1, torch.ones(1, 4, 8, 4)
        key = x[:, :2] if wrong and sentence == "enable_gqa" else x
        x.requires_grad_(wrong and "requires" in sentence)
        dims, kept = [] if wrong and sentence.startswith("buffer_seq") else [2], {x.clone()} if wrong and sentence.startswith("not") else set()
        with pytest.raises(ValueError, match=sentence):
            with distributed.context_parallel(group, buffers=[x], buffer_seq_dims=dims, no_restore_buffers=kept, part=4 if wrong and "disagree" in sentence else 2):
                o = F.scaled_dot_product_attention(x, x if key.shape[1] == 4 else key, x if key.shape[1] == 4 else key)
                distributed.context_parallel_unshard(group, [o], [] if wrong else [2], part=2)

    distributed.in_threads(2, work)


def test_context_parallel_in_threads():
    """One rank leaves later; buffers are views of a tensor that stays as it is."""
    theirs, both = F.scaled_dot_product_attention, threading.Barrier(2, timeout=60)
    x = torch.randn(1, 2, 12, 4)

    def work(group):
        view = (memory := x.clone())[..., :3]
        with distributed.context_parallel(group, buffers=[view], buffer_seq_dims=[2], part=2):
            o = F.scaled_dot_product_attention(view, view, view, is_causal=True)
            both.wait()
            assert torch.equal(memory, x)
            if group.rank:
                both.wait()
        if not group.rank:
            both.wait()
        assert torch.equal(memory, x) and torch.equal(view, x[..., :3]) and view.data_ptr() == memory.data_ptr()
        return distributed.unshard(o, 2, group=group, part=2, layout="zigzag")

    for o in distributed.in_threads(2, work):
        assert torch.allclose(o, theirs(x[..., :3], x[..., :3], x[..., :3], is_causal=True), atol=1e-5)
    assert F.scaled_dot_product_attention is theirs


# ---- data parallelism beside: two groups of two ranks, each with its own sequences


class Whole(torch.nn.Module):
    """A model that computes with the rows of its rank."""

    def __init__(self, group):
        super().__init__()
        (self.before, self.after, _), _ = block()
        self.group = group

    def forward(self, x):
        q, k, v = self.before(x)
        return self.after(x, distributed.attention(q, k, v, axes="bshd", causal=True, group=self.group, **HOW))


def parallel(kind):
    mesh = dist.device_mesh.init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "sequence"))
    group = mesh["sequence"].get_group()
    model = Whole(group)
    if kind == "ddp":
        run = torch.nn.parallel.DistributedDataParallel(model)
    else:
        from torch.distributed.fsdp import fully_shard

        run = fully_shard(model, mesh=dist.device_mesh.init_device_mesh("cpu", (4,)))
    x = block()[1][mesh.get_local_rank("data"):][:1]
    loss = run(distributed.shard(x, 1, group=group, **HOW)).square().sum()
    loss.backward()  # gradients are means over four ranks, of sums over the rows of each
    grads = [p.grad.full_tensor() if kind == "fsdp" else p.grad for p in model.parameters() if p.requires_grad]
    return [4 * g.numpy() for g in grads]


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_data_parallelism_beside(kind):
    importlib.import_module("torch._dynamo")  # which both import: seconds, for each rank
    model = Whole(None)
    model(block()[1]).square().sum().backward()
    for found in gloo.run(4, parallel, kind):
        for a, p in zip(found, [p for p in model.parameters() if p.requires_grad], strict=True):
            assert np.allclose(a, p.grad, rtol=1e-4, atol=1e-4)


# ---- the example

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples/train_ranks/train_ranks.py"


def example(folder, steps, join=None):
    """The example on this rank; join(what it has itself) is the group."""
    found = importlib.util.spec_from_file_location("train_ranks", EXAMPLE)
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    own, module.HELD_OUT = module.join, 1
    module.join = lambda: join(own) if join else own()
    sys.argv[1:] = [folder, str(steps)]
    return module.main()


def curve(folder):
    return (folder / "loss.csv").read_text()


def test_the_example_has_one_curve(tmp_path):
    for ranks in (1, 3, 4):
        gloo.run(ranks, example, str(tmp_path / f"{ranks}"), 3, lambda own: dist.group.WORLD)
    curves = {curve(tmp_path / f"{ranks}") for ranks in (1, 3, 4)}
    assert len(curves) == 1 and curves.pop().count("\n") == 4


@pytest.fixture
def alone(monkeypatch, tmp_path):
    """Trains so many steps in this process, which is no rank: the curve."""
    monkeypatch.setattr(sys, "argv", list(sys.argv))

    def train(steps):
        example(str(tmp_path / "one"), steps)
        return curve(tmp_path / "one")

    return train


def in_torchrun(folder, steps):
    def join(own):
        group = own()
        assert dist.get_world_size(group) == 2
        return group

    example(folder, steps, join)


@pytest.mark.slow
def test_the_example_learns(tmp_path, alone):
    """Under the launcher of torchrun, which forks its ranks here; the command starts programs, each of which imports PyTorch for seconds.

    (The 600 steps after which all held-out sequences are right take half a minute of one CPU on one rank.)
    """
    launcher = importlib.import_module("torch.distributed.launcher.api")
    config = launcher.LaunchConfig(1, 1, 2, rdzv_backend="c10d", rdzv_endpoint="localhost:0", run_id="train", start_method="fork", max_restarts=0)
    launcher.elastic_launch(config, in_torchrun)(str(tmp_path / "ranks"), 60)
    curve_of_ranks = curve(tmp_path / "ranks")
    losses = [float(line.split(",")[1]) for line in curve_of_ranks.splitlines()[1:]]
    assert alone(60) == curve_of_ranks and len(losses) == 60 and losses[-1] < 0.7 * losses[0]


@pytest.mark.slow
def test_the_example_over_mpi(tmp_path, alone):
    """As a program."""
    settings = {name: x for name, x in os.environ.items() if not name.startswith(("OMPI_", "PMI_", "TORCHELASTIC_"))}
    found = subprocess.run([*gloo.mpirun(2), sys.executable, str(EXAMPLE), str(tmp_path / "two"), "10"], capture_output=True, text=True, check=False,
                           env={**settings, "OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})
    assert (tmp_path / "two/loss.csv").exists(), found.stdout + found.stderr
    assert alone(10) == curve(tmp_path / "two")
