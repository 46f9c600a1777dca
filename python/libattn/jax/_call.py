# SPDX-License-Identifier: MIT
"""One call of XLA's for one operation of the library: which array goes to which slot, and which shapes come out.

All of this is known when JAX traces; at run time only addresses are filled in (python/xla/handler.c).
"""
from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass
from typing import Any, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from .. import _abi, _arrays, _native

TARGET = "libattn"
SEED = "seed"  #: not a tensor: two words of 32 bits
PLACE = "place"  #: nor is this: the first query and head in a larger problem, and its heads
ROWS = ("q", "k", "v", "o")  #: arrays of [batch, heads, tokens, channels], in the order of the layout
ENTRIES = ("lengths_q", "lengths_kv")  #: arrays of [batch]
STARTS = ("cu_seqlens_q", "cu_seqlens_kv")  #: arrays of [sequences + 1]: packed sequences, where ROWS are [tokens, heads, channels]
HEADS = ("sink", "alibi_slopes")  #: arrays of [heads]
PAIRS = ("bias", "mask")  #: arrays of [batch, heads, queries, keys], 1 where they broadcast


@functools.cache
def register() -> None:
    """Registers the handler with XLA, once."""
    library = ctypes.CDLL(str(_native.FOLDER.parent / "_xla.so"))
    jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(library.attn_xla_call), platform="cpu")


def base(name: str) -> str:
    """The tensor that a gradient, tangent or second derivative is of: "grad_q" and "second_q" are of "q"."""
    for prefix in ("grad_", "tan_", "second_", "dir_"):
        if name.startswith(prefix):
            return base(name[len(prefix) :])
    return name


@dataclass(frozen=True)
class Spec:
    """What to compute, without sizes: hashable, so that JAX can compare it."""

    layout: str  #: "bhsd", "bshd" or "thd"
    align: str = "bottom-right"  #: or "top-left": which query stands at which key
    causal: bool = False
    window: tuple[int, int] | None = None  #: keys before and after a query's position; -1: no bound
    scale: float | None = None
    softcap: float | None = None
    dropout: float = 0.0
    packed: tuple[int, int, int] | None = None  #: of layout "thd": sequences, and the most queries and keys of one
    part: int = 0  #: above 0: over parts of so many tokens, as libattn.distributed computes; the arguments have a PLACE

    def problem(self, op: int, shape: Sequence[int]) -> _abi.attn_problem:
        """The attn_problem of an operation and seven sizes."""
        made = _native.struct(_abi.attn_problem, op=op)
        made.shape = _abi.attn_shape(*shape)
        if self.scale is not None:
            made.score.scale_kind, made.score.scale = _abi.ATTN_SCALE_VALUE, self.scale
        made.score.softcap = self.softcap or 0.0
        made.mask.causal = self.causal
        made.mask.align = _abi.ATTN_ALIGN_TOP_LEFT if self.align == "top-left" else _abi.ATTN_ALIGN_BOTTOM_RIGHT
        if self.window is not None:
            made.mask.window = 1
            made.mask.window_left, made.mask.window_right = self.window
        made.dropout.probability = self.dropout
        return made

    def sizes(self, q: Sequence[int], k: Sequence[int], v: Sequence[int]) -> tuple[int, ...]:
        """batch, heads_q, heads_kv, len_q, len_kv, dim_qk, dim_v."""
        head, token = self.axes
        if self.packed is not None:
            sequences, queries, keys = self.packed
            return sequences, q[head], k[head], queries, keys, q[2], v[2]
        return q[0], q[head], k[head], q[token], k[token], q[3], v[3]

    @property
    def axes(self) -> tuple[int, int]:
        """Where arrays have heads and tokens."""
        return {"bhsd": (1, 2), "bshd": (2, 1), "thd": (1, 0)}[self.layout]


def compute_dtype(dtype: Any) -> Any:
    """The type of lse and of numbers per head."""
    return jnp.dtype("float64") if dtype == jnp.float64 else jnp.dtype("float32")


