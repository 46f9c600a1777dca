# SPDX-License-Identifier: MIT
# learns.sh - shared by the tests of examples that learn.  Sourced with the program in $1, the table that it writes with its curve in $2
# and its number of steps in $3: it learns, but not in 20 steps, with the same bits for any number of threads.  Its files stay in $dir.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
OMP_NUM_THREADS=1 "$1" "$dir/one" 20 >/dev/null && { echo "20 steps are too few to learn, but the example reports success"; exit 1; }
OMP_NUM_THREADS=3 "$1" "$dir/two" 20 >/dev/null && exit 1
cmp "$dir/one/loss.csv" "$dir/two/loss.csv"
cmp "$dir/one/$2" "$dir/two/$2"
OMP_NUM_THREADS=1 "$1" "$dir"
[ "$(wc -l <"$dir/loss.csv")" = "$(($3 + 1))" ]
grep -q '<polyline' "$dir/loss.svg"
