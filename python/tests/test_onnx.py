# SPDX-License-Identifier: MIT
"""libattn.onnx: ONNX's own tests of Attention and LinearAttention, what they leave out, errors, threads, memory.  Every node must be taken."""
import concurrent.futures
import importlib
import itertools
import os
import re

import numpy as np
import pytest

for name in ("onnx", "onnxruntime", "ml_dtypes"):
    pytest.importorskip(name)

import onnx  # noqa: E402
import onnxruntime  # noqa: E402
from onnx.backend.test.case import node as cases  # noqa: E402

import libattn.onnx  # noqa: E402
from onnx_models import BFLOAT16, definition, heads, model, run, session, stock  # noqa: E402

importlib.import_module(cases.__name__ + ".attention")
importlib.import_module(cases.__name__ + ".linear_attention")
KINDS = {"Attention", "LinearAttention"}
CASES = {case.name: case for case in cases._NodeTestCases if KINDS & {n.op_type for n in case.model.graph.node}}
NOT_TAKEN = {"test_attention_local_window_gqa_rank4_mask": "softmax_precision is double"}
EPSILON = {np.dtype(np.float64): 2.0**-53, np.dtype(np.float32): 2.0**-24, np.dtype(np.float16): 2.0**-11, BFLOAT16: 2.0**-8}


def left_since(before):
    now = libattn.onnx.stats()["onnxruntime"]
    return {reason for reason, count in now.items() if count != before.get(reason, 0)}


def test_there_are_cases():
    assert len(CASES) > 100 and NOT_TAKEN.keys() <= CASES.keys()


@pytest.mark.parametrize("name", CASES)
def test_node(name):
    case = CASES[name]
    before = libattn.onnx.stats()
    if name in NOT_TAKEN:
        with pytest.raises(Exception, match="fallback"):
            session(case.model)
        assert left_since(before["onnxruntime"]) == {f"Attention: {NOT_TAKEN[name]}"}
        return
    made = session(case.model)
    for inputs, expected in case.data_sets:
        found = run(made, {put.name: np.asarray(x) for put, x in zip(made.get_inputs(), inputs)})
        for f, e in zip(found, expected, strict=True):
            assert f.shape == e.shape and f.dtype == e.dtype
            np.testing.assert_allclose(f.astype(float), np.asarray(e, float), rtol=case.rtol, atol=max(case.atol, 4 * float(EPSILON[f.dtype])))
    kind = next(node.op_type for node in case.model.graph.node if node.op_type in KINDS)
    assert libattn.onnx.stats()["libattn"][kind] == before["libattn"].get(kind, 0) + len(case.data_sets)


# ---- sizes, types and combinations that they lack -----------------------------------------------------------------------


def random(seed, dtype=np.float32, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def attention(feed, outputs=("y",), *, names=("q", "k", "v", "mask", "past_k", "past_v", "lengths"), opset=25, fixed=True, **attributes):
    """A model of one Attention node with the inputs of feed."""
    last = max(names.index(name) for name in feed)
    inputs = [name if name in feed else "" for name in names[: last + 1]]
    found = [name if name in outputs else "" for name in ("y", "present_k", "present_v", "scores")]
    while not found[-1]:
        found.pop()
    rank = feed["q"].ndim
    types = {"y": (feed["q"].dtype, rank), "present_k": (feed["k"].dtype, 4), "present_v": (feed["v"].dtype, 4), "scores": (feed["q"].dtype, 4)}
    node = onnx.helper.make_node("Attention", inputs, found, **attributes)
    return model(node, feed, {name: types[name] for name in found if name}, opset=opset, fixed=fixed)


def bound(dtype, keys, values):
    """Enough for sums of this many terms with weights of sum 1."""
    return float((keys + 64) * EPSILON[np.dtype(np.float32)] + 2 * EPSILON[np.dtype(dtype)]) * float(np.abs(np.asarray(values, float)).max(initial=1))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, BFLOAT16], ids=str)
@pytest.mark.parametrize("rank", [3, 4])
def test_types(dtype, rank):
    q, k, v = random(1, dtype, 2, 6, 37, 20), random(2, dtype, 2, 3, 53, 20), random(3, dtype, 2, 3, 53, 12)
    mask = random(4, dtype, 2, 1, 37, 53)
    expected, _ = definition(q, k, v, bias=mask)
    feed = {"q": q, "k": k, "v": v, "mask": mask}
    attributes = {}
    if rank == 3:
        for name in "qkv":
            feed[name] = np.ascontiguousarray(feed[name].swapaxes(1, 2)).reshape(2, feed[name].shape[2], -1)
        attributes = {"q_num_heads": 6, "kv_num_heads": 3}
    found, = run(session(attention(feed, **attributes)), feed)
    assert found.dtype == dtype
    allowed = bound(dtype, 53, v) if dtype != np.float64 else 1e-14
    np.testing.assert_allclose(heads(found, 6).astype(float), expected, rtol=0, atol=allowed)


