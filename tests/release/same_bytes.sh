#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Two builds of the libraries and the command, in different folders, at different times and in different time zones, have the same bytes, including
# debugging information, which has most of the paths.  (Nothing is optimised, types of variables are left out, and there are only the
# kernels in plain C: the rest takes long and adds no paths.)
# Usage: tests/release/same_bytes.sh CC LIBRARY...     (LIBRARY: core, io, layers, command, as built)
. tests/install/library.sh
cc=$1
shift
libraries=$*
has() { [[ " $libraries " = *" $1 "* ]]; }
parts=(-DATTN_CLI="$(has command && echo ON || echo OFF)" -DATTN_IO="$(has io && echo ON || echo OFF)" -DATTN_LAYERS="$(has layers && echo ON || echo OFF)")

build() { # SOURCE BUILD TZ
    mkdir -p "$1"
    cp -R CMakeLists.txt cmake include src cli ref testing "$1" # (with new times)
    quietly env TZ="$3" cmake -S "$1" -B "$2" -G Ninja -DCMAKE_C_COMPILER="$cc" -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS_RELEASE="-O0 -g1 -DATTN_SCALAR_ONLY" \
        -DATTN_TESTS=OFF -DATTN_INSTALL=OFF -DATTN_HARDEN=OFF "${parts[@]}"
    quietly env TZ="$3" CCACHE_DISABLE=1 ninja -C "$2"
}
build "$dir/one" "$dir/one/build" UTC
build "$dir/a longer name/two" "$dir/of-another-build" Asia/Tokyo
number=0
for file in "$dir"/one/build/lib/libattn{,_io,_layers}.* "$dir"/one/build/attn; do
    if [ -L "$file" ] || [ ! -e "$file" ]; then continue; fi
    cmp "$file" "$dir/of-another-build/${file#"$dir"/one/build/}" || {
        strings "$file" | grep -F "$dir" | sort -u | head -n 5
        fail "$(basename "$file") depends on where or when it is built"
    }
    number=$((number + 1))
done
[ $number -ge 2 ] || fail "only $number files were built"
echo "$number files have the same bytes"
