#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The core needs no build system: cc -O3 -pthread -Iinclude src/core/**/*.c main.c -lm builds a program that computes an attention.
# Usage: tests/api/plain_build.sh CC -O3
set -eu
cc=$1 level=$2
command -v "$cc" >/dev/null || { echo "skipped: no $cc"; exit 77; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
shopt -s globstar
"$cc" "$level" -pthread -Wall -Wextra -Werror -Iinclude src/core/**/*.c examples/minimal/minimal.c -lm -o "$dir/minimal"
"$dir/minimal" >"$dir/out"
diff examples/minimal/expected.txt "$dir/out"
echo "$cc $level: the example prints what it should"
