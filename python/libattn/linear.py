# SPDX-License-Identifier: MIT
"""Linear attention: sums over keys kept in a state of fixed size, so that cost is linear in the length and decoding needs no cache.
(The header attn/linear.h.)

One step of one head, with the features f of a token (F of them), its value v, and a state S [F, dim_v]:

    S_t = diag(e^decay_t) S_(t-1) + f(k_t) u_t^T      z_t = diag(e^decay_t) z_(t-1) + f(k_t)
    o_t = scale * S_t^T f(q_t) / n_t                  n_t: the denominator, made from scale * f(q_t).z_t

    u_t = v_t                                                     or with beta, the delta rule,
    u_t = beta_t (v_t - (diag(e^decay_t) S_(t-1))^T f(k_t))       or with erase and write, low rank, u_t = v_t and S_t has one more term:
    S_t = diag(e^decay_t) S_(t-1) + f(k_t) v_t^T + write_t (S_(t-1)^T erase_t)^T

(Katharopoulos et al. 2020, equations 16 to 20; retention: Sun et al. 2023, equation 5; gated: Yang et al. 2023, equation 3; delta rule:
Schlag et al. 2021, equation 24; gated delta rule: Yang et al. 2024, equation 10; low rank: Peng et al. 2025, "RWKV-7", equation 17.)
Not causal: every query reads the S and z of all keys.

    o = linear.attention(q, k, v, causal=True)
    done = linear.forward(q, k, v, causal=True)             # with what backward and the next tokens need
    grads = linear.backward(q, k, v, grad_o, o=done.o, denominators=done.denominators, causal=True)

Shapes: q [batch, heads, len_q, dim_qk], k [batch, heads_kv, len_kv, dim_qk], v [batch, heads_kv, len_kv, dim_v]; heads is a multiple of
heads_kv, and the queries of a group read one state.  All tensors may lack batch, or batch and heads.  q, k and v are of float32, float16
and bfloat16 in any mixture, or all of float64; a last axis that is not contiguous is copied, other strides are used as they are.
"""
from __future__ import annotations

import ctypes
import weakref
from dataclasses import dataclass
from typing import Any, Literal, Mapping, Sequence, TypedDict, Unpack, cast, get_args

import numpy as np

from . import _abi, _native
from ._arguments import choice, integer, real
from ._arrays import DTYPES, Array, asarray, like
from ._execution import NAMES, Execution, execution
from ._slots import Slots, Workspaces, exactly, fits, floats, four, integers, output, output_slot, summed

__all__ = [
    "BackwardPlan", "Forward", "Gradients", "Options", "Plan", "PlanDescription", "State", "TensorPlan", "attention", "backward",
    "features_count", "forward", "linformer_backward", "linformer_project", "random_features",
]

Features = Literal["elu1", "identity", "relu", "softmax", "favor", "fourier", "trigonometric"]
Denominator = Literal["clamp", "add", "none"]
Form = Literal["auto", "chunked", "recurrent", "quadratic"]
RandomRows = Literal["orthogonal", "normal"]


def _values(literal: Any, prefix: str) -> dict[str, int]:
    return {name: getattr(_abi, prefix + name.upper()) for name in get_args(literal)}


FEATURES = _values(Features, "ATTN_FEATURES_")
DENOMINATORS = _values(Denominator, "ATTN_DENOMINATOR_")
RANDOM_MAPS = ("favor", "fourier", "trigonometric")
FORMS = _values(Form, "ATTN_LINEAR_FORM_")
RANDOM_ROWS = _values(RandomRows, "ATTN_RANDOM_ROWS_")


