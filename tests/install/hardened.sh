#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Linked files have the hardening that ATTN_HARDEN promises: tests/install/hardened.sh FILE...
set -eu
command -v readelf >/dev/null || { echo "skipped: no readelf"; exit 77; }
for file in "$@"; do
    name=$(basename "$file")
    readelf -hW "$file" | grep -q 'Type: *DYN' || { echo "$name: not position independent"; exit 1; }
    readelf -lW "$file" | grep -q GNU_RELRO || { echo "$name: no RELRO"; exit 1; }
    readelf -dW "$file" | grep -q BIND_NOW || { echo "$name: RELRO is not full"; exit 1; }
    readelf -lW "$file" | grep 'GNU_STACK' | grep -qv 'RWE' || { echo "$name: the stack is executable"; exit 1; }
    nm -D "$file" | grep -q '__stack_chk_fail' || { echo "$name: no stack protector"; exit 1; }
    nm -D "$file" | grep -q '__.*_chk@' || { echo "$name: no _FORTIFY_SOURCE"; exit 1; }
    echo "$name: stack protector, _FORTIFY_SOURCE, full RELRO, position independent"
done
