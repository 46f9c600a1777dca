# SPDX-License-Identifier: MIT
"""Causal masks in exported graphs: a triangle that the graph makes of the lengths, and that Attention need not read."""
from __future__ import annotations

import math
from typing import Any

from ._graph import Dim, Graph, attribute


def is_causal(graph: Graph, kind: str, name: str, number: float, pairs: list[Dim]) -> bool:
    """Whether a mask hides exactly the keys after each query, of [.., queries, keys] = pairs, with -infinity.

    kind, number  "add": the mask is added; "keep" or "hide": a condition, and what hides
    """
    if kind != "add":
        return number == -math.inf and _triangle(graph, name, pairs) == (1 if kind == "keep" else -1)
    node = graph.maker(name, "Where")
    if not node:
        return False
    chosen = graph.scalar(node.input[1]), graph.scalar(node.input[2])
    sign = 1 if chosen == (0, -math.inf) else -1 if chosen == (-math.inf, 0) else 0
    return sign != 0 and _triangle(graph, node.input[0], pairs) == sign


def _triangle(graph: Graph, name: str, pairs: list[Dim]) -> int:
    """1: true where key <= query; -1: true where key > query; 0: something else."""
    if node := graph.maker(name, "Not"):
        return -_triangle(graph, node.input[0], pairs)
    if node := graph.maker(name, "Equal"):
        for one, other in (node.input, reversed(node.input)):
            if graph.scalar(other) == 0:
                return -_triangle(graph, one, pairs)
        return 0
    if node := graph.maker(name, "Cast", "Identity"):
        return _triangle(graph, node.input[0], pairs)
    node = graph.maker(name, "Trilu")
    if not node or not _filled(graph, node.input[0], pairs):
        return 0
    diagonal = graph.scalar(node.input[1]) if len(node.input) > 1 and node.input[1] else 0.0
    if attribute(node, "upper", 1):
        return -1 if diagonal == 1 else 0
    return 1 if diagonal == 0 else 0


def _filled(graph: Graph, name: str, pairs: list[Dim]) -> bool:
    """Whether a value is [queries, keys] of one number that is not 0."""
    if node := graph.maker(name, "Expand"):
        number, sizes = graph.scalar(node.input[0]), _sizes(graph, node.input[1])
    elif node := graph.maker(name, "ConstantOfShape"):
        value = attribute(node, "value")
        number, sizes = graph.scalar_of(value) if value is not None else 0.0, _sizes(graph, node.input[0])
    else:
        return False
    return bool(number) and sizes == pairs[-2:] and None not in pairs[-2:]


def _sizes(graph: Graph, name: str) -> Any:
    """The sizes that a value lists, by number or name, or None."""
    if node := graph.maker(name, "Shape"):
        found = graph.shape(node.input[0])
        return found[attribute(node, "start", 0) : attribute(node, "end", len(found))] if found else None
    if node := graph.maker(name, "Concat"):
        parts = [_sizes(graph, given) for given in node.input]
        return None if None in parts else [size for part in parts for size in part]
    if node := graph.maker(name, "Slice", "Gather", "Unsqueeze", "Squeeze", "Cast", "Identity", "Reshape"):
        inner = _sizes(graph, node.input[0])
        if inner is None or node.op_type in ("Cast", "Identity") or (node.op_type in ("Unsqueeze", "Squeeze", "Reshape") and len(inner) == 1):
            return inner
        known = [number for number in map(graph.scalar, node.input[1:]) if number is not None]
        if len(known) != len(node.input) - 1:
            return None
        if node.op_type == "Gather" and abs(known[0] + 0.5) < len(inner):
            return [inner[int(known[0])]]
        if node.op_type == "Slice" and known[3:] in ([], [1.0]):
            return inner[int(known[0]) : int(known[1])]
        return None
    found = graph.constant(name)
    return None if found is None or found.dtype.kind not in "iu" else [int(size) for size in found.reshape(-1)]
