#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the input of Sphinx: the Markdown of this repository, a page for each public header (headers.py), for each module of the
Python package (package.py) and for each command (its --help), and a page for each file that these link to, so that the site is
self-contained.

Usage: site.py ATTN FOLDER
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys

import headers
import package

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tools"))
import notebooks

# The sidebar, in this order; Sphinx reports a page that is neither here nor linked as an error.
PARTS = {
    "Start": ["docs/building", "docs/python/quickstart", "docs/python", "docs/python/migration", "docs/python/pictures", "examples/notebooks/README", "docs/which", "docs/learner", "docs/analyst", "docs/benchmarker", "docs/trainer", "docs/page", "explorer", "docs/training"],
    "Mechanisms": ["docs/mechanisms"],
    "Reference": ["docs/conventions", "docs/notation", "headers", "package", "commands", "docs/command", "docs/io", "docs/threads", "docs/serving", "docs/distributed", "docs/python/distributed"],
    "Speed": ["docs/benchmarks", "docs/peers"],
    "Design": ["ARCHITECTURE", "docs/numerics", "docs/coverage", "docs/rulings", "docs/conformance", "docs/reliability", "docs/platforms", "docs/mutation"],
    "Project": ["CHANGELOG", "CONTRIBUTING", "CODE_OF_CONDUCT", "SECURITY", "docs/releasing", "lab"],
}
STREET = "examples/data/animal_street.safetensors"
EXPLORER = [
    ("sentence", "72 heads of a real model on one sentence", [STREET]),
    ("pair", "the sentence, and how it changes when the street is flooded", [STREET, "--with=examples/data/animal_street_flooded.safetensors"]),
    ("repeated", "random words said twice: heads by their roles", ["examples/data/repeated_words.safetensors"]),
    ("causal", "the same heads, each token seeing those before it", [STREET, "--causal"]),
    ("distance", "tokens with a table by distance", ["examples/data/drawn_relative.safetensors", "--rel=shaw/6"]),
]
LINK = re.compile(r"(!?\[(?:[^\]\[]|\[[^\]]*\])*\])\(([^)\s]+)\)")
LANGUAGES = {".c": "c", ".js": "javascript", ".h": "c", ".py": "python", ".sh": "bash", ".def": "c", ".cff": "yaml", ".yml": "yaml", ".json": "json", ".txt": "text"}


def toctree(names, caption="", hidden=True):
    options = (["   :hidden:"] if hidden else []) + (["   :caption: " + caption] if caption else []) + ["   :maxdepth: 2", ""]
    return "\n".join([".. toctree::", *options, *(f"   {name}" for name in names), ""])


