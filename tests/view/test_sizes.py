#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Large pages of `attn view`: their bytes, memory and numbers; and, with --times, their speed.

    test_sizes.py --attn PROGRAM --data FILE [--only NAME] [--times]

Prints TAP; exits with 77 without a browser.
"""

import math
import random
import struct
import sys
import xml.dom.minidom

from explorer import HERE, OPTIONS, go, main, quick, readout, view, weights_of
from harness import saved
from on_terminal import on_terminal
import tensor_file

LONG, MANY, DIM = 4096, 512, 64
CELLS = 100


def halfs(count, seed):
    """Raw half floats between 0.25 and 2 in size, of both signs: quick to make."""
    exponents = bytes((b & 0x80) | (0x34 + (b & 0x0b)) for b in range(256))
    draw, raw = random.Random(seed), bytearray(2 * count)
    raw[0::2] = draw.randbytes(count)
    raw[1::2] = draw.randbytes(count).translate(exponents)
    return bytes(raw)


def floats(raw):
    return struct.unpack(f"<{len(raw) // 2}e", raw)


# ---- the pages: write_KIND(path) makes the input, and the page from it


def write_many(path):
    q, k = ("F16", (6, 12, MANY, DIM), halfs(72 * MANY * DIM, 1)), ("F16", (6, 12, MANY, DIM), halfs(72 * MANY * DIM, 2))
    tensor_file.write(HERE / "many.safetensors", {"q": q, "k": k})
    return view(path, HERE / "many.safetensors", "--causal")


def write_long(path):
    """A head whose numbers no half float holds, so that the page rounds them."""
    q, k = ([1.0003 * x for x in floats(halfs(LONG * DIM, seed))] for seed in (3, 4))
    tensor_file.write(HERE / "long.safetensors", {"q": ("F32", (1, LONG, DIM), q), "k": ("F32", (1, LONG, DIM), k)})
    said = view(path, HERE / "long.safetensors")
    if said:
        rounded = [[struct.unpack("<e", struct.pack("<e", x))[0] for x in numbers] for numbers in (q, k)]
        write_long.rounded, write_long.said, write_long.given = rounded, said, (q, k)
    return said


# ---- what they hold


def test_long_head(page):
    """4096 tokens: small, right, and smooth."""
    check, said, (q, k) = page.check, write_long.said, write_long.given
    size = page.path.stat().st_size
    check("a head of 4096 tokens is under 3 MB", size < 3e6, size)
    # A score is off by at most the rounding of both factors, 2^-11 each: weights by exp of twice that.
    bound = max(sum(abs(a) * m for a, m in zip(q[i * DIM:(i + 1) * DIM], [max(abs(k[j * DIM + c]) for j in range(0, LONG, 16)) for c in range(DIM)]))
                for i in range(0, LONG, 256)) / math.sqrt(DIM) * (2 ** -10 + 2 ** -22)
    check("the difference from the file is said, and within its bound", 0 < said["largest_difference"] <= math.exp(2 * bound) - 1, said)
    _, printed = on_terminal([OPTIONS.attn, "view", HERE / "long.safetensors", "-o", HERE / "again.html"])
    check("and printed on a terminal", f"long.safetensors differ by at most {said['largest_difference']:.2g}\n".encode() in printed, printed[-200:])
    check("with the same bytes again", (HERE / "again.html").read_bytes() == page.path.read_bytes())
    page.open("#layer=0&head=0")
    draw = random.Random(6)
    rows = [draw.randrange(LONG) for _ in range(10)]
    cells = [(row, draw.randrange(LONG)) for row in rows for _ in range(CELLS // 10)]
    rounded_q, rounded_k = write_long.rounded
    chosen = [x for row in rows for x in rounded_q[row * DIM:(row + 1) * DIM]]
    keys = ("F32", (1, LONG, DIM), rounded_k)
    tensor_file.write(HERE / "rows.safetensors", {"q": ("F32", (1, 10, DIM), chosen), "k": keys, "v": keys})
    expected, found = weights_of(HERE / "rows.safetensors")[2], []
    for n, (row, key) in enumerate(cells):
        go(page, f"layer=0&head=0&query={row}&key={key}")
        found.append(readout(page) / expected[n // 10 * LONG + key] - 1)
    page.check("of which some are small", min(expected) < 1e-6)
    # lse as f32 is off by 2^-24 of at most 16, and attn run by as much.
    check("100 random weights are those of attn run", len(found) == CELLS and 0 < max(map(abs, found)) <= 4 * 16 * 2 ** -24, max(map(abs, found)))


def test_long_pans(page):
    page.open("#layer=0&head=0")
    page.browser.press(*"++++++")
    frames = page.browser.evaluate("""(async () => {
        const box = document.querySelector('.map-box'), times = [], frame = () => new Promise(done => requestAnimationFrame(done));
        for (let n = 0; n < 20; n++) {
            const start = performance.now();
            box.scrollBy(97, 61);
            await frame(); await frame();
            times.push((performance.now() - start) / 2);
        }
        return times.sort((a, b) => a - b); })()""")
    quick(page, "the median frame of 20 pans", frames[10], 50)
    page.browser.send("HeapProfiler.collectGarbage")
    heap = page.browser.send("Runtime.getHeapUsage")
    used = heap["usedSize"] + heap.get("backingStorageSize", 0)
    page.check("the heap stays below 300 MB", used < 300e6, heap)
    page.browser.evaluate("new Promise(done => setTimeout(done, 1500))")
    page.check("the small map shows the part that is in view", page.browser.evaluate(
        "(() => { const v = document.querySelector('.map-view'), b = document.querySelector('.map-box'), m = document.querySelector('.minimap canvas');"
        " return Math.abs(v.offsetWidth / m.clientWidth - b.clientWidth / b.scrollWidth) < 0.03 && v.offsetLeft > 0; })()"))


def test_many_heads(page):
    """72 heads of 512 tokens: 16 MiB."""
    check = page.check
    check("72 heads of 512 tokens are at most 16 MiB", page.path.stat().st_size <= 16 << 20, page.path.stat().st_size)
    watch = """(() => { const look = () => { const all = [...document.querySelectorAll('.thumbnail canvas')].filter(c => c.getBoundingClientRect().top < innerHeight);
        if (all.length && all.every(c => c.width !== 300)) { window.drawn = performance.now() - performance.getEntriesByType('navigation')[0].responseEnd; return; }
        requestAnimationFrame(look); }; requestAnimationFrame(look); })()"""
    page.browser.send("Page.addScriptToEvaluateOnNewDocument", source=watch)
    times = []
    for _ in range(3): # another process may have the processor
        page.open()
        times.append(page.browser.evaluate("window.drawn ?? Infinity"))
    quick(page, "small maps after the page's last byte", min(times), 500)
    open_one = """(async () => { const start = performance.now(), frame = () => new Promise(done => requestAnimationFrame(done));
        document.querySelectorAll('.thumbnail')[%d].click();
        const canvas = document.querySelector('.map-box canvas'), small = new OffscreenCanvas(64, 64).getContext('2d', {willReadFrequently: true}),
            state = () => { small.drawImage(canvas, 0, 0, 64, 64); return small.getImageData(0, 0, 64, 64).data.join(); };
        let last = state(), since = performance.now();
        for (let n = 0; n < 12; n++) { await frame(); const now = state(); if (now !== last) { last = now; since = performance.now(); n = 0; } }
        document.getElementById('back').click(); return since - start; })()"""
    times = [page.browser.evaluate(open_one % n) for n in range(3, 72, 7)]
    quick(page, "a head", min(times), 150)


def test_many_export(page):
    page.open("#layer=1&head=2")
    drawn = xml.dom.minidom.parseString(saved(page, "svg").decode())
    image = drawn.getElementsByTagName("image")
    page.check("beyond 64 x 64 the SVG has a picture inside", len(image) == 1 and image[0].getAttribute("href").startswith("data:image/png;base64,"))
    page.check("and no rectangles but the paper", len(drawn.getElementsByTagName("rect")) == 1)


if __name__ == "__main__":
    sys.exit(main(globals()))
