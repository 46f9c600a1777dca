# SPDX-License-Identifier: MIT
"""libattn.onnx.fuse: attention that PyTorch exported."""
import io

import numpy as np
import pytest

for name in ("onnx", "onnxruntime", "ml_dtypes"):
    pytest.importorskip(name)

import onnx  # noqa: E402

from onnx_graphs import B, check, heads, kinds, random, S, T  # noqa: E402
from onnx_models import run, session, stock  # noqa: E402


def exported(function, *inputs, opset=17, axes=True):
    torch = pytest.importorskip("torch")

    class Model(torch.nn.Module):
        def forward(self, *x):
            return function(*x)

    made = function.eval() if isinstance(function, torch.nn.Module) else Model()
    names = [f"x{i}" for i in range(len(inputs))]
    moving = {name: {0: "batch", x.ndim - 2: f"tokens_of_{name}"} for name, x in zip(names, inputs)}
    file = io.BytesIO()
    torch.onnx.export(made, inputs, file, dynamo=False, opset_version=opset, input_names=names, dynamic_axes=moving if axes else None)
    return onnx.load_from_string(file.getvalue()), {name: x.numpy() for name, x in zip(names, inputs)}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("axes", [False, True])
@pytest.mark.parametrize("what", ["plain", "causal", "bool", "float", "masked_fill", "repeat_kv", "upcast", "three axes"])
def test_exports_of_torch(what, axes):
    torch = pytest.importorskip("torch")
    sdpa = torch.nn.functional.scaled_dot_product_attention
    q, k, v = (torch.from_numpy(x) for x in heads().values())
    few = k[:, :2], v[:, :2]
    mask = torch.from_numpy(random(4, B, 1, S, T))

    def repeat(x):
        return x[:, :, None].expand(x.shape[0], 2, 2, x.shape[2], x.shape[3]).reshape(x.shape[0], 4, x.shape[2], x.shape[3])

    calls = {
        "plain": (sdpa, (q, k, v)),
        "causal": (lambda *x: sdpa(*x, is_causal=True), (q, k, v)),
        "bool": (sdpa, (q, k, v, mask > -1)),
        "float": (sdpa, (q, k, v, mask)),
        "masked_fill": (lambda q, k, v, m: torch.softmax((q @ k.transpose(2, 3) / 3).masked_fill(m < 0, torch.finfo(q.dtype).min), -1) @ v, (q, k, v, mask)),
        "repeat_kv": (lambda q, k, v: sdpa(q, repeat(k), repeat(v)), (q, *few)),
        "upcast": (lambda q, k, v, m: (torch.softmax((q @ k.transpose(2, 3) * 0.3 + m), -1, torch.float32).to(q.dtype)) @ v, (q, k, v, mask[:, :, :1])),
        "three axes": (lambda q, k, v: sdpa(q[0], k[0], v[0]), (q, k, v)),
    }
    model, feed = exported(*calls[what][:1], *calls[what][1], axes=axes)
    fused = check(model, feed, strict=False)
    if what == "repeat_kv":
        assert kinds(fused)["Expand"] == 0
    if what == "causal":
        assert kinds(fused) == {"Attention": 1} and len(fused.graph.node[0].input) == 3
    if axes and "mask" not in what:  # other sizes than the exported ones
        feed = {name: np.repeat(x, 2, 0) for name, x in feed.items()}
        np.testing.assert_allclose(run(session(fused, strict=False), feed)[0], stock(model, feed)[0], rtol=0, atol=2e-6)


@pytest.mark.filterwarnings("ignore")
def test_layer_of_torch():
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.MultiheadAttention(32, 4, batch_first=True)

        def forward(self, x, hidden):
            return self.inner(x, x, x, key_padding_mask=hidden, need_weights=False)[0]

    hidden = torch.tensor([[False] * 9, [False] * 6 + [True] * 3])
    model, feed = exported(Model(), torch.randn(2, 9, 32), hidden, axes=False)
    check(model, feed, strict=False)
