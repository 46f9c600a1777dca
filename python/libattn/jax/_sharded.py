# SPDX-License-Identifier: MIT
"""Attention of a sequence whose rows lie on the devices of a mesh, inside shard_map: the same bits for any number of devices.

The cells and trees are those of attn/distributed.h.  Keys and values are gathered, one head of keys at a time, and each device computes
its own queries in one call.  What it adds to the gradients of keys is, if it has 2^n parts of queries, a node of the tree over all of
them; so these are exchanged and added in that tree (psum_scatter promises no order).  What sees no key is not added, and -0.0 stands for
it, since x + -0.0 is x for every x.
"""
from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any, Literal, Never, Sequence, overload

import jax
import jax.numpy as jnp
from jax.interpreters import ad

from .. import _abi, _names
from .._arguments import integer
from ._arguments import Align, Causal, add_options, add_seed, check_sizes, rows, spec_of
from ._call import HEADS, PAIRS, PLACE, ROWS, Spec, call, check, compute_dtype
from ._primitives import DIFFERENTIABLE, SAVED, Arrays, bind, forward_p, make_primitive
from ._varying import alike

MOST_TOKENS = 2**31  # a place has words of 32 bits
OF_ONE_DEVICE = ("lengths_q", "lengths_kv", "cu_seqlens_q", "cu_seqlens_kv", "max_seqlen_q", "max_seqlen_kv")  # what `attention` has, too


def _backward(named: Arrays, spec: Spec, wanted: Sequence[str]) -> list[Any]:
    found = call(_abi.ATTN_BACKWARD, spec, named, wanted)
    return [found[name] for name in wanted]


def _second(*_: Any, **__: Any) -> Any:
    raise NotImplementedError("second derivatives of sharded_attention are not available")


backward_p = make_primitive("sharded_backward", _backward)
ad.primitive_jvps[backward_p] = _second


