#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Every public header alone, twice over, in C99, C11 and C++11, with warnings as errors: tests/api/headers.sh CC CXX
set -eu
cc=$1 cxx=$2
command -v "$cc" >/dev/null && command -v "$cxx" >/dev/null || { echo "skipped: no $cc and $cxx"; exit 77; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
for header in include/attn/*.h; do
    name=attn/$(basename "$header")
    printf '#include "%s"\n#include "%s"\n' "$name" "$name" >"$dir/alone.c"
    cp "$dir/alone.c" "$dir/alone.cpp"
    warnings="-Wall -Wextra -pedantic -Wconversion -Wshadow -Wundef -Werror -Iinclude -c -o $dir/alone.o"
    for dialect in c99 c11; do
        "$cc" -std=$dialect -Wstrict-prototypes $warnings "$dir/alone.c"
        echo "$name: $dialect, $cc"
    done
    "$cxx" -std=c++11 $warnings "$dir/alone.cpp"
    echo "$name: c++11, $cxx"
done
