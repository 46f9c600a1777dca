#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""attn check --conformance on suites written by this test: correct cases pass, wrong ones fail, unknown ones are skipped.

usage: conformance.py ATTN
"""
import copy
import json
import math
import os
import shutil
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import tensor_file

ATTN = sys.argv[1]
B, H, SQ, SKV, D = 1, 2, 3, 5, 4


def tensor(dtype, shape, values):
    return {"dtype": dtype, "shape": shape, "values": list(values)}


def flat(shape, start):
    return [math.sin(start + 1.7 * n) for n in range(math.prod(shape))]


def single(values):
    """Rounds to f32."""
    return [struct.unpack("<f", struct.pack("<f", x))[0] for x in values]


def write(path, tensors):
    tensor_file.write(path, {name: (t["dtype"], t["shape"], t["values"]) for name, t in tensors.items()})


def attend(q, k, v, sees=lambda i, j: True, scale=1 / math.sqrt(D)):
    """The output [B][H][SQ][D] by definition, as a flat list."""
    out = []
    for h in range(B * H):
        for i in range(SQ):
            s = [scale * sum(q[(h * SQ + i) * D + c] * k[(h * SKV + j) * D + c] for c in range(D)) for j in range(SKV)]
            w = [math.exp(s[j]) if sees(i, j) else 0 for j in range(SKV)]
            total = sum(w) or 1
            out += [sum(w[j] / total * v[(h * SKV + j) * D + c] for j in range(SKV)) for c in range(D)]
    return out


def value_gradient(q, k, v, grad, scale=1 / math.sqrt(D)):
    """The gradient of the values: the transposed weights times the gradient of the output."""
    out = [0] * (H * SKV * D)
    for h in range(H):
        for i in range(SQ):
            s = [scale * sum(q[(h * SQ + i) * D + c] * k[(h * SKV + j) * D + c] for c in range(D)) for j in range(SKV)]
            total = sum(map(math.exp, s))
            for j in range(SKV):
                for c in range(D):
                    out[(h * SKV + j) * D + c] += math.exp(s[j]) / total * grad[(h * SQ + i) * D + c]
    return out


def gradient_case(name, off=0, given=True):
    case, tensors = torch_case(name)
    q, k, v = (tensors["in." + x]["values"] for x in ("query", "key", "value"))
    grad = single(flat([B, H, SQ, D], 4))
    expected = value_gradient(q, k, v, grad)
    expected[7] += off
    if given:
        tensors["in.grad_output"] = tensor("F32", [B, H, SQ, D], grad)
    tensors["out.grad_value"] = tensor("F64", [B, H, SKV, D], expected)
    return case, tensors


def torch_case(name, causal=False, expected=None, **params):
    q, k, v = (single(flat([B, H, n, D], s)) for n, s in ((SQ, 1), (SKV, 2), (SKV, 3)))
    o = expected or attend(q, k, v, (lambda i, j: j <= i) if causal else (lambda i, j: True))
    case = {
        "name": name,
        "op": "scaled_dot_product_attention",
        "params": {"is_causal": causal, "scale": None, "layout": "(...,heads,seq,dim)",
                   "causal_alignment": "top-left (torch)", **params},
        "file": name + ".safetensors",
        "tolerance": {"abs": 1e-5, "rel": 5e-6},
    }
    tensors = {
        "in.query": tensor("F32", [B, H, SQ, D], q),
        "in.key": tensor("F32", [B, H, SKV, D], k),
        "in.value": tensor("F32", [B, H, SKV, D], v),
        "out.output": tensor("F64", [B, H, SQ, D], o),
    }
    return case, tensors


def bilinear_case(name, off=0, **params):
    """x w y^T + b, of a suite whose rows are in testing/conformance/table_score.c."""
    x, y, w = single(flat([2, 3], 1)), single(flat([4, 3], 2)), single(flat([3, 3], 3))
    scores = [sum(x[i * 3 + a] * w[a * 3 + c] * y[j * 3 + c] for a in range(3) for c in range(3)) + 0.25
              for i in range(2) for j in range(4)]
    scores[3] += off
    case = {"name": name, "op": "bilinear score", "params": {"score": "X@W@Y^T+b", "b": 0.25, **params},
            "file": name + ".safetensors", "tolerance": {"abs": 1e-6, "rel": 1e-6}}
    return case, {"in.x": tensor("F32", [1, 2, 3], x), "in.y": tensor("F32", [1, 4, 3], y), "in.W": tensor("F32", [3, 3], w),
                  "out.scores": tensor("F64", [1, 2, 4], scores)}


def layer_attend(q, k, v, sees=lambda i, j: True):
    """Weights and outputs of one head of D channels."""
    weights, out = [], []
    for i in range(len(q) // D):
        s = [sum(q[i * D + c] * k[j * D + c] for c in range(D)) / math.sqrt(D) for j in range(len(k) // D)]
        w = [math.exp(x) if sees(i, j) else 0 for j, x in enumerate(s)]
        weights += [x / sum(w) for x in w]
        out += [sum(x * v[j * D + c] for j, x in enumerate(w)) / sum(w) for c in range(D)]
    return weights, out


IDENTITY = [float(i == j) for i in range(D) for j in range(D)]


def torch_layer(name, off=0, weights_off=0, **params):
    """A layer of one head with identity matrices, and a learned key and value visible to every query."""
    x, extra = single(flat([SQ, D], 5)), single(flat([2, D], 6))
    weights, out = layer_attend(x, x + extra[:D], x + extra[D:], lambda i, j: j <= i or j == SQ)
    out[3] += off
    weights[2] += weights_off
    case = {"name": name, "op": "torch.nn.MultiheadAttention", "file": name + ".safetensors", "tolerance": {"abs": 1e-5, "rel": 1e-5},
            "params": {"embed_dim": D, "num_heads": 1, "batch_first": True, "add_bias_kv": True, **params}}
    tensors = {"in." + n: tensor("F32", [1, SQ, D], x) for n in ("query", "key", "value")}
    tensors.update({
        "in.attn_mask": tensor("BOOL", [SQ, SQ], [j > i for i in range(SQ) for j in range(SQ)]),
        "in.param.in_proj_weight": tensor("F32", [3 * D, D], 3 * IDENTITY),
        "in.param.out_proj.weight": tensor("F32", [D, D], IDENTITY),
        "in.param.bias_k": tensor("F32", [1, 1, D], extra[:D]),
        "in.param.bias_v": tensor("F32", [1, 1, D], extra[D:]),
        "out.output": tensor("F64", [1, SQ, D], out),
        "out.attention_probs": tensor("F64", [1, SQ, SQ + 1], weights),
    })
    return case, tensors


def cached_layer(name, off=0, present_off=0):
    """One token after a past of two; W is three identities side by side."""
    x, past = single(flat([1, D], 7)), single(flat([2, 2, D], 8))
    k, v = past[:2 * D] + x, past[2 * D:] + x
    _, out = layer_attend(x, k, v)
    out[1] += off
    present = k + v
    present[2 * D + 1] += present_off
    case = {"name": name, "op": "com.microsoft.Attention", "file": name + ".safetensors", "tolerance": {"abs": 1e-3, "rel": 1e-3},
            "params": {"num_heads": 1, "unidirectional": 1}}
    tensors = {
        "in.input": tensor("F32", [1, 1, D], x),
        "in.weight": tensor("F32", [D, 3 * D], [float(j % D == i) for i in range(D) for j in range(3 * D)]),
        "in.past": tensor("F32", [2, 1, 1, 2, D], past),
        "out.output": tensor("F64", [1, 1, D], out),
        "out.present": tensor("F64", [2, 1, 1, 3, D], present),
    }
    return case, tensors


def check_layers(folder):
    path = suite(folder, "torch_multihead_attention", [
        torch_layer("right"), torch_layer("wrong", off=1e-3), torch_layer("wrong_weights", weights_off=1e-3),
        torch_layer("little", off=5e-5), torch_layer("unknown", rotary=True)])
    _, results = check(path)
    if results["right"]["status"] == "skipped":
        print("layers: not built")
        return
    expect(results["right"]["status"] == "passed", results["right"])
    for name in ("wrong", "wrong_weights", "little"):
        expect(results[name]["status"] == "failed", results[name])
    expect(results["unknown"]["reason"] == "attribute rotary is not known", results["unknown"])
    path = suite(folder, "ort_attention", [cached_layer("right"), cached_layer("wrong", off=5e-3), cached_layer("present", present_off=5e-3)])
    _, results = check(path)
    expect(results["right"]["status"] == "passed", results["right"])
    for name in ("wrong", "present"):
        expect(results[name]["status"] == "failed", results[name])


def suite(folder, name, cases):
    path = os.path.join(folder, name)
    os.makedirs(path)
    for case, tensors in cases:
        write(os.path.join(path, case["file"]), tensors)
    with open(os.path.join(path, "manifest.json"), "w") as file:
        json.dump({"suite": name, "cases": [case for case, _ in cases]}, file)
    return path


def check(path, *options):
    run = subprocess.run([ATTN, "check", "--conformance", path, "--json", *options], capture_output=True, text=True)
    results = {c["name"]: c for c in json.loads(run.stdout)["cases"]} if run.stdout else {}
    return run, results


def expect(condition, *what):
    if not condition:
        print("FAILED:", *what)
        sys.exit(1)


def main():
    with tempfile.TemporaryDirectory() as folder:
        check_layers(folder)
    with tempfile.TemporaryDirectory() as folder:
        right, causal = torch_case("plain"), torch_case("causal", causal=True)
        o = right[1]["out.output"]["values"]
        wrong = []
        # One number off by 1e-7 is within the bound in f32, though far outside that of f64; off by 1e-3 it is outside both.
        for n, change in enumerate((1e-7, 1e-3, float("nan"))):
            wrong.append(torch_case("wrong%d" % n, expected=o[:5] + [o[5] + change] + o[6:]))
        turned = torch_case("turned", causal=True, expected=o)

        unknown = [torch_case("attribute", stretch=2), torch_case("layout_unknown", layout="(D,S,H,B)"),
                   torch_case("dropout", dropout_p=0.5)]
        extra = torch_case("input")
        extra[1]["in.extra"] = tensor("F32", [1], [1])
        other = torch_case("operation")
        other[0]["op"] = "pooling"
        left_over = torch_case("output")
        left_over[1]["out.probabilities"] = tensor("F32", [1], [1])
        gradients = [gradient_case("gradient"), gradient_case("gradient_wrong", off=1e-9), gradient_case("gradient_off", off=1e-4),
                     gradient_case("gradient_alone", given=False)]

        path = suite(folder, "torch_sdpa", [right, causal, *wrong, turned, *unknown, extra, other, left_over, *gradients])
        run, results = check(path)
        expect(run.returncode == 1, "exit status", run.returncode, run.stderr)
        for name in ("plain", "causal", "gradient"):
            expect(results[name]["status"] == "passed", results[name])
        expect(results["gradient"]["problem"].startswith("bwd:") and not results["gradient"]["reason"], results["gradient"])
        for name in ("wrong1", "wrong2", "turned", "gradient_off", "gradient_alone"):
            expect(results[name]["status"] == "failed" and results[name]["reason"], results[name])
        expect("grad_v[7]" in results["gradient_off"]["reason"], results["gradient_off"])
        expect(results["gradient_wrong"]["status"] == "passed", results["gradient_wrong"])
        expect(results["wrong0"]["status"] == "passed", results["wrong0"])
        for name, word in (("attribute", "stretch"), ("layout_unknown", "layout"), ("dropout", "dropout"), ("input", "extra"),
                           ("operation", "pooling"), ("output", "probabilities")):
            expect(results[name]["status"] == "skipped" and word in results[name]["reason"], results[name])
        expect(0 < results["plain"]["bound_fraction"] < 1 and results["plain"]["problem"] == "fwd:f32:hq2:sq3:skv5:d4",
               results["plain"])

        # Text output: reasons, and the counts in the last line; a parent folder works too.
        for place in (path, folder, path + "/"):
            text = subprocess.run([ATTN, "check", "--conformance", place], capture_output=True, text=True).stdout
            expect(text.splitlines()[-1] == "5 passed, 5 failed, 6 skipped", text)
            expect("1 skipped: dropout without the mask that was drawn" in text, text)

        # --conformance runs a separate program next to attn, which an installation may lack: then it is an error, and nothing passes.
        program = os.path.join(os.path.dirname(os.path.realpath(ATTN)), "attn-conformance")
        run = subprocess.run([program, path], capture_output=True, text=True)
        expect(run.returncode == 1 and run.stdout.splitlines()[-1] == "5 passed, 5 failed, 6 skipped", run)
        for words in ([], [path, path], [path, "--isa=none"], [path, "--quick"]):
            run = subprocess.run([program, *words], capture_output=True, text=True)
            expect(run.returncode == 2 and not run.stdout and run.stderr.count("\n") == 1, run)
        alone = shutil.copy(ATTN, os.path.join(folder, "attn"))
        run = subprocess.run([alone, "check", "--conformance", path], capture_output=True, text=True)
        expect(run.returncode == 3 and not run.stdout and "attn-conformance" in run.stderr and run.stderr.count("\n") == 1, run)
        os.remove(alone)

        # As in torch, rank 3 has a leading axis or heads; a mask broadcasts to them; True keeps.
        q, k, v = right[1]["in.query"]["values"], right[1]["in.key"]["values"], right[1]["in.value"]["values"]
        keep = [[j != 2 or i == 1 for j in range(SKV)] for i in range(SQ)]
        masked = torch_case("masked", expected=attend(q, k, v, lambda i, j: keep[i][j]))
        masked[1]["in.attn_mask"] = tensor("BOOL", [SQ, SKV], [x for row in keep for x in row])
        flat3 = copy.deepcopy(masked)
        flat3[0].update(name="rank3", file="rank3.safetensors")
        for name in ("in.query", "in.key", "in.value", "out.output"):
            flat3[1][name]["shape"] = flat3[1][name]["shape"][1:]
        flat3[1]["in.attn_mask"]["shape"] = [1, SQ, SKV]
        deep = copy.deepcopy(masked)
        deep[0].update(name="rank5", file="rank5.safetensors")
        for name in ("in.query", "in.key", "in.value", "out.output"):
            deep[1][name]["shape"] = [1, 1, *deep[1][name]["shape"]]
        broken = torch_case("shapes")
        broken[1]["in.key"]["shape"] = [B, H, SKV * D, 1]
        path = suite(os.path.join(folder, "more"), "torch_sdpa", [masked, flat3, deep, broken])
        run, results = check(path)
        for name in ("masked", "rank3", "rank5"):
            expect(results[name]["status"] == "passed", results[name])
        expect(results["shapes"]["status"] == "failed" and "do not fit" in results["shapes"]["reason"], results["shapes"])

        # Cases described by tables: right, wrong, with an unknown attribute, input or output, and broken.
        tables = [bilinear_case("table"), bilinear_case("table_off", off=1e-4), bilinear_case("table_word", stretch=1),
                  bilinear_case("table_form", score="X@Y")]
        for name, tensor_name in (("table_in", "in.extra"), ("table_out", "out.extra")):
            tables.append(bilinear_case(name))
            tables[-1][1][tensor_name] = tensor("F32", [1], [1])
        tables.append(bilinear_case("table_shape"))
        tables[-1][1]["in.W"] = tensor("F32", [8], flat([8], 3))
        tables.append(bilinear_case("table_gone"))
        del tables[-1][1]["in.y"]
        run, results = check(suite(os.path.join(folder, "tables"), "allennlp_scoring", tables))
        for name, status, word in (("table", "passed", ""), ("table_off", "failed", "out.scores[3]"), ("table_word", "skipped", "stretch"),
                                   ("table_form", "skipped", "X@Y"), ("table_in", "skipped", "in.extra"),
                                   ("table_out", "skipped", "out.extra"), ("table_shape", "failed", "rank"),
                                   ("table_gone", "failed", "in.y")):
            expect(results[name]["status"] == status and word in results[name]["reason"], results[name])

        # Folders that are not suites, and broken suites.
        run, _ = check(os.path.join(folder, "nowhere"))
        expect(run.returncode == 2 and run.stderr.count("\n") == 1, run)
        empty = os.path.join(folder, "empty")
        os.makedirs(empty)
        run, _ = check(empty)
        expect(run.returncode == 2 and "manifest.json" in run.stderr, run)
        for n, text in enumerate(("", "{", "[]", '{"cases": 3}', '{"cases": [{"name": "x"}]}', '{"cases": [7]}')):
            place = os.path.join(folder, "broken%d" % n)
            os.makedirs(place)
            with open(os.path.join(place, "manifest.json"), "w") as file:
                file.write(text)
            run, results = check(place)
            expect(run.returncode == 1 and all(c["status"] == "failed" for c in results.values()) and results, text, run)
        gone = suite(os.path.join(folder, "gone"), "torch_sdpa", [right, torch_case("away")])
        os.remove(os.path.join(gone, "plain.safetensors"))
        with open(os.path.join(gone, "manifest.json")) as file:
            manifest = json.load(file)
        manifest["cases"][1]["file"] = "../torch_sdpa/away.safetensors"
        with open(os.path.join(gone, "manifest.json"), "w") as file:
            json.dump(manifest, file)
        run, results = check(gone)
        expect(run.returncode == 1 and all(c["status"] == "failed" for c in results.values()), run)
    print("conformance: all as expected")


main()
