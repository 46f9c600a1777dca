# SPDX-License-Identifier: MIT
"""Modules of PyTorch with weights, whose attention libattn computes: each trains like any other torch.nn.Module."""
from ._cache import Cache
from ._grouped import GroupedQueryAttention
from ._latent import LatentAttention
from ._linear import LinearAttention, State
from ._multihead import MultiheadAttention
from ._scores import ScoreOptions

__all__ = ["Cache", "GroupedQueryAttention", "LatentAttention", "LinearAttention", "MultiheadAttention", "ScoreOptions", "State"]
