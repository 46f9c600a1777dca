# SPDX-License-Identifier: MIT
"""libattn.onnx: MultiHeadAttention and GroupQueryAttention against the runtime's own kernels, which are for float on a CPU."""
import itertools
import json
import pathlib
import re

import numpy as np
import pytest

for name in ("onnx", "onnxruntime", "ml_dtypes"):
    pytest.importorskip(name)

import onnx  # noqa: E402
import onnxruntime  # noqa: E402

import libattn.onnx  # noqa: E402
from onnx_models import BFLOAT16, definition, heads, model, run, session, stock  # noqa: E402

GROUPED = ["query", "key", "value", "past_key", "past_value", "seqlens_k", "total_sequence_length", "cos_cache", "sin_cache", "position_ids", "attention_bias", "head_sink"]
MULTIHEAD = ["query", "key", "value", "bias", "key_padding_mask", "attention_bias", "past_key", "past_value"]
ATOL = 4e-6


class Random:
    def __init__(self, seed):
        self.generator = np.random.default_rng(seed)

    def __call__(self, *shape):
        return self.generator.standard_normal(shape).astype(np.float32)


def node(kind, names, feed, outputs, fixed=False, **attributes):
    """A model of one node: the inputs that feed has, and these outputs."""
    last = max(names.index(name) for name in feed)
    inputs = [name if name in feed else "" for name in names[: last + 1]]
    made = onnx.helper.make_node(kind, inputs, list(outputs), domain="com.microsoft", **attributes)
    dtype = feed["query"].dtype
    return model(made, feed, {name: (dtype, 3 if name == "o" else 4) for name in outputs if name}, fixed=fixed)


def left(made, reason):
    """The node is left to the runtime, for this reason."""
    before = libattn.onnx.stats()["onnxruntime"]
    with pytest.raises(Exception, match="ONNXRuntimeError"):
        session(made)
    now = libattn.onnx.stats()["onnxruntime"]
    assert {why for why, count in now.items() if count != before.get(why, 0)} == {reason}


# ---- GroupQueryAttention ------------------------------------------------------------------------------------------------------


