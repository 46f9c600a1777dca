#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Masks as people have them: 0 and 1 of any type, shape and polarity, numbers to be added, and what causes a warning; one query as a
vector; and --sparse=NAME against the mask that `attn mask NAME` writes, in run, layer, analyze and top.

usage: masks.py ATTN
"""
import json
import math
import os
import random
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import tensor_file
from tap import check, finish, run_in_folder

ATTN = sys.argv[1]
B, H, S, D = 3, 2, 5, 8
draw = random.Random(7)


def floats(*shape):
    return "F32", shape, [draw.gauss(0, 1) for _ in range(math.prod(shape))]


QKV = {name: floats(B, H, S, D) for name in "qkv"}
PAD = [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 1, 0, 0, 0]]
PAIRS = [[[int(i == j or draw.random() < 0.5) for j in range(S)] for i in range(S)] for _ in range(B)]


def flat(x):
    return [y for row in x for y in flat(row)] if isinstance(x, list) else [x]


def attn(*words):
    return subprocess.run([ATTN, *words], capture_output=True, text=True, stdin=subprocess.DEVNULL)


def run(tensors, *flags, command="run", **more):
    """The results of a call, its warnings and its problem; or its error."""
    tensor_file.write("in.safetensors", {**tensors, **more})
    r = attn(command, "in.safetensors", "-o", "out.safetensors", "--json", *flags)
    if r.returncode:
        return r.returncode, r.stderr.strip()
    said = json.loads(r.stdout)
    lines = [line.split("warning: ", 1)[1] for line in r.stderr.splitlines()]
    check(f"warnings of {flags} are the same in --json", lines == said.get("warnings", []))
    return tensor_file.read("out.safetensors")[0], lines, said.get("problem")


def expected(keep):
    """o under keep(b, i, j), which has the type and the shape that the library has."""
    mask = "BOOL", [B, 1, S, S], [bool(keep(b, i, j)) for b in range(B) for i in range(S) for j in range(S)]
    return run(QKV, mask=mask)[0]["o"]


def masks_of_every_type_and_shape():
    of_keys = expected(lambda b, i, j: PAD[b][j])
    for kind in ("BOOL", "I8", "I32", "I64", "F16", "F32", "F64"):
        for name, shape in (("[batch, key]", [B, S]), ("[batch, 1, key]", [B, 1, S]), ("[batch, 1, 1, key]", [B, 1, 1, S])):
            got = run(QKV, mask=(kind, shape, flat(PAD)))
            check(f"{kind} {name} is a padding mask", got[0]["o"] == of_keys and not got[1])
        hidden = [1 - x for x in flat(PAD)]
        check(f"{kind}: with --mask-drop, 1 hides", run(QKV, "--mask-drop", mask=(kind, [B, S], hidden))[0]["o"] == of_keys)
        by_pair = run(QKV, mask=(kind, [B, S, S], flat(PAIRS)))[0]["o"]
        check(f"{kind} [batch, query, key]", by_pair == expected(lambda b, i, j: PAIRS[b][i][j]))
        check(f"{kind} [query, key]", run(QKV, mask=(kind, [S, S], flat(PAIRS[0])))[0]["o"] == expected(lambda b, i, j: PAIRS[0][i][j]))
        check(f"{kind} [key]", run(QKV, mask=(kind, [S], PAD[1]))[0]["o"] == expected(lambda b, i, j: PAD[1][j]))


def numbers_to_be_added():
    of_keys = expected(lambda b, i, j: PAD[b][j])[2]
    do = {"do": floats(B, H, S, D)}
    for low in (-math.inf, -3.4028234663852886e38, -10000.0):
        got = run(QKV, mask=("F32", [B, S], [0.0 if x else low for x in flat(PAD)]))
        check(f"0 and {low} are added", max(abs(a - b) for a, b in zip(got[0]["o"][2], of_keys)) < 1e-5)
        check("  which is said", len(got[1]) == 1 and got[1][0].startswith("tensor 'mask' is added to the scores, as a bias: it has 0 and "))
        check("  and a problem with a bias", got[2].endswith(":bias=h1q1"))
    back = run({**QKV, **do}, "--backward", mask=("F32", [B, S], [0.0 if x else -math.inf for x in flat(PAD)]))[0]
    check("a mask has no gradient", sorted(back) == ["dk", "dq", "dv", "o"])
    got = run(QKV, "--bias=mask", mask=("F32", [S, S], [1.0] * 20 + [0.0] * 5))
    check("a bias of 0 and 1 causes a warning", got[1] == ["tensor 'mask' is added to the scores and has 0 and 1 alone, as a mask has; --mask=mask takes it as one"])
    check("and none, if it has other numbers", run(QKV, "--bias=mask", mask=("F32", [S, S], [0.5] * 25))[1] == [])


def other_commands():
    """layer, top, analyze and view take the same masks as run."""
    width = H * D
    layer = {"x": floats(B, S, width), **{w: floats(width, width) for w in ("wq", "wk", "wv", "wo")}}
    keep = "BOOL", [B, 1, 1, S], [bool(x) for x in flat(PAD)]
    forms = (([], ("F32", [B, S], flat(PAD))), (["--mask-drop"], ("I64", [B, S], [1 - x for x in flat(PAD)])), ([], ("I32", [B, 1, S], flat(PAD))),
             ([], ("F32", [B, 1, 1, S], [0.0 if x else -math.inf for x in flat(PAD)])))
    expect = run(layer, "--heads=2", command="layer", mask=keep)[0]["y"]
    for flags, mask in forms:
        got = run(layer, "--heads=2", *flags, command="layer", mask=mask)
        check(f"layer {mask[:2]} {flags}", near(got[0]["y"][2], expect[2]) and len(got[1]) == (math.inf in map(abs, mask[2])))
        used = json.loads(attn("layer", "in.safetensors", "-o", "out.safetensors", "--heads=2", "--json", *flags).stdout)["used"]
        check("  which is used", "mask" in [t["tensor"] if "tensor" in t else t["name"] for t in used])
    no_mask = run(layer, "--heads=2", "--mask-drop", command="layer")
    check("layer --mask-drop without a mask", no_mask == (2, "attn layer: in.safetensors: --mask-drop says what a mask means, and there is none; --mask=NAME chooses one"))
    named = run(layer, "--heads=2", "--mask=padding", command="layer", padding=keep)
    check("layer --mask=NAME", named[0]["y"] == expect and named[1] == [])
    none = run(layer, "--heads=2", "--compare", command="layer")
    check("layer --compare names its results", none == (2, "attn layer: in.safetensors: it has none of the results, which --compare would compare with its own: y"), none)
    missing = run(layer, "--heads=2", "--mask=paddling", command="layer", padding=keep)
    check("  of no tensor", missing == (2, "attn layer: in.safetensors: --mask: no tensor 'paddling' (available: padding, wk, wo, wq, wv, x)"), missing)
    run(layer, "--heads=2", "--mask=padding", "--qkv", "--weights", command="layer", padding=keep)
    os.rename("out.safetensors", "heads.safetensors")
    same = attn("run", "heads.safetensors", "-o", "out.safetensors", "--weights")
    weights = [tensor_file.read(f"{name}.safetensors")[0]["weights"] for name in ("heads", "out")]
    check("  goes with q, k and v as mask", same.stderr == "" and weights[0] == weights[1], same.stderr)
    for words in (["top", "--token=#1", "--json"], ["analyze", "--json"], ["view", "-o", "page.html", "--json"]):
        pages = []
        for flags, mask in (([], keep), *forms):
            tensor_file.write("in.safetensors", {**QKV, "mask": mask})
            r = attn(words[0], "in.safetensors", *words[1:], *flags)
            said = json.loads(r.stdout)
            check(f"{words[0]} {mask[:2]} {flags}", said.pop("warnings", []) == [line.split("warning: ", 1)[1] for line in r.stderr.splitlines()])
            pages.append([x for x in flat_values(said) if isinstance(x, (int, float)) and words[0] != "view"])
        check(f"{words[0]} has the same numbers", all(near(p, pages[0]) for p in pages))


def names():
    """Masks by the names that they have in other libraries: used only by a flag, never silently left out."""
    width = H * D
    layer = {"x": floats(B, S, width), **{w: floats(width, width) for w in ("wq", "wk", "wv", "wo")}}
    keep, lengths = ("I64", [B, S], flat(PAD)), ("I64", [B], [sum(row) for row in PAD])
    for command, tensors, flags in (("run", QKV, []), ("layer", layer, ["--heads=2"])):
        for name, more in (("attention_mask", ""), ("encoder.attn_mask", ""), ("src_key_padding_mask", " --mask-drop")):
            got = run(tensors, *flags, command=command, **{name: keep})
            check(f"{command}: {name}", got[1] == [f"tensor '{name}' is not used; --mask={name}{more} takes it as the mask"], got[1])
            check("  as the mask: no warning", run(tensors, *flags, f"--mask={name}", command=command, **{name: keep})[1] == [])
        for other, words in (("mask", []), ("lengths", []), ("masked", [])):
            got = run(tensors, *flags, *words, command=command, **{other: lengths if other == "lengths" else keep},
                      **({} if other == "masked" else {"attention_mask": keep}))
            check(f"{command}: none beside {other}", got[1] == [], got[1])
    added = "F32", [B, 1, 1, S], [0.0 if x else -math.inf for x in flat(PAD)]
    check("none for a bias of this name", run(QKV, "--bias=attention_mask", attention_mask=added)[1] == [])


def blocks_beside_values():
    """A mask of blocks is that of each query where analyze also needs values."""
    blocks = "BOOL", [2, 3], [True, False, True, False, True, True]
    for flags, more in ((["--block=3,2"], {"blocks": blocks}), (["--sparse=bigbird/2/1/1/0"], {})):
        tensor_file.write("in.safetensors", {**QKV, "do": QKV["q"], **more})
        found = []
        for words in ([], ["--gradients"], ["--steps=steps.safetensors"], ["--gradient-weighted=map.safetensors"]):
            r = attn("analyze", "in.safetensors", "--json", *flags, *words)
            found.append([head["entropy"] for head in json.loads(r.stdout)["heads"]] if r.returncode == 0 else r.stderr)
        check(f"analyze {flags} has the same entropies beside values", all(near(x, found[0]) for x in found), found)


def doubts():
    own = "tensor 'mask' hides from every query the key at its own position; --mask-drop takes it as one with 1 = hide"
    later = [int(j > i) for i in range(S) for j in range(S)]
    check("a causal mask of the other polarity causes a warning", run(QKV, mask=("I64", [S, S], later))[1] == [own])
    got = run(QKV, "--mask-drop", mask=("I64", [S, S], later))
    check("none with --mask-drop", got[1] == [] and got[0]["o"] == run(QKV, "--causal")[0]["o"])
    got = run(QKV, "--mask-drop", mask=("I64", [S, S], [1 - x for x in later]))
    check("one with a needless --mask-drop", got[1] == [own.replace("--mask-drop takes it as one with 1 = hide", "without --mask-drop, 1 = keep")])
    padding = run(QKV, mask=("I64", [B, S], [1 - x for x in flat(PAD)]))[1]
    check("so does a padding mask", padding == ["tensor 'mask' hides all keys of batch entry 0; --mask-drop takes it as one with 1 = hide"])
    got = run(QKV, "--mask-drop", mask=("F32", [S, S], [0.0] * 25))
    check("with --mask-drop, zeros hide nothing", got[1] == [] and got[0]["o"] == run(QKV)[0]["o"])


def errors():
    name = "attn run: in.safetensors: "
    may_be = "an axis of size 1 in the place of each other one of [batch, head, query, key] says which"
    rows = (
        ("tensor 'mask' is f32 and all 0: as a mask it hides every key, and as numbers to be added it changes nothing; "
         "--ignore=mask leaves it out", [], ("F32", [S, S], [0.0] * 25)),
        ("tensor 'mask' is a mask and has 0.5 at [0, 1]; expected 0 and 1", [], ("F32", [S, S], [1, 0.5] + [0.0] * 23)),
        ("tensor 'mask' is a mask and has nan at [0, 0]; expected 0 and 1", [], ("F32", [S, S], [math.nan] * 25)),
        ("tensor 'mask' is a mask and has 2 at [4, 4]; expected 0 and 1", [], ("I32", [S, S], [1] * 24 + [2])),
        ("tensor 'mask' is a mask and has -10000 at [0, 0]; expected 0 and 1; numbers to be added are of a float type", [],
         ("I32", [S, S], [-10000] * 25)),
        ("tensor 'mask' is a mask and has -inf at [0, 0]; expected 0 and 1; without --mask-drop its numbers are added", ["--mask-drop"],
         ("F32", [S, S], [-math.inf] * 25)),
        ("tensor 'mask' [4, 5] does not broadcast to [3, 2, 5, 5] (batch, head, query, key)", [], ("I32", [4, S], [1] * 20)),
    )
    for message, flags, mask in rows:
        check(message, run(QKV, *flags, mask=mask) == (2, name + message))
    check("a mask and a bias that are both added", run(QKV, mask=("F32", [S], [-math.inf] * S), bias=floats(S, S)) == (
        2, name + "tensor 'mask' has numbers to be added to the scores, as 'bias' has; make them one, or leave one out with --ignore"))
    check("--mask-drop without a mask", run(QKV, "--mask-drop") == (
        2, name + "--mask-drop says what a mask means, and there is none; --mask=NAME chooses one"))
    square = {n: floats(S, H, S, D) for n in "qkv"}
    check("[batch, key] or [query, key]", run(square, mask=("I32", [S, S], [1] * 25)) == (
        2, name + "tensor 'mask' [5, 5] may be [batch, key] or [query, key]; " + may_be))
    square = {n: floats(H, H, S, D) for n in "qkv"}
    check("[batch, query, key] or [head, query, key]", run(square, mask=("I32", [H, S, S], [1] * 50)) == (
        2, name + "tensor 'mask' [2, 5, 5] may be [batch, query, key] or [head, query, key]; " + may_be))


def vectors():
    q, k, v, do = floats(D), floats(S, D), floats(S, D), floats(D)
    one = lambda t: (t[0], [1, *t[1]], t[2])
    for flags, names in ((["--lse", "--weights"], {"o": [D], "lse": [], "weights": [S]}), (["--backward"], {"o": [D], "dq": [D], "dk": [S, D], "dv": [S, D]}),
                         (["--topk=2", "--entropy"], {"o": [D], "topk_index": [2], "topk_weight": [2], "entropy": []})):
        got = run({"q": q, "k": k, "v": v, "do": do}, *flags)[0]
        rows = run({"q": one(q), "k": k, "v": v, "do": one(do)}, *flags)[0]
        check(f"a query as a vector, {flags}: shapes", {n: got[n][1] for n in got} == names)
        check("  and the same numbers", all(got[n][2] == rows[n][2] for n in names))
    got = run({"q": q, "k": do, "v": do, "do": do}, "--backward")[0]
    check("one key as a vector", all(got[n][1] == [D] for n in ("o", "dq", "dk", "dv")) and got["o"][2] == tuple(tensor_file.read("in.safetensors")[0]["v"][2]))
    check("a number is none", run({"q": ("F32", [], [1.0]), "k": k, "v": v}) == (
        2, "attn run: in.safetensors: tensor 'q' []: expected [channel], [token, channel] or more axes"))


NAMED = ("bigbird/4/3/1/1", "longformer/6/2", "strided/3", "documents/5/9/3", "fixed/4/1", "columns/3", "prefix/4", "sliding/5", "lengths/15/9",
         "dilated/2/3", "diagonal/5", "radius/2", "local/4", "window/3/1", "longformer/6/2+window/2/2", "bigbird/4/3/1/1+columns/3")


def near(a, b):
    return len(a) == len(b) and all(x == y or abs(x - y) < 2e-5 for x, y in zip(a, b))


def named_columns():
    """Few columns of many keys are a list of keys."""
    n, tensors = 70, {x: floats(70, D) for x in "qk"}
    attn("mask", "columns/20", "-n", str(n), "-o", "mask.safetensors")
    tensor_file.write("in.safetensors", tensors)
    tensor_file.write("same.safetensors", {**tensors, "mask": tensor_file.read("mask.safetensors")[0]["mask"]})
    words = ["--token=#69", "--count=9", "--json"]
    got, expect = attn("top", "in.safetensors", *words, "--sparse=columns/20").stdout, attn("top", "same.safetensors", *words).stdout
    check("top columns/20", len(json.loads(got)["links"]) == 4 and near(*([x["weight"] for x in json.loads(t)["links"]] for t in (got, expect))))


def named_masks():
    n, heads = 17, 2
    named_columns()
    rows = {x: floats(2, heads, n, D) for x in ("q", "k", "v", "do")}
    width = heads * D
    layer = {"x": floats(2, n, width), **{w: floats(width, width) for w in ("wq", "wk", "wv", "wo")}}
    own = "I32", [2, 1, n, n], [int(i % n == i // n % n or draw.random() < 0.6) for i in range(2 * n * n)]
    for name in NAMED:
        sparse = f"--sparse={name}", "--seed=4"
        attn("mask", *name.split("+"), "-n", str(n), "-o", "mask.safetensors", "--seed=4")
        mask = tensor_file.read("mask.safetensors")[0]["mask"]
        both = "BOOL", own[1], [bool(x and mask[2][k % (n * n)]) for k, x in enumerate(own[2])]
        for what, given, same, flags in (("", {}, {"mask": mask}, ["--backward", "--lse"]), (" with a mask", {"mask": own}, {"mask": both}, [])):
            got, expect = run(rows, *sparse, *flags, **given)[0], run(rows, *flags, **same)[0]
            check(f"run {name}{what} is the mask of attn mask", all(near(got[t][2], expect[t][2]) for t in expect))
        got, expect = run(layer, *sparse, "--heads=2", command="layer")[0], run(layer, "--heads=2", command="layer", mask=mask)[0]
        check(f"layer {name}", near(got["y"][2], expect["y"][2]))
        for words in (["analyze"], ["top", "--token=#3", "--count=40"]):
            tensor_file.write("in.safetensors", {x: rows[x] for x in "qkv"})
            tensor_file.write("same.safetensors", {**{x: rows[x] for x in "qkv"}, "mask": mask})
            got = attn(words[0], "in.safetensors", *words[1:], *sparse, "--json").stdout
            expect = attn(words[0], "same.safetensors", *words[1:], "--json").stdout
            numbers = lambda text: [x for x in flat_values(json.loads(text)) if isinstance(x, (int, float))]
            check(f"{words[0]} {name}", near(numbers(got), numbers(expect)) and len(numbers(got)) > 10)


def flat_values(x):
    if isinstance(x, dict):
        return [y for value in x.values() for y in flat_values(value)]
    return [y for value in x for y in flat_values(value)] if isinstance(x, list) else [x]


def tiles():
    """attn explain counts the tiles that attn mask counts: those with a pair."""
    for name in ("bigbird/32/3/2/3", "longformer/64/16", "documents/300/400", "fixed/128/32", "prefix/100", "lengths/100/500", "documents/200/300+radius/90",
                 "bigbird/64/1/1/1+documents/400/300", "bigbird/64/3/2/3+fixed/64/16", "bigbird/32/3/2/3+bigbird/24/1/1/1", "longformer/64/16+window/90/5"):
        for causal in ("", ":causal"):
            text = f"fwd:f32:b2:hq3:sq700:d64:sparse={name}:seed=3{causal}"
            said = json.loads(attn("explain", text, "--json", "--isa=scalar").stdout)
            words = [*name.split("+"), *(["causal"] if causal else [])]
            shown = json.loads(attn("mask", *words, "-n", "700", "--seed=3", "--json", "--tile-q", str(said["tile"]["queries"]), "--tile-kv",
                                    str(said["tile"]["keys"])).stdout)
            check(f"{text}: tiles visited", said["tiles_visited"] == 6 * (shown["tiles_total"] - shown["tiles_skipped"]))
            check("  some are skipped", "fixed" in name or said["tiles_visited"] < said["tiles_total"])
            check("  and pairs", said["flops"] == 6 * shown["count"] * 2 * 128)
            check("  of which those at an edge are modified", 0 < said["tiles_modified"] <= said["tiles_visited"])
    said = json.loads(attn("explain", "fwd:sq1200:d64:sparse=longformer/64/3+strided/9", "--json").stdout)
    check("explain names what is a matrix", said["options"][-1]["name"] == "sparse" and said["options"][-1]["cost"].startswith("strided/9: no fields"))
    for words in (["check", "bwd:f32:hq2:sq40:d8:sparse=bigbird/4/3/1/1+columns/3", "--isa=scalar"],
                  ["bench", "bwd:f32:b2:hq2:sq40:d8:mask=0.5:sparse=documents/9/20+columns/3", "--seconds=0.001", "--json"],
                  ["bench", "fwd:f32:hq2:sq40:d8:sparse=bigbird/4/3/1/1:lens", "--seconds=0.001", "--json"]):
        check(" ".join(words), attn(*words).returncode == 0)
    r = attn("explain", "fwd:sq1200:d64:sparse=prefix/4", "--ranks=4")
    check("ranks take windows alone", (r.returncode, r.stderr.strip()) == (
        3, "attn explain: fwd:sq1200:d64:sparse=prefix/4: sparse=prefix/4 is made for all queries together; in parts there are masks that are windows: "
           "longformer, strided, dilated, diagonal, local, radius, sliding, window"))
    check("  such as longformer", attn("explain", "fwd:sq1200:d64:sparse=longformer/8/2", "--ranks=4").returncode == 0)


def main():
    masks_of_every_type_and_shape()
    numbers_to_be_added()
    other_commands()
    names()
    blocks_beside_values()
    doubts()
    errors()
    vectors()
    named_masks()
    tiles()
    return finish()


run_in_folder(main)
