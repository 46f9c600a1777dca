#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs the commands of each page of docs/ (its `sh` blocks), and checks that those of a mechanism write its picture, and those of another
page the pictures on it that they name with -o; that the chart of README.md, docs/pictures/peers.svg, is what `attn plot peers` makes
of the newest such file in bench/results (with AVX-512, if there are two of a day); and that docs/pictures/scaling.svg is what
tools/scaling.py draws.

    tools/pictures.py ATTN              runs them all and reports failures and differences from docs/pictures (the test docs/lines)
    tools/pictures.py ATTN --write      updates the pictures
    tools/pictures.py ATTN --page       takes a new docs/pictures/page.png, with Chromium: layer 3, head 1 of `attn view`

tools/snippets.py says how to exempt a block.  Commands run in an empty folder with a link to examples/, and in plain C (ATTN_ISA=scalar), which gives the same numbers on every CPU.
"""
import argparse
import base64
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import scaling
import snippets

ROOT = pathlib.Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs/pictures"
LARGEST = 250_000  # bytes


def run_page(page, folder, attn):
    """The pictures that the commands of one page left in the folder, and its faults."""
    text, _ = snippets.checked(page.read_text(encoding="utf-8"))
    lines = "\n".join(code for _, _, code in snippets.fenced(text, "sh"))
    pictures = [name for name in re.findall(r"\]\((?:\.\./)*pictures/([\w.-]+\.svg)\)", text) if f"-o {name}" in lines]
    if page.parent.name == "mechanisms" and f"{page.stem}.svg" not in pictures:
        return [], [f"the page has no picture ../pictures/{page.stem}.svg, or no command in an sh block that makes it"]
    if not lines or (not pictures and (ROOT / f"examples/workflows/{page.stem}.sh").exists()):  # tests/examples/workflow.py runs these
        return [], []
    (folder / "examples").symlink_to(ROOT / "examples")
    (folder / "bin").mkdir()
    (folder / "bin/attn").symlink_to(attn)
    around = dict(os.environ, ATTN_ISA="scalar", PATH=f"{folder / 'bin'}:{os.environ['PATH']}")
    done = subprocess.run(["bash", "-euc", lines], cwd=folder, env=around, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        return [], [f"its commands fail: {done.stderr.strip()}"]
    faults = [f"its commands make no {name}" for name in pictures if not (folder / name).exists()]
    made = [name for name in pictures if (folder / name).exists()]
    sizes = {name: (folder / name).stat().st_size for name in made}
    return made, faults + [f"its picture {name} has {size} bytes, more than {LARGEST}" for name, size in sizes.items() if size > LARGEST]


def draw_peers(attn, to):
    """The chart of README.md."""
    found = [path for path in (ROOT / "bench/results").glob("*-peers.json") if "-serving-" not in path.name]
    newest = max(found, key=lambda path: (json.loads(path.read_text(encoding="utf-8"))["date"], "avx512" in path.name))
    subprocess.run([attn, "plot", "peers", str(newest.relative_to(ROOT)), "-o", str(to)], cwd=ROOT, check=True, stdin=subprocess.DEVNULL)


def keep(made, name, write):
    """The fault, if any, of docs/pictures/NAME, which must equal `made`; with `write` it is replaced."""
    kept = PICTURES / name
    if write:
        kept.write_bytes(made.read_bytes())
    elif not kept.exists() or kept.read_bytes() != made.read_bytes():
        return [f"its picture differs from {kept.relative_to(ROOT)}; tools/pictures.py --write updates it"]
    return []


def take_page(attn, folder):
    """The picture of README.md."""
    sys.path.insert(0, str(ROOT / "tests/view"))
    import browser  # pylint: disable=import-outside-toplevel,import-error
    subprocess.run([attn, "view", "examples/data/animal_street.safetensors", "-o", str(folder / "page.html")], cwd=ROOT, check=True)
    driver = browser.Browser(browser.find_browser() or sys.exit("there is no Chromium"), 1400, 796)
    driver.prefer("light")
    driver.open((folder / "page.html").as_uri() + "#layer=3&head=1&query=9")
    (PICTURES / "page.png").write_bytes(base64.b64decode(driver.send("Page.captureScreenshot", format="png")["data"]))
    driver.close()


def main():
    parser = argparse.ArgumentParser(prog="tools/pictures.py", description="Runs the commands of pages and compares their pictures.")
    parser.add_argument("attn", metavar="ATTN", help="the command, as script/build leaves it in build/release/attn")
    parser.add_argument("--write", action="store_true", help="update the pictures")
    parser.add_argument("--page", action="store_true", help="take a new docs/pictures/page.png")
    args = parser.parse_args()
    if not os.access(args.attn, os.X_OK):
        parser.error(f"{args.attn} is not a program")
    attn, write = os.path.abspath(args.attn), args.write
    if args.page:
        with tempfile.TemporaryDirectory() as folder:
            take_page(attn, pathlib.Path(folder))
        return 0
    count = faults = 0
    pages = sorted((ROOT / "docs").rglob("*.md"))
    for page in pages:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            made, found = run_page(page, folder, attn)
            for picture in made if not found else []:
                found += keep(folder / picture, picture, write)
        count += len(re.findall(r"^attn ", page.read_text(encoding="utf-8"), re.M))
        for fault in found:
            print(f"{page.relative_to(ROOT)}: {fault}")
            faults += 1
    with tempfile.TemporaryDirectory() as name:
        draw_peers(attn, pathlib.Path(name) / "peers.svg")
        for fault in keep(pathlib.Path(name) / "peers.svg", "peers.svg", write):
            print(f"README.md: {fault}")
            faults += 1
        scaling.draw(attn, pathlib.Path(name) / "scaling.svg")
        for fault in keep(pathlib.Path(name) / "scaling.svg", "scaling.svg", write):
            print(f"docs/distributed.md: {fault}")
            faults += 1
    for picture in PICTURES.glob("*.svg"):
        if not any(f"pictures/{picture.name})" in page.read_text(encoding="utf-8") for page in [ROOT / "README.md", *pages]):
            print(f"{picture.relative_to(ROOT)}: no page uses it")
            faults += 1
    if (PICTURES / "page.png").stat().st_size > 300_000:
        print("docs/pictures/page.png is larger than 300 KB")
        faults += 1
    print(f"{len(pages)} pages, {count} lines, {faults} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
