#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# mutation.sh BUILD: attn check notices a wrong vec/wasm128.h: in copies of it vf_max and vf_min return the other operand where one is NaN,
# linked into attn-check.wasm in place of the forward kernel in f32; and halves.c notices a wrong rounding of 16 bits.
set -euo pipefail
build=$(realpath "$1")
cd "$(dirname "$0")/../.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder/src"
cp -r src/core src/common "$folder/src"
header=$folder/src/core/kernels/vec/wasm128.h
cp "$header" "$folder/right.h"
number=0 failed=0
mapfile -t objects < <(find "$build/tests/wasm/CMakeFiles/attn_check_wasm.dir" -name '*.obj')

# result NAME GOOD
result() {
    number=$((number + 1))
    if [ "$2" = 1 ]; then echo "ok $number - $1"; else failed=1 && echo "not ok $number - $1"; fi
}

compile() {
    clang --target=wasm32-wasi -msimd128 -Os -DNDEBUG -std=c11 -fno-math-errno -ffp-contract=off -Iinclude -I"$folder/src/core" -c "$1" -o "$2"
}

# link OUT OBJECT...
link() {
    clang --target=wasm32-wasi -O0 -Wl,--gc-sections,--stack-first,-z,stack-size=1048576 -o "$@" "$build/lib/libattn.a" "$build/lib/libattn_ref.a" -lm
}

# Each ends with the summary of a test of the header as it is now.
check() {
    compile "$folder/src/core/kernels/wasm128/fwd_f32.c" "$folder/fwd_f32.o"
    link "$folder/check.wasm" "$folder/fwd_f32.o" "${objects[@]}"
    node tests/wasm/wasi.mjs "$folder/check.wasm" check --quick --isa=wasm128 | tail -n 1
}
halves() {
    compile tests/wasm/halves.c "$folder/halves.o"
    link "$folder/halves.wasm" "$folder/halves.o"
    node tests/wasm/wasi.mjs "$folder/halves.wasm" | grep "ok 1"
}

# mutate TEST NAME FROM TO
mutate() {
    local line
    sed "s/$3/$4/" "$folder/right.h" >"$header"
    if cmp -s "$folder/right.h" "$header"; then result "$2: the header has what is replaced" 0 && return; fi
    line=$("$1" || true)
    echo "# $2: $line"
    case $line in
    "not ok"*) result "$2 is noticed" 1 ;;
    *" passed, 0 failed"* | ok* | "") result "$2 is noticed" 0 ;;
    *) result "$2 is noticed" 1 ;;
    esac
}

# (max of f32x4, NaN if either operand is, passes: where the first operand may be NaN, a result that is NaN or not ends the same.)
mutate check "vf_max: the first operand if either is NaN" 'wasm_f32x4_pmax(b, a)' 'wasm_f32x4_pmax(a, b)'
mutate check "vf_min: the first operand if either is NaN" 'wasm_f32x4_pmin(b, a)' 'wasm_f32x4_pmin(a, b)'
mutate halves "f16: ties away from zero" 'wasm_i32x4_add(odd, wasm_i32x4_const_splat(0xfff - (112 << 23)))' 'wasm_i32x4_const_splat(0x1000 - (112 << 23))'
mutate halves "bf16: NaN is rounded" 'wasm_f32x4_eq(x, x)' 'wasm_i32x4_const_splat(-1)'
echo "1..$number"
exit $failed
