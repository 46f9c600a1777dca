# SPDX-License-Identifier: MIT
"""The library that was loaded, and errors of calls through ctypes."""
import ctypes
import os
import pathlib
import subprocess
import sys

import pytest

import libattn
from libattn import _abi, _native


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
