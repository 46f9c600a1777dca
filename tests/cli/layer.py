#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`attn layer` of every kind in f64: latent and additive layers against their definition, directional derivatives, decoding against one
pass, packed sequences against each sequence alone, and optional tensors.

usage: layer.py ATTN
"""

import json
import math
import os
import random
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import tensor_file
from tap import check, finish

ATTN = sys.argv[1]
BOUND = 1e-12  # a few nested sums of about ten products of numbers around 1, in double


class Tensor:
    def __init__(self, shape, numbers):
        self.shape, self.numbers = list(shape), list(numbers)

    def kind(self):
        first = self.numbers[0] if self.numbers else 0.0
        return "BOOL" if isinstance(first, bool) else "I64" if isinstance(first, int) else "F64"

    def rows(self):
        """The last two axes, as a list for each row."""
        width = self.shape[-1]
        return [self.numbers[i : i + width] for i in range(0, len(self.numbers), width)]


def save(path, tensors, **metadata):
    tensor_file.write(path, {name: (t.kind(), t.shape, t.numbers) for name, t in tensors.items()}, **metadata)


def load(path):
    tensors, texts = tensor_file.read(path)
    return {name: Tensor(shape, numbers) for name, (_, shape, numbers) in tensors.items()}, texts


def run(tensors, *words):
    """The outputs, and the JSON object that --json prints."""
    save("in.safetensors", tensors, tokens="[]")
    done = subprocess.run([ATTN, "layer", "in.safetensors", "-o", "out.safetensors", "--json", *words], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"not ok - attn layer {' '.join(words)}: {done.stderr.strip()}")
    return load("out.safetensors")[0], json.loads(done.stdout)


def far(a, b):
    """The largest difference of two lists, relative to the largest number; infinite where their lengths differ."""
    if len(a) != len(b):
        return math.inf
    return max((abs(x - y) for x, y in zip(a, b)), default=0) / max([1.0] + [abs(x) for x in b])


def times(x, w):
    """x w^T."""
    return [[sum(a * b for a, b in zip(row, out)) for out in w] for row in x]


def softmax(scores):
    high = max(scores)
    parts = [math.exp(s - high) for s in scores]
    return [p / sum(parts) for p in parts]


def normed(x, gains):
    return [[c / math.sqrt(sum(d * d for d in row) / len(row) + 1e-6) * g for c, g in zip(row, gains)] for row in x]


def rotated(row, position):
    out = []
    for i in range(0, len(row), 2):
        angle = position * 10000 ** (-i / len(row))
        c, s = math.cos(angle), math.sin(angle)
        out += [row[i] * c - row[i + 1] * s, row[i] * s + row[i + 1] * c]
    return out


# ---- the layers under test ----

draw = random.Random(7)


def tensor(*shape):
    return Tensor(shape, [draw.gauss(0, 1) for _ in range(math.prod(shape))])


E, H, DIM, DIM_V, RANK, RANK_Q, ROTARY, OUT = 6, 2, 3, 4, 5, 4, 2, 7
LATENT = {
    "q_a_proj.weight": tensor(RANK_Q, E), "q_a_layernorm.weight": tensor(RANK_Q), "q_b_proj.weight": tensor(H * (DIM + ROTARY), RANK_Q),
    "kv_a_proj_with_mqa.weight": tensor(RANK + ROTARY, E), "kv_a_layernorm.weight": tensor(RANK),
    "kv_b_proj.weight": tensor(H * (DIM + DIM_V), RANK), "o_proj.weight": tensor(OUT, H * DIM_V),
}
STATE, MEMORY, HIDDEN, COMBINED = 6, 5, 4, 3
ADDITIVE = {
    "w": tensor(HIDDEN), "state.weight": tensor(HIDDEN, STATE), "memory.weight": tensor(HIDDEN, MEMORY), "bias": tensor(HIDDEN),
    "combine.weight": tensor(COMBINED, MEMORY + STATE),
}
GENERAL = {"w": tensor(STATE, MEMORY)}
HEADS = {"wq": tensor(8, E), "wk": tensor(4, E), "wv": tensor(4, E), "wo": tensor(E, 8), "bq": tensor(8), "bo": tensor(E)}
GROUPED = ["--heads=4", "--heads-kv=2", "--head-dim=2"]
B, N, M = 2, 5, 7


def by_definition_latent(x, p):
    q = times(normed(times(x, p["q_a_proj.weight"].rows()), p["q_a_layernorm.weight"].numbers), p["q_b_proj.weight"].rows())
    kv = times(x, p["kv_a_proj_with_mqa.weight"].rows())
    c = normed([row[:RANK] for row in kv], p["kv_a_layernorm.weight"].numbers)
    r = [rotated(row[RANK:], j) for j, row in enumerate(kv)]
    up = times(c, p["kv_b_proj.weight"].rows())
    joined = [[] for _ in x]
    for h in range(H):
        k = [row[h * (DIM + DIM_V) :][:DIM] + r[j] for j, row in enumerate(up)]
        v = [row[h * (DIM + DIM_V) + DIM :][:DIM_V] for row in up]
        for i, row in enumerate(q):
            mine = row[h * (DIM + ROTARY) :][:DIM] + rotated(row[h * (DIM + ROTARY) + DIM :][:ROTARY], i)
            weights = softmax([sum(a * b for a, b in zip(mine, key)) / math.sqrt(DIM + ROTARY) for key in k[: i + 1]])
            joined[i] += [sum(w * value[c] for w, value in zip(weights, v)) for c in range(DIM_V)]
    return sum(times(joined, p["o_proj.weight"].rows()), [])


def by_definition_additive(x, memory, p):
    from_state, from_memory = times(x, p["state.weight"].rows()), times(memory, p["memory.weight"].rows())
    out = []
    for state, seen in zip(x, from_state):
        scores = [
            sum(w * math.tanh(a + b + c) for w, a, b, c in zip(p["w"].numbers, seen, other, p["bias"].numbers)) for other in from_memory
        ]
        weights = softmax(scores)
        context = [sum(w * m[c] for w, m in zip(weights, memory)) for c in range(MEMORY)]
        out += [math.tanh(y) for y in times([context + state], p["combine.weight"].rows())[0]]
    return out


def definitions():
    x = tensor(N, E)
    y, info = run({"x": x, **LATENT}, "--heads=2", "--causal")
    check("latent is told by its names", info["kind"] == "latent", info["kind"])
    check("latent: parameters", info["parameters"] == sum(len(t.numbers) for t in LATENT.values()), info["parameters"])
    check("latent: the cache has the latent and the rotated key", info["cache_per_token"] == (RANK + ROTARY) * 8, info["cache_per_token"])
    d = far(y["y"].numbers, by_definition_latent(x.rows(), LATENT))
    check("latent equals its definition", d < BOUND, d)
    x, memory = tensor(N, STATE), tensor(M, MEMORY)
    y, info = run({"x": x, "context": memory, **ADDITIVE})
    check("additive is told by its names", info["kind"] == "additive", info["kind"])
    d = far(y["y"].numbers, by_definition_additive(x.rows(), memory.rows(), ADDITIVE))
    check("additive equals its definition", d < BOUND, d)
    y, info = run({"x": x, "context": memory, **GENERAL})
    scores = times(times(x.rows(), [list(c) for c in zip(*GENERAL["w"].rows())]), memory.rows())
    d = far(y["y"].numbers, [sum(w * m[c] for w, m in zip(softmax(row), memory.rows())) for row in scores for c in range(MEMORY)])
    check("general is told by its name, and equals its definition", info["kind"] == "general" and d < BOUND, d)
    y, info = run({"x": x, "context": x}, "--kind=dot")
    d = far(y["y"].numbers, [sum(w * m[c] for w, m in zip(softmax(row), x.rows())) for row in times(x.rows(), x.rows()) for c in range(STATE)])
    check("dot, where there are no weights", info["kind"] == "dot" and d < BOUND, d)


SLOPES = Tensor([4], [0.5, 0.25, 0.125, 0.0625])
LAYERS = [  # name, weights, x, context, words
    ("multi-head", HEADS, [B, N, E], None, [*GROUPED, "--causal", "--rope", "--rope-pairs=halves", "--rope-base=100"]),
    ("multi-head with options", {**HEADS, "sink": tensor(4), "slopes": SLOPES}, [B, N, E], None, [*GROUPED, "--causal", "--window=3,0"]),
    ("multi-head, cross", HEADS, [B, N, E], [B, M, E], GROUPED),
    ("multi-head, cross, rotated", HEADS, [B, N, E], [B, M, E], [*GROUPED, "--rope"]),
    ("multi-head, a learned key", {**HEADS, "bias_k": tensor(4), "bias_v": tensor(1, 1, 4)}, [B, N, E], None, [*GROUPED, "--causal"]),
    ("multi-head, T5", {**HEADS, "bias_table": tensor(4, 32), "scale": tensor(4)}, [B, N, E], None, [*GROUPED, "--causal", "--t5=causal"]),
    ("multi-head, Shaw", {**HEADS, "relative_keys": tensor(4, 5, 2), "relative_values": tensor(4, 5, 2)}, [B, N, E], None,
     [*GROUPED, "--causal", "--rel=shaw-values/2"]),
    ("multi-head, Transformer-XL", {**HEADS, "relative_keys": tensor(4, 2 * N - 1, 2), "relative_u": tensor(4, 2), "relative_v": tensor(4, 2)},
     [B, N, E], None, [*GROUPED, "--causal", "--rel=xl"]),
    ("multi-head, one table for all heads", {**HEADS, "bias_table": tensor(9), "relative_keys": tensor(2 * N - 1, 2)}, [B, N, E], None,
     [*GROUPED, "--causal", "--clipped=4", "--rel=full"]),
    ("multi-head, general", {**HEADS, "wk": tensor(6, E), "w": tensor(4, 2, 3)}, [B, N, E], None, [*GROUPED, "--causal", "--score=general/3"]),
    ("multi-head, metric", {**HEADS, "w": tensor(5, 2)}, [B, N, E], None, [*GROUPED, "--causal", "--score=metric/5"]),
    ("multi-head, additive with biases", {**HEADS, "w": tensor(2, 2)}, [B, N, E], None, [*GROUPED, "--causal", "--score=additive"]),
    ("multi-head, additive", {**HEADS, "w": tensor(2)}, [B, N, E], None, [*GROUPED, "--causal", "--score=additive"]),
    ("latent", LATENT, [B, N, E], None, ["--heads=2", "--causal"]),
    ("latent, cross", LATENT, [B, N, E], [B, M, E], ["--heads=2"]),
    ("latent, halves", LATENT, [N, E], None, ["--heads=2", "--causal", "--rope-pairs=halves", "--rope-base=50"]),
    ("additive", ADDITIVE, [B, N, STATE], [B, M, MEMORY], []),
    ("general", GENERAL, [B, N, STATE], [B, M, MEMORY], []),
    ("dot", {}, [B, N, STATE], [B, M, STATE], ["--kind=dot"]),
]


def inputs(weights, x, context):
    return {**weights, "x": tensor(*x), **({"context": tensor(*context)} if context else {})}


def gradients():
    """<dy, directional derivative of y> equals <gradients, direction> over all tensors: none missing, none swapped."""
    step = 1e-5
    more = [("bias and mask", {**HEADS, "bias": tensor(4, 1, N), "mask": Tensor([N, N], [j <= i for i in range(N) for j in range(N)])},
             [B, N, E], None, GROUPED)]
    for name, weights, x, context, words in LAYERS + more:
        given = inputs(weights, x, context)
        y = run(given, *words)[0]["y"]
        dy = tensor(*y.shape)
        out = run({**given, "dy": dy}, *words, "--backward")[0]
        moved = {n: t for n, t in given.items() if t.kind() == "F64"}
        short = {"x": "dx", "context": "dcontext"}
        missing = [n for n in moved if short.get(n, f"d{n}") not in out]
        check(f"{name}: a gradient for every tensor", not missing and len(out) == len(moved) + 1, missing or sorted(out))
        along = {n: tensor(*t.shape) for n, t in moved.items()}
        ends = [
            run({**given, **{n: Tensor(t.shape, [a + sign * step * b for a, b in zip(t.numbers, along[n].numbers)]) for n, t in moved.items()}},
                *words)[0]["y"].numbers
            for sign in (1, -1)
        ]
        expected = sum(d * (a - b) / (2 * step) for d, a, b in zip(dy.numbers, *ends))
        got = sum(sum(a * b for a, b in zip(out[short.get(n, f"d{n}")].numbers, along[n].numbers)) for n in moved)
        check(f"{name}: the gradients are the change of y", abs(got - expected) < 1e-6 * max(1, abs(expected)), (got, expected))


def other_name():
    """A tensor `lengths` is lengths_kv, unless there is that, or a context whose tokens it may not count."""
    name, weights, x, context, words = next(one for one in LAYERS if one[2][0] == B and not one[3])
    given = inputs(weights, x, context)
    y = lambda **more: (lambda out, report: (out["y"].numbers, "lengths" in [t["name"] for t in report["used"]]))(*run({**given, **more}, *words))
    real, fewer = Tensor([B], [3, 5]), Tensor([B], [2, 1])
    expected = y(lengths_kv=real)[0]
    check("lengths are those of the keys", y(lengths=real) == (expected, True) and y()[0] != expected)
    check("unless lengths_kv is there", y(lengths=fewer, lengths_kv=real) == (expected, False))


def decoding():
    """Decoding by tokens or chunks, with a contiguous or paged cache, equals one pass, weights too; also with lengths_kv."""
    for name, weights, x, context, words in LAYERS:
        given = inputs(weights, x, context)
        lengths = {"lengths_kv": Tensor([B], [3, 5])} if x[0] == B else {}
        for tensors in (given, {**given, **lengths}) if lengths else (given,):
            for size in (["--decode"], ["--decode=2"], ["--decode=2147483647", "--page-size=2"], ["--decode=1", "--page-size=3"]):
                wanted = [*words, *size, "--weights", "--weights-mean", "--compare"]
                found = {d["name"]: d["largest"] for d in run(tensors, *wanted)[1]["differences"]}
                check(f"{name}{', lengths' if len(tensors) > len(given) else ''}, {' '.join(size)}: y and the weights as all at once",
                      set(found) == {"y", "weights", "weights_mean"} and all(d is not None and d < BOUND * 10 for d in found.values()), found)


def packed():
    """Each packed sequence has the results it has alone, forward and backward."""
    lengths = [3, 0, 5, 1]
    begins = [sum(lengths[:b]) for b in range(len(lengths) + 1)]
    for name, weights, words in (("multi-head", HEADS, [*GROUPED, "--causal", "--rope"]), ("latent", LATENT, ["--heads=2", "--causal"])):
        x, dy = tensor(begins[-1], E), tensor(begins[-1], OUT if name == "latent" else E)
        whole = run({**weights, "x": x, "dy": dy, "cu_seqlens_q": Tensor([5], begins)}, *words, "--backward", "--weights")[0]
        sums = {n: [0.0] * len(t.numbers) for n, t in whole.items() if n[0] == "d" and n != "dx"}
        for b, length in enumerate(lengths):
            part = slice(begins[b], begins[b + 1])
            cut = {n: Tensor([length, t.shape[1]], sum(t.rows()[part], [])) for n, t in (("x", x), ("dy", dy))}
            if length:
                alone = run({**weights, **cut}, *words, "--backward", "--weights")[0]
                d = max(far(sum(whole[n].rows()[part], []), alone[n].numbers) for n in ("y", "dx"))
                check(f"{name}: packed sequence {b} as alone", d < BOUND, d)
                heads, longest = alone["weights"].shape[0], max(lengths)
                mine = [whole["weights"].rows()[(b * heads + h) * longest + i][:length] for h in range(heads) for i in range(length)]
                d = far(sum(mine, []), alone["weights"].numbers)
                check(f"{name}: its weights, too", d < BOUND, d)
                for n, total in sums.items():
                    sums[n] = [a + c for a, c in zip(total, alone[n].numbers)]
        d = max(far(whole[n].numbers, total) for n, total in sums.items())
        check(f"{name}: gradients of weights are the sums", d < BOUND, d)
    memory = [2, 4, 1, 3]
    begins_kv = [sum(memory[:b]) for b in range(len(memory) + 1)]
    given = {**HEADS, "x": tensor(begins[-1], E), "context": tensor(begins_kv[-1], E)}
    index = {"cu_seqlens_q": Tensor([5], begins), "cu_seqlens_kv": Tensor([5], begins_kv)}
    mean = run({**given, **index}, *GROUPED, "--weights-mean")[0]["weights_mean"]
    check("packed, cross: averaged weights of each sequence", mean.shape == [4, 5, 4] and far([sum(r) for r in mean.rows()[10:15]], [1.0] * 5) < BOUND, mean.shape)


def options():
    """A mask in the file is used unless it is ignored; dropped keys have weight 0."""
    keep = [j != 1 for _ in range(N) for j in range(N)]
    given = {**HEADS, "x": tensor(N, E), "mask": Tensor([N, N], keep)}
    weights = run(given, *GROUPED, "--weights")[0]["weights"]
    check("what a mask drops has no weight", all(row[1] == 0 for row in weights.rows()) and min(row[0] for row in weights.rows()) > 0)
    weights = run(given, *GROUPED, "--weights", "--ignore=mask")[0]["weights"]
    check("--ignore=mask leaves it out", min(row[1] for row in weights.rows()) > 0)
    save("in.safetensors", {**HEADS, "x": tensor(N, E)}, tokens='["a", "b", "c", "d", "e"]')
    subprocess.run([ATTN, "layer", "in.safetensors", "-o", "out.safetensors", *GROUPED, "--weights"], check=True, capture_output=True)
    texts = load("out.safetensors")[1]
    check("metadata of the file is carried over", texts.get("tokens") == '["a", "b", "c", "d", "e"]' and "attn_version" in texts, texts)


def main():
    done = subprocess.run([ATTN, "layer", "--help"], capture_output=True, text=True)
    if done.returncode:
        print("skipped: built without libattn_layers")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for part in (definitions, gradients, other_name, decoding, packed, options):
            part()
        os.chdir("/")
    return finish()


if __name__ == "__main__":
    sys.exit(main())
