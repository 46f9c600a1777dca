#!/bin/sh
# SPDX-License-Identifier: MIT
# A model learns to copy; its curve, its heads and one of its layers are looked at.  Then another run is interrupted and resumed: the
# file is that of a run without a break.  In the current folder; `attn` is the command, $HALF and $WHOLE are the steps of both runs.
set -eu
HALF=${HALF-200} WHOLE=${WHOLE-400}

attn train copy --steps="$WHOLE" -o copy.safetensors
attn plot loss copy.safetensors -o loss.svg
attn plot heads copy.safetensors -o heads.svg
attn view copy.safetensors -o copy.html

attn train seq2seq --steps="$HALF" -o half.safetensors
attn train seq2seq --steps="$WHOLE" --resume=half.safetensors -o resumed.safetensors
attn train seq2seq --steps="$WHOLE" -o whole.safetensors
cmp resumed.safetensors whole.safetensors
attn plot weights resumed.safetensors -o weights.svg --high=max