class Options(Execution, total=False):
    """Keywords of all functions of this module that compute attention, besides its tensors."""

    causal: bool  #: query t reads keys 0 .. t; needs len_q = len_kv.  A decay, beta, erase and write need it
    features: Features
    """f(x), "elu1" by default: max(x, 0) + exp(min(x, 0)) (Katharopoulos et al. 2020); "identity": x, also for features of your own;
    "relu": max(x, 0); "softmax" over the channels; and, from the rows w of feature_matrix and x times feature_scale, "favor":
    exp(w.x - |x|^2/2) / sqrt(rows) (Choromanski et al. 2020), "fourier": cos(w.x), then sin(w.x), / sqrt(rows) (Rahimi and Recht 2007),
    "trigonometric": the same times exp(|x|^2/2)."""
    feature_scale: float | None  #: None: dim_qk^(-1/4), with which f(q).f(k) estimates exp(q.k / sqrt(dim_qk)) as in softmax attention
    denominator: Denominator
    """"clamp": max(scale * f(q).z, epsilon), through which no gradient flows where it is clamped; "add": scale * f(q).z + epsilon;
    "none": 1.  Default: "clamp", or "none" with beta or with erase and write, which have no denominator."""
    epsilon: float | None  #: above 0; None: 1e-6
    scale: float | None  #: None: 1 with a denominator, else 1/sqrt(dim_qk)
    form: Form  #: three ways to compute the same numbers within rounding; "auto": the fastest; "recurrent" is causal only
    chunk: int | None  #: tokens of a chunk; None: the fastest.  Bits depend on it


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


class _Call:
    """The problem and the tensors of one call, checked, with memory for its results."""

    def __init__(self, op: int, tensors: Mapping[str, Any], options: Options) -> None:
        given = {name: x for name, x in tensors.items() if x is not None}
        self.source = given["q"]
        own = {name: value for name, value in options.items() if name not in NAMES}
        self.options = execution(cast(Execution, {name: value for name, value in options.items() if name in NAMES}))
        unknown = sorted(own.keys() - Options.__annotations__.keys())
        if unknown:
            raise TypeError(f"{unknown[0]} is not an option; known: {', '.join(sorted([*Options.__annotations__, *NAMES]))}")
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
        self.batch, self.heads_kv, self.len_kv, self.dim_v = batch, k.shape[1], k.shape[2], v.shape[3]

        problem = _native.struct(_abi.attn_linear_problem)
        problem.op, problem.causal = op, int(bool(own.get("causal", False)))
        problem.shape = _abi.attn_shape(batch, heads, self.heads_kv, len_q, self.len_kv, dim, self.dim_v)
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
        if "lengths" in given:
            lengths = exactly(integers(given["lengths"], "lengths"), "lengths", (batch,), "[batch]")
            slots.put("lengths", lengths, (0,))

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
        tokens = (self.batch, self.heads_kv, self.len_kv)
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
        made = np.empty(tuple(shape), dtype) if out is None else four(output(out, "out", shape[4 - self.rank:], dtype), "out")
        self.slots.put(name, made)

    def outputs(self, states: bool, denominators: bool, out: Any) -> None:
        """Memory for what forward writes."""
        batch, heads, len_q, _ = self.slots["q"].shape
        self.output("o", (batch, heads, len_q, self.dim_v), self.slots["q"].dtype, out)
        if denominators and self.guarded:
            self.output("denominators", (batch, heads, len_q, 1), self.compute)
        if states:
            self.output("final_state", (batch, self.heads_kv, self.features, self.dim_v), self.compute)
            if self.guarded:
                self.output("final_sum", (batch, self.heads_kv, self.features, 1), self.compute)

    def gradients(self, tensors: Mapping[str, Any]) -> None:
        """What backward reads besides the tensors of forward, and memory for what it writes."""
        batch, heads, len_q, _ = self.slots["q"].shape
        shape = (batch, heads, len_q, self.dim_v)
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
        return like(array.reshape(array.shape[4 - self.rank:]), self.source)

    def run(self) -> None:
        if self.options is None:
            _native.call("attn_linear_compute", ctypes.byref(self.problem), self.slots.reference)
            return
        plan = _Handle(self)
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
                full = (1,) * (4 - self.rank) + self.shapes[name] + ((1,) if name in ("beta", "initial_sum") else ())
                found[name] = like(summed(grad, full).reshape(self.shapes[name]), self.source)
        return Gradients(**found)


DIFFERENTIABLE = ("q", "k", "v", "decay", "beta", "erase", "write", "initial_state", "initial_sum")