def shape_of(name: str, spec: Spec, known: dict[str, Any]) -> jax.ShapeDtypeStruct:
    """The shape and type of an output, from those of the inputs."""
    found = base(name)
    q, v = known["q"], known["v"]
    if found == "o":
        return jax.ShapeDtypeStruct((*q.shape[:-1], v.shape[-1]), q.dtype)
    if found == "lse":
        if spec.packed is not None:
            return jax.ShapeDtypeStruct(q.shape[:-1], compute_dtype(q.dtype))
        head, token = spec.axes
        return jax.ShapeDtypeStruct((q.shape[0], q.shape[head], q.shape[token]), compute_dtype(q.dtype))
    shared = name == "grad_bias" and known["bias"].shape[2] == 1
    wide = spec.part and (shared or name in ("grad_k", "grad_v"))  # which are added to those of other devices before they are rounded
    return jax.ShapeDtypeStruct(known[found].shape, compute_dtype(q.dtype) if wide else known[found].dtype)


def _strides(shape: Sequence[int]) -> list[int]:
    steps = [1]
    for size in reversed(shape[1:]):
        steps.append(steps[-1] * size)
    return steps[::-1]


def slot_numbers(name: str, spec: Spec, shape: Sequence[int], dtype: Any) -> list[int]:
    """Offset of the slot, type, four strides."""
    if name in (SEED, PLACE):
        return [-1 if name == SEED else -2, 0, 0, 0, 0, 0]
    found, stride = base(name), [0, 0, 0, 0]
    if found in ROWS:
        step, (head, token) = _strides(shape), spec.axes
        stride = [0 if spec.packed else step[0], step[head], step[token], step[-1]]
    elif found in PAIRS and not name.startswith(("grad_", "second_")):  # those that are written are dense
        stride = [0 if size == 1 else step for size, step in zip(shape, _strides(shape), strict=True)]
        if not any(stride):
            stride[0] = _abi.ATTN_BROADCAST
    offset = getattr(_abi.attn_tensors, name).offset
    return [offset, _arrays.TYPES[np.dtype(dtype)], *stride]


def call(op: int, spec: Spec, inputs: dict[str, Any], outputs: Sequence[str]) -> dict[str, Any]:
    """Computes an operation: arrays by the names of their slots in, arrays by name out."""
    register()
    shapes = {name: shape_of(name, spec, inputs) for name in outputs}
    numbers = [slot_numbers(name, spec, x.shape, x.dtype) for name, x in (inputs | shapes).items()]
    problem = spec.problem(op, spec.sizes(inputs["q"].shape, inputs["k"].shape, inputs["v"].shape))
    parts = {"part": np.array([spec.part], np.int64)} if spec.part else {}
    results = jax.ffi.ffi_call(TARGET, list(shapes.values()))(
        *inputs.values(), problem=np.frombuffer(bytes(problem), np.uint8), slots=np.array(numbers, np.int64).reshape(-1), **parts
    )
    return dict(zip(shapes, results, strict=True))


@functools.lru_cache(maxsize=1024)
def check(spec: Spec, inputs: tuple[tuple[str, tuple[int, ...], Any], ...]) -> None:
    """Raises ValueError or NotImplementedError, with the library's sentence, for a problem that cannot be computed."""
    known = {name: jax.ShapeDtypeStruct(shape, dtype) for name, shape, dtype in inputs}
    tensors = _native.struct(_abi.attn_tensors)
    for name, x in (known | {name: shape_of(name, spec, known) for name in ("o", "lse")}).items():
        if name in (SEED, PLACE):
            continue
        _, dtype, *stride = slot_numbers(name, spec, x.shape, x.dtype)
        slot = getattr(tensors, name)
        slot.data, slot.dtype = _abi.ATTN_LATER if 0 not in x.shape else _abi.ATTN_EMPTY, dtype
        slot.stride[:] = stride
    problem = spec.problem(_abi.ATTN_FORWARD, spec.sizes(known["q"].shape, known["k"].shape, known["v"].shape))
    plan = ctypes.c_void_p()
    _native.call("attn_plan_create", ctypes.byref(plan), ctypes.byref(problem), ctypes.byref(tensors), None)
    _native.call("attn_plan_destroy", plan)
