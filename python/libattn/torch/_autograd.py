# SPDX-License-Identifier: MIT
"""Derivatives of the operators, in every mode: backward, twice backward, forward, forward over backward and the reverse.

With D the derivative, attention_double_backward is the gradient of <grad, D o . tan> with respect to everything, so it serves for
the gradient of Backward, for the tangent of Backward (a Hessian is symmetric) and for the gradient of Tangent.  Sinks, slopes,
scales of heads and bias tables are not among everything: where a gradient with respect to them is to be differentiated, it is
computed by other operations (_composed.py).  Third derivatives raise NotImplementedError, as do second ones with respect to other
options.
"""
from __future__ import annotations

from typing import Any

import torch

from ._composed import can_compose, gradients
from ._shim import AT, DEFAULTS, OPS, WANTS, error, join, split
from ._vmap import over_batches

Tensor = torch.Tensor
OPTIONS = len(DEFAULTS)
BIAS = AT["bias"]
TWICE = "libattn has no forward mode of forward mode"
ONCE = "libattn has no second derivative of the gradients of alibi_slopes, sink, scale, score_matrix, bias_table and relative tensors"
# Kernels are called below autograd, for which these classes stand.
below = torch._C._AutoDispatchBelowAutograd

_attention, _backward, _jvp, _double = (
    OPS.attention.default, OPS.attention_backward.default, OPS.attention_jvp.default, OPS.attention_double_backward.default)


def _wants(needs: Any) -> int:
    """What to ask attention_backward for; `needs`: of each option, whether its gradient is needed."""
    return sum(bit for name, bit in WANTS.items() if needs[AT[name]])


def _refuse(needs: Any, what: str) -> None:
    for name in WANTS:
        if needs[AT[name]] and name != "bias":
            raise NotImplementedError(f"libattn has no {what} with respect to {'scale' if name == 'scales' else name}")


def _gradients(found: Any, needs: Any) -> list[Any]:
    """The results of attention_backward as gradients of q, k, v and the options."""
    rest: list[Any] = [None] * OPTIONS
    for name, gradient in zip(WANTS, found[3:], strict=True):
        if needs[AT[name]]:
            rest[AT[name]] = gradient
    return [*found[:3], *rest]


def _second(found: Any, bias: Any) -> list[Any]:
    """Results of attention_double_backward as gradients of q, k, v, o, lse and the options; o and lse follow from the others."""
    rest: list[Any] = [None] * OPTIONS
    if bias is not None:
        rest[BIAS] = found[5]
    return [*found[2:5], None, None, *rest]


def _needs(ctx: Any, first: int) -> Any:
    """Of each option, whether its gradient is needed; `first`: the argument where options begin."""
    first += ctx.first
    return ctx.needs_input_grad[first:first + OPTIONS]


def _run(operator: Any, arguments: Any) -> Any:
    try:
        with below():
            return operator(*arguments)
    except RuntimeError as raised:
        raise error(raised) from None


def _apply(ctx: Any, function: Any, *arguments: Any) -> Any:
    """The derivative as a class, or, within an operator, as an operator."""
    return function.operator(*arguments) if ctx.first else function.apply(*arguments)


class _Saved:
    """q, k, v, o, lse and the options of a context."""

    @staticmethod
    def keep(ctx: Any, tensors: Any, options: Any, *more: Any) -> None:
        mine, ctx.numbers = split(options)
        ctx.first = getattr(ctx, "first", 0)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors, *mine, *more)
        ctx.save_for_forward(*tensors, *mine, *more)

    @staticmethod
    def load(ctx: Any, more: int = 0) -> Any:
        saved = ctx.saved_tensors
        end = len(saved) - more
        return (*saved[:5], *join(saved[5:end], ctx.numbers)), saved[end:]