def grouped(*, B=2, H=4, G=2, D=16, S=5, P=0, lengths=None, rotary=0, packed=False, capacity=0, bias=(), sink=False, positions=False, seed=0, **attributes):
    """(model, feed). P: past tokens of the longest sequence; lengths: of each with the new ones; capacity: of the caches given."""
    x = Random(seed)
    total = P + S
    feed = {"query": x(B, S, (H + 2 * G) * D)} if packed else {"query": x(B, S, H * D), "key": x(B, S, G * D), "value": x(B, S, G * D)}
    if P or capacity:
        feed |= {"past_key": x(B, G, capacity or P, D), "past_value": x(B, G, capacity or P, D)}
    feed |= {"seqlens_k": np.array(lengths or [total] * B, np.int32) - 1, "total_sequence_length": np.array(total, np.int32)}
    if rotary:
        angles = x(total + 3, rotary // 2)
        feed |= {"cos_cache": np.cos(angles), "sin_cache": np.sin(angles)}
        attributes["do_rotary"] = 1
    if positions:
        feed["position_ids"] = np.tile(np.arange(S) + 1, (B, 1)).astype(np.int64)
    if bias:
        feed["attention_bias"] = x(*bias, S, total)
    if sink:
        feed["head_sink"] = x(H)
    return node("GroupQueryAttention", GROUPED, feed, ("o", "present_key", "present_value"), num_heads=H, kv_num_heads=G, **attributes), feed


def real_rows(feed, lengths):
    """Which rows of a first prompt are not padding: the others are not defined."""
    queries, first = feed["query"].shape[1], feed["query"].shape[1] == feed["total_sequence_length"]
    return np.arange(queries) < np.asarray(lengths or [queries] * len(feed["query"]))[:, None] if first else np.ones(feed["query"].shape[:2], bool)


SAME = [
    {}, {"packed": True}, {"lengths": [5, 3]}, {"P": 7, "S": 1}, {"P": 7, "S": 1, "lengths": [8, 4]}, {"B": 1, "P": 6, "S": 3}, {"H": 4, "G": 4}, {"G": 1},
    {"softcap": 2.0}, {"scale": 0.1}, {"scale": -0.3}, {"smooth_softmax": 1}, {"sink": True}, {"sink": True, "smooth_softmax": 1}, {"causal": 0}, {"causal": 0, "lengths": [5, 2]},
    {"bias": (1, 1)}, {"bias": (2, 4), "lengths": [5, 3]}, {"bias": (2, 1), "softcap": 2.0}, {"B": 1, "P": 4, "S": 2, "bias": (1, 4)},
    {"local_window_size": 1}, {"local_window_size": 3}, {"local_window_size": 3, "P": 8, "S": 1, "lengths": [9, 3]}, {"local_window_size": 3, "B": 1, "P": 6, "S": 3},
    {"rotary": 16}, {"rotary": 16, "rotary_interleaved": 1}, {"D": 64, "rotary": 32}, {"D": 64, "rotary": 32, "rotary_interleaved": 1},
    {"rotary": 16, "P": 7, "S": 1, "lengths": [8, 4]}, {"rotary": 16, "packed": True, "B": 1, "P": 4, "S": 2}, {"rotary": 16, "lengths": [5, 2]},
    {"rotary": 16, "positions": True}, {"rotary": 16, "positions": True, "P": 5, "S": 1}, {"rotary": 16, "positions": True, "B": 1, "P": 5, "S": 2},
    {"capacity": 20, "P": 7, "S": 1, "lengths": [8, 5]}, {"capacity": 20}, {"capacity": 20, "rotary": 16, "P": 3, "S": 2, "B": 1},
]


@pytest.mark.parametrize("options", SAME, ids=str)
def test_grouped(options):
    made, feed = grouped(**options)
    found, expected = run(session(made), feed), stock(made, feed)
    real = real_rows(feed, options.get("lengths"))
    np.testing.assert_allclose(found[0][real], expected[0][real], rtol=0, atol=ATOL)
    assert np.isfinite(found[0]).all()
    for f, e in zip(found[1:], expected[1:], strict=True):
        np.testing.assert_allclose(f, e, rtol=0, atol=1e-6)


@pytest.mark.parametrize("lengths", [[9, 9], [9, 5]])
def test_grouped_batch_of_chunks(lengths):
    """Several tokens after a past, for sequences of different lengths: each as if alone."""
    made, feed = grouped(P=6, S=3, lengths=lengths, rotary=16)
    found = run(session(made), feed)
    for b, length in enumerate(lengths):
        one, alone = grouped(B=1, P=length - 3, S=3, rotary=16)
        for name in ("query", "key", "value"):
            alone[name] = feed[name][b : b + 1]
        for name in ("past_key", "past_value"):
            alone[name] = feed[name][b : b + 1, :, : length - 3]
        alone |= {name: feed[name] for name in ("cos_cache", "sin_cache")}
        expected = stock(one, alone)
        np.testing.assert_allclose(found[0][b], expected[0][0], rtol=0, atol=ATOL)
        np.testing.assert_allclose(found[1][b, :, :length], expected[1][0], rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float16, BFLOAT16], ids=str)
@pytest.mark.parametrize("options", [{"rotary": 16, "sink": True, "lengths": [5, 3]}, {"P": 7, "S": 1, "bias": (2, 4), "packed": True}], ids=str)
def test_grouped_halves(dtype, options):
    """As float, within the rounding of the type."""
    _, feed = grouped(**options)
    feed = {name: x.astype(dtype) if x.dtype == np.float32 else x for name, x in feed.items()}
    attributes = {"num_heads": 4, "kv_num_heads": 2, "do_rotary": int("rotary" in options)}
    made = node("GroupQueryAttention", GROUPED, feed, ("o", "present_key", "present_value"), **attributes)
    wide = {name: x.astype(np.float32) if x.dtype == dtype else x for name, x in feed.items()}
    found = run(session(made), feed)
    expected = run(session(node("GroupQueryAttention", GROUPED, wide, ("o", "present_key", "present_value"), **attributes)), wide)
    real = real_rows(feed, options.get("lengths"))
    for f, e in ((found[0][real], expected[0][real]), *zip(found[1:], expected[1:])):
        assert f.dtype == dtype
        np.testing.assert_allclose(f.astype(float), e, rtol=0, atol=float(2.0 ** (-9 if dtype == np.float16 else -6)))


