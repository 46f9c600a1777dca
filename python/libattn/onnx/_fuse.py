# SPDX-License-Identifier: MIT
"""Attention that was exported as MatMul, Softmax, MatMul, as one node each.

    scores  = MatMul(q, k transposed)      each times or by constants, in any order; or with a softcap, Mul(Tanh(Div(x, c)), c)
    scores  = Add(scores, mask), or Where(visible, scores, constant) or Where(hidden, constant, scores), any number of these
    weights = Softmax(scores)              with casts, dropout, and the Where(IsNaN(x), 0, x) of exported boolean masks
    o       = MatMul(weights, v)           k and v possibly repeated for groups of query heads, by Expand and Reshape

A mask that is a triangle made of the lengths becomes is_causal (_triangle.py).  A match is left as it is where its sizes do not show
that Attention means the same.
"""
from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ._graph import Dim, Graph, attribute, subgraphs
from ._triangle import is_causal

OPSET = 23  #: the first with Attention
LARGE = 1024  #: bytes from which on an initializer is kept out of the analysis
HIDES = -1e8  #: a score below this hides its key, whatever the score was
ABSORBS = -1e29  #: a score plus this is this
LOWEST = {1: -(2.0**126), 10: -math.inf, 11: -(2.0**1022), 16: -(2.0**126)}  #: of an element type, a number that absorbs
FLOATS = (1, 10, 11, 16)  #: float32, float16, float64, bfloat16
TRANSPOSED = {3: [0, 2, 1], 4: [0, 1, 3, 2]}


def fuse(model: Any) -> Any:
    """A copy of an ONNX model in which attention that was exported as matrix products and a softmax is nodes Attention.

    Found are MatMul, Softmax and MatMul over 3 or 4 axes as exporters write them: with scales on either side, softcaps, masks that are
    added or chosen by Where, casts, and keys and values that are repeated for groups of query heads; in subgraphs too.  A causal mask
    that is made of the lengths becomes is_causal, which computes no hidden score; another one stays a mask.  Attention is
    of opset 23, so a model of an older one is converted.  Results are the same but for rounding and for queries that see no key,
    which get 0 where their softmax was NaN, and the mean of what a finite number hides.  What is not found stays as it is.

    model  an onnx.ModelProto, which is not changed, or the path of one

    Returns an onnx.ModelProto.  Raises ImportError without the package onnx, TypeError for anything but a model or a path,
    NotImplementedError for a model that the package cannot convert to opset 23.
    """
    import onnx

    if isinstance(model, (str, os.PathLike)):
        model = onnx.load(model)
    if not isinstance(model, onnx.ModelProto):
        raise TypeError(f"model is of the type {type(model).__name__}; it must be an onnx.ModelProto or a path")
    made = onnx.ModelProto()
    made.CopyFrom(model)
    large = [tensor for tensor in made.graph.initializer if tensor.ByteSize() > LARGE]
    put = _take_out(made.graph, large)
    made = _infer(_convert(made))
    # From version 4 of the format on, an initializer that is an input too is only a default.
    defaults = {info.name for info in model.graph.input} if model.ir_version >= 4 else set()
    _fuse_graph(Graph(made.graph, inputs=frozenset(defaults)))
    for info in [info for info in made.graph.input if info.name in put]:
        made.graph.input.remove(info)
    made.graph.initializer.extend(large)
    return made


def _take_out(graph: Any, large: list[Any]) -> set[str]:
    """Turns large initializers into inputs: the conversion copies models, and the C++ part of onnx takes no more than 2 GiB.  Returns
    the names of the new inputs."""
    import onnx.helper

    names = {tensor.name for tensor in large}
    put = names - {info.name for info in graph.input}
    graph.input.extend(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims) for tensor in large if tensor.name in put)
    kept = [tensor for tensor in graph.initializer if tensor.name not in names]
    large[:] = [type(tensor).FromString(tensor.SerializeToString()) for tensor in large]
    kept = [type(tensor).FromString(tensor.SerializeToString()) for tensor in kept]
    del graph.initializer[:]
    graph.initializer.extend(kept)
    return put


def _convert(model: Any) -> Any:
    """The model in opset 23 or newer."""
    import onnx.checker
    import onnx.version_converter

    version = next((one.version for one in model.opset_import if one.domain in ("", "ai.onnx")), OPSET)
    if version >= OPSET:
        return model
    if version < 13 and any(True for node in model.graph.node for _ in subgraphs(node)):
        raise NotImplementedError(f"the model has subgraphs in opset {version}; export it with opset 13 or newer")
    try:
        made = onnx.version_converter.convert_version(model, OPSET)
        made.ir_version = max(made.ir_version, 10)
        onnx.checker.check_model(made)
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise NotImplementedError(f"the model cannot be converted from opset {version} to {OPSET}, which has Attention: {reason}") from error
    return made


