# SPDX-License-Identifier: MIT
"""The problem and the tensors of a call of linear attention, checked, and plans for them: what libattn.linear is made of."""
from __future__ import annotations

import ctypes
import weakref
from dataclasses import dataclass
from typing import Any, Literal, Mapping, Sequence, cast, get_args

import numpy as np

from . import _abi, _core, _native
from ._arguments import choice, integer, real
from ._arrays import DTYPES, Array, like
from ._execution import NAMES, Execution, continued, execution
from ._slots import Slots, Workspaces, exactly, fits, floats, four, integers, output, summed

Features = Literal["elu1", "identity", "relu", "softmax", "favor", "fourier", "trigonometric"]
Denominator = Literal["clamp", "add", "none"]
Form = Literal["auto", "chunked", "recurrent", "quadratic"]


def _values(literal: Any, prefix: str) -> dict[str, int]:
    return {name: getattr(_abi, prefix + name.upper()) for name in get_args(literal)}


FEATURES = _values(Features, "ATTN_FEATURES_")
DENOMINATORS = _values(Denominator, "ATTN_DENOMINATOR_")
RANDOM_MAPS = ("favor", "fourier", "trigonometric")
FORMS = _values(Form, "ATTN_LINEAR_FORM_")


class Options(Execution, total=False):
    """Keywords of all functions of this module that compute attention, besides its tensors.

    With q and k of len_q and len_kv tokens and dim_qk channels:

     causal         a bool: query t reads keys 0 .. t; needs len_q = len_kv.  A decay, beta, erase and write need it
     features       f(x), "elu1" by default: max(x, 0) + exp(min(x, 0)) (Katharopoulos et al. 2020); "identity": x, also for features of
                    your own; "relu": max(x, 0); "softmax" over the channels; and, from the rows w of feature_matrix and x times
                    feature_scale, "favor": exp(w.x - |x|^2/2) / sqrt(rows) (Choromanski et al. 2020), "fourier": cos(w.x), then
                    sin(w.x), / sqrt(rows) (Rahimi and Recht 2007), "trigonometric": the same times exp(|x|^2/2)
     feature_scale  a number; None: dim_qk^(-1/4), with which f(q).f(k) estimates exp(q.k / sqrt(dim_qk)) as in softmax attention
     denominator    "clamp": max(scale * f(q).z, epsilon), through which no gradient flows where it is clamped; "add": scale * f(q).z +
                    epsilon; "none": 1; default: "clamp", or "none" with beta or with erase and write, which have no denominator
     epsilon        a number above 0; None: 1e-6
     scale          a number; None: 1 with a denominator, else 1/sqrt(dim_qk)
     form           "auto", "chunked", "recurrent" or "quadratic": three ways to compute the same numbers within rounding, of which
                    "auto" (default) is the fastest, and "recurrent" is causal only
     chunk          an integer: tokens of a chunk; None: the fastest.  Bits depend on it
    """

    causal: bool
    features: Features
    feature_scale: float | None
    denominator: Denominator
    epsilon: float | None
    scale: float | None
    form: Form
    chunk: int | None


Options.__doc__ = continued(Options.__doc__, Execution.__doc__)

TOKENS = ("q", "k", "v", "decay", "erase", "write", "grad_o", "o")  # tensors of a ragged batch that are [tokens, heads, channels]
NUMBERS = ("beta", "denominators")  # and those that are [tokens, heads]


def turned(x: Any, name: str) -> Array:
    """A tensor of a ragged batch as C sees it: of one entry, [1, heads, tokens, ...]."""
    array, axes = floats(x, name), 2 if name in NUMBERS else 3
    if array.ndim != axes:
        shape = "[tokens, heads]" if axes == 2 else "[tokens, heads, channels]"
        raise ValueError(f"{name} has {array.ndim} axes; with cu_seqlens it must be {shape}")
    return np.moveaxis(array, 0, 1)[np.newaxis]


def starts_of(x: Any) -> tuple[Array, int]:
    """cu_seqlens, and the longest sequence."""
    starts = integers(x, "cu_seqlens")
    if starts.ndim != 1 or not starts.size:
        raise ValueError(f"cu_seqlens has shape {list(starts.shape)}; it must be [sequences + 1]")
    return starts, max(0, int(np.diff(starts).max(initial=0)))


