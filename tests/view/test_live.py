#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The tab Live of `attn view --live`: the library in the page computes what `attn run` does with the same flags.

    test_live.py --attn PROGRAM --data FILE [--only NAME]

Prints TAP; exits with 77 without a browser.  Of a command that was built without WebAssembly only its message is checked.
"""

import argparse
import html
import json
import math
import pathlib
import random
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import tensor_file  # pylint: disable=wrong-import-position
from explorer import FOLDER, HERE, OPTIONS, attn  # pylint: disable=wrong-import-position
from harness import Checks, run_all, saved  # pylint: disable=wrong-import-position

TOLERANCE = 1e-5 # of a weight: what the page promises
PLACE = "#layer=3&head=1&query=9&key=2&tab=live"


def view(path, *words):
    done = attn("view", *words, "--live", "-o", path, "--json")
    return json.loads(done.stdout)["live"] if done.returncode == 0 else print("# " + done.stderr.strip())


def weights_of(path, *words):
    """The weights that attn run computes, by head."""
    out = HERE / "weights.safetensors"
    done = attn("run", path, *words, "--weights", "-o", out)
    assert done.returncode == 0, done.stderr
    _, shape, numbers = tensor_file.read(out)[0]["weights"]
    size = shape[-1] * shape[-2]
    return [numbers[n:n + size] for n in range(0, len(numbers), size)]


def with_tensors(source, **tensors):
    """The file with more tensors."""
    old, metadata = tensor_file.read(source)
    for name in ("weights", "probs"):
        old.pop(name, None)
    tensor_file.write(HERE / "more.safetensors", {**old, **tensors}, **metadata)
    return HERE / "more.safetensors"


# ---- the pages


def write_real(path):
    return view(path, OPTIONS.data)


write_worker = write_module = write_frame = write_real


def write_mechanism(path):
    """Two query heads on a key head, other queries than keys, and all options that a head can have."""
    draw = random.Random(5)
    numbers = lambda count: [draw.uniform(-2, 2) for _ in range(count)]
    tensors = {"q": ("F32", (4, 9, 8), numbers(288)), "k": ("F32", (2, 12, 8), numbers(192)), "v": ("F32", (2, 12, 8), numbers(192)),
               "slopes": ("F32", (4,), [0.1, 0.2, 0.3, 0.4]), "sink": ("F32", (4,), [0.5, -1, 2, 0])}
    tensor_file.write(HERE / "mechanism.safetensors", tensors)
    write_mechanism.flags = ["--causal=bottom-right", "--window=5,-1", "--softcap=3", "--temperature=0.7"]
    return view(path, HERE / "mechanism.safetensors", *write_mechanism.flags)


def write_rotated(path):
    draw = random.Random(6)
    tensors = {name: ("F32", (2, 11, 8), [draw.uniform(-2, 2) for _ in range(176)]) for name in "qkv"}
    tensor_file.write(HERE / "plain.safetensors", tensors)
    write_rotated.flags = ["--causal", "--normaliser=softmax-one", "--rope", "--rope-pairs=halves", "--rope-channels=6"]
    return view(path, HERE / "plain.safetensors", *write_rotated.flags, "--rope-base=500")


def write_long(path):
    """A head of several blocks of rows, whose numbers f16 holds."""
    draw = random.Random(7)
    numbers = lambda: [draw.randrange(-64, 65) / 32 for _ in range(1100 * 16)]
    tensor_file.write(HERE / "long.safetensors", {name: ("F32", (1, 1100, 16), numbers()) for name in "qkv"})
    return view(path, HERE / "long.safetensors", "--causal")


def write_both(path):
    """The second file has weights alone."""
    done = attn("run", OPTIONS.data, "--weights", "-o", HERE / "only.safetensors")
    return done.returncode == 0 and view(path, OPTIONS.data, f"--with={HERE / 'only.safetensors'}")


# ---- what the page says


def wait(page):
    """Until what is shown is computed; then how far it is from what was recorded."""
    page.browser.evaluate("""new Promise((done, fail) => { const start = performance.now(), look = () => {
        if (document.getElementById('live')?.getAttribute('aria-busy') === 'false') requestAnimationFrame(() => requestAnimationFrame(done));
        else if (performance.now() - start > 20000) fail(new Error('nothing is computed'));
        else setTimeout(look, 10); }; setTimeout(look, 10); })""")
    return float(page.browser.evaluate("document.getElementById('live-largest').title"))


def shown(page):
    """All numbers of the map."""
    array = saved(page, "npy")
    begin = 10 + struct.unpack("<H", array[8:10])[0]
    return struct.unpack(f"<{(len(array) - begin) // 4}f", array[begin:])


def apart(found, expected):
    return max(abs(a - b) for a, b in zip(found, expected)) if len(found) == len(expected) else float("nan")


def enter(page, name, value):
    """Writes into the number beside a slider."""
    page.browser.evaluate(f"(() => {{ const n = document.getElementById('live-{name}'); n.value = {str(value)!r}; n.dispatchEvent(new Event('change')); }})()")


def press_on(page, selector, *keys):
    page.browser.evaluate(f"document.querySelector({selector!r}).focus()")
    page.browser.press(*keys)


def value_of(page, name):
    return page.browser.evaluate(f"document.getElementById('live-{name}').value")


# ---- numbers


def test_real_recorded(page):
    """At its defaults it is what was recorded, computed by the library."""
    page.open(PLACE)
    worst = wait(page)
    page.check("the library computes", page.text("#live-engine").startswith("Computed by libattn ") and "(wasm128)." in page.text("#live-engine"), page.text("#live-engine"))
    page.check("in a worker", any(url.startswith("blob:") for url in page.browser.requests))
    # Both round to f32 from the same q and k, with scores below 16.
    page.check("it equals what was recorded", 0 < worst <= 16 * 2 ** -23, worst)
    expected = weights_of(OPTIONS.data)[37]
    page.check("and attn run", apart(shown(page), expected) <= TOLERANCE)
    page.check("nothing is marked as changed", page.count(".live-row.changed") == 0 and page.count(".tab.changed") == 0)
    page.check("and there is nothing to reset", page.browser.evaluate("document.getElementById('live-reset').disabled"))


# A control, how it is moved, flags and tensors of attn run.
MOVES = {
    "scale": (lambda page: press_on(page, "#live-scale-slider", *["ArrowRight"] * 6), lambda page: [f"--scale={value_of(page, 'scale')}"], {}),
    "softcap": (lambda page: press_on(page, "#live-softcap-slider", *["ArrowRight"] * 5), lambda page: ["--softcap=2.5"], {}),
    "causal": (lambda page: page.browser.click("#live-causal"), lambda page: ["--causal"], {}),
    "left": (lambda page: press_on(page, "#live-left-slider", *["ArrowLeft"] * 11), lambda page: ["--window=3,-1"], {}),
    "right": (lambda page: enter(page, "right", 2), lambda page: ["--window=-1,2"], {}),
    "slope": (lambda page: press_on(page, "#live-slope-slider", *["ArrowRight"] * 7), lambda page: [], {"slopes": ("F32", (12,), [0.07] * 12)}),
    "sink": (lambda page: (page.browser.click("#live-sink-on"), press_on(page, "#live-sink-slider", "ArrowRight")), lambda page: [], {"sink": ("F32", (12,), [0.25] * 12)}),
    "base": (lambda page: (page.browser.click("#live-base-on"), enter(page, "base", 700)), lambda page: ["--rope", "--rope-base=700"], {}),
    "out": (lambda page: page.browser.click("#live-knock"), lambda page: [], {"mask": ("BOOL", (14, 14), [j != 2 for _ in range(14) for j in range(14)])}),
}


def test_real_controls(page):
    """Each control, moved by keys or the mouse, gives what attn run gives with the same flags, and Reset takes it back."""
    for name, (move, flags, tensors) in MOVES.items():
        page.open(PLACE)
        wait(page)
        move(page)
        largest = wait(page)
        expected, recorded = weights_of(with_tensors(OPTIONS.data, **tensors), *flags(page))[37], weights_of(OPTIONS.data)[37]
        found = shown(page)
        page.check(f"{name}: the weights are those of attn run", apart(found, expected) <= TOLERANCE, apart(found, expected))
        if name == "causal":
            left, top, size = page.browser.evaluate("(() => { const r = document.querySelector('.map-extent').getBoundingClientRect(); return [r.left, r.top, r.width / 14]; })()")
            page.browser.hover(left + 14 * size + 20, top + 9.5 * size)
            entropy = -sum(w * math.log(w) for w in expected[126:136]) / math.log(10)
            page.check("causal: the entropy of a row is that of the keys it sees", abs(float(page.text("#tooltip b")) - entropy) <= 0.00051, (page.text("#tooltip"), entropy))
        page.check(f"{name}: which are others", apart(found, recorded) > 100 * TOLERANCE, apart(found, recorded))
        page.check(f"{name}: how far is said", abs(largest - apart(expected, recorded)) <= TOLERANCE, (largest, apart(expected, recorded)))
        page.check(f"{name}: it is marked as changed", page.count(".tab.changed") == 1 and page.count(".live-row.changed") == (name != "out"))
        page.check(f"{name}: the flags are said", all(flag in page.text("#live-flags") for flag in flags(page)) and (not tensors or "file" in page.text("#live-flags") or "mask" in page.text("#live-flags")),
                   page.text("#live-flags"))
        page.check(f"{name}: the address keeps it", "live" in page.fragment(), page.fragment())
        page.browser.click("#live-reset")
        page.check(f"{name}: Reset", wait(page) < 1e-6 and "live" not in page.fragment(), page.fragment())


ALL = "live=scale:0.3,softcap:9,causal:1,left:8,right:3,slope:0.05,sink:-1,base:3000,out:0.7"


def with_all():
    """What attn run computes with all of these."""
    more = {"slopes": ("F32", (12,), [0.05] * 12), "sink": ("F32", (12,), [-1] * 12), "mask": ("BOOL", (14, 14), [j not in (0, 7) for _ in range(14) for j in range(14)])}
    return weights_of(with_tensors(OPTIONS.data, **more), "--scale=0.3", "--softcap=9", "--causal", "--window=8,3", "--rope", "--rope-base=3000")


def test_real_together(page):
    """All of them at once, from the address; in other heads and other tabs too."""
    page.open(f"{PLACE}&{ALL}")
    wait(page)
    expected = with_all()
    recorded = weights_of(OPTIONS.data)
    page.check("all controls at once", apart(shown(page), expected[37]) <= TOLERANCE, apart(shown(page), expected[37]))
    page.check("each is marked", page.count(".live-row.changed") == 8 and page.texts("#live-out .chip-link") == ["[CLS] ×", "street ×"], page.texts("#live-out .chip-link"))
    left, top, size = page.browser.evaluate("(() => { const r = document.querySelector('.map-extent').getBoundingClientRect(); return [r.left, r.top, r.width / 14]; })()")
    page.browser.hover(left + 9.5 * size, top - 20)
    received = sum(expected[37][i * 14 + 9] for i in range(14)) / 14
    page.check("what a key receives is that of the changed head", abs(float(page.text("#tooltip b")) - received) <= 0.00051, (page.text("#tooltip"), received))
    page.browser.click("#live-show")
    change = [a - b for a, b in zip(expected[37], recorded[37])]
    page.check("show the change", page.fragment()["kind"] == "change" and apart(shown(page), change) <= TOLERANCE)
    page.browser.click("#live-show")
    page.browser.click("#next")
    wait(page)
    page.check("the next head has them too", page.text("#heading") == "Layer 3, head 2" and apart(shown(page), expected[38]) <= TOLERANCE)
    page.browser.click("#tab-row")
    row = {line[0].split(" ")[0]: float(line[1]) for line in page.browser.evaluate("[...document.querySelectorAll('#row-bars tr')].map(r => [r.cells[0].textContent, r.cells[2].textContent])")}
    page.check("the tab Row has the changed weights", abs(row["it"] - expected[38][9 * 14 + 9]) <= 0.00051 and row["[CLS]"] == 0, row)
    page.check("and says so", page.shown(".live-mark"))
    page.browser.click("#tab-neuron")
    page.check("so does the tab Neuron", len(page.texts("#neuron tbody tr")) == sum(w > 0 for w in expected[38][126:140]), page.texts("#neuron tbody tr"))
    page.browser.click("#live-back")
    page.browser.click("#live-out .chip-link")
    wait(page)
    page.check("a key comes back", page.texts("#live-out .chip-link") == ["street ×"])
    page.browser.press("Escape")
    page.check("the overview stays as recorded", page.shown("#grid") and page.count(".tab.changed") == 1 and "Open a head" in page.text("#sheet"))


def test_real_held(page):
    """While a slider is held, the map follows, and the slider stays the same element."""
    page.open(PLACE)
    wait(page)
    browser = page.browser
    browser.evaluate("window.slider = document.getElementById('live-scale-slider')")
    left, top, width = browser.evaluate("(() => { const r = slider.getBoundingClientRect(); return [r.left, r.top + r.height / 2, r.width]; })()")
    browser.mouse("mouseMoved", left + width / 2, top)
    browser.mouse("mousePressed", left + width / 2, top, "left")
    readings = []
    for part in (0.6, 0.7, 0.8, 0.9):
        browser.send("Input.dispatchMouseEvent", type="mouseMoved", x=left + width * part, y=top, button="left", buttons=1)
        wait(page)
        readings.append((float(page.text("#readout b")), browser.evaluate("slider.isConnected && slider === document.getElementById('live-scale-slider')")))
    browser.mouse("mouseReleased", left + width * 0.9, top, "left")
    browser.settle()
    page.check("the weight grows with the scale", all(a[0] < b[0] for a, b in zip(readings, readings[1:])), readings)
    page.check("the slider stays", all(connected for _, connected in readings))
    page.check("the address has the scale", "live" in page.fragment())


def test_mechanism_heads(page):
    """Groups, causality from the end, window, softcap, slopes, sinks: as recorded, and with another scale."""
    recorded = weights_of(HERE / "mechanism.safetensors", *write_mechanism.flags)
    other = weights_of(HERE / "mechanism.safetensors", *write_mechanism.flags[:3], "--scale=0.9")
    for head in range(4):
        page.open(f"#layer=0&head={head}&tab=live")
        page.check(f"head {head} as it was recorded", wait(page) <= 10 * 2 ** -23 and apart(shown(page), recorded[head]) <= TOLERANCE)
        enter(page, "scale", 0.9)
        wait(page)
        page.check(f"head {head} with another scale", apart(shown(page), other[head]) <= TOLERANCE, apart(shown(page), other[head]))
    page.check("its sink is there", page.browser.evaluate("document.getElementById('live-sink-on').checked") and value_of(page, "sink") == "0")


def test_rotated_base(page):
    """Where --rope rotated q and k, another base rotates them again, and none shows them unrotated."""
    page.open("#layer=0&head=1&tab=live")
    page.check("at its base", wait(page) <= 10 * 2 ** -23 and value_of(page, "base") == "500")
    enter(page, "base", 20000)
    wait(page)
    expected = weights_of(HERE / "plain.safetensors", *write_rotated.flags, "--rope-base=20000")[1]
    page.check("at another", apart(shown(page), expected) <= TOLERANCE, apart(shown(page), expected))
    page.browser.click("#live-base-on")
    wait(page)
    expected = weights_of(HERE / "plain.safetensors", *write_rotated.flags[:2])[1]
    page.check("unrotated", apart(shown(page), expected) <= TOLERANCE, apart(shown(page), expected))
    page.check("softmax-one is a sink of 0", page.browser.evaluate("document.getElementById('live-sink-on').checked") and value_of(page, "sink") == "0")


def test_long_blocks(page):
    """A head of several blocks: what is in view comes first, then the rest."""
    page.open("#layer=0&head=0&tab=live")
    page.check("as it was recorded", wait(page) <= 16 * 2 ** -23)
    page.browser.press(*"++++++++++")
    press_on(page, "#live-scale-slider", "ArrowRight")
    wait(page)
    expected = weights_of(HERE / "long.safetensors", "--causal", f"--scale={value_of(page, 'scale')}")[0]
    page.check("all rows are those of attn run", apart(shown(page), expected) <= TOLERANCE, apart(shown(page), expected))


# ---- where something is forbidden


def checked(page, name, engine):
    """With a control moved, the page computes by `engine` what attn run computes."""
    page.open(f"{PLACE}&{ALL}")
    wait(page)
    page.check(f"{name}: {engine}", engine in page.text("#live-engine"), page.text("#live-engine"))
    expected = with_all()[37]
    page.check(f"{name}: the weights are those of attn run", apart(shown(page), expected) <= TOLERANCE, apart(shown(page), expected))
    # The browser notes in its log what a policy forbids.
    page.check(f"{name}: nothing else fails", all("Content Security Policy" in text for text in page.browser.failures), page.browser.failures)
    page.browser.failures.clear()


def replace(page, old, new):
    text = page.path.read_text(encoding="utf-8")
    assert old in text
    page.path.write_text(text.replace(old, new, 1), encoding="utf-8")


def test_worker_forbidden(page):
    replace(page, "worker-src blob:", "worker-src 'none'")
    checked(page, "without workers", "(wasm128), in the page, since this frame does not allow workers")


def test_module_forbidden(page):
    replace(page, " 'wasm-unsafe-eval'", "")
    checked(page, "without WebAssembly", "Computed by JavaScript, this browser or frame does not allow WebAssembly")


def test_frame_live(page):
    """In srcdoc, without an origin and so without storage: no error."""
    text, outer = page.path.read_text(encoding="utf-8"), page.path.with_name("outer.html")
    outer.write_text(f'<!doctype html><title>outer</title><iframe sandbox="allow-scripts" width="1200" height="900" srcdoc="{html.escape(text)}"></iframe>', encoding="utf-8")
    page.browser.open(outer.as_uri())
    ask = lambda expression: page.browser.evaluate(expression, contextId=page.browser.contexts[-1])
    ask("document.querySelectorAll('.thumbnail')[37].click()")
    ask("document.getElementById('tab-live').click()")
    ask("new Promise((done, fail) => { let n = 0; const look = () => document.getElementById('live')?.getAttribute('aria-busy') === 'false' ? done() : n++ > 500 ? fail(new Error('nothing')) : setTimeout(look, 20); look(); })")
    page.check("the library computes", ask("document.getElementById('live-engine').textContent").startswith("Computed by libattn"), ask("document.getElementById('live-engine').textContent"))
    page.check("what was recorded", float(ask("document.getElementById('live-largest').title")) < 1e-6)
    page.check("and asks for nothing", all(url.startswith(("about:", "data:", "blob:", "file:")) for url in page.browser.requests), page.browser.requests)
    page.browser.requests.clear()


# ---- where there is nothing to compute


def test_both_files(page):
    """A sequence that has weights alone says why."""
    page.open(PLACE + "&sequence=1")
    page.check("weights alone", "has weights only" in page.text("#sheet"), page.text("#sheet"))
    page.open(PLACE + "&sequence=0")
    page.check("the other computes", wait(page) < 1e-6)


def test_without_library(checks):
    """A command without WebAssembly says what it lacks, and writes nothing."""
    done = attn("view", OPTIONS.data, "--live", "-o", HERE / "live.html")
    checks("exit status 3", done.returncode == 3, done)
    checks("what was missing", done.stderr.startswith("attn view: this attn was built without WebAssembly; it was missing "), done.stderr)
    checks("no page", not (HERE / "live.html").exists())
    print(f"1..{checks.number}")
    return 1 if checks.failed else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--attn", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--only", default="")
    parser.parse_args(namespace=OPTIONS)

    def write(kind, path):
        return bool(globals()[f"write_{kind}"](path))

    with FOLDER:
        if attn("view", OPTIONS.data, "--live", "-o", HERE / "try.html").returncode:
            return test_without_library(Checks())
        tests = [value for name, value in globals().items() if name.startswith("test_") and name != "test_without_library"]
        return run_all(tests, write, OPTIONS.only)


if __name__ == "__main__":
    sys.exit(main())
