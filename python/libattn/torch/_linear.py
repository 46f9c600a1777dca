# SPDX-License-Identifier: MIT
"""libattn.torch.linear_attention: operators over libattn.linear, with their gradients."""
from __future__ import annotations

from typing import Any, Literal

import torch

from .. import linear
from ._attention import check_tensors
from ._autograd import Level, below
from ._fake import compute, register

Tensor = torch.Tensor
Features = Literal["elu1", "identity", "relu", "softmax", "favor", "fourier", "trigonometric"]

FIRST = "libattn has no forward mode of linear attention"
SECOND = "libattn has no second derivatives of linear attention"
# The arguments of both operators, behind tensors of the backward's own.
TENSORS = ("q", "k", "v", "feature_matrix", "decay", "beta", "erase", "write", "lengths", "initial_state", "initial_sum")
OPTIONS = ("causal", "features", "denominator", "scale", "feature_scale", "epsilon", "form", "chunk")
LEARNED = ("q", "k", "v", "decay", "beta", "erase", "write", "initial_state", "initial_sum")
ARGUMENTS = ", ".join([
    "Tensor q, Tensor k, Tensor v", *[f"Tensor? {name}" for name in TENSORS[3:]],
    "bool causal, str features, str denominator, float? scale, float? feature_scale, float? epsilon, str form, int? chunk",
])

_transforms = torch._C._are_functorch_transforms_active

_library = torch.library.Library("libattn", "FRAGMENT")
_library.define(f"linear_attention({ARGUMENTS}) -> (Tensor o, Tensor denominators, Tensor final_state, Tensor final_sum)")
_library.define(
    f"linear_attention_backward(Tensor? grad_o, Tensor? grad_state, Tensor? grad_sum, Tensor o, Tensor denominators, {ARGUMENTS}) -> ("
    + ", ".join(f"Tensor grad_{name}" for name in LEARNED) + ")")


def linear_attention(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, features: Features = "elu1", feature_matrix: Tensor | None = None,
    feature_scale: float | None = None, denominator: Literal["clamp", "add", "none"] | None = None, epsilon: float | None = None,
    scale: float | None = None, decay: Tensor | None = None, beta: Tensor | None = None, erase: Tensor | None = None,
    write: Tensor | None = None, lengths: Tensor | None = None, initial_state: Tensor | None = None, initial_sum: Tensor | None = None,
    form: Literal["auto", "chunked", "recurrent", "quadratic"] = "auto", chunk: int | None = None, return_state: bool = False,
) -> Any:
    """Linear attention over tensors on the CPU, with gradients: libattn.linear.attention, where the formulas are.

    q               [batch, heads, len_q, dim_qk]; batch, or batch and heads, may be missing, here and below
    k, v            [batch, heads_kv, len_kv, dim_qk], [batch, heads_kv, len_kv, dim_v]
    causal          query t reads keys 0 .. t; decay, beta, erase and write need it
    features, feature_matrix, feature_scale, denominator, epsilon, scale, form, chunk
                    as in libattn.linear.Options
    decay           log of what a token keeps of the state, 0 or below: [batch, heads_kv, len_kv, 1 or F]
    beta            [batch, heads_kv, len_kv]: the delta rule; erase, write [batch, heads_kv, len_kv, F]: the low-rank rule
    lengths         [batch]: tokens of each entry
    initial_state, initial_sum
                    [batch, heads_kv, F, dim_v], [batch, heads_kv, F]: of the tokens before
    return_state    also returns the final state and sum (None without a denominator), the initial ones of the tokens that follow

    Returns o [batch, heads, len_q, dim_v] of q's type, or (o, final_state, final_sum).  Gradients: of every tensor of floats but
    feature_matrix, also under torch.func.grad, torch.vmap and in torch.compile; second derivatives and forward mode raise
    NotImplementedError.  Raises ValueError, TypeError or NotImplementedError with a sentence that names the argument.

        >>> q = k = v = torch.rand(1, 8, 512, 64, requires_grad=True)
        >>> libattn.torch.linear_attention(q, k, v, causal=True).sum().backward()
    """
    tensors = {
        "q": q, "k": k, "v": v, "feature_matrix": feature_matrix, "decay": decay, "beta": beta, "erase": erase, "write": write,
        "lengths": lengths, "initial_state": initial_state, "initial_sum": initial_sum,
    }
    check_tensors(**{name: x for name, x in tensors.items() if x is not None or name in TENSORS[:3]})
    if torch.is_autocast_enabled("cpu"):
        kind = torch.get_autocast_dtype("cpu")
        for name in TENSORS[:3]:
            x: Any = tensors[name]
            tensors[name] = x.to(kind) if x.is_floating_point() and x.dtype != torch.float64 else x
    if denominator is None:
        denominator = "clamp" if beta is None and erase is None and write is None else "none"
    arguments = (*tensors.values(), bool(causal), features, denominator, scale, feature_scale, epsilon, form, chunk)
    if torch.compiler.is_compiling() or _transforms() or torch.autograd.forward_ad._current_level >= 0 or q.is_meta:
        call = _operator
    else:
        recorded = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors.values())
        call = Linear.apply if recorded else _forward
    o, _, state, total = call(*arguments)
    return (o, state, None if denominator == "none" else total) if return_state else o


