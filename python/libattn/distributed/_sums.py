# SPDX-License-Identifier: MIT
"""Sums over the parts of all ranks, in a binary tree over their numbers: the same bits for any number of ranks and any layout."""
from __future__ import annotations

from typing import Any, Iterator

import numpy as np

from .._arrays import Array, asarray, is_tensor, like
from ._agree import same, together
from ._graphs import outside_graphs
from ._groups import transport_of
from ._split import Layout, Split, everywhere
from ._transport import Transport

Node = tuple[int, int]  # level and number: the sum of nodes (level - 1, 2 number) and (level - 1, 2 number + 1), as far as they exist


def _nodes(owners: Array, rank: int, level: int, number: int) -> Iterator[Node]:
    """The largest nodes below one whose parts are all of a rank."""
    of = owners[number << level:(number + 1) << level]
    if not np.any(of == rank):
        return
    if np.all(of == rank):
        yield level, number
        return
    for half in (0, 1):
        yield from _nodes(owners, rank, level - 1, 2 * number + half)


def _total(known: dict[Node, Array], count: int, level: int, number: int) -> Array | None:
    """A node, from those that are known; None: it has no parts."""
    if (level, number) in known:
        return known[level, number]
    if number << level >= count:
        return None
    left, right = (_total(known, count, level - 1, 2 * number + half) for half in (0, 1))
    assert left is not None
    return left if right is None else left + right


def tree_sum(transport: Transport, mine: Array, owners: Array) -> Array:
    """The sum of the rows of all ranks, of which this one has those of its parts, in rising order; `owners`: the rank of each part."""
    count, top = owners.size, int(owners.size - 1).bit_length()
    if count == 0:
        return np.zeros(mine.shape[1:], mine.dtype)
    numbers = np.flatnonzero(owners == transport.rank)
    known: dict[Node, Array] = {(0, int(n)): row for n, row in zip(numbers, mine, strict=True)}
    nodes = [list(_nodes(owners, rank, top, 0)) for rank in range(transport.ranks)]
    own = [_total(known, count, *node) for node in nodes[transport.rank]]
    packed = np.stack([x for x in own if x is not None]) if own else np.empty((0, *mine.shape[1:]), mine.dtype)
    for rank, rows in enumerate(everywhere(transport, packed, [len(some) for some in nodes])):
        known.update(zip(nodes[rank], rows, strict=True))
    found = _total(known, count, top, 0)
    assert found is not None
    return found


def owners_of(split: Split, parts: int, axis: str, ranks: int) -> Array:
    """The rank of each part."""
    owners = np.empty(parts, np.int64)
    for rank in range(ranks):
        for part in split.parts(parts * split.part, axis, rank, ranks):
            owners[part.number] = rank
    return owners


@outside_graphs
def sum_parts(x: Any, *, group: Any = None, layout: Layout = "contiguous") -> Any:
    """The sum over all parts of all ranks of x[0], x[1], ..., which belong to the parts of this rank in rising order.  Collective.

        losses = [loss_of(rows) for rows in ...]                    # of each part of this rank
        loss = distributed.sum_parts(torch.stack(losses), layout="zigzag")

    All ranks get the sum, with the same bits for any number of ranks and any layout, since parts are added in a binary tree over their
    numbers; sums of float16 and bfloat16 are formed in float32.  Of tensors of PyTorch, the gradient of each x[n] is that of the sum.
    Raises ValueError or TypeError, on all ranks alike, or ConnectionError.
    """
    if is_tensor(x) and x.requires_grad:
        from ._by_parts import differentiable_sum

        return differentiable_sum(x, group, layout)
    transport = transport_of(group)

    def local() -> tuple[Array, Split]:
        array = asarray(x.detach() if hasattr(x, "detach") else x, "x")
        if array.ndim < 1 or array.dtype.kind not in "fV":
            raise TypeError(f"x has shape {list(array.shape)} and type {array.dtype}; it must be [parts, ...] of floats")
        return array, Split(layout, 1)

    (mine, split), said = together(transport, local, lambda found: {
        "parts": found[0].shape[0], "asked": {"x": f"{found[0].shape[1:]} of {found[0].dtype}", **found[1].asked}})
    same(said)
    counts = [one["parts"] for one in said]
    split.check(sum(counts), "q", transport.ranks)
    owners = owners_of(split, sum(counts), "q", transport.ranks)
    for rank, count in enumerate(counts):
        if count != np.count_nonzero(owners == rank):
            raise ValueError(f"x has {count} parts on rank {rank}; of {sum(counts)} it owns {np.count_nonzero(owners == rank)}")
    wide = mine.astype(np.float32) if mine.dtype.itemsize < 4 else mine
    return like(np.asarray(tree_sum(transport, wide, owners)).astype(mine.dtype, copy=False), x)
