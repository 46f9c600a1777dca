# SPDX-License-Identifier: MIT
"""Helpers of the generated suites: seeded numbers, files, attention by definition, and gradients without formulas.

Everything is computed by numpy in double, from inputs rounded to their storage type.
"""
import json
import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
import tensor_file

CODES = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "I64": np.int64, "I32": np.int32, "I16": np.int16, "U8": np.uint8,
         "BOOL": np.bool_}


class Case:
    """One case.  `draw` and `give` add a random or a given input, and return it rounded to its storage type, as doubles."""

    def __init__(self, name, op, params, tolerance, rng, key="params"):
        self.json = {"name": name, "op": op, key: params, "file": name + ".safetensors", "tolerance": tolerance}
        self.rng = rng
        self.tensors = {}

    def draw(self, role, *shape, dtype="F32", size=1.0):
        return self.give(role, size * self.rng.standard_normal(shape), dtype)

    def give(self, role, values, dtype="F32"):
        stored = np.asarray(values).astype(CODES[dtype])
        self.tensors["in." + role] = (dtype, stored)
        return stored.astype(np.float64) if dtype[0] == "F" else stored

    def expect(self, role, values, dtype="F64"):
        self.tensors["out." + role] = (dtype, np.asarray(values).astype(CODES[dtype]))
        return self


def write(folder, suite, cases):
    path = os.path.join(folder, suite)
    os.makedirs(path, exist_ok=True)
    for case in cases:
        tensors = {name: (dtype, values.shape, np.ascontiguousarray(values).tobytes()) for name, (dtype, values) in case.tensors.items()}
        tensor_file.write(os.path.join(path, case.json["file"]), tensors)
    with open(os.path.join(path, "manifest.json"), "w", encoding="utf-8") as file:
        json.dump({"suite": suite, "cases": [case.json for case in cases]}, file)
    return path


# ---- attention by definition, analytic everywhere, so that complex steps can differentiate it ----

def softmax(s, keep=True, sink=None):
    """Weights and lse over the last axis; a fully masked row has weights 0 and lse -inf (or the sink)."""
    keep = np.broadcast_to(keep, s.shape)
    most = np.max(np.where(keep, s.real, -np.inf), axis=-1, keepdims=True)
    if sink is not None:
        most = np.maximum(most, sink.real)
    most = np.where(np.isfinite(most), most, 0)
    e = np.where(keep, np.exp(np.where(keep, s, 0) - most), 0)
    total = e.sum(-1, keepdims=True)
    if sink is not None:
        total = total + np.exp(sink - most)
    some = total != 0
    lse = np.where(some, most + np.log(np.where(some, total, 1)), -np.inf)[..., 0]
    return e / np.where(some, total, 1), lse


def repeat(x, heads):
    """Key heads [b, g, ...] for each of `heads` query heads."""
    return np.repeat(x, heads // x.shape[1], axis=1)


def products(q, k):
    return np.einsum("bhic,bhjc->bhij", q, repeat(k, q.shape[1]))


def mix(weights, v):
    return np.einsum("bhij,bhjc->bhic", weights, repeat(v, weights.shape[1]))


def split(x, heads):
    """[b, n, heads * d] to [b, heads, n, d]."""
    return x.reshape(x.shape[0], x.shape[1], heads, -1).transpose(0, 2, 1, 3)


def join(x):
    return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1)


def positions(len_q, len_kv, offset=0):
    return np.arange(len_q)[:, None] + offset, np.arange(len_kv)[None, :]


def visible(len_q, len_kv, causal=None, window=None, offset=None):
    if offset is None:
        offset = len_kv - len_q if causal == "bottom_right" else 0
    i, j = positions(len_q, len_kv, offset)
    keep = np.ones((len_q, len_kv), bool)
    if causal in ("top_left", "bottom_right"):
        keep &= j <= i
    if window:
        left, right = window
        keep &= ((left < 0) | (j >= i - left)) & ((right < 0) | (j <= i + right))
    return keep


def gradients(loss, inputs):
    """The gradient of a real function by complex steps: exact to rounding, and needs no formula."""
    step, all_of_them = 1e-30, {}
    for name, x in inputs.items():
        flat, moved = x.reshape(-1), {k: v.astype(complex) for k, v in inputs.items()}
        gradient = np.empty(flat.size)
        at = moved[name].reshape(-1)
        for n in range(flat.size):
            at[n] += 1j * step
            gradient[n] = loss(**moved).imag / step
            at[n] = flat[n]
        all_of_them[name] = gradient.reshape(x.shape)
    return all_of_them


def tangent(function, inputs, directions):
    """The derivative of each output of function(**inputs) along the directions."""
    step = 1e-30
    moved = {k: v + 1j * step * directions.get(k, 0) for k, v in inputs.items()}
    return [np.where(np.isfinite(out.real), out.imag / step, 0) for out in function(**moved)]


def inner(a, b):
    return np.sum(a * np.where(np.isfinite(b.real), b, 0))
