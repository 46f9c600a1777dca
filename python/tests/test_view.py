# SPDX-License-Identifier: MIT
"""libattn.view and libattn.plot: the pages and pictures of the command, in notebooks; the page in a frame in a headless Chromium."""
import base64
import html
import importlib.util
import json
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

import libattn
from libattn import _command, files
from problems import ROOT, data

RNG = np.random.default_rng(1)
WORDS = ["the", "cat", "sat", "down", "."]

if _command.find() is None:
    pytest.skip("the package has no command", allow_module_level=True)


def weights(*shape):
    w = RNG.random(shape, dtype=np.float32)
    return w / w.sum(-1, keepdims=True)


def holds(page, array):
    """Are these the weights of the page, in this order?  (Up to two million it has them as base64 of little-endian float32.)"""
    found = re.findall(r'<script[^>]*id="attn-weights[^>]*>([^<]*)</script>', page.html)
    expected = np.ascontiguousarray(array, "<f4").tobytes()
    each = len(expected) // len(found)  # (the page fills up the last group of three bytes)
    return b"".join(base64.b64decode(text)[:each] for text in found) == expected


def command(*words):
    done = subprocess.run([_command.find(), *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_weights():
    w = weights(2, 3, 5, 5)
    page = libattn.view(w, tokens=WORDS, title="A cat")
    assert holds(page, w) and '"cat"' in page.html and "A cat" in page.html and "the weights that are in it" in page.html
    assert repr(page) == "Page(0.2 MB of HTML)"
    for few in (w[0], w[0, 0]):
        assert holds(libattn.view(few), few)


def test_what_no_softmax_gives_is_said():
    w = weights(2, 5, 5)
    w[0, 0, 1], w[1, 2, 3], w[1, 3] = np.nan, -0.1, 0.5
    assert "the weights that are in it; 1 of 10 rows has numbers that are not finite, 1 has numbers below 0, 1 sums neither to 1 nor to 0" in libattn.view(w).html
    assert "2 of 2 rows have numbers that are not finite" in libattn.view(np.full((2, 3), np.nan), np.ones((4, 3))).html
    assert "rows" not in re.search(r'"sources":\["(.*?)"', libattn.view(weights(2, 5, 5)).html)[1]


def test_a_list_is_layers_and_lists_of_tokens_are_a_batch():
    layers = [weights(2, 3, 5, 5) for _ in range(4)]  # [batch, heads, queries, keys] of each layer, as transformers has them
    page = libattn.view(layers, tokens=[WORDS, WORDS[:4]])
    assert holds(page, np.stack(layers, 1)) and '"layers":[0,1,2,3]' in page.html.replace(" ", "")
    assert holds(libattn.view(layers[0], tokens=[WORDS, WORDS]), layers[0])


@pytest.mark.parametrize("options", [{}, {"causal": True, "window": (2, 0)}, {"scale": 0.7, "softcap": 3.0, "lengths_kv": [4, 5]}], ids=str)
def test_queries_and_keys(options):
    q, k = RNG.normal(size=(2, 4, 5, 8)), RNG.normal(size=(2, 2, 5, 8))
    _, expected = libattn.attention(q, k, k, return_weights=True, **options)
    page = libattn.view(q, k, **options)
    assert holds(page, expected)
    for name in options:
        assert name in page.html
    _, one = libattn.attention(q[0, 0], k[0, 0], k[0, 0], return_weights=True)
    assert holds(libattn.view(q[0, 0], k[0, 0]), one)
    five = np.stack([q, q[::-1]]), np.stack([k, k[::-1]])
    if "lengths_kv" not in options:
        assert holds(libattn.view(*five, **options), np.stack([expected, expected[::-1]]))


def test_a_file_is_the_command_s_page(tmp_path):
    path = data("animal_street.safetensors")
    command("view", path, "-o", tmp_path / "theirs.html", "--layer=2,3", "--head=0-4", "--title=Street")
    page = libattn.view(path, layers=[2, 3], heads="0-4", title="Street")
    assert page.html == (tmp_path / "theirs.html").read_text(encoding="utf-8")
    page.save(tmp_path / "ours.html")
    assert (tmp_path / "ours.html").read_bytes() == (tmp_path / "theirs.html").read_bytes()


def test_a_frame_holds_the_page_whatever_the_words_are():
    page = libattn.view(weights(3, 3), tokens=["</iframe>", '"><script>alert(1)</script>', "&quot;"])
    shown = page._repr_html_()
    found = re.fullmatch(r'<iframe title="[\w ]+" srcdoc="([^"]*)" style="[\w: %;-]+"></iframe>', shown)
    assert found and html.unescape(found[1]) == page.html
    assert "height: 300px" in libattn.view(weights(3, 3), height=300)._repr_html_()


def test_errors(monkeypatch, tmp_path):
    w = weights(2, 3, 5, 5)
    q, k = RNG.normal(size=(4, 5, 8)), RNG.normal(size=(2, 5, 8))
    for call, kind, sentence in [
        (lambda: libattn.view(w, tokens=[*WORDS, "more"]), ValueError, "6 tokens for 5 queries and 5 keys"),
        (lambda: libattn.view(w, heads=7), ValueError, "--head: there is no 7, only 0 to 2"),
        (lambda: libattn.view(w, tokens="the cat sat"), TypeError, r"tokens is a text; it must be a list of words, such as \['the', 'cat', 'sat'\]"),
        (lambda: libattn.view(w, causal=True), ValueError, "data is weights: the option causal would change nothing"),
        (lambda: libattn.view(w[0, 0, 0]), ValueError, r"data has the shape \[5\]"),
        (lambda: libattn.view(np.zeros((1,) * 6)), ValueError, "there are 6 axes; at most 5"),
        (lambda: libattn.view(q, k[:, None]), ValueError, r"q has the shape \[4, 5, 8\] and k \[2, 1, 5, 8\]"),
        (lambda: libattn.view(q[:3], k), ValueError, r"heads_q \(3\) is not a multiple of heads_kv \(2\)"),
        (lambda: libattn.view("nowhere.safetensors"), ValueError, "nowhere.safetensors: cannot open"),
        (lambda: libattn.view("nowhere.safetensors", tokens=WORDS), ValueError, "data is a file"),
        (lambda: libattn.view(np.broadcast_to(np.float32(0), (1000, 10000, 10))), NotImplementedError, "too many for a page"),
        (lambda: libattn.view(w).save(tmp_path / "page.htm"), ValueError, "page.htm does not end in .html"),
        (lambda: libattn.plot("wights", w), ValueError, "there is no picture 'wights'; known: weights, heads"),
        (lambda: libattn.plot("heads"), ValueError, "heads: there is nothing to draw"),
        (lambda: libattn.plot("heads", {"q": w}), ValueError, "no tensor 'weights'"),
        (lambda: libattn.plot("steps", w), ValueError, "steps: data must be a dict"),
        (lambda: libattn.plot("compare", w, "a.npz"), ValueError, "files or arrays, not both"),
        (lambda: libattn.plot("heads", "a.npz", tokens=WORDS), ValueError, "data are files, which have their own tokens"),
        (lambda: libattn.plot("heads", w).save("a.png"), ValueError, "a.png does not end in .svg"),
    ]:
        with pytest.raises(kind, match=sentence):
            call()
    monkeypatch.setattr(_command, "COMMAND", pathlib.Path("/nowhere/attn"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="there is no command attn"):
        libattn.view(w)


def test_pictures():
    w, other = weights(2, 3, 5, 5), weights(2, 3, 5, 5)
    for picture in (
        libattn.plot("weights", w, tokens=WORDS, layer=1, head=2), libattn.plot("heads", w, title="All"), libattn.plot("compare", w, other),
        libattn.plot("entropy", list(w)), libattn.plot("temperature", np.log(w), query=2), libattn.plot("mask", np.tri(5, dtype=int)),
        libattn.plot("gradients", {"dq": w, "dk": w, "dv": w}), libattn.plot("weights", w, high="max"),
    ):
        assert picture._repr_svg_() == picture.svg and picture.svg.startswith("<svg") and repr(picture).startswith("Picture(")
    assert "cat" in libattn.plot("weights", w, tokens=WORDS).svg and "All" in libattn.plot("heads", w, title="All").svg


def test_pictures_are_the_command_s(tmp_path):
    w = weights(2, 3, 5, 5)
    files.save(tmp_path / "w.npz", {"weights": w}, metadata={"tokens": json.dumps(WORDS)})
    command("plot", "weights", tmp_path / "w.npz", "-o", tmp_path / "w.svg", "--layer=1", "--head=2")
    theirs = (tmp_path / "w.svg").read_text(encoding="utf-8")
    assert libattn.plot("weights", tmp_path / "w.npz", layer=1, head=2).svg == theirs
    ours = libattn.plot("weights", w, tokens=WORDS, layer=1, head=2)
    ours.save(tmp_path / "ours.svg")
    assert ours.svg == theirs.replace(f">{tmp_path / 'w.npz'}<", ">data.safetensors<") == (tmp_path / "ours.svg").read_text(encoding="utf-8")


def test_measurements():
    words = [_command.find(), "bench", "fwd:f32:sq16:d8", "fwd:f32:sq32:d8", "--json", "--seconds=0.01"]
    measured = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    assert libattn.plot("runtime", measured).svg.startswith("<svg")


def test_tensors_of_torch():
    torch = pytest.importorskip("torch")
    w = weights(3, 5, 5)
    assert holds(libattn.view(torch.tensor(w, requires_grad=True)), w)
    halves = torch.tensor(w).bfloat16()
    assert holds(libattn.view(halves), halves.float().numpy())


def test_no_framework_is_imported():
    program = "import sys, libattn, numpy as np; libattn.view(np.eye(3)); libattn.plot('weights', np.eye(3)); print('torch' in sys.modules, 'jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split() == ["False", "False"]


@pytest.mark.slow
def test_the_page_in_a_notebook_s_frame(tmp_path):
    """As a notebook shows it: inside another page, with every head drawn, and opening one by a click."""
    spec = importlib.util.spec_from_file_location("driver", ROOT / "tests/view/browser.py")
    driver = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(driver)
    path = driver.find_browser()
    if path is None:
        pytest.skip("no Chromium")
    w = weights(2, 3, 5, 5)
    host = tmp_path / "host.html"
    host.write_text(f"<!doctype html><h1>A notebook</h1>{libattn.view(w, tokens=WORDS)._repr_html_()}", encoding="utf-8")
    browser = driver.Browser(path)
    try:
        browser.open(host.as_uri())
        inside = "document.querySelector('iframe').contentDocument"
        browser.evaluate(f"new Promise(done => {{ const look = () => {inside}.querySelectorAll('.thumbnail canvas').length ? done() : setTimeout(look, 20); look(); }})")
        browser.settle()
        assert browser.evaluate(f"{inside}.querySelectorAll('.thumbnail canvas').length") == 6
        assert browser.evaluate(f"[...{inside}.querySelectorAll('.thumbnail canvas')].every(c => c.width === 5 && c.clientWidth > 20)")
        assert browser.evaluate(f"[...{inside}.querySelectorAll('.chip')].map(node => node.textContent)") == WORDS
        browser.evaluate(f"{inside}.querySelectorAll('.thumbnail')[4].click()")
        browser.settle()
        assert browser.evaluate(f"{inside}.getElementById('heading').textContent") == "Layer 1, head 1"
        width = browser.evaluate("document.querySelector('iframe').clientWidth")
        assert width > 1000 and browser.evaluate(f"{inside}.documentElement.scrollWidth") <= width
        assert not browser.failures and not browser.dialogs
        assert all(url.startswith(("file:", "about:", "data:")) for url in browser.requests), browser.requests
    finally:
        browser.close()
