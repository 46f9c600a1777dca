# SPDX-License-Identifier: MIT
"""Functions of Python that the library calls while it computes: scores of the caller's own, weights in ranges of rows."""
from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, Callable

import numpy as np
from numpy.typing import NDArray

from . import _abi, _arrays, _core


@dataclass(frozen=True)
class Tile:
    """A tile of queries and keys of one head, for modify_scores and modify_slopes (attn/modifier.h).

    modify_scores(tile) replaces tile.scores[i, j], the score of query first_q + i and key first_kv + j after scale and softcap, by a
    function f of it and of its indices alone; -inf masks the key.  modify_slopes(tile) writes the derivative of f to tile.slopes.
    Masked pairs are passed too.  Both are called by several threads, for any number of tiles in any order, each pair any number of
    times; an exception ends the call of libattn.  Arrays are memory of the library, valid until the function returns.
    """

    batch: int
    head: int
    first_q: int
    first_kv: int
    position: int  #: query first_q + i has the position of key position + i
    scores: NDArray[Any]  #: [queries, keys]
    slopes: NDArray[Any] | None  #: modify_slopes only
    gradients: NDArray[Any] | None  #: modify_slopes in backward only: of f(scores), 0 where the query does not see the key
    again: bool  #: these pairs were passed before in this call: sums over pairs must skip them


@dataclass(frozen=True)
class Rows:
    """Scores of rows_stage, or weights, of queries first, first + 1, ... of one head, for visit_rows.

    Each row of each head is passed in exactly one call, from several threads at once and in any order.
    """

    batch: int
    head: int
    first: int
    values: NDArray[Any]  #: [queries, keys]; memory of the library, valid until the function returns


def _matrix(address: int | None, dtype: int, rows: int, columns: int, row: int, column: int) -> NDArray[Any] | None:
    """The memory at an address, with steps between rows and columns in elements."""
    if not address:
        return None
    kind = _arrays.dtype_of(dtype)
    size = ((rows - 1) * row + (columns - 1) * column + 1) * kind.itemsize
    memory = (ctypes.c_char * size).from_address(address)
    return np.ndarray((rows, columns), kind, memory, strides=(row * kind.itemsize, column * kind.itemsize))


def _tile(t: Any) -> Tile:
    def matrix(address: int | None) -> NDArray[Any] | None:
        return _matrix(address, t.dtype, t.queries, t.keys, 1, t.stride)

    scores = matrix(t.scores)
    assert scores is not None
    return Tile(t.batch, t.head, t.first_q, t.first_kv, t.position, scores, matrix(t.slopes), matrix(t.gradients), bool(t.again))


def _rows(r: Any) -> Rows:
    values = _matrix(r.values, r.dtype, r.count, r.len_kv, r.stride, 1)
    assert values is not None
    values.flags.writeable = False
    return Rows(r.batch, r.head, r.first, values)


KINDS: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "modify_scores": (_abi.attn_modify_tile, _tile),
    "modify_slopes": (_abi.attn_modify_tile, _tile),
    "visit_rows": (_abi.attn_visit_rows, _rows),
}


def _called(kind: Any, view: Callable[[Any], Any], function: Callable[[Any], object], errors: list[BaseException]) -> Any:
    def callback(_context: Any, pointer: Any) -> None:
        if errors:
            return  # the result is lost anyway
        try:
            function(view(pointer.contents))
        except BaseException as error:  # it is raised again when the library returns
            errors.append(error)

    return kind(callback)


def compute(op: int, layout: str, more: dict[str, Any], names: tuple[str, ...], *values: Any) -> Any:
    """_core.compute, where `more` may have functions of Python."""
    if not any(more.get(name) is not None for name in KINDS):
        return _core.compute(op, layout, more, names, *values)
    errors: list[BaseException] = []
    more, alive = dict(more), []
    for name, (kind, view) in KINDS.items():
        if more.get(name) is None:
            continue
        if not callable(more[name]):
            raise TypeError(f"{name} must be a function, not {more[name]!r}")
        alive.append(_called(kind, view, more[name], errors))
        more[name] = ctypes.cast(alive[-1], ctypes.c_void_p).value
    results = _core.compute(op, layout, more, names, *values)
    if errors:
        raise errors[0]
    return results