def test_grouped_in_the_same_memory():
    """Past and present are one buffer, token after token, as onnxruntime-genai has them."""
    made, first = grouped(capacity=12, S=3, rotary=16)
    step, _ = grouped(capacity=12, P=3, S=1, rotary=16)
    x = Random(7)
    run_first, run_step = session(made), session(step)
    cosines, sines = np.cos(angles := x(16, 8)), np.sin(angles)
    key, value = (onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros((2, 2, 12, 16), np.float32)) for _ in range(2))
    everything = {name: [first[name]] for name in ("query", "key", "value")}
    results = []
    for total in range(3, 8):
        feed = {name: first[name] if total == 3 else x(2, 1, first[name].shape[2]) for name in ("query", "key", "value")}
        feed |= {"seqlens_k": np.full(2, total - 1, np.int32), "total_sequence_length": np.array(total, np.int32), "cos_cache": cosines, "sin_cache": sines}
        if total > 3:
            for name in everything:
                everything[name].append(feed[name])
        made_now = run_first if total == 3 else run_step
        binding = made_now.io_binding()
        for name, array in feed.items():
            binding.bind_cpu_input(name, array)
        for name, buffer in (("key", key), ("value", value)):
            binding.bind_ortvalue_input(f"past_{name}", buffer)
            binding.bind_ortvalue_output(f"present_{name}", buffer)
        binding.bind_output("o")
        made_now.run_with_iobinding(binding)
        results.append(binding.get_outputs()[-1].numpy())
    whole, feed = grouped(S=7, rotary=16)
    feed |= {name: np.concatenate(parts, 1) for name, parts in everything.items()} | {"cos_cache": cosines, "sin_cache": sines}
    expected = stock(whole, feed)
    np.testing.assert_allclose(np.concatenate(results, 1), expected[0], rtol=0, atol=ATOL)
    np.testing.assert_allclose(key.numpy()[:, :, :7], expected[1], rtol=0, atol=1e-6)
    assert not key.numpy()[:, :, 7:].any()


def test_grouped_without_present():
    made, feed = grouped(P=4, S=1, B=1)
    node_only = made.graph.node[0]
    del node_only.output[1:]
    del made.graph.output[1:]
    expected = stock(grouped(P=4, S=1, B=1)[0], feed)[0]
    try:
        made_now = session(made)
    except Exception as error:  # the schema may demand them
        pytest.skip(f"the runtime rejects such a node: {str(error).splitlines()[0][:80]}")
    np.testing.assert_allclose(run(made_now, feed)[0], expected, rtol=0, atol=ATOL)


WRONG = {
    "a length": (lambda f: f | {"seqlens_k": np.array([4, 5], np.int32)}, {}, "seqlens_k[1] (5) is not between 0 and 4"),
    "a length below the new tokens": (lambda f: f | {"seqlens_k": np.array([8, 1], np.int32)}, {"P": 6, "S": 3}, "seqlens_k[1] (1) is not between 2 and 8"),
    "no past": (
        lambda f: f | {"total_sequence_length": np.array(9, np.int32), "seqlens_k": np.array([8, 8], np.int32)}, {"P": 2, "S": 3},
        "seqlens_k[0] (8) asks for 6 past tokens, and past_key has 2",
    ),
    "positions": (lambda f: f | {"cos_cache": f["cos_cache"][:3], "sin_cache": f["sin_cache"][:3]}, {"rotary": 16}, "position 3 is not one of the 3 of cos_cache"),
    "tables": (lambda f: f | {"sin_cache": f["sin_cache"][:, :4]}, {"rotary": 16}, "sin_cache has the shape [8, 4]; it must be [8, 8]"),
    "values": (lambda f: f | {"value": f["value"][:, :4]}, {}, "value as [batch, heads, tokens, dim] has the shape [2, 2, 4, 16]; it must be [2, 2, 5, 16]"),
    "a past of other heads": (lambda f: f | {"past_key": f["past_key"][:, :1]}, {"P": 6, "S": 3}, "past_key has the shape [2, 1, 6, 16]; it must be [2, 2, 6, 16]"),
    "a bias": (lambda f: f | {"attention_bias": f["attention_bias"][..., :4]}, {"bias": (1, 1)}, "axis 3 of attention_bias has the size 4; it must be 5 or 1"),
    "a sink": (lambda f: f | {"head_sink": f["head_sink"][:3]}, {"sink": True}, "head_sink has the shape [3]; it must be [4]"),
}


