#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs the notebooks of examples/notebooks, and compares what their cells show with what is in the files.

Usage: notebooks.py [--write] FILE...        with the package on the path, as for `python -m libattn`

A cell is plain Python: no magics.  It shows what it prints, and the value of its last line: a picture as SVG, anything else by its
repr.  --write puts this into the file; of a cell with the tag "varies" nothing is kept (times, for example).  Pictures are compared by
whether there is one, not by their bytes, which depend on the CPU; pages of libattn.view are kept as their repr.  This needs no Jupyter,
whose kernel is 33 packages and 106 MB.
"""
import ast
import contextlib
import io
import json
import os
import pathlib
import sys


def load(path):
    return json.loads(pathlib.Path(path).read_text(encoding="utf-8"))


def text_of(cell):
    return "".join(cell["source"])


def shown(value):
    """The output of a value, as a notebook has it."""
    data = {"text/plain": lines(repr(value))}
    if hasattr(value, "_repr_svg_"):
        data = {"image/svg+xml": lines(value._repr_svg_()), **data}
    return {"data": data, "execution_count": None, "metadata": {}, "output_type": "execute_result"}


def lines(text):
    return text.splitlines(keepends=True)


def run_cell(source, name, space):
    """What a cell shows, as a list of outputs."""
    tree, value, printed = ast.parse(source, name), None, io.StringIO()
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) and not source.rstrip().endswith(";") else None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, name, "exec"), space)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), name, "eval"), space)
    outputs = [{"name": "stdout", "output_type": "stream", "text": lines(printed.getvalue())}] if printed.getvalue() else []
    return outputs + ([] if value is None else [shown(value)])


def run(path):
    """[(cell, what it shows)] of the cells of code, run in order in the folder of the notebook."""
    path = pathlib.Path(path).resolve()
    space, found, before = {"__name__": "__main__"}, [], os.getcwd()
    os.chdir(path.parent)
    try:
        for number, cell in enumerate(load(path)["cells"]):
            if cell["cell_type"] == "code":
                found.append((cell, run_cell(text_of(cell), f"{path.name}, cell {number}", space)))
    finally:
        os.chdir(before)
    return found


def varies(cell):
    return "varies" in cell["metadata"].get("tags", [])


def compared(outputs):
    """Outputs as they are compared: texts, and whether there is a picture."""
    found = []
    for one in outputs:
        if one["output_type"] == "stream":
            found.append("".join(one["text"]))
        else:
            found.append("a picture" if "image/svg+xml" in one["data"] else "".join(one["data"]["text/plain"]))
    return found


def differences(path):
    """Where the cells now show something else than the file has, as text; empty: nowhere."""
    found = []
    for cell, outputs in run(path):
        if not varies(cell) and compared(outputs) != compared(cell["outputs"]):
            found.append(f"{text_of(cell)}\n--- in the file\n{compared(cell['outputs'])}\n--- now\n{compared(outputs)}\n")
    return "\n".join(found)


def write(path):
    notebook = load(path)
    made = iter(run(path))
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            outputs = next(made)[1]
            cell["outputs"], cell["execution_count"] = [] if varies(cell) else outputs, None
    pathlib.Path(path).write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def page(path, put_picture):
    """The notebook as Markdown; put_picture(number, svg) stores a picture and returns its address."""
    parts, count = [], 0
    for cell in load(path)["cells"]:
        if cell["cell_type"] == "markdown":
            parts.append(text_of(cell))
            continue
        parts.append(f"```python\n{text_of(cell)}\n```")
        for one in cell["outputs"]:
            if "image/svg+xml" in one.get("data", {}):
                count += 1
                parts.append(f"![What the cell above shows]({put_picture(count, ''.join(one['data']['image/svg+xml']))})")
            else:
                text = "".join(one["text"] if one["output_type"] == "stream" else one["data"]["text/plain"]).rstrip("\n")
                parts.append(f"```text\n{text}\n```")
    return "\n\n".join(parts) + "\n"


def main():
    words = sys.argv[1:]
    if not [word for word in words if word != "--write"]:
        print(__doc__, file=sys.stderr)
        return 2
    wrong = ""
    for path in words:
        if "--write" in words and path != "--write":
            write(path)
        elif path != "--write":
            wrong += differences(path)
    print(wrong, end="")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
