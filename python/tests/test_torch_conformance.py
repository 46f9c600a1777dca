# SPDX-License-Identifier: MIT
"""Cases of PyTorch's own tests, from a folder of suites: F.scaled_dot_product_attention and nn.MultiheadAttention as they are while
libattn is enabled, and libattn.torch.flex_attention.  ATTN_CONFORMANCE_DIR names the folder."""
import json
import os
import pathlib

import pytest

torch = pytest.importorskip("torch", minversion="2.10")

import libattn.torch as lib  # noqa: E402
from torch.nn.attention.flex_attention import create_block_mask  # noqa: E402

F = torch.nn.functional
FOLDER = pathlib.Path(os.environ.get("ATTN_CONFORMANCE_DIR") or pathlib.Path(__file__).parents[2] / ".." / "shared" / "conformance")
TYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "BOOL": torch.bool, "I64": torch.int64, "I32": torch.int32}


def suite(name):
    """Cases as (folder, what the manifest says of one)."""
    path = FOLDER / name / "manifest.json"
    if not path.exists():
        reason = f"no suite {name}; ATTN_CONFORMANCE_DIR names a folder of suites"
        return [pytest.param(None, None, marks=pytest.mark.skip(reason=reason), id="none")]
    return [pytest.param(path.parent, case, id=case["name"]) for case in json.loads(path.read_text())["cases"]]


def tensors(folder, case):
    """The tensors of a .safetensors file, by name."""
    data = (folder / case["file"]).read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    found = {}
    for name, about in json.loads(data[8:start]).items():
        if name != "__metadata__":
            begin, end = about["data_offsets"]
            found[name] = torch.frombuffer(bytearray(data[start + begin:start + end] or b"\0" * 8), dtype=TYPES[about["dtype"]])
            found[name] = found[name][:torch.Size(about["shape"]).numel()].reshape(about["shape"])
    return found


def compare(found, want, case, own=None):
    """Within the case's tolerance, or no further off than twice what PyTorch's own result is."""
    found, want = found.double(), want.double()
    tolerance = case["tolerance"]["abs"] + case["tolerance"]["rel"] * want.abs()
    if own is not None:
        tolerance = torch.maximum(tolerance, 2 * (own.double() - want).abs().nan_to_num(0).max())
    off = (found - want).abs()
    wrong = ~((off <= tolerance) | (found == want) | (found.isnan() & want.isnan()))
    assert found.shape == want.shape and not wrong.any(), (case["name"], off[wrong].max())


def without_torch():
    """Nothing was left to PyTorch since the last call."""
    counts = lib.stats(reset=True)
    assert counts["libattn"] and not counts["torch"], counts


@pytest.mark.parametrize("folder, case", suite("torch_sdpa"))
def test_sdpa(folder, case):
    x, params = tensors(folder, case), case["params"]

    def call():
        return F.scaled_dot_product_attention(
            x["in.query"], x["in.key"], x["in.value"], x.get("in.attn_mask"), is_causal=params["is_causal"], scale=params["scale"],
            enable_gqa=params["enable_gqa"])

    own = call()
    with lib.using():
        lib.stats(reset=True)
        o = call()
        without_torch()
    compare(o, x["out.output"], case, own)


@pytest.mark.parametrize("folder, case", suite("torch_sdpa_grad"))
def test_sdpa_gradients(folder, case):
    x, params = tensors(folder, case), case["params"]
    q, k, v = (x["in." + name].requires_grad_() for name in ("query", "key", "value"))
    with lib.using():
        o = F.scaled_dot_product_attention(q, k, v, x.get("in.attn_mask"), is_causal=params["is_causal"], scale=params["scale"])
        found = torch.autograd.grad(o, (q, k, v), x["in.grad_output"])
    for one, name in zip((o, *found), ("output", "grad_query", "grad_key", "grad_value"), strict=True):
        compare(one.detach(), x["out." + name], case)


SCORE_MODS = {"alibi_gym": lambda s, b, h, i, j: s + (j - i) * torch.exp2(-(h + 1) * 4.0), "relative_bias": lambda s, b, h, i, j: s + (i - j) * 0.1}


@pytest.mark.parametrize("folder, case", suite("flex_attention"))
def test_flex_attention(folder, case):
    x = tensors(folder, case)
    q, k, v = (x["in." + name] for name in ("query", "key", "value"))
    keep = x.get("in.keep_mask")
    mask = None if keep is None else create_block_mask(lambda b, h, i, j: keep[b, h, i, j], q.shape[0], q.shape[1], q.shape[2], k.shape[2], device="cpu")
    score_mod = SCORE_MODS.get(case["name"])
    o = lib.flex_attention(q, k, v, score_mod, mask, enable_gqa=True)
    compare(o, x["out.output"], case)


@pytest.mark.parametrize("folder, case", suite("torch_multihead_attention"))
def test_multihead_attention(folder, case):
    x, params = tensors(folder, case), case["params"]
    layer = torch.nn.MultiheadAttention(**{name: params[name] for name in (
        "embed_dim", "num_heads", "bias", "add_bias_kv", "add_zero_attn", "kdim", "vdim", "batch_first")}).eval()
    layer.load_state_dict({name.removeprefix("in.param."): one for name, one in x.items() if name.startswith("in.param.")})
    masks = {name: x["in." + name] for name in ("key_padding_mask", "attn_mask") if "in." + name in x}
    ours = x["in.key"] if "in.key" in x else x["in.query"]
    with torch.no_grad(), lib.using():
        for weights in (False, True):  # without them, the layer calls F.scaled_dot_product_attention
            lib.stats(reset=True)
            o, probabilities = layer(
                x["in.query"], ours, x.get("in.value", ours), need_weights=weights, average_attn_weights=params["average_attn_weights"], **masks)
            some = x["out.output"].isfinite()  # a query that sees no key is NaN in PyTorch
            compare(o[some], x["out.output"][some], case)
            if not weights:
                without_torch()
        some = x["out.attention_probs"].isfinite()
        compare(probabilities[some], x["out.attention_probs"][some], case)


def heads(x, count):
    """[tokens, heads * dim] as [1, heads, tokens, dim]."""
    return x.view(x.shape[-2], count, -1).transpose(0, 1)[None]


def misc(name, x):
    """The output of a case of sdpa_misc; None: it is not attention."""
    q, k, v = (x.get("in." + role) for role in ("query", "key", "value"))
    if name == "nnlib_specific_results":
        return F.scaled_dot_product_attention(*(heads(one, 2) for one in (q, k, v)))[0].transpose(0, 1).reshape(3, 4)
    if name == "candle_flash_attn_acausal_fp16":
        return F.scaled_dot_product_attention(q, k, v, scale=0.5)
    if name.startswith("tract"):
        half = [one if name == "tract_simple_mask_f32" else one.half() for one in (q, k, v)]
        half = [one.float() for one in half] if name == "tract_upcast_f32_attn" else half
        return F.scaled_dot_product_attention(*half, x.get("in.attn_mask"))
    return None


@pytest.mark.parametrize("folder, case", suite("sdpa_misc"))
def test_misc(folder, case):
    x = tensors(folder, case)
    with lib.using():
        lib.stats(reset=True)
        o = misc(case["name"], x)
        if o is None:
            pytest.skip("projections or a shift, not attention")
        without_torch()
    compare(o.reshape(x["out.output"].shape), x["out.output"], case)
