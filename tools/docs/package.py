# SPDX-License-Identifier: MIT
"""Pages of the Python package: one for each public module, with every name of its __all__ and its docstring.

The sources are read, not imported, so that the site needs neither a build nor what a module imports.  Docstrings have no markup for a
tool; they are read as the comments of headers are (headers.py), and a line of one space, a name and what it means is an item.
"""
import ast
import inspect
import pathlib
import re

import headers

ITEM = re.compile(r" (\S.*?) {2,}(\S.*)")
NAME = re.compile(r"\blibattn(?:\.\w+)+")


class Module:
    def __init__(self, root, name=""):
        self.root, self.name = root, name  # name: without the package, "" for the package itself
        path = root.joinpath(*name.split(".")) if name else root
        self.path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        self.tree = ast.parse(self.path.read_text(encoding="utf-8"))
        self.full = ".".join(["libattn", *filter(None, [name])])
        self.public = []
        for node in self.tree.body:
            if isinstance(node, ast.Assign) and [target.id for target in node.targets if isinstance(target, ast.Name)] == ["__all__"]:
                self.public = ast.literal_eval(node.value)

    def is_module(self, name):
        return (self.path.name == "__init__.py") and ((self.path.parent / f"{name}.py").exists() or (self.path.parent / name / "__init__.py").exists())

    def names(self):
        """The public names, in order."""
        return sorted((name for name in self.public if not name.startswith("__")), key=str.lower)

    def modules(self):
        """Those of them that are modules."""
        return [name for name in self.names() if self.is_module(name) and self.definition(name) is None]

    def child(self, name):
        return Module(self.root, ".".join(filter(None, [self.name, name])))

    def definition(self, name):
        """The statement that defines a name, here or where it is imported from within the package; None if there is none."""
        for node in self.tree.body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and node.name == name:
                return node
            targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
            if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                return node
            if isinstance(node, ast.ImportFrom) and node.level and node.module:  # (`from . import name` is a module)
                for alias in node.names:
                    if (alias.asname or alias.name) == name:
                        return self.source(node).definition(alias.name)
        return None

    def source(self, node):
        """The module that an import names."""
        folder = self.name.split(".") if self.name else []
        if self.path.name != "__init__.py":
            folder = folder[:-1]
        folder = folder[: len(folder) - node.level + 1]
        return Module(self.root, ".".join([*folder, *filter(None, [node.module])]))


def signature(node, method=False):
    """The parameters, without types: the docstring says what they are."""
    bare = ast.arguments(
        posonlyargs=[ast.arg(one.arg) for one in node.args.posonlyargs], args=[ast.arg(one.arg) for one in node.args.args],
        vararg=node.args.vararg and ast.arg(node.args.vararg.arg), kwonlyargs=[ast.arg(one.arg) for one in node.args.kwonlyargs],
        kw_defaults=node.args.kw_defaults, kwarg=node.args.kwarg and ast.arg(node.args.kwarg.arg), defaults=node.args.defaults)
    if method and bare.args:
        bare.args = bare.args[1:]
    return f"({ast.unparse(bare)})"


class Prose(headers.Text):
    """Writes docstrings as reStructuredText; `python` has the public names of the package."""

    def __init__(self, known, pages, python=()):
        super().__init__(known, pages)
        self.python = set(python)

    def inline(self, text, literal=False):
        out, at = [], 0
        for match in NAME.finditer(text):
            if match[0] in self.python and text[:match.start()].count("`") % 2 == 0:
                out += [super().inline(text[at:match.start()], literal), f"\\ :py:obj:`{match[0]}`\\ "]
                at = match.end()
        return "".join(out) + super().inline(text[at:], literal)

    def doc(self, text, by):
        """A docstring, indented."""
        lines = []
        for line in (text or "").split("\n"):
            item = ITEM.fullmatch(line)
            if item:
                line = f"- `{item[1]}`: {item[2]}"
            elif lines and lines[-1].startswith("- ") and re.match(r" {4}\s*\S", line) and "  " not in line.strip():
                lines[-1] += " " + line.strip()
                continue
            lines.append(line)
        return "".join(f"{line}\n" for line in self.write("\n".join(lines), " " * by)) + "\n"


