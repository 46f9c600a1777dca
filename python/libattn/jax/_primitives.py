# SPDX-License-Identifier: MIT
"""The primitives that JAX differentiates, maps and compiles.

With x the inputs that have derivatives (q, k, v, bias, sink, alibi_slopes), g the gradients of o and lse, and phi = <g, (o, lse)(x)>:

    forward    x -> o, lse
    tangent    x, t -> the tangents of o and lse along t                      linear in t; its transpose is backward
    backward   x, g -> d phi / dx
    hessian    x, g, t -> the tangents of backward along t of x and of g      linear in t; its transpose is itself, as phi is symmetric
    second     x, t, d -> the tangent of `tangent` along d of x               linear in d; only its transpose, hessian, is computed

o and lse, computed once, are arguments of all but the first.  They are functions of x, which the formulas account for, so their own
tangents are ignored.  Third derivatives, and the second derivative forward over forward, raise NotImplementedError.
"""
from __future__ import annotations

import functools
from typing import Any, Callable, Iterable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from .. import _abi
from ._call import ENTRIES, HEADS, PLACE, ROWS, SEED, STARTS, Spec, base, call, shape_of
from ._varying import alike, result

FORWARD_INPUTS = ("q", "k", "v", "mask", "bias", "sink", "alibi_slopes", *ENTRIES, *STARTS, SEED, PLACE)
DIFFERENTIABLE = ("q", "k", "v", "bias", *HEADS)
SAVED = ("o", "lse")
Arrays = dict[str, Any]


def _tangents(named: Arrays, among: Iterable[str] = DIFFERENTIABLE) -> Arrays:
    return {name: named["tan_" + name] for name in among if "tan_" + name in named}


def _inputs(named: Arrays, *others: str) -> Arrays:
    return {name: x for name, x in named.items() if name in FORWARD_INPUTS or name in others}


# ---- what is computed ----


def _forward(named: Arrays, spec: Spec, wanted: Sequence[str]) -> list[Any]:
    results = call(_abi.ATTN_FORWARD, spec, named, SAVED)
    return [results[name] for name in wanted]


def _by_row(x: Any, spec: Spec) -> Any:
    """A number for each row of lse, to multiply arrays like o with."""
    return (jnp.swapaxes(x, 1, 2) if spec.layout == "bshd" else x)[..., None]


def _inner(a: Any, b: Any, spec: Spec) -> Any:
    """<a, b> for each row, like lse."""
    exact = jnp.promote_types(a.dtype, jnp.float32)
    found = jnp.sum(a.astype(exact) * b.astype(exact), axis=-1)
    return jnp.swapaxes(found, 1, 2) if spec.layout == "bshd" else found


def _scaled(row: Any, x: Any, spec: Spec) -> Any:
    return (_by_row(row, spec) * x.astype(row.dtype)).astype(x.dtype)


def _each_head(x: Any, spec: Spec) -> Any:
    """A number for each head, beside lse: [batch, heads, queries], or packed [tokens, heads]."""
    return x[None, :] if spec.packed else x[None, :, None]


def _sink_share(named: Arrays, spec: Spec) -> Any:
    """The weight of the sink in each row; 0 past lengths_q, where lse is -inf."""
    lse = named["lse"]
    return jnp.where(jnp.isneginf(lse), 0, jnp.exp(_each_head(named["sink"], spec) - lse))


def _slopes_as_bias(named: Arrays, spec: Spec, slopes: Any) -> Any:
    """What slopes add to the scores, [batch, heads, queries, keys]: only forward mode along slopes needs memory of this size."""
    if spec.packed:
        raise NotImplementedError("forward mode along alibi_slopes is not available for packed sequences; pass the slopes as a bias")
    head, token = spec.axes
    q, k = named["q"], named["k"]
    first = jnp.zeros(q.shape[0], jnp.int32)
    if spec.align == "bottom-right":
        first = first + named.get("lengths_kv", k.shape[token]) - named.get("lengths_q", q.shape[token])
    place = first[:, None] + jnp.arange(q.shape[token])
    return -slopes[None, :, None, None] * jnp.abs(place[:, None, :, None] - jnp.arange(k.shape[token])).astype(slopes.dtype)


