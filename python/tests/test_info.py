# SPDX-License-Identifier: MIT
"""The library that was loaded, and errors of calls through ctypes."""
import ctypes
import inspect
import os
import pathlib
import pydoc
import re
import subprocess
import sys
import typing

import pytest

import libattn
from libattn import _abi, _calls, _execution, _native, _options


def test_version():
    parts = libattn.version().split(".")
    assert len(parts) == 3 and all(part.isdigit() for part in parts)


def test_sources_that_are_not_built_say_so():
    sources = pathlib.Path(__file__).resolve().parents[1]
    found = subprocess.run([sys.executable, "-c", "import libattn"], capture_output=True, text=True, check=False,
                           env={**os.environ, "PYTHONPATH": str(sources)})
    assert found.returncode == 1 and f"ImportError: libattn is not built in {sources / 'libattn'}: run `pip install .`" in found.stderr


def test_cpu(monkeypatch):
    found = libattn.cpu()
    assert found.isa in ("scalar", "avx2", "avx512", "neon", "wasm128") and found.threads >= 1
    monkeypatch.setenv("ATTN_THREADS", "none")
    with pytest.raises(ValueError, match="ATTN_THREADS"):
        libattn.cpu()


def test_every_instruction_set_has_its_name():
    sets = {name.removeprefix("ATTN_ISA_").lower(): value for name, value in vars(_abi).items() if name.startswith("ATTN_ISA_")}
    assert typing.get_args(_options.Isa) == tuple(sets) and {"default": 0, **_calls.ISAS} == sets
    assert typing.get_args(_calls.Isa) == tuple(_calls.ISAS)
    with pytest.raises(ValueError, match="isa is 'mmx'; known: " + " ".join(sets) + "$"):
        libattn.attention([[1.0]], [[1.0]], [[1.0]], isa="mmx")  # of python/core/fields.c


def test_every_function_is_exported():
    for name in _abi.FUNCTIONS:
        assert _native.function(name)


@pytest.mark.parametrize("status", sorted(_native.EXCEPTIONS))
def test_a_status_is_an_exception(status):
    assert isinstance(_native.exception(status, "what is wrong"), Exception)


def test_an_error_is_the_library_s_sentence():
    found = _abi.attn_cpu_description(struct_size=8)
    with pytest.raises(ValueError, match="struct_size"):
        _native.call("attn_cpu_describe", ctypes.byref(found))


def entries(doc):
    """{name: its text} of the lists in a docstring, as help shows it."""
    found, name = {}, None
    for line in inspect.cleandoc(doc).splitlines():
        entry = re.fullmatch(r" (\w+(?:, \w+)*) +(\S.*)", line)
        if entry:
            name = entry[1]
            assert name not in found, name
            found[name] = entry[2]
        elif name and re.match(r" {8}", line):
            found[name] += " " + line.strip()
        else:
            name = None
    return found


@pytest.mark.parametrize("kind", [_execution.Execution, libattn.linear.Options])
def test_help_lists_how_to_compute(kind):
    found = entries(kind.__doc__)
    assert found.keys() == kind.__annotations__.keys()
    for name, hint in typing.get_type_hints(kind).items():
        of = [typing.get_args(one) for one in (hint, *typing.get_args(hint)) if typing.get_origin(one) is typing.Literal]
        assert all(f'"{value}"' in found[name] for values in of for value in values), name
        assert ("None:" in found[name]) == (type(None) in typing.get_args(hint)), name


@pytest.mark.parametrize("kind", [libattn.Options, libattn.ForwardOptions])
def test_help_lists_every_option(kind):
    """With its type: an array by its axes, a text by what it may be."""
    found, hints = entries(kind.__doc__), typing.get_type_hints(kind)
    assert found.keys() == hints.keys() == kind.__annotations__.keys()
    shown = pydoc.plain(pydoc.render_doc(kind))
    words = {int: "an integer", bool: "a bool", float: "a number", bool | int: "a bool"}
    for name, hint in hints.items():
        text = found[name]
        assert f" {name} " in shown and text.split(";")[0][:40] in shown, name
        if typing.get_origin(hint) is typing.Literal:
            listed = re.match(r'(?:"[\w-]+"(?:, | or )?)+', text)
            assert listed and set(typing.get_args(hint)) == set(re.findall(r'"([\w-]+)"', listed[0])), name
        elif hint is typing.Any:
            assert re.match(r"\[.*\] of \w+", text), name
        elif hint in words:
            assert text.startswith(words[hint]), name
        else:
            kinds = {"modify_scores": "Tile", "modify_slopes": "Tile", "visit_rows": "Rows", "schedule": "Schedule", "outputs": "names", "origin": "five integers"}
            assert kinds[name] in text, name


def test_help_says_where_the_other_options_are():
    found = entries(libattn.Problem.__doc__)
    elsewhere = set(re.findall(r"\w+", libattn.attention.__doc__)) | entries(libattn.ForwardOptions.__doc__).keys()
    assert libattn.Problem.__annotations__.keys() - found.keys() - elsewhere == set()
    assert "libattn.attention" in libattn.Problem.__doc__ and "libattn.ForwardOptions" in libattn.Problem.__doc__


def test_without_docstrings():
    subprocess.run([sys.executable, "-OO", "-c", "import libattn; assert libattn.ForwardOptions.__doc__ is None"], check=True)