def test_types_of_values():
    """V and Y have a type of their own, but double goes with double only."""
    q, k, v = random(1, np.float32, 1, 2, 9, 8), random(2, np.float32, 1, 2, 9, 8), random(3, np.float16, 1, 2, 9, 8)
    feed = {"q": q, "k": k, "v": v}
    found, = run(session(attention(feed)), feed)
    np.testing.assert_allclose(found, definition(q, k, v)[0], rtol=0, atol=1e-3)
    before = libattn.onnx.stats()["onnxruntime"]
    feed["v"] = v.astype(np.float64)
    with pytest.raises(Exception, match="ONNXRuntimeError"):
        session(attention(feed))
    assert "Attention: double with another type" in left_since(before)


@pytest.mark.parametrize("causal, past, queries, keys", [c for c in itertools.product((0, 1), (0, 6), (1, 5), (1, 5, 9))])
@pytest.mark.parametrize("window", [(-1, -1), (3, 1)])
def test_past(causal, past, queries, keys, window):
    """The first query stands behind the past keys, whatever the lengths; present keys on request."""
    q, k, v = random(1, np.float32, 2, 4, queries, 8), random(2, np.float32, 2, 2, keys, 8), random(3, np.float32, 2, 2, keys, 6)
    feed = {"q": q, "k": k, "v": v}
    if past:
        feed |= {"past_k": random(4, np.float32, 2, 2, past, 8), "past_v": random(5, np.float32, 2, 2, past, 6)}
        k, v = np.concatenate((feed["past_k"], k), 2), np.concatenate((feed["past_v"], v), 2)
    i, j = np.arange(queries)[:, None] + past, np.arange(past + keys)
    visible = np.ones(np.broadcast_shapes(i.shape, j.shape), bool)
    if causal:
        visible &= j <= i
    if window[0] >= 0:
        visible &= (j >= i - window[0]) & (j <= i + window[1])
    expected, _ = definition(q, k, v, visible=visible)
    for outputs in (("y",), ("y", "present_k", "present_v")):
        made = attention(feed, outputs, is_causal=causal, left_window_size=window[0], right_window_size=window[1])
        found = run(session(made), feed)
        np.testing.assert_allclose(found[0], expected, rtol=0, atol=bound(np.float32, keys + past, v))
        for f, e in zip(found[1:], (k, v)):
            np.testing.assert_array_equal(f, e)


@pytest.mark.parametrize("dtype", [np.bool_, np.float32, np.float16, BFLOAT16, np.float64], ids=str)
@pytest.mark.parametrize("shape", [(7,), (5, 7), (1, 7), (3, 5, 7), (3, 1, 7), (2, 1, 5, 7), (2, 3, 1, 7), (1, 1, 1, 7), (5, 4), (4,), (2, 3, 5, 1)])
def test_masks(dtype, shape):
    """Of every rank, broadcast, and shorter than the keys."""
    kind = np.float32 if dtype == np.bool_ else dtype
    q, k, v = (random(seed, kind, 2, 3, length, 8) for seed, length in ((1, 5), (2, 7), (3, 7)))
    mask = random(4, np.float32, *shape) > -0.5 if dtype == np.bool_ else random(4, dtype, *shape)
    missing = np.zeros((*shape[:-1], 7 - shape[-1]), bool)
    full = np.concatenate((mask, missing if dtype == np.bool_ else np.where(missing, 0, -np.inf).astype(dtype)), -1)
    options = {"visible": full} if dtype == np.bool_ else {"bias": full}
    expected, weights = definition(q, k, v, **options)
    feed = {"q": q, "k": k, "v": v, "mask": mask}
    found, scores = run(session(attention(feed, ("y", "scores"), qk_matmul_output_mode=3)), feed)
    np.testing.assert_allclose(found.astype(float), expected, rtol=0, atol=bound(kind, 7, v))
    np.testing.assert_allclose(scores.astype(float), weights, rtol=0, atol=bound(kind, 7, 1))


@pytest.mark.parametrize("sizes", [(0, 2, 3, 4, 5), (1, 2, 0, 4, 5), (1, 2, 3, 0, 5), (1, 2, 3, 4, 0)])
def test_empty(sizes):
    batch, count, queries, keys, dim = sizes
    feed = {"q": random(1, np.float32, batch, count, queries, 8), "k": random(2, np.float32, batch, count, keys, 8), "v": random(3, np.float32, batch, count, keys, dim)}
    found, present_k, present_v = run(session(attention(feed, ("y", "present_k", "present_v"))), feed)
    assert found.shape == (batch, count, queries, dim) and present_v.shape == feed["v"].shape
    np.testing.assert_array_equal(found if keys == 0 else found * 0, 0)
    np.testing.assert_array_equal(present_k, feed["k"])


