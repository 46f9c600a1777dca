#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# An inference-only build installs, computes, and tells what it left out; with `size`, all of its kernels take less than 1.2 MB.
# (Without it nothing is optimised and there are only the kernels in plain C, which takes a tenth of the time.)
# Usage: tests/install/inference_only.sh CC [size]
. tests/install/library.sh
cc=$1 size=${2:-}
quietly cmake -S . -B "$dir/build" -G Ninja -DCMAKE_BUILD_TYPE=$([ -n "$size" ] && echo Release || echo Debug) -DCMAKE_C_FLAGS_DEBUG="-O0 -DATTN_SCALAR_ONLY" -DCMAKE_C_COMPILER="$cc" \
    -DATTN_INFERENCE_ONLY=ON -DATTN_IO=OFF -DATTN_STATIC=OFF -DATTN_WERROR=ON
quietly cmake --build "$dir/build"
quietly cmake --install "$dir/build" --prefix "$dir/prefix" --strip
library=$(realpath "$dir"/prefix/lib*/libattn.so "$dir"/prefix/lib/*/libattn.so 2>/dev/null | head -n 1)
quietly "$cc" -Wall -Wextra -Werror -I"$dir/prefix/include" tests/install/inference_only.c "$library" -Wl,-rpath,"$(dirname "$library")" -o "$dir/program"
"$dir/program" || fail "what is missing is not described as it should be"
bytes=$(stat -c %s "$library")
[ -z "$size" ] || [ "$bytes" -lt 1200000 ] || fail "the library has $bytes bytes; at most 1,200,000 are promised"
echo "an inference-only library of $bytes bytes computes, and names what it left out"