@pytest.mark.parametrize("what", WRONG)
def test_grouped_wrong(what):
    change, options, sentence = WRONG[what]
    made, feed = grouped(**options)
    with pytest.raises(Exception, match=re.escape(sentence)):
        run(session(made), change(feed))


@pytest.mark.parametrize("attributes, reason", [
    ({"local_window_size": 0}, "local_window_size is 0"), ({"k_quant_type": "PER_TENSOR"}, "a quantised cache"), ({"softcap": -1.0}, "softcap is negative"),
    ({"do_rotary": 1}, "do_rotary without cos_cache and sin_cache"), ({"sliding_window_cache": 1}, "sliding_window_cache"), ({"qk_output": 1}, "the output output_qk"),
])
def test_grouped_left(attributes, reason):
    left(grouped(**attributes)[0], f"GroupQueryAttention: {reason}")


# ---- MultiHeadAttention -------------------------------------------------------------------------------------------------------


def multihead(*, B=2, H=4, D=8, E=6, S=5, L=7, P=0, packed=0, wide=False, bias=False, padding=None, added=(), present=False, seed=0, **attributes):
    """(model, feed). packed: 3 for queries, keys and values in one, 2 for keys and values; wide: keys with an axis of heads."""
    x = Random(seed)
    if packed == 3:
        feed, L, E = {"query": x(B, S, H, 3, D)}, S, D
    elif packed == 2:
        feed, E = {"query": x(B, S, H * D), "key": x(B, L, H, 2, D)}, D
    elif wide:
        feed = {"query": x(B, S, H * D), "key": x(B, H, L, D), "value": x(B, H, L, E)}
    else:
        feed = {"query": x(B, S, H * D), "key": x(B, L, H * D), "value": x(B, L, H * E)}
    if bias:
        feed["bias"] = x(H * (2 * D + E))
    if padding is not None:
        feed["key_padding_mask"] = np.asarray(padding, np.int32)
    if added:
        feed["attention_bias"] = x(*added, S, L + P)
    if P:
        feed |= {"past_key": x(B, H, P, D), "past_value": x(B, H, P, E)}
    outputs = ("o", "present_key", "present_value") if present else ("o",)
    return node("MultiHeadAttention", MULTIHEAD, feed, outputs, num_heads=H, **attributes), feed


RIGHT, LEFT, NONE = [[1] * 7, [1] * 4 + [0] * 3], [[0, 0, 1, 1, 1, 1, 1], [1] * 7], [[0] * 7, [1] * 5 + [0] * 2]
FIRST = [0, 3]
EACH = (np.random.default_rng(5).random((2, 5, 7)) > 0.4).astype(np.int32)
MULTI = [
    {}, {"wide": True, "E": 8}, {"scale": 0.2}, {"bias": True}, {"S": 1}, {"S": 7, "unidirectional": 1}, {"unidirectional": 1}, {"L": 3, "unidirectional": 1}, {"S": 1, "unidirectional": 1},
    {"padding": RIGHT}, {"padding": LEFT}, {"padding": NONE}, {"padding": EACH}, {"padding": [7, 3]}, {"padding": FIRST}, {"padding": RIGHT, "S": 7, "unidirectional": 1}, {"padding": LEFT, "S": 7, "unidirectional": 1},
    {"padding": NONE, "mask_filter_value": -3.0}, {"padding": LEFT, "mask_filter_value": -2.0},
    {"added": (1, 1)}, {"added": (2, 4)}, {"added": (1, 4)}, {"added": (2, 1), "padding": RIGHT}, {"added": (1, 4), "padding": LEFT}, {"added": (2, 4), "padding": EACH}, {"added": (1, 1), "padding": NONE},
    {"present": True}, {"P": 3, "present": True, "E": 8}, {"P": 3, "S": 7, "present": True, "E": 8, "unidirectional": 1}, {"P": 3, "S": 1, "L": 1, "present": True, "E": 8},
    {"P": 2, "L": 5, "present": True, "E": 8, "padding": RIGHT}, {"P": 2, "L": 5, "present": True, "E": 8, "padding": LEFT, "unidirectional": 1}, {"P": 3, "present": True, "E": 8, "bias": True},
]