def attention(
    q: Any, k: Any, v: Any, *, feature_matrix: Any = None, decay: Any = None, beta: Any = None, erase: Any = None, write: Any = None,
    lengths: Any = None, initial_state: Any = None, initial_sum: Any = None, out: Any = None, **options: Unpack[Options],
) -> Any:
    """Linear attention: o [batch, heads, len_q, dim_v], of q's type and library, by the formulas at the top of this module.

    feature_matrix [rows, dim_qk] holds the rows w of the random maps (random_features draws one).  decay is log(decay_t), 0 keeps and
    negative forgets: [batch, heads_kv, len_kv, 1], or with F in place of the 1 for a decay of each channel; retention's constant of each
    head is [1, heads_kv, 1, 1].  beta [batch, heads_kv, len_kv] makes it the delta rule; erase and write [batch, heads_kv, len_kv, F] the
    low-rank rule (to which no feature map is applied).  These may be of size 1 along axes where they are constant.  lengths [batch] of
    integers: tokens of each entry; later keys are not read and, if causal, later rows are 0.  initial_state [batch, heads_kv, F, dim_v]
    and, with a denominator, initial_sum [batch, heads_kv, F] continue a sequence.  out: an array to write o to.

    `options` are the fields of Options: causal, features, denominator, scale, form, threads, ...

    Raises ValueError (shapes, ranges, tensors that are missing or have no use), TypeError (not an array of floats in this computer's
    memory, an unknown option), NotImplementedError (a decay, rule or form that needs causal; a form that does not exist for the rule) or
    MemoryError, with a sentence.
    """
    call = _Call(_abi.ATTN_FORWARD, _tensors(locals()), options)
    call.outputs(False, False, out)
    call.run()
    return out if out is not None else call.result("o")


def forward(
    q: Any, k: Any, v: Any, *, feature_matrix: Any = None, decay: Any = None, beta: Any = None, erase: Any = None, write: Any = None,
    lengths: Any = None, initial_state: Any = None, initial_sum: Any = None, out: Any = None, **options: Unpack[Options],
) -> Forward:
    """The same with the denominators, which backward needs, and the final state and sum, with which a sequence goes on.

    A sequence may be split anywhere: the final state and sum of one part are the initial ones of the next.
    """
    call = _Call(_abi.ATTN_FORWARD, _tensors(locals()), options)
    call.outputs(True, True, out)
    call.run()
    return call.collect(out)


def backward(
    q: Any, k: Any, v: Any, grad_o: Any, *, o: Any = None, denominators: Any = None, grad_final_state: Any = None,
    grad_final_sum: Any = None, feature_matrix: Any = None, decay: Any = None, beta: Any = None, erase: Any = None, write: Any = None,
    lengths: Any = None, initial_state: Any = None, initial_sum: Any = None, **options: Unpack[Options],
) -> Gradients:
    """The gradients of all float tensors but feature_matrix, from grad_o [batch, heads, len_q, dim_v] and, if present, those of the final
    state and sum.  The gradient of decay is that of log(decay_t); gradients of tensors that broadcast are summed.

    With a denominator, backward reads o and denominators, which forward returned; None: they are computed again.
    """
    tensors = _tensors(locals())
    call = _Call(_abi.ATTN_BACKWARD, tensors, options)
    tensors.update(_saved(call, tensors, o, denominators, grad_o, options))
    call.gradients(tensors)
    call.run()
    return call.collect_gradients()


def _saved(call: _Call, tensors: Mapping[str, Any], o: Any, denominators: Any, grad_o: Any, options: Options) -> dict[str, Any]:
    """What backward reads: o and the denominators, computed if they are absent."""
    if call.guarded and (o is None or denominators is None):
        again = forward(**{name: tensors[name] for name in FORWARD}, **options)
        o, denominators = again.o, again.denominators
    return {"grad_o": grad_o, "o": o, "denominators": denominators}


FORWARD = ("q", "k", "v", "feature_matrix", "decay", "beta", "erase", "write", "lengths", "initial_state", "initial_sum")