class Site:
    def __init__(self, attn, folder):
        self.attn, self.folder = attn, folder
        found = [str(path.relative_to(ROOT)) for path in ROOT.rglob("*.md")]
        self.pages = {name[:-3] for name in found if not re.search(r"(^|/)(build|dist|\.[^/]*)/", name)}
        self.wanted = set()  # files and folders that pages link to
        self.texts = {path.name: path.read_text(encoding="utf-8") for path in sorted((ROOT / "include/attn").glob("*.h"))}
        self.known = headers.roles(self.texts)
        self.linked = {f"attn/{name}": f"/headers/{name[:-2]}" for name in self.texts} | {f"{page}.md": f"/{page}" for page in self.pages}

    def put(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def up(self, name):
        """The path from the folder of a page to the root."""
        return "../" * name.count("/")

    def target(self, name, link):
        """The target of a link of page `name` in the site."""
        if re.match(r"[a-z]+:", link) or link.startswith("#"):
            return link
        path, _, anchor = link.partition("#")
        place = os.path.normpath(os.path.join(os.path.dirname(name), path))
        anchor = "#" + anchor if anchor else ""
        header = re.fullmatch(r"include/attn/(\w+)\.h", place)
        if place.endswith(".ipynb") and (ROOT / place).exists():
            return f"/{place[:-6]}.md"
        if place.endswith(".md") and place[:-3] in self.pages:
            return ("/index.md" if place == "README.md" else f"/{place}") + anchor
        if header:
            return f"/headers/{header[1]}.rst"
        if not (ROOT / place).exists():
            raise SystemExit(f"{name}.md: broken link {link}")
        if (ROOT / place / "README.md").exists():
            return f"/{place}/README.md"
        if place.endswith((".svg", ".png")):
            return "/" + place
        self.wanted.add(place)
        return f"/source/{place}.rst"

    def markdown(self, name, text):
        parts = re.split(r"(^```.*?^```$|`[^`\n]+`)", text, flags=re.S | re.M)  # code is left alone
        for n, part in enumerate(parts):
            if n % 2 == 0:
                parts[n] = LINK.sub(lambda match: f"{match[1]}({self.target(name, match[2])})", part)
            elif part[1:-1] in self.known:  # a public name links to its description
                parts[n] = f"{{c:{self.known[part[1:-1]]}}}{part}"
        return "".join(parts)

    def write_pages(self):
        for name in sorted(self.pages):
            text = self.markdown(name, (ROOT / f"{name}.md").read_text(encoding="utf-8"))
            if name == "README":
                parts = [(caption, [page for page in pages if page in self.pages or page in ("headers", "package", "commands", "lab", "explorer")]) for caption, pages in PARTS.items()]
                toc = "\n".join(f"```{{eval-rst}}\n{toctree(['/' + self.document(page) for page in pages], caption)}```\n" for caption, pages in parts)
                self.put("index.md", f"{text}\n{toc}")
            elif name == "docs/mechanisms":
                mechanisms = re.findall(r"\]\((mechanisms/\w+)\.md\)", (ROOT / "docs/mechanisms.md").read_text(encoding="utf-8"))
                self.put(f"{name}.md", f"{text}\n```{{eval-rst}}\n{toctree(mechanisms)}```\n")
            elif name == "examples/notebooks/README":
                self.put(f"{name}.md", f"{text}\n```{{eval-rst}}\n{toctree(self.write_notebooks())}```\n")
            else:
                listed = any(name in pages for pages in PARTS.values()) or name.startswith(("docs/mechanisms/", "lab/"))
                self.put(f"{name}.md", ("" if listed else "---\norphan: true\n---\n\n") + text)
        labs = sorted(name for name in self.pages if name.startswith("lab/"))
        title = "Experiments"
        self.put("lab.rst", f"{title}\n{'=' * len(title)}\n\nExperiments with their measurements: what helped, and what did not.\n\n{toctree(labs, hidden=False)}")
        shutil.copytree(ROOT / "docs/pictures", self.folder / "docs/pictures")

    def write_notebooks(self):
        """A page for each notebook, with its pictures; returns their names."""
        found = sorted((ROOT / "examples/notebooks").glob("*.ipynb"))
        for path in found:
            name = f"examples/notebooks/{path.stem}"

            def put_picture(number, svg, stem=path.stem):
                self.put(f"examples/notebooks/{stem}-{number}.svg", svg)
                return f"{stem}-{number}.svg"

            self.put(f"{name}.md", notebooks.page(path, put_picture))
        return [path.stem for path in found]

    @staticmethod
    def document(page):
        return {"headers": "headers/index", "package": "package/index", "commands": "commands/index"}.get(page, page)

    def write_headers(self):
        texts = self.texts
        for name, text in texts.items():
            self.put(f"headers/{name[:-2]}.rst", headers.page(name, text, self.known, self.linked))
        order = ["types", "attn"] + [name[:-2] for name in texts if name not in ("types.h", "attn.h")]
        title = "The public headers"
        about = ("The conventions of :doc:`/docs/conventions` hold in all of them. Every public name is described once; "
                 "the :ref:`index <genindex>` lists all names.")
        self.put("headers/index.rst", f"{title}\n{'=' * len(title)}\n\n{about}\n\n{toctree(order, hidden=False).replace('maxdepth: 2', 'maxdepth: 1')}")

    def write_package(self):
        """The Python package, a page for each module."""
        found = package.pages(ROOT / "python/libattn", self.known, self.linked)
        for name, text in found.items():
            self.put(f"package/{name}.rst", text)
        title = "The Python package"
        about = ("Every public name of each module; :doc:`/docs/python` is where to begin. Arrays, types and errors are those of that page.")
        self.put("package/index.rst", f"{title}\n{'=' * len(title)}\n\n{about}\n\n{toctree(found, hidden=False).replace('maxdepth: 2', 'maxdepth: 1')}")

    def write_explorer(self):
        """The pages that `attn view` makes of the example data, unchanged."""
        title, made = "Interactive pages", self.folder / "extra/explorer"
        made.mkdir(parents=True)
        lines = [title, "=" * len(title), "", "Written by ``attn view``; each is one self-contained file.", ""]
        for name, about, words in EXPLORER:
            subprocess.run([self.attn, "view", *words, "-o", str(made / f"{name}.html"), "--quiet"], cwd=ROOT, check=True)
            lines += [f"* `{about} <explorer/{name}.html>`__: ``attn view {' '.join(words)} -o page.html``", ""]
        self.put("explorer.rst", "\n".join(lines))

    def help_of(self, *words):
        return subprocess.run([self.attn, *words, "--help"], capture_output=True, text=True, check=True).stdout

    def write_commands(self):
        general = self.help_of()
        names = re.findall(r"^  attn (\w+)", general, re.M)
        for name in names:
            text, title = self.help_of(name), f"attn {name}"
            what = re.search(rf"^  attn {name} +.*?  (\w.*)$|^  attn {name} .*? ([a-z]\w+ .*)$", general, re.M)
            about = next(word for word in what.groups() if word) if what else ""
            body = "".join(f"   {line}\n" if line else "\n" for line in text.splitlines())
            self.put(f"commands/{name}.rst", f"{title}\n{'=' * len(title)}\n\n{about[:1].upper()}{about[1:]}.\n\n.. code-block:: text\n\n{body}")
        title = "The command"
        body = "".join(f"   {line}\n" if line else "\n" for line in general.splitlines())
        self.put("commands/index.rst", f"{title}\n{'=' * len(title)}\n\nThe help text of each command.\n\n.. code-block:: text\n\n{body}\n"
                 + toctree(names, hidden=False).replace("maxdepth: 2", "maxdepth: 1"))

    def write_sources(self):
        """The files that pages link to, and lists of the folders."""
        for place in sorted(self.wanted):
            path, head = ROOT / place, f":orphan:\n:nosearch:\n\n{place}\n{'=' * len(place)}\n\n"
            if path.is_dir():
                found = sorted(str(file.relative_to(path)) for file in path.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
                body = ".. code-block:: text\n\n" + "".join(f"   {name}\n" for name in found)
            else:
                text = path.read_text(encoding="utf-8", errors="replace")
                body = f".. code-block:: {LANGUAGES.get(path.suffix, 'text')}\n   :force:\n\n" + "".join(f"   {line}\n" if line.strip() else "\n" for line in text.splitlines())
            self.put(f"source/{place}.rst", head + body)


def main():
    folder = pathlib.Path(sys.argv[2]).resolve()
    if folder.exists():
        shutil.rmtree(folder)
    site = Site(os.path.abspath(sys.argv[1]), folder)
    site.write_pages()
    site.write_headers()
    site.write_package()
    site.write_commands()
    site.write_explorer()
    site.write_sources()
    for name in ("conf.py", "scorer.js"):
        shutil.copy(ROOT / "tools/docs" / name, folder / name)
    (folder / "static").mkdir()
    shutil.copy(ROOT / "tools/docs/site.css", folder / "static/site.css")
    print(f"{len(site.pages)} pages, {len(site.wanted)} files that they link to")


if __name__ == "__main__":
    main()
