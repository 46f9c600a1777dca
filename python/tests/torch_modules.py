# SPDX-License-Identifier: MIT
"""What the tests of libattn.torch.nn share: numbers, a definition of attention in plain PyTorch, and comparisons in double."""
import torch

from libattn import positions


def draw(*shape, seed=1, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def made(kind, *sizes, **options):
    """A module in double, with parameters of which none is small."""
    torch.manual_seed(0)
    module = kind(*sizes, dtype=torch.float64, **options)
    for p in module.parameters():
        torch.nn.init.normal_(p, std=0.4)
    return module


def heads(x, count):
    """[..., tokens, channels] as [..., heads, tokens, dim]"""
    return x.unflatten(-1, (count, -1)).transpose(1, 2)


def same(found, want):
    """Within rounding of double: sums of at most a few hundred terms of magnitude 10, through two or three products."""
    torch.testing.assert_close(found, want, rtol=1e-11, atol=1e-11)


def gradients(result, module, inputs):
    """Those of the inputs and of the parameters, of a loss that reads all of the result."""
    loss = (result * draw(*result.shape, seed=9, dtype=result.dtype)).sum()
    parameters = [p for p in module.parameters() if p.requires_grad]
    return torch.autograd.grad(loss, [*inputs, *parameters], retain_graph=True, allow_unused=False)


def turned(x, rope, at=None):
    """Rotary positions by complex numbers.  x [..., tokens, dim]"""
    rope = positions.Rope(pairs="halves") if rope is True else rope
    width = rope.dim_rotary or x.shape[-1]
    at = torch.arange(x.shape[-2]) if at is None else at
    angles = at.double()[..., None] * (rope.base or 10000.0) ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    factor = torch.polar(torch.ones_like(angles), angles)
    factor = factor[:, None] if factor.dim() == 3 else factor
    some = x[..., :width]
    pairs = some.unflatten(-1, (2, width // 2)).transpose(-1, -2) if rope.pairs == "halves" else some.unflatten(-1, (width // 2, 2))
    found = torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * factor)
    found = found.transpose(-1, -2).flatten(-2) if rope.pairs == "halves" else found.flatten(-2)
    return torch.cat([found, x[..., width:]], -1)


def attend(
    q, k, v, *, bias=None, mask=None, causal=False, window=None, dilation=0, scale=None, temperature=1.0, softcap=None, score="dot", normaliser="softmax", alibi=False,
    sinks=None, first=0, **_,
):
    """Attention of [batch, heads, tokens, dim], query i at position first + i (a number or [batch]).  mask: True where a query sees a key."""
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    if score == "cosine":
        q, k = q / q.norm(dim=-1, keepdim=True), k / k.norm(dim=-1, keepdim=True)
    s = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale) / temperature
    s = softcap * (s / softcap).tanh() if softcap else s
    place = torch.as_tensor(first).reshape(-1, 1, 1, 1) + torch.arange(s.shape[2])[:, None]
    distance = place - torch.arange(s.shape[3])
    if alibi:
        s = s - torch.from_numpy(positions.alibi_slopes(s.shape[1])).double()[:, None, None] * distance.abs()
    if bias is not None:
        s = s + bias
    seen = torch.ones_like(distance, dtype=torch.bool)
    if window is not None:
        left, right = window if isinstance(window, tuple) else (window, window)
        seen &= (distance <= left) & (distance >= -right)
    if dilation:
        seen &= distance % dilation == 0
    if causal:
        seen &= distance >= 0
    if mask is not None:
        seen = seen & mask
    s = s.masked_fill(~seen, -torch.inf)
    if normaliser == "softmax-one":
        sinks = torch.zeros(s.shape[1], dtype=s.dtype)
    if sinks is not None:
        s = torch.cat([s, sinks.view(-1, 1, 1).expand(*s.shape[:3], 1)], -1)
    w = s.softmax(-1).nan_to_num(0)
    return (w if sinks is None else w[..., :-1]) @ v
