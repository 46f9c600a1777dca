#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`attn analyze --rollout, --flow, --gradient-weighted`: files of weights, by their definitions."""
import itertools
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
STREET = os.path.join(SOURCE, "examples/data/animal_street.safetensors")
F32 = 2**-24
draw = random.Random(2)


def attn(*words, status=0):
    done = subprocess.run([ATTN, *words], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != status:
        sys.exit(f"attn {' '.join(words)}: {done.returncode} {done.stderr}")
    return done.stdout if status == 0 else done.stderr


def weights_of(path):
    tensors, metadata = tensor_file.read(path)
    return *tensors["weights"][1:], metadata


def mixed(weights, heads, n):
    """Half the mean of the heads and half the identity."""
    mean = [[sum(weights[(h * n + i) * n + j] for h in range(heads)) / heads + (i == j) for j in range(n)] for i in range(n)]
    return [[x / sum(row) for x in row] for row in mean]


def product(a, b):
    return [[sum(x * y for x, y in zip(row, column)) for column in zip(*b)] for row in a]


def smallest_cut(layers, top, bottom):
    """The least capacity of edges from a set of places with `top` to one with `bottom`."""
    n, places = len(layers[0]), (len(layers) + 1) * len(layers[0])
    inner = [p for p in range(places) if p not in (bottom, places - n + top)]
    best = math.inf
    for chosen in itertools.product((0, 1), repeat=len(inner)):
        side = dict(zip(inner, chosen)) | {bottom: 0, places - n + top: 1}
        best = min(best, sum(layers[l][i][j] for l in range(len(layers)) for i in range(n) for j in range(n)
                             if side[(l + 1) * n + i] and not side[l * n + j]))
    return best


def check_rollout():
    _, recorded, about = weights_of(STREET)
    attn("analyze", STREET, "--rollout=rollout.safetensors")
    shape, found, metadata = weights_of("rollout.safetensors")
    n, expected, last = 14, [], [[float(i == j) for j in range(14)] for i in range(14)]
    for layer in range(6):
        size = 12 * n * n
        last = product(mixed(recorded[layer * size:(layer + 1) * size], 12, n), last)
        expected += [x for row in last for x in row]
    check("rollout: a map for each layer", shape == [6, 1, n, n], shape)
    # weights of f32 that are computed again: within 8 u of each other, as the differences that --compare shows
    check("rollout: by definition", max(abs(a - b) for a, b in zip(found, expected)) < 6 * 8 * F32)
    check("rollout: rows sum to 1", all(abs(sum(found[k * n:(k + 1) * n]) - 1) < n * F32 for k in range(6 * n)))
    check("rollout: keeps the metadata", metadata["tokens"] == about["tokens"] and metadata["layers"] == about["layers"])
    attn("run", STREET, "-o", "weights.npz", "--weights", "--quiet")
    attn("run", STREET, "-o", "weights.safetensors", "--weights", "--quiet")
    attn("analyze", "weights.safetensors", "--rollout=again.safetensors")
    check("rollout: the same from weights alone", weights_of("again.safetensors")[:2] == (shape, found))
    attn("analyze", STREET, "--rollout=causal.safetensors", "--causal")
    causal = weights_of("causal.safetensors")[1]
    check("rollout: the flags of a mechanism count", all(causal[(k * n + i) * n + j] == 0 for k in range(6) for i in range(n) for j in range(i + 1, n)))
    check("rollout: attn view takes it", attn("view", "rollout.safetensors", "-o", "page.html") is not None)
    check("rollout: the file is told in --json", json.loads(attn("analyze", STREET, "--rollout=rollout.npz", "--json"))["map"] == "rollout.npz")
    attn("analyze", STREET, "--rollout=values.safetensors", "--gradients")
    # in f64 there
    check("rollout: beside what needs values", max(abs(a - b) for a, b in zip(weights_of("values.safetensors")[1], found)) < 6 * 8 * F32)
    top = json.loads(attn("top", "rollout.safetensors", "--token=it", "--layer=5", "--json"))["links"]
    check("rollout: so does attn top", len(top) == n and top[0]["key_token"] == "[CLS]" and top[0]["head"] == 0, top[0])


def check_packed():
    """Sequences end to end become entries, each with its own tokens."""
    n, d = 7, 4
    tensors = {name: ("F32", [2, n, d], [draw.gauss(0, 1) for _ in range(2 * n * d)]) for name in "qkv"}
    bounds = ("I64", [3], [0, 3, n])
    tensor_file.write("in.safetensors", {**tensors, "cu_seqlens_q": bounds, "cu_seqlens_kv": bounds}, tokens=json.dumps(list("abcdefg")))
    attn("analyze", "in.safetensors", "--rollout=packed.safetensors")
    shape, found, metadata = weights_of("packed.safetensors")
    check("packed: an entry for each sequence", shape == [2, 1, 4, 4] and json.loads(metadata["tokens"]) == [list("abc"), list("defg")], (shape, metadata))
    second = {name: ("F32", [2, 4, d], [x for h in range(2) for x in t[2][(h * n + 3) * d:(h * n + n) * d]]) for name, t in tensors.items()}
    tensor_file.write("in.safetensors", second)
    attn("analyze", "in.safetensors", "--rollout=alone.safetensors")
    check("packed: as each alone", all(abs(a - b) < 8 * F32 for a, b in zip(found[16:], weights_of("alone.safetensors")[1])))
    link = json.loads(attn("top", "packed.safetensors", "--token=e", "--json"))["links"][0]
    check("packed: attn top names the tokens", link["entry"] == 1 and link["query"] == 1, link)


def check_flow():
    n, heads, layers, entries = 3, 2, 3, 2
    rows = [[draw.random() for _ in range(n)] for _ in range(entries * layers * heads * n)]
    numbers = [x / sum(row) for row in rows for x in row]
    tensor_file.write("in.safetensors", {"weights": ("F64", [layers, entries, heads, n, n], numbers)},
                      layout="weights: [layer, entry, head, query, key]", layers="[3, 4, 5]")
    attn("analyze", "in.safetensors", "--flow=flow.safetensors")
    shape, found, metadata = weights_of("flow.safetensors")
    check("flow: a map of the last layer, for each entry", shape == [1, entries, 1, n, n] and metadata["layers"] == "[5]", (shape, metadata))
    for e in range(entries):
        network = [mixed(numbers[(l * entries + e) * heads * n * n:(l * entries + e + 1) * heads * n * n], heads, n) for l in range(layers)]
        for i in range(n):
            flows = [smallest_cut(network, i, j) for j in range(n)]
            row = found[(e * n + i) * n:(e * n + i + 1) * n]
            check(f"flow: of token {i} of entry {e}", all(abs(a - b / sum(flows)) < 8 * F32 for a, b in zip(row, flows)), (row, flows))
    one = {"weights": ("F64", [heads, n, n], numbers[:heads * n * n])}
    tensor_file.write("in.safetensors", one)
    attn("analyze", "in.safetensors", "--flow=flow.safetensors")
    attn("analyze", "in.safetensors", "--rollout=rollout.safetensors")
    flow, rollout = weights_of("flow.safetensors"), weights_of("rollout.safetensors")
    check("flow: of one layer is its rollout", flow[0] == rollout[0] == [1, n, n] and all(abs(a - b) < 4 * F32 for a, b in zip(flow[1], rollout[1])), flow)


def check_gradients():
    batch, heads, groups, n, m, d, dv = 2, 4, 2, 5, 7, 6, 3
    normal = lambda *shape: ("F64", list(shape), [draw.gauss(0, 1) for _ in range(math.prod(shape))])
    tensors = {"q": normal(batch, heads, n, d), "k": normal(batch, groups, m, d), "v": normal(batch, groups, m, dv), "do": normal(batch, heads, n, dv)}
    tensor_file.write("in.safetensors", tensors)
    attn("run", "in.safetensors", "-o", "out.safetensors", "--weights", "--quiet")
    a = tensor_file.read("out.safetensors")[0]["weights"][2]
    v, do = tensors["v"][2], tensors["do"][2]
    gradients = [sum(do[((b * heads + h) * n + i) * dv + c] * v[((b * groups + h // 2) * m + j) * dv + c] for c in range(dv))
                 for b in range(batch) for h in range(heads) for i in range(n) for j in range(m)]
    expected = [max(0, x * y) for x, y in zip(a, gradients)]
    given = ("F64", [batch, heads, n, m], gradients)
    for name, inputs in (("from do and v", tensors), ("from dweights", {"q": tensors["q"], "k": tensors["k"], "dweights": given}),
                         ("of weights alone", {"weights": ("F64", given[1], a), "dweights": given})):
        tensor_file.write("in.safetensors", inputs)
        attn("analyze", "in.safetensors", "--gradient-weighted=map.safetensors")
        shape, found, _ = weights_of("map.safetensors")
        # rounded to f32 twice, once as a weight
        good = all(abs(x - y) <= 4 * F32 * y for x, y in zip(found, expected))
        check(f"gradient-weighted: {name}", shape == given[1] and good and any(expected) and not all(expected))
    token_first = {name: ("F64", [batch, t[1][2], t[1][1], t[1][3]], [t[2][((b * t[1][1] + h) * t[1][2] + i) * t[1][3] + c] for b in range(batch)
                          for i in range(t[1][2]) for h in range(t[1][1]) for c in range(t[1][3])]) for name, t in tensors.items()}
    tensor_file.write("in.safetensors", token_first)
    attn("analyze", "in.safetensors", "--gradient-weighted=map.safetensors", "--layout=bshd")
    check("gradient-weighted: of tokens before heads", all(abs(x - y) <= 4 * F32 * y for x, y in zip(weights_of("map.safetensors")[1], expected)))
    with open("map.safetensors", "rb") as file:
        before = file.read()
    del tensors["do"]
    tensor_file.write("in.safetensors", tensors)
    said = attn("analyze", "in.safetensors", "--gradient-weighted=map.safetensors", status=2)
    check("gradient-weighted: without gradients", said == "attn analyze: in.safetensors: --gradient-weighted needs gradients: dweights [head, query, key], or do, v, q and k\n", said)
    tensor_file.write("in.safetensors", {**tensors, "dweights": normal(heads, n, m)})
    said = attn("analyze", "in.safetensors", "--gradient-weighted=map.safetensors", status=2)
    check("gradient-weighted: of another shape", said == "attn analyze: in.safetensors: tensor 'dweights' is f64 [4, 5, 7]; expected floats [2, 4, 5, 7], as weights\n", said)
    with open("map.safetensors", "rb") as file:
        check("gradient-weighted: nothing is written then", file.read() == before)
    for flag in ("rollout", "flow"):
        said = attn("analyze", "in.safetensors", f"--{flag}=map.safetensors", status=2)
        check(f"{flag}: of two texts", said == f"attn analyze: in.safetensors: --{flag} is for self-attention, from layer to layer; there are 5 queries and 7 keys\n", said)


def check_rejected():
    said = attn("analyze", STREET, "--rollout=a.npz", "--flow=b.npz", status=2)
    check("one file at a time", said == "attn analyze: --rollout, --flow, --gradient-weighted and --steps write a file each; give one of them\n", said)
    tensor_file.write("in.safetensors", {"weights": ("F32", [2, 1, 2, 2], [0.5] * 8)}, layers="[1, 3]")
    said = attn("analyze", "in.safetensors", "--rollout=a.npz", status=2)
    check("a layer is missing", said == "attn analyze: in.safetensors: --rollout needs each layer; there is none between 1 and 3\n", said)
    tensor_file.write("long.safetensors", {"weights": ("F32", [1, 257, 257], [1.0 if i == j else 0.0 for i in range(257) for j in range(257)])})
    said = attn("analyze", "long.safetensors", "--flow=a.npz", status=3)
    check("a flow of many tokens", said == "attn analyze: long.safetensors: --flow has a maximum flow for each pair of tokens, which takes hours for "
          "257 tokens (at most 256); --rollout takes any number\n", said)
    said = attn("analyze", "in.safetensors", "--rollout=in.safetensors", status=2)
    check("the output is the input", said == "attn analyze: in.safetensors: this output is an input, which would be replaced\n", said)
    check("nothing is written", not os.path.exists("a.npz") and not os.path.exists("b.npz"))


def main():
    check_rollout()
    check_packed()
    check_flow()
    check_gradients()
    check_rejected()
    return finish()


run_in_folder(main)
