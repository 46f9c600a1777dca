#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The site in a headless Chromium, from file://: searches have the right page among the first three results, no page loads anything
from a network or has script errors, pages fit the width of a phone, and on a screen no code or table must be scrolled sideways.

Usage: browser.py SITE
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "view"))
import browser as driver  # pylint: disable=wrong-import-position

SITE = pathlib.Path(sys.argv[1]).resolve()
# Search terms, and the page that should be found.
QUERIES = {
    "attn_compute": "headers/attn.html", "attn_plan_create": "headers/attn.html", "attn_rope_apply": "headers/position.html",
    "attn_merge": "headers/merge.html", "attn_linear_compute": "headers/linear.html", "attn_cache_append": "headers/cache.html",
    "ATTN_ERR_STRIDE": "headers/types.html", "attn_hopfield_retrieve": "headers/hopfield.html", "attn_archive_map": "headers/io.html",
    "linformer": "docs/mechanisms/linformer.html", "bahdanau": "docs/mechanisms/additive.html", "hopfield": "docs/mechanisms/hopfield.html",
    "latent attention": "docs/mechanisms/latent.html", "cosine": "docs/mechanisms/cosine.html", "safetensors files": "docs/io.html",
    "threads": "docs/threads.html", "coverage": "docs/coverage.html", "releasing": "docs/releasing.html", "einsum": "commands/einsum.html",
    "benchmarks measured": "docs/benchmarks.html", "bertviz": "docs/python/migration.html", "capture heads": "docs/python/pictures.html",
    "python": "docs/python.html", "libattn.attention_backward": "package/libattn.html",
    "learner": "docs/learner.html", "analyst": "docs/analyst.html", "benchmarker": "docs/benchmarker.html", "trainer": "docs/trainer.html",
    "interrupt resume": "docs/trainer.html", "names curves": "docs/benchmarker.html",
    "numbers picture": "docs/learner.html",
}
PAGES = ("index.html", "ARCHITECTURE.html", "docs/python.html", "package/libattn.html", "package/libattn.masks.html",
         "package/libattn.layers.html", "docs/mechanisms/masks.html", "docs/benchmarks.html", "docs/peers.html", "docs/which.html",
         "headers/attn.html", "commands/run.html", "docs/python/migration.html", "docs/learner.html", "examples/notebooks/3_looking_at_heads.html")
HIDDEN = """[...document.querySelectorAll('article pre, article .table-wrapper, article table')].filter((one) => one.scrollWidth > one.clientWidth + 1)
    .map((one) => one.textContent.trim().slice(0, 40))"""
RESULTS = """new Promise(done => { const end = Date.now() + 5000; const look = () => {
    const found = [...document.querySelectorAll('#search-results li a')].map((a) => a.getAttribute('href').split('?')[0].split('#')[0]);
    const ready = /finished|did not match/.test(document.querySelector('#search-results')?.textContent ?? '');
    ready || Date.now() > end ? done(found) : setTimeout(look, 50); }; look(); })"""

faults = []


def check(page, what, good):
    if not good:
        faults.append(f"{page}: {what}")


def main():
    path = driver.find_browser()
    if not path:
        print("skipped: no Chromium to open the site in")
        return 77
    page = driver.Browser(path, 1280, 800)
    try:
        for query, wanted in QUERIES.items():
            page.open((SITE / "search.html").as_uri() + "?q=" + query.replace(" ", "+"))
            found = list(dict.fromkeys(page.evaluate(RESULTS)))
            check("search", f"{query}: {wanted} is not among {found[:3]}", wanted in found[:3])
        for name in PAGES:
            for width in (360, 1280):
                page.resize(width, 800)
                page.open((SITE / name).as_uri())
                wide = page.evaluate("document.documentElement.scrollWidth")
                check(name, f"is {wide} wide on {width}", wide <= width)
                hidden = page.evaluate(HIDDEN) if width > 1000 else []
                check(name, f"must be scrolled sideways to read {hidden}", not hidden)
                check(name, f"asks for {[url for url in page.requests if not url.startswith(('file:', 'data:', 'about:'))]}",
                      all(url.startswith(("file:", "data:", "about:")) for url in page.requests))
                check(name, f"breaks: {page.failures}", not page.failures)
    finally:
        page.close()
    for fault in faults:
        print(fault)
    print(f"{len(QUERIES)} searches, {len(PAGES)} pages in two widths, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