@dataclass(frozen=True)
class _Call:
    """What is known when JAX traces: the problem of a device, and where its arrays lie."""

    spec: Spec
    names: tuple[str, ...]  #: of the arrays
    axis: Any  #: of the mesh
    devices: int
    queries: int  #: of all devices
    keys: int

    def gather(self, x: Any) -> Any:
        """The rows of all devices."""
        if self.devices == 1 or not x.shape[self.spec.axes[1]]:  # (XLA gathers nothing that is empty)
            return x
        return jax.lax.all_gather(x, self.axis, axis=self.spec.axes[1], tiled=True)

    def seen(self, first: Any, last: Any) -> Any:
        """Which keys lie in parts that queries first .. last may see, by their positions: as attn/distributed.h decides which cells exist."""
        part, (left, right) = self.spec.part, self.spec.window or (-1, -1)
        begin = jnp.arange(self.keys) // part * part
        found = begin >= 0
        if self.spec.causal or right >= 0:
            found &= begin <= last + (0 if self.spec.causal else right)
        if left >= 0:
            found &= jnp.minimum(begin + part, self.keys) > first - left
        return found

    def scatter(self, x: Any, dtype: Any) -> Any:
        """Sums of gradients [..., keys of all devices, ...] over the devices, and of these the rows of this one."""
        token = self.spec.axes[1]
        if self.devices == 1 or not x.shape[token]:
            return x.astype(dtype)
        rank, own = jax.lax.axis_index(self.axis), self.queries // self.devices

        def along(seen: Any) -> Any:
            return seen.reshape([-1 if axis == token else 1 for axis in range(4)])

        x = jnp.where(along(self.seen(rank * own, (rank + 1) * own - 1)), x, jnp.asarray(-0.0, x.dtype))
        each = jnp.stack(jnp.split(x, self.devices, token))
        total = _tree(jax.lax.all_to_all(each, self.axis, 0, 0))
        mine = self.keys // self.devices
        seen = jax.lax.dynamic_slice_in_dim(self.seen(0, self.queries - 1), rank * mine, mine)
        return jnp.where(along(seen), total, 0).astype(dtype)

    def spread(self, x: Any) -> Any:
        """The sum over the devices of what they share: on the first one, zeros on the others, which JAX adds up."""
        total = _tree(jax.lax.all_gather(x, self.axis)) if self.devices > 1 else x
        return jnp.where(jax.lax.axis_index(self.axis) == 0, total, jnp.zeros_like(total))

    def by_heads(self, function: Any, named: Arrays, at_once: bool) -> Arrays:
        """function(arrays of a head of keys, with the heads of queries that use it) for one after another, joined; or for all at once."""
        head, token = self.spec.axes
        heads_q, heads_kv = named["q"].shape[head], named["k"].shape[head]
        count, first = 1 if at_once else heads_kv, jax.lax.axis_index(self.axis) * named["q"].shape[token]

        def one(n: Any) -> Arrays:
            def of(name: str, x: Any) -> Any:
                axis = _head_axis(name, head)
                if count == 1 or axis is None or (name in PAIRS and x.shape[axis] == 1):
                    return x
                size = x.shape[axis] // count
                return jax.lax.dynamic_slice_in_dim(x, n * size, size, axis)

            place = jnp.stack([jnp.asarray(y, jnp.int32) for y in (first, n * (heads_q // count), heads_q)])
            return function({name: of(name, x) for name, x in named.items()} | {PLACE: place})

        if count == 1:
            return one(0)
        found = jax.lax.scan(lambda _, n: (None, one(n)), None, jnp.arange(count))[1]
        return {name: jnp.concatenate(list(x), _head_axis(name, head)) for name, x in found.items()}


def _head_axis(name: str, head: int) -> int | None:
    """Where an array has heads."""
    name = name.removeprefix("grad_")
    return head if name in ROWS else 1 if name in ("lse", *PAIRS) else 0 if name in HEADS else None


def _tree(parts: Any) -> Any:
    """The sum of parts[0], parts[1], ... in a binary tree over their numbers."""
    found = list(parts)
    while len(found) > 1:
        found = [found[n] + found[n + 1] if n + 1 < len(found) else found[n] for n in range(0, len(found), 2)]
    return found[0]


# ---- the function that JAX differentiates ----


def _forward(c: _Call, named: Arrays) -> tuple[Any, Any]:
    def one(x: Arrays) -> Arrays:
        found = bind(forward_p, x | {name: c.gather(x[name]) for name in ("k", "v")}, c.spec, SAVED)
        return dict(zip(SAVED, found, strict=True))

    found = c.by_heads(one, named, False)
    return found["o"], found["lse"]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(c: _Call, *arrays: Any) -> tuple[Any, Any]:
    return _forward(c, dict(zip(c.names, arrays, strict=True)))


def _attend_forward(c: _Call, *arrays: Any) -> Any:
    named = dict(zip(c.names, arrays, strict=True))
    found = _forward(c, named)
    return found, (named, found)


def _attend_backward(c: _Call, saved: Any, gradients: tuple[Any, Any]) -> tuple[Any, ...]:
    named, (o, lse) = saved
    outputs = ["grad_" + name for name in c.names if name in DIFFERENTIABLE]

    def one(x: Arrays) -> Arrays:
        types = {name: x[name].dtype for name in ("k", "v")}
        grads = bind(backward_p, x | {name: c.gather(x[name]) for name in types}, c.spec, outputs)
        found = dict(zip(outputs, grads, strict=True))
        return found | {"grad_" + name: c.scatter(found["grad_" + name], dtype) for name, dtype in types.items()}

    heads = named["q"].shape[c.spec.axes[0]]
    shared = "bias" in named and named["bias"].shape[1] < heads  # all heads add to the same numbers
    found = c.by_heads(one, named | {"o": o, "lse": lse, "grad_o": gradients[0], "grad_lse": gradients[1]}, shared)
    for name in (*HEADS, "bias"):
        if "grad_" + name in found and (name != "bias" or named["bias"].shape[2] < named["q"].shape[c.spec.axes[1]]):  # rows are the device's
            found["grad_" + name] = c.spread(found["grad_" + name])
    if "grad_bias" in found:
        found["grad_bias"] = found["grad_bias"].astype(named["bias"].dtype)
    return tuple(found.get("grad_" + name) for name in c.names)


_attend.defvjp(_attend_forward, _attend_backward)


# ---- the public function ----


@overload
def sharded_attention(
    q: Any, k: Any, v: Any, *, axis_name: Any, part: int = ..., causal: Causal = ..., window: int | Sequence[int | None] | None = ...,
    mask: Any = ..., bias: Any = ..., scale: float | None = ..., softcap: float | None = ..., sink: Any = ..., alibi_slopes: Any = ...,
    dropout: float = ..., seed: Any = ..., align: Align = ..., layout: Literal["bhsd", "bshd"] = ..., return_lse: Literal[False] = ...,
) -> jax.Array: ...
@overload
def sharded_attention(
    q: Any, k: Any, v: Any, *, axis_name: Any, part: int = ..., causal: Causal = ..., window: int | Sequence[int | None] | None = ...,
    mask: Any = ..., bias: Any = ..., scale: float | None = ..., softcap: float | None = ..., sink: Any = ..., alibi_slopes: Any = ...,
    dropout: float = ..., seed: Any = ..., align: Align = ..., layout: Literal["bhsd", "bshd"] = ..., return_lse: Literal[True],
) -> tuple[jax.Array, jax.Array]: ...
def sharded_attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    axis_name: Any,
    part: int = 1024,
    causal: Causal = False,
    window: int | Sequence[int | None] | None = None,
    mask: Any = None,
    bias: Any = None,
    scale: float | None = None,
    softcap: float | None = None,
    sink: Any = None,
    alibi_slopes: Any = None,
    dropout: float = 0.0,
    seed: Any = 0,
    align: Align = "bottom-right",
    layout: Literal["bhsd", "bshd"] = "bhsd",
    return_lse: bool = False,
    **unknown: Never,
) -> jax.Array | tuple[jax.Array, jax.Array]:
    """`attention` of a sequence that is divided among the devices of a mesh, inside shard_map, with the same bits for any number of them.

        spec = jax.sharding.PartitionSpec(None, None, "sequence", None)
        attend = functools.partial(sharded_attention, axis_name="sequence", causal=True)
        o = jax.shard_map(attend, mesh=mesh, in_specs=(spec, spec, spec), out_specs=spec)(q, k, v)

    Each device has a range of the queries and of the keys, in the order of the devices.  It gathers keys and values of one head after
    another, and computes its queries over parts of keys as libattn.distributed does, whose bits it has, too.  Works under jit, vmap,
    checkpoint and reverse mode; the gradients of keys are exchanged and added in a fixed tree.  Forward mode and second derivatives
    raise TypeError or NotImplementedError.

    Args:
        q: the device's rows, [batch, heads, queries, channels], or [batch, queries, heads, channels] for layout "bshd"; types as in
            `attention`.
        k: likewise with keys.
        v: likewise; its channels may differ.
        axis_name: the axis of the mesh that divides the sequence, or a tuple of them.
        part: tokens of a part, which decides bits: the same for any number of devices.  With more than one device, each has 1, 2, 4, 8,
            ... parts of queries.
        causal: as in `attention`, as are window, scale, softcap, dropout, align and layout; positions are those of the whole sequence.
        window: keys on both sides of a query that it sees, or a pair (left, right).
        mask: bool, broadcasts to [batch, heads, queries of the device, keys of all devices].
        bias: likewise, added to the scores; has a gradient.  One that all queries share is the same on all devices.
        scale: of the scores.
        softcap: bounds the scores.
        sink: [heads], the same on all devices; has a gradient.
        alibi_slopes: likewise.
        dropout: the probability with which a weight is dropped.
        seed: of dropout, the same on all devices of the axis, which drop what one device drops.  Where other axes of the mesh divide the
            batch or the heads, give their devices different ones, or they drop alike.
        align: the positions of queries, where there are more keys or fewer than queries: "top-left" alone then.
        layout: the order of the axes of q, k, v and o.
        return_lse: also return the logarithm of each softmax's denominator.

    Returns:
        o, the device's rows; with return_lse, the pair (o, lse).

    Raises:
        ValueError: shapes or numbers that do not fit; a number of parts that is not a power of two.
        TypeError: an array of a type that is not known; a part that is no integer.
        NotImplementedError: a combination that the library does not compute; a platform other than the CPU.
    """
    for name in unknown:
        raise NotImplementedError(f"{name} is not available over devices") if name in OF_ONE_DEVICE else _names.unknown(unknown)
    if layout not in ("bhsd", "bshd"):
        raise ValueError(f"layout is {layout!r}, not 'bhsd' or 'bshd'")
    part = integer(part, "part", 1)
    named = {name: rows(x, name, layout) for name, x in (("q", q), ("k", k), ("v", v))}
    spec = spec_of(layout, causal, align, window, scale, softcap, dropout, part=part)
    check_sizes(named, spec)
    batch, heads, _, own, keys, *_ = spec.sizes(*(named[name].shape for name in "qkv"))
    devices = jax.lax.axis_size(axis_name)
    queries, keys = own * devices, keys * devices
    _check_parts(part, own, devices)
    if queries != keys and spec.align == "bottom-right" and (causal or spec.window or alibi_slopes is not None):
        raise NotImplementedError(f"{queries} queries and {keys} keys at the bottom right are not available over devices; pass align='top-left'")
    if max(queries, keys) >= MOST_TOKENS:
        raise ValueError(f"the devices have {queries} queries and {keys} keys; there may be fewer than 2^31")
    spec = replace(spec, align="top-left")
    add_options(named, (batch, heads, own, keys), compute_dtype(named["q"].dtype), mask, bias, sink, alibi_slopes)
    add_seed(named, dropout, seed)
    token = spec.axes[1]
    whole = {name: tuple(keys if name in ("k", "v") and axis == token else size for axis, size in enumerate(x.shape)) for name, x in named.items()}
    check(replace(spec, part=0), tuple((name, whole[name], x.dtype) for name, x in named.items()))
    *arrays, _ = alike([*named.values(), jax.lax.axis_index(axis_name)])
    o, lse = _attend(_Call(spec, tuple(named), axis_name, devices, queries, keys), *arrays)
    if not return_lse:
        return o
    return o, jnp.swapaxes(lse, 1, 2) if layout == "bshd" else lse


def _check_parts(part: int, own: int, devices: int) -> None:
    parts = own // part
    if devices > 1 and (own % part or parts & (parts - 1) or not parts):
        raise ValueError(
            f"each of {devices} devices has {own} queries, in parts of {part}; with more than one device these must be 1, 2, 4, 8, ... whole parts")
