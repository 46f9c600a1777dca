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
from typing import Any, Literal, Mapping, Unpack, cast, get_args

import numpy as np

from . import _abi, _native
from ._arguments import choice, integer
from ._arrays import Array, asarray, like
from ._execution import Execution, execution
from ._linear import FEATURES, Call, Features, Forward, Gradients, Handle, Options, PlanDescription, TensorPlan
from ._slots import Fixed, Slots, exactly, fits, floats, four, output, output_slot

__all__ = [
    "BackwardPlan", "Forward", "Gradients", "Options", "Plan", "PlanDescription", "Pool", "State", "TensorPlan", "attention", "backward",
    "features_count", "forward", "linformer_backward", "linformer_project", "random_features",
]

RandomRows = Literal["orthogonal", "normal"]
RANDOM_ROWS = {name: getattr(_abi, f"ATTN_RANDOM_ROWS_{name.upper()}") for name in get_args(RandomRows)}


def attention(
    q: Any, k: Any, v: Any, *, feature_matrix: Any = None, decay: Any = None, beta: Any = None, erase: Any = None, write: Any = None,
    lengths: Any = None, cu_seqlens: Any = None, initial_state: Any = None, initial_sum: Any = None, out: Any = None,
    **options: Unpack[Options],
) -> Any:
    """Linear attention: o [batch, heads, len_q, dim_v], of q's type and library, by the formulas at the top of this module.

    feature_matrix [rows, dim_qk] holds the rows w of the random maps (random_features draws one).  decay is log(decay_t), 0 keeps and
    negative forgets: [batch, heads_kv, len_kv, 1], or with F in place of the 1 for a decay of each channel; retention's constant of each
    head is [1, heads_kv, 1, 1].  beta [batch, heads_kv, len_kv] makes it the delta rule; erase and write [batch, heads_kv, len_kv, F] the
    low-rank rule (to which no feature map is applied).  These may be of size 1 along axes where they are constant.  lengths [batch] of
    integers: tokens of each entry; later keys are not read and, if causal, later rows are 0.  initial_state [batch, heads_kv, F, dim_v]
    and, with a denominator, initial_sum [batch, heads_kv, F] continue a sequence.  out: an array to write o to.

    Ragged batches: with cu_seqlens [sequences + 1] of integers from 0 on, sequence b is tokens cu_seqlens[b] .. cu_seqlens[b+1]-1 of
    tensors without batch: q [tokens, heads, dim_qk], k, v and the like, beta [tokens, heads], o [tokens, heads, dim_v]; states are
    [sequences, heads_kv, F, dim_v].  A sequence may have no tokens, and has the same bits in any batch.

    `options` are the fields of Options: causal, features, denominator, scale, form, threads, ...

    Raises ValueError (shapes, ranges, tensors that are missing or have no use), TypeError (not an array of floats in this computer's
    memory, an unknown option), NotImplementedError (a decay, rule or form that needs causal; a form that does not exist for the rule) or
    MemoryError, with a sentence.
    """
    call = Call(_abi.ATTN_FORWARD, _tensors(locals()), options)
    call.outputs(False, False, out)
    call.run()
    return out if out is not None else call.result("o")


def forward(
    q: Any, k: Any, v: Any, *, feature_matrix: Any = None, decay: Any = None, beta: Any = None, erase: Any = None, write: Any = None,
    lengths: Any = None, cu_seqlens: Any = None, initial_state: Any = None, initial_sum: Any = None, out: Any = None,
    **options: Unpack[Options],
) -> Forward:
    """The same with the denominators, which backward needs, and the final state and sum, with which a sequence goes on.

    A sequence may be split anywhere: the final state and sum of one part are the initial ones of the next.
    """
    call = Call(_abi.ATTN_FORWARD, _tensors(locals()), options)
    call.outputs(True, True, out)
    call.run()
    return call.collect(out)


def backward(
    q: Any, k: Any, v: Any, grad_o: Any, *, o: Any = None, denominators: Any = None, grad_final_state: Any = None,
    grad_final_sum: Any = None, feature_matrix: Any = None, decay: Any = None, beta: Any = None, erase: Any = None, write: Any = None,
    lengths: Any = None, cu_seqlens: Any = None, initial_state: Any = None, initial_sum: Any = None, **options: Unpack[Options],
) -> Gradients:
    """The gradients of all float tensors but feature_matrix, from grad_o [batch, heads, len_q, dim_v] and, if present, those of the final
    state and sum.  The gradient of decay is that of log(decay_t); gradients of tensors that broadcast are summed.

    With a denominator, backward reads o and denominators, which forward returned; None: they are computed again.
    """
    tensors = _tensors(locals())
    call = Call(_abi.ATTN_BACKWARD, tensors, options)
    tensors.update(_saved(call, tensors, o, denominators, grad_o, options))
    call.gradients(tensors)
    call.run()
    return call.collect_gradients()


