# SPDX-License-Identifier: MIT
"""What ranks tell each other before a call: whether one of them has been asked something wrong, how many rows each has, and what for.

Every error that Python finds is found here by all ranks, so that none waits for messages of one that has raised; what the library
finds, it tells the other ranks itself.
"""
from __future__ import annotations

import json
import zlib
from typing import Any, Callable, TypeVar

import numpy as np

from ._transport import Transport, messages

TAG = 16  # the library has tags below
FRAME = 1024  # bytes of what a rank says
KINDS: tuple[type[Exception], ...] = (ValueError, TypeError, NotImplementedError, MemoryError, OSError, RuntimeError)
Found = TypeVar("Found")


def _frame(said: dict[str, Any]) -> bytes:
    asked = json.dumps(said.get("asked", {}))
    if len(asked) > FRAME - 200:  # too many keywords to name the one that differs
        said = {**said, "asked": {"checksum of what is asked": str(zlib.crc32(asked.encode()))}}
    text = json.dumps(said, separators=(",", ":")).encode()
    if len(text) > FRAME:
        kind, sentence = said["error"]
        return _frame({**said, "error": [kind, sentence[:len(sentence) // 2] + " ..."]})
    return text.ljust(FRAME)


def gather(transport: Transport, said: dict[str, Any]) -> list[dict[str, Any]]:
    """What all ranks say, in the order of the ranks: in log2 of their number messages (Bruck et al. 1997)."""
    ranks, rank, mine = transport.ranks, transport.rank, messages(transport)
    mine.check()
    heard = np.frombuffer(_frame(said), np.uint8).copy()  # of this rank, the next one, ...
    while (have := heard.size // FRAME) < ranks:
        count = min(have, ranks - have)
        more = np.empty(count * FRAME, np.uint8)
        with mine.failing("the ranks cannot agree", more, heard):
            mine.finish([mine.begin(False, (rank + have) % ranks, TAG, more), mine.begin(True, (rank - have) % ranks, TAG, heard[:count * FRAME])])
        heard = np.concatenate([heard, more])
    with mine.failing("the ranks cannot agree"):
        mine.settle()
    return [json.loads(heard[(n - rank) % ranks * FRAME:][:FRAME].tobytes()) for n in range(ranks)]


def together(transport: Transport, function: Callable[[], Found], says: Callable[[Found], dict[str, Any]]) -> tuple[Found, list[dict[str, Any]]]:
    """function() of this rank, and says(what it returned) of all ranks.  If it raises on one rank, all raise the same: what the lowest
    such rank has raised, as one of KINDS."""
    error: Exception | None = None
    found: Any = None
    try:
        found = function()
        said = says(found)
    except Exception as raised:
        error = raised
        kind = next((n for n, kind in enumerate(KINDS) if isinstance(raised, kind)), len(KINDS) - 1)
        said = {"error": [kind, str(raised) if isinstance(raised, KINDS) else f"{type(raised).__name__}: {raised}"]}
    all_said = gather(transport, said)
    for rank, one in enumerate(all_said):
        if "error" in one:
            kind, sentence = one["error"]
            if rank == transport.rank and type(error) is KINDS[kind] and str(error) == sentence:
                raise error
            raise KINDS[kind](sentence) from error
    return found, all_said


def same(all_said: list[dict[str, Any]]) -> None:
    """Raises ValueError if ranks were asked different things."""
    first = all_said[0].get("asked", {})
    for rank, one in enumerate(all_said):
        other = one.get("asked", {})
        for name in sorted({*first, *other}):
            if first.get(name) != other.get(name):
                here, there = (f"{name}={asked[name]}" if name in asked else f"no {name}" for asked in (first, other))
                raise ValueError(f"ranks disagree: rank 0 has {here}, and rank {rank} has {there}")