def test_changing_sizes():
    """One session, sizes that differ from run to run: more than there are kept plans."""
    example = {"q": random(1, np.float32, 1, 2, 3, 8), "k": random(2, np.float32, 1, 2, 3, 8), "v": random(3, np.float32, 1, 2, 3, 8)}
    made = session(attention(example, fixed=False, is_causal=1))
    for length in itertools.chain(range(1, 50), range(1, 50, 7)):
        q, k, v = (random(seed, np.float32, 1 + length % 2, 2, length, 8) for seed in (1, 2, 3))
        found, = run(made, {"q": q, "k": k, "v": v})
        expected, _ = definition(q, k, v, visible=np.tri(length, dtype=bool))
        np.testing.assert_allclose(found, expected, rtol=0, atol=bound(np.float32, length, v))


def test_threads_of_the_caller():
    """One session, runs from many threads; the bits do not depend on how many threads there are."""
    feed = {"q": random(1, np.float32, 2, 4, 200, 32), "k": random(2, np.float32, 2, 4, 200, 32), "v": random(3, np.float32, 2, 4, 200, 32)}
    made = attention(feed, is_causal=1)
    expected, = run(session(made, threads=1), feed)
    shared = session(made, threads=2)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for found, in pool.map(lambda _: run(shared, feed), range(40)):
            np.testing.assert_array_equal(found, expected)


def test_left_alone():
    """A model with other operators: only attention is libattn's, and the results are the runtime's."""
    feed = {"q": random(1, np.float32, 1, 2, 5, 8), "k": random(2, np.float32, 1, 2, 7, 8), "v": random(3, np.float32, 1, 2, 7, 8)}
    nodes = [
        onnx.helper.make_node("Neg", ["q"], ["minus"]), onnx.helper.make_node("Attention", ["minus", "k", "v"], ["o"]),
        onnx.helper.make_node("Relu", ["o"], ["y"]),
    ]
    made = model(nodes, feed, {"y": (np.float32, 4)})
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    mixed = session(made, strict=False, options=options)
    taken = {node.op_type: part.ep_name for part in mixed.get_provider_graph_assignment_info() for node in part.get_nodes()}
    assert taken == {"Neg": "CPUExecutionProvider", "Attention": "LibattnExecutionProvider", "Relu": "CPUExecutionProvider"}
    np.testing.assert_allclose(run(mixed, feed)[0], stock(made, feed)[0], rtol=0, atol=1e-6)


# ---- errors ---------------------------------------------------------------------------------------------------------------


