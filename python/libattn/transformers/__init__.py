# SPDX-License-Identifier: MIT
"""libattn for the library transformers: the attention of its models on a CPU, by name."""
from ._register import register, unregister

__all__ = ["register", "unregister"]
