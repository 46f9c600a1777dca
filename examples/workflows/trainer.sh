#!/bin/sh
# SPDX-License-Identifier: MIT
# A model learns to copy, and its curve and its heads are looked at.  Then another run is interrupted and resumed: the file is that of a
# run without a break.  docs/trainer.md has the output.  It needs attn in the PATH, and leaves its files in the current folder.
set -eu

attn train copy --steps=40 -o copy.safetensors
attn plot loss copy.safetensors -o loss.svg

attn analyze copy.safetensors --roles | grep -E 'induction|uniform'
attn plot heads copy.safetensors -o heads.svg
attn view copy.safetensors -o copy.html

attn train seq2seq --steps=50 -o half.safetensors
attn train seq2seq --steps=100 --resume=half.safetensors -o resumed.safetensors
attn train seq2seq --steps=100 -o whole.safetensors
cmp resumed.safetensors whole.safetensors && echo "the same file"
attn plot weights resumed.safetensors -o weights.svg --high=max
