# SPDX-License-Identifier: MIT
"""The examples of docs/python.md, docs/python/, docs/serving.md, docs/distributed.md and README.md run, and print what the page says."""
import contextlib
import importlib.util
import io
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = ["docs/python.md", "docs/serving.md", "docs/distributed.md", "README.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs/python").glob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.S | re.M)
UNCHECKED = re.compile(r"^<!-- unchecked:[^>]*-->\n```.*?^```$", re.S | re.M)


def sections(page):
    """[(heading, [(code, what it prints or None)])] of a page; of one in docs/python/ the whole, which reads on from top to bottom."""
    text = UNCHECKED.sub("", (ROOT / page).read_text(encoding="utf-8"))
    for part in [text] if page.startswith("docs/python/") else re.split(r"^## ", text, flags=re.M):
        blocks = BLOCK.findall(part)
        found = []
        for number, (language, code) in enumerate(blocks):
            after = blocks[number + 1] if number + 1 < len(blocks) else ("", "")
            if language == "python":
                found.append((code, after[1] if after[0] == "text" else None))
        if found:
            yield part.partition("\n")[0], found


ALL = [(page, heading, blocks) for page in PAGES for heading, blocks in sections(page)]


def test_there_are_examples():
    assert len(ALL) >= 4 and sum(len(blocks) for _, _, blocks in ALL) >= 8


@pytest.mark.parametrize("page, heading, blocks", ALL, ids=[f"{page}: {heading}" for page, heading, _ in ALL])
def test_examples(page, heading, blocks, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in set(re.findall(r"^(?:import|from) (\w+)", "\n".join(code for code, _ in blocks), re.M)):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"there is no {name}")
    space = {"__name__": "example"}
    if page == "docs/python.md":
        exec("import numpy as np\nimport libattn\n", space)  # what the first section imports
    for code, expected in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, f"{page}: {heading}", "exec"), space)
        if expected is not None:
            assert printed.getvalue() == expected, code
