#!/bin/sh
# SPDX-License-Identifier: MIT
# From a layer, or from weights alone, to what heads do and a page: docs/analyst.md says what each line is for.  It needs attn in the
# PATH and the example data in examples/data, and leaves its files in the current folder.
set -eu

attn show examples/data/animal_street_layer2.safetensors
attn layer examples/data/animal_street_layer2.safetensors -o layer.safetensors --heads=12 --qkv --weights --compare
attn analyze layer.safetensors --roles
attn top layer.safetensors --token=it --content --count=5

attn layer examples/data/animal_street_layer2.safetensors -o alone.safetensors --heads=12 --weights
attn analyze alone.safetensors --roles | grep copying
attn view alone.safetensors -o layer.html

attn analyze examples/data/repeated_words.safetensors --roles --content | grep -E ' (previous|next|duplicate)'
attn analyze examples/data/repeated_words.safetensors --roles --json >roles.json
attn plot roles roles.json -o roles.svg

attn top examples/data/animal_street.safetensors --token=it --layer=3 --head=1 --count=5
attn top examples/data/animal_street_flooded.safetensors --token=it --layer=3 --head=1 --count=5
attn plot compare examples/data/animal_street.safetensors examples/data/animal_street_flooded.safetensors \
    --layer=3 --head=1 --query=9 -o pair.svg
attn view examples/data/animal_street.safetensors --with=examples/data/animal_street_flooded.safetensors -o pair.html

attn analyze examples/data/animal_street.safetensors --rollout=rollout.safetensors | tail -n 1
attn top rollout.safetensors --token=it --layer=5 --count=5
attn plot weights rollout.safetensors -o rollout.svg --layer=5 --high=max
