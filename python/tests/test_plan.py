# SPDX-License-Identifier: MIT
"""Plan, explain, tensors, kernels and check."""
import ctypes

import numpy as np
import pytest

import libattn
from libattn import _abi, _attention, _check, _core

S = (2, 4, 9, 16)


def array(shape=S, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def test_a_plan_knows_what_a_call_returns():
    plan = libattn.Plan(S, S, S, causal=True, return_lse=True, outputs=["entropy"], threads=1)
    assert plan.kernel.startswith("attn_fwd_f32") and plan.compute == "f32" and plan.threads == 1
    assert list(plan.inputs) == ["q", "k", "v"] and list(plan.outputs) == ["o", "lse", "entropy"]
    assert plan.outputs["lse"] == libattn.Spec(S[:3], np.dtype("f"))
    assert plan.tiles_total >= plan.tiles_visited >= plan.tiles_modified and plan.flops > 0
    q = array()
    results = plan.execute(q, q, q)
    want = libattn.attention(q, q, q, causal=True, return_lse=True, outputs=["entropy"])
    assert all((a == b).all() for a, b in zip(results, want, strict=True))
    assert [x.shape for x in results] == [spec.shape for spec in plan.outputs.values()]
    out = np.empty_like(q)
    assert plan.execute(q, q, q, o=out)[0] is out


@pytest.mark.parametrize("op", ["backward", "jvp", "double_backward"])
def test_plans_of_derivatives(op):
    q, k, v = (array(seed=n) for n in range(3))
    o, lse = libattn.attention(q, k, v, return_lse=True)
    plan = libattn.Plan(q, k, v, op=op)
    made = plan.execute(q, k, v, **{name: {"o": o, "lse": lse}.get(name, q) for name in plan.inputs if name not in "qkv"})
    tangents = {"tan_q": q, "tan_k": q, "tan_v": q}
    want = {
        "backward": lambda: libattn.attention_backward(q, k, v, o, lse, q),
        "jvp": lambda: (libattn.jvp(q, k, v, o, lse, **tangents),),
        "double_backward": lambda: libattn.attention_double_backward(q, k, v, o, lse, q, **tangents),
    }[op]()
    assert all((a == b).all() for a, b in zip(made if op != "jvp" else (made,), want, strict=True))


@pytest.mark.parametrize(
    "make, error, sentence",
    [
        (lambda: libattn.Plan(S, (2, 3, 9, 16), (2, 3, 9, 16)), ValueError, r"heads_q \(4\) is not a multiple of heads_kv \(3\)"),
        (lambda: libattn.Plan(S, S, (2, 4, 8, 16)), ValueError, r"v has the shape \(2, 4, 8, 16\); it must be \(2, 4, 9, 16\)"),
        (lambda: libattn.Plan(S, S, S, op="sideways"), ValueError, r"op is 'sideways'; known: forward, backward, jvp, double_backward"),
        (lambda: libattn.Plan(S, S, S, dtype=complex), TypeError, r"q has a type that libattn does not know"),
        (lambda: libattn.Plan(S, S, S).execute(array(), array(), array()[:1]), ValueError, r"v has the shape .*; the plan was made with"),
        (lambda: libattn.Plan(S, S, S).execute(array(), array(), array().astype("i")), ValueError, r"v has the type int32"),
        (lambda: libattn.Plan(S, S, S).execute(array(), array(), array(), sink=[0.0]), TypeError, r"sink is set; the plan was made without"),
        (lambda: libattn.Plan(S, S, S, op="jvp").execute(array(), array(), array()), TypeError, r"o is missing; the plan was made with it"),
        (lambda: libattn.Plan((1 << 40, 1 << 30, 1 << 30, 1), S, S), ValueError, r"q has a shape whose size overflows"),
    ],
)
def test_errors(make, error, sentence):
    with pytest.raises(error, match=sentence):
        make()


def test_types_by_name():
    """A pair of a shape and a type has whatever NumPy takes for a type."""
    for dtype in ("float64", np.float64, np.dtype(float), float, "f8"):
        plan = libattn.Plan(S, S, S, bias=((9, 9), dtype), mask=((9, 9), "bool"))
        assert plan.inputs["bias"] == libattn.Spec((9, 9), np.dtype(float)) and plan.inputs["mask"].dtype == np.dtype(bool)
    with pytest.raises(TypeError, match="bias has a type that libattn does not know"):
        libattn.Plan(S, S, S, bias=((9, 9), "q5_0"))


def test_explain():
    text = libattn.explain(S, S, S, causal=True, mask=libattn.Spec((9, 9), np.dtype(bool)), isa="scalar")
    assert "attn_fwd_f32_scalar" in text and "requested by isa" in text and "mask [9, 9] bool" in text


def test_every_tensor_is_a_keyword():
    names = [row.name for row in libattn.tensors()]
    slots = [name for name, *_ in _abi.attn_tensors._fields_ if name not in ("struct_size", "call")]
    assert names == slots
    for row in libattn.tensors():  # known to _core, whatever else is wrong
        with pytest.raises((ValueError, NotImplementedError, TypeError)) as found:
            _core.compute(0, "bhsd", None, (row.name,), np.zeros((1, 1, 1, 1), complex))
        assert "is not an option" not in str(found.value)


def leaves(kind, skip=("struct_size", "reserved")):
    for name, field, *_ in kind._fields_:
        if name in skip:
            continue
        if isinstance(field, type) and issubclass(field, ctypes.Structure):
            yield from (f"{name}.{leaf}" for leaf in leaves(field))
        else:
            yield name


# Fields that arrays determine, or that another keyword sets.
DERIVED = {
    "op", "mask.window_left", "mask.window_right", "score.kind", "score.scale_kind", "score.dim_k", "score.dim_metric",
    "score.additive_bias", "mask.block_entries", "dropout.probability", "paging.page_size", "paging.pages", "paging.page_entries", "bias_table.kind",
    "bias_table.buckets", "bias_table.max_distance", "bias_table.causal", "relative.first", "relative.rows", "shape.batch", "shape.heads_q",
    "shape.heads_kv", "shape.dim_qk", "shape.dim_v",
}


def test_every_field_of_a_problem_is_a_keyword():
    keywords = {*libattn.Problem.__annotations__, *libattn.ForwardOptions.__annotations__, *libattn.Options.__annotations__}
    assert {leaf for leaf in leaves(_abi.attn_problem) if leaf not in DERIVED and leaf.split(".")[-1] not in keywords} == set()
    options = {"allocator", "parallel_for", "parallel_context"}  # a binding's own
    assert {leaf for leaf in leaves(_abi.attn_options) if leaf.split(".")[0] not in keywords | options} == set()
    inputs = {row.name for row in libattn.tensors() if "forward" in row.inputs}
    assert inputs - keywords == {"q", "k", "v"}


def test_every_option_is_known():
    q = array()
    for name in {*libattn.Problem.__annotations__, *libattn.ForwardOptions.__annotations__}:
        try:
            libattn.attention(q, q, q, **{name: 1j})  # of a type that no option has, but for switches
        except Exception as error:
            assert "is not an option" not in str(error) and "unexpected" not in str(error), name


def test_kernels():
    found = libattn.kernels()
    assert any(kernel.usable and kernel.isa == "scalar" and kernel.op == "forward" for kernel in found)
    assert libattn.cpu().isa in {kernel.isa for kernel in found if kernel.usable}


def test_check():
    q, k, v = array(), array((2, 2, 11, 16)), array((2, 2, 11, 16), seed=2)
    found = libattn.check(q, k, v, causal=True, sink=[0.0, 1.0, -1.0, 2.0])
    assert found.passed and found.worst < 0.5 and "grad_sink" in found.fractions and str(found).endswith("of the bound")
    assert libattn.check(q.swapaxes(1, 2), k.swapaxes(1, 2), v.swapaxes(1, 2), layout="bshd").passed
    assert libattn.check(q[0], k[0], v[0], derivatives=False).passed
    assert libattn.check(q, k, v, score="additive", score_matrix=np.ones((1, 16))).passed
    assert libattn.check(q, k, v, bias_table=np.ones((4, 8)), bias_table_max_distance=16, normaliser="sigmoid").passed
    with pytest.raises(NotImplementedError, match="check does not compare origin; attn check does"):
        libattn.check(q, k, v, origin=(0, 0, 0, 0, 0))


def test_check_sees_a_wrong_result(monkeypatch):
    q = array()
    monkeypatch.setattr(_check, "attention", lambda *a, **o: _attention.attention(*a, **{**o, "scale": 0.2501}))
    found = libattn.check(q, q, q, scale=0.25, derivatives=False)
    assert not found.passed and "WRONG" in str(found)


def test_check_covers_the_options_on_every_instruction_set():
    found = libattn.check()
    assert found.passed, str(found)
    assert {name.split()[1] for name in found.fractions} == {kernel.isa for kernel in libattn.kernels() if kernel.usable}
