# SPDX-License-Identifier: MIT
"""libattn for PyTorch: attention with gradients in every mode, and in the place of PyTorch's own in models as they are."""
from . import _fake, _vmap
from ._attention import attention
from ._enable import disable, enable, enabled, stats, using

__all__ = ["attention", "disable", "enable", "enabled", "stats", "using"]
