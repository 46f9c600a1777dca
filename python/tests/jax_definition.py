# SPDX-License-Identifier: MIT
"""What libattn.jax computes, by its definition: NumPy in double, where JAX would compile each step of it for longer than all of it runs.

Derivatives along a direction are those of an imaginary step, exact to rounding, as no formula below has a difference in it: where
f is real on real numbers, Im f(x + iht) / h is its derivative along t with an error of h^2, and h is 2^-300.
"""
import numpy as np


def definition(q, k, v, *, causal=False, window=None, mask=None, bias=None, scale=None, softcap=None, sink=None, alibi_slopes=None,
               lengths_q=None, lengths_kv=None, align="bottom-right", layout="bhsd", keep=1.0, grad=None):
    """o and lse: the loop of the docstring, over all pairs at once; keep: what dropout multiplies the weights with.

    With grad, which makes the gradients of o and lse from these, a dictionary of the gradients of all arrays instead.
    """

    def turned(x):
        return np.swapaxes(x, 1, 2) if layout == "bshd" else np.asarray(x)

    q, k, v = map(turned, (q, k, v))
    group = q.shape[1] // k.shape[1]
    all_k, all_v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    queries, keys = q.shape[2], k.shape[2]
    scale = q.shape[3] ** -0.5 if scale is None else scale
    s, slope = np.einsum("bhid,bhjd->bhij", q, all_k) * scale, 1.0
    if softcap is not None:
        s = softcap * np.tanh(s / softcap)
        slope = 1 - (s / softcap) ** 2
    rows = np.reshape(queries if lengths_q is None else lengths_q, (-1, 1, 1, 1))
    columns = np.reshape(keys if lengths_kv is None else lengths_kv, (-1, 1, 1, 1))
    j, query = np.arange(keys), np.arange(queries)[:, None]
    i = query + (0 if "top-left" in (causal, align) else columns - rows)
    if bias is not None:
        s = s + np.asarray(bias)
    if alibi_slopes is not None:
        s = s - np.reshape(alibi_slopes, (-1, 1, 1)) * abs(i - j)
    real = query < rows  # what is no padding
    seen = np.broadcast_to((j < columns) & real, s.shape)
    if causal:
        seen = seen & (j <= i)
    if window is not None:
        seen = seen & (j >= i - window[0]) & (j <= i + window[1])
    if mask is not None:
        seen = seen & np.asarray(mask)
    most = np.max(s.real, -1, keepdims=True, where=seen, initial=-np.inf)
    if sink is not None:
        sink = np.reshape(sink, (-1, 1, 1))
        most = np.maximum(most, sink.real)
    most = np.where(np.isfinite(most), most, 0)
    w = np.exp(np.where(seen, s - most, -np.inf))
    in_sink = np.where(real, np.exp(sink - most), 0) if sink is not None else np.zeros(most.shape)
    total = w.sum(-1, keepdims=True) + in_sink
    none = total == 0
    total = np.where(none, 1, total)
    w, in_sink = w / total, in_sink / total
    lse = np.where(none, -np.inf, most + np.log(total))[..., 0]
    o = np.einsum("bhij,bhjd->bhid", keep * w, all_v)
    o, lse = (o, lse) if layout == "bhsd" else (np.swapaxes(o, 1, 2), np.swapaxes(lse, 1, 2))
    if grad is None:
        return o, lse
    grad_o, grad_lse = map(turned, grad(o, lse))
    grad_w = keep * np.einsum("bhid,bhjd->bhij", grad_o, all_v)
    rest = np.where(none, 0, grad_lse[..., None]) - (w * grad_w).sum(-1, keepdims=True)
    grad_s = w * (grad_w + rest)
    scores = grad_s * slope * scale

    def grouped(x):
        return turned(x.reshape(x.shape[0], -1, group, *x.shape[2:]).sum(2))

    found = {
        "q": turned(np.einsum("bhij,bhjd->bhid", scores, all_k)),
        "k": grouped(np.einsum("bhij,bhid->bhjd", scores, q)),
        "v": grouped(np.einsum("bhij,bhid->bhjd", keep * w, grad_o)),
        "sink": (in_sink * rest).sum((0, 2, 3)),
        "alibi_slopes": -(grad_s * abs(i - j)).sum((0, 2, 3)),
    }
    if bias is not None:
        found["bias"] = grad_s.sum(tuple(n for n in range(4) if np.shape(bias)[n] == 1), keepdims=True)
    return found


class Definition:
    """A function of arrays, o and lse, with its derivatives; a row without keys has 0 as its lse, as nothing else is finite.

    The names are those of the arguments after q, k and v.  of(*arrays, grad=) is as above.
    """

    def __init__(self, *names, of=definition, **options):
        self.names = ("q", "k", "v", *names)
        self.of, self.options = of, options

    def _call(self, arrays, **how):
        return self.of(*arrays[:3], **dict(zip(self.names[3:], arrays[3:], strict=True)), **self.options, **how)

    def __call__(self, *arrays):
        o, lse = self._call(arrays)
        return o, np.where(np.isneginf(lse.real), 0, lse)

    def gradients(self, grad, *arrays):
        """Of a function of o and lse, whose own gradients are grad(o, lse)."""
        found = self._call(arrays, grad=grad)
        return tuple(found[name] for name in self.names)


def along(f, x, t):
    """The derivatives of f(*x) along t."""
    step = 2.0**-300
    found = f(*(np.asarray(a) + 1j * step * np.asarray(b) for a, b in zip(x, t, strict=True)))
    return tuple(y.imag / step for y in found)
