# SPDX-License-Identifier: MIT
"""What the tests of the page share: the page as its reader sees it, checks that are counted and printed as TAP, and how tests are run."""

import base64
import pathlib
import sys
import tempfile
import traceback

from browser import Browser, BrowserError, find_browser


class Page:
    """One open page, as its reader sees it."""

    def __init__(self, browser, path, checks):
        self.browser, self.path, self.check = browser, path, checks

    def open(self, fragment=""):
        self.browser.open(self.path.as_uri() + fragment)

    def text(self, selector):
        return self.browser.evaluate(f"document.querySelector({selector!r}).textContent")

    def texts(self, selector):
        return self.browser.evaluate(f"[...document.querySelectorAll({selector!r})].map(node => node.textContent)")

    def count(self, selector):
        return self.browser.evaluate(f"document.querySelectorAll({selector!r}).length")

    def shown(self, selector):
        return self.browser.evaluate(f"document.querySelector({selector!r})?.checkVisibility({{visibilityProperty: true}}) ?? false")

    def fragment(self):
        return self.browser.evaluate("Object.fromEntries(new URLSearchParams(location.hash.slice(1)))")

    def bars(self, selector):
        """[(token, weight)] of a list of bars."""
        return [(token, float(weight)) for token, weight in self.browser.evaluate(
            f"[...document.querySelectorAll({selector!r})].map(line => [line.querySelector('.token').textContent, line.querySelector('.number').textContent])")]

    def cell(self, i, j):
        """The middle of a cell of the open head, in window coordinates."""
        left, top, width, height, rows, columns = self.browser.evaluate(
            "(() => { const r = document.querySelector('.map-extent').getBoundingClientRect();"
            " const q = [...document.querySelectorAll('.map-queries .label')], k = [...document.querySelectorAll('.map-keys .label')];"
            " return [r.left, r.top, r.width, r.height, q.length, k.length]; })()")
        return left + (j + 0.5) * width / columns, top + (i + 0.5) * height / rows

    def pixels(self, selector, rows, columns):
        """[red, green, blue] of each cell of a canvas, beside its number, in row order; read from a copy, to leave the page's canvas untouched."""
        return self.browser.evaluate(
            f"(() => {{ const c = document.querySelector({selector!r}), copy = new OffscreenCanvas(c.width, c.height), out = [];"
            " const pen = copy.getContext('2d', {willReadFrequently: true}); pen.drawImage(c, 0, 0);"
            f" for (let i = 0; i < {rows}; i++) for (let j = 0; j < {columns}; j++) out.push([...pen.getImageData("
            f"  Math.floor((j + 0.15) * c.width / {columns}), Math.floor((i + 0.15) * c.height / {rows}), 1, 1).data].slice(0, 3));"
            " return out; })()")

    def lightness(self, selector, rows, columns):
        return [sum(color) / 3 for color in self.pixels(selector, rows, columns)]


def saved(page, what):
    """The bytes of a file that the page saves."""
    page.browser.evaluate("""(() => { const make = URL.createObjectURL; window.saved = null;
        URL.createObjectURL = (blob) => { window.saved = blob; return 'data:,'; };
        HTMLAnchorElement.prototype.click = function () { window.savedName = this.download; }; })()""")
    page.browser.click("#export-open")
    page.browser.click(f"#export-{what}")
    text = page.browser.evaluate("""(async () => { while (!window.saved) await new Promise(done => setTimeout(done, 10));
        const bytes = new Uint8Array(await window.saved.arrayBuffer()); let text = ''; for (const b of bytes) text += String.fromCharCode(b); return btoa(text); })()""")
    page.browser.press("Escape")
    return base64.b64decode(text)


def ordered(lightness, values, sign):
    """Whether a clearly larger weight always has a different color: darker (sign 1) or lighter (-1)."""
    pairs = [(sign * (a - b), y - x) for a, x in zip(lightness, values) for b, y in zip(lightness, values) if y - x > 0.03]
    return bool(pairs) and all(change > 0 for change, _ in pairs)


def near(shown, expected):
    """Whether three decimals are right: within half a unit of the last one, and the rounding of a 16-bit step."""
    return abs(shown - expected) <= 0.00051


# ---- running them

class Checks:
    """Counts and prints; a call is one check."""

    def __init__(self):
        self.number = self.failed = 0

    def __call__(self, name, condition, detail=None):
        self.number += 1
        self.failed += not condition
        print(f"{'ok' if condition else 'not ok'} {self.number} - {name}")
        if not condition and detail is not None:
            print(f"# {detail}")
        sys.stdout.flush()


def run(test, page, checks):
    try:
        test(page)
    except (BrowserError, LookupError, TypeError, ValueError, AttributeError):
        checks(f"{test.__name__} runs to its end", False, traceback.format_exc().replace("\n", "\n# "))
        return
    browser = page.browser
    checks(f"{test.__name__}: no message, no failure, no dialog", not (browser.messages or browser.failures or browser.dialogs),
           (browser.messages, browser.failures, browser.dialogs))
    asked = [url for url in browser.requests if not url.startswith((page.path.as_uri(), "blob:", "data:"))]
    checks(f"{test.__name__}: no network request", not asked, asked)


def run_all(tests, write, only="", write_only=False):
    """Runs the tests whose name has `only` in it, each on the page of its kind, the word after test_, which write(kind, path) writes;
    it returns whether it did, or None where the page cannot be written here.  Returns the exit status."""
    path = find_browser()
    if not path and not write_only:
        print("skipped: no Chromium (apt-get install chromium, or set ATTN_CHROMIUM to a browser)")
        return 77
    checks = Checks()
    browser = None if write_only else Browser(path)
    with tempfile.TemporaryDirectory() as folder:
        pages = {}
        for test in (test for test in tests if only in test.__name__):
            kind = test.__name__.split("_")[1]
            if kind not in pages:
                pages[kind] = pathlib.Path(folder) / f"{kind}.html"
                written = write(kind, pages[kind])
                if written is None:
                    pages[kind] = None
                    print(f"# the page {kind} is skipped")
                else:
                    checks(f"the page {kind} is written", written and pages[kind].stat().st_size > 0)
            if browser and pages[kind]:
                browser.renew()
                browser.prefer("light")
                run(test, Page(browser, pages[kind], checks), checks)
    if browser:
        browser.close()
    print(f"1..{checks.number}")
    print(f"# {checks.number - checks.failed} passed, {checks.failed} failed")
    return 1 if checks.failed or not checks.number else 0