@pytest.mark.parametrize("options", MULTI, ids=str)
def test_multihead(options):
    made, feed = multihead(**options)
    for f, e in zip(run(session(made), feed), stock(made, feed), strict=True):
        assert f.shape == e.shape
        # Where all keys are padding, 10000 is taken from every score, whose rounding is then that of 10000.
        np.testing.assert_allclose(f, e, rtol=0, atol=2e-3 if any(options.get("padding") is one for one in (NONE, FIRST)) else ATOL)


@pytest.mark.parametrize("packed", [2, 3])
@pytest.mark.parametrize("more", [{}, {"bias": True}, {"unidirectional": 1}], ids=str)
def test_multihead_packed(packed, more):
    """As unpacked; the runtime has no such kernel for CPUs."""
    made, feed = multihead(packed=packed, **more)
    parts = {name: x for name, x in feed.items() if x.ndim != 5}
    packed_in = feed["query" if packed == 3 else "key"]
    for i, name in enumerate(("query", "key", "value")[3 - packed :]):
        parts[name] = np.ascontiguousarray(packed_in[:, :, :, i]).reshape(*packed_in.shape[:2], -1)
    attributes = {name: n for name, n in more.items() if name != "bias"}
    expected = stock(node("MultiHeadAttention", MULTIHEAD, parts, ("o",), num_heads=4, **attributes), parts)
    np.testing.assert_allclose(run(session(made), feed)[0], expected[0], rtol=0, atol=ATOL)


@pytest.mark.parametrize("dtype", [np.float16, BFLOAT16], ids=str)
@pytest.mark.parametrize("added, padding", list(itertools.product([False, True], repeat=2)))
def test_multihead_types(dtype, added, padding):
    made, feed = multihead(added=(2, 1) if added else (), padding=LEFT if padding else None)
    feed = {name: x.astype(dtype) if x.dtype == np.float32 else x for name, x in feed.items()}
    made = node("MultiHeadAttention", MULTIHEAD, feed, ("o",), num_heads=4)
    found, = run(session(made), feed)
    bias = feed["attention_bias"].astype(float) if added else np.zeros((1, 1, 1, 1))
    visible = np.array(LEFT, bool)[:, None, None] if padding else True
    expected, _ = definition(*(heads(feed[name].astype(float), 4) for name in ("query", "key", "value")), bias=bias, visible=visible)
    np.testing.assert_allclose(heads(found, 4).astype(float), expected, rtol=0, atol=float(2.0 ** (-9 if dtype == np.float16 else -6)))


MULTI_WRONG = {
    "keys": (lambda f: f | {"key": f["key"][..., :24]}, {}, "key as [batch, heads, tokens, dim] has the shape [2, 4, 7, 6]; it must be [2, 4, 7, 8]"),
    "values": (lambda f: f | {"value": f["value"][:, :4]}, {}, "value as [batch, heads, tokens, dim] has the shape [2, 4, 4, 6]; it must be [2, 4, 7, 6]"),
    "a bias": (lambda f: f | {"bias": f["bias"][:5]}, {"bias": True}, "bias has the shape [5]; it must be [88]"),
    "padding": (lambda f: f | {"key_padding_mask": f["key_padding_mask"][:, :6]}, {"padding": RIGHT}, "key_padding_mask has the shape [2, 6]; it must be [2, 7]"),
    "added": (lambda f: f | {"attention_bias": f["attention_bias"][:, :, :4]}, {"added": (2, 1)}, "axis 2 of attention_bias has the size 4; it must be 5 or 1"),
    "past": (lambda f: f | {"past_value": f["past_value"][:, :, :2]}, {"P": 3}, "past_key and past_value have different lengths"),
}


