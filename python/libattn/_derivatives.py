# SPDX-License-Identifier: MIT
"""Derivatives of attention: backward, forward mode, and the gradient of the gradient."""
from __future__ import annotations

from typing import Any, Mapping, Sequence, Unpack

from . import _abi, _callbacks
from ._options import ArrayLike, Problem

Outs = Sequence[ArrayLike | None] | None
_BACKWARD = ("q", "k", "v", "o", "lse", "grad_o", "grad_lse", "grad_q", "grad_k", "grad_v")
_JVP = ("q", "k", "v", "o", "lse", "tan_q", "tan_k", "tan_v", "tan_o", "tan_lse", "bias", "tan_bias")
_DOUBLE_BACKWARD = (
    "q", "k", "v", "o", "lse", "grad_o", "grad_lse", "tan_q", "tan_k", "tan_v", "second_grad_o", "second_q", "second_k", "second_v",
    "bias", "tan_bias", "second_bias", "second_grad_lse",
)


def attention_backward(
    q: ArrayLike, k: ArrayLike, v: ArrayLike, o: ArrayLike, lse: ArrayLike, grad_o: ArrayLike, *, grad_lse: ArrayLike | None = None,
    grads: Sequence[str] | Mapping[str, ArrayLike] = (), out: Outs = None, **problem: Unpack[Problem],
) -> tuple[Any, ...]:
    """Gradients of a loss with respect to the arrays of libattn.attention, in memory linear in the lengths.

        o, lse = libattn.attention(q, k, v, causal=True, return_lse=True)
        grad_q, grad_k, grad_v = libattn.attention_backward(q, k, v, o, lse, grad_o, causal=True)

    q, k, v    as in libattn.attention, and so are all keywords that say what is computed (libattn.Problem); dropout drops the same
               weights for the same seed
    o, lse     what attention returned
    grad_o     the gradient of the loss with respect to o, of its shape
    grad_lse   the same of lse; None: 0
    grads      names of further arrays of the call whose gradients are returned: "bias", "sink", "alibi_slopes", "scale" (also of
               one scale for all heads; [heads_q]), "score_matrix", "bias_table", "relative_keys", "relative_values", "relative_u",
               "relative_v"; or names with arrays to write to
    out        (grad_q, grad_k, grad_v) to write to; None, or None for one of them: a new array

    With weights w and keep, the factor of dropout (0 or 1/(1-p); 1 without it), as in attention,

        ds[i, j]   = w[i, j] * (keep[i, j] * sum(grad_o[i] * v[j]) - sum(grad_o[i] * o[i]) + grad_lse[i])
        grad_q[i]  = sum over j of scale * ds[i, j] * k[j]
        grad_k[j]  = sum over i of scale * ds[i, j] * q[i]         and over the query heads of the group
        grad_v[j]  = sum over i of keep[i, j] * w[i, j] * grad_o[i]

    and the gradient of what is added to the scores is ds, summed over the axes on which it broadcasts.  Arrays have the shapes and
    types of those that they are gradients of; sums are formed in float32, or in float64 where q is.

    Returns (grad_q, grad_k, grad_v, *grads).  Raises what attention raises; there are no gradients of keys in pages.
    """
    more = dict(problem)
    layout: Any = more.pop("layout", "bhsd")
    for name in grads:
        more[f"grad_{name}"] = grads[name] if isinstance(grads, Mapping) else True
    grad_q, grad_k, grad_v = _outs(out, ("grad_q", "grad_k", "grad_v"))
    return _callbacks.compute(
        _abi.ATTN_BACKWARD, layout, more, _BACKWARD, q, k, v, o, lse, grad_o, grad_lse, grad_q, grad_k, grad_v,
    )


def jvp(
    q: ArrayLike, k: ArrayLike, v: ArrayLike, o: ArrayLike, lse: ArrayLike, *, tan_q: ArrayLike | None = None,
    tan_k: ArrayLike | None = None, tan_v: ArrayLike | None = None, tan_bias: ArrayLike | None = None, return_lse: bool = False,
    out: ArrayLike | None = None, **problem: Unpack[Problem],
) -> Any:
    """Forward mode: how the result of libattn.attention changes as q, k, v and bias move along tangents.

    q, k, v, o, lse and the keywords of libattn.Problem are those of attention_backward; tangents have the shapes of their arrays,
    and None counts as 0.  With x[i, j] = scale * sum(q[i] * k[j]), f the softcap (or f(x) = x), and w and keep as in
    attention_backward,

        ds[i, j]    = f'(x[i, j]) * scale * sum(tan_q[i] * k[j] + q[i] * tan_k[j]) + tan_bias[i, j]
        tan_lse[i]  = sum over j of w[i, j] * ds[i, j]
        tan_o[i]    = sum over j of keep[i, j] * w[i, j] * ((ds[i, j] - tan_lse[i]) * v[j] + tan_v[j])

    in one pass over the keys, in memory linear in the lengths.  For dot products only.

    Returns tan_o, or (tan_o, tan_lse) with return_lse; `out` is where tan_o is written.  Raises what attention raises.
    """
    more = dict(problem)
    layout: Any = more.pop("layout", "bhsd")
    return _callbacks.compute(
        _abi.ATTN_JVP, layout, more, _JVP, q, k, v, o, lse, tan_q, tan_k, tan_v, True if out is None else out, return_lse,
        more.pop("bias", None), tan_bias,
    )


def attention_double_backward(
    q: ArrayLike, k: ArrayLike, v: ArrayLike, o: ArrayLike, lse: ArrayLike, grad_o: ArrayLike, *, tan_q: ArrayLike | None = None,
    tan_k: ArrayLike | None = None, tan_v: ArrayLike | None = None, tan_bias: ArrayLike | None = None, grad_lse: ArrayLike | None = None,
    return_bias: bool = False, return_grad_lse: bool = False, out: Outs = None, **problem: Unpack[Problem],
) -> tuple[Any, ...]:
    """The gradient of attention_backward, which is also the product of a vector with the Hessian of attention.

    tan_q, tan_k, tan_v and tan_bias are the gradients of a loss with respect to the results grad_q, grad_k, grad_v and grad_bias of
    attention_backward (None: 0); the other arrays and keywords are those that it was called with.

    Returns (second_grad_o, second_q, second_k, second_v), the gradients of that loss with respect to grad_o, q, k and v, then
    second_bias with return_bias, and second_grad_lse, the gradient with respect to grad_lse, with return_grad_lse.  `out` has up to
    four arrays to write to.  attn.h has the formulas; the memory is linear in the lengths.  For dot products only.  Raises what
    attention raises.
    """
    more = dict(problem)
    layout: Any = more.pop("layout", "bhsd")
    made = _outs(out, ("second_grad_o", "second_q", "second_k", "second_v"))
    return _callbacks.compute(
        _abi.ATTN_DOUBLE_BACKWARD, layout, more, _DOUBLE_BACKWARD, q, k, v, o, lse, grad_o, grad_lse, tan_q, tan_k, tan_v, made[0],
        made[1], made[2], made[3], more.pop("bias", None), tan_bias, return_bias, return_grad_lse,
    )


def _outs(out: Outs, names: Sequence[str]) -> list[Any]:
    """Arrays to write to, or True for new ones."""
    if out is None:
        return [True] * len(names)
    if len(out) != len(names):
        raise ValueError(f"out has {len(out)} arrays; it must have {len(names)}: {', '.join(names)}")
    return [True if one is None else one for one in out]
