# SPDX-License-Identifier: MIT
"""What a score_mod computes, as options of libattn: a factor, a softcap, and something that is added.

The function is called once, on a score and indices of no axes, while a mode sees each operator: it notes what happens to the score,
and of everything else, which indices it depends on.  What is added is then computed for those indices alone:

    slope[h] * |q_idx - kv_idx|, or without | | where no later key is seen      alibi_slopes
    anything that depends on h and q_idx - kv_idx                               bias_table, one number for each distance
    anything that depends on one of q_idx and kv_idx at most                    bias, which broadcasts
    else, where it is no larger than a tensor that the function reads           bias

All other forms raise OtherForm.
"""
from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Callable

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ._flex_calls import Items, everywhere, mapped
from ._shim import AT

Tensor = torch.Tensor
FEW = 2**16  # numbers that a bias may have in any case
EXACT = (torch.float32, torch.float64, torch.int32, torch.int64)
PLACES = frozenset("ijd")  # query, key, distance


class OtherForm(Exception):
    """A score_mod that is not factor, softcap and sum in this order, or adds too much; its text says why."""


@dataclass(frozen=True)
class Form:
    """The score: factor * score, capped if cap is set, plus what is added."""

    factor: float = 1.0
    cap: float | None = None
    inside: bool = False  # the tanh of a softcap whose factor is to come
    added: bool = False
    reads: frozenset[str] = frozenset()  # what is added depends on: b, h, i (query), j (key), d (their distance)
    slope: str | None = None  # it is something of b and h times a distance: "signed", or "absolute"


@dataclass(frozen=True)
class Known:
    """What is known of a tensor: what it depends on; that it is line[0] * q_idx + line[1] * kv_idx + line[2] (None: any constant)."""

    reads: frozenset[str] = frozenset()
    line: tuple[int, int, int | None] | None = None
    slope: str | None = None
    form: Form | None = None

    def slopes(self) -> str | None:
        if self.line is not None and self.line[0] == -self.line[1] != 0 and self.line[2] == 0:
            return "signed"
        return self.slope


CONSTANT = Known()


def _places(line: tuple[int, int, int | None]) -> frozenset[str]:
    q, kv, _ = line
    return frozenset("d" if q == -kv != 0 else ("i" if q else "") + ("j" if kv else ""))


