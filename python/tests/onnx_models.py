# SPDX-License-Identifier: MIT
"""What the tests of libattn.onnx share: models of one node, sessions, values of every element type, attention by its definition."""
import ctypes

import ml_dtypes
import numpy as np
import onnx
import onnx.helper
import onnxruntime

import libattn.onnx

TYPES = {np.dtype(t): n for t, n in (
    (np.float32, 1), (np.int32, 6), (np.int64, 7), (np.bool_, 9), (np.float16, 10), (np.float64, 11), (ml_dtypes.bfloat16, 16),
)}
DTYPES = {number: dtype for dtype, number in TYPES.items()}
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def model(node, feed, outputs, *, opset=25, fixed=True):
    """A model of one node or a list of them. feed: arrays by name; outputs: name -> (type, rank)."""
    nodes = node if isinstance(node, list) else [node]

    def info(name, type, sizes):
        return onnx.helper.make_tensor_value_info(name, type, sizes)

    inputs = [info(name, TYPES[x.dtype], x.shape if fixed else [f"{name}{i}" for i in range(x.ndim)]) for name, x in feed.items()]
    found = [info(name, TYPES[np.dtype(t)], [f"{name}{i}" for i in range(rank)]) for name, (t, rank) in outputs.items()]
    graph = onnx.helper.make_graph(nodes, "graph", inputs, found)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset), onnx.helper.make_opsetid("com.microsoft", 1)], ir_version=10)


def session(made, *, strict=True, threads=2, options=None):
    """A session with the provider; strict: every node must be taken."""
    options = libattn.onnx.session_options(options, threads=threads)
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    if strict:
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    return onnxruntime.InferenceSession(made if isinstance(made, bytes) else made.SerializeToString(), options)


def stock(made, feed):
    """The runtime's own results."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    options.log_severity_level = 4
    return run(onnxruntime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"]), feed)


def _value(x):
    if x.dtype == BFLOAT16:
        return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(x.view(np.uint16), 16)
    return onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(x))


def _array(value):
    if value.element_type() != 16:
        return value.numpy()
    count = int(np.prod(value.shape()))
    raw = ctypes.string_at(value._ortvalue.data_ptr(), 2 * count) if count else b""
    return np.frombuffer(raw, BFLOAT16).reshape(value.shape())


def run(made, feed):
    """All outputs of a session, as arrays."""
    return [_array(value) for value in made.run_with_ort_values(None, {name: _value(x) for name, x in feed.items()})]


def heads(x, count):
    """[B, T, heads * D] as [B, heads, T, D]."""
    return x if x.ndim == 4 else x.reshape(*x.shape[:2], count, -1).swapaxes(1, 2)


def definition(q, k, v, *, scale=None, softcap=0, bias=None, visible=None, sink=None):
    """o of [B, Hq, S, Dv] and the weights, in double. bias: added; visible: broadcasts to [B, Hq, S, T]."""
    q, k, v = (np.asarray(x, float) for x in (q, k, v))
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], 1) for x in (k, v))
    s = q @ k.swapaxes(2, 3) * (q.shape[3] ** -0.5 if scale is None else scale)
    if softcap:
        s = softcap * np.tanh(s / softcap)
    if bias is not None:
        s = s + np.asarray(bias, float)
    if visible is not None:
        s = np.where(visible, s, -np.inf)
    most = s.max(-1, keepdims=True, initial=-np.inf)
    if sink is not None:
        most = np.maximum(most, np.asarray(sink, float)[:, None, None])
    w = np.exp(s - np.where(np.isinf(most), 0, most))
    total = w.sum(-1, keepdims=True)
    if sink is not None:
        total = total + np.exp(np.asarray(sink, float)[:, None, None] - most)
    w = w / np.where(total == 0, 1, total)
    return w @ v, w
