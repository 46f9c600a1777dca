# SPDX-License-Identifier: MIT
"""The notebooks of examples/notebooks run, show what is in their files, and become pages (tools/notebooks.py)."""
import importlib.util
import json
import re

import pytest

from libattn import _command
from problems import ROOT

spec = importlib.util.spec_from_file_location("notebooks", ROOT / "tools/notebooks.py")
notebooks = importlib.util.module_from_spec(spec)
spec.loader.exec_module(notebooks)

FILES = sorted((ROOT / "examples/notebooks").glob("*.ipynb"))
SOURCES = {path: "".join(notebooks.text_of(cell) + "\n" for cell in notebooks.load(path)["cells"] if cell["cell_type"] == "code") for path in FILES}
SLOW = [pytest.param(path, marks=pytest.mark.slow) if "import torch" in source else path for path, source in SOURCES.items()]


@pytest.mark.parametrize("path", SLOW, ids=lambda path: path.stem)
def test_a_notebook(path):
    if _command.find() is None:
        pytest.skip("the package has no command")
    for name in set(re.findall(r"^(?:import|from) (\w+)", SOURCES[path], re.M)):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"there is no {name}")
    assert notebooks.differences(path) == ""


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_what_jupyter_expects(path):
    notebook = notebooks.load(path)
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(set(ids)) == len(ids) and all(re.fullmatch(r"[\w-]{1,64}", one) for one in ids)
    for cell in notebook["cells"]:
        assert set(cell) == ({"cell_type", "id", "metadata", "source"} | ({"execution_count", "outputs"} if cell["cell_type"] == "code" else set()))
    first = notebook["cells"][0]
    assert first["cell_type"] == "markdown" and notebooks.text_of(first).startswith("# ")


def made(tmp_path, *cells):
    path = tmp_path / "made.ipynb"
    code = [{"cell_type": "code", "source": text.splitlines(keepends=True), "metadata": {"tags": tags}, "outputs": []} for text, tags in cells]
    path.write_text(json.dumps({"cells": code}))
    return path


def test_the_tool(tmp_path):
    """What it writes is what it then finds, and another result is a difference."""
    (tmp_path / "number").write_text("1")
    read = "print(open('number').read())\nopen('number').read() * 2"
    path = made(tmp_path, ("class Drawn:\n    def _repr_svg_(self): return '<svg/>'\nDrawn()", []), (read, []), ("import time\ntime.time()", ["varies"]), ("3;", []))
    notebooks.write(path)
    assert notebooks.differences(path) == ""
    cells = notebooks.load(path)["cells"]
    assert [notebooks.compared(cell["outputs"]) for cell in cells] == [["a picture"], ["1\n", "'11'"], [], []]
    text = notebooks.page(path, lambda number, svg: f"{number}{len(svg)}.svg")
    assert "](16.svg)" in text and "```text\n1\n```\n\n```text\n'11'\n```" in text
    (tmp_path / "number").write_text("2")
    assert "--- in the file\n['1\\n', \"'11'\"]\n--- now\n['2\\n', \"'22'\"]" in notebooks.differences(path)
