# SPDX-License-Identifier: MIT
"""Arguments of Python functions as C takes them: numbers in range, dense arrays of double, shapes that fit together.

What does not fit raises TypeError (a wrong kind of thing) or ValueError (a wrong value), with a sentence that names the argument.
"""
from __future__ import annotations

import math
import operator
from typing import Any, Mapping

import numpy as np

from ._arrays import Array, asarray, like

INT64 = 2**63


def real(x: Any, name: str) -> float:
    """A number as a Python float."""
    try:
        return float(x)
    except (TypeError, ValueError):
        raise TypeError(f"{name} is of type {type(x).__name__}; it must be a number") from None


def integer(x: Any, name: str, least: int | None = None, most: int = INT64 - 1) -> int:
    """An integer as a Python int that C can take; a number with a fraction is not one."""
    try:
        value = operator.index(x)
    except TypeError:
        raise TypeError(f"{name} is of type {type(x).__name__}; it must be an integer") from None
    if value > most or value < (-INT64 if least is None else least):
        bound = f"at least {least}" if least is not None and value < least else f"at most {most}" if value > most else "at least -2^63"
        raise ValueError(f"{name} is {value}; it must be {bound}")
    return value


def text(x: Any, name: str) -> bytes:
    """A string for C: UTF-8 without NUL."""
    if not isinstance(x, str):
        raise TypeError(f"{name} is of type {type(x).__name__}; it must be a str")
    if "\0" in x:
        raise ValueError(f"{name} has a NUL character")
    try:
        return x.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name} is not Unicode text: it has half of a surrogate pair") from None


def choice(x: Any, name: str, known: Mapping[str, int]) -> int:
    """The value of an enum by its name, "dot" for ATTN_SCORE_DOT."""
    if isinstance(x, str) and x in known:
        return known[x]
    names = [f"'{one}'" for one in known]
    raise (ValueError if isinstance(x, str) else TypeError)(f"{name} is {x!r}; it must be {', '.join(names[:-1])} or {names[-1]}")


def doubles(x: Any, name: str) -> Array:
    """x as a dense array of double, over the same memory where it is one."""
    return np.require(asarray(x, name, np.float64), requirements=["C", "A"])


def dense(x: Any, name: str, dtype: Any) -> Array:
    """The same for any type."""
    return np.require(asarray(x, name, dtype), requirements=["C", "A"])


def typed(x: Any, name: str, dtype: Any, owner: str) -> Array:
    """x as an array of exactly this type, that of `owner`; only integers, and what has no type (a list), are converted."""
    array = asarray(x, name)
    if array.dtype == dtype and array.flags.aligned:
        return array
    if array.dtype != dtype and array.dtype.kind not in "iub" and hasattr(x, "dtype"):
        raise TypeError(f"{name} has type {array.dtype}; it must be {np.dtype(dtype)}, as {owner}")
    return np.require(array, dtype, ["A"])


def keeps(x: Any, name: str, shape: tuple[int, ...]) -> Array | None:
    """A mask as bytes, 1 where a score counts, broadcast to `shape`; None: all count."""
    if x is None:
        return None
    mask = asarray(x, name)
    if mask.dtype.kind not in "bui":
        raise TypeError(f"{name} has type {mask.dtype}; it must be of booleans, true where a score counts")
    try:
        return np.ascontiguousarray(np.broadcast_to(mask != 0, shape)).view(np.uint8)
    except ValueError:
        raise ValueError(f"{name} has shape {mask.shape}, which does not broadcast to {shape}") from None


def result(out: Any, shape: tuple[int, ...], dtype: Any) -> Array:
    """Where a result goes: a new array, or `out` if it has this shape and type, is dense and can be written."""
    if out is None:
        return np.empty(shape, dtype)
    array = asarray(out, "out")
    if array.shape != tuple(shape) or array.dtype != dtype:
        wanted = f"shape {tuple(shape)} and type {np.dtype(dtype)}"
        raise ValueError(f"out has shape {array.shape} and type {array.dtype}; it must have {wanted}")
    if not array.flags.c_contiguous or not array.flags.aligned:
        raise ValueError("out is not contiguous")
    if not array.flags.writeable:
        raise ValueError("out is read-only")
    return array


def given(out: Any, made: Array, x: Any) -> Any:
    """`out` itself if there is one; else the result, in the library of x."""
    return like(made, x) if out is None else out


class Shapes:
    """Shapes of the arguments of one call, by the names of their axes.

        shapes = Shapes()
        u, g = shapes.doubles(u, "u", "... dim"), shapes.doubles(g, "g", "dim dim")
        shapes["dim"]

    The first array that has an axis sets its size; "..." stands for any number of axes at the front.
    """

    def __init__(self, **sizes: int) -> None:
        self.known: dict[str, tuple[int, str]] = {name: (size, "") for name, size in sizes.items()}
        self.leading: tuple[tuple[int, ...], str] | None = None

    def __getitem__(self, axis: str) -> int:
        return self.known[axis][0]

    @property
    def front(self) -> tuple[int, ...]:
        return self.leading[0] if self.leading else ()

    def doubles(self, x: Any, name: str, axes: str) -> Array:
        """x as dense doubles, if its shape fits."""
        return self.check(doubles(x, name), name, axes)

    def optional(self, x: Any, name: str, axes: str) -> Array | None:
        """The same; None for None."""
        return None if x is None else self.doubles(x, name, axes)

    def check(self, array: Array, name: str, axes: str) -> Array:
        """The array itself, if its shape fits."""
        wanted = axes.split()
        front = wanted[0] == "..."
        named = wanted[1:] if front else wanted
        split = array.ndim - len(named)
        if split < 0 or (split and not front):
            raise ValueError(f"{name} has shape {list(array.shape)}; it must be [{', '.join(wanted)}]")
        reasons: list[str] = []
        if front:
            if self.leading is None:
                self.leading = array.shape[:split], name
            elif self.leading[0] != array.shape[:split]:
                reasons.append(f"... is {list(self.leading[0])} as in {self.leading[1]}")
        for axis, size in zip(named, array.shape[split:]):
            expected, owner = self.known.setdefault(axis, (int(axis) if axis.isdigit() else size, name))
            if size != expected:
                reasons.append(axis if axis.isdigit() else f"{axis} is {expected}" + (f" as in {owner}" if owner not in ("", name) else ""))
        if reasons:
            told = [reason for reason in dict.fromkeys(reasons) if not reason.isdigit()]
            where = ", where " + " and ".join(told) if told else ""
            raise ValueError(f"{name} has shape {list(array.shape)}; it must be [{', '.join(wanted)}]{where}")
        return array


def each(array: Array, axes: int) -> Array:
    """A dense array as a list of parts, each of its last `axes` axes."""
    split = array.ndim - axes
    return array.reshape(math.prod(array.shape[:split]), *array.shape[split:])


def one(numbers: Array | np.floating[Any], x: Any) -> Any:
    """A float if there is one number for all of x; else the array, in the library of x."""
    return like(numbers, x) if isinstance(numbers, np.ndarray) and numbers.ndim else float(numbers)