def _tangent(named: Arrays, spec: Spec, wanted: Sequence[str]) -> list[Any]:
    inputs, along = _inputs(named, *SAVED), _tangents(named, ("q", "k", "v", "bias"))
    if "tan_alibi_slopes" in named:
        added = _slopes_as_bias(named, spec, named["tan_alibi_slopes"])
        inputs.setdefault("bias", jnp.zeros((1, 1, 1, 1), added.dtype))
        along["bias"] = added + along["bias"] if "bias" in along else added
    o, lse = named["o"], named["lse"]
    found: Arrays = {"tan_o": jnp.zeros(o.shape, o.dtype), "tan_lse": jnp.zeros(lse.shape, lse.dtype)}
    if along:
        found = call(_abi.ATTN_JVP, spec, inputs | {"tan_" + name: x for name, x in along.items()}, ("tan_o", "tan_lse"))
    if "tan_sink" in named:
        moved = _sink_share(named, spec) * _each_head(named["tan_sink"], spec)
        found = {"tan_o": found["tan_o"] - _scaled(moved, o, spec), "tan_lse": found["tan_lse"] + moved}
    return [found["tan_" + name] for name in wanted]


def _backward(named: Arrays, spec: Spec, wanted: Sequence[str]) -> list[Any]:
    names = ["grad_q", "grad_k", "grad_v", *("grad_" + name for name in wanted if name not in ROWS)]
    found = call(_abi.ATTN_BACKWARD, spec, _inputs(named, *SAVED, "grad_o", "grad_lse"), names)
    return [found["grad_" + name] for name in wanted]


def _hessian(named: Arrays, spec: Spec, wanted: Sequence[str]) -> list[Any]:
    if "tan_alibi_slopes" in named or "alibi_slopes" in wanted:
        raise NotImplementedError("second derivatives with respect to alibi_slopes are not available; pass the slopes as a bias")
    arguments = _inputs(named, *SAVED, "grad_o", "grad_lse")
    along = _tangents(named, ("q", "k", "v", "bias"))
    total: Arrays = {}

    def add(name: str, x: Any) -> None:
        total[name] = total[name] + x if name in total else x

    grads = [name for name in wanted if name not in ("grad_o", "grad_lse", "sink")]
    g_o, g_lse = named["grad_o"], named.get("grad_lse", jnp.zeros_like(named["lse"]))
    add_o, add_lse = named.get("tan_grad_o"), named.get("tan_grad_lse")
    if along:
        outputs = ["second_grad_o", "second_grad_lse", "second_q", "second_k", "second_v", *(["second_bias"] if "bias" in named else [])]
        second = call(_abi.ATTN_DOUBLE_BACKWARD, spec, arguments | {"tan_" + name: x for name, x in along.items()}, outputs)
        for name in (*grads, "grad_o", "grad_lse"):
            add(name, second["second_" + name])
    if "sink" in named and ("tan_sink" in named or "sink" in wanted):
        # Along a change c of the sink: w_ij' = -ws_i c w_ij, o' = -ws c o, lse' = ws c, with ws the weight of the sink; so the rows of
        # grad_o and grad_lse change as if they were scaled.
        share, delta = _sink_share(named, spec), _inner(g_o, named["o"], spec)
        change = _each_head(named["tan_sink"], spec) if "tan_sink" in named else jnp.zeros_like(share)
        if "sink" in wanted:
            tan_o = total.get("grad_o", jnp.zeros_like(named["o"])) - _scaled(share * change, named["o"], spec)
            tan_lse = total.get("grad_lse", 0) + share * change
            inner = _inner(g_o, tan_o, spec) + (_inner(add_o, named["o"], spec) if add_o is not None else 0)
            rows = share * ((change - tan_lse) * (g_lse - delta) - inner + (add_lse if add_lse is not None else 0))
            add("sink", jnp.sum(rows, axis=0 if spec.packed else (0, 2)))
        if "tan_sink" in named:
            add("grad_o", -_scaled(share * change, named["o"], spec))
            add("grad_lse", share * change)
            minus, plus = -_scaled(share * change, g_o, spec), share * change * (delta - g_lse)
            add_o = minus if add_o is None else add_o + minus
            add_lse = plus if add_lse is None else add_lse + plus
    if grads and (add_o is not None or add_lse is not None):
        moved = {"grad_o": jnp.zeros_like(g_o) if add_o is None else add_o} | ({} if add_lse is None else {"grad_lse": add_lse})
        for name, x in zip(grads, _backward(arguments | moved, spec, grads), strict=True):
            add(name, x)
    shapes = {name: shape_of(name, spec, named) for name in wanted}
    return [total[name].astype(shapes[name].dtype) if name in total else jnp.zeros(shapes[name].shape, shapes[name].dtype) for name in wanted]


