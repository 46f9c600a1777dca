#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Builds the program of README.md in a project that includes libattn as source, by add_subdirectory and by FetchContent.
# Usage: tests/install/in_tree.sh CC
. tests/install/library.sh
cc=$1

# Both put the library into the same build folder, so that it is compiled once.
cat >"$dir/readme/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.22)
project(readme LANGUAGES C)
if(FETCH)
  include(FetchContent)
  FetchContent_Declare(libattn SOURCE_DIR $root BINARY_DIR \${CMAKE_BINARY_DIR}/libattn)
  FetchContent_MakeAvailable(libattn)
else()
  add_subdirectory($root libattn)
endif()
add_executable(readme readme.c)
target_link_libraries(readme PRIVATE attn::attn)
if(NOT TARGET attn::attn_static OR TARGET attn::io OR TARGET attn::layers OR TARGET attn)
  message(FATAL_ERROR "expected the targets attn::attn and attn::attn_static, and no others")
endif()
END
for fetch in OFF ON; do
    quietly cmake -S "$dir/readme" -B "$dir/build" -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS_DEBUG="-O0 -DATTN_SCALAR_ONLY" -DCMAKE_C_COMPILER="$cc" -DFETCH=$fetch
    quietly cmake --build "$dir/build"
    check "$([ $fetch = ON ] && echo FetchContent || echo add_subdirectory)" "$dir/build/readme"
    if linked "$dir/build/readme"; then fail "attn::attn is not the static library"; fi
    rm "$dir/build/readme"
done
quietly env DESTDIR="$dir/dest" cmake --install "$dir/build"
[ -z "$(find "$dir/dest" -type f 2>/dev/null)" ] || fail "installing the project installs libattn too"
