#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# bits.sh BUILD LIBRARY: plain C gives the same bits in WebAssembly (BUILD) as natively, with the library libattn.a.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
root=$(cd "$(dirname "$0")/../.." && pwd)
[ -e "$2" ] || { echo "skipped: there is no $2" && exit 77; }
"${CC:-cc}" -std=c11 -O2 -I"$root/include" -I"$root" "$root/tests/wasm/bits.c" "$2" -lm -pthread -o "$folder/bits"
"$folder/bits" >"$folder/native"
node "$root/tests/wasm/wasi.mjs" "$1/attn-bits.wasm" >"$folder/wasm"
if cmp -s "$folder/native" "$folder/wasm" && [ "$(wc -l <"$folder/wasm")" = 60 ]; then
    echo "# plain C: the bits of 60 problems are the native ones"
else
    diff "$folder/native" "$folder/wasm" | head
    exit 1
fi
