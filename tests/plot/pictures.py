#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`attn plot`: numbers of the file are at the right place in the picture, in the right colour; bad input is rejected with one line.

Values are read back from positions through the ticks of the axes, as a person reads them.  The
file is long because each kind of picture has its checks, over the same few functions.
"""
import json
import math
import os
import re
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

from files import STREET, PATTERNS, kinds, load, make_all, run, save
from rejections import check_rejections, rejected
import tap
import tensor_file

SVG = "{http://www.w3.org/2000/svg}"


def number(node, name):
    return float(node.get(name))


class Picture:
    def __init__(self, *words, name="picture.svg"):
        run("plot", *words, "-o", name)
        with open(name) as file:
            self.text = file.read()
        self.root = ElementTree.fromstring(re.search(r"<svg.*</svg>", self.text, re.S).group(0))

    def panels(self):
        return [Panel(g) for g in self.root.iter(SVG + "g") if g.get("class") == "panel"]

    def panel(self, title):
        return next(p for p in self.panels() if p.title == title)

    def words(self):
        return [t.text for t in self.root.iter(SVG + "text")]


class Panel:
    def __init__(self, node):
        self.node, self.title = node, node.get("data-name")

    def groups(self, kind):
        return [g for g in self.node.iter(SVG + "g") if g.get("class") == kind]

    def cells(self):
        """[(x, y, size, class, hover)] of a heat map."""
        return [(number(r, "x"), number(r, "y"), number(r, "width"), r.get("class"), r.find(SVG + "title").text)
                for r in self.groups("cells")[0].iter(SVG + "rect")]

    def axis(self, letter):
        """Two functions from pixels to values, through the first and the last tick: for a linear axis, and for a logarithmic one."""
        ticks = [(number(t, letter) - (4 if letter == "y" else 0), float(t.text)) for t in self.groups(letter + "-axis")[0].iter(SVG + "text")
                 if "tick" in t.get("class")]
        (p0, v0), (p1, v1) = ticks[0], ticks[-1]
        return (lambda p: v0 + (p - p0) * (v1 - v0) / (p1 - p0)), (lambda p: v0 * (v1 / v0) ** ((p - p0) / (p1 - p0)))

    def series(self, start):
        return next(g for g in self.groups("series") if g.get("data-name").startswith(start))

    def points(self, start):
        """Pixels of a series: its line, or its dots."""
        g = self.series(start)
        path = g.find(SVG + "path")
        if path is not None:
            numbers = [float(x) for x in re.findall(r"-?[\d.]+", path.get("d"))]
            return list(zip(numbers[::2], numbers[1::2]))
        return [(number(c, "cx"), number(c, "cy")) for c in g.iter(SVG + "circle")]

    def bars(self, start):
        """[(middle, top, bottom)] in pixels."""
        return [(number(r, "x") + number(r, "width") / 2, number(r, "y"), number(r, "y") + number(r, "height"))
                for r in self.series(start).iter(SVG + "rect")]


def near(a, b, error):
    return abs(a - b) <= error


def step(value, low, high):
    return min(64, max(0, int(64 * (value - low) / (high - low) + 0.5)))


def heat_is(name, panel, rows, columns, values, letter, low, high):
    """Every cell is at its place, in its colour, with its value in the tooltip."""
    cells = panel.cells()
    good = len(cells) == rows * columns
    x0, y0, size = cells[0][:3]
    for n, (x, y, _, kind, hover) in enumerate(cells):
        i, j = divmod(n, columns)
        good &= near(x, x0 + j * size, 0.02) and near(y, y0 + i * size, 0.02)
        # A value halfway between two steps may round either way.
        good &= kind in {f"{letter}{step(values[n] + e, low, high)}" for e in (-1e-6 * (high - low), 0, 1e-6 * (high - low))}
        good &= near(float(hover.rsplit(" ", 1)[1]), values[n], 1e-3 * max(1e-3, abs(values[n])))
    tap.check(name, good)


def entropy(weights):
    return -sum(w * math.log(w) for w in weights if w > 0)


def softmax(scores, temperature=1):
    most = max(scores)
    powers = [math.exp((s - most) / temperature) for s in scores]
    return [p / sum(powers) for p in powers]


def check_weights(words, out):
    shape, numbers = out["weights"]
    head = numbers[(3 * 12 + 1) * 196:][:196]
    picture = Picture(*words["weights"])
    panel = picture.panel("Where each query attends")
    heat_is("weights: cells", panel, 14, 14, head, "h", 0, 1)
    hover = panel.cells()[9 * 14 + 2][4]
    tap.check("weights: it attends to animal", hover == "query it, key animal: weight 0.6869", hover)
    rows = {t.text: number(t, "y") for t in panel.node.iter(SVG + "text") if t.get("class") == "end"}
    cell = panel.cells()[9 * 14]
    tap.check("weights: the row of it", near(rows["it"], cell[1] + cell[2] / 2 + 4, 0.02), rows)
    tap.check("weights: numbers in the cells", "0.69" in [t.text for t in panel.node.iter(SVG + "text")])
    tap.check("weights: title, axes, scale, caveat", {"Attention weights: layer 3, head 1", "query", "key", "weight", "0", "0.5", "1"} <= set(picture.words())
              and "diagnostic" in picture.text)
    high = Picture(*words["weights"], "--high=max").panel("Where each query attends").cells()
    tap.check("weights: --high=max", high[head.index(max(head))][3] == "h64")
    twice = Picture(*words["weights"], name="again.svg")
    tap.check("weights: the same bytes again", twice.text == picture.text)
    tap.check("--title", Picture(*words["weights"], "--title=A <b> & \"c\"").root.find(SVG + "title").text == 'A <b> & "c"')

    panels = Picture(*words["heads"]).panels()
    tap.check("heads: all 72, by layer and head", [p.title for p in panels] == [f"{n // 12}.{n % 12}" for n in range(72)])
    heat_is("heads: cells of 3.1", panels[37], 14, 14, head, "h", 0, 1)
    part = Picture("heads", "out.safetensors", "--layer=2-3", "--head=1,5").panels()
    tap.check("heads: chosen ones", [p.title for p in part] == ["2.1", "2.5", "3.1", "3.5"])


def check_steps(words, out):
    picture = Picture(*words["steps"], name="steps.html")
    titles = [p.title for p in picture.panels()]
    tap.check("steps: four panels", [t[0] for t in titles] == list("QSAO"))
    q = load(STREET)["q"][1][(3 * 12 + 1) * 14 * 32:][:14 * 32]
    most = max(map(abs, q))
    heat_is("steps: queries", picture.panels()[0], 14, 32, q, "d", -most, most)
    scores = out["scores"][1][(3 * 12 + 1) * 196:][:196]
    most = max(map(abs, scores))
    heat_is("steps: scores", picture.panels()[1], 14, 14, scores, "d", -most, most)
    links = re.findall(r"(?:src|href)=\"([^\"]+)|url\(|@import", picture.text)
    tap.check("steps: one page without external resources", picture.text.startswith("<!doctype html>") and links == ["data:,"], links)


def check_compare(words, out):
    picture = Picture(*words["compare"])
    cosine = load("cosine.safetensors")["weights"][1][(3 * 12 + 1) * 196:][:196]
    heat_is("compare: the second file", picture.panel("cosine"), 14, 14, cosine, "h", 0, 1)
    rows = {"out": out["weights"][1][(3 * 12 + 1) * 196:][:196], "cosine": cosine}
    brighter = Picture(*words["compare"], "--high=max")
    for name, weights in rows.items():
        heat_is(f"compare: {name} with --high=max, that of both files", brighter.panel(name), 14, 14, weights, "h", 0, max(map(max, rows.values())))
    panel = picture.panel("What query 9 (it) attends to")
    value = panel.axis("y")[0]
    for name, weights in rows.items():
        tops = [value(top) for _, top, _ in panel.bars(name)]
        tap.check(f"compare: row 9 of {name}", all(near(a, b, 2e-3) for a, b in zip(tops, weights[9 * 14:10 * 14], strict=True)))
    panel = picture.panel("Mean entropy of the rows")
    value = panel.axis("y")[0]
    found = [value(top) for _, top, _ in panel.bars("mean entropy")]
    expected = [sum(entropy(w[i * 14:i * 14 + 14]) for i in range(14)) / 14 for w in rows.values()]
    tap.check("compare: entropies", all(near(a, b, 0.01) for a, b in zip(found, expected, strict=True)))
    flooded = STREET.replace("street", "street_flooded")
    picture = Picture("compare", STREET, flooded, "--layer=3", "--head=1", "--query=11", name="pair.svg")
    named = {panel.title: {t.text for t in panel.node.iter(SVG + "text")} & {"tired", "flooded", "tired / flooded"} for panel in picture.panels()}
    tap.check("compare: each file with its own tokens, and both where they differ", named == {
        "animal_street": {"tired"}, "animal_street_flooded": {"flooded"}, "What query 11 (tired / flooded) attends to": {"tired / flooded"},
        "Mean entropy of the rows": set()}, named)


def check_sums(out):
    """Weights of a sigmoid are no distribution: sums in place of entropies, and no words that each row sums to 1."""
    run("run", STREET, "-o", "sigmoid.safetensors", "--weights", "--scores=biased", "--normaliser=sigmoid")
    weights, says = load("sigmoid.safetensors")["weights"][1], "Each row of weights sums to 1"
    picture = Picture("compare", "out.safetensors", "sigmoid.safetensors", "--layer=3", "--head=1", name="sums.svg")
    panel = picture.panel("Mean sum of the rows")
    value = panel.axis("y")[0]
    found = [value(top) for _, top, _ in panel.bars("mean sum")]
    tap.check("sigmoid: compare shows sums", near(found[0], 1, 0.01) and near(found[1], sum(weights[37 * 196:][:196]) / 14, 0.01), found)
    tap.check("sigmoid: compare has no entropies", "entropy" not in picture.text.lower() and says not in picture.text)
    for kind, *files in (("weights", "sigmoid.safetensors"), ("heads", "sigmoid.safetensors"), ("steps", "sigmoid.safetensors", STREET)):
        text = Picture(kind, *files, name="sums.svg").text
        tap.check(f"sigmoid: {kind} does not say softmax", says not in text and "softmax of" not in text and "diagnostic" in text)
        text = Picture(kind, "out.safetensors", *files[1:], name="sums.svg").text
        tap.check(f"softmax: {kind} does", says in text)
    rejected(2, f"sigmoid.safetensors: tensor 'weights': row 0 sums to {sum(weights[:14]):.4g}, not to 1; it has no entropy", "entropy",
             "sigmoid.safetensors", "-o", "out.svg")
    save("masked.safetensors", weights=([2, 3], [0.25, 0.25, 0.5, 0, 0, 0]))
    tap.check("entropy: a query that sees no key", "2 rows of weights" in Picture("entropy", "masked.safetensors", name="masked.svg").text)


def check_linear(out):
    """Linear attention compared with softmax: the weights of `attn run --phi` are f(q).f(k) over their sum, f(x) = elu(x) + 1."""
    run("run", STREET, "-o", "linear.safetensors", "--weights", "--phi=elu1", "--causal")
    given, made = load(STREET), load("linear.safetensors")
    worst = 0
    for head in (37, 71):
        q, k = ([[x + 1 if x > 0 else math.exp(x) for x in given[name][1][(head * 14 + i) * 32:][:32]] for i in range(14)] for name in "qk")
        for i in range(14):
            products = [sum(a * b for a, b in zip(q[i], k[j])) if j <= i else 0 for j in range(14)]
            row = made["weights"][1][(head * 14 + i) * 14:][:14]
            worst = max([worst] + [abs(p / sum(products) - w) for p, w in zip(products, row)])
            for c in (0, 31):
                o = sum(p / sum(products) * given["v"][1][(head * 14 + j) * 32 + c] for j, p in enumerate(products))
                worst = max(worst, abs(o - made["o"][1][(head * 14 + i) * 32 + c]))
    tap.check("linear: weights and outputs of attn run --phi", worst < 2e-6, worst)
    picture = Picture("compare", "out.safetensors", "linear.safetensors", "--layer=3", "--head=1")
    heat_is("linear: beside softmax", picture.panel("linear"), 14, 14, made["weights"][1][37 * 196:][:196], "h", 0, 1)
    same = [run("run", STREET, "-o", name, "--phi=favor/16", f"--seed={seed}") or open(name, "rb").read()[-4000:]
            for name, seed in (("a.safetensors", 1), ("b.safetensors", 1), ("c.safetensors", 2))]
    tap.check("linear: random features by seed", same[0] == same[1] != same[2])


def check_entropy(words, out):
    values = out["entropy"][1]
    picture = Picture(*words["entropy"])
    panel = picture.panel("How many queries have which entropy")
    (x, _), (y, _) = panel.axis("x"), panel.axis("y")
    bars = [(x(middle), round(y(top))) for middle, top, _ in panel.bars("queries")]
    limit = math.log(14)
    expected = [0] * 20
    for v in values:
        expected[min(19, max(0, int(v / limit * 20)))] += 1
    tap.check("entropy: 20 bins with their counts", [n for _, n in bars] == expected, bars)
    tap.check("entropy: bins at their places", all(near(at, limit * (k + 0.5) / 20, 0.01) for k, (at, _) in enumerate(bars)))
    lines = [x(float(re.match(r"M([\d.]+)", g.find(SVG + "path").get("d")).group(1))) for g in panel.groups("reference")]
    tap.check("entropy: lines at 0, the mean and log m", all(near(a, b, 0.01) for a, b in zip(lines, (0, sum(values) / len(values), limit), strict=True)), lines)
    means = [y(top) for y in [picture.panel("Mean entropy of each head").axis("y")[0]] for _, top, _ in picture.panel("Mean entropy of each head").bars("mean")]
    tap.check("entropy: 72 means", all(near(m, sum(values[14 * k:14 * k + 14]) / 14, 0.02) for k, m in enumerate(means)) and len(means) == 72)
    run("run", STREET, "-o", "weights.safetensors", "--weights")
    same = Picture("entropy", "weights.safetensors").panel("How many queries have which entropy")
    tap.check("entropy: from weights it is the same", [round(same.axis("y")[0](t)) for _, t, _ in same.bars("queries")] == expected)


def check_temperature(words, out):
    scores = out["scores"][1][(3 * 12 + 1) * 196:][:196]
    picture = Picture(*words["temperature"])
    panel = picture.panel("Entropy by temperature")
    (x, _), (y, _) = panel.axis("x"), panel.axis("y")
    for name, rows in (("query 9", [9]), ("mean of all", range(14))):
        points = [(x(a), y(b)) for a, b in panel.points(name)]
        good = len(points) == 50
        for k, (t, h) in enumerate(points):
            real = 0.1 + 4.9 * k / 49
            good &= near(t, real, 0.01) and near(h, sum(entropy(softmax(scores[i * 14:i * 14 + 14], real)) for i in rows) / len(rows), 0.01)
        tap.check(f"temperature: {name} at 50 temperatures", good)
    panel = picture.panel("What query 9 attends to at five temperatures")
    value = panel.axis("y")[0]
    for t in (0.1, 0.5, 1, 2, 5):
        tops = [value(top) for _, top, _ in panel.bars(f"T = {t:g}:")]
        tap.check(f"temperature: weights at {t:g}", all(near(a, b, 0.003) for a, b in zip(tops, softmax(scores[9 * 14:10 * 14], t), strict=True)))
    run("run", STREET, "-o", "causal.safetensors", "--scores=biased", "--causal")
    first = Picture("temperature", "causal.safetensors", "--query=0").panel("What query 0 attends to at five temperatures")
    tap.check("temperature: masked keys have no weight", [round(first.axis("y")[0](top), 2) for _, top, _ in first.bars("T = 5:")] == [1] + [0] * 13)


def check_gradients(words):
    found = load("gradients.safetensors")
    picture = Picture(*words["gradients"])
    parts = {"dq": found["dq"][1][2 * 384:3 * 384], "dk": found["dk"][1][384:768], "dv": found["dv"][1][288:576]}
    most = max(abs(x) for part in parts.values() for x in part)
    for name, part in parts.items():
        panel = next(p for p in picture.panels() if p.title.startswith(name + ","))
        heat_is(f"gradients: {name} of head 2, which uses head 1 of keys", panel, 12, len(part) // 12, part, "d", -most, most)
        norm = math.sqrt(sum(x * x for x in part))
        tap.check(f"gradients: norm of {name}", near(float(panel.title.split()[-1]), norm, 1e-3 * norm))
    norms = json.load(open("analyze.json"))["gradient_norms"]
    panel = Picture(*words["norms"]).panel("How large gradients are")
    value, bars = panel.axis("y")[0], panel.bars("norm")
    tap.check("gradients: norms of JSON", all(near(value(bars[k][1]), n, 0.01 * max(norms.values())) for k, n in enumerate(norms.values())) and len(bars) == 6)


def check_roles(words):
    heads = json.load(open("roles.json"))["heads"]
    picture = Picture(*words["roles"])
    names = ["previous", "next", "self", "first", "separator", "duplicate", "induction", "sink", "entropy", "positional"]
    tap.check("roles: a panel for each", [p.title for p in picture.panels()] == names, [p.title for p in picture.panels()])
    for name in names:
        cells = picture.panel(name).cells()
        shown = [float(c[4].split()[-1]) for c in cells]
        expected = [max(0, head["entropy_share" if name == "entropy" else name]) for head in heads]
        tap.check(f"roles: {name} of each head", all(near(a, b, 0.001) for a, b in zip(shown, expected)) and len(cells) == 72, cells[:3])
        rows = [round(c[1], 1) for c in cells]
        tap.check(f"roles: {name} by layer", [rows[n] == rows[0] for n in range(72)] == [n < 12 for n in range(72)])
    with open("copying.json", "w") as file:
        json.dump({"heads": [{**heads[0], "head": n, "copying": x} for n, x in enumerate((0.5, -0.75, None))]}, file)
    cells = Picture("roles", "copying.json").panel("copying").cells()
    tap.check("roles: copying, below 0 too", [c[4].split()[-1] for c in cells[:2]] == ["0.5", "-0.75"] and "copying" not in names, cells)
    with open("batch.json", "w") as file:
        json.dump({"heads": [{**heads[0], "entry": 0, "previous": 0.25, "next": None}, {**heads[0], "entry": 1, "layer": 7, "previous": 0.75, "next": None}]}, file)
    second = Picture("roles", "batch.json", "--entry=1")
    tap.check("roles: of an entry", [c[4].split()[-1] for c in second.panel("previous").cells()] == ["0.75"], second.panel("previous").cells())
    tap.check("roles: no panel for a number that no head has", "next" not in [p.title for p in second.panels()])


def check_mask(words):
    rows = [line for line in run("mask", "longformer/8/2", "causal", "-n", "20").splitlines() if set(line) <= set("#.")]
    cells = Picture(*words["mask"]).panel("Which query sees which key").cells()
    tap.check("mask: white is visible, black is not", [c[3] for c in cells] == ["m1" if c == "#" else "m0" for row in rows for c in row])
    # A large mask has a path for each colour: the white one is the lower triangle, one run per row.
    panel = Picture(*words["large"]).panel("Which query sees which key")
    white = next(p for p in panel.node.iter(SVG + "path") if p.get("class") == "m1")
    runs = re.findall(r"M([\d.]+) ([\d.]+)h([\d.]+)", white.get("d"))
    cell = float(runs[0][2])
    tap.check("mask: runs of a large one", [round(float(w) / cell) for _, _, w in runs] == list(range(1, 81)) and len({x for x, _, _ in runs}) == 1)


def energy(x, y, beta=4):
    dots = [beta * (PATTERNS[2 * m] * x + PATTERNS[2 * m + 1] * y) for m in range(4)]
    most = max(dots)
    return -(most + math.log(sum(math.exp(d - most) for d in dots))) / beta + (x * x + y * y) / 2


def check_hopfield(words):
    states = json.load(open("ways.json"))["states"]
    picture = Picture(*words["hopfield"])
    for source in ("hopfield", "energies"):
        panel = Picture(*words[source]).panel("Energy of each state")
        (x, _), (y, _) = panel.axis("x"), panel.axis("y")
        good = True
        for k, s in enumerate(states):
            points = panel.points(f"state {k}")
            good &= len(points) == len(s["energies"])
            good &= all(near(x(a), n, 0.02) and near(y(b), s["energies"][n], 0.01) for n, (a, b) in enumerate(points))
        tap.check(f"hopfield: energies of each update ({source})", good)
    panel = picture.panel("Energy over both channels, and the trajectories of the states")
    (x, _), (y, _) = panel.axis("x"), panel.axis("y")
    path = load("ways.safetensors")["path"][1]
    ways = [[(x(a), y(b)) for a, b in panel.points(f"trajectory of state {k}")] for k in range(4)]
    tap.check("hopfield: ways", all(near(p[0], path[(k * 7 + n) * 2], 0.01) and near(p[1], path[(k * 7 + n) * 2 + 1], 0.01)
                                    for k, way in enumerate(ways) for n, p in enumerate(way)) and all(len(w) > 2 for w in ways))
    levels = panel.groups("contours")[0].findall(SVG + "path")
    tap.check("hopfield: 20 lines of equal energy", len(levels) == 20)
    worst = 0
    for line in levels:
        numbers = [float(n) for n in re.findall(r"-?[\d.]+", line.get("d"))]
        worst = max([worst] + [abs(energy(x(a), y(b)) - float(line.get("data-level"))) for a, b in zip(numbers[::2], numbers[1::2])])
    tap.check("hopfield: contours are at their energy", worst < 0.02, worst)
    panel = picture.panel("Energy on the way from pattern 0 to pattern 1")
    (x, _), (y, _) = panel.axis("x"), panel.axis("y")
    tap.check("hopfield: the way between patterns", all(near(y(b), energy(1.2 - 2.5 * x(a), 1.0 - 0.2 * x(a)), 0.01) for a, b in panel.points("energy")))
    panel = picture.panel("Weights of the patterns for state 0")
    (_, x), (y, _) = panel.axis("x"), panel.axis("y")
    dots = [0.3 * PATTERNS[2 * m] + 0.2 * PATTERNS[2 * m + 1] for m in range(4)]
    tap.check("hopfield: weights by beta", all(near(y(b), softmax(dots, 1 / x(a))[m], 0.01) for m in range(4) for a, b in panel.points(f"pattern {m}")))
    panel = picture.panel("Similarity to the pattern retrieved")
    y = panel.axis("y")[0]
    tap.check("hopfield: states end at their patterns", all(y(panel.points(f"state {k}")[-1][1]) > 0.99 for k in range(4)))
    panel = picture.panel("How many random patterns a memory holds")
    (x, _), (_, y) = panel.axis("x"), panel.axis("y")
    a, b = panel.points("modern")[-1]
    tap.check("hopfield: capacity", near(math.log(y(b)), x(a) / 2, 0.5))


def rows_of(*rows):
    """A file of results: (string, name or None, ms, MiB)."""
    with open("rows.json", "w") as file:
        json.dump({"machine": {"cpu": "a test", "threads": 2},
                   "results": [{"problem": problem, "name": name, "seconds": {"median": ms / 1e3}, "workspace_bytes": mib * 2 ** 20,
                                "speedup": rows[0][2] / ms} for problem, name, ms, mib in rows]}, file)
    return Picture("runtime", "rows.json")


def check_variants():
    """Bars where no two results differ only in their length; what the legends keep of a string."""
    given = [("matrix:f32:hq12:sq256:d64", "standard", 8, 3), ("fwd:f32:hq12:sq256:d64", "flash", 2, 0.25), ("layer:gqa:fwd:f32:hq12:hkv3:sq256:d64:m768", None, 16, 4)]
    labels = [f"{name} = {problem}" if name else problem for problem, name, *_ in given]
    picture = rows_of(*given)
    tap.check("runtime: variants at one length are bars", [p.title for p in picture.panels()] == ["Time of a call", "Workspace of a call"])
    for panel, column, texts in zip(picture.panels(), (2, 3), (["8 ms", "2 ms, 4 times as fast", "16 ms, 0.5 times as fast"], ["3 MiB", "0.25 MiB", "4 MiB"])):
        x = panel.axis("x")[0]
        groups = panel.groups("series")
        tap.check(f"runtime: {panel.title}: every string in order", [g.get("data-name") for g in groups] == labels)
        bars = [g.find(SVG + "rect") for g in groups]
        tap.check(f"runtime: {panel.title}: lengths of bars", all(near(x(number(bar, "x")), 0, 0.01) and near(x(number(bar, "x") + number(bar, "width")), row[column], 0.01)
                                                                  for bar, row in zip(bars, given)))
        tap.check(f"runtime: {panel.title}: numbers beside them", [g.findall(SVG + "text")[1].text for g in groups] == texts)
    slow = rows_of(("fwd:sq64:d8", None, 1170.4, 1), ("bwd:sq64:d8", None, 585.2, 1)).panel("Time of a call").groups("series")
    texts = [g.findall(SVG + "text")[1].text for g in slow]
    tap.check("runtime: a second is 1000 ms, not 1e+03", texts == ["1170 ms", "585 ms, 2 times as fast"], texts)

    without = rows_of(("fwd:f32:sq4:d4", None, 8, 0), ("bwd:f32:sq4:d4", None, 2, 0))
    tap.check("runtime: no bars of a workspace that no call has", [p.title for p in without.panels()] == ["Time of a call"])

    def legends(*rows):
        return [g.get("data-name").split(": time")[0] for g in rows_of(*rows).panel("Time of a call by length").groups("series") if "grows" in g.get("data-name")]

    cache = [(f"decode:{kind}:sq1:skv{n}:d8:rope", None, n * scale, 1) for kind, scale in (("bf16", 1), ("int8", 2)) for n in (64, 128)]
    tap.check("runtime: decoding keeps sq1", legends(*cache) == ["decode:bf16:sq1:d8:rope", "decode:int8:sq1:d8:rope"], legends(*cache))
    named = [(f"fwd:sq{n}:d8", name, n, 1) for name in ("flash", "xformers") for n in (64, 128)]
    tap.check("runtime: one string by two names is two curves", legends(*named) == ["flash = fwd:d8", "xformers = fwd:d8"], legends(*named))
    both = [("fwd:sq16:skv64:d8", None, 1, 1), ("fwd:sq16:skv128:d8", None, 2, 1), ("fwd:sq64:skv64:d8", None, 1, 1), ("fwd:sq128:d8", None, 2, 1)]
    tap.check("runtime: queries are the length if they are as many as keys", legends(*both) == ["fwd:sq16:d8", "fwd:d8"], legends(*both))
    many = [(f"fwd:hq{h}:sq{n}:d8", f"name{h}", n / h, 0.5 * h) for h in range(1, 11) for n in (64, 128)]
    panels = {p.title: p for p in rows_of(*many).panels()}
    tap.check("runtime: of many kinds each has one curve", all(len(p.groups("series")) == (9 if "faster" in title else 10) for title, p in panels.items()))
    names = [g.get("data-name") for g in panels["How many times faster, by length"].groups("series")]
    tap.check("runtime: short names of speed-ups", names == [f"name{h} over name1" for h in range(2, 11)], names)
    flat = [(f"fwd:{kind}sq{n}:d8", None, ms * n, 1) for kind, ms in (("", 1), ("b2:", 1.1)) for n in (64, 128)]
    ticks = [t.text for t in rows_of(*flat).panel("How many times faster, by length").groups("y-axis")[0].iter(SVG + "text") if "tick" in t.get("class")]
    tap.check("chart: a short logarithmic axis has ticks", len(ticks) >= 3, ticks)


def check_bench(words):
    picture = Picture(*words["runtime"])
    panel = picture.panel("Time of a call by length")
    (_, x), (_, y) = panel.axis("x"), panel.axis("y")
    for kind, time in (("fwd", lambda n: 1e-5 * n * n), ("linear", lambda n: 2e-3 * n)):
        points = [(x(a), y(b)) for a, b in panel.points(kind)]
        tap.check(f"runtime: times of {kind}", len(points) == 4 and all(near(n / real, 1, 0.01) and near(t / time(real), 1, 0.02) for (n, t), real in zip(points, (256, 512, 1024, 2048))))
    names = [g.get("data-name") for g in panel.groups("series")]
    tap.check("runtime: growth, and fits with n and n^2", names[0].endswith("n^2.00") and names[3].endswith("n^1.00") and names[2] == "fitted 1e-05 n^2 ms" and names[4] == "fitted 0.002 n ms", names)
    fitted = panel.points("fitted 1e-05 n^2")
    tap.check("runtime: a fit lies on its points", all(near(a[1], b[1], 0.1) for a, b in zip(fitted, panel.points("fwd"))))
    panel = picture.panel("How many times faster, by length")
    (_, x), (_, y) = panel.axis("x"), panel.axis("y")
    tap.check("runtime: speed-ups", all(near(y(b) / (1e-2 * x(a) / 2), 1, 0.03) for a, b in panel.points("linear")))
    panel = picture.panel("Memory of a call by length")
    y = panel.axis("y")[1]
    tap.check("runtime: memory of all scores", near(y(panel.points("fwd:f32:hq8:d64: all scores")[-1][1]) / 128, 1, 0.02))
    with open("bench.csv", "w") as file:
        file.write('problem,threads,cpu,seconds_median,workspace_bytes,extra_bytes\r\n')
        for row in json.load(open("bench.json"))["results"]:
            file.write(f'"{row["problem"]}",2,"a ""test"", too",{row["seconds"]["median"]},4096,\n')
    csv = Picture("runtime", "bench.csv")
    tap.check("runtime: from .csv", csv.panel("Time of a call by length").points("fwd") == picture.panel("Time of a call by length").points("fwd")
              and 'bench.csv: a "test", too, 2 threads' in csv.words())

    check_variants()
    panel = next(p for p in Picture("latency", "bench.json").panels() if p.title == "fwd:f32:hq8:sq2048:d64")
    (x, _), (y, _) = panel.axis("x"), panel.axis("y")
    # Ten calls of 1 to 10 ms; the file states a median of 42 ms, so all are in the picture.
    counts = [(x(a), round(y(top))) for a, top, _ in panel.bars("samples")]
    tap.check("latency: each call in its bar", sum(n for _, n in counts) == 10 and all(a < 11 for a, n in counts if n), counts)
    run("bench", "fwd:f32:sq32:d16", "--seconds=0.01", "--json", "--samples", out="real.json")
    real = json.load(open("real.json"))["results"][0]
    tap.check("latency: attn bench --samples has them all", len(real["seconds_all"]) == real["samples"])
    Picture("latency", "real.json")
    del real["seconds_all"]
    with open("plain.json", "w") as file:
        json.dump({"results": [real]}, file)
    panel = Picture("latency", "plain.json").panels()[0]
    y = panel.axis("y")[0]
    tap.check("latency: the histogram of a plain --json", [round(y(top)) for _, top, _ in panel.bars("samples")] == real["histogram"]["counts"])

    picture = Picture("scaling", "scaling.json")
    for title, expected in (("Speed-up by ranks", lambda ranks, n, part: ranks * part ** n), ("Efficiency by ranks", lambda ranks, n, part: 100 * part ** n),
                            ("Time in messages by ranks", lambda ranks, n, part: 10 * n)):
        panel = picture.panel(title)
        (_, x), (linear, log) = panel.axis("x"), panel.axis("y")
        y = log if title.startswith("Speed") else linear
        for kind, part in (("strong", 0.8), ("weak", 0.9)):
            points = [(x(a), y(b)) for a, b in panel.points(f"fwd:f32:sq8:d8, {kind}")]
            tap.check(f"scaling: {title}, {kind}", len(points) == 3 and all(near(a, ranks, 0.02) and near(b, expected(ranks, n, part), 0.02 * max(1, b))
                                                                        for n, (ranks, (a, b)) in enumerate(zip((1, 2, 4), points))), points)
    tap.check("scaling: the best decile", len(picture.panel("Efficiency by ranks").points("fwd:f32:sq8:d8, weak: best decile")) == 3)
    tap.check("scaling: who measured", "scaling.json: Some <CPU>, 2 threads for each rank, An MPI 1.2" in picture.words())

    panel = Picture("loss", "loss.safetensors").panel("Loss by step")
    (x, _), (_, y) = panel.axis("x"), panel.axis("y")
    points = [(x(a), y(b)) for a, b in panel.points("loss of a step")]
    tap.check("loss: every step, on a logarithmic scale", len(points) == 400 and
              all(near(a, n + 1, 0.5) and near(b / (2.5 * math.exp(-n / 50) + 0.001), 1, 0.02) for n, (a, b) in enumerate(points)), points[:5])
    smoothed = [y(b) for _, b in panel.points("smoothed")]
    tap.check("loss: smoothed, a fiftieth of the run behind", len(smoothed) == 400 and all(0.99 < a / b < 1.3 for a, (_, b) in zip(smoothed, points)),
              [a / b for a, (_, b) in zip(smoothed, points)][::40])
    panel = Picture("loss", "few.safetensors").panel("Loss by step")
    points = [panel.axis("y")[0](b) for _, b in panel.points("loss of a step")]
    tap.check("loss: a linear scale if a loss is 0", all(near(a, b, 0.01) for a, b in zip(points, (1, 0, 0.5))), points)
    save("long.safetensors", loss=([5001], [1.0 / (n + 1) for n in range(5001)]))
    points = Picture("loss", "long.safetensors").panel("Loss by step").points("loss of a step")
    tap.check("loss: at most 2000 points and the last", 1000 < len(points) <= 2001, len(points))

    picture = Picture("peers", "peers.json")
    bars = [(r.get("class"), number(r, "width"), r.find(SVG + "title").text) for r in picture.root.iter(SVG + "rect") if r.find(SVG + "title") is not None]
    grid = [float(line.get("d")[1:].split()[0]) for line in picture.root.iter(SVG + "path") if line.get("class") in ("grid", "mark")]
    one = (grid[-1] - grid[0]) / 6  # the length of libattn's time: the axis ends at 6, and longer bars are cut
    tap.check("peers: bars are as long as their times", [(c, round(w / one, 2)) for c, w, _ in bars] == [("f0", 2), ("f1", 6), ("f1", 0.5)], bars)
    tap.check("peers: numbers, versions, where it was measured", {"2", "12.5 (cut)", "0.5", "One 1.2", "Other & more", "forward sq8", "libattn = 1",
              "Some <CPU>, avx2, 2 threads, 2026-01-02: bench/peers.py"} <= set(picture.words()), picture.words())


def check_files_that_begin_like_text():
    """The first byte of a .safetensors file is the lowest one of its header's length: here a space, after which cJSON finds an object."""
    length, pad = 0, 0
    while length % 256 != ord(" "):
        tensor_file.write("space.safetensors", {"weights": ("F64", [1, 2, 2], [0.5] * 4)}, pad="x" * pad)
        with open("space.safetensors", "rb") as file:
            length, pad = int.from_bytes(file.read(8), "little"), pad + 1
    tap.check("a file whose first byte is a space", Picture("weights", "space.safetensors").panels())


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        words = make_all()
        out = load("out.safetensors")
        tap.check("each kind of attn plot --help has a file in files.py", set(kinds()) == {kind for kind, *_ in words.values()}, kinds())
        check_weights(words, out)
        check_steps(words, out)
        check_compare(words, out)
        check_sums(out)
        check_linear(out)
        check_entropy(words, out)
        check_temperature(words, out)
        check_gradients(words)
        check_roles(words)
        check_mask(words)
        check_hopfield(words)
        check_bench(words)
        check_files_that_begin_like_text()
        check_rejections()
        os.chdir("/")
    sys.exit(tap.finish())


main()
