# SPDX-License-Identifier: MIT
"""The library and the machine."""
from __future__ import annotations

import ctypes
from dataclasses import dataclass

from . import _abi, _native


def version() -> str:
    """The version of the C library, "MAJOR.MINOR.PATCH"."""
    return _native.call("attn_version").decode()


@dataclass(frozen=True)
class Cpu:
    """The CPU as the library sees it (attn_cpu_description)."""

    name: str
    features: tuple[str, ...]  #: those that the operating system enables: "avx2", "fma", ...
    isa: str  #: the best instruction set that it has kernels for: "scalar", "avx2", "avx512", "neon" or "wasm128"
    threads: int  #: what threads=None means now
    cache_l1d: int  #: bytes; 0 if unknown
    cache_l2: int
    cache_l3: int


def cpu() -> Cpu:
    """The CPU, its features and caches, and how many threads a call uses by default.

    Raises ValueError if the environment's ATTN_THREADS is not a number of threads.
    """
    found = _native.struct(_abi.attn_cpu_description)
    _native.call("attn_cpu_describe", ctypes.byref(found))
    return Cpu(
        found.name.decode(), tuple(found.features.decode().split()), _native.call("attn_isa_name", found.isa).decode(), found.threads,
        found.cache_l1d, found.cache_l2, found.cache_l3,
    )
