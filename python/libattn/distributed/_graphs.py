# SPDX-License-Identifier: MIT
"""Functions that send messages, within torch.compile: a graph ends before them and another begins behind."""
from __future__ import annotations

import functools
import sys
from typing import Callable, ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def outside_graphs(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """The function, as one that torch.compile leaves to Python.  (torch.compiler.disable imports Dynamo, which takes seconds, so it is
    called within graphs alone.)"""

    @functools.wraps(function)
    def called(*arguments: Arguments.args, **keywords: Arguments.kwargs) -> Result:
        torch = sys.modules.get("torch")
        if torch is not None and torch.compiler.is_compiling():
            return torch.compiler.disable(function)(*arguments, **keywords)
        return function(*arguments, **keywords)

    return called