def _second(named: Arrays, spec: Spec, wanted: Sequence[str]) -> list[Any]:
    raise NotImplementedError("a forward-mode derivative of a forward-mode derivative is not available; take jax.jvp of jax.grad")


# ---- primitives ----


def _fold(p: Primitive, args: Sequence[Any], dims: Sequence[Any], *, names: tuple[str, ...], spec: Spec, wanted: tuple[str, ...]) -> Any:
    """vmap: the mapped axis becomes part of the batch, or, where something has no batch, one call after the other."""
    count = next(x.shape[d] for x, d in zip(args, dims, strict=True) if d is not None)
    mapped = [d is not None for d in dims]
    args = [jnp.moveaxis(x, d, 0) if m else x for x, d, m in zip(args, dims, mapped, strict=True)]
    named = dict(zip(names, args, strict=True))
    batch = named["q"].shape[mapped[names.index("q")]]

    def has_batch(name: str) -> bool:
        return not spec.packed and base(name) not in (*HEADS, SEED, PLACE)

    def is_shared(name: str) -> bool:  # a bias of batch 1
        return base(name) == "bias" and named["bias"].shape[mapped[names.index("bias")]] != batch

    alone = any(m and not has_batch(name) for name, m in zip(names, mapped, strict=True))
    if alone or any(not has_batch(name) or is_shared(name) for name in wanted):

        def one(xs: Sequence[Any]) -> Any:
            rest = iter(xs)
            return p.bind(*(next(rest) if m else x for x, m in zip(args, mapped, strict=True)), names=names, spec=spec, wanted=wanted)

        outs = jax.lax.map(one, [x for x, m in zip(args, mapped, strict=True) if m])
        return outs, [0] * len(outs)

    def folded(name: str, x: Any, m: bool) -> Any:
        if not has_batch(name):
            return x
        if not m:
            if x.shape[0] != batch:
                return x  # broadcasts over the batch, and then over the mapped axis
            x = jnp.broadcast_to(x[None], (count, *x.shape))
        elif x.shape[1] != batch:
            x = jnp.broadcast_to(x, (count, batch, *x.shape[2:]))
        return x.reshape(count * batch, *x.shape[2:])

    outs = p.bind(*map(folded, names, args, mapped), names=names, spec=spec, wanted=wanted)
    return [x.reshape(count, batch, *x.shape[1:]) for x in outs], [0] * len(outs)


