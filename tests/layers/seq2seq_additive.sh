#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The decoder learns to reverse every held-out sequence, its weights are the other diagonal, in the numbers and in the picture, and the
# same seed gives the same bits for any number of threads.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/one" "$dir/two"
export OPENBLAS_NUM_THREADS=1 # its products are small: threads that wait for them take more time than they save
OMP_NUM_THREADS=1 "$1" "$dir/one" 20 >/dev/null && { echo "20 steps are too few to learn, and it says it did"; exit 1; }
OMP_NUM_THREADS=3 OPENBLAS_NUM_THREADS=2 "$1" "$dir/two" 20 >/dev/null && exit 1
cmp "$dir/one/loss.csv" "$dir/two/loss.csv"
cmp "$dir/one/weights.csv" "$dir/two/weights.csv"
OMP_NUM_THREADS=1 "$1" "$dir"
[ "$(wc -l <"$dir/loss.csv")" = 401 ]
grep -q '<polyline' "$dir/loss.svg"

# Row i has nearly all its weight at 11 - i.
awk -F, 'NF != 10 || $(11 - NR) < 0.9 { print "row " NR ": " $0; bad = 1 } END { exit bad || NR != 10 }' "$dir/weights.csv"
# The ten cells of the picture that are nearly full: their places fall by one cell to the left for each one down.
sed -n 's/.*class="cell" x="\([0-9]*\)" y="\([0-9]*\)".*opacity="\(0.9[0-9]*\|1.000\)".*/\1 \2/p' "$dir/weights.svg" >"$dir/cells"
[ "$(wc -l <"$dir/cells")" = 10 ]
awk 'NR == 1 { sum = $1 + $2 } $1 + $2 != sum { bad = 1 } END { exit bad }' "$dir/cells"
