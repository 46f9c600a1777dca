#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Every combination of build options configures, builds, and has exactly the targets that it enables.  All share one build folder, so
# that only files affected by an option are recompiled: that of install/plain, which has everything, or a new one.
# Usage: tests/install/combinations.sh CC [all|BUILD]     (without all, one in eight is built)
. tests/install/library.sh
cc=$1 all='' build=$dir/build
if [ "${2:-}" = all ]; then all=$2; else build=${2:-$build}; fi
plain="-O0 -g1 -DATTN_SCALAR_ONLY" # (no option changes a kernel; as in plain.sh)
targets="libattn.so libattn.a libattn_io.so libattn_io.a libattn_layers.so libattn_layers.a attn"

expect() { # IO LAYERS CLI SHARED STATIC: the expected targets
    for name in libattn $([ $1 = ON ] && echo libattn_io) $([ $2 = ON ] && echo libattn_layers); do
        [ $4 = OFF ] || echo $name.so
        [ $5 = OFF ] || echo $name.a
    done
    [ $3 = OFF ] || echo attn
}
targets_are() { # IO LAYERS CLI SHARED STATIC OPTION...
    local file wanted target
    wanted=$(expect "$@")
    ninja -C "$build" -t targets all | sed -nE 's/^(lib\/)?([a-z_.]+): .*/\2/p' | sort -u >"$dir/there"
    for target in $targets; do
        if grep -qx "$target" "$dir/there"; then file=yes; else file=no; fi
        if grep -qx "$target" <<<"$wanted"; then [ $file = yes ] || fail "$*: no $target"
        else [ $file = no ] || fail "$*: $target is built, but its option is off"; fi
    done
}
number=0
try() { # IO LAYERS CLI SHARED STATIC OPTION...
    number=$((number + 1))
    quietly cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS_RELEASE="$plain" -DCMAKE_C_COMPILER="$cc" -DATTN_TESTS=OFF -DATTN_WASM=OFF -DATTN_HARDEN=OFF \
        -DATTN_INSTALL=ON -DATTN_IO=$1 -DATTN_LAYERS=$2 -DATTN_CLI=$3 -DATTN_SHARED=$4 -DATTN_STATIC=$5 "${@:6}"
    targets_are "$@"
    if grep -q ATTN_BUILD_SHARED "$build/compile_commands.json"; then
        [ $4 = ON ] || fail "$*: compiled for a shared library"
    else
        [ $4 = OFF ] || fail "$*: ATTN_BUILD_SHARED is not defined"
    fi
    if [ -n "$all" ] || [ $((number % 8)) = 1 ]; then
        quietly ninja -C "$build"
        if [ $3 = ON ]; then "$build/attn" info >"$dir/info" || fail "$*: attn does not run"; fi
        echo "builds: IO $1, LAYERS $2, CLI $3, SHARED $4, STATIC $5 ${*:6}"
    fi
}

each_part() { # SHARED STATIC OPTION...
    for parts in "ON ON ON" "ON ON OFF" "ON OFF ON" "ON OFF OFF" "OFF OFF OFF"; do
        # shellcheck disable=SC2086
        try $parts "$@"
    done
}
# The first configuration requests options that depend on ATTN_IO, with ATTN_IO off: they are switched off too.
quietly cmake -S . -B "$build" -G Ninja -DCMAKE_C_COMPILER="$cc" -DATTN_TESTS=OFF -DATTN_WASM=OFF -DATTN_IO=OFF -DATTN_LAYERS=ON -DATTN_CLI=ON
targets_are OFF OFF OFF ON ON
each_part ON ON
each_part ON OFF
each_part OFF ON
# Tests link only libraries that are built.
for off in ATTN_IO ATTN_LAYERS ATTN_CLI; do
    quietly cmake -S . -B "$dir/tests" -G Ninja -DCMAKE_C_COMPILER="$cc" -DATTN_TESTS=ON -DATTN_WASM=OFF -DATTN_IO=ON -DATTN_LAYERS=ON -DATTN_CLI=ON -D$off=OFF
    if grep -oE ' -l(attn|test)_\w+' "$dir/tests/build.ninja"; then fail "$off=OFF: tests link these libraries, which are not built"; fi
done
if cmake -S . -B "$build" -DATTN_SHARED=OFF -DATTN_STATIC=OFF >"$dir/log" 2>&1; then fail "CMake configures with nothing to build"; fi
grep -q 'nothing is left to build' "$dir/log" || fail "CMake does not report that there is nothing to build"
echo "$number combinations configure"
