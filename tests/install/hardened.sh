#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# What ATTN_HARDEN promises is in what was linked: tests/install/hardened.sh FILE...
set -eu
command -v readelf >/dev/null || { echo "skipped: no readelf"; exit 77; }
for file in "$@"; do
    name=$(basename "$file")
    readelf -hW "$file" | grep -q 'Type: *DYN' || { echo "$name: it is loaded at a fixed address"; exit 1; }
    readelf -lW "$file" | grep -q GNU_RELRO || { echo "$name: no RELRO"; exit 1; }
    readelf -dW "$file" | grep -q BIND_NOW || { echo "$name: RELRO is not full"; exit 1; }
    readelf -lW "$file" | grep 'GNU_STACK' | grep -qv 'RWE' || { echo "$name: the stack may be executed"; exit 1; }
    nm -D "$file" | grep -q '__stack_chk_fail' || { echo "$name: no stack protector"; exit 1; }
    nm -D "$file" | grep -q '__.*_chk@' || { echo "$name: no _FORTIFY_SOURCE"; exit 1; }
    echo "$name: stack protector, _FORTIFY_SOURCE, full RELRO, any address"
done