def _infer(model: Any) -> Any:
    """The model with the sizes of its values, as far as they follow from the inputs."""
    import onnx.shape_inference

    return onnx.shape_inference.infer_shapes(model, data_prop=True)


# ---- matching -------------------------------------------------------------------------------------------------------------


@dataclass
class Scores:
    """What stands between a product of queries and keys and its softmax."""

    product: Any  #: the MatMul
    scale: float = 1.0
    softcap: float = 0.0
    masks: list[tuple[str, str, float]] = field(default_factory=list)  #: ("add", mask, 0), ("keep" or "hide", condition, constant)
    wide: bool = False  #: a cast to float32 stands in between


def _fuse_graph(graph: Graph) -> None:
    for node in graph.proto.node:
        for inner in subgraphs(node):
            _fuse_graph(Graph(inner, graph))
    for node in graph.proto.node:
        if node.op_type == "MatMul" and node.domain in ("", "ai.onnx"):
            _fuse_product(graph, node)
    graph.finish()
    kept = {name for node in graph.proto.node for name in node.output}
    for info in [info for info in graph.proto.value_info if info.name not in kept]:
        graph.proto.value_info.remove(info)


@dataclass
class Softmax:
    """A softmax whose weights are a factor of a product."""

    scores: str
    axis: int
    reads: int = 1  #: how often the scores are read, by the softmax alone
    wide: bool = False  #: a cast follows


def _weights(graph: Graph, name: str) -> Softmax | None:
    """The softmax that a factor of a product comes from; every value on the way is read once."""
    wide = guarded = False
    while guarded or graph.once(name):
        guarded = False
        if found := _softmax(graph, name):
            found.wide = wide
            return found
        if node := graph.maker(name, "Where"):
            test, inner = graph.maker(node.input[0], "IsNaN"), node.input[2]
            if not test or test.input[0] != inner or graph.scalar(node.input[1]) != 0 or graph.readers.get(inner) != 2:
                return None
            guarded = True
            name = inner
            continue
        node = graph.maker(name, "Cast", "Identity", "Dropout")
        if node is None or (node.op_type == "Cast" and graph.type(node.input[0]) not in FLOATS):
            return None
        if node.op_type == "Dropout" and (len(node.input) > 2 or any(output and graph.readers.get(output) for output in node.output[1:])):
            return None
        wide |= node.op_type == "Cast"
        name = node.input[0]
    return None


def _softmax(graph: Graph, name: str) -> Softmax | None:
    """A Softmax; or one of opset 12 over the last axis, which the conversion to 13 flattens to two axes and shapes back."""
    if node := graph.maker(name, "Softmax"):
        return Softmax(node.input[0], attribute(node, "axis", -1))
    back = graph.maker(name, "Reshape")
    node = graph.maker(back.input[0], "Softmax") if back else None
    flat = graph.maker(node.input[0], "Flatten") if node else None
    shape = graph.maker(back.input[1], "Shape") if back else None
    if not node or not flat or not shape or not graph.once(node.input[0]) or not graph.once(node.output[0]):
        return None
    sizes = graph.shape(flat.input[0])
    if not sizes or shape.input[0] != flat.input[0] or attribute(flat, "axis", 1) != len(sizes) - 1 or attribute(node, "axis", -1) not in (-1, 1):
        return None
    return Softmax(flat.input[0], -1, 2)


def _scores(graph: Graph, name: str, reads: int = 1) -> Scores | None:
    """The scores that a softmax reads, from the product on."""
    if graph.readers.get(name) != reads:
        return None
    if node := graph.maker(name, "MatMul"):
        return Scores(node)
    if node := graph.maker(name, "Identity"):
        return _scores(graph, node.input[0])
    if node := graph.maker(name, "Cast"):
        found = _scores(graph, node.input[0]) if attribute(node, "to") in FLOATS else None
        if found:
            found.wide = True
        return found
    if node := graph.maker(name, "Add"):
        for one, other in (node.input, reversed(node.input)):
            if found := _scores(graph, one):
                found.masks.append(("add", other, 0.0))
                return found
        return None
    if node := graph.maker(name, "Where"):
        return _chosen(graph, node)
    if node := graph.maker(name, "Mul", "Div"):
        return _scaled(graph, node)
    return None


def _chosen(graph: Graph, node: Any) -> Scores | None:
    """Scores of which some are replaced by a number that hides their keys."""
    for kind, one, constant in (("keep", node.input[1], node.input[2]), ("hide", node.input[2], node.input[1])):
        number = graph.scalar(constant)
        if number is None or number > HIDES:
            continue
        if found := _scores(graph, one):
            found.masks.append((kind, node.input[0], number))
            return found
    return None


