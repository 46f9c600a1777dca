#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The example learns to copy and to reverse, all held-out sequences of it, and the same seed gives the same bits for any number of
# threads.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/one" "$dir/two"
export OPENBLAS_NUM_THREADS=1 # its products are small: threads that wait for them take more time than they save
OMP_NUM_THREADS=1 "$1" "$dir/one" 20 >/dev/null && { echo "20 steps are too few to learn, and it says it did"; exit 1; }
OMP_NUM_THREADS=3 OPENBLAS_NUM_THREADS=2 "$1" "$dir/two" 20 >/dev/null && exit 1
cmp "$dir/one/loss.csv" "$dir/two/loss.csv"
cmp "$dir/one/attention.csv" "$dir/two/attention.csv"
OMP_NUM_THREADS=1 "$1" "$dir"
grep -q '<polyline' "$dir/loss.svg"
grep -q '<rect class="cell"' "$dir/attention.svg"
[ "$(wc -l <"$dir/loss.csv")" = 601 ]
