#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The generated files drawn_* of examples/data are the output of draw.py there: tests/docs/drawn.sh PYTHON
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"$1" examples/data/draw.py "$dir"
count=0
for file in "$dir"/*.safetensors; do
    cmp "$file" "examples/data/$(basename "$file")"
    count=$((count + 1))
done
[ "$count" = "$(find examples/data -name 'drawn_*' | wc -l)" ] || { echo "draw.py does not write all files examples/data/drawn_*"; exit 1; }
echo "$count files"
