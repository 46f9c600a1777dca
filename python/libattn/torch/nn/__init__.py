# SPDX-License-Identifier: MIT
"""Modules of PyTorch with weights, whose attention libattn computes: each trains like any other torch.nn.Module."""
from ._multihead import MultiheadAttention
from ._scores import ScoreOptions

__all__ = ["MultiheadAttention", "ScoreOptions"]
