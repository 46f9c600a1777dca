# SPDX-License-Identifier: MIT
"""libattn for PyTorch: attention with gradients in every mode, and in the place of PyTorch's own in models as they are."""
from . import _fake, _vmap, nn
from ._attention import attention
from ._enable import disable, enable, enabled, stats, using
from ._flash import flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache, memory_efficient_attention, varlen_attn
from ._flex import flex_attention
from ._linear import linear_attention

__all__ = [
    "attention", "disable", "enable", "enabled", "flash_attn_func", "flash_attn_varlen_func", "flash_attn_with_kvcache",
    "flex_attention", "linear_attention", "memory_efficient_attention", "nn", "stats", "using", "varlen_attn",
]