def make_primitive(name: str, compute: Callable[[Arrays, Spec, Sequence[str]], list[Any]]) -> Primitive:
    p = Primitive("libattn_" + name)
    p.multiple_results = True

    def run(*args: Any, names: tuple[str, ...], spec: Spec, wanted: tuple[str, ...]) -> list[Any]:
        return compute(dict(zip(names, args, strict=True)), spec, wanted)

    def abstract(*args: Any, names: tuple[str, ...], spec: Spec, wanted: tuple[str, ...]) -> list[Any]:
        shapes = [shape_of(out, spec, dict(zip(names, args, strict=True))) for out in wanted]
        return [result(shape, args[0]) for shape in shapes]

    p.def_impl(jax.jit(run, static_argnames=("names", "spec", "wanted")))
    p.def_abstract_eval(abstract)
    mlir.register_lowering(p, mlir.lower_fun(run, multiple_results=True), platform="cpu")
    batching.primitive_batchers[p] = functools.partial(_fold, p)
    return p


forward_p = make_primitive("forward", _forward)
tangent_p = make_primitive("tangent", _tangent)
backward_p = make_primitive("backward", _backward)
hessian_p = make_primitive("hessian", _hessian)
second_p = make_primitive("second", _second)


def bind(p: Primitive, named: Arrays, spec: Spec, wanted: Iterable[str]) -> list[Any]:
    """A primitive of arrays by name."""
    return p.bind(*alike(list(named.values())), names=tuple(named), spec=spec, wanted=tuple(wanted))


# ---- derivatives ----


def _moving(names: Sequence[str], tangents: Sequence[Any], among: Sequence[str]) -> Arrays:
    """The tangents that are not zero, by the names of their primals."""
    return {name: t for name, t in zip(names, tangents, strict=True) if name in among and type(t) is not ad.Zero}


def _forward_jvp(args: Sequence[Any], tangents: Sequence[Any], *, names: tuple[str, ...], spec: Spec, wanted: tuple[str, ...]) -> Any:
    outs = forward_p.bind(*args, names=names, spec=spec, wanted=wanted)
    along = _moving(names, tangents, DIFFERENTIABLE)
    if not along:
        return outs, [jnp.zeros_like(x) for x in outs]
    named = dict(zip((*names, *wanted), (*args, *outs), strict=True)) | {"tan_" + name: t for name, t in along.items()}
    return outs, bind(tangent_p, named, spec, wanted)


def _tangent_jvp(args: Sequence[Any], tangents: Sequence[Any], *, names: tuple[str, ...], spec: Spec, wanted: tuple[str, ...]) -> Any:
    named = dict(zip(names, args, strict=True))
    outs = tangent_p.bind(*args, names=names, spec=spec, wanted=wanted)
    moved = []
    linear = _moving(names, tangents, ["tan_" + name for name in DIFFERENTIABLE])
    if linear:
        moved.append(bind(tangent_p, _inputs(named, *SAVED) | linear, spec, wanted))
    along = _moving(names, tangents, DIFFERENTIABLE)
    if along:
        moved.append(bind(second_p, named | {"dir_" + name: t for name, t in along.items()}, spec, wanted))
    return outs, [functools.reduce(jnp.add, parts) for parts in zip(*moved, strict=True)]


def _backward_jvp(args: Sequence[Any], tangents: Sequence[Any], *, names: tuple[str, ...], spec: Spec, wanted: tuple[str, ...]) -> Any:
    outs = backward_p.bind(*args, names=names, spec=spec, wanted=wanted)
    along = _moving(names, tangents, (*DIFFERENTIABLE, "grad_o", "grad_lse"))
    if not along:
        return outs, [jnp.zeros_like(x) for x in outs]
    named = dict(zip(names, args, strict=True)) | {"tan_" + name: t for name, t in along.items()}
    return outs, bind(hessian_p, named, spec, wanted)


def _third(args: Sequence[Any], tangents: Sequence[Any], *, names: tuple[str, ...], spec: Spec, wanted: tuple[str, ...]) -> Any:
    raise NotImplementedError("third derivatives of attention are not available")


