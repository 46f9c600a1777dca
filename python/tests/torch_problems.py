# SPDX-License-Identifier: MIT
"""What the tests of libattn.torch share: tensors, results by the definition in double, and how far computed ones may be from them."""
import math

import numpy as np
import torch

from libattn import _bound, _definition

UNIT = {torch.float64: 2.0**-53, torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}
# The smallest block of keys of any kernel, and so the most blocks.
BLOCK = 16


def tensors(*shapes, dtype=torch.float32, grad=False, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_(grad) for shape in shapes]


def qkv(batch=2, heads=4, heads_kv=None, len_q=8, len_kv=None, dim=16, dim_v=None, **kind):
    heads_kv, len_kv, dim_v = heads_kv or heads, len_q if len_kv is None else len_kv, dim_v or dim
    return tensors((batch, heads, len_q, dim), (batch, heads_kv, len_kv, dim), (batch, heads_kv, len_kv, dim_v), **kind)


def double(x):
    return x.detach().to(torch.float64).numpy() if isinstance(x, torch.Tensor) and x.is_floating_point() else np.asarray(x)


def expected(q, k, v, options):
    """o, lse and weights of [batch, heads, tokens, dim] in double, and their bounds for the type of q."""
    numbers = {name: double(x) if isinstance(x, torch.Tensor) else x for name, x in options.items()}
    q64, k64, v64 = (double(x) for x in (q, k, v))
    found = _definition.forward(q64, k64, v64, numbers)
    bound = _bound.forward(found, q64, k64, numbers, q.dtype == torch.float64, BLOCK)
    return found, bound


def stored(bound, result):
    """A bound with the rounding to the type of a result."""
    unit = UNIT[result.dtype]
    return bound + (abs(double(result)) * unit * (1 + 2 * unit) + 2.0**-25 if unit > 2.0**-20 else 0)


def near(found, wanted, bound):
    found, wanted = double(found), double(wanted)
    assert found.shape == wanted.shape, (found.shape, wanted.shape)
    with np.errstate(invalid="ignore"):
        off = np.where(found == wanted, 0, abs(found - wanted))
    assert np.all(off <= bound), f"differs by {np.max(off - bound)} more than {np.max(bound)}"


def check_forward(result, q, k, v, **options):
    """o, or (o, lse), or (o, lse, weights), within the bounds of docs/numerics.md."""
    found, bound = expected(q, k, v, options)
    results = result if isinstance(result, tuple) else (result,)
    for computed, name in zip(results, ("o", "lse", "weights"), strict=False):
        near(computed, getattr(found, name), stored(getattr(bound, name), computed))


def gradients(grad_o, q, k, v, options):
    """dq, dk and dv by their formulas in double, each with its bound: every sum is a chain of roundings (docs/numerics.md, gamma),
    weights are as far off as `expected` says, and o, which is read back, has been rounded to its type."""
    found, bound = expected(q, k, v, options)
    u = UNIT[torch.float64] if q.dtype == torch.float64 else UNIT[torch.float32]
    scale = options.get("scale") or q.shape[-1] ** -0.5
    group = q.shape[1] // k.shape[1]
    q64, k64, v64, g = (double(x) for x in (q, k, v, grad_o))
    wide_k, wide_v = np.repeat(k64, group, 1), np.repeat(v64, group, 1)
    keys, queries, dim_v = k64.shape[2], q64.shape[2], v64.shape[3]
    w, w_off = found.weights, bound.weights
    keep = found.keep
    dp = g @ wide_v.swapaxes(-1, -2)
    dp_off = _bound.gamma(dim_v + 3, u) * (abs(g) @ abs(wide_v).swapaxes(-1, -2))
    o_off = stored(bound.o, torch.tensor(found.o).to(q.dtype))
    delta = (g * found.o).sum(-1, keepdims=True)
    delta_off = (abs(g) * (o_off + _bound.gamma(dim_v + 2, u) * abs(found.o))).sum(-1, keepdims=True)
    t = keep * dp - delta
    t_off = keep * dp_off + delta_off + 3 * u * (abs(keep * dp) + abs(delta))
    ds = w * t
    ds_off = w_off * (abs(t) + t_off) + w * t_off + 3 * u * abs(ds)
    whole = abs(ds) + ds_off

    def shared(x):
        return x.reshape(x.shape[0], -1, group, *x.shape[2:]).sum(2)

    def transposed(x):
        return x.swapaxes(-1, -2)

    kept = keep * w
    kept_off = keep * w_off + 2 * u * kept
    many = _bound.gamma(2 * queries * group + 4, u)
    return (
        (scale * (ds @ wide_k), abs(scale) * (ds_off @ abs(wide_k) + _bound.gamma(2 * keys + 4, u) * (whole @ abs(wide_k)))),
        (shared(scale * (transposed(ds) @ q64)), shared(abs(scale) * (transposed(ds_off) @ abs(q64) + many * (transposed(whole) @ abs(q64))))),
        (shared(transposed(kept) @ g), shared(transposed(kept_off) @ abs(g) + many * (transposed(kept + kept_off) @ abs(g)))),
    )


def check_gradients(found, grad_o, q, k, v, **options):
    for computed, (wanted, bound) in zip(found, gradients(grad_o, q, k, v, options), strict=False):
        near(computed, wanted, stored(bound, computed))


def reference(q, k, v, causal=False, bias=None, mask=None, scale=None, window=None):
    """The same in torch, to be differentiated."""
    group = q.shape[-3] // k.shape[-3] if q.dim() > 2 else 1
    if group > 1:
        k, v = k.repeat_interleave(group, -3), v.repeat_interleave(group, -3)
    s = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if bias is not None:
        s = s + bias
    at = torch.arange(s.shape[-2])[:, None] + (0 if causal == "top-left" else s.shape[-1] - s.shape[-2])
    key = torch.arange(s.shape[-1])
    if causal:
        s = s.masked_fill(key > at, -math.inf)
    if window is not None:
        s = s.masked_fill((key < at - window[0]) | (key > at + window[1]), -math.inf)
    if mask is not None:
        s = s.masked_fill(~mask, -math.inf)
    return s.softmax(-1).nan_to_num(0) @ v