@dataclass(frozen=True)
class Forward:
    """What forward computed, in arrays of the library of q."""

    o: Any  #: [batch, heads, len_q, dim_v], of q's type
    denominators: Any  #: [batch, heads, len_q], float32 or float64: scale * f(q).z, before clamp or epsilon; None without
    final_state: Any  #: [batch, heads_kv, F, dim_v]: the initial_state of the tokens that follow
    final_sum: Any  #: [batch, heads_kv, F]: z; None without a denominator


@dataclass(frozen=True)
class Gradients:
    """Gradients of the tensors of these names, with their shapes and types; None for those that were absent."""

    q: Any
    k: Any
    v: Any
    decay: Any
    beta: Any
    erase: Any
    write: Any
    initial_state: Any
    initial_sum: Any


class Call:
    """The problem and the tensors of one call, checked, with memory for its results."""

    def __init__(self, op: int, tensors: Mapping[str, Any], options: Options) -> None:
        given = {name: x for name, x in tensors.items() if x is not None}
        for name in ("q", "k", "v"):
            if name not in given:
                raise TypeError(f"{name} is missing")
        self.source = given["q"]
        self.starts: Array | None = None
        longest = 0
        if "cu_seqlens" in given:
            self.starts, longest = starts_of(given["cu_seqlens"])
            given.update({name: turned(given[name], name) for name in (*TOKENS, *NUMBERS) if name in given})
        own = {name: value for name, value in options.items() if name not in NAMES}
        self.options = execution(cast(Execution, {name: value for name, value in options.items() if name in NAMES}))
        unknown = sorted(own.keys() - Options.__annotations__.keys())
        if unknown:
            raise TypeError(f"{unknown[0]} is not an option; known: {', '.join(sorted(Options.__annotations__))}")
        queries = floats(given["q"], "q")
        self.rank = queries.ndim
        q = four(queries, "q")
        self.compute: np.dtype[Any] = np.dtype(np.float64 if q.dtype == np.float64 else np.float32)
        k, v = self.whole(given, "k"), self.whole(given, "v")
        if k.shape[0] != q.shape[0] or k.shape[3] != q.shape[3]:
            raise ValueError(f"k has shape {list(k.shape)}, q {list(q.shape)}; batch and channels must agree")
        if v.shape[:3] != k.shape[:3]:
            raise ValueError(f"v has shape {list(v.shape)}, k {list(k.shape)}; batch, heads and tokens must agree")
        batch, heads, len_q, dim = q.shape
        self.rows, self.heads_kv, self.len_kv, self.dim_v = batch, k.shape[1], k.shape[2], v.shape[3]
        self.batch = batch if self.starts is None else len(self.starts) - 1

        problem = _native.struct(_abi.attn_linear_problem)
        problem.op, problem.causal = op, int(bool(own.get("causal", False)))
        lengths_of = (len_q, self.len_kv) if self.starts is None else (longest, longest)
        problem.shape = _abi.attn_shape(self.batch, heads, self.heads_kv, *lengths_of, dim, self.dim_v)
        problem.features = choice(own.get("features", "elu1"), "features", FEATURES)
        problem.form = choice(own.get("form", "auto"), "form", FORMS)
        matrix = None
        if "feature_matrix" in given:
            matrix = np.ascontiguousarray(floats(given["feature_matrix"], "feature_matrix", self.compute))
            if matrix.ndim != 2 or matrix.shape[1] != dim:
                raise ValueError(f"feature_matrix has shape {list(matrix.shape)}; it must be [rows, {dim}]")
            problem.random_features = matrix.shape[0]
        elif own.get("features") in RANDOM_MAPS:
            raise ValueError(f"features is {own['features']!r}, and feature_matrix is missing; random_features() draws one")
        if "beta" in given and ("erase" in given or "write" in given):
            raise ValueError("beta is set, and so is erase or write; set only one of these rules")
        if "beta" in given:
            problem.rule = _abi.ATTN_LINEAR_RULE_DELTA
        elif "erase" in given or "write" in given:
            problem.rule = _abi.ATTN_LINEAR_RULE_LOW_RANK
        guard = own.get("denominator", "none" if problem.rule else "clamp")
        problem.denominator = choice(guard, "denominator", DENOMINATORS)
        for name, what in (("feature_scale", "dim_qk^(-1/4)"), ("epsilon", "1e-6")):
            number = own.get(name)
            if number is not None:
                value = real(number, name)
                if value == 0:
                    raise ValueError(f"{name} is 0; it must be another number, or None for {what}")
                setattr(problem, name, value)
        if own.get("scale") is not None:
            problem.scale_kind, problem.scale = _abi.ATTN_SCALE_VALUE, real(own["scale"], "scale")
        if own.get("chunk") is not None:
            problem.chunk = integer(own["chunk"], "chunk", 1)
        self.problem, self.guarded = problem, problem.denominator != _abi.ATTN_DENOMINATOR_NONE
        self.features: int = _native.call("attn_features_count", problem.features, dim, problem.random_features)

        slots = self.slots = Slots(_abi.attn_linear_tensors)
        for name, array in (("q", q), ("k", k), ("v", v)):
            slots.put(name, array)
        slots.put("feature_matrix", matrix, (2, 3))
        self.shapes: dict[str, tuple[int, ...]] = {"q": queries.shape, "k": k.shape[4 - self.rank:], "v": v.shape[4 - self.rank:]}
        self.per_token(given)
        self.states(given)
        if self.starts is not None:
            if self.starts[-1] != q.shape[2] or self.starts[-1] != self.len_kv:  # (rows of no sequence would not be computed)
                raise ValueError(f"cu_seqlens ends at {self.starts[-1]}; there are {q.shape[2]} tokens of q and {self.len_kv} of k")
            slots.put("cu_seqlens", self.starts, (0,))
        if "lengths" in given:
            lengths = exactly(integers(given["lengths"], "lengths"), "lengths", (batch,), "[batch]")
            slots.put("lengths", lengths, (0,))

    def sizes(self) -> dict[str, tuple[int, ...]]:
        """The shapes on which a plan depends, and which C, that sees strides, cannot compare: without the tokens of a ragged batch."""
        found = {name: self.slots[name].shape for name in ("q", "k", "v", "feature_matrix") if self.slots.get(name) is not None}
        if self.starts is None:
            return found
        return {name: (x[1], x[3]) if len(x) == 4 else x for name, x in found.items()} | {"cu_seqlens": self.starts.shape}

    def rule(self) -> set[str]:
        """The tensors that make it another rule than the additive one."""
        return {name for name in ("beta", "erase", "write") if self.slots.get(name) is not None}

    def whole(self, given: Mapping[str, Any], name: str) -> Array:
        """A tensor with as many axes as q, as one of four."""
        return four(self.same_rank(floats(given[name], name), name, self.rank), name)

    def same_rank(self, array: Array, name: str, rank: int) -> Array:
        if array.ndim != rank:
            raise ValueError(f"{name} has {array.ndim} axes; it must have {rank}, since q has {self.rank}")
        return array

    def fill(self, given: Mapping[str, Any], name: str, shape: Sequence[int], axes: str, dtype: Any = None) -> None:
        """A tensor that may broadcast; one of three axes is a slot whose fourth axis is 1."""
        if name not in given:
            return
        array = floats(given[name], name, dtype)
        short = axes.count(",") == 2
        self.shapes[name] = self.same_rank(array, name, self.rank - short).shape
        if short:
            array = array[..., np.newaxis]
        self.slots.put(name, fits(four(array, name), name, shape, axes))

    def per_token(self, given: Mapping[str, Any]) -> None:
        tokens = (self.rows, self.heads_kv, self.len_kv)
        if "decay" in given:
            array = floats(given["decay"], "decay")
            last = array.shape[-1] if array.ndim else 0
            if last not in (1, self.features):
                raise ValueError(f"decay has shape {list(array.shape)}; its last axis must be 1, or {self.features}, one for each feature")
            self.problem.decay_kind = _abi.ATTN_DECAY_HEAD if last == 1 else _abi.ATTN_DECAY_CHANNEL
            self.fill(given, "decay", (*tokens, last), "[batch, heads_kv, len_kv, 1 or features]")
        self.fill(given, "beta", (*tokens, 1), "[batch, heads_kv, len_kv]")
        for name in ("erase", "write"):
            self.fill(given, name, (*tokens, self.features), "[batch, heads_kv, len_kv, features]")

    def states(self, given: Mapping[str, Any]) -> None:
        heads = (self.batch, self.heads_kv, self.features)
        for prefix in ("initial", "grad_final"):
            self.fill(given, f"{prefix}_state", (*heads, self.dim_v), "[batch, heads_kv, features, dim_v]", self.compute)
            self.fill(given, f"{prefix}_sum", (*heads, 1), "[batch, heads_kv, features]", self.compute)

    def output(self, name: str, shape: Sequence[int], dtype: Any, out: Any = None) -> None:
        """A result of four axes; `out` has those of q."""
        if self.starts is not None and name in (*TOKENS, *NUMBERS):  # in memory as the caller's tensors are
            _, heads, tokens, channels = shape
            array = np.empty((tokens, heads, channels), dtype) if out is None else output(out, "out", (tokens, heads, channels), dtype)
            self.slots.put(name, np.moveaxis(array, 0, 1)[np.newaxis])
            return
        made = np.empty(tuple(shape), dtype) if out is None else four(output(out, "out", shape[4 - self.rank:], dtype), "out")
        self.slots.put(name, made)

    def outputs(self, states: bool, denominators: bool, out: Any) -> None:
        """Memory for what forward writes."""
        batch, heads, len_q, _ = self.slots["q"].shape
        self.output("o", (batch, heads, len_q, self.dim_v), self.slots["q"].dtype, out)
        if denominators and self.guarded:
            self.output("denominators", (batch, heads, len_q, 1), self.compute)
        if states:
            self.output("final_state", (self.batch, self.heads_kv, self.features, self.dim_v), self.compute)
            if self.guarded:
                self.output("final_sum", (self.batch, self.heads_kv, self.features, 1), self.compute)

    def pool(self, state: Array, total: Array | None, initial: Any, final: Any) -> None:
        """States in rows of a pool, which the lists choose."""
        first, last = integers(initial, "slots"), integers(final, "final_slots")
        exactly(first, "slots", (self.batch,), "[sequences]")
        if last.ndim not in (1, 2) or last.shape[0] != self.batch or (last.ndim == 2 and not last.shape[1]):
            raise ValueError(f"final_slots has shape {list(last.shape)}; it must be [{self.batch}] or [{self.batch}, snapshots], with at least one")
        self.problem.pool = state.shape[0]
        self.problem.snapshots = last.shape[1] if last.ndim == 2 else 1
        for name in ("initial_state", "final_state"):
            self.slots.put(name, state)
        if total is not None:
            for name in ("initial_sum", "final_sum"):
                self.slots.put(name, total[..., np.newaxis])
        self.slots.put("initial_slots", first, (0,))
        self.slots.put("final_slots", last, (0,) if last.ndim == 1 else (0, 3))

    def gradients(self, tensors: Mapping[str, Any]) -> None:
        """What backward reads besides the tensors of forward, and memory for what it writes."""
        batch, heads, len_q, _ = self.slots["q"].shape
        shape = (batch, heads, len_q, self.dim_v)
        if self.starts is not None:
            tensors = {name: turned(x, name) if x is not None and name in ("grad_o", "o", "denominators") else x for name, x in tensors.items()}
        grad = four(self.same_rank(floats(tensors["grad_o"], "grad_o"), "grad_o", self.rank), "grad_o")
        self.slots.put("grad_o", exactly(grad, "grad_o", shape, "[batch, heads, len_q, dim_v]"))
        if self.guarded:
            saved = four(self.same_rank(floats(tensors["o"], "o"), "o", self.rank), "o")
            self.slots.put("o", exactly(saved, "o", shape, "[batch, heads, len_q, dim_v]"))
            counts = self.same_rank(floats(tensors["denominators"], "denominators", self.compute), "denominators", self.rank - 1)
            counts = four(counts[..., np.newaxis], "denominators")
            self.slots.put("denominators", exactly(counts, "denominators", (*shape[:3], 1), "[batch, heads, len_q]"))
        for name in DIFFERENTIABLE:
            if (array := self.slots.get(name)) is not None:
                self.slots.put(f"grad_{name}", np.empty(array.shape, array.dtype))

    def result(self, name: str, short: bool = False) -> Any:
        """A result with as many axes as q, or one less, in q's library."""
        array = self.slots.get(name)
        if array is None:
            return None
        array = array[..., 0] if short else array
        if self.starts is not None and name in (*TOKENS, *NUMBERS):
            return like(np.moveaxis(array[0], 0, 1), self.source)
        return like(array.reshape(array.shape[4 - self.rank:]), self.source)

    def run(self) -> None:
        if self.options is None:
            _native.call("attn_linear_compute", ctypes.byref(self.problem), self.slots.reference)
            return
        plan = Handle(self)
        plan.execute(self)

    def collect(self, out: Any = None) -> Forward:
        o = out if out is not None else self.result("o")
        return Forward(o, self.result("denominators", True), self.result("final_state"), self.result("final_sum", True))

    def collect_gradients(self) -> Gradients:
        found: dict[str, Any] = {}
        for name in DIFFERENTIABLE:
            grad = self.slots.get(f"grad_{name}")
            found[name] = None
            if grad is not None:
                total = summed(grad, self.full(name)).reshape(self.shapes[name])
                if self.starts is not None and name in (*TOKENS, *NUMBERS):
                    total = np.ascontiguousarray(np.moveaxis(total[0], 0, 1))
                found[name] = like(total, self.source)
        return Gradients(**found)

    def full(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor as its slot has it, with four axes."""
        return (1,) * (4 - self.rank) + self.shapes[name] + ((1,) if name in ("beta", "initial_sum") else ())


DIFFERENTIABLE = ("q", "k", "v", "decay", "beta", "erase", "write", "initial_state", "initial_sum")


@dataclass(frozen=True)
class PlanDescription:
    """What a plan does."""

    kernel: str  #: "attn_linear_f32_avx2"
    why: str
    isa: str
    compute: str  #: the type that it computes in, "f32" or "f64"
    form: str  #: "chunked", "recurrent" or "quadratic"
    chunk: int  #: tokens; 1 if recurrent
    dim_features: int
    threads: int
    workspace_bytes: int
    flops: float  #: of the matrix products of this form, 2 for each multiply-add


@dataclass(frozen=True)
class TensorPlan:
    """A tensor of a plan: enough to allocate it."""

    role: str  #: "input" or "output"
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]  #: in elements
    bytes: int


class Handle:
    """An attn_linear_plan, destroyed with the object."""

    def __init__(self, call: Call) -> None:
        self.handle = ctypes.c_void_p()
        _native.call(
            "attn_linear_plan_create", ctypes.byref(self.handle), ctypes.byref(call.problem), call.slots.reference, call.options
        )
        weakref.finalize(self, _native.call, "attn_linear_plan_destroy", self.handle)
        self.sizes, self.longest, self.rule = call.sizes(), call.problem.shape.len_q, call.rule()
        self.workspaces = Workspaces(_native.call("attn_linear_plan_workspace_size", self.handle))

    def check(self, call: Call) -> None:
        """Raises ValueError for a call of other sizes than the plan's."""
        if (call.starts is None) == ("cu_seqlens" in self.sizes):
            is_, with_ = ("missing", "with") if call.starts is None else ("set", "without")
            raise ValueError(f"cu_seqlens is {is_}; the plan was made {with_} it")
        for name in sorted(self.rule ^ call.rule()):  # before the results, which follow from them, are what C finds to differ
            is_, with_ = ("missing", "with") if name in self.rule else ("set", "without")
            raise ValueError(f"{name} is {is_}; the plan was made {with_} it")
        for name, shape in call.sizes().items():
            planned = self.sizes.get(name, shape)  # (that a tensor was absent, C says)
            if shape != planned:
                what = "heads and channels" if call.starts is not None and name in TOKENS else "shape"
                raise ValueError(f"{name} has {what} {list(shape)}; the plan was made with {list(planned)}")
        if call.starts is not None and call.problem.shape.len_q > self.longest:
            raise ValueError(f"cu_seqlens has a sequence of {call.problem.shape.len_q} tokens; the longest of the plan has {self.longest}")

    def execute(self, call: Call) -> None:
        self.check(call)
        block = self.workspaces.take()
        try:
            _native.call("attn_linear_execute", self.handle, call.slots.reference, block.ctypes.data, self.workspaces.size)
        finally:
            self.workspaces.give(block)

    def description(self) -> PlanDescription:
        found = _native.struct(_abi.attn_linear_plan_description)
        _native.call("attn_linear_plan_describe", self.handle, ctypes.byref(found))
        names = {value: name for name, value in FORMS.items()}
        return PlanDescription(
            found.kernel.decode(), _core.sentence(found.why.decode()), _native.call("attn_isa_name", found.isa).decode(),
            _native.call("attn_dtype_name", found.compute).decode(), names[found.form], found.chunk, found.dim_features, found.threads,
            found.workspace_bytes, found.flops,
        )

    def tensors(self) -> dict[str, TensorPlan]:
        found: dict[str, TensorPlan] = {}
        roles = {_abi.ATTN_ROLE_INPUT: "input", _abi.ATTN_ROLE_OUTPUT: "output"}
        table = [field[0] for field in _abi.attn_linear_tensors._fields_ if field[1] in (_abi.attn_input, _abi.attn_output)]
        for index, name in enumerate(table):
            plan = _native.struct(_abi.attn_tensor_plan)
            _native.call("attn_linear_plan_tensor", self.handle, index, ctypes.byref(plan))
            if plan.role in roles:
                found[name] = TensorPlan(roles[plan.role], DTYPES[plan.dtype], tuple(plan.shape), tuple(plan.stride), plan.bytes)
        return found
