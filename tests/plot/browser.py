#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The pictures of `attn plot` in a headless Chromium: no errors, no text overlaps another or leaves the picture, light and dark modes
differ and are readable.  Exits with 77 if no browser is found.
"""

import os
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "view"))
import importlib.util

from files import make_all, run
import tap

# tests/view has a module of the same name as this file.
spec = importlib.util.spec_from_file_location("driver", pathlib.Path(__file__).parent.parent / "view" / "browser.py")
driver = importlib.util.module_from_spec(spec)
spec.loader.exec_module(driver)

# Overlapping texts.  Only horizontal and vertical ones are compared: the bounding box of text at an angle is larger than the text.
CROWDED = """(() => {
  const upright = [...document.querySelectorAll('svg text')].filter((t) => t.textContent.trim() && (!t.hasAttribute('transform') || t.getAttribute('transform').includes('rotate(-90)')));
  const scale = document.querySelector('svg').getScreenCTM().a;
  const boxes = upright.map((t) => [t.getBoundingClientRect(), t.textContent]);
  const found = [];
  for (let i = 0; i < boxes.length; i++)
    for (let j = 0; j < i; j++) {
      const [a, s] = boxes[i], [b, t] = boxes[j];
      const wide = Math.min(a.x + a.width, b.x + b.width) - Math.max(a.x, b.x);
      const high = Math.min(a.y + a.height, b.y + b.height) - Math.max(a.y, b.y);
      if (wide > 1 * scale && high > 6 * scale) found.push(`${s} / ${t}`);
    }
  return found.slice(0, 5);
})()"""

OUTSIDE = """(() => {
  const svg = document.querySelector('svg').getBoundingClientRect();
  return [...document.querySelectorAll('svg text')].filter((t) => {
    const r = t.getBoundingClientRect();
    return r.left < svg.left - 1 || r.right > svg.right + 1 || r.top < svg.top - 1 || r.bottom > svg.bottom + 1;
  }).map((t) => t.textContent).slice(0, 5);
})()"""

# The lowest contrast (WCAG 2) of a text with its background.
CONTRAST = """(() => {
  const light = (color) => color.match(/\\d+/g).slice(0, 3).map((c) => c / 255)
    .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4).reduce((sum, c, k) => sum + c * [0.2126, 0.7152, 0.0722][k], 0);
  const paper = light(getComputedStyle(document.querySelector('.paper')).fill);
  return Math.min(...[...document.querySelectorAll('svg text:not(.cell)')].map((t) => light(getComputedStyle(t).fill))
    .map((ink) => (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05)));
})()"""

PAPER = "getComputedStyle(document.querySelector('.paper')).fill"


def main():
    path = driver.find_browser()
    if not path:
        print("skipped: no Chromium")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        browser = driver.Browser(path, 1400, 900)
        for kind, words in make_all().items():
            name = kind + (".html" if kind in ("steps", "latency") else ".svg")
            run("plot", *words, "-o", name)
            papers = []
            browser.open(f"file://{folder}/{name}")
            for scheme in ("light", "dark"):
                browser.prefer(scheme)
                papers.append(browser.evaluate(PAPER))
                contrast = browser.evaluate(CONTRAST)
                tap.check(f"{kind}, {scheme}: text is readable", contrast >= 4.5, contrast)
            tap.check(f"{kind}: light and dark paper", papers == ["rgb(255, 255, 255)", "rgb(20, 23, 28)"], papers)
            tap.check(f"{kind}: no error, no request", not browser.failures and all(r.startswith(("file:", "data:")) for r in browser.requests),
                      browser.failures + browser.requests)
            crowded, outside = browser.evaluate(CROWDED), browser.evaluate(OUTSIDE)
            tap.check(f"{kind}: no overlapping texts", not crowded, crowded)
            tap.check(f"{kind}: no text outside the picture", not outside, outside)
        browser.close()
        os.chdir("/")
    sys.exit(tap.finish())


main()