class Attention(torch.autograd.Function):
    """(q, k, v, *options, weights) -> o, lse, weights"""

    operator = _attention

    @staticmethod
    def forward(*arguments: Any) -> Any:
        return _run(_attention, arguments)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        o, lse, weights = output
        ctx.mark_non_differentiable(weights)
        _Saved.keep(ctx, (*inputs[:3], o, lse), inputs[3:-1])

    @staticmethod
    def backward(ctx: Any, grad_o: Any, grad_lse: Any, _: Any) -> Any:
        if grad_o is None and grad_lse is None:
            return (None,) * (OPTIONS + 4)
        whole, _ = _Saved.load(ctx)
        needs = _needs(ctx, 3)
        if not ctx.first and torch.is_grad_enabled() and can_compose(whole[5:], [name for name in WANTS if needs[AT[name]]]):
            first, rest = gradients(Attention.apply, grad_o, grad_lse, whole, needs, WANTS)
            return (*first, *rest, None)
        found = _apply(ctx, Backward, grad_o, grad_lse, *whole[:5], _wants(needs), *whole[5:])
        return (*_gradients(found, needs), None)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        whole, _ = _Saved.load(ctx)
        _refuse([x is not None for x in tangents[3:-1]], "forward mode")
        return (*_apply(ctx, Tangent, *tangents[:3], tangents[3 + BIAS], *whole), None)

    @staticmethod
    def vmap(info: Any, dims: Any, *arguments: Any) -> Any:
        return over_batches(Attention.apply, info, dims, arguments, rows=3, options=3)


class Backward(torch.autograd.Function):
    """(grad_o, grad_lse, q, k, v, o, lse, wants, *options) -> gradients"""

    operator = _backward

    @staticmethod
    def forward(*arguments: Any) -> Any:
        return _run(_backward, arguments)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.wants = inputs[7]
        ctx.mark_non_differentiable(*(x for x, bit in zip(output[3:], WANTS.values(), strict=True) if not ctx.wants & bit))
        _Saved.keep(ctx, inputs[2:7], inputs[8:], inputs[0], inputs[1])

    @staticmethod
    def backward(ctx: Any, *tangents: Any) -> Any:
        if all(x is None for x in tangents):
            return (None,) * (OPTIONS + 8)
        whole, (grad_o, grad_lse) = _Saved.load(ctx, 2)
        _refuse(_needs(ctx, 8), "second derivative")
        if any(x is not None for x in tangents[4:]):
            raise NotImplementedError(ONCE)
        found = _apply(ctx, Double, grad_o, grad_lse, *tangents[:4], *whole)
        q, k, v, _, _, *rest = _second(found, whole[5 + BIAS])
        return None if grad_o is None else found[0], None if grad_lse is None else found[1], q, k, v, None, None, None, *rest

    @staticmethod
    def jvp(ctx: Any, tan_grad_o: Any, tan_grad_lse: Any, *tangents: Any) -> Any:
        whole, (grad_o, grad_lse) = _Saved.load(ctx, 2)
        options = tangents[6:]
        _refuse([x is not None for x in options], "second derivative")
        along = (*tangents[:3], options[BIAS])
        found: list[Any] = [None] * 4
        if any(x is not None for x in along):
            second = _apply(ctx, Double, grad_o, grad_lse, *along, *whole)
            found = [*second[2:5], second[5] if ctx.wants & WANTS["bias"] else None]
        if ctx.wants & ~WANTS["bias"]:
            raise NotImplementedError(ONCE)
        if tan_grad_o is not None or tan_grad_lse is not None:
            linear = _apply(ctx, Backward, tan_grad_o, tan_grad_lse, *whole[:5], ctx.wants, *whole[5:])
            found = [a if b is None else a + b for a, b in zip(linear, found, strict=False)]
        if not ctx.wants & WANTS["bias"]:
            found[3] = None
        return (*found, *[None] * (len(WANTS) - 1))

    @staticmethod
    def vmap(info: Any, dims: Any, *arguments: Any) -> Any:
        return over_batches(Backward.apply, info, dims, arguments, rows=7, options=8)


