# SPDX-License-Identifier: MIT
# learns.sh - what the tests of examples that learn share.  Sourced with the program in $1, the table beside its curve in $2 and the
# steps it takes in $3: it learns, not in 20 steps, with the same bits for any number of threads.  Its files are left in $dir.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/one" "$dir/two"
OMP_NUM_THREADS=1 "$1" "$dir/one" 20 >/dev/null && { echo "20 steps are too few to learn, and it says it did"; exit 1; }
OMP_NUM_THREADS=3 "$1" "$dir/two" 20 >/dev/null && exit 1
cmp "$dir/one/loss.csv" "$dir/two/loss.csv"
cmp "$dir/one/$2" "$dir/two/$2"
OMP_NUM_THREADS=1 "$1" "$dir"
[ "$(wc -l <"$dir/loss.csv")" = "$(($3 + 1))" ]
grep -q '<polyline' "$dir/loss.svg"
