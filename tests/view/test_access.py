#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The page of `attn view` for everybody: axe-core finds nothing serious, every control is reached by Tab, nothing overflows on any
screen, it keeps its meaning in forced colors, and it works in a frame without storage.

    test_access.py --attn PROGRAM --data FILE [--only NAME]     all but axe-core
    test_access.py --attn PROGRAM --data FILE --axe             axe-core alone

axe-core comes with a package of tests/python/requirements-no-deps.txt, which script/test installs; ATTN_AXE may name axe.min.js.
Prints TAP; exits with 77 without a browser, or without axe-core.
"""

import argparse
import html
import json
import os
import pathlib
import subprocess
import sys

from harness import run_all

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
OPTIONS = argparse.Namespace()
TABS = ["row", "neuron", "roles", "compare"] # and "live", if the command has WebAssembly
# The overview, a head, and each tab beside it.
PLACES = ["", "#query=9", "#layer=3&head=1", "#sort=spread", *(f"#layer=3&head=1&query=9&key=2&b=0.3.2&tab={tab}" for tab in TABS),
          "#layer=3&head=1&query=9&b=0.2.2&kind=difference"]
LIVE = ["#layer=3&head=1&query=9&key=2&live=scale:0.5,causal:1,sink:1,base:10000,out:5.7&kind=change&tab=live", "#layer=3&head=1&query=9&key=2&live=scale:0.5&tab=row"]


def find_axe():
    """The text of axe.min.js, or None."""
    found = [pathlib.Path(os.environ["ATTN_AXE"])] if "ATTN_AXE" in os.environ else sorted(ROOT.glob("build/test/venv/lib/python3*/site-packages/axe_playwright_python/axe.min.js"))
    return found[0].read_text(encoding="utf-8") if found and found[0].exists() else None


def test_page_axe(page):
    axe = find_axe()
    for scheme, width in (("light", 1400), ("dark", 1400), ("light", 420)):
        page.browser.resize(width, 900)
        page.browser.prefer(scheme)
        for place in PLACES + LIVE + ["help", "export"]:
            page.open("" if place in ("help", "export") else place)
            if place in ("help", "export"):
                page.browser.click(f"#{place}-open")
            if width == 420 and "tab=" in place:
                page.browser.click(f"#tab-{place.rsplit('=', 1)[1]}")
            page.browser.evaluate(axe + "; true")
            found = page.browser.evaluate("axe.run(document, {resultTypes: ['violations']}).then(r => r.violations.filter(v =>"
                                          " ['serious', 'critical'].includes(v.impact)).map(v => v.id + ': ' + v.nodes.slice(0, 3).map(n => n.html.slice(0, 90)).join(' | ')))")
            page.check(f"axe-core finds nothing serious in {place or 'the overview'}, {scheme}, {width}", not found, found)
    page.browser.resize(1280, 800)


REACHED = """(() => { const node = document.activeElement; return node === document.body ? null : node.id || node.className + ' ' + node.textContent.slice(0, 20); })()"""
# Visible controls; of groups in which arrows move, the one that is in the order.
CONTROLS = """[...document.querySelectorAll('button, select, input, summary, [tabindex]')].filter(n => n.checkVisibility({visibilityProperty: true})
    && n.tabIndex >= 0 && !n.disabled && !n.closest('dialog')).map(n => n.id || n.className + ' ' + n.textContent.slice(0, 20))"""


def test_page_tab(page):
    """Every control is reached by Tab, and leaves by it."""
    for place in ("", "#layer=3&head=1&query=9&tab=compare", "#layer=3&head=1&query=9&tab=neuron", *LIVE):
        page.open(place)
        page.browser.evaluate("new Promise(done => setTimeout(done, 400))")
        wanted, reached = set(page.browser.evaluate(CONTROLS)), set()
        for _ in range(4 * len(wanted)):
            page.browser.send("Input.dispatchKeyEvent", type="keyDown", key="Tab", windowsVirtualKeyCode=9)
            page.browser.send("Input.dispatchKeyEvent", type="keyUp", key="Tab", windowsVirtualKeyCode=9)
            now = page.browser.evaluate(REACHED)
            reached.add(now)
            if wanted <= reached:
                break
        page.check(f"every control of {place or 'the overview'} by Tab", len(wanted) > 8 and wanted <= reached, wanted - reached)


def test_page_keys(page):
    """Keys of the tabs, the search, the way to a head; letters can be switched off."""
    check, press = page.check, page.browser.press
    page.open("#layer=3&head=1&query=9")
    for n, tab in enumerate(TABS):
        press(str(n + 1))
        check(f"{n + 1} is {tab}", page.texts("[role=tab][aria-selected=true]") == [tab.capitalize()])
    press("1", "/")
    check("/ goes to the search", page.browser.evaluate("document.activeElement.id") == "search")
    press(*"the")
    check("which finds the first", page.fragment()["query"] == "1", page.fragment())
    press("Enter")
    check("and the next", page.fragment()["query"] == "6", page.fragment())
    press("x", "x")
    check("or says that there is none", page.browser.evaluate("document.getElementById('search').getAttribute('aria-invalid')") == "true")
    press("Escape", "g")
    check("g asks for a head", page.browser.evaluate("document.getElementById('goto').open"))
    page.browser.evaluate("document.getElementById('goto-place').value = '9.1'")
    press("Enter")
    check("and says where there is none", page.text("#goto-error") == "There is no layer 9, head 1.")
    page.browser.evaluate("document.getElementById('goto-place').value = '2.8'")
    press("Enter")
    check("or goes there", page.text("#heading") == "Layer 2, head 8", page.text("#heading"))
    page.open("#layer=2&head=8&query=1&key=1")
    page.browser.evaluate("document.querySelector('.map-box').focus()")
    press("Shift+ArrowDown")
    check("Shift and an arrow go ten", page.fragment()["query"] == "11", page.fragment())
    press("e")
    check("e is the export", page.browser.evaluate("document.getElementById('export').open"))
    press("Escape", "?")
    page.browser.click("#letters")
    press("Escape", "2")
    check("letters and digits can be switched off", page.texts("[role=tab][aria-selected=true]") == ["Row"])


def test_page_screens(page):
    """No part is wider than the screen."""
    for width, height in ((1400, 900), (960, 700), (420, 800), (360, 740)):
        page.browser.resize(width, height)
        for place in PLACES + LIVE:
            page.open(place)
            if width < 700 and "tab=" in place:
                page.browser.click(f"#tab-{place.rsplit('=', 1)[1]}")
            wide = page.browser.evaluate("document.documentElement.scrollWidth")
            page.check(f"{place or 'the overview'} fits into {width} pixels", wide <= width, wide)
            if place and width < 700:
                small = page.browser.evaluate("[...document.querySelectorAll('button, select, input, summary')].filter(n => n.checkVisibility() && !n.closest('dialog, label'))"
                                              ".map(n => [n.id || n.textContent.slice(0, 20), n.getBoundingClientRect()]).filter(([, r]) => Math.min(r.width, r.height) < 23.5)"
                                              ".map(([name, r]) => `${name} ${r.width} ${r.height}`)")
                page.check(f"targets are of 24 pixels in {place}, {width}", not small, small)
    page.browser.resize(1280, 800)


def test_page_sheet(page):
    """On a narrow screen the tabs are a sheet at the bottom."""
    page.browser.resize(420, 800)
    page.open("#layer=3&head=1&query=9")
    page.check("it is closed at first", not page.shown("#sheet") and page.shown("#tab-row"))
    page.browser.click("#tab-neuron")
    page.check("a press opens it", page.shown("#neuron"))
    page.check("over half of the screen at most", page.browser.evaluate("document.getElementById('panel').getBoundingClientRect().top") >= 380)
    page.browser.click("#tab-neuron")
    page.check("and closes it", not page.shown("#sheet"))
    page.check("the selection alone has labels", page.texts(".map-queries .label") == ["it"] and page.texts(".map-keys .label") == [])
    page.browser.resize(1280, 800)


def test_page_system(page):
    """Forced colors keep bars and choices visible; nothing moves where motion is reduced."""
    page.browser.prefer("light", forced_colors="active", prefers_reduced_motion="reduce")
    page.open("#layer=3&head=1&query=9&key=2")
    color = lambda selector, what: page.browser.evaluate(f"getComputedStyle(document.querySelector({selector!r})).{what}")
    page.check("bars are seen in forced colors", color(".bar-fill", "backgroundColor") != color(".bar-track", "backgroundColor"),
               (color(".bar-fill", "backgroundColor"), color(".bar-track", "backgroundColor")))
    page.check("what is chosen has an outline", color(".chip.query", "outlineStyle") == "solid" and color("[role=tab][aria-selected=true]", "outlineStyle") == "solid")
    page.check("nothing moves", page.browser.evaluate("document.getAnimations().length") == 0 and color(".control", "transitionDuration") == "0s")


def test_page_frame(page):
    """In srcdoc, without an origin and so without storage, history and address: no error, and all works."""
    text = page.path.read_text(encoding="utf-8")
    outer = page.path.with_name("outer.html")
    outer.write_text(f'<!doctype html><title>outer</title><iframe sandbox="allow-scripts" width="1200" height="700" srcdoc="{html.escape(text)}"></iframe>', encoding="utf-8")
    page.browser.open(outer.as_uri())
    page.browser.settle()
    inner = page.browser.contexts[-1]
    ask = lambda expression: page.browser.evaluate(expression, contextId=inner)
    page.check("it has no storage there", ask("(() => { try { localStorage.length; return false; } catch { return true; } })()"))
    page.check("the page is drawn", ask("document.querySelectorAll('.thumbnail').length") == 72)
    ask("document.querySelectorAll('.thumbnail')[37].click()")
    ask("document.querySelectorAll('.chip')[9].click()")
    page.check("a head opens, a token is chosen", ask("document.querySelector('#readout').textContent").startswith("it → animal 0.687"), ask("document.querySelector('#readout').textContent"))
    for tab in TABS:
        ask(f"document.getElementById('tab-{tab}').click()")
        page.check(f"the tab {tab}", len(ask("document.getElementById('sheet').textContent")) > 40)
    page.check("its address stays", ask("location.href") == "about:srcdoc")
    requests = [url for url in page.browser.requests if not url.startswith("file:")]
    page.check("and it asks for nothing", all(url.startswith(("about:", "data:", "blob:")) for url in requests), requests)
    page.browser.requests.clear()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--attn", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--axe", action="store_true")
    parser.parse_args(namespace=OPTIONS)

    if OPTIONS.axe and not find_axe():
        print("skipped: there is no axe_playwright_python in build/test/venv (script/test makes it), and ATTN_AXE names no axe.min.js")
        return 77

    def write(_, path):
        call = [OPTIONS.attn, "view", OPTIONS.data, "-o", path, "--json"]
        done = subprocess.run([*call, "--live"], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            TABS.append("live")
        else: # a command without WebAssembly
            LIVE.clear()
            done = subprocess.run(call, capture_output=True, text=True, check=False)
        return done.returncode == 0 and json.loads(done.stdout)["heads"] == 12

    tests = [value for name, value in globals().items() if name.startswith("test_") and (value is test_page_axe) == OPTIONS.axe]
    return run_all(tests, write, OPTIONS.only)


if __name__ == "__main__":
    sys.exit(main())
