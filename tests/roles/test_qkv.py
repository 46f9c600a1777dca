#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`attn layer --qkv`: the queries, keys and values that the layer uses; `attn run` on them gives the layer's weights, bit by bit."""
import json
import math
import os
import random
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import tensor_file
from tap import check, finish, run_in_folder

ATTN, SOURCE = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
DATA = os.path.join(SOURCE, "examples/data")
draw = random.Random(11)
B, N, M, E, H, G, D = 2, 9, 7, 8, 4, 2, 6


def floats(*shape):
    return "F64", list(shape), [draw.gauss(0, 1) for _ in range(math.prod(shape))]


def whole(*numbers):
    return "I64", [len(numbers)], list(numbers)


WEIGHTS = {"wq": floats(H * D, E), "wk": floats(G * D, E), "wv": floats(G * D, E), "wo": floats(E, H * D), "bq": floats(H * D), "bv": floats(G * D)}
GROUPED = [f"--heads={H}", f"--heads-kv={G}", f"--head-dim={D}"]


def attn(*words, status=0):
    done = subprocess.run([ATTN, *words], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != status:
        sys.exit(f"attn {' '.join(words)}: {done.returncode} {done.stderr}")
    return done.stdout if status == 0 else done.stderr


def agrees(name, tensors, layer_flags=(), run_flags=(), shapes=None):
    """The layer's weights, and those of its q, k and v."""
    tensor_file.write("in.safetensors", {**WEIGHTS, **tensors})
    attn("layer", "in.safetensors", "-o", "heads.safetensors", "--qkv", "--weights", *GROUPED, *layer_flags, *run_flags, "--quiet")
    attn("run", "heads.safetensors", "-o", "out.safetensors", "--weights", *run_flags, "--quiet")
    made, again = tensor_file.read("heads.safetensors")[0], tensor_file.read("out.safetensors")[0]
    check(f"{name}: the weights of the layer", made["weights"][2] == again["weights"][2])
    check(f"{name}: that depend on the queries", len(set(made["weights"][2])) > N)
    for letter, shape in (shapes or {}).items():
        check(f"{name}: {letter} is {shape}", made[letter][1] == shape, made[letter][1])
    return made, again


def said_by(command, *words):
    """What a command says on stderr."""
    return subprocess.run([ATTN, command, "heads.safetensors", *words], capture_output=True, text=True, stdin=subprocess.DEVNULL).stderr


def warns():
    """Flags of the layer that its q and k need, given again or not."""
    x, show = {"x": floats(B, N, E)}, {"run": ["-o", "o.safetensors"], "analyze": [], "top": ["--token=#3"], "view": ["-o", "page.html"]}
    neo = {f"h.0.attn.attention.{letter}_proj.weight": floats(H * D, E) for letter in "qkv"}
    neo["h.0.attn.attention.out_proj.weight"] = floats(E, H * D)
    t5 = {f"block.0.layer.0.SelfAttention.{letter}.weight": floats(H * D, E) for letter in "qkv"}
    t5.update({"block.0.layer.0.SelfAttention.o.weight": floats(E, H * D), "block.0.layer.0.SelfAttention.relative_attention_bias.weight": floats(32, H)})
    hides = {"mask": ("BOOL", [N, N], [i < j for i in range(N) for j in range(N)])}
    flags = "without all of these flags"
    for name, tensors, given, needed, without in (
            ("a flag", {**WEIGHTS, **x}, ["--causal"], ["--causal"], "without this flag"),
            ("several", {**WEIGHTS, **x}, ["--softcap=3", "--window=2,0"], ["--window=2,0", "--softcap=3"], flags),
            ("a family", {**neo, **x}, None, ["--causal", "--scale=1"], flags),
            ("a table", {**t5, **x}, None, ["--scale=1", "--t5"], flags)):
        tensor_file.write("in.safetensors", tensors)
        attn("layer", "in.safetensors", "-o", "heads.safetensors", "--qkv", *(GROUPED + given if given else [f"--heads={H}"]))
        for command, words in show.items():
            expected = f"attn {command}: warning: heads.safetensors has q and k of a layer with {' '.join(needed)}; {without} these weights are not the layer's\n"
            more = ["--ignore=bias_table"] if name == "a table" else []  # a table without its kind is an error
            check(f"{name}: {command} without", said_by(command, *words, *more) == expected, said_by(command, *words, *more))
            check(f"{name}: {command} with", said_by(command, *words, *needed) == "", said_by(command, *words, *needed))
    tensor_file.write("in.safetensors", {**WEIGHTS, **x, **hides})  # the mask is written with 1 = keep
    attn("layer", "in.safetensors", "-o", "heads.safetensors", "--qkv", "--mask-drop", *GROUPED)
    for command, words in show.items():
        check(f"polarity: {command}", said_by(command, *words) == "", said_by(command, *words))
    tensor_file.write("in.safetensors", {**neo, **x})
    attn("layer", "in.safetensors", "-o", "heads.safetensors", "--qkv", f"--heads={H}", "--plain")
    check("none: none", said_by("analyze") == "", said_by("analyze"))
    for flag in ("--qkv", "--weights"):
        attn("layer", "in.safetensors", "-o", "heads.safetensors", flag, f"--heads={H}", "--plain")
        links = json.loads(attn("top", "heads.safetensors", "--token=#3", "--json"))["links"]
        check(f"{flag}: a batch has entries of one layer", {link["entry"] for link in links} == set(range(B)) and {link["layer"] for link in links} == {0}, links[:2])


def main():
    warns()
    x = {"x": floats(B, N, E)}
    made, out = agrees("grouped heads", x, shapes={"q": [B, H, N, D], "k": [B, G, N, D], "v": [B, G, N, D], "y": [B, N, E]})
    attended, wo = out["o"][2], WEIGHTS["wo"][2]
    y = [sum(attended[((b * H + c // D) * N + i) * D + c % D] * wo[e * H * D + c] for c in range(H * D)) for b in range(B) for i in range(N) for e in range(E)]
    # sums of H * D products of numbers around 1, in double
    check("grouped heads: their outputs, projected, are y", max(abs(p - q) for p, q in zip(y, made["y"][2])) < 1e-12)
    check("grouped heads: wv and wo beside them", all(made[name][1] == WEIGHTS[name][1] and list(made[name][2]) == WEIGHTS[name][2] for name in ("wv", "wo")))
    q = [sum(a * b for a, b in zip(x["x"][2][i * E:(i + 1) * E], WEIGHTS["wq"][2][c * E:(c + 1) * E])) + WEIGHTS["bq"][2][c] for i in range(N) for c in range(H * D)]
    check("grouped heads: q by definition", all(abs(made["q"][2][(c // D * N + i) * D + c % D] - q[i * H * D + c]) < 1e-12 for i in range(N) for c in range(H * D)))
    agrees("one sequence", {"x": floats(N, E)}, shapes={"q": [H, N, D], "v": [G, N, D]})
    agrees("causal", x, run_flags=["--causal"])
    agrees("rotated", x, layer_flags=["--rope"], run_flags=["--causal"])
    agrees("a context", {**x, "context": floats(B, M, E)}, shapes={"k": [B, G, M, D]})
    agrees("lengths", {**x, "lengths": whole(N, 4), "lengths_q": whole(N, 4)})
    agrees("a mask and slopes", {**x, "mask": ("BOOL", [1, 1, N, N], [i == j or draw.random() < 0.5 for i in range(N) for j in range(N)]), "slopes": floats(H)})
    hidden = [i > j + 1 for i in range(N) for j in range(N)]
    agrees("a mask that is added", {**x, "mask": ("F64", [N, N], [-1e9 * h for h in hidden])})
    agrees("a mask with 1 = hide", {**x, "mask": ("F32", [N, N], list(map(float, hidden)))}, layer_flags=["--mask-drop"])
    agrees("a padding mask", {**x, "mask": ("I64", [B, N], [int(i <= b) for b in range(B) for i in range(N)])}, layer_flags=["--mask-drop"])
    agrees("a bias", {**x, "bias": floats(B, H, N, N)})
    packed = {"x": floats(N, E), "cu_seqlens_q": whole(0, 4, N), "cu_seqlens_kv": whole(0, 4, N)}
    agrees("packed and rotated", packed, layer_flags=["--rope"], shapes={"q": [H, N, D]})
    agrees("wide keys", {**x, "w": floats(D, D)}, run_flags=["--score=general"])

    street = os.path.join(DATA, "animal_street_layer2.safetensors")
    attn("layer", street, "-o", "real.safetensors", "--heads=12", "--qkv", "--quiet")
    real, recorded = tensor_file.read("real.safetensors")[0], tensor_file.read(os.path.join(DATA, "animal_street.safetensors"))[0]
    size = 12 * 14 * 32
    # the sums of 384 products and a bias, twice: at most 386 u (|x| |w|) of either; sizes are measured
    far = max(abs(a - b) for letter in "qkv" for a, b in zip(real[letter][2], recorded[letter][2][2 * size:3 * size]))
    check("of a real layer: those of the model", far < 386 * 2**-24, far)
    roles = [[head["copying"] for head in json.loads(attn("analyze", path, "--roles", "--json"))["heads"]] for path in ("real.safetensors", street)]
    check("of a real layer: heads copy as its own weights say", roles[0] == roles[1] and None not in roles[0])
    attn("layer", street, "-o", "weights.safetensors", "--heads=12", "--weights", "--quiet")
    for command in (["analyze", "--json"], ["top", "--token=it", "--json"]):
        alone, computed = (json.loads(attn(command[0], path, *command[1:])) for path in ("weights.safetensors", "real.safetensors"))
        check(f"attn {command[0]} takes the weights of a layer alone", alone == computed and len(alone) > 1)
    for command in (["analyze", "--roles"], ["top", "--token=it"], ["view", "-o", "page.html"]):
        check(f"attn {command[0]} takes them", attn(command[0], "real.safetensors", *command[1:]) is not None)

    tensor_file.write("in.safetensors", {**WEIGHTS, **x, "bias_k": floats(1, 1, G * D), "bias_v": floats(1, 1, G * D)})
    said = attn("layer", "in.safetensors", "-o", "no.safetensors", "--qkv", *GROUPED, status=2)
    check("a learned key is rejected", said == "attn layer: in.safetensors: --qkv is for layers without bias_k and bias_v: their learned key is not among those of the tokens\n", said)
    tensor_file.write("in.safetensors", {"x": floats(N, D), "context": floats(M, D)})
    said = attn("layer", "in.safetensors", "-o", "no.safetensors", "--qkv", "--kind=dot", status=2)
    check("other kinds are rejected", said == "attn layer: in.safetensors: --qkv is for multi-head layers; the kind of this one is dot\n", said)
    check("  and nothing is written", not os.path.exists("no.safetensors"))
    return finish()


if "layer" not in subprocess.run([ATTN, "--help"], capture_output=True, text=True).stdout:
    print("skipped: built without libattn_layers")
    sys.exit(77)
run_in_folder(main)
