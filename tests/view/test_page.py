#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The page of `attn view` in a headless Chromium: what it draws, states and does, compared with the data it was made from.

    test_page.py --fixture PROGRAM [--attn PROGRAM --data FILE] [--only NAME] [--write-only]

Prints TAP.  Exits with 77 if no browser is found, since nothing was tested.  With --write-only the pages are written but not opened.
"""

import argparse
import math
import re
import subprocess
import sys

from harness import near, ordered, run_all

CAT = ["the", "cat", "sat", "down"]
DOG = ["dogs", "bark"]
FRAMES = ["f0", "f1", "f2", "f3", "f4"]
HOSTILE = ["</script><script>pwned()</script>", "<img src=x onerror=pwned()>", "\"'&amp;<!--", "a⏎b⇥c", "∅",
           "שלום", "\ufffd\ufffd broken", "\u2028😀 \\u003c ${pwned()}"]


def weights(s, layer, head, i, len_k):
    """Row i, as view_fixture.c computes it."""
    a = [1 + (7 * s + 5 * layer + 3 * head + 2 * i + j * j + i * j) % 13 + (len_k if i == j else 0) for j in range(len_k)]
    return [x / sum(a) for x in a]


# ---- the tests: each gets a Page of its kind


def test_small_grid(page):
    page.open()
    check = page.check
    check("six thumbnails", page.count(".thumbnail") == 6)
    check("all of them drawn", page.browser.evaluate(
        "[...document.querySelectorAll('.thumbnail canvas')].every(c => c.width === 4 && c.height === 4 && c.clientWidth >= 38)"))
    check("title", page.text("h1") == "A small page" and "A small page" in page.browser.evaluate("document.title"))
    check("source, facts and attribution", page.texts("#sources .source") == ["made by view_fixture"] and page.text("#attribution") == "nobody's data"
          and page.texts("#facts dd") == ["none <at all>", "[layer, head, query, key]"])
    check("headings of rows and columns", page.texts("[role=columnheader]") == ["", "0", "1", "2", "rollout"] and page.texts("[role=rowheader]") == ["0", "1"])
    check("tokens", page.texts(".chip") == CAT)
    check("states that it is not an explanation", "diagnostic, not an explanation" in page.text("footer"))
    for n, (layer, head) in enumerate((l, h) for l in range(2) for h in range(3)):
        values = [w for i in range(4) for w in weights(0, layer, head, i, 4)]
        light = page.lightness(f"[role=row]:nth-child({layer + 2}) > :nth-child({head + 2}) canvas", 4, 4)
        check(f"thumbnail {n} is darker where weights are larger", ordered(light, values, 1), (light, values))
    page.open("#query=1")
    after = page.lightness("[role=row]:nth-child(3) > :nth-child(4) canvas", 4, 4)
    check("a selected token's row stays, the others fade", after[4:8] == light[4:8]
          and all(a > b for a, b in zip(after[:4] + after[8:], light[:4] + light[8:])), (after, light))


def test_small_open_head(page):
    page.open()
    check = page.check
    page.browser.click("[role=row]:nth-child(3) > :nth-child(4) button")
    check("a click opens that head", page.text("#heading") == "Layer 1, head 2")
    check("the grid makes room", not page.shown("#grid") and page.shown("#head"))
    check("the address names it", page.fragment() == {"layer": "1", "head": "2"})
    check("tokens on both axes", page.texts(".map-queries .label") == CAT and page.texts(".map-keys .label") == CAT)
    values = [w for i in range(4) for w in weights(0, 1, 2, i, 4)]
    check("cells are darker where weights are larger", ordered(page.lightness(".map-box canvas", 4, 4), values, 1))
    for i in range(4):
        for j in range(4):
            page.browser.hover(*page.cell(i, j))
            text = page.text("#tooltip")
            found = re.fullmatch(r"(\w+) → (\w+) (\d\.\d{3})", text)
            check(f"hover over {CAT[i]}, {CAT[j]}", page.shown("#tooltip") and found and found.group(1, 2) == (CAT[i], CAT[j])
                  and near(float(found.group(3)), values[4 * i + j]), text)
    page.browser.hover(5, 5)
    check("the tooltip disappears with the pointer", not page.shown("#tooltip"))
    page.browser.click("#next")
    check("next head wraps", page.text("#heading") == "Layer 0, head 0")
    page.browser.click("#previous")
    check("previous head", page.text("#heading") == "Layer 1, head 2")
    page.browser.evaluate("history.back()")
    page.browser.settle()
    check("the browser's back goes back", page.text("#heading") == "Layer 0, head 0")
    page.browser.click("#back")
    check("all heads", page.shown("#grid") and not page.shown("#head"))


def check_row(page, name, s, layer, head, i, tokens):
    """The panel and the sentence show row i of a head."""
    row = weights(s, layer, head, i, len(tokens))
    bars = page.bars("#row-bars .bar-line")
    page.check(f"{name}: every key once, strongest first", sorted(t for t, _ in bars) == sorted(tokens) and
               [w for _, w in bars] == sorted((w for _, w in bars), reverse=True), bars)
    page.check(f"{name}: its weights", len(bars) == len(row) and all(near(shown, w) for (_, shown), w in zip(bars, sorted(row, reverse=True)))
               and near(bars[0][1], row[tokens.index(bars[0][0])]), (bars, row))
    entropy = -sum(w * math.log(w) for w in row)
    shown = [float(x) for x in page.texts(".statistics b")]
    page.check(f"{name}: largest weight and entropy", near(shown[0], max(row)) and near(shown[1], entropy), (shown, max(row), entropy))
    shade = page.browser.evaluate("[...document.querySelectorAll('#strips .strip-row:last-child .chip')].map(chip =>"
                                  " getComputedStyle(chip).backgroundColor.match(/\\d+/g).slice(0, 3).reduce((a, b) => a + Number(b), 0))")
    page.check(f"{name}: the sentence is shaded by weight", ordered(shade, row, 1), (shade, row))


def test_small_token(page):
    check = page.check
    page.open("#layer=1&head=0")
    page.browser.click(".chip:nth-child(2)")
    check_row(page, "a click in the sentence", 0, 1, 0, 1, CAT)
    check("the token is marked", page.texts(".chip[aria-selected=true]") == ["cat"] and page.fragment()["query"] == "1")
    page.browser.click(".map-queries .label:nth-child(4)")
    check_row(page, "a click on a row label", 0, 1, 0, 3, CAT)
    page.browser.click_at(*page.cell(2, 1))
    check_row(page, "a click on a cell", 0, 1, 0, 2, CAT)
    check("its key is selected too", page.fragment() == {"layer": "1", "head": "0", "query": "2", "key": "1"}
          and page.text("#readout") == f"sat → cat {weights(0, 1, 0, 2, 4)[1]:.3f}", page.text("#readout"))
    page.browser.click(".chip:nth-child(3)")
    check("a second click deselects", "query" not in page.fragment() and page.count("#row-bars") == 0)


def test_small_links(page):
    check = page.check
    page.open()
    page.browser.click(".chip:nth-child(1)")
    everything = [(w, layer, head, CAT[j]) for layer in range(2) for head in range(3) for j, w in enumerate(weights(0, layer, head, 0, 4))]
    best = {token: max(w for w, _, _, t in everything if t == token) for token in CAT}
    links = page.bars("#links .bar-line")
    check("each key once, with its strongest head", [t for t, _ in links] == sorted(best, key=lambda t: -best[t])
          and all(near(w, best[t]) for t, w in links), (links, best))
    notes = page.texts("#links .note")
    check("the heads named are those", all(any(near(w, x) and n == f"L{l} H{h}" and t == u for x, l, h, u in everything)
                                           for (t, w), n in zip(links, notes)), notes)
    page.browser.click("#every-link")
    links = page.bars("#links .bar-line")
    check("all links, strongest first", len(links) == 12 and all(near(w, x[0]) for (_, w), x in zip(links, sorted(everything, reverse=True))), links)
    note = page.texts("#links .note")[1]
    page.browser.click("#links li:nth-child(2) button")
    layer, head = re.fullmatch(r"L(\d) H(\d)", note).groups()
    check("a link opens its head", page.text("#heading") == f"Layer {layer}, head {head}" and page.fragment()["query"] == "0" and "key" in page.fragment())
    page.browser.click(".squares")
    check("a square opens its head", page.text("#heading") in {f"Layer {l}, head {h}" for l in (0, 1) for h in range(3)})


def test_small_keyboard(page):
    check, press = page.check, page.browser.press
    page.open()
    page.browser.evaluate("document.querySelector('.thumbnail').focus()")
    press("ArrowRight", "ArrowRight", "ArrowRight", "ArrowDown", "ArrowDown")
    check("arrows move among heads and stop at the edge",
          page.browser.evaluate("document.activeElement.getAttribute('aria-label')") == "Layer 1, head 2")
    press("Enter")
    check("Enter opens", page.text("#heading") == "Layer 1, head 2")
    row = weights(0, 1, 2, 0, 4)
    press("ArrowDown")
    check("the first arrow selects the first cell", page.text("#readout") == f"the → the {row[0]:.3f}", page.text("#readout"))
    press("ArrowDown", "ArrowRight", "ArrowRight")
    check("arrows move the cell", page.text("#readout") == f"cat → sat {weights(0, 1, 2, 1, 4)[2]:.3f}", page.text("#readout"))
    press("End", "ArrowUp", "ArrowUp")
    check("and stop at the edge", page.text("#readout") == f"the → down {row[3]:.3f}", page.text("#readout"))
    for key, expected in (("]", "Layer 0, head 0"), ("[", "Layer 1, head 2"), ("h", "Layer 1, head 1"), ("l", "Layer 1, head 2"),
                          ("k", "Layer 0, head 2"), ("k", "Layer 0, head 2"), ("j", "Layer 1, head 2")):
        press(key)
        check(f"{key} goes to {expected}", page.text("#heading") == expected and page.fragment()["key"] == "3", page.text("#heading"))
    press("?")
    check("? opens the help", page.browser.evaluate("document.getElementById('help').open"))
    press("Escape")
    check("Escape closes it and nothing else", not page.browser.evaluate("document.getElementById('help').open")
          and page.text("#heading") == "Layer 1, head 2")
    press("Escape")
    check("Escape goes back to the grid, on the same head", page.shown("#grid")
          and page.browser.evaluate("document.activeElement.getAttribute('aria-label')") == "Layer 1, head 2")
    press("Escape")
    check("Escape deselects the token", page.fragment() == {})
    page.browser.evaluate("document.querySelector('.chip').focus()")
    press("ArrowRight", "ArrowRight", "ArrowLeft")
    check("arrows in the sentence select", page.texts(".chip[aria-selected=true]") == ["cat"])
    check("focus is visible", page.browser.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid")


def test_small_scale_and_theme(page):
    check, press = page.check, page.browser.press
    page.open("#layer=1&head=2&query=1")
    top = max(w for i in range(4) for w in weights(0, 1, 2, i, 4))
    values = [w for i in range(4) for w in weights(0, 1, 2, i, 4)]
    check("legend from 0 to 1", page.texts("#ticks span") == ["0", "0.5", "1"])
    before = page.lightness(".map-box canvas", 4, 4)
    page.browser.click("#scale-max")
    after = page.lightness(".map-box canvas", 4, 4)
    check("legend from 0 to the largest weight", page.texts("#ticks span") == ["0", f"{top:.3f}"] and page.fragment()["scale"] == "max")
    check("the largest weight takes the last color", after[values.index(top)] < before[values.index(top)] - 20)
    press("s")
    check("s switches back", page.texts("#ticks span") == ["0", "0.5", "1"] and "scale" not in page.fragment())

    def backdrop():
        return sum(map(int, re.findall(r"\d+", page.browser.evaluate("getComputedStyle(document.body).backgroundColor"))[:3]))
    check("light where the system is light", backdrop() > 700)
    page.browser.prefer("dark")
    page.browser.settle()
    check("dark where the system is dark", backdrop() < 120)
    check("then larger weights are lighter", ordered(page.lightness(".map-box canvas", 4, 4), values, -1))
    check("text has contrast in the dark", page.browser.evaluate("getComputedStyle(document.body).color.match(/\\d+/g).every(x => x > 200)"))
    press("t")
    check("t chooses light", backdrop() > 700 and page.fragment()["theme"] == "light")
    page.browser.click("#theme")
    check("and back", backdrop() < 120 and "theme" not in page.fragment())
    page.open("#theme=light")
    check("the address keeps the choice", backdrop() > 700)
    page.browser.prefer("light")


def test_small_address(page):
    check = page.check
    page.open("#layer=1&head=1&query=2&key=3&scale=max")
    check("an address restores its view", page.text("#heading") == "Layer 1, head 1" and page.text("#panel h2").startswith("sat")
          and page.text("#readout") == f"sat → down {weights(0, 1, 1, 2, 4)[3]:.3f}" and len(page.texts("#ticks span")) == 2)
    page.open("#layer=9&head=1&query=99&key=-1&scale=%3Cb%3E&theme=x")
    check("an address that names nothing gives the grid", page.shown("#grid") and page.count("#links") == 0 and page.count(".thumbnail") == 6)
    page.browser.evaluate("location.hash = '#layer=0&head=2'")
    page.browser.settle()
    check("a changed address is followed", page.text("#heading") == "Layer 0, head 2")


def test_small_narrow(page):
    page.browser.resize(360, 740, 2)
    for fragment in ("", "#layer=1&head=1&query=2"):
        page.open(fragment)
        page.check(f"nothing overflows a narrow window at {fragment or 'the grid'}",
                   page.browser.evaluate("document.documentElement.scrollWidth") <= 360)
    page.browser.resize(1280, 800)


def test_batch(page):
    check = page.check
    page.open()
    check("a list of sequences", page.texts("#sequence option") == ["0: the cat sat down", "1: two dogs", "2: nobody"])
    page.browser.evaluate("(() => { const s = document.getElementById('sequence'); s.value = 1; s.dispatchEvent(new Event('change')); })()")
    page.browser.settle()
    check("the chosen one", page.texts(".chip") == DOG and page.fragment() == {"sequence": "1"})
    check("without its padding", page.browser.evaluate("[...document.querySelectorAll('.thumbnail canvas')].every(c => c.width === 2 && c.height === 2)"))
    page.open("#sequence=1&layer=0&head=1&query=1")
    check_row(page, "a sequence of the batch", 1, 0, 1, 1, DOG)
    page.open("#sequence=2&layer=0&head=1")
    check("an empty sequence", page.count(".chip") == 0 and "empty" in page.text("#panel"))


def test_cross(page):
    check = page.check
    page.open()
    check("a strip for queries and one for keys", page.texts("#strips .strip-row:first-child .chip") == DOG
          and page.texts("#strips .strip-row:last-child .chip") == FRAMES)
    check("layers and heads keep their numbers", page.texts("[role=columnheader]") == ["", "2", "3", "11"] and page.texts("[role=rowheader]") == ["4", "7"])
    page.open("#layer=7&head=11&query=4&key=2")
    check("the address uses these numbers", page.text("#heading") == "Layer 7, head 11"
          and page.text("#readout") == f"bark → f2 {weights(0, 1, 2, 1, 5)[2]:.3f}", page.text("#readout"))
    page.browser.click("#strips .strip-row:last-child .chip:nth-child(5)")
    check("a click on a key selects it", page.text("#readout") == f"bark → f4 {weights(0, 1, 2, 1, 5)[4]:.3f}")
    check_row(page, "cross attention", 0, 1, 2, 1, FRAMES)


def test_hostile(page):
    check = page.check
    page.open("#layer=0&head=1&query=0&key=1")
    check("tokens appear as they are", page.texts(".chip") == HOSTILE, page.texts(".chip"))
    check("on the axes too", page.texts(".map-queries .label") == HOSTILE and page.texts(".map-keys .label") == HOSTILE)
    check("the title as well", page.text("h1") == "</title><script>pwned()</script>")
    for j in range(8):
        page.browser.hover(*page.cell(7, j))
        check(f"hover shows token {j}", f" → {HOSTILE[j]} " in page.text("#tooltip"), page.text("#tooltip"))
    check("and do not become elements", page.count("script:not([id])") == 1 and page.count("img") == 0
          and page.count("script") == 4)
    check("a token with line breaks is one line", page.browser.evaluate("new Set([...document.querySelectorAll('.chip')].map(c => c.offsetHeight)).size") == 1)
    check("wide tokens are cut, not spilled", page.browser.evaluate("document.documentElement.scrollWidth") <= 1280)


def test_large(page):
    check, n = page.check, 320
    check("the weights are packed", page.path.stat().st_size < 2.9 * 24 * n * n + 200000, page.path.stat().st_size)
    page.open()
    check("thumbnails are thinned to pixels", page.browser.evaluate("[...document.querySelectorAll('.thumbnail canvas')].every(c => c.width > 20 && c.width <= 120)"))
    check("small weights start on each head's own scale", "scale" not in page.fragment() and page.text("#ticks").endswith("max"))
    page.open("#layer=1&head=11&query=200&key=317")
    row = weights(0, 1, 11, 200, n)
    check("a value far inside", page.text("#readout") == f"200 → 317 {row[317]:.3f}", page.text("#readout"))
    page.browser.click("#panel .link")
    bars = page.bars("#row-bars .bar-line")
    check("all its keys", len(bars) == n and all(near(shown, row[int(token)]) for token, shown in bars))
    check("the steps are fine", page.browser.evaluate("document.querySelectorAll('.map-queries .label').length") < 120)
    page.browser.press(*"++++++++++++")
    labels = page.texts(".map-queries .label")
    check("enlarged around the selection", "200" in labels and len(labels) < 40 and page.browser.evaluate(
        "(() => { const c = document.querySelector('.map-box canvas'); return c.width * c.height < 4e6; })()"), labels)
    page.browser.evaluate("document.querySelector('.map-box').focus()")
    page.browser.press("ArrowLeft", "ArrowLeft", "ArrowUp")
    check("and still exact", page.text("#readout") == f"199 → 315 {weights(0, 1, 11, 199, n)[315]:.3f}", page.text("#readout"))
    page.browser.press("0")
    check("0 fits it again", page.browser.evaluate("(() => { const b = document.querySelector('.map-box'); return b.scrollWidth <= b.clientWidth + 1; })()"))


def test_invalid(page):
    check = page.check
    page.open("#layer=0&head=0&query=0&key=1")
    check("NaN is shown", page.text("#readout") == "the → cat NaN", page.text("#readout"))
    page.browser.hover(*page.cell(2, 0))
    check("infinity is shown", page.text("#tooltip") == "sat → the Infinity", page.text("#tooltip"))
    color = page.pixels(".map-box canvas", 4, 4)[1]
    check("NaN has a color of its own", color[0] > color[1] + 100, color)
    page.browser.click(".chip:nth-child(2)")
    check("a row without weights is reported", "sees no key" in page.text("#panel"))
    page.browser.click(".chip:nth-child(4)")
    check("a row of sum 2 has no entropy", page.texts(".statistics dt") == ["Largest", "Sum"] and page.texts(".statistics b") == ["0.500", "2.000"], page.texts(".statistics"))


def test_real(page):
    check = page.check
    page.open()
    check("real file: 6 x 12 thumbnails", page.count(".thumbnail") == 72)
    check("real file: its tokens", page.texts(".chip")[8:12] == ["because", "it", "was", "tired"], page.texts(".chip"))
    page.open("#query=9")
    links = dict(zip([t for t, _ in page.bars("#links .bar-line")], zip(page.bars("#links .bar-line"), page.texts("#links .note"))))
    check("real file: it attends to animal in layer 3, head 1", links["animal"] == (("animal", 0.687), "L3 H1"), links.get("animal"))
    page.open("#layer=3&head=1&query=9")
    check("real file: that head shows it too", page.bars("#row-bars .bar-line")[0] == ("animal", 0.687), page.bars("#row-bars .bar-line"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fixture", required=True)
    parser.add_argument("--attn")
    parser.add_argument("--data")
    parser.add_argument("--only", default="")
    parser.add_argument("--write-only", action="store_true")
    options = parser.parse_args()

    def write(kind, path):
        if kind == "real" and not options.attn:
            return None
        command = [options.attn, "view", options.data, "-o"] if kind == "real" else [options.fixture, kind]
        return subprocess.run(command + [path], stdout=subprocess.DEVNULL, check=False).returncode == 0

    tests = [value for name, value in globals().items() if name.startswith("test_")]
    return run_all(tests, write, options.only, options.write_only)


if __name__ == "__main__":
    sys.exit(main())