def _tensors(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {name: arguments.get(name) for name in (*FORWARD, "grad_final_state", "grad_final_sum")}


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


class _Handle:
    """An attn_linear_plan, destroyed with the object."""

    def __init__(self, call: _Call) -> None:
        self.handle = ctypes.c_void_p()
        _native.call(
            "attn_linear_plan_create", ctypes.byref(self.handle), ctypes.byref(call.problem), call.slots.reference, call.options
        )
        weakref.finalize(self, _native.call, "attn_linear_plan_destroy", self.handle)
        self.workspaces = Workspaces(_native.call("attn_linear_plan_workspace_size", self.handle))

    def execute(self, call: _Call) -> None:
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
            found.kernel.decode(), found.why.decode(), _native.call("attn_isa_name", found.isa).decode(),
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


class Plan:
    """forward for a shape that repeats: checked and planned once, from arrays of these shapes, types and strides, then called with others.

        plan = linear.Plan(q, k, v, causal=True)
        done = plan(q, k, v)                                    # a Forward

    Any number of threads may call one plan at once.  The tensors that were present when it was made must be present in every call, with
    the same types, shapes and strides, or the call raises ValueError.
    """

    def __init__(
        self, q: Any, k: Any, v: Any, *, feature_matrix: Any = None, decay: Any = None, beta: Any = None, erase: Any = None,
        write: Any = None, lengths: Any = None, initial_state: Any = None, initial_sum: Any = None, **options: Unpack[Options],
    ) -> None:
        call = _Call(_abi.ATTN_FORWARD, _tensors(locals()), options)
        call.outputs(True, True, None)
        self._options, self._handle = options, _Handle(call)

    def __call__(
        self, q: Any, k: Any, v: Any, *, feature_matrix: Any = None, decay: Any = None, beta: Any = None, erase: Any = None,
        write: Any = None, lengths: Any = None, initial_state: Any = None, initial_sum: Any = None, out: Any = None,
    ) -> Forward:
        """Computes: as linear.forward."""
        call = _Call(_abi.ATTN_FORWARD, _tensors(locals()), self._options)
        call.outputs(True, True, out)
        self._handle.execute(call)
        return call.collect(out)

    @property
    def description(self) -> PlanDescription:
        """Kernel, form, chunk, threads and memory."""
        return self._handle.description()

    @property
    def tensors(self) -> dict[str, TensorPlan]:
        """The tensors of the plan by name, with four axes each, as C sees them."""
        return self._handle.tensors()


class BackwardPlan:
    """backward for a shape that repeats, as Plan is forward."""

    def __init__(
        self, q: Any, k: Any, v: Any, grad_o: Any, *, o: Any = None, denominators: Any = None, grad_final_state: Any = None,
        grad_final_sum: Any = None, feature_matrix: Any = None, decay: Any = None, beta: Any = None, erase: Any = None,
        write: Any = None, lengths: Any = None, initial_state: Any = None, initial_sum: Any = None, **options: Unpack[Options],
    ) -> None:
        self._options = options
        self._handle = _Handle(self._call(_tensors(locals()), grad_o, o, denominators))

    def _call(self, tensors: dict[str, Any], grad_o: Any, o: Any, denominators: Any) -> _Call:
        call = _Call(_abi.ATTN_BACKWARD, tensors, self._options)
        tensors.update(_saved(call, tensors, o, denominators, grad_o, self._options))
        call.gradients(tensors)
        return call

    def __call__(
        self, q: Any, k: Any, v: Any, grad_o: Any, *, o: Any = None, denominators: Any = None, grad_final_state: Any = None,
        grad_final_sum: Any = None, feature_matrix: Any = None, decay: Any = None, beta: Any = None, erase: Any = None,
        write: Any = None, lengths: Any = None, initial_state: Any = None, initial_sum: Any = None,
    ) -> Gradients:
        """Computes: as linear.backward."""
        call = self._call(_tensors(locals()), grad_o, o, denominators)
        self._handle.execute(call)
        return call.collect_gradients()

    @property
    def description(self) -> PlanDescription:
        """Kernel, form, chunk, threads and memory."""
        return self._handle.description()

    @property
    def tensors(self) -> dict[str, TensorPlan]:
        """The tensors of the plan by name, with four axes each, as C sees them."""
        return self._handle.tensors()


class State:
    """Decoding: the state of every head, which tokens update in place as they attend.

        state = linear.State(batch=1, heads=8, dim_qk=64, dim_v=64)
        o = state.attend(q, k, v)                               # one token or many, [batch, heads, len, dim], causal

    state.state [batch, heads, F, dim_v] and state.sum [batch, heads, F] (None without a denominator) are its arrays, 0 at first: copy
    them to branch, assign to their elements to continue a sequence.  `options` are those of attention but for causal.  heads are those
    of keys.  Not for several threads at once.
    """

    def __init__(
        self, batch: int, heads: int, dim_qk: int, dim_v: int, *, dtype: Any = np.float32, delta: bool = False, feature_matrix: Any = None,
        **options: Unpack[Options],
    ) -> None:
        """dtype: float32, or float64 for queries of float64.  delta: tokens come with beta, or with erase and write (no denominator).

        Raises ValueError for sizes that are negative or options that do not fit.
        """
        self._matrix, self._options = feature_matrix, cast(Options, {**options, "causal": True})
        if delta:
            self._options.setdefault("denominator", "none")
        compute = np.dtype(dtype)
        if compute not in (np.dtype(np.float32), np.dtype(np.float64)):
            raise ValueError(f"dtype is {compute}; it must be float32 or float64")
        count = 0 if feature_matrix is None else asarray(feature_matrix, "feature_matrix").shape[0]
        width = features_count(options.get("features", "elu1"), dim_qk, random_features=count)
        sizes = [integer(size, name, 0) for name, size in (("batch", batch), ("heads", heads), ("dim_v", dim_v))]
        self.state: Array = np.zeros((sizes[0], sizes[1], width, sizes[2]), compute)
        guarded = self._options.get("denominator", "clamp") != "none"
        self.sum: Array | None = np.zeros((sizes[0], sizes[1], width), compute) if guarded else None

    def attend(
        self, q: Any, k: Any, v: Any, *, decay: Any = None, beta: Any = None, erase: Any = None, write: Any = None, lengths: Any = None,
        out: Any = None,
    ) -> Any:
        """The tokens q, k and v enter the state one after the other, each reading it after it entered: o, as of attention with causal.

        On an error the state is as before.
        """
        call = _Call(_abi.ATTN_FORWARD, {**_tensors(locals()), "feature_matrix": self._matrix}, self._options)
        shape = (call.batch, call.heads_kv, call.features, call.dim_v)
        if shape != self.state.shape or call.compute != self.state.dtype:
            raise ValueError(
                f"the tokens need a state of shape {list(shape)} and type {call.compute}; this one has {list(self.state.shape)} and "
                f"{self.state.dtype}"
            )
        call.outputs(False, False, out)
        for name in ("initial_state", "final_state"):
            call.slots.put(name, self.state)
        if self.sum is not None:
            for name in ("initial_sum", "final_sum"):
                call.slots.put(name, self.sum[..., np.newaxis])
        call.run()
        return out if out is not None else call.result("o")


def features_count(features: Features, dim_qk: int, *, random_features: int = 0) -> int:
    """F, the number of features of a map: dim_qk, random_features (rows of feature_matrix), or twice that for cosines and sines."""
    kind = choice(features, "features", FEATURES)
    return _native.call("attn_features_count", kind, integer(dim_qk, "dim_qk", 0), integer(random_features, "random_features", 0))


def random_features(
    features: int, dim_qk: int, *, rows: RandomRows = "orthogonal", seed: int = 0, draw: int = 0, dtype: Any = np.float32,
) -> Array:
    """A feature_matrix [features, dim_qk] from a seed: "orthogonal" rows in blocks of dim_qk, each as long as a normal vector, or
    independent "normal" numbers (Choromanski et al. 2020, section 3).  draw: the number of the redraw.  dtype: float32 or float64.

    Numbers come from Philox4x32-10 with key = seed and counter = (draw, row, column / 2, block), so they are the same on every machine
    but for rounding.  Raises ValueError for numbers out of range, NotImplementedError for another dtype.
    """
    matrix = np.empty((integer(features, "features", 0), integer(dim_qk, "dim_qk", 0)), dtype)
    _native.call(
        "attn_random_features", choice(rows, "rows", RANDOM_ROWS), matrix.shape[0], matrix.shape[1], integer(seed, "seed", 0, 2**64 - 1),
        integer(draw, "draw", 0, 2**32 - 1), ctypes.byref(output_slot(matrix, (2, 3))),
    )
    return matrix


def _linformer(x: Array, projection: Array, rank: int) -> Any:
    batch, heads, length, dim = x.shape
    return _native.struct(_abi.attn_linformer_problem, batch=batch, heads=heads, len=length, rank=rank, dim=dim)


def _projected(x: Any, projection: Any) -> tuple[Array, Array, Array, Array]:
    """x and projection with their own axes, and with four; a projection without heads is that of all heads."""
    tokens = floats(x, "x")
    whole = four(tokens, "x")
    own = floats(projection, "projection")
    if own.ndim not in (2, 3):
        raise ValueError(f"projection has {own.ndim} axes; it must be [heads, len, rank], or [len, rank] for all heads")
    shape = (1, whole.shape[1], whole.shape[2], own.shape[-1])
    return tokens, whole, own, fits(four(own, "projection"), "projection", shape, "[1, heads, len, rank]")


def linformer_project(x: Any, projection: Any, *, out: Any = None, **options: Unpack[Execution]) -> Any:
    """y[b,h,r,c] = sum_j projection[h,j,r] x[b,h,j,c]: keys or values [batch, heads, len, dim] projected along the tokens to `rank` of
    them, [batch, heads, rank, dim] (Wang et al. 2020, "Linformer", equation 7).

    projection is [heads, len, rank], or [len, rank] for all heads: a row for each token, the transpose of the paper's E.  Project keys
    and values, then call attention, which must not be causal: cost grows with len * rank.  y is float32, or float64 if x is, in x's
    library.  Raises ValueError, TypeError, NotImplementedError (float64 with another type) or MemoryError.
    """
    tokens, whole, own, matrix = _projected(x, projection)
    shape = (*tokens.shape[:-2], own.shape[-1], tokens.shape[-1])
    y = output(out, "out", shape, np.float64 if tokens.dtype == np.float64 else np.float32)
    slots = Slots(_abi.attn_linformer_tensors)
    slots.put("x", whole)
    slots.put("projection", matrix)
    slots.put("y", four(y, "out"))
    problem = _linformer(whole, matrix, own.shape[-1])
    _native.call("attn_linformer_project", ctypes.byref(problem), slots.reference, execution(options))
    return out if out is not None else like(y, x)


def linformer_backward(x: Any, projection: Any, grad_y: Any, **options: Unpack[Execution]) -> tuple[Any, Any]:
    """The gradient of linformer_project: (grad_x, grad_projection), with grad_y [batch, heads, rank, dim] of y's type,

        grad_x[b,h,j,c] = sum_r projection[h,j,r] grad_y[b,h,r,c]      grad_projection[h,j,r] = sum_(b,c) x[b,h,j,c] grad_y[b,h,r,c]

    summed over the heads too if they share the projection.  grad_projection has the compute type, float32 or float64.
    """
    tokens, whole, own, matrix = _projected(x, projection)
    compute = np.float64 if tokens.dtype == np.float64 else np.float32
    shape = (*tokens.shape[:-2], own.shape[-1], tokens.shape[-1])
    grad = four(exactly(floats(grad_y, "grad_y", compute), "grad_y", shape, "[batch, heads, rank, dim]"), "grad_y")
    heads = 1 if own.ndim == 2 else own.shape[0]
    grad_x, grad_projection = np.empty(whole.shape, tokens.dtype), np.empty((1, heads, whole.shape[2], own.shape[-1]), compute)
    slots = Slots(_abi.attn_linformer_tensors)
    for name, array in (("x", whole), ("projection", matrix), ("grad_y", grad), ("grad_x", grad_x), ("grad_projection", grad_projection)):
        slots.put(name, array)
    problem = _linformer(whole, matrix, own.shape[-1])
    _native.call("attn_linformer_backward", ctypes.byref(problem), slots.reference, execution(options))
    return like(grad_x.reshape(tokens.shape), x), like(grad_projection.reshape(own.shape), x)
