# SPDX-License-Identifier: MIT
"""Every function of the C library has a way to it from Python: a public name that calls it, or a reason why none is needed."""
import ast
import pathlib
import re
import types
import typing

import pytest

import libattn
from libattn import _abi

FOLDER = pathlib.Path(libattn.__file__).parent

# No Python name calls these, since
WITHOUT = {
    "attn_archive_allocate": "Archive.allocate lets NumPy do it, and attn_archive_add lends the array",
    "attn_metadata_list_create": "json.loads(archive.metadata[key]) is the list",
    "attn_metadata_list_destroy": "as attn_metadata_list_create",
    "attn_archive_remove": "del archive[name] makes the archive anew, so that arrays over its memory stay valid",
    "attn_archive_write_watched": "signals become exceptions when a write has returned; no handler runs in its middle",
    "attn_bilinear_attention": "bilinear.bilinear_attention is attention with the score and the scale that it sets",
    "attn_compute": "attention keeps plans, or makes one, and executes them",
    "attn_distributed_gather": "distributed.unshard gives the whole to all ranks",
    "attn_distributed_scatter": "distributed.shard cuts what each rank has, and Python's message systems scatter objects",
    "attn_dlpack_input": "arrays with DLPack are arguments of every function",
    "attn_dlpack_output": "as attn_dlpack_input",
    "attn_execute_worker": "threads of Python cannot meet in a barrier of C",
    "attn_file_write_watched": "as attn_archive_write_watched",
    "attn_unfinished_remove": "as attn_archive_write_watched",
}

# Still to come: each leaves this set with the commit that calls it.
NOT_YET: set[str] = set()


def of_c():
    """Names of C functions in the sources of the extensions, which call them directly."""
    root = pathlib.Path(__file__).resolve().parents[1]
    text = "".join(path.read_text(encoding="utf-8") for path in sorted(root.glob("*/*.c")))
    return set(re.findall(r"\b(attn_\w+)\(", text)) & _abi.FUNCTIONS.keys()


class Module:
    """A source of the package: its definitions, its strings but for those of __all__, and what its names stand for."""

    def __init__(self, path):
        self.name = ".".join(path.relative_to(FOLDER).with_suffix("").parts).removesuffix(".__init__")
        self.tree = ast.parse(path.read_text(encoding="utf-8"))
        listed = [node for node in self.tree.body if getattr(getattr(node, "targets", [None])[0], "id", "") == "__all__"]
        left_out = {id(one) for node in listed for one in ast.walk(node)}
        constants = [one for one in ast.walk(self.tree) if isinstance(one, ast.Constant) and id(one) not in left_out]
        self.strings = {one.value for one in constants if isinstance(one.value, str)}
        self.imported = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and node.level:
                for one in node.names:
                    self.imported[one.asname or one.name] = (node.module, one.name) if node.module else (one.name, None)

    def meaning(self, node):
        """(module, name) that an expression stands for: name, or module.name."""
        if isinstance(node, ast.Name):
            return self.imported.get(node.id, (self.name, node.id))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module, name = self.imported.get(node.value.id, (None, ""))
            return (module, node.attr) if name is None else None
        return None


class Definition:
    """A function, a class or a constant of a module: its names, the C functions whose names it has in strings, and what it mentions."""

    def __init__(self, module, names, node):
        self.module, self.names = module.name, names
        walked = list(ast.walk(node))
        texts = {one.value for one in walked if isinstance(one, ast.Constant) and isinstance(one.value, str)}
        self.calls = texts & _abi.FUNCTIONS.keys()
        for one in walked:
            if isinstance(one, ast.JoinedStr) and getattr(one.values[0], "value", "") == "attn_":
                self.calls = self.calls | set(put_together(one, module))
        self.mentions = {module.meaning(one) for one in walked}

    @property
    def public(self):
        """The names by which users reach it, "linear.attention"."""
        return {
            f"{module.__name__}.{name}".removeprefix("libattn.") for module in MODULES for name in self.names
            if name in module.__all__ and getattr(getattr(module, name), "__module__", "") == f"libattn.{self.module}"
        }


