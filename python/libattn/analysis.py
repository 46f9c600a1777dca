# SPDX-License-Identifier: MIT
"""Analysis of attention distributions: the softmax with its temperature, entropy and energies; heads compared; one attention step by
step, forward and backward; gradients checked by differences.  In double, for inspection, not for speed.  (The header attn/analysis.h.)

Logarithms are natural.  Results are arrays of double of the library of the first argument; a number for each row of a matrix is an
array, of a single row a float.  An argument of another shape is a ValueError, of another kind a TypeError, and both name it.
"""
from __future__ import annotations

from ._distributions import (
    Gibbs, effective_states, entropy, head_diversity, head_entropy, kl_divergence, log_softmax, max_entropy, mutual_information,
    normalised_entropy, softmax, softmax_jacobian, softmax_jvp, temperature_sweep,
)
from ._problem import Options
from ._steps import Flow, Steps, Verification, decompose, gradient_flow, verify_gradients

__all__ = [
    "Flow", "Gibbs", "Options", "Steps", "Verification", "decompose", "effective_states", "entropy", "gradient_flow", "head_diversity",
    "head_entropy", "kl_divergence", "log_softmax", "max_entropy", "mutual_information", "normalised_entropy", "softmax",
    "softmax_jacobian", "softmax_jvp", "temperature_sweep", "verify_gradients",
]