@pytest.mark.parametrize("what", MULTI_WRONG)
def test_multihead_wrong(what):
    change, options, sentence = MULTI_WRONG[what]
    made, feed = multihead(**options)
    with pytest.raises(Exception, match=re.escape(sentence)):
        run(session(made), change(feed))


def test_multihead_left():
    made, feed = multihead()
    made.graph.node[0].output.extend(["", "", "scores"])
    made.graph.output.append(onnx.helper.make_tensor_value_info("scores", 1, None))
    left(made, "MultiHeadAttention: the output qk")
    made, feed = multihead(wide=True, E=8)
    feed["bias"] = np.zeros(4 * 24, np.float32)
    left(node("MultiHeadAttention", MULTIHEAD, feed, ("o",), num_heads=4), "MultiHeadAttention: a bias with keys of 4 axes")


# ---- LinearAttention ----------------------------------------------------------------------------------------------------------

LINEAR = ["query", "key", "value", "past_state", "decay", "beta"]


def linear(rule, *, B=2, H=4, G=2, D=8, E=6, T=70, each=False, one=False, past=True, dtype=np.float32, state=None, seed=0, **attributes):
    """(model, feed). each: a decay for each channel; one: a beta for all heads; state: the type of the states."""
    x = Random(seed)
    key = x(B, T, G, D)
    feed = {"query": x(B, T, H * D), "key": (key / np.linalg.norm(key, axis=-1, keepdims=True)).reshape(B, T, -1), "value": x(B, T, G * E)}
    if past:
        feed["past_state"] = x(B, G, D, E).astype(state or dtype)
    if "gated" in rule:
        feed["decay"] = -np.abs(x(B, T, G * D if each else G)) / 8
    if "delta" in rule:
        feed["beta"] = 1 / (1 + np.exp(-x(B, T, 1 if one else G)))
    feed = {name: array if name == "past_state" else array.astype(dtype) for name, array in feed.items()}
    last = max(LINEAR.index(name) for name in feed)
    made = onnx.helper.make_node("LinearAttention", [name if name in feed else "" for name in LINEAR[: last + 1]], ["o", "state"],
                                 domain="com.microsoft", q_num_heads=H, kv_num_heads=G, update_rule=rule, **attributes)
    return model(made, feed, {"o": (dtype, 3), "state": (state or dtype, 4)}, fixed=False), feed


@pytest.mark.parametrize("T", [1, 70])
@pytest.mark.parametrize("options", [{}, {"past": False}, {"scale": 0.3}, {"each": True}, {"one": True}, {"H": 2}, {"G": 1}], ids=str)
@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
def test_linear(rule, options, T):
    made, feed = linear(rule, T=T, **options)
    for f, e in zip(run(session(made), feed), stock(made, feed), strict=True):
        np.testing.assert_allclose(f, e, rtol=0, atol=1e-5 * max(1, np.abs(e).max()))


@pytest.mark.parametrize("dtype, state", [(np.float16, np.float16), (np.float16, np.float32), (BFLOAT16, BFLOAT16), (np.float32, np.float16)], ids=str)
def test_linear_types(dtype, state):
    """As float, within the rounding of the types of results and states."""
    made, feed = linear("gated_delta", dtype=dtype, state=state)
    wide, _ = linear("gated_delta")
    found = run(session(made), feed)
    expected = run(session(wide), {name: x.astype(np.float32) for name, x in feed.items()})
    for f, e, kind in zip(found, expected, (dtype, state)):
        assert f.dtype == kind
        np.testing.assert_allclose(f.astype(float), e, rtol=0, atol=np.abs(e).max() * {np.float32: 1e-6, np.float16: 2.0**-11, BFLOAT16: 2.0**-8}[kind])


