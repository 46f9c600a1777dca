# SPDX-License-Identifier: MIT
"""A score_mod or mask_mod that torch.compile has traced, as text: an argument that every operator can have, and that stays valid in a
graph that is kept on disk.

    tn                                the tensors (t) and numbers (n) that the function reads, in order, behind its own arguments
    import torch                      what the source refers to
    def forward(self, child, ...):    the source that torch.fx makes of the graph
"""
from __future__ import annotations

import functools
import types
from typing import Any, Callable, Sequence

import torch

Tensor = torch.Tensor


def written(graph: torch.fx.GraphModule, reads: Sequence[Any]) -> str:
    """The text of a graph that reads tensors and numbers behind its own arguments; NotImplementedError, if it reads more than these."""
    if any(node.op in ("get_attr", "call_module") for node in graph.graph.nodes):
        raise NotImplementedError("a score_mod or mask_mod that has graphs of its own, as torch.cond makes them, cannot be compiled with libattn")
    code = graph.graph.python_code("self")
    kinds = "".join("t" if isinstance(x, Tensor) else "n" for x in reads)
    return "\n".join([kinds, *sorted(_import(name, x) for name, x in code.globals.items()), code.src.strip("\n")]) + "\n"


def unchanged(graph: torch.fx.GraphModule) -> bool:
    """Does a score_mod return the score?"""
    nodes = list(graph.graph.nodes)
    return nodes[-1].args[0] is nodes[0]


def parted(reads: Sequence[Any]) -> tuple[list[Tensor], list[Any]]:
    """The tensors and the numbers of what a function reads."""
    return [x for x in reads if isinstance(x, Tensor)], [x for x in reads if not isinstance(x, Tensor)]


def merged(kinds: str, tensors: Sequence[Tensor], numbers: Sequence[Any]) -> list[Any]:
    """Both again, in order."""
    tensor, number = iter(tensors), iter(numbers)
    return [next(tensor) if kind == "t" else next(number) for kind in kinds]


def bound(text: str, tensors: Sequence[Tensor], numbers: Sequence[Any]) -> Callable[..., Any]:
    """The function again, that reads these."""
    function, kinds = source(text)
    reads = merged(kinds, tensors, numbers)
    return lambda *arguments: function(None, *arguments, *reads)


def _import(name: str, x: Any) -> str:
    if isinstance(x, types.ModuleType):
        return f"import {x.__name__}" if x.__name__ == name else f"import {x.__name__} as {name}"
    if isinstance(x, float):  # inf and nan
        return f"{name} = float('{x}')"
    if x is type(None):
        return f"{name} = type(None)"
    module, path = getattr(x, "__module__", None), getattr(x, "__qualname__", "")
    if not module or not path.isidentifier():
        raise NotImplementedError(f"a score_mod or mask_mod that calls {name}, {x!r}, cannot be compiled with libattn")
    return f"from {module} import {path} as {name}"


@functools.lru_cache(256)
def source(text: str) -> tuple[Callable[..., Any], str]:
    """The function, and of what kinds those are that it reads."""
    kinds, code = text.split("\n", 1)
    space: dict[str, Any] = {}
    exec(compile(code, "<score_mod or mask_mod>", "exec", dont_inherit=True), space)  # of a graph that PyTorch traced here, or kept
    return space["forward"], kinds
