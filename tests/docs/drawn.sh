#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The drawn files of examples/data are what draw.py beside them draws: tests/docs/drawn.sh PYTHON
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"$1" examples/data/draw.py "$dir"
count=0
for file in "$dir"/*.safetensors; do
    cmp "$file" "examples/data/$(basename "$file")"
    count=$((count + 1))
done
[ "$count" = "$(find examples/data -name 'drawn_*' | wc -l)" ] || { echo "a drawn file is nobody's"; exit 1; }
echo "$count files"
