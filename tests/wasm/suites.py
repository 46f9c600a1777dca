# SPDX-License-Identifier: MIT
"""Other projects' cases (docs/conformance.md) as calls of libattn's JavaScript package: only those whose operation is one call, with the
meaning that testing/conformance/adapters.c gives to their attributes.

A case has a name, an operation, tensors by libattn's names, options in the words of JavaScript, the expected outputs, and the suite's
tolerance (absolute, relative)."""
import json
import os
import struct

import numpy as np

TYPES = {"F32": np.float32, "F64": np.float64, "F16": np.float16, "BF16": np.uint16, "BOOL": np.bool_, "I32": np.int32, "I64": np.int64,
         "U8": np.uint8, "I8": np.int8}


class Bits:
    """bf16, which NumPy lacks: the upper halves of floats."""

    def __init__(self, bits):
        self.bits = bits

    def wide(self):
        return (self.bits.astype(np.uint32) << 16).view(np.float32)


def read(path):
    """The tensors of a .safetensors file."""
    with open(path, "rb") as file:
        header, data = json.loads(file.read(struct.unpack("<Q", file.read(8))[0])), file.read()
    tensors = {}
    for name, row in header.items():
        if name == "__metadata__":
            continue
        begin, end = row["data_offsets"]
        array = np.frombuffer(data[begin:end], TYPES[row["dtype"]]).reshape(row["shape"])
        tensors[name] = Bits(array) if row["dtype"] == "BF16" else array
    return tensors


def wide(array):
    return array.wide() if isinstance(array, Bits) else array


ROLES = {"query": "q", "key": "k", "value": "v", "Q": "q", "K": "k", "V": "v", "mask": "mask", "bias": "bias", "attn_bias": "bias",
         "slopes": "alibi_slopes", "alibi_slopes": "alibi_slopes", "sink": "sink", "dropout_keep": "dropout_given",
         "scale_per_head": "scale", "lengths_q": "lengths_q", "lengths_kv": "lengths_kv", "query_lengths": "lengths_q",
         "key_lengths": "lengths_kv", "grad_output": "grad_o", "grad_lse": "grad_lse", "tangent_query": "tan_q", "tangent_key": "tan_k",
         "tangent_value": "tan_v", "tangent_bias": "tan_bias", "cotangent_grad_query": "tan_q", "cotangent_grad_key": "tan_k",
         "cotangent_grad_value": "tan_v", "cotangent_grad_bias": "tan_bias", "w": "score_matrix"}
RESULTS = {"output": "o", "Y": "o", "lse": "lse", "weights": "weights", "qk_matmul_output": "scores", "grad_query": "grad_q",
           "grad_key": "grad_k", "grad_value": "grad_v", "grad_bias": "grad_bias", "grad_slopes": "grad_alibi_slopes",
           "grad_sink": "grad_sink", "grad_scale_per_head": "grad_scale", "grad_w": "grad_score_matrix", "tangent_output": "tan_o",
           "tangent_lse": "tan_lse", "second_query": "second_q", "second_key": "second_k", "second_value": "second_v",
           "second_bias": "second_bias", "second_grad_output": "second_grad_o"}
STAGES = ("raw", "capped", "biased", "weights")


def with_mask(tensors, mask):
    """A mask of 0 and 1, or numbers that are added."""
    wanted = wide(mask)
    tensors["mask" if wanted.dtype == np.bool_ else "bias"] = mask


def of_torch(case, tensors, options):
    p = case["params"]
    if p["is_causal"]:
        options["causal"] = "top-left"
    if p.get("scale") is not None:
        options["scale"] = p["scale"]


def of_ort(case, tensors, options):
    pass


def of_onnx(case, tensors, options):
    p = case["attributes"]
    if "past_key" in tensors or "nonpad_kv_seqlen" in tensors:
        return "a cache"
    for name, heads in (("q", "q_num_heads"), ("k", "kv_num_heads"), ("v", "kv_num_heads")):
        if tensors[name].ndim == 3:
            batch, tokens, _ = tensors[name].shape
            tensors[name] = tensors[name].reshape(batch, tokens, p[heads], -1).transpose(0, 2, 1, 3)
    if p.get("is_causal"):
        options["causal"] = "top-left"
    if "left_window_size" in p:
        options.update(window=[p["left_window_size"], -1], align="top-left")
    for name in ("scale", "softcap"):
        if p.get(name):
            options[name] = p[name]
    options["scores_stage"] = STAGES[p.get("qk_matmul_output_mode", 0)]


