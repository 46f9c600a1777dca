#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Without a library that pkg-config should find, configuring names the option that needs it, the package that has it, and the way to do
# without.  Usage: tests/install/missing.sh CC
. tests/install/library.sh
cc=$1
mkdir "$dir/pc"
without() { # MODULE OPTION PACKAGE: configuring fails for it, and with OPTION off it does not; then pkg-config finds MODULE
    rm -rf "$dir/build"
    ! PKG_CONFIG_LIBDIR=$dir/pc cmake -S . -B "$dir/build" -G Ninja -DCMAKE_C_COMPILER="$cc" >"$dir/log" 2>&1 || fail "configuring succeeds without $1"
    tr -s ' \n' ' ' <"$dir/log" | grep -q "$2 needs $1, which pkg-config does not find: install it (Debian: $3), or leave this part out with -D$2=OFF" ||
        { cat "$dir/log"; fail "the message for $1 does not say what to do"; }
    quietly env PKG_CONFIG_LIBDIR="$dir/pc" cmake -S . -B "$dir/build" -G Ninja -DCMAKE_C_COMPILER="$cc" -DATTN_TESTS=OFF -DATTN_WASM=OFF "-D$2=OFF"
    printf 'Name: %s\nDescription: none\nVersion: 9.9\n' "$1" >"$dir/pc/$1.pc"
    echo "$1: says what to do"
}
without libcjson ATTN_IO libcjson-dev
without libzip ATTN_IO libzip-dev
without libpng ATTN_CLI libpng-dev
without cmocka ATTN_TESTS libcmocka-dev
