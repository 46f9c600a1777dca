# SPDX-License-Identifier: MIT
"""Arguments of attention: checks, and arrays by the names of their slots."""
from __future__ import annotations

import operator
from typing import Any, Literal, Sequence

import jax
import jax.numpy as jnp

from ._call import Spec
from ._primitives import seed_words

Align = Literal["top-left", "bottom-right"]
Causal = bool | Literal["top-left", "bottom-right"]


def _known(x: Any, name: str, instead: str = "") -> Any:
    """What is compiled into the operation: no array that JAX traces."""
    if isinstance(x, jax.core.Tracer):
        raise TypeError(f"{name} is traced by JAX (jit, grad, vmap, scan); it must be known when the operation is compiled{instead}")
    return x


def _number(x: Any, name: str, instead: str = "") -> float:
    if jnp.ndim(_known(x, name, instead)):
        raise ValueError(f"{name} has shape {jnp.shape(x)}; it must be one number{instead}")
    try:
        return float(x)
    except (TypeError, ValueError):
        raise TypeError(f"{name} is {x!r}; it must be a number") from None


def _align(causal: Causal, align: str) -> str:
    _known(causal, "causal")
    for name, value in (("causal", causal), ("align", align)):
        if value not in ((False, True) if name == "causal" else ()) and value not in ("top-left", "bottom-right"):
            raise ValueError(f"{name} is {value!r}, not {'False, True, ' if name == 'causal' else ''}'top-left' or 'bottom-right'")
    return causal if isinstance(causal, str) else align


def _window(window: int | Sequence[int | None] | None) -> tuple[int, int] | None:
    if window is None:
        return None
    sides = tuple(window) if isinstance(window, (tuple, list)) else (window, window)
    if len(sides) != 2:
        raise ValueError(f"window is {window!r}, not a number of keys or a pair (left, right)")
    for side in sides:
        if not hasattr(_known(side, "window"), "__index__") and side is not None:
            raise TypeError(f"window is {window!r}; it must be an integer or a pair (left, right) of them")
    left, right = (-1 if side is None else operator.index(side) for side in sides)
    return None if left == right == -1 else (left, right)


def rows(x: Any, name: str, layout: str) -> jax.Array:
    array, axes = jnp.asarray(x), 3 if layout == "thd" else 4
    if array.ndim != axes:
        raise ValueError(f"{name} has {array.ndim} axes, not {axes}: {array.shape}")
    if array.dtype not in (jnp.float32, jnp.float64, jnp.float16, jnp.bfloat16):
        raise TypeError(f"{name} has type {array.dtype}, not float32, float64, float16 or bfloat16")
    return array


def check_sizes(named: dict[str, jax.Array], spec: Spec) -> None:
    """q, k and v have sizes in common."""
    head, token = spec.axes
    batch = () if spec.packed else (0,)
    for name, other, axes in (("k", "q", (*batch, -1)), ("v", "k", (*batch, head, token))):
        for axis in axes:
            here, there = named[name].shape[axis], named[other].shape[axis]
            if here != there:
                what = {**dict.fromkeys(batch, "batch entries"), head: "heads", token: "keys", -1: "channels"}[axis]
                raise ValueError(f"{name} has {here} {what}, {other} has {there}")


def _pairs(x: Any, name: str, full: tuple[int, int, int, int]) -> jax.Array:
    """An array that broadcasts to [batch, heads, queries, keys], with four axes."""
    array = jnp.asarray(x)
    if array.ndim > 4 or any(size not in (1, most) for size, most in zip(array.shape[::-1], full[::-1], strict=False)):
        raise ValueError(f"{name} has shape {array.shape}, which does not broadcast to {full}, [batch, heads, queries, keys]")
    return array.reshape((1,) * (4 - array.ndim) + array.shape)


def vector(x: Any, name: str, size: int, what: str, dtype: Any) -> jax.Array:
    array = jnp.asarray(x)
    if array.shape != (size,):
        raise ValueError(f"{name} has shape {array.shape}, not ({size},): one number for each {what}")
    if jnp.issubdtype(dtype, jnp.integer):
        if not jnp.issubdtype(array.dtype, jnp.integer):
            raise TypeError(f"{name} has type {array.dtype}, not an integer type")
        return array if array.dtype in (jnp.int32, jnp.int64) else array.astype(dtype)
    return array.astype(dtype)


def packed(
    named: dict[str, jax.Array], layout: str, starts_q: Any, starts_kv: Any, most_q: int | None, most_kv: int | None,
) -> tuple[int, int, int] | None:
    """Puts the starts of packed sequences into `named`; returns their number, and the most queries and keys of one."""
    given = {"cu_seqlens_q": starts_q, "cu_seqlens_kv": starts_kv}
    if layout != "thd":
        for name, x in (given | {"max_seqlen_q": most_q, "max_seqlen_kv": most_kv}).items():
            if x is not None:
                raise ValueError(f"{name} is set; it needs the layout 'thd', [tokens, heads, channels]")
        return None
    for name, x in given.items():
        if x is None:
            raise ValueError(f"{name} is missing; the layout 'thd' needs it")
        array = jnp.asarray(x)
        if array.ndim != 1 or array.shape[0] < 2 or array.dtype not in (jnp.int32, jnp.int64):
            raise ValueError(f"{name} has shape {array.shape} and type {array.dtype}; it must have one axis, two elements or more, and int32 or int64")
        named[name] = array
    counts = [named[name].shape[0] - 1 for name in given]
    if counts[0] != counts[1]:
        raise ValueError(f"cu_seqlens_q has {counts[0]} sequences, cu_seqlens_kv has {counts[1]}")
    most = [int(named[name].shape[0] if limit is None else limit) for name, limit in (("q", most_q), ("k", most_kv))]
    return counts[0], most[0], most[1]


def spec_of(
    layout: str, causal: Causal, align: str, window: Any, scale: Any, softcap: Any, dropout: Any,
    packed: tuple[int, int, int] | None = None, part: int = 0,
) -> Spec:
    """What to compute, of keywords."""
    return Spec(
        layout, _align(causal, align), bool(causal), _window(window),
        None if scale is None else _number(scale, "scale", "; multiply q by it, and pass scale=1.0"), None if softcap is None else _number(softcap, "softcap"),
        _number(dropout, "dropout"), packed, part,
    )


def add_options(
    named: dict[str, jax.Array], full: tuple[int, int, int, int], exact: Any, mask: Any, bias: Any, sink: Any, alibi_slopes: Any,
) -> None:
    """Puts what is there of these into `named`.  full: batch, heads, queries, keys; exact: the type of numbers per head."""
    if mask is not None:
        named["mask"] = _pairs(mask, "mask", full)
        if named["mask"].dtype != jnp.bool_:
            raise TypeError(f"mask has type {named['mask'].dtype}, not bool; numbers to add to the scores are the bias")
    if bias is not None:
        named["bias"] = _pairs(bias, "bias", full)
    for name, x in (("sink", sink), ("alibi_slopes", alibi_slopes)):
        if x is not None:
            named[name] = vector(x, name, full[1], "head of q", exact)


def add_seed(named: dict[str, jax.Array], dropout: float, seed: Any) -> None:
    """Puts the seed into `named`, where there is dropout."""
    if dropout:
        named["seed"] = seed_words(seed)
