#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# An inference-only build installs, computes what the full library does, bit for bit, and tells what it left out; with `size`, all of
# its kernels take less than 1.2 MB.  (Without it nothing is optimised and there are only the kernels in plain C, which takes a tenth of
# the time.)
# Usage: tests/install/inference_only.sh CC FULL [size]        FULL: the full library, of the same version
. tests/install/library.sh
cc=$1 full=$(realpath "$2") size=${3:-}
quietly cmake -S . -B "$dir/build" -G Ninja -DCMAKE_BUILD_TYPE=$([ -n "$size" ] && echo Release || echo Debug) -DCMAKE_C_FLAGS_DEBUG="-O0 -DATTN_SCALAR_ONLY" -DCMAKE_C_COMPILER="$cc" \
    -DATTN_INFERENCE_ONLY=ON -DATTN_IO=OFF -DATTN_STATIC=OFF -DATTN_WERROR=ON
quietly cmake --build "$dir/build"
quietly cmake --install "$dir/build" --prefix "$dir/prefix" --strip
library=$(realpath "$dir"/prefix/lib*/libattn.so "$dir"/prefix/lib/*/libattn.so 2>/dev/null | head -n 1)
program() { # NAME LIBRARY EXECUTABLE
    quietly "$cc" -Wall -Wextra -Werror -I"$dir/prefix/include" "tests/install/$1.c" "$2" -Wl,-rpath,"$(dirname "$2")" -o "$dir/$3"
}
program inference_only "$library" program
"$dir/program" || fail "what is missing is not described as it should be"

program inference_kept "$library" kept
program inference_kept "$full" of_full
for isa in scalar ${size:+avx2 avx512 neon}; do
    export ATTN_ISA=$isa
    "$dir/of_full" >"$dir/expected" || fail "the full library fails with $isa: $(grep -v ': 0 ' "$dir/expected" | head -n 3)"
    "$dir/kept" >"$dir/found" || fail "stopped with $isa after $(tail -n 1 "$dir/found")"
    diff "$dir/expected" "$dir/found" || fail "with $isa the full library computes what is marked <"
done

# Every function is left out, or among those compared, or has no use for a kernel.
plain='^attn_((pattern|mask|distance|bias_gate|position|hopfield|cpu|kernel|tensor|schedule|dlpack)_.*|.*_(describe|tensor|entropy|name|states|diversity|divergence|information)'
plain+='|.*softmax.*|entropy|temperature_sweep|cost_estimate|attainable_rate|features_count|rope_frequencies|status_string|version)$'
for name in $(nm -D --defined-only "$library" | sed -n 's/.* \(attn_[a-z_0-9]*\).*/\1/p'); do
    grep -qw "$name" src/inference/missing.c tests/install/inference_kept.c || [[ $name =~ $plain ]] ||
        fail "$name is neither in src/inference/missing.c nor called by tests/install/inference_kept.c"
done
bytes=$(stat -c %s "$library")
[ -z "$size" ] || [ "$bytes" -lt 1200000 ] || fail "the library has $bytes bytes; at most 1,200,000 are promised"
echo "an inference-only library of $bytes bytes computes $(wc -l <"$dir/found") results of the full one, and names what it left out"