class Tangent(torch.autograd.Function):
    """(tan_q, tan_k, tan_v, tan_bias, q, k, v, o, lse, *options) -> tan_o, tan_lse"""

    operator = _jvp

    @staticmethod
    def forward(*arguments: Any) -> Any:
        return _run(_jvp, arguments)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _Saved.keep(ctx, inputs[4:9], inputs[9:], *inputs[:4])

    @staticmethod
    def backward(ctx: Any, grad_o: Any, grad_lse: Any) -> Any:
        whole, tangents = _Saved.load(ctx, 4)
        if grad_o is None and grad_lse is None:
            return (None,) * (OPTIONS + 9)
        _refuse(_needs(ctx, 9), "second derivative")
        second = _apply(ctx, Double, grad_o, grad_lse, *tangents, *whole)
        linear = _apply(ctx, Backward, grad_o, grad_lse, *whole[:5], WANTS["bias"] if tangents[3] is not None else 0, *whole[5:])
        return (*(None if x is None else g for x, g in zip(tangents, linear, strict=False)), *_second(second, whole[5 + BIAS]))

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> Any:
        raise NotImplementedError(TWICE)

    @staticmethod
    def vmap(info: Any, dims: Any, *arguments: Any) -> Any:
        return over_batches(Tangent.apply, info, dims, arguments, rows=9, options=9, bias=3)


class Double(torch.autograd.Function):
    """(grad_o, grad_lse, tan_q, tan_k, tan_v, tan_bias, q, k, v, o, lse, *options) -> second derivatives"""

    operator = _double

    @staticmethod
    def forward(*arguments: Any) -> Any:
        return _run(_double, arguments)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        if all(x is None for x in gradients):
            return (None,) * (OPTIONS + 11)
        raise NotImplementedError("libattn has no third derivatives")

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> Any:
        raise NotImplementedError("libattn has no third derivatives")

    @staticmethod
    def vmap(info: Any, dims: Any, *arguments: Any) -> Any:
        return over_batches(Double.apply, info, dims, arguments, rows=11, options=11, bias=5)


# ---- the operators themselves: for torch.compile and torch.export, which see no classes, and within transforms of torch.func ------
#
# torch.library.register_autograd would do for gradients, but gives a tangent of zero in forward mode without a word, and refuses
# torch.func.  Here a class of one level, as torch.func itself makes of each torch.autograd.Function, records the call, and the
# dispatcher takes it on to the next level.


class Level:
    """What the dispatcher calls for an operator where tensors have derivatives."""

    def __init__(self, operator: Any, function: type[torch.autograd.Function]) -> None:
        self.operator = operator
        self.defaults = [argument.default_value if argument.has_default_value() else None for argument in operator._schema.arguments]

        def forward(keys: Any, *arguments: Any) -> Any:
            # This level records what it has to itself; others are still to come.
            with torch.enable_grad(), torch.autograd.forward_ad._set_fwd_grad_enabled(True), below():
                return operator.redispatch(keys & torch._C._after_autograd_keyset, *arguments)

        def jvp(ctx: Any, _: Any, *tangents: Any) -> Any:
            # Forward mode is off in here, so a second one outside of this one would miss what follows, and get a tangent of zero.
            levels = torch._C._functorch.get_interpreter_stack() or ()
            if sum(level.key() == torch._C._functorch.TransformType.Jvp for level in levels) > 1:
                raise NotImplementedError(TWICE)
            return function.jvp(ctx, *tangents)

        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.first = 1
            function.setup_context(ctx, inputs[1:], output)

        self.record = type(f"{function.__name__}Level", (torch.autograd.function._SingleLevelFunction,), {
            "forward": staticmethod(forward), "setup_context": staticmethod(setup_context),
            "backward": staticmethod(lambda ctx, *gradients: (None, *function.backward(ctx, *gradients))),
            "jvp": staticmethod(jvp),
        })

    def __call__(self, keys: Any, *arguments: Any) -> Any:
        tensors = [x for x in arguments if isinstance(x, Tensor)]
        recorded = torch.is_grad_enabled() and any(x.requires_grad for x in tensors)
        if not recorded and all(torch._VF._unpack_dual(x, level=0)[1] is None for x in tensors):
            with below():
                return self.operator.redispatch(keys & torch._C._after_autograd_keyset, *arguments)
        whole = [*arguments, *self.defaults[len(arguments):]]  # the dispatcher leaves out trailing arguments that have their defaults
        with torch._functorch.autograd_function.enable_single_level_autograd_function():
            return self.record.apply(keys, *whole)


_library = torch.library.Library("libattn", "IMPL")
for _operator, _function in ((_attention, Attention), (_backward, Backward), (_jvp, Tangent), (_double, Double)):
    _library.impl(_operator, Level(_operator, _function), "Autograd", with_keyset=True)
