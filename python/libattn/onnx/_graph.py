# SPDX-License-Identifier: MIT
"""A graph of ONNX's with what fusion needs to know of it: who makes a value and who reads it, sizes, constants; and new nodes in their place."""
from __future__ import annotations

from typing import Any, Callable, Iterator

import numpy as np

Dim = int | str | None  #: a size, the name of one, or not known


def attribute(node: Any, name: str, otherwise: Any = None) -> Any:
    """The value of a node's attribute."""
    import onnx.helper

    for found in node.attribute:
        if found.name == name:
            return onnx.helper.get_attribute_value(found)
    return otherwise


def subgraphs(node: Any) -> Iterator[Any]:
    """The graphs among a node's attributes."""
    for found in node.attribute:
        if found.HasField("g"):
            yield found.g
        yield from found.graphs


def reads(node: Any) -> Iterator[str]:
    """The values that a node reads, those of its subgraphs too (with the names that are local there)."""
    yield from node.input
    for graph in subgraphs(node):
        for inner in graph.node:
            yield from reads(inner)
        yield from (output.name for output in graph.output)


def _names(graph: Any) -> Iterator[str]:
    """All names of values, in subgraphs too."""
    yield from (value.name for value in (*graph.input, *graph.initializer))
    for node in graph.node:
        yield from node.output
        for inner in subgraphs(node):
            yield from _names(inner)


# Operators that make scalars, in exported graphs, of shapes and constants.
ARITHMETIC: dict[str, Callable[..., Any]] = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide, "Pow": np.power, "Sqrt": np.sqrt, "Reciprocal": np.reciprocal,
    "Neg": np.negative, "Identity": np.asarray, "Equal": np.equal, "Where": np.where,
}
RESHAPING = ("Squeeze", "Unsqueeze", "Reshape", "Flatten")


class Graph:
    """A GraphProto. outer: the Graph that it lies in, whose values it may read; inputs: initializers that a run may replace."""

    def __init__(self, proto: Any, outer: Graph | None = None, inputs: frozenset[str] = frozenset()) -> None:
        self.proto = proto
        self.outer = outer
        self.inputs = inputs
        self.made: dict[str, Any] = {}  #: value -> the node that makes it
        self.readers: dict[str, int] = {}  #: value -> how often it is read, or is a result
        self.initializers = {tensor.name: tensor for tensor in proto.initializer}
        self.infos = {info.name: info.type.tensor_type for info in (*proto.input, *proto.value_info, *proto.output)}
        for node in proto.node:
            self.made |= {name: node for name in node.output if name}
            for name in reads(node):
                self.readers[name] = self.readers.get(name, 0) + 1
        for output in proto.output:
            self.readers[output.name] = self.readers.get(output.name, 0) + 1
        self._before: dict[int, list[Any]] = {}  #: id of a node -> nodes to insert before it
        self._inserted: dict[tuple[Any, ...], str] = {}
        self._names: set[str] = outer._names if outer else set(_names(proto))

    def maker(self, name: str, *kinds: str) -> Any:
        """The node that makes a value, if it is of one of these kinds, else None."""
        node = self.made.get(name)
        return node if node is not None and node.op_type in kinds and node.domain in ("", "ai.onnx") else None

    def once(self, name: str) -> bool:
        """Whether a value is read in one place only."""
        return self.readers.get(name, 0) == 1

    def type(self, name: str) -> int:
        """The element type of a value; 0: not known."""
        if name in self.initializers:
            return int(self.initializers[name].data_type)
        if name in self.infos:
            return int(self.infos[name].elem_type)
        return self.outer.type(name) if self.outer and name not in self.made else 0

    def shape(self, name: str) -> list[Dim] | None:
        """The sizes of a value, or None if not even their number is known."""
        if name in self.initializers:
            return list(self.initializers[name].dims)
        if name in self.infos:
            if not self.infos[name].HasField("shape"):
                return None
            return [d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in self.infos[name].shape.dim]
        return self.outer.shape(name) if self.outer and name not in self.made else None

    def constant(self, name: str, depth: int = 12) -> Any:
        """The value as an array, if it is small and does not depend on the inputs; else None."""
        import onnx.numpy_helper

        if name in self.inputs:
            return None
        if name in self.initializers:
            tensor = self.initializers[name]
            return onnx.numpy_helper.to_array(tensor) if np.prod(tensor.dims, dtype=float) <= 64 else None
        node = self.made.get(name)
        if node is None or not depth:
            return self.outer.constant(name, depth) if self.outer and node is None and name not in self.infos else None
        if node.op_type == "Constant":
            return _of_constant(node)
        if node.op_type == "Shape":
            return self._of_shape(node)
        inputs = [self.constant(given, depth - 1) if given else None for given in node.input]
        if not inputs or inputs[0] is None or inputs[0].size > 64:
            return None
        return _compute(node, inputs)

    def _of_shape(self, node: Any) -> Any:
        sizes = self.shape(node.input[0])
        if sizes is None:
            return None
        known = np.array([size if isinstance(size, int) else np.nan for size in sizes])  # scalar() rejects NaN
        return known[attribute(node, "start", 0) : attribute(node, "end", len(sizes))]

    def scalar(self, name: str) -> float | None:
        """The number, if the value is a constant of one element."""
        with np.errstate(all="ignore"):
            return _number(self.constant(name))

    def scalar_of(self, tensor: Any) -> float | None:
        """The same of a TensorProto."""
        import onnx.numpy_helper

        return _number(onnx.numpy_helper.to_array(tensor))

    # ---- new nodes --------------------------------------------------------------------------------------------------------

    def insert(self, before: Any, kind: str, inputs: list[str], **attributes: Any) -> str:
        """The output of a new node in front of another one; the same node for the same inputs if there is one already."""
        import onnx.helper

        key = (kind, tuple(inputs), tuple(sorted((k, str(v)) for k, v in attributes.items())))
        if key not in self._inserted:
            self._inserted[key] = name = self._name(kind)
            node = onnx.helper.make_node(kind, inputs, [name], name=name, **attributes)
            self._before.setdefault(id(before), []).append(node)
        return self._inserted[key]

    def number(self, values: Any) -> str:
        """The name of a new initializer."""
        import onnx.numpy_helper

        key = ("", values.dtype.str, values.shape, values.tobytes())
        if key not in self._inserted:
            self._inserted[key] = name = self._name("value")
            self.proto.initializer.append(onnx.numpy_helper.from_array(values, name))
        return self._inserted[key]

    def _name(self, kind: str) -> str:
        number = 1
        while (name := f"libattn/{kind}_{number}") in self._names:
            number += 1
        self._names.add(name)
        return name

    def replace(self, node: Any, kind: str, inputs: list[str], **attributes: Any) -> None:
        """Makes a node another one with the same output."""
        import onnx.helper

        made = onnx.helper.make_node(kind, inputs, list(node.output), name=node.name, **attributes)
        node.CopyFrom(made)

    def finish(self) -> None:
        """Puts the new nodes into their places and removes those that nobody reads any more."""
        nodes = [new for node in self.proto.node for new in (*self._before.get(id(node), ()), node)]
        wanted = {output.name for output in self.proto.output}
        kept = []
        for node in reversed(nodes):  # (a graph lists makers before readers)
            if any(name in wanted for name in node.output) or not any(node.output):
                kept.append(node)
                wanted.update(reads(node))
        kept.reverse()
        copies = [type(node).FromString(node.SerializeToString()) for node in kept]
        del self.proto.node[:]
        self.proto.node.extend(copies)


