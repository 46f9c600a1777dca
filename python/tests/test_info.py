# SPDX-License-Identifier: MIT
"""The library that was loaded, and errors of calls through ctypes."""
import ctypes
import os
import pathlib
import subprocess
import sys
import typing

import pytest

import libattn
from libattn import _abi, _calls, _native, _options


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
    assert found.isa in ("scalar", "avx2", "avx512", "neon") and found.threads >= 1
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
