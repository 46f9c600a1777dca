#!/bin/sh
# SPDX-License-Identifier: MIT
# Which attention grows how?  Implementations by name and length, as a table, a file and a picture; then what a layer costs beside
# its attention, and decoding over caches of two types: docs/benchmarker.md.  It needs attn in the PATH, takes a minute and leaves its
# files in the current folder.
set -eu

attn bench standard flash linear --seq-lengths=256,512,1024 --num-heads=8 --embed-dim=512 --csv=names.csv
attn plot runtime names.csv -o names.svg

attn bench fwd:hq8:sq512:d64 layer:mha:fwd,bwd:hq8:sq512:d64 layer:gqa:fwd,bwd:hq8:hkv2:sq512:d64 --json >layers.json
attn plot runtime layers.json -o layers.svg

attn bench decode:bf16,int8:hq8:hkv2:sq1:skv1024,2048,4096:d64:page=16:rope --csv=decode.csv
attn plot runtime decode.csv -o decode.svg