def test_linear_keeps_plans():
    """More shapes than are kept, with and without a state, twice in one session: each result is that of its own plan."""
    made, feed = linear("gated", T=40)
    now, without = session(made), session(linear("gated", past=False)[0])
    for T in (*range(1, 41), *range(40, 0, -1)):
        part = {name: x if name == "past_state" else np.ascontiguousarray(x[:, :T]) for name, x in feed.items()}
        alone = {name: x for name, x in part.items() if name != "past_state"}
        for f, e in zip(run(now, part), run(without, {**alone}), strict=True):
            assert f.shape == e.shape and (f != e).any()
        cut = T // 2
        if cut:  # the first tokens, and the others from the state that these leave
            o, state = run(now, {name: x if name == "past_state" else np.ascontiguousarray(x[:, :cut]) for name, x in part.items()})
            rest = {name: state if name == "past_state" else np.ascontiguousarray(x[:, cut:]) for name, x in part.items()}
            np.testing.assert_allclose(np.concatenate([o, run(now, rest)[0]], 1), run(now, part)[0], rtol=0, atol=1e-5)


def test_linear_wrong():
    made, feed = linear("gated_delta")
    now = session(made)
    for name, cut, sentence in (
        ("key", np.s_[:, :9], "key as [batch, heads, tokens, dim] has the shape [2, 2, 9, 8]; it must be [2, 2, 70, 8]"),
        ("past_state", np.s_[:, :1], "past_state has the shape [2, 1, 8, 6]; it must be [2, 2, 8, 6]"),
        ("beta", np.s_[:, :9], "beta has the shape [2, 9, 2]; it must be [2, 70, 2]"),
        ("decay", np.s_[:1], "decay has the shape [1, 70, 2]; it must be [2, 70, 2]"),
    ):
        with pytest.raises(Exception, match=re.escape(sentence)):
            run(now, feed | {name: np.ascontiguousarray(feed[name][cut])})
    run(now, feed)


def test_linear_left():
    left(linear("gated", state_window=2)[0], "LinearAttention: state_window")
    left(linear("linear", H=3)[0], "LinearAttention: q_num_heads is not a multiple of kv_num_heads")


# ---- cases of the runtime's own tests -----------------------------------------------------------------------------------------

SUITES = pathlib.Path(__file__).resolve().parents[2].parent / "shared" / "conformance"
ROLES = {"GroupQueryAttention": GROUPED, "MultiHeadAttention": MULTIHEAD}
NOT_TAKEN = {"AttentionCutlassRelPosBias_float16": "key_padding_mask has the shape [5]; it must be [1]"}  # starts and ends, for a GPU


def suite(name):
    """[(case, tensors by role)] of a folder, if it is there."""
    folder = SUITES / name
    if not (folder / "manifest.json").exists():
        return
    for case in json.loads((folder / "manifest.json").read_text())["cases"]:
        yield pytest.param(folder, case, id=f"{name}: {case['name']}")


@pytest.mark.skipif(not SUITES.exists(), reason="there are no suites beside the repository")
@pytest.mark.parametrize("folder, case", list(suite("ort_multihead_attention")) or [(None, None)])
def test_suite(folder, case):
    from libattn import files

    tensors = files.load(folder / case["file"])
    feed = {name: np.asarray(tensors[f"in.{name}"]) for name in case["inputs"]}
    outputs = ["o" if name == "output" else name for name in case["outputs"]]
    made = node("MultiHeadAttention", MULTIHEAD, feed, outputs, **case["params"] | {"mask_filter_value": float(case["params"]["mask_filter_value"])})
    if case["name"] in NOT_TAKEN:
        with pytest.raises(Exception, match=re.escape(NOT_TAKEN[case["name"]])):
            run(session(made), feed)
        return
    for found, name in zip(run(session(made), feed), case["outputs"], strict=True):
        np.testing.assert_allclose(found.astype(float), np.asarray(tensors[f"out.{name}"], float), rtol=0, atol=case["tolerance"]["abs"])