def _scaled(graph: Graph, node: Any) -> Scores | None:
    """Scores times a number, or softcap * tanh(scores / softcap)."""
    for one, other in ((node.input[0], node.input[1]), (node.input[1], node.input[0])):
        number = graph.scalar(other)
        if number is None or (node.op_type == "Div" and one != node.input[0]) or not number:
            continue
        number = 1 / number if node.op_type == "Div" else number
        capped = graph.maker(one, "Tanh") if graph.once(one) else None
        found = _scores(graph, capped.input[0] if capped else one)
        if not found or found.masks or found.softcap:
            return None
        if capped:
            if number <= 0:
                return None
            found.softcap = number
        found.scale *= number  # with a softcap, the scale so far has the division before the tanh
        return found
    return None


def _factor(graph: Graph, name: str) -> tuple[str, float]:
    """A factor of the product without the numbers that it is multiplied with, and these."""
    scale = 1.0
    while node := graph.maker(name, "Mul", "Div", "Identity"):
        if node.op_type == "Identity":
            name = node.input[0]
            continue
        first, second = graph.scalar(node.input[0]), graph.scalar(node.input[1])
        if second:
            name, number = node.input[0], second
        elif first and node.op_type == "Mul":
            name, number = node.input[1], first
        else:
            break
        if not _same_shape(graph, name, node.output[0]):
            break
        scale *= 1 / number if node.op_type == "Div" else number
    return name, scale


def _same_shape(graph: Graph, one: str, other: str) -> bool:
    a, b = graph.shape(one), graph.shape(other)
    return a is not None and b is not None and len(a) == len(b)


# ---- replacing ------------------------------------------------------------------------------------------------------------


def _fuse_product(graph: Graph, node: Any) -> None:
    softmax = _weights(graph, node.input[0])
    found = _scores(graph, softmax.scores, softmax.reads) if softmax else None
    if not softmax or not found:
        return
    q, q_scale = _factor(graph, found.product.input[0])
    k, k_scale = _factor(graph, found.product.input[1])
    v = node.input[1]
    sizes = [graph.shape(name) or [] for name in (q, k, v)]
    rank = len(sizes[0])
    if rank not in (3, 4) or any(len(size) != rank for size in sizes) or softmax.axis not in (-1, rank - 1):
        return
    types = {graph.type(name) for name in (q, k, v)}
    scale = found.scale * q_scale * k_scale
    if len(types) != 1 or types.isdisjoint(FLOATS) or _clash(*sizes):
        return
    pairs = [*sizes[0][:-1], sizes[1][-1]]  # the sizes of the scores
    if not all(_fits(graph, name, kind, pairs) for kind, name, _ in found.masks):
        return

    if not _averages(found.masks):
        return

    k, more = _straight(graph, node, k, rank)
    scale *= more
    if not (scale > 0 and math.isfinite(scale)):
        return
    k, v = _ungrouped(graph, sizes[0], k, v)
    if rank == 3:  # [batch * heads, tokens, dim], as one batch entry
        q, k, v = (graph.insert(node, "Unsqueeze", [name, graph.number(np.array([0], np.int64))]) for name in (q, k, v))
    of_scores = graph.type(softmax.scores)
    masks = [mask for mask in found.masks if not is_causal(graph, *mask, pairs)]
    mask = _mask(graph, node, masks, k, pairs[-1], of_scores or types.pop())
    options: dict[str, Any] = {"scale": scale}
    if len(masks) < len(found.masks):
        options["is_causal"] = 1
    if found.softcap:
        options["softcap"] = found.softcap
    if (softmax.wide or found.wide) and of_scores == 1:
        options["softmax_precision"] = 1
    inputs = [q, k, v] + ([mask] if mask else [])
    if rank == 4:
        graph.replace(node, "Attention", inputs, **options)
        return
    o = graph.insert(node, "Attention", inputs, **options)
    graph.replace(node, "Squeeze", [o, graph.number(np.array([0], np.int64))])


def _clash(q: list[Dim], k: list[Dim], v: list[Dim]) -> bool:
    """Whether a product broadcasts where Attention does not, as far as sizes are known; where they are not, Attention would fail, not
    compute something else.  k is transposed."""
    for axis, three in enumerate(zip(q[:-2], k[:-2], v[:-2])):
        numbers = {size for size in three if isinstance(size, int)}
        if len(q) == 4 and axis == 1:  # heads: one of keys and values for all queries is fine
            if three[2] != three[1] and {three[1], three[2]} <= numbers or three[1] not in (three[0], 1) and {three[0], three[1]} <= numbers:
                return True
        elif len(numbers) > 1 or (1 in numbers and set(three) != {1}):
            return True
    return False


