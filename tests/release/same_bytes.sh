#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Two builds of the libraries and the command, in different folders, at different times and in different time zones, have the same bytes, including
# debugging information, which has most of the paths.  The first is that of install/plain, from these sources, the second from a copy.
# Usage: tests/release/same_bytes.sh CC FIRST LIBRARY...     (LIBRARY: core, io, layers, command, as built)
. tests/install/library.sh
cc=$1 first=$2
shift 2
mkdir "$dir/a longer name"
mkdir "$dir/a longer name/two"
cp -R CMakeLists.txt cmake include src cli ref testing examples javascript "$dir/a longer name/two" # (with new times)
TZ=Asia/Tokyo tests/install/plain.sh "$cc" "$dir/a longer name/two" "$dir/of-another-build" "$@"
number=0
for file in "$first"/kept/*; do
    cmp "$file" "$dir/of-another-build/kept/$(basename "$file")" || {
        strings "$file" | grep -F -e "$PWD" -e "$first" | sort -u | head -n 5
        fail "$(basename "$file") depends on where or when it is built"
    }
    number=$((number + 1))
done
[ $number -ge 2 ] || fail "only $number files were built"
[ $number = "$(ls "$dir/of-another-build/kept" | wc -l)" ] || fail "the second build made other files"
echo "$number files have the same bytes"
