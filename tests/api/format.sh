#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Every C file is formatted as by clang-format 14 (other versions format differently).
set -eu
tool=
for name in clang-format-14 clang-format; do
    if command -v "$name" >/dev/null && "$name" --version | grep -q 'version 14\.'; then tool=$name && break; fi
done
[ -n "$tool" ] || { echo "skipped: no clang-format 14"; exit 77; }
files=$(find bench cli examples fuzz include ref src testing tests -name '*.[ch]' 2>/dev/null | sort)
# shellcheck disable=SC2086
found=$("$tool" --dry-run -Werror --ferror-limit=1 $files 2>&1) || {
    echo "$found"
    echo "to format them:  $tool -i $(echo "$found" | sed -n 's/:[0-9]*:[0-9]*: error: .*//p' | sort -u | tr '\n' ' ')"
    exit 1
}
echo "$(echo "$files" | wc -l) files"
