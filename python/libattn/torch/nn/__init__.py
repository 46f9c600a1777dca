# SPDX-License-Identifier: MIT
"""Modules of PyTorch with weights, whose attention libattn computes: each trains like any other torch.nn.Module."""
from ._cache import Cache
from ._grouped import GroupedQueryAttention
from ._hopfield import Hopfield, HopfieldLayer, HopfieldPooling
from ._latent import LatentAttention
from ._linear import LinearAttention, State
from ._multihead import MultiheadAttention
from ._relative import ShawAttention, T5Attention, TransformerXLAttention
from ._scores import ScoreOptions
from ._seq2seq import BahdanauAttention, LuongAttention

__all__ = [
    "BahdanauAttention", "Cache", "GroupedQueryAttention", "Hopfield", "HopfieldLayer", "HopfieldPooling", "LatentAttention",
    "LinearAttention", "LuongAttention", "MultiheadAttention", "ScoreOptions", "ShawAttention", "State", "T5Attention", "TransformerXLAttention",
]
