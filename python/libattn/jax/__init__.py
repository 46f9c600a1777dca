# SPDX-License-Identifier: MIT
"""Attention for JAX on a CPU: primitives with jit, vmap, forward and reverse mode and second derivatives.

    from libattn.jax import dot_product_attention      # in place of jax.nn.dot_product_attention
"""
from ._attention import attention, dot_product_attention
from ._sharded import sharded_attention

__all__ = ["attention", "dot_product_attention", "sharded_attention"]
