# SPDX-License-Identifier: MIT
"""How to compute: the options that every function which plans or uses threads takes by keyword (attn_options)."""
from __future__ import annotations

import ctypes
import inspect
from typing import Any, TypedDict

from . import _abi, _calls, _native
from ._arguments import integer
from ._calls import Isa


class Execution(TypedDict, total=False):
    """How to compute; results do not depend on it, but for the last bits where another isa rounds differently.

    All have defaults:

     threads          an integer, 1 to 1024: how many may work at once; None: ATTN_THREADS, OMP_NUM_THREADS, or one for each CPU
     isa              "default", "scalar", "avx2", "avx512", "neon" or "wasm128": exactly this instruction set, or NotImplementedError; None: the
                      best that the CPU has (at most ATTN_ISA)
     invariant        a bool: the same bits however queries are split into calls
     reproducible     a bool: the same bits with AVX2, AVX-512 and NEON
     workspace_limit  an integer: bytes of temporary memory at most, for plans; None: no limit
    """

    threads: int | None
    isa: Isa | None
    invariant: bool
    reproducible: bool
    workspace_limit: int | None


def continued(doc: str | None, base: str | None) -> str | None:
    """The docstring of a dictionary with that of the one which it extends behind it, since `help` does not say what it has from there."""
    return f"{inspect.cleandoc(doc)}\n\n{inspect.cleandoc(base)}\n" if doc and base else doc  # (python -OO has none)


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
