# SPDX-License-Identifier: MIT
"""Every function of the C library has a way to it from Python: a public name that calls it, or a reason why none is needed."""
import ast
import pathlib
import re
import types

import pytest

import libattn
from libattn import _abi

FOLDER = pathlib.Path(libattn.__file__).parent

# No Python name calls these, since
WITHOUT = {
    "attn_archive_allocate": "Archive.allocate lets NumPy do it, and attn_archive_add lends the array",
    "attn_archive_remove": "del archive[name] makes the archive anew, so that arrays over its memory stay valid",
    "attn_archive_write_watched": "signals become exceptions when a write has returned; no handler runs in its middle",
    "attn_compute": "attention keeps plans, or makes one, and executes them",
    "attn_file_write_watched": "as attn_archive_write_watched",
    "attn_options_resolve": "a kept plan has its options resolved",
    "attn_unfinished_remove": "as attn_archive_write_watched",
}

# Still to come: each leaves this set with the commit that calls it.
NOT_YET = {
    "attn_bilinear_attention", "attn_decompose", "attn_gradient_flow", "attn_latent_backward", "attn_latent_count", "attn_latent_decode",
    "attn_latent_forward", "attn_latent_initialise", "attn_latent_load", "attn_latent_store", "attn_layer_backward", "attn_layer_count",
    "attn_layer_decode", "attn_layer_forward", "attn_layer_group_heads", "attn_layer_initialise", "attn_layer_load", "attn_layer_store",
    "attn_seq2seq_backward", "attn_seq2seq_count", "attn_seq2seq_forward", "attn_seq2seq_initialise", "attn_seq2seq_load",
    "attn_seq2seq_remember", "attn_seq2seq_step", "attn_seq2seq_store", "attn_verify_gradients",
}


def of_c():
    """Names of C functions in the sources of the extensions, which call them directly."""
    root = pathlib.Path(__file__).resolve().parents[1]
    text = "".join(path.read_text(encoding="utf-8") for path in sorted(root.glob("*/*.c")))
    return set(re.findall(r"\b(attn_\w+)\(", text)) & _abi.FUNCTIONS.keys()


class Definition:
    """A function, a class or a constant of a module: its name, the strings that name C functions, and the names that it mentions."""

    def __init__(self, module, names, node):
        self.module, self.names = module, names
        walked = list(ast.walk(node))
        texts = {one.value for one in walked if isinstance(one, ast.Constant) and isinstance(one.value, str)}
        self.calls = texts & _abi.FUNCTIONS.keys()
        self.mentions = {getattr(one, "id", getattr(one, "attr", None)) for one in walked if isinstance(one, (ast.Name, ast.Attribute))}

    @property
    def public(self):
        """The names by which users reach it, "linear.attention"."""
        return {
            f"{module.__name__}.{name}".removeprefix("libattn.") for module in MODULES for name in self.names
            if name in module.__all__ and getattr(getattr(module, name), "__module__", "") == f"libattn.{self.module}"
        }


MODULES = [libattn, *(one for one in map(libattn.__dict__.get, libattn.__all__) if isinstance(one, types.ModuleType))]


def definitions():
    for path in sorted(FOLDER.rglob("*.py")):
        module = ".".join(path.relative_to(FOLDER).with_suffix("").parts)
        for node in ast.parse(path.read_text(encoding="utf-8")).body if path.name != "_abi.py" else []:
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
        known = {called for one in edge for called in one.names}
        edge = [one for one in ALL if id(one) not in reached and one.mentions & known]
    return {public for one in ALL if id(one) in reached for public in one.public}


def test_all_have_a_caller():
    missing = sorted(_abi.FUNCTIONS.keys() - CALLED - DIRECT - WITHOUT.keys() - NOT_YET)
    assert not missing, f"no Python function calls {', '.join(missing)}"


def test_exceptions_are_functions():
    unknown = sorted((WITHOUT.keys() | NOT_YET) - _abi.FUNCTIONS.keys())
    assert not unknown, f"{', '.join(unknown)} is no function of the headers: remove it here"


def test_exceptions_have_no_caller():
    settled = sorted((WITHOUT.keys() | NOT_YET) & (CALLED | DIRECT))
    assert not settled, f"{', '.join(settled)} is called now: remove it from WITHOUT or NOT_YET"


@pytest.mark.parametrize("name", sorted(CALLED))
def test_users_reach_the_caller(name):
    assert offered(name), f"only private code calls {name}"


@pytest.mark.parametrize("name, by", [
    ("attn_merge", "merge"), ("attn_rope_apply", "positions.Rope"), ("attn_linear_plan_destroy", "linear.Plan"),
    ("attn_pattern_set_apply", "masks.PatternSet"), ("attn_quantise", "cache.quantise"), ("attn_cpu_describe", "cpu"),
])
def test_names_that_are_found(name, by):
    assert by in offered(name)


def test_nothing_leads_to_what_nobody_calls():
    assert not offered("attn_compute_") and "merge" not in offered("attn_quantise")


def test_public_names_have_docstrings():
    for module in MODULES:
        for name in module.__all__:
            assert (getattr(module, name).__doc__ or "").strip(), f"{module.__name__}.{name} has no docstring"