class _Reader(TorchDispatchMode):
    """Notes what operators make of the tensors that `known` begins with."""

    def __init__(self, known: list[tuple[Tensor, Known]]) -> None:
        super().__init__()
        self.known = {id(x): (x, what) for x, what in known}  # tensors are kept, so that ids stay theirs
        self.largest = 0  # elements of a tensor that is read
        self.learned: dict[int, Tensor] = {}  # tensors with gradients that are read
        self.other: OtherForm | None = None
        self.form: Form | None = None

    def of(self, x: Any) -> Known:
        return self.known[id(x)][1] if id(x) in self.known else CONSTANT

    def __torch_dispatch__(self, function: Any, kinds: Any, arguments: Any = (), options: Any = None) -> Any:
        options = options or {}
        tensors = [x for x in torch.utils._pytree.tree_leaves((arguments, options)) if isinstance(x, Tensor)]
        reads = [self.of(x) for x in tensors]
        for x in tensors:
            if id(x) not in self.known:
                self.largest = max(self.largest, x.numel())
                if x.requires_grad:
                    self.learned[id(x)] = x
        result = function(*arguments, **options)
        try:
            known = self._known(function, arguments, options, reads, result)
        except OtherForm as other:  # goes on, for what else is read
            self.other, known = other, Known(frozenset("bhij"))
        for x in torch.utils._pytree.tree_leaves(result):
            self.known[id(x)] = x, known
        return result

    def _known(self, function: Any, arguments: Any, options: Any, given: list[Known], result: Any) -> Known:
        name = function.overloadpacket.__name__
        if function._schema.is_mutable or torch.Tag.nondeterministic_seeded in function.tags:
            raise OtherForm(f"{name} in a score_mod")
        if all(known == CONSTANT for known in given):
            return CONSTANT
        if not isinstance(result, Tensor):
            raise OtherForm(f"{name} of a score or an index")
        return self._score(name, arguments, options) if any(known.form for known in given) else self._other(name, arguments, options, given, result)

    # ---- of the score ----

    def _score(self, name: str, arguments: Any, options: Any) -> Known:
        if any(not isinstance(x, (int, float)) or x != 1 for x in options.values()):
            raise OtherForm(f"{name} with options")
        first, *rest = arguments
        form, others = self.of(first).form, [self.of(x).form for x in rest]
        if name == "add" and len(rest) == 1:
            if form and others[0]:
                raise OtherForm("the score appears twice")
            return self._plus(form, rest[0]) if form else self._plus(others[0], first)
        if name == "sub" and form and not others[0]:
            return self._plus(form, rest[0])
        if name == "mul" and not (form and others[0]):
            return self._times(form, _number(rest[0], self)) if form else self._times(others[0], _number(first, self))
        if name == "div" and form and len(rest) == 1 and not others[0]:
            by = _number(rest[0], self)
            if not by:
                raise OtherForm("a score is divided by 0")
            return self._times(form, 1 / by)
        if name == "neg":
            return self._times(form, -1.0)
        if name == "tanh" and form and form.cap is None and not form.inside and not form.added:
            return Known(form=replace(form, inside=True))
        if name == "where" and len(rest) == 2 and not form:
            return self._where(first, rest[0], rest[1])
        if name == "masked_fill" and form:
            return self._where(rest[0], rest[1], first)
        raise OtherForm(f"{name} of the score")

    def _plus(self, form: Any, x: Any) -> Known:
        if form.inside:
            raise OtherForm("a tanh without its factor")
        what = self.of(x)
        return Known(form=replace(form, added=True, reads=form.reads | what.reads, slope=None if form.added else what.slopes()))

    def _times(self, form: Any, number: float) -> Known:
        if form.inside:  # tanh(factor * score) * number
            if not math.isclose(form.factor * number, 1, rel_tol=1e-6):
                raise OtherForm("a tanh whose factors are not each other's inverse")
            return Known(form=Form(cap=number))
        if form.cap is not None or form.added:
            raise OtherForm("a factor behind a sum or a softcap")
        return Known(form=Form(form.factor * number))

    def _where(self, condition: Any, one: Any, other: Any) -> Known:
        forms = [form for form in (self.of(one).form, self.of(other).form) if form]
        if self.of(condition).form or any(form.inside for form in forms):
            raise OtherForm("a condition on the score")
        if len(forms) == 2 and (forms[0].factor, forms[0].cap) != (forms[1].factor, forms[1].cap):
            raise OtherForm("scores of two forms")
        if len(forms) == 1 and _number(other if self.of(one).form else one, self) != -math.inf:
            raise OtherForm("a score that is replaced by a number")
        reads = self.of(condition).reads.union(*(form.reads for form in forms))
        return Known(form=Form(forms[0].factor, forms[0].cap, added=True, reads=reads))

    # ---- of everything else ----

    def _other(self, name: str, arguments: Any, options: Any, given: list[Known], result: Tensor) -> Known:
        every: frozenset[str] = frozenset().union(*(known.reads for known in given))
        known = Known(every)
        if not options or set(options) == {"dtype"}:
            if name in ("ge", "gt", "le", "lt", "eq", "ne"):
                lines = [self._line(x) for x in arguments]
                if None not in lines:
                    return Known(every - PLACES | _places(_sum(lines[0], lines[1], -1)))
            if result.dim() == 0 and result.dtype in EXACT:
                line = self._combined(name, arguments)
                if line is not None:
                    return Known(every - PLACES | _places(line), line)
                return replace(known, slope=self._slope(name, arguments))
        return known

    def _line(self, x: Any) -> Any:
        """x as a line; a value that depends on b and h alone is an unknown constant."""
        known = self.of(x)
        if known.line is not None:
            return known.line
        if known.reads & PLACES:
            return None
        if isinstance(x, int):
            return 0, 0, int(x)
        return (0, 0, None) if isinstance(x, Tensor) and x.dim() == 0 else None

    def _combined(self, name: str, arguments: Any) -> Any:
        lines = [self._line(x) for x in arguments]
        if None in lines or not any(self.of(x).line for x in arguments):
            return None
        if name in ("add", "sub") and len(lines) == 2:
            return _sum(lines[0], lines[1], 1 if name == "add" else -1)
        if name == "neg":
            return _sum((0, 0, 0), lines[0], -1)
        if name in ("_to_copy", "clone"):
            return lines[0]
        if name == "mul":
            number = next((x for x in arguments if isinstance(x, int)), None)
            q, kv, rest = next(self.of(x).line or (0, 0, 0) for x in arguments if isinstance(x, Tensor))
            return None if number is None else (number * q, number * kv, None if rest is None else number * rest)
        return None

    def _slope(self, name: str, arguments: Any) -> str | None:
        """Is the result something of b and h times a distance?"""
        first, *rest = (self.of(x) for x in arguments)
        if name == "abs":
            return "absolute" if first.slopes() else None
        if name in ("neg", "_to_copy", "clone"):
            return first.slopes()
        if name == "div" and len(rest) == 1 and not rest[0].reads & PLACES:
            return first.slopes()
        if name == "mul":
            one, other = first, rest[0]
            return one.slopes() if not other.reads & PLACES else other.slopes() if not one.reads & PLACES else None
        return None


