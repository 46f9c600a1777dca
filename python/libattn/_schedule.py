# SPDX-License-Identifier: MIT
"""Schedules: the work of one step of a batch, cut and ordered once, for all layers.  (The header attn/schedule.h.)"""
from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, NamedTuple, Sequence

import numpy as np

from . import _abi, _core, _native
from ._arguments import integer
from ._arrays import Array
from ._dlpack import capsule_pointer
from ._slots import integers

MOST = 2**31 - 1  # of an int


class Prefix(NamedTuple):
    """Batch entries first to first + count - 1 begin with the same `keys` keys and values, in the same pages: a system prompt."""

    first: int
    count: int
    keys: int


@dataclass(frozen=True)
class ScheduleDescription:
    """What a schedule contains (attn_schedule_description)."""

    sequences: int  #: with at least one query
    queries: int  #: of all sequences
    keys: int
    walks: int  #: of the plan that have work, one after another
    tasks: int  #: that threads take, of all walks
    balance: float  #: the mean over the greatest work of a thread, if each takes the next task when it is done; 1 is even
    workspace_bytes: int  #: memory that an execution takes besides its arrays
    keys_read: int  #: of each key head, from memory: those of a shared prefix once, and of lists at most theirs
    items: int  #: of all walks; a task is an item of one head (or some)
    nodes: int
    local: float  #: the share of the work, of what is on a node, that workers of its node do; 1: all


@dataclass(frozen=True)
class ScheduledItem:
    """What one task has of the keys or queries of a sequence, for each of its heads (attn_scheduled_item)."""

    entry: int  #: of the batch: the sequence, or the first of those that share these keys
    sequences: int  #: that share them; otherwise 1
    tasks: int
    work: float  #: of all its tasks, in queries times keys
    node: int  #: that its keys are on; -1: none


class Schedule:
    """The work of one step, which Plan.schedule makes of its lengths: executions with it take the tasks and the workspace of the tokens
    that exist, not those of the sizes of their arrays, and give the same bits as without.

        step = plan.schedule(cu_seqlens_q=starts, lengths_kv=lengths)
        for layer in layers:
            o = plan.execute(q, k, v, cu_seqlens_q=starts, lengths_kv=lengths, page_table=table, schedule=step)

    It serves every execution of this step: of the plan, of plans of other layers that cut the same work alike, and of attention with
    schedule=step.  Lengths and positions must be those that it was made of, which each execution checks.  It never changes, so any
    number of threads may use it at once, and it is freed when nothing refers to it.
    """

    __slots__ = ("_capsule", "_threads")

    def __init__(self, capsule: Any, threads: int) -> None:
        self._capsule = capsule
        self._threads = threads

    def _made(self, function: str, kind: type[ctypes.Structure], number: int) -> dict[str, Any]:
        found = _native.struct(kind)
        _native.call(function, capsule_pointer(self._capsule, b"libattn.schedule"), number, ctypes.byref(found))
        return {name: getattr(found, name) for name, *_ in kind._fields_ if name != "struct_size"}

    def describe(self, workers: int | None = None) -> ScheduleDescription:
        """What it contains, and how even the work is for so many threads (1 to 1024; None: those of the plan).  They are on the nodes that
        worker_nodes gave them, or without these on nodes 0, 1, 2 ... in turn."""
        count = self._threads if workers is None else integer(workers, "workers", -MOST, MOST)
        return ScheduleDescription(**self._made("attn_schedule_describe", _abi.attn_schedule_description, count))

    def item(self, number: int) -> ScheduledItem:
        """Item `number` of describe().items: walk after walk, and in each walk node after node, the greatest work first."""
        return ScheduledItem(**self._made("attn_schedule_item", _abi.attn_scheduled_item, integer(number, "number")))

    def __repr__(self) -> str:
        of = self.describe()
        return f"<libattn.Schedule of {of.sequences} sequences, {of.queries} queries, {of.keys} keys>"


def make(
    op: int, layout: str, keywords: dict[str, Any], threads: int, batch: int, prefixes: Sequence[Prefix | tuple[int, int, int]], nodes: int,
    entry_nodes: Any, worker_nodes: Any,
) -> Schedule:
    """The schedule of a call of _core.compute with these keywords, of which shapes may stand for arrays."""
    if not isinstance(prefixes, (tuple, list)):
        raise TypeError(f"prefixes is of type {type(prefixes).__name__}; it must be a list of (first, count, keys)")
    shared = (_abi.attn_prefix * len(prefixes))(*(_prefix(x, i) for i, x in enumerate(prefixes)))
    entries, workers = _nodes(entry_nodes, "entry_nodes"), _nodes(worker_nodes, "worker_nodes")
    if entries is None and nodes:
        raise ValueError(f"entry_nodes is missing, and nodes is {nodes}")
    if entries is not None and entries.size != batch:
        raise ValueError(f"entry_nodes has {entries.size} numbers; it must have one for each of {batch} batch entries")
    made = _native.struct(
        _abi.attn_schedule_options, prefix_count=len(prefixes), nodes=integer(nodes, "nodes", -MOST, MOST),
        workers=0 if workers is None else min(workers.size, MOST),
    )
    if len(prefixes):
        made.prefixes = ctypes.cast(shared, ctypes.POINTER(_abi.attn_prefix))
    for name, array in (("entry_nodes", entries), ("worker_nodes", workers)):
        if array is not None and (array.size or nodes and name == "entry_nodes"):  # (of no entries, but set)
            setattr(made, name, array.ctypes.data)
    return Schedule(_core.schedule(ctypes.addressof(made), op, layout, keywords, ()), threads)


def _prefix(x: Any, i: int) -> tuple[int, int, int]:
    if not isinstance(x, (tuple, list)) or len(x) != 3:
        raise TypeError(f"prefixes[{i}] is {x!r}; it must be (first, count, keys)")
    return integer(x[0], f"prefixes[{i}].first"), integer(x[1], f"prefixes[{i}].count"), integer(x[2], f"prefixes[{i}].keys")


def _nodes(x: Any, name: str) -> Array | None:
    """Numbers of nodes as int32."""
    if x is None:
        return None
    array = integers(x, name)
    if array.ndim != 1:
        raise ValueError(f"{name} has {array.ndim} axes; it must have one")
    if array.size and not (-MOST <= array.min() and array.max() <= MOST):
        raise ValueError(f"{name} has a number that no node has")
    return np.ascontiguousarray(array, np.int32)
