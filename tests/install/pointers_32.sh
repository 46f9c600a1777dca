#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# With 32-bit pointers slots are smaller: libattn and the program of README.md compile without warnings, and the table of tensors has
# the right offsets (static assertions).  Nothing is optimised, which would take a minute, or run.
# Usage: tests/install/pointers_32.sh CC
. "$(dirname "$0")/library.sh"
cc=$1
echo '#include <stdint.h>
typedef char narrow[sizeof(void *) == 4 ? 1 : -1];' >"$dir/small.c"
"$cc" -m32 -fsyntax-only "$dir/small.c" 2>/dev/null || {
    echo "skipped: $cc has no 32-bit pointers here"
    exit 77
}
files=$(find src -name '*.c' ! -name '*.inc.c' ! -path '*/avx*/*' ! -path 'src/io/*')
# shellcheck disable=SC2086
"$cc" -m32 -std=c11 -fsyntax-only -Wall -Wextra -Wconversion -Wshadow -Wno-psabi -Werror -D_XOPEN_SOURCE=700 -D_FILE_OFFSET_BITS=64 -Iinclude -Isrc/core \
    $files "$dir/readme/readme.c"
echo "$(echo "$files" | wc -l) files with 32-bit pointers"
