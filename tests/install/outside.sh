#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Installs a build into a new folder, moves it, and builds programs against it as a stranger would.
# Usage: tests/install/outside.sh BUILD CC
set -eu
build=$1 cc=$2
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
root=$PWD

cmake --install "$build" --prefix "$dir/first" >"$dir/log" || { cat "$dir/log"; exit 1; }
mv "$dir/first" "$dir/usr" # nothing in it may remember where it was
libdir=$(dirname "$(find "$dir/usr" -name libattn.a)")
export PKG_CONFIG_PATH=$libdir/pkgconfig${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}

check() { # NAME PROGRAM: it prints what it should
    "$2" >"$dir/out"
    diff "$root/examples/minimal/expected.txt" "$dir/out"
    echo "$1: works"
}
check_io() { "$2" "$dir/x.safetensors" && echo "$1: works"; }
linked() { ldd "$1" | grep -q "libattn"; }
fail() { echo "$*"; exit 1; }

# The tree itself.
for file in "$libdir"/libattn{,_io}.{a,so} "$dir"/usr/include/attn/{attn,io}.h "$dir/usr/bin/attn" \
    "$dir/usr/share/man/man1/attn.1" "$libdir"/pkgconfig/libattn{,_io}.pc "$libdir/cmake/libattn/libattn-config.cmake"; do
    [ -e "$file" ] || fail "not installed: ${file#"$dir/usr/"}"
done
if grep -rIl -e "$root" -e "$dir" -e "$build" "$dir/usr"; then fail "these files name a folder of the build"; fi
"$dir/usr/bin/attn" info >/dev/null || fail "the installed attn does not run"

# examples/minimal against the CMake package, shared and static; and the same with libattn_io.
cp -r examples/minimal "$dir/minimal"
mkdir "$dir/io"
cp tests/install/io.c "$dir/io/main.c"
cat >"$dir/io/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.18)
project(io LANGUAGES C)
find_package(libattn 0.1 REQUIRED)
add_executable(shared main.c)
target_link_libraries(shared PRIVATE attn::attn_io)
add_executable(static main.c)
target_link_libraries(static PRIVATE attn::attn_io_static)
END
sed 's/attn::attn)/attn::attn_static)/' "$dir/minimal/CMakeLists.txt" >"$dir/static.txt"
for kind in shared static; do
    [ $kind = shared ] || cp "$dir/static.txt" "$dir/minimal/CMakeLists.txt"
    cmake -S "$dir/minimal" -B "$dir/minimal-$kind" -DCMAKE_PREFIX_PATH="$dir/usr" -DCMAKE_C_COMPILER="$cc" >"$dir/log"
    cmake --build "$dir/minimal-$kind" >>"$dir/log" || { cat "$dir/log"; exit 1; }
    check "find_package, $kind" "$dir/minimal-$kind/minimal"
done
linked "$dir/minimal-shared/minimal" || fail "attn::attn is not the shared library"
if linked "$dir/minimal-static/minimal"; then fail "attn::attn_static is not static"; fi
cmake -S "$dir/io" -B "$dir/io-build" -DCMAKE_PREFIX_PATH="$dir/usr" -DCMAKE_C_COMPILER="$cc" >"$dir/log"
cmake --build "$dir/io-build" >>"$dir/log" || { cat "$dir/log"; exit 1; }
check_io "find_package, libattn_io shared" "$dir/io-build/shared"
check_io "find_package, libattn_io static" "$dir/io-build/static"

# pkg-config, shared and static.
cd "$dir"
pkg() { pkg-config "$@"; }
"$cc" -std=c11 minimal/minimal.c $(pkg --cflags --libs libattn) "-Wl,-rpath,$libdir" -o shared && check "pkg-config, shared" ./shared
linked ./shared || fail "pkg-config did not give the shared library"
static() { pkg --static --libs "$1" | sed 's/-lattn\b/-l:libattn.a/; s/-lattn_io\b/-l:libattn_io.a/'; }
"$cc" -std=c11 minimal/minimal.c $(pkg --cflags libattn) $(static libattn) -o static && check "pkg-config, static" ./static
if linked ./static; then fail "pkg-config --static left the shared library"; fi
"$cc" -std=c11 io/main.c $(pkg --cflags --libs libattn_io) "-Wl,-rpath,$libdir" -o io-shared && check_io "pkg-config, libattn_io shared" ./io-shared
"$cc" -std=c11 io/main.c $(pkg --cflags libattn_io) $(static libattn_io) -o io-static && check_io "pkg-config, libattn_io static" ./io-static
[ "$(pkg --modversion libattn)" = "$("$dir/usr/bin/attn" --version | grep -o '[0-9.]*$')" ] || fail "versions differ"
