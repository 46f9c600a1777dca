# SPDX-License-Identifier: MIT
"""How to compute: attn_options of keyword arguments."""
from __future__ import annotations

import ctypes
from typing import Any, Literal

from . import _abi, _native
from ._arguments import choice, integer

Isa = Literal["scalar", "avx2", "avx512", "neon", "wasm128"]

ISAS: dict[str, int] = {"scalar": _abi.ATTN_ISA_SCALAR, "avx2": _abi.ATTN_ISA_AVX2, "avx512": _abi.ATTN_ISA_AVX512, "neon": _abi.ATTN_ISA_NEON,
                         "wasm128": _abi.ATTN_ISA_WASM128}
MAX_THREADS = 1024


def options(threads: int | None, isa: str | None = None, invariant: bool = False, reproducible: bool = False) -> Any:
    """A pointer to attn_options, or None where all are the defaults."""
    if threads is None and isa is None and not invariant and not reproducible:
        return None
    made = _native.struct(_abi.attn_options, invariant=int(bool(invariant)), reproducible=int(bool(reproducible)))
    if threads is not None:
        made.threads = integer(threads, "threads", 1, MAX_THREADS)
    if isa is not None:
        made.isa = choice(isa, "isa", ISAS)
    return ctypes.pointer(made)
