#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The core needs no build system: cc -O3 -pthread -Iinclude src/core/**/*.c main.c -lm builds a program that computes an attention.
# Every file is read so; the program that runs has only the kernels in plain C, since all of them take a minute: those of x86 are only
# checked.
# Usage: tests/api/plain_build.sh CC -O3
set -eu
cc=$1 level=$2
command -v "$cc" >/dev/null || { echo "skipped: no $cc"; exit 77; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
shopt -s globstar
# (The intrinsics, four fifths of what each of these files reads, are read once.)
before=
echo '#include <immintrin.h>' >"$dir/x86.h"
if "$cc" -pthread -x c-header "$dir/x86.h" -o "$dir/x86.h.gch" 2>"$dir/no_x86"; then before="-include $dir/x86.h"; fi
# shellcheck disable=SC2086
"$cc" -fsyntax-only -pthread -Wall -Wextra -Werror -Iinclude $before src/core/kernels/avx*/*.c
"$cc" "$level" -DATTN_SCALAR_ONLY -pthread -Wall -Wextra -Werror -Iinclude src/core/**/*.c examples/minimal/minimal.c -lm -o "$dir/minimal"
"$dir/minimal" >"$dir/out"
diff examples/minimal/expected.txt "$dir/out"
echo "$cc $level: the example prints what it should"
