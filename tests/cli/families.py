#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`attn layer` with weights under the names, in the layouts and with the positions, masks and scales of many models and notebooks: the same
layer, computed here by its definition in double.

usage: families.py ATTN
"""

import json
import math
import subprocess

import layer
from layer import ATTN, BOUND, Tensor, far, load, run, save, softmax, tensor, times
from on_terminal import on_terminal
from tap import check, finish, run_in_folder

E, N, M = 12, 5, 4
ROPE = {"pairs": "halves", "base": 10000.0, "channels": None}


class Weights:
    """Dense [out, in] matrices and biases of a layer."""

    def __init__(self, heads, kv, dim, biases=True, key_in=E, value_in=E):
        self.heads, self.kv, self.dim = heads, kv, dim
        rows = {"q": heads * dim, "k": kv * dim, "v": kv * dim, "o": E}
        inputs = {"q": E, "k": key_in, "v": value_in, "o": heads * dim}
        self.w = {n: tensor(rows[n], inputs[n]) for n in "qkvo"}
        self.b = {n: tensor(rows[n]) for n in "qkvo"} if biases else {}


def rotate(row, position, rope):
    channels = rope["channels"] or len(row)
    out, half = list(row), channels // 2
    for i in range(half):
        a, b = (i, i + half) if rope["pairs"] == "halves" else (2 * i, 2 * i + 1)
        angle = position * rope["base"] ** (-2 * i / channels) / rope.get("factors", [1] * half)[i]
        out[a] = row[a] * math.cos(angle) - row[b] * math.sin(angle)
        out[b] = row[a] * math.sin(angle) + row[b] * math.cos(angle)
    return out


def project(p, name, x):
    bias = p.b[name].numbers if p.b else [0.0] * p.w[name].shape[0]
    return [[c + b for c, b in zip(row, bias)] for row in times(x, p.w[name].rows())]


def expected(p, x, key=None, value=None, causal=False, scale=None, rope=None, bias=None, norms=None, output=True):
    """y by definition: one query, head and key at a time."""
    key = x if key is None else key
    value = key if value is None else value
    q, k, v = project(p, "q", x), project(p, "k", key), project(p, "v", value)
    dim, joined = p.dim, [[] for _ in x]
    if norms and len(norms[0]) > dim:
        q, k, norms = layer.normed(q, norms[0]), layer.normed(k, norms[1]), None
    cut = lambda rows, h: [row[h * dim : (h + 1) * dim] for row in rows]
    for h in range(p.heads):
        mine, keys, values = cut(q, h), cut(k, h * p.kv // p.heads), cut(v, h * p.kv // p.heads)
        if norms:
            mine, keys = ((centred if isinstance(gains, tuple) else layer.normed)(rows, gains) for rows, gains in zip((mine, keys), norms))
        if rope:
            mine, keys = ([rotate(row, i, rope) for i, row in enumerate(rows)] for rows in (mine, keys))
        for i, row in enumerate(mine):
            seen = keys[: i + 1] if causal else keys
            scores = [sum(a * b for a, b in zip(row, other)) * (dim**-0.5 if scale is None else scale) for other in seen]
            weights = softmax([s + (bias[h][i][j] if bias else 0) for j, s in enumerate(scores)])
            joined[i] += [sum(w * values[j][c] for j, w in enumerate(weights)) for c in range(dim)]
    return sum(project(p, "o", joined) if output else joined, [])


def centred(rows, gains, epsilon=1e-5):
    """A layer norm with (gains, shifts)."""
    out = []
    for row in rows:
        mean = sum(row) / len(row)
        deviation = math.sqrt(sum((c - mean) ** 2 for c in row) / len(row) + epsilon)
        out.append([(c - mean) / deviation * g + s for c, g, s in zip(row, *gains)])
    return out


def turned(t):
    """The transpose."""
    return Tensor(t.shape[::-1], sum(map(list, zip(*t.rows())), []))


def stacked(*parts):
    return Tensor([sum(t.shape[0] for t in parts), *parts[0].shape[1:]], sum((t.numbers for t in parts), []))


def separate(p, prefix, q, k, v, o, turn=False, weight=".weight", bias=".bias"):
    names = dict(zip("qkvo", (q, k, v, o)))
    out = {prefix + n + weight: turned(p.w[r]) if turn else p.w[r] for r, n in names.items() if n}
    return {**out, **{prefix + n + bias: p.b[r] for r, n in names.items() if n and p.b}}


def fused(p, prefix, qkv, o, turn=False, weight=".weight", bias=".bias"):
    whole = stacked(*(p.w[r] for r in "qkv"))
    out = {prefix + qkv + weight: turned(whole) if turn else whole, prefix + o + ".weight": turned(p.w["o"]) if turn else p.w["o"]}
    return {**out, **({prefix + qkv + bias: stacked(*(p.b[r] for r in "qkv")), prefix + o + ".bias": p.b["o"]} if p.b else {})}


def grouped(p, prefix, qkv, o):
    """Of each key head: its queries, its key, its value."""
    def mixed(parts):
        rows, width = [], len(parts["q"].numbers) // (p.heads * p.dim)
        of = lambda r, h: parts[r].numbers[h * p.dim * width : (h + 1) * p.dim * width]
        for g in range(p.kv):
            rows += sum((of("q", h) for h in range(g * p.heads // p.kv, (g + 1) * p.heads // p.kv)), []) + of("k", g) + of("v", g)
        return Tensor([(p.heads + 2 * p.kv) * p.dim, width] if width > 1 else [len(rows)], rows)
    out = {prefix + qkv + ".weight": mixed(p.w), prefix + o + ".weight": p.w["o"]}
    return {**out, **({prefix + qkv + ".bias": mixed(p.b), prefix + o + ".bias": p.b["o"]} if p.b else {})}


def cubes(p, names, biases=(), model_first=False):
    """[head, model, channel] or [model, head, channel], the output [head, channel, model]."""
    def cube(r):
        rows, heads = p.w[r].rows(), p.heads if r in "qo" else p.kv
        if r == "o":
            return Tensor([heads, p.dim, E], [rows[m][h * p.dim + c] for h in range(heads) for c in range(p.dim) for m in range(E)])
        if model_first:
            return Tensor([E, heads, p.dim], [rows[h * p.dim + c][m] for m in range(E) for h in range(heads) for c in range(p.dim)])
        return Tensor([heads, E, p.dim], [rows[h * p.dim + c][m] for h in range(heads) for m in range(E) for c in range(p.dim)])
    shaped = lambda r: Tensor([p.heads if r == "q" else p.kv, p.dim], p.b[r].numbers) if r != "o" else p.b[r]
    return {**{n: cube(r) for r, n in zip("qkvo", names)}, **{n: shaped(r) for r, n in zip("qkvo", biases)}}


FULL, GROUPED = Weights(4, 4, 3), Weights(4, 2, 4)
BARE = Weights(4, 2, 4, biases=False)
CAUSAL = {"causal": True}
LLAMA = {"causal": True, "rope": ROPE}
# family, layer, tensors, words, what is computed beside the weights
FAMILIES = [
    ("torch", FULL, fused(FULL, "", "in_proj", "out_proj", weight="_weight", bias="_bias"), [], {}),
    ("torch", FULL, separate(FULL, "a.b.", "q_proj", "k_proj", "v_proj", "out_proj"), [], {}),
    ("torch", GROUPED, separate(GROUPED, "", "q_proj", "k_proj", "v_proj", "o_proj"), [], {}),
    ("torch", GROUPED, cubes(GROUPED, ("wq", "wk", "wv", "wo"), ("bq", "bk", "bv", "bo")), None, {}),
    ("bert", FULL, separate(FULL, "bert.encoder.layer.0.attention.", "self.query", "self.key", "self.value", "output.dense"), [], {}),
    ("vit", FULL, separate(FULL, "vit.encoder.layer.0.attention.", "attention.query", "attention.key", "attention.value", "output.dense"), [], {}),
    ("timm", FULL, fused(FULL, "blocks.0.attn.", "qkv", "proj"), [], {}),
    ("distilbert", FULL, separate(FULL, "transformer.layer.0.attention.", "q_lin", "k_lin", "v_lin", "out_lin"), [], {}),
    ("gpt2", FULL, fused(FULL, "transformer.h.0.attn.", "c_attn", "c_proj", turn=True), [], CAUSAL),
    ("gpt2", FULL, fused(FULL, "transformer.h.0.attn.", "c_attn", "c_proj"), [], CAUSAL),
    ("gpt-neo", FULL, separate(FULL, "transformer.h.0.", *(f"attn.attention.{n}_proj" for n in ("q", "k", "v", "out"))), [], {"causal": True, "scale": 1}),
    ("gpt-neox", FULL, grouped(FULL, "gpt_neox.layers.0.", "attention.query_key_value", "attention.dense"), ["--rope-channels=2"],
     {"causal": True, "rope": {**ROPE, "channels": 2}}),
    ("falcon or bloom", GROUPED, grouped(GROUPED, "transformer.h.0.", "self_attention.query_key_value", "self_attention.dense"),
     ["--rope", "--rope-pairs=halves"], LLAMA),
    ("phi3", BARE, fused(BARE, "model.layers.0.", "self_attn.qkv_proj", "self_attn.o_proj"), [], LLAMA),
    ("phi", FULL, separate(FULL, "model.layers.0.", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.dense"),
     ["--rope-channels=2"], {"causal": True, "rope": {**ROPE, "channels": 2}}),
    ("llama", BARE, separate(BARE, "model.layers.0.", *(f"self_attn.{n}_proj" for n in "qkvo")), [], LLAMA),
    ("llama", GROUPED, separate(GROUPED, "model.layers.0.", *(f"self_attn.{n}_proj" for n in "qkvo")), ["--rope-base=500"],
     {"causal": True, "rope": {**ROPE, "base": 500.0}}),
    ("llama", BARE, separate(BARE, "model.layers.0.", *(f"self_attn.{n}_proj" for n in "qkvo")), ["--plain"], {}),
    ("llama", BARE, separate(BARE, "model.layers.0.", *(f"self_attn.{n}_proj" for n in "qkvo")), ["--rope-pairs=interleaved"],
     {"causal": True, "rope": {**ROPE, "pairs": "interleaved"}}),
    ("llama of Meta", BARE, separate(BARE, "layers.0.", "attention.wq", "attention.wk", "attention.wv", "attention.wo"), [],
     {"causal": True, "rope": {**ROPE, "pairs": "interleaved"}}),
    ("W_q", BARE, separate(BARE, "", "W_q", "W_k", "W_v", "W_o"), [], {}),
    ("W_q", BARE, separate(BARE, "mha.", "w_q", "w_k", "w_v", "w_o"), [], {}),
    ("W_q", BARE, separate(BARE, "", "W_q", "W_k", "W_v", None), [], {"output": False}),
    ("W_query", GROUPED, separate(GROUPED, "", "W_query", "W_key", "W_value", "out_proj"), [], {}),
    ("W_query", BARE, separate(BARE, "", "W_query", "W_key", "W_value", None, turn=True, weight=""), [], {"output": False}),
    ("transformer-lens", GROUPED, cubes(GROUPED, ("blocks.0.attn.W_Q", "blocks.0.attn.W_K", "blocks.0.attn.W_V", "blocks.0.attn.W_O"),
                                        ("blocks.0.attn.b_Q", "blocks.0.attn.b_K", "blocks.0.attn.b_V", "blocks.0.attn.b_O")), None, {}),
    ("flax or keras", GROUPED, cubes(GROUPED, [f"encoder/layers_0/attention/{n}/kernel" for n in ("query", "key", "value", "out")],
                                     [f"encoder/layers_0/attention/{n}/bias" for n in ("query", "key", "value", "out")], True), None, {}),
    ("linears", FULL, separate(FULL, "encoder.layers.0.self_attn.", "linears.0", "linears.1", "linears.2", "linears.3"), [], {}),
    ("to_q", BARE, separate(BARE, "", "to_q", "to_k", "to_v", "to_out.0"), [], {}),
    ("to_qkv", FULL, fused(FULL, "", "to_qkv", "to_out.0"), [], {}),
    ("to_qkv", FULL, fused(FULL, "", "to_qkv", "to_out"), [], {}),
    ("query", FULL, separate(FULL, "", "query", "key", "value", None), [], {"output": False}),
    ("query", FULL, separate(FULL, "sa.", "q", "k", "v", "proj"), [], {}),
    ("gguf", BARE, separate(BARE, "blk.0.", "attn_q", "attn_k", "attn_v", "attn_output"), [], {}),
    ("gguf", FULL, fused(FULL, "blk.0.", "attn_qkv", "attn_output"), [], {}),
]


def families():
    x = tensor(N, E)
    for family, p, tensors, words, model in FAMILIES:
        words = [f"--heads={p.heads}", *words] if words is not None else []  # three axes tell the heads
        out, info = run({"x": x, **tensors}, *words)
        d = far(out["y"].numbers, expected(p, x.rows(), **model))
        what = f"{family}: {min(tensors)} {' '.join(words)}"
        check(what, d < BOUND, d)
        check(f"{what}: told by its names", info["family"] == family and not info["unused"], (info["family"], info["unused"]))
        check(f"{what}: heads and channels", (info["heads"], info["heads_kv"], info["head_dim"]) == (p.heads, p.kv, p.dim), info)


def twice():
    """Of one matrix and three, the one is read."""
    x = tensor(N, E)
    tensors = {"x": x, **fused(FULL, "", "in_proj", "out_proj", weight="_weight", bias="_bias"), "wq": tensor(E, E)}
    out, info = run(tensors, "--heads=4")
    check("a matrix that is there twice", far(out["y"].numbers, expected(FULL, x.rows())) < BOUND and info["unused"] == ["wq"], info["unused"])


def crossing():
    """What a decoder attends to elsewhere is all visible."""
    x, context = tensor(N, E), tensor(M, E)
    tensors = {"x": x, "context": context, **separate(FULL, "h.0.", *(f"attn.attention.{n}_proj" for n in ("q", "k", "v", "out")))}
    out, info = run(tensors, "--heads=4")
    check("no causal mask over a context", far(out["y"].numbers, expected(FULL, x.rows(), context.rows(), scale=1)) < BOUND and info["applied"] == "scale 1", info["applied"])


def norms_of_heads():
    """Qwen3's norms of queries and keys, and OLMo 2's over all heads."""
    x, gains = tensor(N, E), [tensor(BARE.dim) for _ in "qk"]
    tensors = {**separate(BARE, "model.layers.0.", *(f"self_attn.{n}_proj" for n in "qkvo")), "model.layers.0.self_attn.q_norm.weight": gains[0],
               "model.layers.0.self_attn.k_norm.weight": gains[1], "x": x}
    out, info = run(tensors, "--heads=4")
    d = far(out["y"].numbers, expected(BARE, x.rows(), norms=[g.numbers for g in gains], **LLAMA))
    check("norms of queries and keys", d < BOUND and "norms of queries and keys" in info["applied"], (d, info["applied"]))
    wide = [tensor(BARE.heads * BARE.dim), tensor(BARE.kv * BARE.dim)]
    tensors.update({f"model.layers.0.self_attn.{n}_norm.weight": g for n, g in zip("qk", wide)})
    d = far(run(tensors, "--heads=4")[0]["y"].numbers, expected(BARE, x.rows(), norms=[g.numbers for g in wide], **LLAMA))
    check("  over all heads of a token", d < BOUND, d)
    shifts = [tensor(FULL.dim) for _ in "qk"]
    timm = {"x": x, **fused(FULL, "blocks.0.attn.", "qkv", "proj"), **{f"blocks.0.attn.{n}_norm.{end}": t for end, of in (("weight", [tensor(FULL.dim)] * 2), ("bias", shifts)) for n, t in zip("qk", of)}}
    gain = timm["blocks.0.attn.q_norm.weight"].numbers
    d = far(run(timm, "--heads=4")[0]["y"].numbers, expected(FULL, x.rows(), norms=[(gain, t.numbers) for t in shifts]))
    check("  of the deviation from the mean, with biases", d < BOUND, d)
    for flag in ("backward", "decode"):
        message = fails({**tensors, "dy": x}, f"--{flag}", "--heads=4", status=3)
        check(f"  not with --{flag}", f"--{flag} is not for layers with norms of queries and keys ('model.layers.0.self_attn.q_norm.weight'); --plain leaves them out" in message, message)


def fails(tensors, *words, status=2):
    save("bad.safetensors", tensors)
    done = subprocess.run([ATTN, "layer", "bad.safetensors", "-o", "no.safetensors", *words], capture_output=True, text=True)
    return done.stderr.strip() if done.returncode == status else f"status {done.returncode}: {done.stderr.strip()}"


def t5():
    """No scale; the table of the first block serves all; the decoder counts backwards only."""
    p, buckets = Weights(2, 2, 3, biases=False), 8
    table, x = tensor(buckets, 2), tensor(N, E)

    def bucket(d, causal):
        """By distance, of up to 16 tokens: half of each side's buckets are exact."""
        n, side, base = (max(d, 0), buckets, 0) if causal else (abs(d), buckets // 2, buckets // 2 if d < 0 else 0)
        exact = side // 2
        far_one = exact + int(math.log(n / exact) / math.log(16 / exact) * (side - exact)) if n >= exact else n
        return base + min(side - 1, far_one)

    for stack, causal in (("encoder", False), ("decoder", True)):
        prefix = f"{stack}.block.%d.layer.0.SelfAttention."
        tensors = {**separate(p, prefix % 1, "q", "k", "v", "o"), prefix % 0 + "relative_attention_bias.weight": table}
        bias = [[[table.numbers[bucket(i - j, causal) * 2 + h] for j in range(N)] for i in range(N)] for h in range(2)]
        with open("config.json", "w") as file:
            json.dump({"relative_attention_max_distance": 16}, file)
        out, info = run({"x": x, **tensors}, "--config=config.json")
        d = far(out["y"].numbers, expected(p, x.rows(), scale=1, bias=bias, causal=causal))
        check(f"t5: {stack}, with the heads of its table", d < BOUND and info["family"] == "t5" and info["heads"] == 2, (d, info))
    tensors = separate(p, "decoder.block.0.layer.1.EncDecAttention.", "q", "k", "v", "o")
    context = tensor(M, E)
    d = far(run({"x": x, "context": context, **tensors}, "--heads=2")[0]["y"].numbers, expected(p, x.rows(), context.rows(), scale=1))
    check("t5: a decoder's memory has no distances", d < BOUND, d)


def modules():
    """Bahdanau's and Luong's scores."""
    state, memory, hidden = 6, 5, 4
    x, z, w, ws, wm, bs, bm = tensor(N, state), tensor(M, memory), tensor(1, hidden), tensor(hidden, state), tensor(hidden, memory), tensor(hidden), tensor(hidden)
    matrix = tensor(state, memory)
    attend = lambda scores: sum(([sum(a * row[c] for a, row in zip(softmax(s), z.rows())) for c in range(memory)] for s in scores), [])
    additive = lambda b: attend([[sum(a * math.tanh(p + q + c) for a, p, q, c in zip(w.numbers, i, j, b)) for j in times(z.rows(), wm.rows())] for i in times(x.rows(), ws.rows())])
    both = Tensor([hidden, state + memory], sum((a + b for a, b in zip(ws.rows(), wm.rows())), []))
    none, sums = [0.0] * hidden, [a + b for a, b in zip(bs.numbers, bm.numbers)]
    cases = [
        ("bahdanau", {"attention.W_q.weight": ws, "attention.W_k.weight": wm, "attention.w_v.weight": w}, [], additive(none)),
        ("bahdanau", {"w_q.weight": ws, "w_k.weight": wm, "w_v.weight": w}, [], additive(none)),
        ("bahdanau", {"decoder.attention.Wa.weight": ws, "decoder.attention.Wa.bias": bs, "decoder.attention.Ua.weight": wm,
                      "decoder.attention.Ua.bias": bm, "decoder.attention.Va.weight": w, "decoder.attention.Va.bias": tensor(1)}, [], additive(sums)),
        ("bahdanau", {"W1.weight": ws, "W2.weight": wm, "V.weight": w, "W1.bias": bs}, [], additive(bs.numbers)),
        ("luong concat", {"attn.attn.weight": both, "attn.attn.bias": bs, "attn.v": Tensor([hidden], w.numbers)}, [], additive(bs.numbers)),
        ("luong general", {"attn.weight": matrix, "attn.bias": tensor(state)}, [], attend(times(times(x.rows(), turned(matrix).rows()), z.rows()))),
    ]
    for family, tensors, words, y in cases:
        out, info = run({"x": x, "context": z, **tensors}, *words)
        d = far(out["y"].numbers, y)
        check(f"{family}: {max(tensors)}", d < BOUND and info["family"] == family, (d, info["family"]))
        gradients = run({"x": x, "context": z, "dy": tensor(N, memory), **tensors}, *words, "--backward")[0]
        check("  its gradients", {"dx", "dcontext", "dw"} <= set(gradients), sorted(gradients))
    # w_v.weight of several rows is the matrix of values
    check("w_v of several rows is that of values", run({"x": tensor(N, E), **separate(FULL, "", "w_q", "w_k", "w_v", "w_o")}, "--heads=4")[1]["kind"] == "multi-head")
    message = fails({"query": x, "key": z, "value": z, **cases[0][1]})
    check("which has no values beside its keys", message.endswith("tensor 'value' is for multi-head layers; a layer of kind additive has no values beside its keys"), message)


def own_names():
    """--names=FILE."""
    x = tensor(N, E)
    mine = {"mine." + n: turned(FULL.w[r]) for r, n in zip("qkvo", ("first", "second", "third", "last"))}
    mine["mine.shift"] = FULL.b["q"]
    lines = ["# of a colleague", "axes = in out", "wq = first", "wk=second", " wv = third # values", "", "wo = last", "bq = shift"]
    with open("names.txt", "w") as file:
        file.write("\n".join(lines))
    p = Weights(4, 4, 3)
    p.w, p.b = FULL.w, {r: FULL.b[r] if r == "q" else Tensor(FULL.b[r].shape, [0.0] * len(FULL.b[r].numbers)) for r in "qkvo"}
    out, info = run({"x": x, **mine}, "--heads=4", "--names=names.txt", "--prefix=mine.")
    check("--names", far(out["y"].numbers, expected(p, x.rows())) < BOUND and info["weights"]["wv"] == "mine.third", info)
    for text, words, say in (
        ("wq first", [], "names.txt: line 1: expected ROLE = NAME, such as wq = query.weight"),
        ("\nwx = first", [], "names.txt: line 2: no role 'wx'; known: wq wk wv wo wqkv bq bk bv bo bqkv bias_k bias_v q_norm k_norm q_norm_bias k_norm_bias norm norm_bias bias_table w state memory both bias memory_bias both_bias combine"),
        ("axes = both", [], "names.txt: line 1: no role 'axes'; known: axes = in out, axes = out in"),
        ("wq = first\nwk = second", [], "names.txt: it names neither wqkv nor all of wq, wk and wv"),
        ("wq = first\nwk = second\nwv = fourth", ["--prefix=mine."], "no tensor 'mine.fourth', which --names gives for wv"),
    ):
        with open("names.txt", "w") as file:
            file.write(text)
        message = fails({"x": x, **mine}, "--heads=4", "--names=names.txt", *words)
        check(f"  {say}", message.endswith(say), message)
    message = fails({"x": x, **mine}, "--heads=4", "--names=nowhere.txt")
    check("  a file that is not there", message.endswith("nowhere.txt: No such file or directory"), message)


def which_layer():
    """The one layer, --prefix and --layer; an error lists them."""
    x = tensor(N, E)
    layers = [Weights(4, 4, 3) for _ in range(12)]
    tensors = {"x": x}
    for i, p in enumerate(layers):
        tensors.update(separate(p, f"encoder.layer.{i}.attention.", "self.query", "self.key", "self.value", "output.dense"))
    for words in (["--layer=11"], ["--prefix=encoder.layer.11."], ["--prefix=encoder.layer.11.attention.self."], ["--prefix=encoder", "--layer=11"]):
        out, info = run(tensors, "--heads=4", *words)
        check(f"{' '.join(words)}: that layer", far(out["y"].numbers, expected(layers[11], x.rows())) < BOUND and info["prefix"] == "encoder.layer.11.attention.", info["prefix"])
    found = "'encoder.layer.0.attention.', 'encoder.layer.1.attention.', 'encoder.layer.2.attention.', "
    for words, say in (
        ([], f"weights of 12 layers; --prefix=TEXT or --layer=N chooses one: {found}... (12 in all)"),
        (["--prefix=encoder.layer.1"], "weights of 3 layers; --prefix=TEXT or --layer=N chooses one: 'encoder.layer.1.attention.', 'encoder.layer.10.attention.', 'encoder.layer.11.attention.'"),
        (["--layer=12"], f"no weights of a layer 12; there are those of {found}... (12 in all)"),
        (["--layer=3", "--prefix=decoder."], f"no weights of a layer 3 after decoder.; there are those of {found}... (12 in all)"),
        (["--prefix=decoder."], f"no weights of a layer after the prefix 'decoder.'; there are those of {found}... (12 in all)"),
        (["--prefix=" + "x" * 200], "--prefix has 200 bytes; at most 199 fit"),
    ):
        message = fails(tensors, "--heads=4", *words)
        check(f"{' '.join(words)[:40]}: an error that lists them", message.endswith(": " + say), message)
    jax = {f"encoder/layers_{i}/{n}": t for i in range(2) for n, t in cubes(layers[i], [f"{n}/kernel" for n in ("query", "key", "value", "out")],
                                                                            [f"{n}/bias" for n in ("query", "key", "value", "out")], True).items()}
    check("layers_1", far(run({"x": x, **jax}, "--layer=1")[0]["y"].numbers, expected(layers[1], x.rows())) < BOUND)
    message = fails({"x": x, **separate(FULL, "", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.dense")}, "--heads=4")
    check("a part of the channels is rotated", message.endswith("phi models rotate a part of the channels; --rope-channels=N or --config=config.json tells how many"), message)
    both = {"x": x, **separate(layers[0], "", "W_q", "W_k", "W_v", "W_o"), **separate(layers[1], "other.", "W_q", "W_k", "W_v", "W_o")}
    for words, p in (([], layers[0]), (["--prefix=other."], layers[1])):
        check(f"the layer with just the prefix '{' '.join(words)[9:]}'", far(run(both, "--heads=4", *words)[0]["y"].numbers, expected(p, x.rows())) < BOUND)
    for name, given in (("self_attn.sinks", separate(FULL, "", *(f"self_attn.{n}_proj" for n in "qkvo"))),
                        ("a.self.relative_position_bias_table", separate(FULL, "a.", "self.query", "self.key", "self.value", "output.dense")),
                        ("b.attn.rel_pos_h", fused(FULL, "b.attn.", "qkv", "proj"))):
        message = fails({"x": x, **given, name: tensor(4)}, "--heads=4", status=3)
        check(f"{name} is not left out silently", message.endswith(f"tensor '{name}' is a part of the layer that is not computed; --plain leaves it out"), message)
        out = run({"x": x, **given, name: tensor(4)}, "--heads=4", "--plain")[0]
        check("  but with --plain", far(out["y"].numbers, expected(FULL, x.rows())) < BOUND)
    falcon = {"x": x, **grouped(GROUPED, "h.0.", "self_attention.query_key_value", "self_attention.dense")}
    for words, say in ((["--heads=4", "--head-dim=1"], "layer: heads_q (4) is not a multiple of heads_kv (14)"),
                       (["--heads=40"], "the queries, keys and values have 32 channels, which is not a multiple of the heads (40)"),
                       (["--heads=4", "--heads-kv=1"], "layer: tensor 'h.0.self_attention.query_key_value.weight' has shape [32, 12]; the layer has [30, 12]")):
        message = fails(falcon, *words)
        check(f"one matrix, {' '.join(words)}", message.endswith(say), message)
    message = fails({"x": x, **separate(FULL, "", "q_proj", "k_proj", "v_proj", None)}, "--heads=4")
    check("no output projection", message.endswith("no tensor 'out_proj.weight', 'o_proj.weight' or 'wo'; --no-output leaves the heads side by side"), message)
    out = run({"x": x, **separate(FULL, "", "q_proj", "k_proj", "v_proj", None)}, "--heads=4", "--no-output")[0]
    check("  with --no-output", far(out["y"].numbers, expected(FULL, x.rows(), output=False)) < BOUND)
    out = run({"x": x, "dy": tensor(N, 12), **separate(FULL, "", "q_proj", "k_proj", "v_proj", "out_proj")}, "--heads=4", "--no-output", "--backward")[0]
    check("  its gradients", "dwq" in out and "dwo" not in out, sorted(out))


def inputs():
    """query, key and value of their own, under PyTorch's names; gradients of each; over a cache."""
    p = Weights(4, 2, 3, key_in=7, value_in=5)
    x, key, value, dy = tensor(2, N, E), tensor(2, M, 7), tensor(2, M, 5), tensor(2, N, E)
    weights = separate(p, "", "q_proj", "k_proj", "v_proj", "out_proj")
    given = {"query": x, "key": key, "value": value, **weights}
    parts = lambda t: [Tensor(t.shape[1:], t.numbers[: len(t.numbers) // 2]), Tensor(t.shape[1:], t.numbers[len(t.numbers) // 2 :])]
    y = sum((expected(p, a.rows(), b.rows(), c.rows()) for a, b, c in zip(parts(x), parts(key), parts(value))), [])
    out = run({**given, "dy": dy}, "--heads=4", "--backward")[0]
    check("query, key and value", far(out["y"].numbers, y) < BOUND)
    step, along = 1e-5, {n: tensor(*given[n].shape) for n in ("query", "key", "value")}
    ends = [run({**given, **{n: Tensor(t.shape, [a + s * step * b for a, b in zip(given[n].numbers, t.numbers)]) for n, t in along.items()}}, "--heads=4")[0]["y"].numbers for s in (1, -1)]
    change = sum(d * (a - b) / (2 * step) for d, a, b in zip(dy.numbers, *ends))
    got = sum(sum(a * b for a, b in zip(out["d" + n].numbers, t.numbers)) for n, t in along.items())
    check("  their gradients", abs(got - change) < 1e-6 * max(1, abs(change)), (got, change))
    report = run(given, "--heads=4", "--decode=2", "--compare")[1]
    check("  over a cache", all(d["largest"] < BOUND for d in report["differences"]), report["differences"])
    for tensors, say in (
        ({**given, "x": x}, "tensors 'x' and 'query' are the same input; the file may have one of them"),
        ({**given, "context": key}, "tensors 'context' and 'key' are the same input; the file may have one of them"),
        ({"x": x, "value": value, **weights}, "tensor 'value' needs a tensor 'key'"),
        ({**given, "value": tensor(2, N, 5)}, f"tensor 'value' has {N} tokens, and 'key' {M}"),
        ({**fused(FULL, "", "in_proj", "out_proj", weight="_weight", bias="_bias"), "query": x, "key": key},
         "tensor 'in_proj_weight' projects queries, keys and values of one width, and they have 12, 7 and 7 channels"),
    ):
        message = fails(tensors, "--heads=4")
        check(f"  {say}", message.endswith(say), message)


def dropped():
    """--after-dropout: what dropout leaves is larger, and what it drops is 0."""
    given = {"x": tensor(N, E), **separate(FULL, "", "q_proj", "k_proj", "v_proj", "out_proj")}
    words = ["--heads=4", "--dropout=0.5", "--seed=3", "--weights"]
    before, after = (run(given, *words, *more)[0]["weights"].numbers for more in ([], ["--after-dropout"]))
    check("weights after dropout", 0 in after and all(b == 0 or abs(b - 2 * a) < BOUND for a, b in zip(before, after)) and 0 not in before)
    message = fails(given, "--heads=4", "--after-dropout")
    check("  needs --weights", message.endswith("--after-dropout needs --weights"), message)


def halves():
    """Weights of 16 bits are used in the type of x."""
    x = tensor(N, E)
    exact = {n: Tensor(t.shape, [round(a * 16) / 16 for a in t.numbers]) for n, t in separate(FULL, "", "q_proj", "k_proj", "v_proj", "out_proj").items()}
    layer.tensor_file.write("f16.safetensors", {n: ("F16", t.shape, t.numbers) for n, t in exact.items()})
    save("f64.safetensors", exact)
    y = [run({"x": x}, "--heads=4", f"--weights-file={name}.safetensors")[0]["y"].numbers for name in ("f16", "f64")]
    check("weights of f16 with x of f64", y[0] == y[1], far(*y))
    for i, (weights, given, words) in enumerate(((layer.LATENT, {"x": tensor(N, layer.E)}, ["--heads=2", "--causal"]),
                                                 (layer.ADDITIVE, {"x": tensor(N, layer.STATE), "context": tensor(M, layer.MEMORY)}, []))):
        exact = {"model.layers.3.self_attn." + n: Tensor(t.shape, [round(a * 16) / 16 for a in t.numbers]) for n, t in weights.items()}
        layer.tensor_file.write("f16.safetensors", {n: ("F16", t.shape, t.numbers) for n, t in exact.items()})
        save("f64.safetensors", exact)
        out = [run(given, *words, f"--weights-file={name}.safetensors") for name in ("f16", "f64")]
        y, info = [o[0]["y"].numbers for o in out], out[0][1]
        check(f"  of a layer of kind {info['kind']}", y[0] == y[1] and {t["name"] for t in info["used"]} == {*exact, *given}, info)
        check("  under a prefix", info["prefix"] == "model.layers.3.self_attn." and len(y[0]), info["prefix"])


def config_and_norm():
    """Heads, rotation and epsilon from a config.json, heads from metadata; the norm before the layer."""
    x, gain, shift = tensor(N, E), tensor(E), tensor(E)
    prefix = "model.layers.0."
    tensors = {"x": x, **separate(BARE, prefix, *(f"self_attn.{n}_proj" for n in "qkvo")), prefix + "input_layernorm.weight": gain}
    with open("config.json", "w") as file:
        json.dump({"num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 0.5, "rope_parameters": {"rope_theta": 70.0, "rope_type": "default"}, "tie": True}, file)
    rms = [[c / math.sqrt(sum(d * d for d in row) / E + 0.5) * g for c, g in zip(row, gain.numbers)] for row in x.rows()]
    model = {"causal": True, "rope": {**ROPE, "base": 70.0}}
    out, info = run(tensors, "--config=config.json", "--norm")
    check("--config and --norm", far(out["y"].numbers, expected(BARE, rms, **model)) < BOUND, info["applied"])
    check("  told", info["applied"] == "causal, rope halves, base 70, rms norm of x, epsilon 0.5", info["applied"])
    out, info = run(tensors, "--config=config.json")
    check("  without --norm", far(out["y"].numbers, expected(BARE, x.rows(), **model)) < BOUND and info["unused"] == [prefix + "input_layernorm.weight"], info["unused"])
    # Llama 3.1's: wavelengths above 4 / low are divided by the factor, below 4 / high kept, between them mixed
    scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 40}
    frequencies = [500.0 ** (-2 * i / BARE.dim) for i in range(BARE.dim // 2)]
    smooth = [min(1.0, max(0.0, (40 * f / (2 * math.pi) - 1) / 3)) for f in frequencies]
    factors = [1 / ((1 - s) / 8 + s) for s in smooth]
    for key, kind, of in (("rope_parameters", "llama3", factors), ("rope_scaling", "linear", [8.0, 8.0])):
        with open("config.json", "w") as file:
            word = "rope_type" if key == "rope_parameters" else "type"
            json.dump({"num_attention_heads": 4, "rope_theta": 500.0, key: {**scaling, "rope_type": None, word: kind}, "vision_config": {"num_attention_heads": 3}}, file)
        out, info = run(tensors, "--config=config.json")
        d = far(out["y"].numbers, expected(BARE, x.rows(), causal=True, rope={**ROPE, "base": 500.0, "factors": of}))
        check(f"rotations scaled by {kind}", d < BOUND and info["applied"].endswith(f"scaled by {kind}") and len(set(factors)) == 2, (d, info["applied"]))
    given = {"x": x, **fused(FULL, "h.0.attn.", "c_attn", "c_proj"), "h.0.ln_1.weight": gain, "h.0.ln_1.bias": shift}
    d = far(run(given, "--heads=4", "--norm", "--norm-epsilon=0.25")[0]["y"].numbers, expected(FULL, centred(x.rows(), (gain.numbers, shift.numbers), 0.25), causal=True))
    check("  a norm of the deviation from the mean", d < BOUND, d)
    save("in.safetensors", {"x": x, **separate(FULL, "", "W_q", "W_k", "W_v", "W_o")}, num_heads="4")
    done = subprocess.run([ATTN, "layer", "in.safetensors", "-o", "out.safetensors"], capture_output=True, text=True)
    check("heads of the metadata", done.returncode == 0 and far(load("out.safetensors")[0]["y"].numbers, expected(FULL, x.rows())) < BOUND, done.stderr)
    for text, words, status, say in (
        ('{"num_attention_heads": 4, "rope_scaling": {"rope_type": "longrope"}}', [], 3, "rotations that are scaled (longrope) are not computed; --plain leaves the scaling out"),
        ('{"num_attention_heads": 0}', [], 2, "metadata 'num_attention_heads' is '0', which no layer has"),
        ('{"num_attention_heads": 4.5}', [], 2, "metadata '%.attention.head_count' is 4.5, not an integer"),
        ("[4]", [], 2, "config.json: expected a JSON object, such as a config.json"),
        ("{}", [], 2, "a multi-head layer needs --heads=N, or --config=FILE of the model"),
        ('{"num_attention_heads": 4}', ["--norm", "--backward"], 2, "--backward takes no --norm: it gives gradients of the layer alone"),
    ):
        with open("config.json", "w") as file:
            file.write(text)
        message = fails({**tensors, "dy": x}, "--config=config.json", *words, status=status)
        check(f"  {say}", message.endswith(say), message)
    message = fails({"x": x, **separate(FULL, "", "W_q", "W_k", "W_v", "W_o")}, "--heads=4", "--norm")
    check("  no norm", message.endswith("--norm: the file has no norm beside the weights of this layer"), message)


def told():
    """On a terminal: the family, where it is, and what was applied; names of a file cannot control the terminal."""
    prefix = "model\x9b.layers.0."
    save("in.safetensors", {"x": tensor(N, E), **separate(BARE, prefix, *(f"self_attn.{n}_proj" for n in "qkvo")), **{f"other.{i}": tensor(1) for i in range(13)}})
    status, text = on_terminal([ATTN, "layer", "in.safetensors", "-o", "out.safetensors", "--heads=4"])
    text = text.decode("utf-8", "replace").replace("\r", "")
    check("the summary names the family", status == 0 and "family  llama at model?.layers.0.: 4 heads of 4 channels, 2 of keys and values; causal, rope halves, base 10000\n" in text, text)
    check("  and how much of a model is left", "unused  13 other tensors\n" in text, text)
    message = fails({"x": tensor(N, E), **separate(FULL, "a\x9b.", "W_q", "W_k", "W_v", "W_o"), **separate(FULL, "b.", "W_q", "W_k", "W_v", "W_o")}, "--heads=4")
    check("  errors are as safe", message.endswith("chooses one: 'a?.', 'b.'"), message)


def test():
    if subprocess.run([ATTN, "layer", "--help"], capture_output=True).returncode:
        print("skipped: built without libattn_layers")
        return 77
    for part in (families, twice, crossing, norms_of_heads, t5, modules, own_names, which_layer, inputs, dropped, halves, config_and_norm, told):
        part()
    return finish()


if __name__ == "__main__":
    run_in_folder(test)