def _averages(masks: list[tuple[str, str, float]]) -> bool:
    """Whether what is chosen in place of scores can be added to them, also for a query that sees no key: it averages what it would have
    seen, if the number that hides is finite."""
    added = [kind == "add" for kind, _, _ in masks]
    numbers = {number for kind, _, number in masks if kind != "add"}
    if numbers <= {-math.inf}:
        return True
    return len(numbers) == 1 and (not any(added) or (added == sorted(added) and max(numbers) <= ABSORBS))


def _fits(graph: Graph, name: str, kind: str, pairs: list[Dim]) -> bool:
    """Whether a mask is one of Attention's: of a known number of axes, each 1 or a size of the scores."""
    sizes = graph.shape(name)
    if sizes is None or not 2 <= len(sizes) <= len(pairs) or (graph.type(name) == 9) == (kind == "add"):
        return False
    both = zip(reversed(sizes), reversed(pairs))
    return all(size in (1, whole) or (whole != 1 and not (isinstance(size, int) and isinstance(whole, int))) for size, whole in both)


def _straight(graph: Graph, before: Any, name: str, rank: int) -> tuple[str, float]:
    """Keys [..., tokens, dim] from their transpose, and what they are multiplied with."""
    node = graph.maker(name, "Transpose")
    if not node:
        return graph.insert(before, "Transpose", [name], perm=TRANSPOSED[rank]), 1.0
    order = list(attribute(node, "perm", range(rank)[::-1]))
    order[-2:] = order[-1], order[-2]
    inner, scale = _factor(graph, node.input[0])
    return (inner if order == list(range(rank)) else graph.insert(before, "Transpose", [inner], perm=order)), scale


def _ungrouped(graph: Graph, q: list[Dim], k: str, v: str) -> tuple[str, str]:
    """Keys and values before they were repeated for the query heads of a group, if they were."""
    sources = [_repeated(graph, q, name) for name in (k, v)]
    return (sources[0][0], sources[1][0]) if all(sources) and sources[0][1] == sources[1][1] else (k, v)


def _repeated(graph: Graph, q: list[Dim], name: str) -> Any:
    """(source, its heads) of Reshape(Expand(Unsqueeze(source, 2))), [batch, heads, tokens, dim]; None: not that."""
    reshape = graph.maker(name, "Reshape")
    expand = graph.maker(reshape.input[0], "Expand") if reshape else None
    unsqueeze = graph.maker(expand.input[0], "Unsqueeze") if expand else None
    axes = graph.constant(unsqueeze.input[1]) if unsqueeze else None
    if reshape is None or expand is None or unsqueeze is None or axes is None or axes.tolist() != [2]:
        return None
    source = unsqueeze.input[0]
    one, four, five = graph.shape(source), graph.shape(name), graph.constant(expand.input[1])
    if not four or not isinstance(four[1], int):
        asked = graph.constant(reshape.input[1])  # NaN where a size is not known
        four = None if asked is None else list(asked)
    if not one or not four or five is None or (len(one), len(four), five.size) != (4, 4, 5) or not isinstance(one[1], int):
        return None
    if five[1] not in (1, one[1]) or one[1] * five[2] != q[1] or four[1] != q[1]:
        return None
    return (source, one[1]) if isinstance(one[3], int) and one[3] == four[3] and five[4] in (1, one[3]) else None


# ---- masks ----------------------------------------------------------------------------------------------------------------


def _mask(graph: Graph, before: Any, masks: list[tuple[str, str, float]], k: str, keys: Dim, type: int) -> str:
    """The one mask that means all of them, "" without any: boolean if it can be.  What is chosen in place of scores, in all of them the
    same number, is hidden by one Where."""
    import onnx.helper

    total, number = "", -math.inf
    for kind, name, hides in masks:
        if kind != "add":
            one = graph.insert(before, "Not", [name]) if kind == "hide" else name
            total, number = (graph.insert(before, "And", [total, one]) if total else one), hides
    added = [name for kind, name, _ in masks if kind == "add"]
    if total and (added or math.isfinite(number)):
        element = onnx.helper.tensor_dtype_to_np_dtype(type)
        number = number if added else LOWEST[type]  # so low that nothing is left of the score
        total = graph.insert(before, "Where", [total, graph.number(np.array(0, element)), graph.number(np.array(number, element))])
    for name in added:
        total = graph.insert(before, "Add", [total, name]) if total else name
    # Attention pads a mask that is shorter than the keys, where Add repeats it.
    if not any((graph.shape(name) or [1])[-1] == keys and keys not in (None, "") for _, name, _ in masks) and masks:
        total = graph.insert(before, "Expand", [total, graph.insert(before, "Shape", [k], start=2, end=3)])
    return total
