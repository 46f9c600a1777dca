#!/bin/sh
# SPDX-License-Identifier: MIT
# examples/workflows/benchmark.sh with few calls: what it says, and the files that it leaves.  Usage: workflow.sh ATTN SCRIPT
set -eu
attn=$(realpath "$1") script=$(realpath "$2")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/bin"
ln -s "$attn" "$folder/bin/attn"
cd "$folder"
PATH="$folder/bin:$PATH" QUICK="--iterations=2 --warmup=0" "$script" >out.txt 2>err.txt || { cat err.txt; exit 1; }

failed=0
holds() {
    name=$1
    shift
    if "$@"; then echo "ok - $name"; else echo "not ok - $name" && failed=1; fi
}
rows() { test "$(grep -c "$1" "$2")" = "$3"; }
holds "names by length, in the table" rows '^flash = fwd:f32:hq8:sq[0-9]*:d64 .*x ' out.txt 3
holds "  and in the file" rows '^"matrix:f32:hq8:sq[0-9]*:d64","standard",' names.csv 3
holds "curves by length" grep -q 'standard = matrix:f32:hq8:d64: time grows as n^' names.svg
holds "layers as bars" grep -q 'data-name="layer:gqa:bwd:f32:hq8:hkv2:sq512:d64:m512"' layers.svg
holds "a cache of each type, as curves that keep sq1" grep -q 'decode:int8:hq8:hkv2:sq1:d64:page=16:rope: time grows as n^' decode.svg
holds "nothing on standard error" test ! -s err.txt
exit $failed
