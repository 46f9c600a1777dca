# SPDX-License-Identifier: MIT
"""libattn.distributed.predict: what plans and `attn explain --ranks` say; and the way that is taken by it."""
import json
import pathlib
import subprocess

import numpy as np
import pytest

import libattn
from libattn import distributed

PREDICTED = {
    "causal": {"causal": True},
    "window": {"window": (9, 0)},
    "packed": {"cu_seqlens_q": [0, 30, 40, 100], "cu_seqlens_kv": [0, 20, 70, 100], "causal": True},
}


@pytest.mark.parametrize("name", PREDICTED)
@pytest.mark.parametrize("op", ["forward", "backward", "double_backward"])
def test_predicted(name, op):
    """Cells and, but for estimates of backward, messages and bytes are those of plans."""
    options, ranks, how = PREDICTED[name], 3, {"layout": "zigzag", "part": 8}
    packed = name == "packed"
    sizes = {} if packed else {"len_q": 100, "len_kv": 100, "batch": 2}
    found = distributed.predict(ranks, dim_qk=4, dim_v=3, heads_q=4, heads_kv=2, op=op, **how, **sizes, **options)
    shape = (lambda heads, dim: (heads, 100, dim)) if packed else (lambda heads, dim: (2, heads, 100, dim))
    token = 1 if packed else 2
    q, k, v, o = (np.zeros(shape(heads, dim), np.float32) for heads, dim in ((4, 4), (2, 4), (2, 3), (4, 3)))
    given = {} if op == "forward" else {"o": o, "grad_o": o, "lse": o[..., 0]}
    given.update({"tan_q": q, "tan_k": k, "tan_v": v} if op == "double_backward" else {})

    def plan(group):
        own = {key: np.ascontiguousarray(distributed.shard(x, token, group=group, **how)) for key, x in given.items()}
        mine = [distributed.shard(x, token, group=group, **how) for x in (q, k, v)]
        if packed:
            mine, own = [x.swapaxes(0, 1) for x in mine], {key: x.swapaxes(0, 1) for key, x in own.items()}
        return distributed.Plan(*mine, op=op, group=group, arrays=own, axes="thd" if packed else "bhsd", **how, **options).description

    described = distributed.in_threads(ranks, plan)
    one = described[0]
    assert (found.cells_total, found.cells_most, found.parts_q, found.parts_kv) == (one.cells_total, one.cells_most, one.parts_q, one.parts_kv)
    assert (found.way, found.ranks, found.sampled) == ("direct", 3, 1) and found.seconds >= found.computing > 0
    if op == "forward":
        agreements = 2 * 2  # twice, in two messages of ranks that agree about errors
        assert found.messages_total <= sum(one.messages for one in described) <= found.messages_total + 3 * agreements


@pytest.mark.parametrize("taken", ["ring", "gather"])
def test_prediction_of_the_command(taken):
    attn = pathlib.Path(libattn.__file__).parent / "bin/attn"
    if not attn.exists():
        pytest.skip("there is no command")
    words = f"explain fwd:bf16:b1:hq32:hkv8:sq8192:d128:causal --ranks=16 --part=512 --layout=zigzag --way={taken} --network=10Gbit/s --json".split()
    said = json.loads(subprocess.run([attn, *words], capture_output=True, text=True, check=True).stdout)
    found = distributed.predict(
        16, len_q=8192, len_kv=8192, heads_q=32, heads_kv=8, dim_qk=128, dtype="bf16", part=512, layout="zigzag", way=taken, causal=True,
        bytes_per_second=1.25e9)
    way, = said["ways"]
    same = "seconds", "computing", "combining", "waiting", "efficiency", "imbalance", "cells_most", "key_bytes", "steps", "way"
    others = {"messages_most": "messages", "bytes_most": "bytes", "messages": "messages_total", "bytes": "bytes_total", "cells": "cells_total"}
    for name, field in (*zip(same, same, strict=True), *others.items()):
        assert way[name] == (getattr(found, field) if name == "way" else pytest.approx(getattr(found, field), rel=1e-12)), name
    assert said["flops"] == found.flops


@pytest.mark.parametrize(("rate", "way"), [(1e5, "heads"), (1e15, "direct")])
def test_auto(rate, way):
    """The way that is predicted to be the fastest on a machine is taken, with the bits of every other one."""
    machine = distributed.Machine(bytes_per_second=rate, flops_per_second=1e9, seconds_per_message=0)
    how, q = {"layout": "zigzag", "part": 8, "causal": True}, np.random.default_rng(3).standard_normal((1, 4, 64, 8), dtype=np.float32)

    def work(group):
        mine = distributed.shard(q, 2, group=group, layout="zigzag", part=8)
        plan = distributed.Plan(mine, mine, mine, group=group, machine=machine, **how)
        direct = distributed.attention(mine, mine, mine, group=group, way="direct", **how)
        return plan.description, np.array_equal(plan.execute(mine, mine, mine), direct)

    found = distributed.predict(4, len_q=64, len_kv=64, heads_q=4, dim_qk=8, **how, **vars(machine))
    for described, same in distributed.in_threads(4, work):
        assert same and (described.way, described.seconds, described.why) == (found.way, found.seconds, found.why)
    assert found.way == way and found.why.startswith(f"{way}: ")
    with pytest.raises(TypeError, match="machine is of type dict; it must be a distributed.Machine"):
        distributed.attention(q, q, q, machine={})


def test_predict_errors():
    for kind, sentence, options in (
        (ValueError, "ranks is 0; it must be at least 1", {"ranks": 0}),
        (ValueError, "ranks is 4294967298; it must be at most 2147483647", {"ranks": 2**32 + 2}),
        (ValueError, r"layout\.kv has 1 numbers; 10 tokens have 3 parts of 4", {"layout": distributed.Owners([0] * 3, [0]), "part": 4}),
        (TypeError, "len_kv is missing", {"len_kv": None}),
        (ValueError, "flops_per_second", {"flops_per_second": 0.0}),
        (ValueError, "op is 'double'", {"op": "double"}),
        (NotImplementedError, r"distributed: way is 3 \(split keys\)", {"op": "backward", "way": "split-keys"}),
    ):
        with pytest.raises(kind, match=sentence):
            distributed.predict(**{"ranks": 2, "len_q": 10, "len_kv": 10, "dim_qk": 4, **options})