def _split(names: Sequence[str], args: Sequence[Any]) -> tuple[Arrays, list[str]]:
    """What is known, and the names of what is linear."""
    known = {name: x for name, x in zip(names, args, strict=True) if not ad.is_undefined_primal(x)}
    return known, [name for name, x in zip(names, args, strict=True) if ad.is_undefined_primal(x)]


def _gradients(cotangents: Sequence[Any]) -> Arrays | None:
    """grad_o and grad_lse of cotangents of o and lse; None if both are zero."""
    o, lse = cotangents
    if type(lse) is ad.Zero:
        return None if type(o) is ad.Zero else {"grad_o": o}
    return {"grad_o": ad.instantiate_zeros(o), "grad_lse": lse}


def _tangent_transpose(cotangents: Sequence[Any], *args: Any, names: tuple[str, ...], spec: Spec, wanted: tuple[str, ...]) -> list[Any]:
    known, linear = _split(names, args)
    given = _gradients(cotangents)
    if given is None:
        return [None] * len(names)
    grads = bind(backward_p, _inputs(known, *SAVED) | given, spec, [base(name) for name in linear])
    found = dict(zip(linear, grads, strict=True))
    return [found.get(name) for name in names]


def _second_transpose(cotangents: Sequence[Any], *args: Any, names: tuple[str, ...], spec: Spec, wanted: tuple[str, ...]) -> list[Any]:
    known, linear = _split(names, args)
    given = _gradients(cotangents)
    if given is None:
        return [None] * len(names)
    grads = bind(hessian_p, known | given, spec, [name.removeprefix("dir_") for name in linear])
    found = dict(zip(linear, grads, strict=True))
    return [found.get(name) for name in names]


def _hessian_transpose(cotangents: Sequence[Any], *args: Any, names: tuple[str, ...], spec: Spec, wanted: tuple[str, ...]) -> list[Any]:
    known, linear = _split(names, args)
    along = {"tan_" + out: ct for out, ct in zip(wanted, cotangents, strict=True) if type(ct) is not ad.Zero}
    if not along:
        return [None] * len(names)
    grads = bind(hessian_p, _inputs(known, *SAVED, "grad_o", "grad_lse") | along, spec, [name.removeprefix("tan_") for name in linear])
    found = dict(zip(linear, grads, strict=True))
    return [found.get(name) for name in names]


ad.primitive_jvps[forward_p] = _forward_jvp
ad.primitive_jvps[tangent_p] = _tangent_jvp
ad.primitive_jvps[backward_p] = _backward_jvp
ad.primitive_jvps[hessian_p] = ad.primitive_jvps[second_p] = _third
ad.primitive_transposes[tangent_p] = _tangent_transpose
ad.primitive_transposes[second_p] = _second_transpose
ad.primitive_transposes[hessian_p] = _hessian_transpose


def seed_words(seed: Any) -> Any:
    """A seed as two words of 32 bits, low first: of a number, a scalar array or a key."""
    if isinstance(seed, jax.Array) and jnp.issubdtype(seed.dtype, jax.dtypes.prng_key):
        seed = jax.random.key_data(seed).reshape(-1)
        return jnp.stack([seed[-1], seed[0]])
    if isinstance(seed, (int, np.integer)):
        if not 0 <= int(seed) < 2**64:
            raise ValueError(f"seed is {seed}, not between 0 and 2^64 - 1")
        return jnp.array([int(seed) & 0xFFFFFFFF, int(seed) >> 32], jnp.uint32)
    seed = jnp.asarray(seed)
    if seed.shape == (2,) and seed.dtype == jnp.uint32:  # a raw key
        return seed[::-1]
    if seed.shape or not jnp.issubdtype(seed.dtype, jnp.integer):
        raise ValueError(f"seed is an array of shape {seed.shape} and type {seed.dtype}, neither an integer nor a key")
    low = seed.astype(jnp.uint32)
    high = (seed >> 32).astype(jnp.uint32) if seed.dtype.itemsize > 4 else jnp.zeros((), jnp.uint32)
    return jnp.stack([low, high])
