#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`attn layer` on a .gguf file of a model: x from its token embeddings, sizes, rotation and norm from its metadata, for one architecture
whose queries and keys are permuted for rotations of neighbours (llama) and others whose are not; against the definition in double.

usage: tokens.py ATTN
"""

import json
import math
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import families
import gguf_file
from layer import ATTN, Tensor, draw, far, load
from tap import check, finish, run_in_folder

E, HEADS, KV, DIM, WORDS = 32, 4, 2, 6, ["<s>", "\u2581the", "\u2581cat", "\u2581sat", "on", "\u2581", "mat", "\u2581mat"]
# f32: the norm, projections, scores, weights and output are five nested sums of at most 32 products of numbers up to 8
BOUND = 5 * 32 * 8 * 2**-24
IDS = [1, 2, 3, 4, 7]
GAIN, SHIFT, EPSILON = [[draw.gauss(1, 0.1) for _ in range(E)] for _ in range(2)], [draw.gauss(0, 1) for _ in range(E)], 0.01


def single(numbers):
    """As f32 has them."""
    return gguf_file.pack("F32", numbers)[1]


def tensor(*shape):
    return Tensor(shape, single([draw.gauss(0, 0.5) for _ in range(math.prod(shape))]))


class Layer(families.Weights):
    def __init__(self, kv=KV, biases=False):
        self.heads, self.kv, self.dim = HEADS, kv, DIM
        rows = {"q": HEADS * DIM, "k": kv * DIM, "v": kv * DIM, "o": E}
        self.w = {n: tensor(rows[n], HEADS * DIM if n == "o" else E) for n in "qkvo"}
        self.b = {n: tensor(rows[n]) for n in "qkvo"} if biases else {}


def permuted(t, heads):
    """As llama.cpp's conversion does: channels i and i + dim/2 of a head become neighbours."""
    rows, order = t.rows(), [h * DIM + i + half * DIM // 2 for h in range(heads) for i in range(DIM // 2) for half in range(2)]
    return Tensor(t.shape, sum((rows[r] for r in order), []))


def save(path, architecture, tensors, kinds={}, **more):
    key = lambda name: f"{architecture}.{name}"
    metadata = {"general.architecture": architecture, key("attention.head_count"): HEADS, key("attention.head_count_kv"): KV,
                key("rope.freq_base"): 500.0, key("attention.key_length"): DIM, key("attention.value_length"): DIM, "tokenizer.ggml.tokens": WORDS}
    metadata.update({name.replace("__", "."): value for name, value in more.items()})
    metadata = {name: value for name, value in metadata.items() if value is not None}
    return gguf_file.write(path, {n: (kinds.get(n, "F32"), t.shape, t.numbers) for n, t in tensors.items()}, metadata)


def run(*words, file="model.gguf"):
    done = subprocess.run([ATTN, "layer", file, "-o", "out.safetensors", "--json", *words], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"not ok - attn layer {' '.join(words)}: {done.stderr.strip()}")
    tensors, metadata = load("out.safetensors")
    return tensors["y"].numbers, json.loads(done.stdout), metadata


def fails(*words, status=2, file="model.gguf"):
    done = subprocess.run([ATTN, "layer", file, "-o", "no.safetensors", *words], capture_output=True, text=True)
    return done.stderr.strip() if done.returncode == status and not os.path.exists("no.safetensors") else f"{done.returncode}: {done.stderr}"


def rms(rows, gain):
    return [[c / math.sqrt(sum(d * d for d in row) / E + EPSILON) * g for c, g in zip(row, gain)] for row in rows]


def centred(rows, gain, shift):
    out = []
    for row in rows:
        mean = sum(row) / E
        out.append([(c - mean) / math.sqrt(sum((d - mean) ** 2 for d in row) / E + EPSILON) * g + s for c, g, s in zip(row, gain, shift)])
    return out


def model(layers, permute):
    """Tensors of a file, by llama.cpp's names."""
    tensors = {}
    for i, p in enumerate(layers):
        of = {n: permuted(p.w[n], HEADS if n == "q" else p.kv) if permute and n in "qk" else p.w[n] for n in "qkvo"}
        tensors.update({f"blk.{i}.attn_{n}.weight": of[n] for n in "qkv"})
        tensors.update({f"blk.{i}.attn_output.weight": of["o"], f"blk.{i}.attn_norm.weight": Tensor([E], single(GAIN[i]))})
    return tensors


def llama():
    layers, table = [Layer(), Layer()], tensor(len(WORDS), E)
    x = [table.rows()[i] for i in IDS]
    halves = {"causal": True, "rope": {"pairs": "halves", "base": 500.0, "channels": None}}
    epsilon = {"llama__attention__layer_norm_rms_epsilon": EPSILON}
    tensors = {"token_embd.weight": table, **model(layers, True)}
    save("model.gguf", "llama", tensors, **epsilon)
    y = families.expected(layers[1], rms(x, single(GAIN[1])), **halves)
    got, info, metadata = run("--layer=1", "--tokens=1,2,3,4,7", "--weights")
    links = json.loads(subprocess.run([ATTN, "top", "out.safetensors", "--token=the", "--json"], capture_output=True).stdout)["links"]
    check("  top says which layer it is", {link["layer"] for link in links} == {1}, links[:1])
    check("llama: a layer on tokens", far(got, y) < BOUND, far(got, y))
    check("  what was applied is told", info["applied"] == "causal, rope interleaved, base 500, rms norm of x, epsilon 0.01" and info["family"] == "gguf" and info["prefix"] == "blk.1.", info)
    check("  sizes are those of the metadata", (info["heads"], info["heads_kv"], info["head_dim"]) == (HEADS, KV, DIM), info)
    check("  what was read is told", not info["unused"] and {t["name"] for t in info["used"]} == {"token_embd.weight", *(f"blk.1.attn_{n}.weight" for n in ("q", "k", "v", "output", "norm"))}, info["used"])
    check("  tokens are named, and the vocabulary is left", json.loads(metadata["tokens"]) == ["the", "cat", "sat", "on", "mat"] and "tokenizer.ggml.tokens" not in metadata, metadata)
    said = "the embeddings of tokens, which the first layer of the model gets"
    check("  and what x is", info["x"] == metadata["x"] == said, (info["x"], metadata))
    for text in ("the cat sat on mat", "the, cat, sat, on, mat", "1 2 3 4 7"):
        check(f"  '{text}' are the same tokens", run("--layer=1", f"--tokens={text}")[0] == got)
    check("  --plain has no norm, mask or rotation", far(run("--layer=1", "--tokens=1,2,3,4,7", "--plain")[0], families.expected(layers[1], x)) < BOUND)
    y = families.expected(layers[0], x, **halves)
    families.layer.tensor_file.write("x.safetensors", {"x": ("F32", (len(IDS), E), sum(x, []))})
    check("  an x of a file, without the norm", far(run("--layer=0", "--weights-file=model.gguf", file="x.safetensors")[0], y) < BOUND)
    y = families.expected(layers[0], rms(x, single(GAIN[0])), **halves)
    check("  and with it", far(run("--layer=0", "--weights-file=model.gguf", "--norm", file="x.safetensors")[0], y) < BOUND)
    report = run("--layer=1", "--tokens=1,2,3,4,7", "--decode", "--compare")[1]
    check("  over a cache", report["differences"][0]["largest"] < BOUND, report["differences"])
    scaled = {**tensors, "rope_freqs.weight": Tensor([DIM // 2], [1.0, 2.0, 8.0])}
    save("model.gguf", "llama", scaled, **epsilon)
    y = families.expected(layers[0], rms(x, single(GAIN[0])), causal=True, rope={**halves["rope"], "factors": [1.0, 2.0, 8.0]})
    got, info, _ = run("--layer=0", "--tokens=1,2,3,4,7")
    check("  rope_freqs.weight", far(got, y) < BOUND and "rope_freqs.weight" in info["applied"], (far(got, y), info["applied"]))
    save("model.gguf", "llama", {**scaled, "rope_freqs.weight": Tensor([2], [1.0, 2.0])})
    message = fails("--layer=0", "--tokens=1,2")
    check("  of another size", message.endswith("tensor 'rope_freqs.weight' is not f32 [3]"), message)
    # quantised: the numbers that the file holds
    kinds = {"token_embd.weight": "F16", "blk.0.attn_q.weight": "Q8_0", "blk.0.attn_k.weight": "Q4_1", "blk.0.attn_v.weight": "F16"}
    read = save("model.gguf", "llama", {n: t for n, t in tensors.items() if n[4] != "1"}, kinds, **epsilon)
    save("exact.gguf", "llama", {n: Tensor(tensors[n].shape, numbers) for n, numbers in read.items()}, **epsilon)
    check("  quantised weights", run("--tokens=1,2,3,4,7")[0] == run("--tokens=1,2,3,4,7", file="exact.gguf")[0])


def others():
    """qwen2 keeps halves; gpt2 has one matrix, learned positions and a mean; gemma's embeddings are scaled."""
    p, table, places = Layer(), tensor(len(WORDS), E), tensor(7, E)
    x = [table.rows()[i] for i in IDS]
    rope = {"pairs": "halves", "base": 500.0, "channels": None}
    for name, factor in (("qwen2", 1), ("gemma", math.sqrt(E))):
        save("model.gguf", name, {"token_embd.weight": table, **model([p], False)}, **{f"{name}__attention__layer_norm_rms_epsilon": EPSILON})
        y = families.expected(p, rms([[c * factor for c in row] for row in x], single(GAIN[0])), causal=True, rope=rope)
        got, info, _ = run("--tokens=1,2,3,4,7")
        check(f"{name}: halves", far(got, y) < BOUND and "rope halves" in info["applied"], (far(got, y), info["applied"]))
    part = {**rope, "channels": 4}
    save("model.gguf", "qwen2", {"token_embd.weight": table, **model([p], False)}, **{"qwen2__rope__dimension_count": 4, "qwen2__attention__layer_norm_rms_epsilon": EPSILON})
    d = far(run("--tokens=1,2,3,4,7")[0], families.expected(p, rms(x, single(GAIN[0])), causal=True, rope=part))
    check("  of some channels", d < BOUND, d)
    p = Layer(HEADS, biases=True)
    tensors = {**families.fused(p, "blk.0.", "attn_qkv", "attn_output"), "blk.0.attn_norm.weight": Tensor([E], single(GAIN[0])),
               "blk.0.attn_norm.bias": Tensor([E], single(SHIFT)), "token_embd.weight": table, "position_embd.weight": places}
    save("model.gguf", "gpt2", tensors, **{"gpt2__attention__head_count_kv": None, "gpt2__attention__layer_norm_epsilon": EPSILON})
    placed = [[a + b for a, b in zip(row, place)] for row, place in zip(x, places.rows())]
    d = far(run("--tokens=1,2,3,4,7")[0], families.expected(p, centred(placed, single(GAIN[0]), single(SHIFT)), causal=True))
    check("gpt2: one matrix, positions, a layer norm", d < BOUND, d)
    message = fails("--tokens=" + "1," * 8)
    check("  no more tokens than positions", message.endswith("--tokens: number 7 is not below 7, the rows of 'position_embd.weight'"), message)
    # byte-pair encoding marks the blank, but not before the first word
    save("model.gguf", "gpt2", tensors, **{"gpt2__attention__head_count_kv": None, "tokenizer__ggml__tokens": ["a", "\u0120a", "b", "\u0120b", "<e>", "c", "d", "e"]})
    check("  marks of blanks", run("--tokens=a a b c")[0] == run("--tokens=0,1,3,5")[0])
    check("  are not among the names", json.loads(run("--tokens=a a b c")[2]["tokens"]) == ["a", "a", "b", "c"])


def rejected():
    p, table = Layer(), tensor(len(WORDS), E)
    tensors = {"token_embd.weight": table, **model([p], False)}
    known = "llama command-r granite internlm2 exaone falcon gemma gptneox nemotron phi2 qwen2 qwen3 stablelm starcoder2 gpt2 starcoder bert"
    for architecture, more, given, words, status, say in (
        ("rwkv", {}, tensors, ["--tokens=1"], 3, f"the attention of architecture 'rwkv' is not known ({known}); --plain takes its weights alone"),
        ("qwen2", {"qwen2__rope__scaling__type": "yarn"}, tensors, ["--tokens=1"], 3, "rotations that are scaled (yarn) are not computed; --plain leaves the scaling out"),
        ("qwen2", {}, tensors, ["--tokens=dog"], 2, "--tokens: 'dog' is not in the file's vocabulary (nearest: on, <s>, \u2581); numbers of tokens name the parts of a word"),
        ("qwen2", {"tokenizer__ggml__tokens": None}, tensors, ["--tokens=dog"], 2, "--tokens: the file has no vocabulary (tokenizer.ggml.tokens); give numbers of tokens, such as 1,450,4996"),
        ("qwen2", {}, tensors, ["--tokens=8"], 2, "--tokens: number 8 is not below 8, the rows of 'token_embd.weight'"),
        ("qwen2", {}, tensors, ["--tokens=1234567890"], 2, "--tokens: '1234567890' is not the number of a token"),
        ("qwen2", {}, tensors, ["--tokens= , "], 2, "--tokens: no token is given"),
        ("qwen2", {}, {**tensors, "x": table}, ["--tokens=1"], 2, "--tokens makes x, and the file has an x already"),
        ("qwen2", {}, {n: t for n, t in tensors.items() if n[0] == "b"}, ["--tokens=1"], 2, "--tokens: the file has no table of token embeddings; a file with x gives the input of the layer"),
        ("qwen2", {}, {**tensors, "token_embd.weight": tensor(E)}, ["--tokens=1"], 2, "tensor 'token_embd.weight' is not a table of embeddings [tokens, 1] of f32, f16 or bf16"),
        ("bert", {}, {**tensors, "token_types.weight": tensor(2, E)}, ["--tokens=1"], 3, "--tokens: embeddings with types of tokens are not computed; a file with x gives the input of the layer"),
    ):
        save("model.gguf", architecture, given, **more)
        message = fails(*words, status=status)
        check(f"{architecture} {' '.join(words)}: {say[:60]}", message == f"attn layer: model.gguf: {say}", message)
    save("model.gguf", "qwen2", tensors)
    message = fails("--layer=1", "--tokens=1")
    check("no such layer", message == "attn layer: model.gguf: no layer 1; there are 0 to 0", message)
    check("nothing is written", not os.path.exists("no.safetensors"))


def test():
    if subprocess.run([ATTN, "layer", "--help"], capture_output=True).returncode:
        print("skipped: built without libattn_layers")
        return 77
    for part in (llama, others, rejected):
        part()
    return finish()


if __name__ == "__main__":
    run_in_folder(test)