# ---- kernels ---------------------------------------------------------------------------------------------------------------------


def _arrays(tensors: Any) -> dict[str, Any]:
    """Arguments of libattn.linear, over the memory of tensors; bfloat16, which NumPy does not have, becomes float32, in which it is
    computed anyway."""
    found = {}
    for name, x in tensors.items():
        if x is not None:
            found[name] = (x.float() if x.dtype == torch.bfloat16 else x).detach().numpy()
    return found


def _call(arguments: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    options: dict[str, Any] = dict(zip(OPTIONS, arguments[len(TENSORS):], strict=True))
    options["threads"] = min(torch.get_num_threads(), 1024)
    return dict(zip(TENSORS, arguments, strict=False)), options


def _forward(*arguments: Any) -> Any:
    tensors, options = _call(arguments)
    q = tensors["q"]
    done = linear.forward(**_arrays(tensors), **options)
    found = (done.o, done.denominators, done.final_state, done.final_sum)
    o, *rest = (q.new_empty(0) if x is None else torch.from_numpy(x) for x in found)
    return o.to(q.dtype), *rest


def _backward(grad_o: Any, grad_state: Any, grad_sum: Any, o: Tensor, denominators: Tensor, *arguments: Any) -> Any:
    tensors, options = _call(arguments)
    more = {"grad_o": torch.zeros_like(o) if grad_o is None else grad_o, "grad_final_state": grad_state}
    if options["denominator"] != "none":
        more.update(o=o, denominators=denominators, grad_final_sum=grad_sum)
        k, v = tensors["k"], tensors["v"]
        if grad_state is None and grad_sum is not None:
            more["grad_final_state"] = grad_sum.new_zeros(*grad_sum.shape, v.shape[-1])
        elif grad_state is not None and grad_sum is None:
            more["grad_final_sum"] = grad_state.new_zeros(*k.shape[:-2], grad_state.shape[-2])
    found = linear.backward(**_arrays(tensors), **_arrays(more), **options)
    results = []
    for name in LEARNED:
        x, grad = tensors[name], getattr(found, name)
        results.append(tensors["q"].new_empty(0) if x is None else torch.from_numpy(grad).to(x.dtype))
    return tuple(results)


def _fake_forward(*arguments: Any) -> Any:
    tensors, options = _call(arguments)
    q, k, v, matrix = (tensors[name] for name in TENSORS[:4])
    rows = {"favor": 1, "fourier": 2, "trigonometric": 2}.get(options["features"], 0)
    size = rows * matrix.shape[0] if rows and matrix is not None else q.shape[-1]
    guarded, kind = options["denominator"] != "none", compute(q)
    return (
        q.new_empty([*q.shape[:-1], v.shape[-1]]), q.new_empty(q.shape[:-1], dtype=kind) if guarded else q.new_empty(0),
        q.new_empty([*k.shape[:-2], size, v.shape[-1]], dtype=kind),
        q.new_empty([*k.shape[:-2], size], dtype=kind) if guarded else q.new_empty(0))


def _fake_backward(*arguments: Any) -> Any:
    tensors, _ = _call(arguments[5:])
    return tuple(tensors["q"].new_empty(0 if tensors[name] is None else tensors[name].shape, dtype=(
        tensors["q"] if tensors[name] is None else tensors[name]).dtype) for name in LEARNED)


for _name, _kernel, _fake in (("", _forward, _fake_forward), ("_backward", _backward, _fake_backward)):
    _library.impl(f"linear_attention{_name}", _kernel, "CPU")
    register(f"linear_attention{_name}", lib=_library)(_fake)
_operator = torch.ops.libattn.linear_attention.default
_gradient = torch.ops.libattn.linear_attention_backward.default


# ---- derivatives -----------------------------------------------------------------------------------------------------------------


def _each(call: Any, info: Any, dims: Any, arguments: Any) -> Any:
    """torch.vmap: one call for each entry."""
    moved = [x if d is None else x.movedim(d, 0) for x, d in zip(arguments, dims, strict=True)]
    found = [call(*[x if d is None else x[i] for x, d in zip(moved, dims, strict=True)]) for i in range(info.batch_size)]
    whole = tuple(torch.stack(parts) for parts in zip(*found, strict=True))
    return whole, (0,) * len(whole)


class Linear(torch.autograd.Function):
    """linear_attention's arguments -> o, denominators, final_state, final_sum"""

    operator = _operator

    @staticmethod
    def forward(*arguments: Any) -> Any:
        return _forward(*arguments)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        o, denominators, *states = output
        ctx.first, ctx.options = getattr(ctx, "first", 0), inputs[len(TENSORS):]
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(denominators, *([states[1]] if inputs[len(TENSORS) + 2] == "none" else []))
        ctx.save_for_backward(o, denominators, *inputs[:len(TENSORS)])

    @staticmethod
    def backward(ctx: Any, grad_o: Any, _: Any, grad_state: Any, grad_sum: Any) -> Any:
        whole = [None] * (len(TENSORS) + len(OPTIONS))
        if grad_o is None and grad_state is None and grad_sum is None:
            return tuple(whole)
        call = LinearBackward.operator if ctx.first else LinearBackward.apply
        for name, grad in zip(LEARNED, call(grad_o, grad_state, grad_sum, *ctx.saved_tensors, *ctx.options), strict=True):
            at = TENSORS.index(name)
            whole[at] = grad if ctx.needs_input_grad[ctx.first + at] else None
        return tuple(whole)

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> Any:
        raise NotImplementedError(FIRST)


class LinearBackward(torch.autograd.Function):
    """linear_attention_backward's arguments -> gradients"""

    operator = _gradient

    @staticmethod
    def forward(*arguments: Any) -> Any:
        with below():  # (by the dispatcher, since gradients may be those of is_grads_batched)
            return _gradient(*arguments)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.set_materialize_grads(False)
        ctx.count = len(inputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        if all(x is None for x in gradients):
            return (None,) * ctx.count
        raise NotImplementedError(SECOND)

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> Any:
        raise NotImplementedError(SECOND)

    @staticmethod
    def vmap(info: Any, dims: Any, *arguments: Any) -> Any:
        return _each(LinearBackward.apply, info, dims, arguments)


for _op, _function in ((_operator, Linear), (_gradient, LinearBackward)):
    _library.impl(_op, Level(_op, _function), "Autograd", with_keyset=True)
    torch.library.register_vmap(
        _op, lambda info, dims, *arguments, _op=_op: _each(_op, info, dims, arguments), lib=_library)