def _sum(one: Any, other: Any, sign: int) -> Any:
    rest = None if one[2] is None or other[2] is None else one[2] + sign * other[2]
    return one[0] + sign * other[0], one[1] + sign * other[1], rest


def _number(x: Any, reader: _Reader) -> float:
    if isinstance(x, Tensor) and x.dim() == 0 and not x.requires_grad and reader.of(x) == CONSTANT:
        x = x.item()
    if not isinstance(x, (int, float)):
        raise OtherForm("the score meets a tensor in another way than by a sum")
    return float(x)


def read(score_mod: Callable[..., Any], kind: torch.dtype) -> _Reader:
    """What a score_mod does: `form` (None: another one) of the reader, and `learned`."""
    score, *at = torch.zeros((), dtype=kind), *(torch.zeros((), dtype=torch.int64) for _ in range(4))
    known = [Known(frozenset("b")), Known(frozenset("h")), Known(frozenset("i"), (1, 0, 0)), Known(frozenset("j"), (0, 1, 0))]
    reader = _Reader([(score, Known(form=Form())), *zip(at, known, strict=True)])
    try:
        with Items(), reader:
            result = score_mod(score, *at)
    except IndexError:  # at 0, 0: it reads past a table
        return reader
    reader.form = None if reader.other else reader.of(result).form
    return reader


def as_options(reader: _Reader, score_mod: Callable[..., Any], query: Tensor, key: Tensor, scale: float | None, causal: bool, options: list[Any]) -> float | None:
    """A score_mod as options, into `options`; returns the scale.  causal: no query sees a key behind its own place."""
    kind, form, largest = torch.float64 if query.dtype == torch.float64 else torch.float32, reader.form, reader.largest
    if form is None or form.inside:
        raise reader.other or OtherForm("the result is not the score with something added")
    scale = (query.shape[-1] ** -0.5 if scale is None else scale) * form.factor if form.factor != 1 else scale
    if form.cap is not None:
        options[AT["softcap"]] = form.cap
    sizes = {"b": query.shape[0], "h": query.shape[1], "i": query.shape[2], "j": key.shape[2]}
    if not form.added or not all(sizes.values()):
        return scale

    def value(b: Any, h: Any, i: Any, j: Any) -> Any:
        return score_mod(torch.zeros((), dtype=kind), b, h, i, j)

    def over(names: str, i: Tensor, j: Tensor) -> Tensor:
        """What is added, by entries and heads as far as it depends on them, and pairs (i, j)."""
        b, h = (torch.arange(sizes[name] if name in names else 1) for name in "bh")
        return mapped(value, [(0, None, None, None), (None, 0, None, None), (None, None, 0, 0)], b, h, i, j).to(kind)

    if form.reads <= set("bhd") and (form.slope == "absolute" or (form.slope == "signed" and causal)):
        slopes = -over("".join(form.reads), torch.ones(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64))[..., 0]
        slopes = slopes.expand(-1, sizes["h"])
        options[AT["alibi_slopes"]] = slopes.contiguous() if "b" in form.reads else slopes[0].contiguous()
    elif "d" in form.reads and form.reads <= set("hd") and max(sizes["i"], sizes["j"]) <= 2**24:
        d = torch.arange(1 - sizes["j"], sizes["i"])
        table, most = over("".join(form.reads), d.clamp(min=0), (-d).clamp(min=0))[0], max(sizes["i"], sizes["j"]) - 1
        table = torch.nn.functional.pad(table, (most + 1 - sizes["j"], most + 1 - sizes["i"]))
        options[AT["bias_table"]] = table.expand(sizes["h"], -1).contiguous()
        options[AT["table_kind"]], options[AT["table_distance"]] = 1, most
    else:
        reads = form.reads - {"d"} | (set("ij") if "d" in form.reads else set())
        mine = {name: size if name in reads else 1 for name, size in sizes.items()}
        if set("ij") <= reads and math.prod(mine.values()) > max(largest, FEW):
            raise OtherForm("what is added has a number for each query and key")
        options[AT["bias"]] = everywhere(value, *(torch.arange(size) for size in mine.values())).to(kind)
    return scale