def of_definitions(case, tensors, options):
    p = case["params"]
    if case["op"] in ("additive", "concat") or "scale_per_head" in tensors:
        return "projections" if case["op"] != "scaled_dot_product_attention" else None
    if case["op"] in ("general", "metric"):
        options["score"] = case["op"]
        tensors["score_matrix"] = tensors["score_matrix"][np.newaxis, np.newaxis]
        options["scale"] = 1
    if p.get("causal", "none") != "none":
        options["causal"] = p["causal"].replace("_", "-")
    if "window" in p:
        options["window"] = p["window"]
        options.setdefault("align", "bottom-right" if p.get("causal") == "bottom_right" else "top-left")
    if isinstance(p.get("scale"), (int, float)):
        options["scale"] = p["scale"]
    for name in ("softcap", "temperature"):
        if name in p:
            options[name] = p[name]
    if "dropout_p" in p:
        options["dropout"] = p["dropout_p"]


def of_flash(case, tensors, options):
    p = case["params"]
    if p["qv"] or p["sink_token_length"] or p["attention_chunk"] or (p["alibi"] and p["causal"]) or "lengths_q" in tensors:
        return "not one call"
    for name in "qkv":
        array = tensors[name]
        tensors[name] = Bits(array.bits.transpose(0, 2, 1, 3)) if isinstance(array, Bits) else array.transpose(0, 2, 1, 3)
    if p["causal"]:
        options["causal"] = "bottom-right"
    if p["window"] != [None, None]:
        options["window"] = [-1 if side is None else side for side in p["window"]]
    if p["softcap"]:
        options["softcap"] = p["softcap"]


SUITES = {"torch_sdpa": of_torch, "torch_sdpa_grad": of_torch, "ort_core": of_ort, "onnx_attention": of_onnx,
          "mechanism_grad": of_definitions, "flash_attention_ref": of_flash}
OPERATIONS = {"Attention", "SDPA", "attention_ref", "scaled_dot_product_attention", "scaled_dot_product_attention backward",
              "scaled_dot_product_attention jvp", "scaled_dot_product_attention double_backward", "general", "metric"}


def translate(suite, case, folder):
    """A case, or why it is none."""
    if case["op"] not in OPERATIONS:
        return case["op"]
    tensors, expected, options = {}, {}, {}
    mask = None
    for role, array in read(os.path.join(folder, case["file"])).items():
        kind, name = role.split(".", 1)
        if kind == "out":
            if name in RESULTS:
                expected[RESULTS[name]] = array
        elif name == "attn_mask":
            mask = array
        else:
            tensors[ROLES.get(name, name)] = array
    if mask is not None:
        with_mask(tensors, mask)
    why = SUITES[suite](case, tensors, options)
    if why:
        return why
    if "output" in case["outputs"] and suite == "flash_attention_ref":
        expected["o"] = wide(expected["o"]).transpose(0, 2, 1, 3)
    if suite == "onnx_attention" and expected["o"].ndim == 3:
        batch, heads, tokens, _ = tensors["q"].shape
        expected["o"] = expected["o"].reshape(batch, tokens, heads, -1).transpose(0, 2, 1, 3)
    if wide(tensors["q"]).ndim > 4:
        return "five axes"
    operation = "jvp" if "jvp" in case["op"] else "double_backward" if "double" in case["op"] else "backward" if "grad_o" in tensors else "forward"
    tolerance = case["tolerance"]
    return {"name": f"{suite}/{case['name']}", "operation": operation, "tensors": tensors, "options": options, "expected": expected,
            "tolerance": (tolerance.get("abs", tolerance.get("atol", 0)), tolerance.get("rel", tolerance.get("rtol", 0)))}


def cases(folder):
    """All cases below the folder, and how many were left out."""
    found, left_out = [], 0
    for suite in SUITES:
        path = os.path.join(folder, suite, "manifest.json")
        if not os.path.exists(path):
            continue
        with open(path) as file:
            for case in json.load(file)["cases"]:
                one = translate(suite, case, os.path.dirname(path))
                if isinstance(one, str):
                    left_out += 1
                else:
                    found.append(one)
    return found, left_out