def _number(found: Any) -> float | None:
    if found is None or found.size != 1 or found.dtype.kind not in "fiVb":
        return None
    number = float(np.asarray(found, np.float64).reshape(()))
    return None if np.isnan(number) else number


def _of_constant(node: Any) -> Any:
    import onnx.numpy_helper

    for found in node.attribute:
        if found.name == "value":
            return onnx.numpy_helper.to_array(found.t) if np.prod(found.t.dims, dtype=float) <= 64 else None
        if found.name in ("value_float", "value_floats"):
            return np.array(found.f if found.name == "value_float" else found.floats, np.float32)
        if found.name in ("value_int", "value_ints"):
            return np.array(found.i if found.name == "value_int" else found.ints, np.int64)
    return None


def _compute(node: Any, inputs: list[Any]) -> Any:
    """The constant result of a node, or None."""
    import onnx.helper
    import onnx.numpy_helper

    kind, first = node.op_type, inputs[0]
    if kind == "Cast":
        to = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(attribute(node, "to")))
        return first if to.kind in "iu" else first.astype(to)
    if kind == "Concat":
        return np.concatenate(inputs) if all(x is not None and x.ndim == 1 for x in inputs) else None
    if kind == "ConstantOfShape":
        value = attribute(node, "value")
        filling = np.zeros(1, np.float32) if value is None else onnx.numpy_helper.to_array(value)
        return np.full(first.astype(int), filling) if first.size == 1 and 0 <= first[0] <= 64 else None
    if kind in RESHAPING:
        flat = kind == "Reshape" and first.ndim == 1 and inputs[1] is not None and inputs[1].tolist() in ([-1], [first.size])
        return first.reshape(-1) if first.size == 1 or flat else None
    if kind == "Gather" and first.ndim == 1 and inputs[1] is not None and attribute(node, "axis", 0) == 0:
        return first[inputs[1]]
    if kind == "Slice" and first.ndim == 1 and len(inputs) in (3, 4):
        ends = [x for x in inputs[1:] if x is not None and x.size == 1]
        return first[int(ends[0].item()) : int(ends[1].item())] if len(ends) == len(inputs) - 1 else None
    if kind in ARITHMETIC and all(x is not None for x in inputs):
        result = np.asarray(ARITHMETIC[kind](*inputs))
        return result if kind in ("Equal", "Where") else result.astype(first.dtype)
    return None
