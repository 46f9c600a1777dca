# SPDX-License-Identifier: MIT
"""Attention as a function of its parameters by operations that have second derivatives: for forward mode, and the derivative of
a derivative, with respect to them.  With o0 and lse0 the results without a sink:

    scales          factors of q
    sink            lse = log(exp(lse0) + exp(sink)), o = exp(lse0 - lse) o0
    alibi_slopes    -slope |p_i - j| as a bias, and
    bias_table      table[bucket(p_i - j)] as a bias: these two take memory for every pair of query and key
"""
from __future__ import annotations

import math
from typing import Any, Callable

import torch

from .. import positions
from ._fake import compute
from ._shim import AT

Tensor = torch.Tensor
PARAMETERS = ("alibi_slopes", "sink", "scales", "bias_table")
RELATIVE = ("relative_keys", "relative_values", "relative_u", "relative_v")
THD = 2


def composed(attention: Callable[..., Any], q: Tensor, k: Tensor, v: Tensor, *options: Any) -> tuple[Tensor, Tensor]:
    """o and lse of attention(q, k, v, *options), of which it is called with none of these parameters."""
    rest, kind = list(options), compute(q)
    scales, sink, slopes, table = (options[AT[name]] for name in ("scales", "sink", "alibi_slopes", "bias_table"))
    for name in PARAMETERS:
        rest[AT[name]] = None
    wide = (-1, 1, 1) if options[AT["layout"]] == 0 and q.dim() > 2 else (-1, 1)  # of a number for each head, beside q
    if scales is not None:
        rest[AT["scale"]], factor = 1.0, scales.view(wide)
        o, lse = composed(attention, q.to(kind) * factor, k, v, *_with(rest, sink=sink, alibi_slopes=slopes, bias_table=table))
        return o.to(q.dtype), lse
    if slopes is not None or table is not None:
        added = _added(q, k, slopes, table, options)
        rest[AT["bias"]] = added if options[AT["bias"]] is None else added + options[AT["bias"]].to(kind)
        rest[AT["table_kind"]], rest[AT["table_distance"]], rest[AT["table_causal"]] = 0, 0, 0
    o0, lse0, _ = attention(q, k, v, *rest, False)
    if sink is None:
        return o0, lse0
    sees, extra = lse0 != -math.inf, sink.view(wide[:-1]).expand_as(lse0)
    finite = torch.where(sees, lse0, extra)  # no infinity in what is differentiated
    lse = torch.logaddexp(finite, extra)
    share = torch.where(sees, torch.exp(finite - lse), 0)
    lse = torch.where(sees, lse, extra)
    if options[AT["lengths_q"]] is not None:
        lse = torch.where(_rows(q, options), lse, -math.inf)
    return (o0.to(kind) * share[..., None]).to(q.dtype), lse


def can_compose(options: Any, names: list[str]) -> bool:
    """Is there one of the parameters among `names`, and of a problem that allows this?"""
    plain = not options[AT["score"]] and not options[AT["normaliser"]] and all(options[AT[name]] is None for name in RELATIVE)
    return plain and any(name in PARAMETERS for name in names) and all(name in (*PARAMETERS, "bias") for name in names)


def are_moved(options: Any) -> bool:
    """Has one of the parameters a tangent of forward mode?"""
    given = (options[AT[name]] for name in PARAMETERS if can_compose(options, [name]))
    return any(x is not None and torch.autograd.forward_ad.unpack_dual(x).tangent is not None for x in given)


def _with(options: list[Any], **named: Any) -> list[Any]:
    whole = list(options)
    for name, x in named.items():
        whole[AT[name]] = x
    return whole


def _sizes(q: Tensor, k: Tensor, options: Any) -> tuple[Any, Any]:
    """How many queries and keys there are at most."""
    at = -3 if options[AT["layout"]] == 1 else -2
    return (q.shape[at] if q.dim() > 2 else q.shape[0]), (k.shape[at] if k.dim() > 2 else k.shape[0])


def _rows(q: Tensor, options: Any) -> Tensor:
    """Which rows of lse are of queries before lengths_q."""
    rows = torch.arange(_sizes(q, q, options)[0]) < options[AT["lengths_q"]][:, None]
    rows = rows[:, None] if options[AT["layout"]] == 0 else rows[..., None]
    return rows if q.dim() == 4 else rows[0] if q.dim() == 3 else rows[0, 0]


def _added(q: Tensor, k: Tensor, slopes: Tensor | None, table: Tensor | None, options: Any) -> Tensor:
    """What slopes and the table add to the scores, [batch or 1, heads, queries, keys]."""
    lengths_q, lengths_kv = options[AT["lengths_q"]], options[AT["lengths_kv"]]
    if options[AT["layout"]] == THD:
        lengths_q, lengths_kv = options[AT["cu_seqlens_q"]].diff(), options[AT["cu_seqlens_kv"]].diff()
        queries, keys = int(lengths_q.max()), int(lengths_kv.max())
    else:
        queries, keys = _sizes(q, k, options)
    first = torch.zeros(1, dtype=torch.int64)
    if options[AT["align"]]:
        first = first + (keys if lengths_kv is None else lengths_kv) - (queries if lengths_q is None else lengths_q)
    elif options[AT["offset_q"]] is not None:
        first = options[AT["offset_q"]].long()
    distance = (first[:, None, None] + torch.arange(queries)[:, None] - torch.arange(keys))[:, None]
    kind, found = compute(q), None
    if slopes is not None:
        found = -slopes.to(kind)[..., None, None] * distance.abs()
    if table is not None:
        least, most = int(distance.min()), int(distance.max())
        rule = positions.DistanceBias(
            ("t5", "clipped")[options[AT["table_kind"]]], table.shape[-1], options[AT["table_distance"]] or None, bool(options[AT["table_causal"]]))
        buckets = torch.tensor([rule.bucket(d) for d in range(least, most + 1)])
        part = table.to(kind)[:, buckets[distance[:, 0] - least]].transpose(0, 1)
        found = part if found is None else found + part
    assert found is not None
    return found


def gradients(attention: Callable[..., Any], grad_o: Tensor | None, grad_lse: Tensor | None, whole: Any, needs: Any, wants: Any) -> tuple[Any, list[Any]]:
    """Gradients of q, k, v and the options that `needs` names, differentiable once more; whole: q, k, v, o, lse, *options."""
    q, k, v, o, lse, *options = whole
    names = [name for name in wants if needs[AT[name]]]

    def function(q: Tensor, k: Tensor, v: Tensor, *parameters: Tensor) -> tuple[Tensor, Tensor]:
        return composed(attention, q, k, v, *_with(options, **dict(zip(names, parameters, strict=True))))

    _, pull = torch.func.vjp(function, q, k, v, *(options[AT[name]] for name in names))
    found = pull((torch.zeros_like(o) if grad_o is None else grad_o, torch.zeros_like(lse) if grad_lse is None else grad_lse))
    rest: list[Any] = [None] * len(options)
    for name, gradient in zip(names, found[3:], strict=True):
        rest[AT[name]] = gradient
    return found[:3], rest
