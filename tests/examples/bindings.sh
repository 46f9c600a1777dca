#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The examples in other languages build over the bindings that tools/bindings.py writes, and decode with the same bits as alone.
# Usage: tests/examples/bindings.sh rust|go LIBRARY PYTHON     (LIBRARY: libattn.so)
set -eu
language=$1 library=$(realpath "$2") python=$3
folder=$(dirname "$library")
case $language in
rust) compiler=rustc ;;
go) compiler=go ;;
esac
command -v $compiler >/dev/null || { echo "skipped: no $compiler"; exit 77; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
case $language in
rust)
    cp examples/rust/decode.rs "$dir"
    "$python" tools/bindings.py rust "$dir/attn.rs"
    rustc --edition 2021 -D warnings -L "native=$folder" -l dylib=attn -C "link-arg=-Wl,-rpath,$folder" -o "$dir/decode" "$dir/decode.rs"
    ;;
go)
    cp examples/go/main.go examples/go/go.mod "$dir"
    mkdir "$dir/attn"
    "$python" tools/bindings.py go "$dir/attn/attn.go"
    (cd "$dir" && HOME=$dir GOCACHE=$dir/cache GOFLAGS=-mod=mod CGO_CFLAGS="-I$OLDPWD/include" CGO_LDFLAGS="-L$folder -Wl,-rpath,$folder" go build -o decode .)
    ;;
esac
"$dir/decode" >"$dir/out"
echo "3 sequences over 11 pages: the same bits as one by one" | diff - "$dir/out"
echo "$language: decodes"
