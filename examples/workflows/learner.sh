#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# learner.sh - from a few numbers to a picture: docs/learner.md says what each line is for.  It needs attn in the PATH, and leaves
# in.npz, out.npz and pictures in the current folder.
set -eu

attn run --q='1 0; 0 1; 1 1' --k='1 0; 0 1; 1 1' --v='1 2; 3 4; 5 6' --weights -o -

attn run --q='1 0; 0 1; 1 1' --k='1 0; 0 1; 1 1' --v='1 2; 3 4; 5 6' --weights --causal -o -

attn make fwd:f32:hq2:sq6:d8:causal -o in.npz --seed=1
attn run in.npz -o out.npz --causal --weights

attn show in.npz
attn show out.npz 'weights[0,:4,:4]'
attn plot weights out.npz -o head.svg

attn run in.npz -o cold.npz --causal --weights --temperature=0.5
attn show cold.npz 'weights[0,:4,:4]'
attn show out.npz weights --diff=cold.npz || echo "they differ: status $?"
attn plot compare out.npz cold.npz -o both.svg

attn run in.npz -o exact.npz --causal --weights --dtype=f64
attn show out.npz 'o[0]' --diff=exact.npz || echo "they differ: status $?"