def indented(text, by):
    return "".join(f"{' ' * by}{line}\n" if line.strip() else "\n" for line in text.splitlines())


def literal(text, by):
    return f"{' ' * by}.. code-block:: none\n\n{indented(text, by + 3)}\n" if text else ""


def fields(node, path):
    """The fields of a class, as they are declared."""
    lines = path.read_text(encoding="utf-8").splitlines()
    found = [lines[one.lineno - 1:one.end_lineno] for one in node.body if isinstance(one, ast.AnnAssign) and not one.target.id.startswith("_")]
    return inspect.cleandoc("\n" + "\n".join(line for block in found for line in block)) if found else ""


def described(module, name, prose):
    """The entry of a name of __all__."""
    node = module.definition(name)
    if node is None:
        raise SystemExit(f"{module.path}: __all__ has {name}, which is defined nowhere")
    if isinstance(node, (ast.Assign, ast.AnnAssign)):
        return f".. py:data:: {name}\n\n{literal(ast.unparse(node), 3)}"
    doc = ast.get_docstring(node) or ""
    if not isinstance(node, ast.ClassDef):
        return f".. py:function:: {name}{signature(node)}\n\n{prose.doc(doc, 3)}"
    made = next((one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"), None)
    text = f".. py:class:: {name}{signature(made, True) if made else ''}\n\n{prose.doc(doc, 3)}"
    text += literal(fields(node, owner(module, name).path), 3)
    for one in node.body:
        if not isinstance(one, ast.FunctionDef) or one.name.startswith("_"):
            continue
        marks = {ast.unparse(mark).split(".")[-1] for mark in one.decorator_list}
        if marks & {"setter", "overload"}:
            continue
        kind = "property" if marks & {"property", "cached_property"} else "method"
        text += f"   .. py:{kind}:: {one.name}{'' if kind == 'property' else signature(one, 'staticmethod' not in marks)}\n\n"
        text += prose.doc(ast.get_docstring(one), 6)
    return text


def owner(module, name):
    """The module in which a name is defined."""
    for node in module.tree.body:
        if isinstance(node, ast.ImportFrom) and node.level and node.module:
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return owner(module.source(node), alias.name)
    return module


def page(module, prose):
    """The page of a module."""
    title, names = module.full, [name for name in module.names() if name not in module.modules()]
    text = f"{title}\n{'=' * len(title)}\n\n.. py:module:: {title}\n\n{prose.doc(ast.get_docstring(module.tree), 0)}"
    return text + "\n".join(described(module, name, prose) for name in names)


def pages(root, known, documents):
    """{name of a module: its page} of the package in the folder root: also of modules that it does not import itself.  `known` and
    `documents` are what can be linked beside them (headers.Text)."""
    found, waiting = {}, [Module(root)]
    for path in sorted(root.iterdir()):
        name = path.stem if path.suffix == ".py" or (path / "__init__.py").exists() else "_"
        if not name.startswith("_"):
            waiting.append(Module(root, name))
    while waiting:
        module = waiting.pop(0)
        if module.full not in found:
            found[module.full] = module
            waiting += [module.child(name) for name in module.modules()]
    prose = Prose(known, documents, (f"{module.full}.{name}" for module in found.values() for name in module.names()))
    return {name: page(module, prose) for name, module in sorted(found.items())}


if __name__ == "__main__":  # lists the pages, to check this by hand
    for key, text in pages(pathlib.Path(__file__).resolve().parents[2] / "python/libattn", {}, {}).items():
        print(key, text.count(".. py:") - 1, "names")
