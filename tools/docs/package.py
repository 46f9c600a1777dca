# SPDX-License-Identifier: MIT
"""Pages of the Python package: one for each public module, with every name of its __all__ and its docstring.

The sources are read, not imported, so that the site needs neither a build nor what a module imports.
"""
import ast
import inspect
import pathlib


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


def indented(text, by):
    return "".join(f"{' ' * by}{line}\n" if line.strip() else "\n" for line in text.splitlines())


def literal(text, by):
    return f"{' ' * by}.. code-block:: text\n\n{indented(text, by + 3)}\n" if text else ""


def fields(node, path):
    """The fields of a class, as they are declared."""
    lines = path.read_text(encoding="utf-8").splitlines()
    found = [lines[one.lineno - 1:one.end_lineno] for one in node.body if isinstance(one, ast.AnnAssign) and not one.target.id.startswith("_")]
    return inspect.cleandoc("\n" + "\n".join(line for block in found for line in block)) if found else ""


def described(module, name):
    """The entry of a name of __all__."""
    node = module.definition(name)
    if node is None:
        raise SystemExit(f"{module.path}: __all__ has {name}, which is defined nowhere")
    if isinstance(node, (ast.Assign, ast.AnnAssign)):
        return f".. py:data:: {name}\n\n{literal(ast.unparse(node), 3)}"
    doc = ast.get_docstring(node) or ""
    if not isinstance(node, ast.ClassDef):
        return f".. py:function:: {name}{signature(node)}\n\n{literal(doc, 3)}"
    made = next((one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"), None)
    text = f".. py:class:: {name}{signature(made, True) if made else ''}\n\n{literal(doc, 3)}"
    text += literal(fields(node, owner(module, name).path), 3)
    for one in node.body:
        if not isinstance(one, ast.FunctionDef) or one.name.startswith("_"):
            continue
        marks = {ast.unparse(mark).split(".")[-1] for mark in one.decorator_list}
        if marks & {"setter", "overload"}:
            continue
        kind = "property" if marks & {"property", "cached_property"} else "method"
        text += f"   .. py:{kind}:: {one.name}{'' if kind == 'property' else signature(one, 'staticmethod' not in marks)}\n\n"
        text += literal(ast.get_docstring(one) or "", 6)
    return text


def owner(module, name):
    """The module in which a name is defined."""
    for node in module.tree.body:
        if isinstance(node, ast.ImportFrom) and node.level and node.module:
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return owner(module.source(node), alias.name)
    return module


def page(module):
    """The page of a module, and the modules that its __all__ names."""
    names = sorted((name for name in module.public if not name.startswith("__")), key=str.lower)
    modules = [name for name in names if module.is_module(name) and module.definition(name) is None]
    title = module.full
    text = f"{title}\n{'=' * len(title)}\n\n.. py:module:: {title}\n\n{literal(ast.get_docstring(module.tree) or '', 0)}"
    return text + "\n".join(described(module, name) for name in names if name not in modules), modules


def pages(root):
    """{name of a module: its page} of the package in the folder root: also of modules that it does not import itself."""
    found, waiting = {}, [Module(root)]
    for path in sorted(root.iterdir()):
        name = path.stem if path.suffix == ".py" or (path / "__init__.py").exists() else "_"
        if not name.startswith("_"):
            waiting.append(Module(root, name))
    while waiting:
        module = waiting.pop(0)
        if module.full not in found:
            found[module.full], modules = page(module)
            waiting += [module.child(name) for name in modules]
    return dict(sorted(found.items()))


if __name__ == "__main__":  # lists the pages, to check this by hand
    for key, page in pages(pathlib.Path(__file__).resolve().parents[2] / "python/libattn").items():
        print(key, page.count(".. py:") - 1, "names")