def _saved(call: Call, tensors: Mapping[str, Any], o: Any, denominators: Any, grad_o: Any, options: Options) -> dict[str, Any]:
    """What backward reads: o and the denominators, computed if they are absent."""
    if call.guarded and (o is None or denominators is None):
        again = forward(**{name: tensors[name] for name in FORWARD}, **options)
        o, denominators = again.o, again.denominators
    return {"grad_o": grad_o, "o": o, "denominators": denominators}


FORWARD = (
    "q", "k", "v", "feature_matrix", "decay", "beta", "erase", "write", "lengths", "cu_seqlens", "initial_state", "initial_sum",
)


def _tensors(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {name: arguments.get(name) for name in (*FORWARD, "grad_final_state", "grad_final_sum")}


class Plan:
    """forward for a shape that repeats: checked and planned once, from arrays of these shapes, types and strides, then called with others.

        plan = linear.Plan(q, k, v, causal=True)
        done = plan(q, k, v)                                    # a Forward

    Any number of threads may call one plan at once.  The tensors that were present when it was made must be present in every call, with
    the same types, shapes and strides, or the call raises ValueError.  With cu_seqlens a plan serves other tokens and sequences, as many
    sequences as it was made with, none longer than the longest then.
    """

    def __init__(
        self, q: Any, k: Any, v: Any, *, feature_matrix: Any = None, decay: Any = None, beta: Any = None, erase: Any = None,
        write: Any = None, lengths: Any = None, cu_seqlens: Any = None, initial_state: Any = None, initial_sum: Any = None, **options: Unpack[Options],
    ) -> None:
        call = Call(_abi.ATTN_FORWARD, _tensors(locals()), options)
        call.outputs(True, True, None)
        self._options, self._handle = options, Handle(call)

    def __call__(
        self, q: Any, k: Any, v: Any, *, feature_matrix: Any = None, decay: Any = None, beta: Any = None, erase: Any = None,
        write: Any = None, lengths: Any = None, cu_seqlens: Any = None, initial_state: Any = None, initial_sum: Any = None, out: Any = None,
    ) -> Forward:
        """Computes: as linear.forward."""
        call = Call(_abi.ATTN_FORWARD, _tensors(locals()), self._options)
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
        write: Any = None, lengths: Any = None, cu_seqlens: Any = None, initial_state: Any = None, initial_sum: Any = None, **options: Unpack[Options],
    ) -> None:
        self._options = options
        self._handle = Handle(self._call(_tensors(locals()), grad_o, o, denominators))

    def _call(self, tensors: dict[str, Any], grad_o: Any, o: Any, denominators: Any) -> Call:
        call = Call(_abi.ATTN_BACKWARD, tensors, self._options)
        tensors.update(_saved(call, tensors, o, denominators, grad_o, self._options))
        call.gradients(tensors)
        return call

    def __call__(
        self, q: Any, k: Any, v: Any, grad_o: Any, *, o: Any = None, denominators: Any = None, grad_final_state: Any = None,
        grad_final_sum: Any = None, feature_matrix: Any = None, decay: Any = None, beta: Any = None, erase: Any = None,
        write: Any = None, lengths: Any = None, cu_seqlens: Any = None, initial_state: Any = None, initial_sum: Any = None,
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


def _check_rule(kept: State | Pool, rule: Mapping[str, Any]) -> None:
    """Raises ValueError for tokens of another rule than those of the states.  C sees the tensors of each call alone, so that to it tokens
    without beta are of the additive rule."""
    name, given = type(kept).__name__, [tensor for tensor, x in rule.items() if x is not None]
    if kept._delta and not given:  # pyright: ignore[reportPrivateUsage]
        raise ValueError(f"beta is missing; with delta=True the tokens of a {name} come with beta, or with erase and write")
    if given and kept.sum is not None and not kept._delta:  # pyright: ignore[reportPrivateUsage]
        how = "is" if len(given) == 1 else "are"
        raise ValueError(f"{' and '.join(given)} {how} set; the {name} has sums for a denominator, which this rule has not: make it with delta=True")


class State(Fixed):
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
        """dtype: float32, or float64 for queries of float64.  delta: tokens come with beta, or with erase and write (no denominator), and
        never without.

        Raises ValueError for sizes that are negative or options that do not fit.
        """
        self._matrix, self._options = feature_matrix, cast(Options, {**options, "causal": True})
        self._delta = delta
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
        call = Call(_abi.ATTN_FORWARD, {**_tensors(locals()), "feature_matrix": self._matrix}, self._options)
        shape = (call.batch, call.heads_kv, call.features, call.dim_v)
        if shape != self.state.shape or call.compute != self.state.dtype:
            raise ValueError(
                f"the tokens need a state of shape {list(shape)} and type {call.compute}; this one has {list(self.state.shape)} and "
                f"{self.state.dtype}"
            )
        _check_rule(self, {"beta": beta, "erase": erase, "write": write})
        call.outputs(False, False, out)
        for name in ("initial_state", "final_state"):
            call.slots.put(name, self.state)
        if self.sum is not None:
            for name in ("initial_sum", "final_sum"):
                call.slots.put(name, self.sum[..., np.newaxis])
        call.run()
        return out if out is not None else call.result("o")


class Pool(Fixed):
    """The states of all sequences that an engine serves, each in a row of its own.

        pool = linear.Pool(rows=64, heads=8, dim_qk=64, dim_v=64, dtype="float32")
        o = pool.attend(q, k, v, slots, cu_seqlens=starts)      # sequence b has the row slots[b], and its tokens are starts[b] ..

    pool.state [rows, heads, F, dim_v], of float32, float16, bfloat16 (ml_dtypes) or float64, and pool.sum [rows, heads, F] (None without a
    denominator) are its arrays, 0 at first: a row is reused after pool.state[row] = 0.  `options` are those of attention but for causal.
    Computation is in float32, and a state is rounded once in a call.  Not for several threads at once.
    """

    def __init__(
        self, rows: int, heads: int, dim_qk: int, dim_v: int, *, dtype: Any = np.float32, delta: bool = False, feature_matrix: Any = None,
        **options: Unpack[Options],
    ) -> None:
        """delta: tokens come with beta, or with erase and write (no denominator), and never without.

        Raises ValueError for sizes that are negative or options that do not fit.
        """
        self._matrix, self._options = feature_matrix, cast(Options, {**options, "causal": True})
        self._delta = delta
        if delta:
            self._options.setdefault("denominator", "none")
        count = 0 if feature_matrix is None else asarray(feature_matrix, "feature_matrix").shape[0]
        width = features_count(options.get("features", "elu1"), dim_qk, random_features=count)
        sizes = [integer(size, name, 0) for name, size in (("rows", rows), ("heads", heads), ("dim_v", dim_v))]
        self.state: Array = np.zeros((sizes[0], sizes[1], width, sizes[2]), dtype)
        guarded = self._options.get("denominator", "clamp") != "none"
        wide = np.float64 if self.state.dtype == np.float64 else np.float32
        self.sum: Array | None = np.zeros((sizes[0], sizes[1], width), wide) if guarded else None

    def attend(
        self, q: Any, k: Any, v: Any, slots: Any, *, final_slots: Any = None, cu_seqlens: Any = None, decay: Any = None, beta: Any = None,
        erase: Any = None, write: Any = None, lengths: Any = None, out: Any = None,
    ) -> Any:
        """The tokens of each sequence enter its state one after the other, each reading it after it entered: o, as of attention with causal.

        slots [sequences]: the row where sequence b begins, or -1: at zero.  final_slots [sequences]: the row where its state goes (-1:
        nowhere), by default the same.  Several sequences may begin with one row, if none of them writes it.

        Snapshots, for drafts that may be refused: with final_slots [sequences, n] column j gets the state without the last j tokens.  A
        sequence brings its last token and n - 1 drafts; if the model accepts a of these n tokens, it goes on from final_slots[b, n - a].

        On an error the pool is as before.
        """
        call = Call(_abi.ATTN_FORWARD, {**_tensors(locals()), "feature_matrix": self._matrix}, self._options)
        if (call.heads_kv, call.features, call.dim_v) != self.state.shape[1:]:
            raise ValueError(
                f"the tokens need states of shape {[call.heads_kv, call.features, call.dim_v]}; the pool has {list(self.state.shape[1:])}"
            )
        _check_rule(self, {"beta": beta, "erase": erase, "write": write})
        call.outputs(False, False, out)
        call.pool(self.state, self.sum, slots, slots if final_slots is None else final_slots)
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
