# SPDX-License-Identifier: MIT
"""Rotary positions of queries and keys, with gradients."""
from __future__ import annotations

import torch

from ...positions import Rope
from .._attention import check_tensors

Tensor = torch.Tensor


class Rotary(torch.nn.Module):
    """The rotation of a libattn.positions.Rope for heads of `dim` channels, by PyTorch's own functions.

    Angles are formed in double, so that positions of any size are exact to rounding.
    """

    def __init__(self, rope: Rope, dim: int) -> None:
        super().__init__()
        if not isinstance(rope, Rope):
            raise TypeError(f"rope is of type {type(rope).__name__}; it must be a libattn.positions.Rope, or True")
        if rope.cosines is not None or rope.sines is not None:
            raise NotImplementedError("rope has tables of cosines and sines; give its frequencies")
        self.width: int = dim if rope.dim_rotary is None else rope.dim_rotary
        if self.width % 2 or not 0 < self.width <= dim:
            raise ValueError(f"dim_rotary ({self.width}) of rope must be even and between 2 and {dim}, the channels of a head")
        if rope.pairs not in ("interleaved", "halves"):
            raise ValueError(f"pairs of rope is {rope.pairs!r}; known: 'interleaved', 'halves'")
        self.halves: bool = rope.pairs == "halves"
        self.magnitude: float = 1.0 if rope.magnitude is None else float(rope.magnitude)
        if rope.frequencies is None:
            # (On the CPU also where torch.device("meta") leaves the weights for later.)
            steps = torch.arange(0, self.width, 2, dtype=torch.float64, device="cpu") / self.width
            frequencies = (10000.0 if rope.base is None else float(rope.base)) ** -steps
        else:
            frequencies = torch.as_tensor(rope.frequencies, dtype=torch.float64, device="cpu")
            if frequencies.shape != (self.width // 2,):
                raise ValueError(f"frequencies of rope has shape {list(frequencies.shape)}; it must be [{self.width // 2}]")
        self._frequencies = frequencies / (1.0 if rope.stretch is None else float(rope.stretch))

    def forward(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        """x [batch, heads, tokens, dim], rotated.  positions [tokens] or [batch, tokens]; None: 0, 1, 2 ..."""
        if positions is None:
            positions = torch.arange(x.shape[-2], device=x.device)
        else:
            check_tensors(positions=positions)
            if positions.shape not in ((x.shape[-2],), (x.shape[0], x.shape[-2])):
                raise ValueError(f"positions has shape {list(positions.shape)}; it must be [{x.shape[-2]}] or [{x.shape[0]}, {x.shape[-2]}]")
        angles = positions.double()[..., None] * self._frequencies.to(x.device)
        angles = angles[:, None] if angles.dim() == 3 else angles
        kind = x.dtype if x.dtype == torch.float64 else torch.float32
        cosine, sine = ((f * self.magnitude).to(kind) for f in (angles.cos(), angles.sin()))
        if self.halves:
            half = self.width // 2
            a, b = x[..., :half].to(kind), x[..., half:self.width].to(kind)
            turned = torch.cat([a * cosine - b * sine, a * sine + b * cosine], -1)
        else:
            a, b = x[..., 0:self.width:2].to(kind), x[..., 1:self.width:2].to(kind)
            turned = torch.stack([a * cosine - b * sine, a * sine + b * cosine], -1).flatten(-2)
        return torch.cat([turned.to(x.dtype), x[..., self.width:]], -1) if self.width < x.shape[-1] else turned.to(x.dtype)
