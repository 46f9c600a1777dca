#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# A build of the libraries and the command that takes a tenth of the time, for the tests of what does not depend on more: nothing is
# optimised, types of variables are left out of the debugging information, and there are only the kernels in plain C.  What it made
# is copied to BUILD/kept.  Usage: tests/install/plain.sh CC SOURCE BUILD LIBRARY...     (LIBRARY: core, io, layers, command, as built)
. tests/install/library.sh
cc=$1 source=$2 build=$3
shift 3
libraries=$*
has() { if [[ " $libraries " = *" $1 "* ]]; then echo ON; else echo OFF; fi; }
rm -rf "$build"
quietly cmake -S "$source" -B "$build" -G Ninja -DCMAKE_C_COMPILER="$cc" -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS_RELEASE="-O0 -g1 -DATTN_SCALAR_ONLY" \
    -DATTN_TESTS=OFF -DATTN_WASM=OFF -DATTN_INSTALL=OFF -DATTN_HARDEN=OFF -DATTN_CLI="$(has command)" -DATTN_IO="$(has io)" -DATTN_LAYERS="$(has layers)"
quietly env CCACHE_DISABLE=1 ninja -C "$build"
mkdir "$build/kept"
for file in "$build"/lib/libattn{,_io,_layers}.* "$build/attn"; do
    if [ -e "$file" ] && [ ! -L "$file" ]; then cp "$file" "$build/kept"; fi
done
echo "made $(ls "$build/kept" | tr '\n' ' ')"
