#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The C program of README.md, in every dialect, and program.cpp compile without a warning: tests/interface/program.sh CC CXX
set -eu
cc=$1 cxx=$2
command -v "$cc" >/dev/null && command -v "$cxx" >/dev/null || { echo "skipped: no $cc and $cxx"; exit 77; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
sed -n '/^```c$/,/^```$/p' README.md | grep -v '^```' >"$dir/readme.c"
grep -q attn_compute "$dir/readme.c" || { echo "README.md has no program"; exit 1; }
cp "$dir/readme.c" "$dir/readme.cpp"
warnings="-Wall -Wextra -Wconversion -Wshadow -Werror -Iinclude -fsyntax-only"
for dialect in c99 c11 c17; do
    "$cc" -std=$dialect -pedantic $warnings "$dir/readme.c"
    echo "README.md: $dialect, $cc"
done
for dialect in c++11 c++17 c++20; do
    "$cxx" -std=$dialect -pedantic $warnings tests/interface/program.cpp
    # (g++ warns about every field that a designated initialiser omits.)
    "$cxx" -std=$dialect $warnings -Wno-missing-field-initializers "$dir/readme.cpp"
    echo "program.cpp and README.md: $dialect, $cxx"
done
