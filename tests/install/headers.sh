#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Every installed header compiles on its own, included twice, in C99, C11, C++11 and C++20, with warnings as errors; and C++ calls each
# function by its name in C.
# Usage: tests/install/headers.sh BUILD CC CXX HEADER...     (HEADER: attn.h, ...: all headers that this build should install)
set -eu
build=$1 cc=$2 cxx=$3
shift 3
command -v "$cc" >/dev/null && command -v "$cxx" >/dev/null || { echo "skipped: no $cc and $cxx"; exit 77; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cmake --install "$build" --prefix "$dir/usr" --component development >"$dir/log" || { cat "$dir/log"; exit 1; }

find "$dir/usr" -name '*.h' -printf '%f\n' | sort >"$dir/installed"
printf '%s\n' "$@" | sort | diff - "$dir/installed" || { echo "expected headers (<) and installed headers (>) differ"; exit 1; }
include=$(dirname "$(dirname "$(find "$dir/usr" -name types.h)")")
while read -r header; do
    if [ "$header" = mpi.h ]; then continue; fi # tests/distributed/mpi.sh has the compilers of MPIs
    printf '#include <attn/%s>\n#include <attn/%s>\n' "$header" "$header" >"$dir/alone.c"
    cp "$dir/alone.c" "$dir/alone.cpp"
    warnings="-Wall -Wextra -pedantic -Wconversion -Wshadow -Wundef -Werror -fsyntax-only -I$include"
    # shellcheck disable=SC2086
    for dialect in c99 c11; do "$cc" -std=$dialect -Wstrict-prototypes $warnings "$dir/alone.c"; done
    # shellcheck disable=SC2086
    for dialect in c++11 c++20; do "$cxx" -std=$dialect $warnings "$dir/alone.cpp"; done
    echo "$header: $cc, $cxx"
done <"$dir/installed"

# A table of all functions refers to them by the names that the libraries must have.
grep -vx mpi.h "$dir/installed" | tr '\n' ' ' | xargs -n1 printf '#include <attn/%s>\n' >"$dir/names.cpp"
while read -r header; do
    sed 's|/\*.*\*/||' "$include/attn/$header" | tr '\n' ' ' | grep -oE 'ATTN_API [^;(]*\battn_\w+\(' | grep -oE '\w+\($' | tr -d '(' | sort |
        sed "s|\$| $header|"
done <"$dir/installed" >"$dir/functions"
{
    echo 'typedef void (*function)(); extern const function functions[]; const function functions[] = {'
    sed 's|\(.*\) .*|    reinterpret_cast<function>(\1),|' "$dir/functions"
    echo '};'
} >>"$dir/names.cpp"
"$cxx" -std=c++11 "-I$include" -c "$dir/names.cpp" -o "$dir/names.o"
nm -u "$dir/names.o" | sed 's/.* //' >"$dir/used"
failed=0 count=0
while read -r name header; do
    count=$((count + 1))
    grep -qx "$name" "$dir/used" || { echo "$header: C++ looks for $name by another name: declare it within extern \"C\" { }"; failed=1; }
done <"$dir/functions"
echo "$count functions by their names in C++"
[ $failed = 0 ] && [ "$count" -gt 100 ]
