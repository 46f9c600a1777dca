#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What the page of `attn view` computes from q and k, and what it does with it: tabs, comparison, roles, export.

    test_explorer.py --attn PROGRAM --data FILE [--only NAME]

The numbers that it should show are computed here, or by `attn run`.  Prints TAP; exits with 77 without a browser.
"""

import json
import math
import pathlib
import random
import re
import struct
import sys
import xml.dom.minidom

from explorer import HERE, OPTIONS, attn, go, main, readout, table, view, weights_of
from harness import near, saved
import tensor_file


# ---- the pages: write_KIND(path) makes the input, and the page from it


def write_real(path):
    return view(path, OPTIONS.data)


def write_flooded(path):
    return view(path, OPTIONS.data, f"--with={pathlib.Path(OPTIONS.data).with_name('animal_street_flooded.safetensors')}")


def write_partial(path):
    """Weights whose rows sum to a half, as those of softmax-one may."""
    rows = [0.5, 0, 0, 0.1, 0.4, 0, 0.25, 0.05, 0.2, 0.5, 0, 0, 0.3, 0.2, 0, 0.05, 0.35, 0.1]
    tensor_file.write(HERE / "partial.safetensors", {"weights": ("F32", (2, 1, 3, 3), rows)}, layers="[3, 4]", tokens='["a", "b", "c"]')
    return view(path, HERE / "partial.safetensors")


def write_pair(path):
    """The sentence, and the same without its sixth token, whose queries are twice as large."""
    tensors, metadata = tensor_file.read(OPTIONS.data)
    tokens, changed = json.loads(metadata["tokens"]), {}
    for name in "qk":
        dtype, (layers, heads, length, dim), numbers = tensors[name]
        kept = [x * (2 if name == "q" else 1) for block in range(layers * heads) for token in range(length) if token != 5
                for x in numbers[(block * length + token) * dim:(block * length + token + 1) * dim]]
        changed[name] = (dtype, (layers, heads, length - 1, dim), kept)
    metadata["tokens"], changed["v"] = json.dumps(tokens[:5] + tokens[6:]), changed["k"]
    tensor_file.write(HERE / "without.safetensors", changed, **metadata)
    write_pair.tokens = tokens
    return view(path, OPTIONS.data, f"--with={HERE / 'without.safetensors'}")


def planted(length, word):
    """Heads of known roles: the token before, an earlier one of the same word, the one after that, uniform."""
    def row(i, wanted):
        place = {"previous": i - 1, "duplicate": i - word, "induction": i - word + 1, "uniform": -1}[wanted]
        if place < 0:
            return [1 / (i + 1) if j <= i else 0 for j in range(length)]
        return [0.95 + 0.05 / (i + 1) if j == place else 0.05 / (i + 1) if j <= i else 0 for j in range(length)]
    return [x for wanted in ("previous", "duplicate", "induction", "uniform") for i in range(length) for x in row(i, wanted)]


def write_roles(path):
    words = [f"w{n}" for n in range(20)] * 2
    tensor_file.write(HERE / "planted.safetensors", {"weights": ("F32", (1, 4, 40, 40), planted(40, 20))}, tokens=json.dumps(words))
    return view(path, HERE / "planted.safetensors")


def write_mechanism(path):
    """Two query heads on a key head, with what else a score may have."""
    draw = random.Random(5)
    numbers = lambda count: [draw.uniform(-2, 2) for _ in range(count)]
    tensors = {"q": ("F32", (4, 9, 8), numbers(288)), "k": ("F32", (2, 12, 8), numbers(192)), "v": ("F32", (2, 12, 8), numbers(192)),
               "slopes": ("F32", (4,), [0.1, 0.2, 0.3, 0.4]), "sink": ("F32", (4,), [0.5, -1, 2, 0])}
    tensor_file.write(HERE / "mechanism.safetensors", tensors)
    write_mechanism.flags = ["--causal=bottom-right", "--window=5,-1", "--softcap=3", "--temperature=0.7"]
    return view(path, HERE / "mechanism.safetensors", *write_mechanism.flags)


# ---- what the page says


# ---- numbers


def test_mechanism_weights(page):
    """Every weight of every head equals that of attn run: groups, causality, window, softcap, slopes, sink."""
    check = page.check
    _, (_, rows, columns), expected = weights_of(HERE / "mechanism.safetensors", *write_mechanism.flags)
    worst = 0
    page.open()
    for head in range(4):
        for query in range(rows):
            for key in range((3 * query + head) % 4, columns, 4): # (a browser follows 200 addresses in ten seconds)
                go(page, f"layer=0&head={head}&query={query}&key={key}")
                worst = max(worst, abs(readout(page) - expected[(head * rows + query) * columns + key]))
    go(page, "layer=0&head=0&query=0&key=11&kind=score")
    check("a key that is hidden has no score", "hidden" in page.text("#readout"), page.text("#readout"))
    # lse and the weights of attn run are rounded to f32; scores are below 10.
    check("all weights are those of attn run", 0 < worst <= 10 * 2 ** -23, worst)


def ragged(lengths, heads, dim, seed):
    """q, k and v of packed sequences: [head, token of all of them, channel]."""
    draw, tokens = random.Random(seed), sum(lengths)
    starts = [sum(lengths[:n]) for n in range(len(lengths) + 1)]
    tensors = {name: ("F32", (heads, tokens, dim), [draw.uniform(-2, 2) for _ in range(tokens * heads * dim)]) for name in "qkv"}
    return {**tensors, **{f"cu_seqlens_{side}": ("I64", (len(starts),), starts) for side in ("q", "kv")}}


def plain(batch, heads_q, heads_kv, len_q, len_kv, dim, seed, **more):
    draw = random.Random(seed)
    tensor = lambda heads, length: ("F32", (batch, heads, length, dim), [draw.uniform(-2, 2) for _ in range(batch * heads * length * dim)])
    return {"q": tensor(heads_q, len_q), "k": tensor(heads_kv, len_kv), "v": tensor(heads_kv, len_kv), **more}


# Tensors, and flags: each is computed by the page.
RULES = {
    "grouped heads": (plain(2, 4, 2, 6, 6, 5, 11), ["--causal"]),
    "more keys than queries": (plain(2, 2, 2, 4, 9, 8, 12), ["--causal=bottom-right"]),
    "an offset": (plain(2, 2, 2, 4, 9, 8, 13, offset=("I64", (2,), [3, 3])), ["--causal"]),
    "lengths": (plain(2, 2, 1, 6, 6, 8, 14, lengths_kv=("I64", (2,), [4, 4])), ["--window=2,1"]),
    "a window without an end": (plain(1, 2, 2, 12, 12, 8, 24), ["--window=2,9223372036854775807"]),
    "chunks": (plain(1, 2, 2, 9, 9, 8, 15), ["--chunk=4", "--causal"]),
    "dilation and global tokens": (plain(1, 2, 2, 12, 12, 8, 16), ["--sparse=longformer/2/1"]),
    "scales of heads": (plain(1, 2, 2, 6, 6, 8, 17, scale=("F32", (2,), [0.1, 0.9])), []),
    "slopes": (plain(1, 2, 2, 6, 8, 8, 18), ["--alibi", "--causal=bottom-right"]),
    "rotated": (plain(1, 2, 2, 6, 6, 8, 19), ["--rope", "--scale=0.7"]),
    "softmax-one": (plain(1, 2, 2, 6, 6, 8, 20), ["--normaliser=softmax-one", "--softcap=2"]),
    "layout": ({name: (d, (2, 6, 4, 8), x) for name, (d, _, x) in plain(2, 4, 4, 6, 6, 8, 21).items()}, ["--layout=bshd"]),
    "doubles": ({name: ("F64", shape, x) for name, (_, shape, x) in plain(1, 2, 2, 6, 6, 8, 22).items()}, ["--causal"]),
}


def test_mechanism_rules(page):
    """What a page computes by each rule is what attn run computes; a second layer, its last head, some queries."""
    for name, (tensors, flags) in RULES.items():
        path, target = HERE / "rule.safetensors", HERE / "rule.html"
        tensor_file.write(path, tensors)
        _, shape, weights = weights_of(path, *flags)
        layers, heads, rows, columns = shape
        said = view(target, path, *flags, f"--layer={layers - 1}", f"--head={heads - 1}", f"--queries=1-{rows - 1}")
        page.check(f"{name}: the page computes it", said and said["holds"] == "q k", said)
        page.browser.open(target.as_uri())
        worst, numbers = 0, []
        for query in range(1, rows):
            for key in range(query % 2, columns, 2):
                if key < page.browser.evaluate("JSON.parse(document.getElementById('attn-about').textContent).sequences[0].lenK"):
                    go(page, f"layer={layers - 1}&head={heads - 1}&query={query}&key={key}")
                    expected = weights[(((layers - 1) * heads + heads - 1) * rows + query) * columns + key]
                    worst = max(worst, abs(readout(page) - expected))
                    numbers.append(expected)
        page.check(f"{name}: its weights", worst <= 10 * 2 ** -23 and max(numbers) > 0.05, worst)
    path, target = HERE / "packed.safetensors", HERE / "packed.html"
    tensor_file.write(path, ragged([5, 3, 7], 2, 8, 23))
    said = view(target, path, "--causal")
    page.check("packed sequences are sequences", said and said["entries"] == 3 and said["holds"] == "q k", said)
    page.browser.open(target.as_uri() + "#sequence=1&layer=0&head=1&query=2&key=1")
    tensor_file.write(path, {name: (d, (1, 3, 8), x[(15 + 5) * 8:(15 + 8) * 8]) for name, (d, _, x) in ragged([5, 3, 7], 2, 8, 23).items() if name in "qkv"})
    _, _, weights = weights_of(path, "--causal")
    page.check("each with its weights", abs(readout(page) - weights[2 * 3 + 1]) <= 10 * 2 ** -23, (readout(page), weights))
    page.browser.requests.clear()


def test_mechanism_values(page):
    """The map of weights times the length of values."""
    _, (_, rows, columns), weights = weights_of(HERE / "mechanism.safetensors", *write_mechanism.flags)
    values = tensor_file.read(HERE / "mechanism.safetensors")[0]["v"][2]
    page.open("#layer=0&head=3&query=4&key=5&kind=value")
    norm = math.sqrt(sum(x * x for x in values[(12 + 5) * 8:(12 + 6) * 8]))
    expected = weights[(3 * rows + 4) * columns + 5] * norm
    page.check("weight times the length of the value", abs(readout(page) - expected) <= 1e-5 * expected, (readout(page), expected))


def test_real_neuron(page):
    """The sum of q x k is the score, and the weight is its softmax."""
    check = page.check
    page.open("#layer=3&head=1&query=9&tab=neuron")
    tensors, metadata = tensor_file.read(OPTIONS.data)
    tokens, dim = json.loads(metadata["tokens"]), 32
    at = lambda name, token: tensors[name][2][((3 * 12 + 1) * 14 + token) * dim:((3 * 12 + 1) * 14 + token + 1) * dim]
    scores = [sum(a * b for a, b in zip(at("q", 9), at("k", j))) / math.sqrt(dim) for j in range(14)]
    weights = [math.exp(s) / sum(map(math.exp, scores)) for s in scores]
    lines = table(page, "#neuron tbody tr")
    order = sorted(range(14), key=lambda j: -weights[j])
    check("keys by weight", [line[0].split(" ")[0] for line in lines] == [tokens[j] for j in order], lines)
    check("scores", all(abs(float(line[3]) - scores[j]) <= 0.0051 for line, j in zip(lines, order)), lines)
    check("weights", all(near(float(line[4]), weights[j]) for line, j in zip(lines, order)), lines)
    check("a strip for q, and two for each key", page.count(".neuron-strip") == 29)
    products = [a * b / math.sqrt(dim) for a, b in zip(at("q", 9), at("k", order[0]))]
    page.browser.evaluate("(() => { const s = document.getElementById('neuron-order'); s.value = 'product'; s.dispatchEvent(new Event('change')); })()")
    page.browser.settle()
    x, y = page.browser.middle("#neuron tbody tr:first-child td:nth-child(3) canvas")
    width = page.browser.evaluate("document.querySelector('#neuron canvas').clientWidth")
    page.browser.hover(x - width / 2 + 1, y)
    largest = max(range(dim), key=lambda c: abs(products[c]))
    check("channels by contribution", page.text("#tooltip") == f"q × k, channel {largest} {products[largest]:.3f}", page.text("#tooltip"))


def test_real_margins(page):
    """What keys receive, and how far rows spread."""
    head = tensor_file.read(OPTIONS.data)[0]["weights"][2][37 * 196:38 * 196]
    page.open("#layer=3&head=1")
    box = page.browser.evaluate("(() => { const r = document.querySelector('.map-extent').getBoundingClientRect(); return [r.left, r.top, r.width / 14]; })()")
    for j in (0, 2, 13):
        page.browser.hover(box[0] + (j + 0.5) * box[2], box[1] - 20)
        page.check(f"received by key {j}", near(float(page.text("#tooltip b")), sum(head[i * 14 + j] for i in range(14)) / 14), page.text("#tooltip"))
    for i in (0, 5, 9):
        page.browser.hover(box[0] + 14 * box[2] + 20, box[1] + (i + 0.5) * box[2])
        entropy = -sum(p * math.log(p) for p in head[i * 14:(i + 1) * 14]) / math.log(14)
        page.check(f"entropy of row {i}", near(float(page.text("#tooltip b")), entropy), page.text("#tooltip"))


def test_partial_rollout(page):
    """Rows that sum to less than 1, of layers 3 and 4: the numbers of attn analyze --rollout."""
    attn("analyze", HERE / "partial.safetensors", f"--rollout={HERE / 'rollout.safetensors'}")
    reached = tensor_file.read(HERE / "rollout.safetensors")[0]["weights"][2]
    page.open("#query=2")
    page.browser.evaluate("new Promise(done => setTimeout(done, 300))")
    for layer in range(2):
        row = reached[layer * 9 + 6:layer * 9 + 9]
        best = row.index(max(row))
        page.browser.hover(*page.browser.middle(f"[data-layer='{layer}'] canvas"))
        page.check(f"rollout of partial rows, layer {layer + 3}", page.text("#tooltip").endswith(f"{max(row):.3f}") and f"layer {layer + 3}" in page.text("#tooltip"),
                   (page.text("#tooltip"), best, row))


def test_real_rollout(page):
    """What reaches a token through all layers so far."""
    weights, n = tensor_file.read(OPTIONS.data)[0]["weights"][2], 14
    reached = [[float(i == j) for j in range(n)] for i in range(n)]
    page.open("#query=9")
    page.browser.evaluate("new Promise(done => setTimeout(done, 300))")
    tokens = page.texts(".chip")
    for layer in range(6):
        mean = [[sum(weights[((layer * 12 + h) * n + i) * n + j] for h in range(12)) / 12 for j in range(n)] for i in range(n)]
        reached = [[sum((mean[i][j] + (i == j)) / 2 * reached[j][c] for j in range(n)) for c in range(n)] for i in range(n)]
        best = max(range(n), key=lambda j: reached[9][j])
        page.browser.hover(*page.browser.middle(f"[data-layer='{layer}'] canvas"))
        page.check(f"rollout up to layer {layer}", page.text("#tooltip") == f"Rollout up to layer {layer}it → {tokens[best]} {reached[9][best]:.3f}", page.text("#tooltip"))
    light = page.lightness("[data-layer='5'] canvas", n, n)
    page.check("its picture", light[9 * n + best] < min(light[9 * n + j] for j in range(n) if j != best))


def test_real_kinds(page):
    page.open("#layer=3&head=1&query=9&key=2&kind=score")
    page.check("a score", abs(readout(page) - 3.9) < 0.01, readout(page))
    page.check("signed colors", page.texts("#ticks span")[1] == "0")
    page.browser.press("m")
    page.check("m goes on", page.fragment()["kind"] == "value", page.fragment())


# ---- roles


def test_roles_planted(page):
    """Planted heads rank first with what was planted, and a uniform one has the baseline."""
    check = page.check
    page.open("#tab=roles")
    lines = {line[0]: line[1] for line in table(page, ".role-heads")}
    for head, role in enumerate(("previous", "duplicate", "induction")):
        best = re.match(r"L0 H(\d+) (\d\.\d\d)", lines[role])
        check(f"the planted head is first in {role}", best and int(best.group(1)) == head and float(best.group(2)) >= 0.95, lines[role])
        check("and says so below its map", role in page.texts(".thumbnail .caption")[head], page.texts(".thumbnail .caption"))
    page.open("#layer=0&head=3&tab=roles")
    for name, score, uniform, rows in table(page, "#roles tbody tr"):
        check(f"a uniform head has the baseline of {name}", score == uniform or abs(float(score) - float(uniform)) <= 0.0011, (score, uniform, rows))
    page.open("#sort=induction")
    check("sorted by a role", page.texts(".thumbnail .caption")[0].startswith("L0 H2 0.95") or page.texts(".thumbnail .caption")[0].startswith("L0 H2 0.9"),
          page.texts(".thumbnail .caption"))
    page.open("#filter=duplicate")
    check("filtered by a role", page.count(".thumbnail") == 1)
    page.open()
    page.browser.press("r")
    check("r sorts by entropy: the uniform head is last", page.texts(".thumbnail .caption")[-1] == "L0 H3 1.00", page.texts(".thumbnail .caption"))


def test_real_roles(page):
    """The numbers of attn analyze --roles, with separators and without."""
    for flags, place in (([], ""), (["--content"], "&content=1")):
        heads = json.loads(attn("analyze", OPTIONS.data, "--roles", *flags, "--json").stdout)["heads"]
        for n in (2, 37, 71):
            page.open(f"#layer={n // 12}&head={n % 12}&tab=roles{place}")
            lines = table(page, "#roles tbody tr")
            names = page.browser.evaluate("JSON.parse(document.getElementById('attn-about').textContent).roles.map(r => r.name)")
            shown = [None if line[1] == "–" else float(line[1]) for line in lines]
            expected = [heads[n][name] for name in names]
            page.check(f"roles of head {n} {' '.join(flags)}", len(lines) == len(names) and all(x == y or near(x, y) for x, y in zip(shown, expected)), (shown, expected))
            page.check("and which it has", [name for name, line in zip(names, lines) if line[0].endswith("has it")] == heads[n]["roles"], heads[n]["roles"])
    page.browser.click("#content")
    page.check("the choice is a box", "content" not in page.fragment() and page.browser.evaluate("document.activeElement.id") == "content")


# ---- comparing


def test_real_itself(page):
    """A against itself is 0 everywhere."""
    check = page.check
    page.open("#layer=2&head=3&query=4&tab=compare&b=0&kind=difference")
    page.browser.evaluate("new Promise(done => setTimeout(done, 300))")
    check("all differences of the row", page.count(".compare-line") == 14 and {line[3] for line in table(page, ".compare-line")} == {"0.000"}, table(page, ".compare-line"))
    check("all heads", set(page.texts("#distances .number")) == {"0.000"}, page.texts("#distances .number"))
    page.open("#layer=2&head=3&b=0&kind=difference")
    check("the map", len({tuple(color) for color in page.pixels(".map-box canvas", 14, 14)}) == 1)


def test_pair_files(page):
    """Two files: equal tokens are paired, the other one is hatched, and distances are those computed here."""
    check, tokens = page.check, write_pair.tokens
    page.open()
    check("both files are named", len(page.texts("#sources .source")) == 2)
    check("and both are sequences", page.count("#sequence option") == 2)
    page.open("#layer=3&head=1&query=9&tab=compare&kind=difference")
    page.browser.evaluate("new Promise(done => setTimeout(done, 500))")
    a, b = weights_of(OPTIONS.data)[2], weights_of(HERE / "without.safetensors")[2]
    row = lambda weights, length, head, i: weights[(head * length + i) * length:(head * length + i + 1) * length]
    other = lambda i: i if i < 5 else i - 1
    left, right = row(a, 14, 37, 9), row(b, 13, 37, 8)
    expected = {j: left[j] - right[other(j)] for j in range(14) if j != 5}
    shown = {line[0]: [float(x) for x in line[1:]] for line in table(page, ".compare-line")}
    check("keys that differ most come first", [line[0] for line in table(page, ".compare-line")][:3] == [tokens[j] for j in sorted(expected, key=lambda j: -abs(expected[j]))][:3])
    check("A, B and A - B of a key", all(near(x, y) for x, y in zip(shown["animal"], (left[2], right[2], expected[2]))), shown["animal"])
    check("a token without a partner is not among them", tokens[5] not in shown and len(shown) <= 13)

    def distance(head):
        total = 0
        for i in range(14):
            if i == 5:
                continue
            p, r = row(a, 14, head, i), row(b, 13, head, other(i))
            total += (p[5] + sum(abs(p[j] - r[other(j)]) for j in range(14) if j != 5)) / 2
        return total / 13
    distances = sorted(((distance(head), head) for head in range(72)), reverse=True)
    names = [f"L{head // 12} H{head % 12}" for _, head in distances]
    check("heads by distance", page.texts("#distances .bar-key") == names[:12], page.texts("#distances .bar-key"))
    check("their distances", all(near(float(x), y) for x, (y, _) in zip(page.texts("#distances .number"), distances)))
    check("and that of this head", near(float(page.text("#distance b")), distance(37)))
    page.open("#layer=3&head=1&query=5&tab=compare")
    check("a row without a partner says so", "no partner" in page.text("#sheet"))
    page.browser.press("x")
    check("x swaps", page.fragment()["sequence"] == "1" and len(page.texts(".chip")) == 13 and page.fragment()["b"] == "0", page.fragment())
    page.browser.press("c")
    check("c makes the head B", page.fragment()["b"] == "1.3.1", page.fragment())
    page.browser.click("#next")
    check("which stays while A goes on", page.text("#heading") == "Layer 3, head 2" and page.fragment()["b"] == "1.3.1")
    page.open("#sort=difference")
    page.browser.evaluate("new Promise(done => setTimeout(done, 500))")
    check("sorted by difference", page.texts(".thumbnail .caption")[0] == f"{names[0]} {distances[0][0]:.2f}", page.texts(".thumbnail .caption")[:2])


def test_flooded_pair(page):
    """What docs/page.md says of the pair of sentences."""
    page.open("#layer=3&head=1&query=9&tab=compare")
    lines = {line[0]: line[1:] for line in table(page, ".compare-line")}
    page.check("it looks less at the animal", lines["animal"] == ["0.687", "0.330", "+0.357"], lines)
    page.check("and not at the street instead", lines["street"] == ["0.049", "0.056", "-0.008"], lines)
    page.check("tired has no partner", "tired" not in lines)


# ---- files


def test_real_export(page):
    check = page.check
    page.open("#layer=3&head=1")
    _, _, weights = tensor_file.read(OPTIONS.data)[0]["weights"]
    head = weights[37 * 196:38 * 196]
    text = saved(page, "svg").decode()
    drawn = xml.dom.minidom.parseString(text)
    cells = [node for node in drawn.getElementsByTagName("rect") if node.getAttribute("class") == "cell"]
    labels = [node for node in drawn.getElementsByTagName("text") if node.getAttribute("class") in ("query", "key")]
    check("SVG: a rectangle for each weight, a text for each token", (len(cells), len(labels)) == (196, 28))
    check("SVG: its name", page.browser.evaluate("window.savedName") == "layer3-head1.svg")
    attn("view", OPTIONS.data, f"--export={HERE / 'head.svg'}", "--layer=3", "--head=1")
    command = [node for node in xml.dom.minidom.parse(str(HERE / "head.svg")).getElementsByTagName("rect") if node.getAttribute("class") == "cell"]
    colors = lambda nodes: [re.findall(r"\d+", n.getAttribute("fill")) if "rgb" in n.getAttribute("fill") else
                            [str(int(n.getAttribute("fill")[k:k + 2], 16)) for k in (1, 3, 5)] for n in nodes]
    check("SVG: --export draws the same cells", colors(cells) == colors(command) and len(set(map(tuple, colors(cells)))) > 20)
    rows = saved(page, "csv").decode().strip().split("\n")
    check("CSV: a line for each query", len(rows) == 15 and rows[0].count(",") == 14)
    numbers = [float(x) for row in rows[1:] for x in row.rsplit(",", 14)[1:]]
    check("CSV: all weights", max(abs(x - y) for x, y in zip(numbers, head)) < 1e-6)
    array = saved(page, "npy")
    length = struct.unpack("<H", array[8:10])[0]
    check(".npy: its header", array[:8] == b"\x93NUMPY\x01\x00" and (10 + length) % 64 == 0 and b"'shape': (14, 14)" in array and b"'<f4'" in array)
    check(".npy: all weights", max(abs(x - y) for x, y in zip(struct.unpack("<196f", array[10 + length:]), head)) < 1e-6)
    check("PNG", saved(page, "png")[:8] == b"\x89PNG\r\n\x1a\n")
    page.browser.press("Escape")
    page.open()
    drawn = xml.dom.minidom.parseString(saved(page, "svg").decode())
    check("SVG of all heads", len(drawn.getElementsByTagName("image")) == 1)
    rows = saved(page, "csv").decode().strip().split("\n")
    check("CSV of all heads", len(rows) == 73 and rows[0].startswith("layer,head,largest,entropy"))


if __name__ == "__main__":
    sys.exit(main(globals()))
