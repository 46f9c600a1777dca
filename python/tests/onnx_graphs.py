# SPDX-License-Identifier: MIT
"""What the tests of libattn.onnx.fuse share: graphs, node by node, and the comparison of a graph with its fused one."""
import collections

import numpy as np
import onnx
from onnx import numpy_helper

import libattn.onnx
from onnx_models import TYPES, run, session, stock

B, H, S, T, D, E = 3, 4, 5, 7, 8, 6


def random(seed, *shape, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


class Builder:
    """A graph, node by node: b("MatMul", x, y) is the name of the result; arrays become constants."""

    def __init__(self, **feed):
        self.feed, self.nodes, self.constants = feed, [], []

    def __call__(self, kind, *inputs, outputs=1, **attributes):
        names = [x if isinstance(x, str) else self.constant(x) for x in inputs]
        found = [f"{kind.lower()}{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(onnx.helper.make_node(kind, names, found, **attributes))
        return found[0] if outputs == 1 else found

    def constant(self, x, kind=np.float32):
        name = f"constant{len(self.constants)}"
        array = np.asarray(x, None if isinstance(x, np.ndarray) else np.int64 if isinstance(x, (list, int)) else kind)
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def model(self, *results, opset=23, symbolic=False, types=None):
        def info(name, x):
            names = {B: "batch", S: "queries", T: "keys"}
            return onnx.helper.make_tensor_value_info(name, TYPES[x.dtype], [names.get(d, d) if symbolic else d for d in x.shape])

        kinds = types or [1] * len(results)
        graph = onnx.helper.make_graph(
            self.nodes, "exported", [info(name, x) for name, x in self.feed.items()],
            [onnx.helper.make_tensor_value_info(name, kind, None) for name, kind in zip(results, kinds)], self.constants,
        )
        return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=10)


def heads(**more):
    return {"q": random(1, B, H, S, D), "k": random(2, B, H, T, D), "v": random(3, B, H, T, E), **more}


def kinds(model):
    return collections.Counter(node.op_type for node in model.graph.node)


def check(model, feed, attentions=1, *, atol=2e-6, strict=None):
    """Fused, it has this many nodes Attention, which libattn computes, and its results are those of the model."""
    kept = model.SerializeToString()
    fused = libattn.onnx.fuse(model)
    assert model.SerializeToString() == kept
    onnx.checker.check_model(fused, full_check=True)
    found = kinds(fused)
    assert found["Attention"] == attentions, found
    before = libattn.onnx.stats()["libattn"].get("Attention", 0)
    if strict is None:
        strict = set(found) <= {"Attention"}
    results = run(session(fused, strict=strict), feed)
    assert libattn.onnx.stats()["libattn"].get("Attention", 0) - before == attentions
    for f, e in zip(results, stock(model, feed), strict=True):
        assert f.dtype == e.dtype
        np.testing.assert_allclose(f.astype(float), e.astype(float), rtol=0, atol=atol)
    return fused


ROOT = float(np.sqrt(D))


def scaled_product(b, how):
    if how == "div":
        return b("Div", b("MatMul", "q", b("Transpose", "k", perm=[0, 1, 3, 2])), ROOT)
    if how == "mul":
        return b("Mul", 0.25, b("MatMul", "q", b("Transpose", "k", perm=[0, 1, 3, 2])))
    if how == "q":
        return b("MatMul", b("Div", "q", ROOT), b("Transpose", "k", perm=[0, 1, 3, 2]))
    if how == "both":
        return b("MatMul", b("Mul", "q", ROOT**-0.5), b("Mul", b("Transpose", "k", perm=[0, 1, 3, 2]), ROOT**-0.5))
    if how == "before transpose":
        return b("MatMul", b("Mul", "q", 0.5), b("Transpose", b("Mul", "k", 0.5), perm=[0, 1, 3, 2]))
    if how == "of the shape":  # as PyTorch exports F.scaled_dot_product_attention
        size = b("Cast", b("Slice", b("Shape", "q"), [-1], [2**60]), to=1)
        scale = b("Sqrt", b("Div", np.ones(1, np.float32), b("Sqrt", size)))
        return b("MatMul", b("Mul", "q", scale), b("Mul", b("Transpose", "k", perm=[0, 1, 3, 2]), scale))
    if how == "identity":
        return b("Identity", b("MatMul", b("Identity", "q"), b("Transpose", "k", perm=[0, 1, 3, 2])))
    raise AssertionError(how)