WRONG = {
    "Q and K": (((1, 2, 3, 8), (1, 2, 4, 7), (1, 2, 4, 7)), {}, "K as [batch, heads, tokens, dim] has the shape [1, 2, 4, 7]; it must be [1, 2, 4, 8]"),
    "K and V": (((1, 2, 3, 8), (1, 2, 4, 8), (1, 2, 5, 8)), {}, "V as [batch, heads, tokens, dim] has the shape [1, 2, 5, 8]; it must be [1, 2, 4, 8]"),
    "heads": (((1, 3, 3, 8), (1, 2, 4, 8), (1, 2, 4, 8)), {}, "heads_q (3) is not a multiple of heads_kv (2)"),
    "ranks": (((1, 3, 16), (1, 2, 4, 8), (1, 2, 4, 8)), {"q_num_heads": 2, "kv_num_heads": 2}, "Q, K and V have different numbers of axes"),
    "hidden": (((1, 3, 15), (1, 4, 16), (1, 4, 16)), {"q_num_heads": 2, "kv_num_heads": 2}, "the last axis of Q (15) is not a multiple of its 2 heads"),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_sizes(what):
    shapes, attributes, sentence = WRONG[what]
    feed = {name: random(1, np.float32, *shape) for name, shape in zip("qkv", shapes)}
    made = session(attention(feed, fixed=False, **attributes))
    with pytest.raises(Exception, match=re.escape(sentence)) as caught:
        made.run(None, feed)
    assert type(caught.value).__name__ == "InvalidArgument"
    if "heads" not in what and what != "ranks":
        return
    right = {name: random(1, np.float32, 1, 2, 4, 8) for name in "qkv"}  # a session outlives its errors
    if feed["q"].ndim == 4:
        made.run(None, right)


def test_three_axes_without_a_number_of_heads():
    """The runtime notices this itself, unless it does not know how many axes there are."""
    feed = {name: random(1, np.float32, 1, 4, 16) for name in "qkv"}
    model = attention({name: random(1, np.float32, 1, 2, 4, 8) for name in "qkv"}, fixed=False)
    for one in (*model.graph.input, *model.graph.output):
        one.type.tensor_type.ClearField("shape")
    with pytest.raises(Exception, match="Q has 3 axes, and the node does not say how many heads it has"):
        session(model).run(None, feed)


def test_wrong_masks_and_lengths():
    feed = {name: random(1, np.float32, 1, 2, 4, 8) for name in "qkv"}
    with pytest.raises(Exception, match=re.escape("axis 0 of attn_mask has the size 3; it must be 4 or 1")):
        session(attention(feed | {"mask": random(1, np.float32, 3, 4)}, fixed=False)).run(None, feed | {"mask": random(1, np.float32, 3, 4)})
    feed["lengths"] = np.array([5])
    with pytest.raises(Exception, match=re.escape("lengths_kv[0] (5) is not between 0 and 4")):
        session(attention(feed, fixed=False)).run(None, feed)
    feed["lengths"] = np.array([1, 2])
    with pytest.raises(Exception, match=re.escape("nonpad_kv_seqlen has the shape [2]; it must be [1]")):
        session(attention(feed, fixed=False)).run(None, feed)


def test_sentences_have_the_names_of_attributes():
    feed = {name: random(1, np.float32, 1, 2, 4, 8) for name in "qkv"}
    with pytest.raises(Exception, match=r"[^.]\bscale is inf; it must be finite"):
        session(attention(feed, scale=float("inf"))).run(None, feed)


def test_refused():
    """Nodes that are left to the runtime, with their reasons."""
    feed = {name: random(1, np.float32, 1, 2, 4, 8) for name in "qkv"}
    for attributes, reason in (
        ({"scale": -1.0}, "scale is negative"), ({"softcap": -1.0}, "softcap is negative"), ({"softmax_precision": 11}, "softmax_precision is double"),
    ):
        before = libattn.onnx.stats()["onnxruntime"]
        with pytest.raises(Exception, match="ONNXRuntimeError"):
            session(attention(feed, **attributes))
        assert left_since(before) == {f"Attention: {reason}"}


@pytest.mark.parametrize("threads", [0, 1025, -1])
def test_wrong_threads(threads):
    with pytest.raises(ValueError, match=f"threads is {threads}; it must be 1 to 1024"):
        libattn.onnx.session_options(threads=threads)


@pytest.mark.parametrize("threads", [2.5, "2"])
def test_threads_that_are_no_integer(threads):
    with pytest.raises(TypeError, match=f"threads is of type {type(threads).__name__}; it must be an integer"):
        libattn.onnx.session_options(threads=threads)


def test_wrong_option():
    libattn.onnx.register()
    options = onnxruntime.SessionOptions()
    devices = [d for d in onnxruntime.get_ep_devices() if d.ep_name == "LibattnExecutionProvider"]
    options.add_provider_for_devices(devices[:1], {"threads": "many"})
    feed = {name: random(1, np.float32, 1, 2, 4, 8) for name in "qkv"}
    with pytest.raises(Exception, match="the option threads of LibattnExecutionProvider is 'many'; it must be a number from 1 to 1024"):
        onnxruntime.InferenceSession(attention(feed).SerializeToString(), options)


def test_old_runtime(monkeypatch):
    monkeypatch.setattr(onnxruntime, "__version__", "1.23.2")
    with pytest.raises(NotImplementedError, match="onnxruntime is 1.23.2; libattn.onnx needs 1.24 or newer"):
        libattn.onnx.session_options()


def test_options_are_kept():
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    assert libattn.onnx.session_options(options) is options and options.intra_op_num_threads == 2
    assert libattn.onnx.session_options().has_providers()


def test_reset():
    feed = {name: random(1, np.float32, 1, 2, 4, 8) for name in "qkv"}
    run(session(attention(feed)), feed)
    assert libattn.onnx.stats(reset=True)["libattn"]["Attention"]
    assert libattn.onnx.stats() == {"libattn": {}, "onnxruntime": {}}


# ---- memory ---------------------------------------------------------------------------------------------------------------


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="there is no /proc/self/statm")
def test_memory_is_constant():
    """Sessions, runs and errors: what they take comes back."""
    feed = {name: random(1, np.float32, 1, 2, 64, 8) for name in "qkv"} | {"past_k": random(1, np.float32, 1, 2, 64, 8), "past_v": random(1, np.float32, 1, 2, 64, 8)}
    made = attention(feed, fixed=False, is_causal=1).SerializeToString()
    wrong = feed | {"past_v": random(1, np.float32, 1, 2, 63, 8)}

    def round():
        for _ in range(5):
            made_now = session(made)
            for _ in range(40):
                run(made_now, feed)
            with pytest.raises(Exception, match="different lengths"):
                run(made_now, wrong)

    for _ in range(4):
        round()
    before = resident()
    for _ in range(12):
        round()
    assert resident() - before < 3 * 2**20
