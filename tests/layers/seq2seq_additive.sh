#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The decoder learns to reverse every held-out sequence, and its weights are the antidiagonal, in the numbers and in the picture.
. tests/layers/learns.sh "$1" weights.csv 400

# Row i has nearly all its weight at 11 - i.
awk -F, 'NF != 10 || $(11 - NR) < 0.9 { print "row " NR ": " $0; bad = 1 } END { exit bad || NR != 10 }' "$dir/weights.csv"
# The ten cells of the picture that are nearly full: each is one cell down and one to the left of the last.
sed -n 's/.*class="cell" x="\([0-9]*\)" y="\([0-9]*\)".*opacity="\(0.9[0-9]*\|1.000\)".*/\1 \2/p' "$dir/weights.svg" >"$dir/cells"
[ "$(wc -l <"$dir/cells")" = 10 ]
awk 'NR == 1 { sum = $1 + $2 } $1 + $2 != sum { bad = 1 } END { exit bad }' "$dir/cells"