MODULES = [libattn, *(one for one in map(libattn.__dict__.get, libattn.__all__) if isinstance(one, types.ModuleType))]
SOURCES = [Module(path) for path in sorted(FOLDER.rglob("*.py")) if path.name != "_abi.py"]


def put_together(joined, module):
    """The functions that f"attn_{kind}_{what}" may name: its parts are strings of the module, or of those that import it."""
    near = [one for one in SOURCES if one is module or any(source == module.name for source, _ in one.imported.values())]
    strings = set().union(*(one.strings for one in near))
    parts = [re.escape(part.value) if isinstance(part, ast.Constant) else r"(\w+)" for part in joined.values]
    for name in _abi.FUNCTIONS:
        found = re.fullmatch("".join(parts), name)
        if found and set(found.groups()) <= strings:
            yield name


def definitions():
    for module in SOURCES:
        for node in module.tree.body:
            names = [getattr(node, "name", None)] if hasattr(node, "name") else [
                target.id for target in getattr(node, "targets", [getattr(node, "target", None)]) if isinstance(target, ast.Name)
            ]
            if names:
                yield Definition(module, names, node)


ALL = list(definitions())
CALLED = {name for one in ALL for name in one.calls}
DIRECT = of_c()


def offered(name):
    """The public names that lead to a C function: of its callers, of what mentions these, and so on."""
    reached, edge = set(), [one for one in ALL if name in one.calls]
    while edge:
        reached |= {id(one) for one in edge}
        known = {(one.module, called) for one in edge for called in one.names}
        edge = [one for one in ALL if id(one) not in reached and one.mentions & known]
    return {public for one in ALL if id(one) in reached for public in one.public}


def test_all_have_a_caller():
    missing = sorted(_abi.FUNCTIONS.keys() - CALLED - DIRECT - WITHOUT.keys() - NOT_YET)
    assert not missing, f"no Python function calls {', '.join(missing)}: write one (docs/python.md), or give the reason in WITHOUT"


def test_exceptions_are_functions():
    unknown = sorted((WITHOUT.keys() | NOT_YET) - _abi.FUNCTIONS.keys())
    assert not unknown, f"{', '.join(unknown)} is not a function of the headers: remove it here"


def test_exceptions_have_no_caller():
    settled = sorted((WITHOUT.keys() | NOT_YET) & (CALLED | DIRECT))
    assert not settled, f"{', '.join(settled)} is called now: remove it from WITHOUT or NOT_YET"


@pytest.mark.parametrize("name", sorted(CALLED - DIRECT))
def test_users_reach_the_caller(name):
    assert offered(name), (
        f"no public function of libattn leads to {name}: give one to users (in __all__ of its module, docs/python.md), or, if none is meant, "
        "do not call it")


@pytest.mark.parametrize("name, by", [
    ("attn_merge", "merge"), ("attn_rope_apply", "positions.Rope"), ("attn_linear_plan_destroy", "linear.Plan"),
    ("attn_pattern_set_apply", "masks.PatternSet"), ("attn_quantise", "cache.quantise"), ("attn_cpu_describe", "cpu"),
    ("attn_schedule_item", "Schedule"),
])
def test_names_that_are_found(name, by):
    assert by in offered(name)


def test_nothing_leads_to_what_nobody_calls():
    assert not offered("attn_compute") and offered("attn_quantise") == {"cache.quantise"}


def test_public_names_have_docstrings():
    for module in MODULES:
        for name in module.__all__:
            if typing.get_origin(getattr(module, name)) is not None:  # a Literal
                continue
            assert (getattr(module, name).__doc__ or "").strip(), f"{module.__name__}.{name} has no docstring"
