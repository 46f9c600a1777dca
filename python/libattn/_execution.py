# SPDX-License-Identifier: MIT
"""How to compute: the options that every function which plans or uses threads takes by keyword (attn_options)."""
from __future__ import annotations

import ctypes
from typing import Any, TypedDict

from . import _abi, _calls, _native
from ._arguments import integer
from ._calls import Isa


class Execution(TypedDict, total=False):
    """How to compute; results do not depend on it, but for the last bits where another isa rounds differently."""

    threads: int | None  #: how many may work at once, 1 to 1024; None: ATTN_THREADS, OMP_NUM_THREADS, or one for each CPU
    isa: Isa | None  #: exactly this instruction set, or NotImplementedError; None: the best that the CPU has (at most ATTN_ISA)
    invariant: bool  #: the same bits however queries are split into calls
    reproducible: bool  #: the same bits with AVX2, AVX-512 and NEON
    workspace_limit: int | None  #: bytes of temporary memory at most; for plans


NAMES = frozenset(Execution.__annotations__)


def execution(options: Execution) -> Any:
    """A pointer to the attn_options of these keywords; None where all are absent, so that C has its defaults.

    Raises TypeError or ValueError with the name of the option that is wrong.
    """
    if unknown := options.keys() - NAMES:
        raise TypeError(f"{sorted(unknown)[0]} is not an option; known: {', '.join(sorted(NAMES))}")
    made = _calls.options(
        options.get("threads"), options.get("isa"), options.get("invariant", False), options.get("reproducible", False)
    )
    limit = options.get("workspace_limit")
    if limit is not None:
        made = made or ctypes.pointer(_native.struct(_abi.attn_options))
        made.contents.workspace_limit = integer(limit, "workspace_limit", 1)
    return made
