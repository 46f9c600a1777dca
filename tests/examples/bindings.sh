#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The examples in other languages build over the bindings that tools/bindings.py writes, by the commands of docs/building.md, and decode
# with the same bits as alone.
# Usage: tests/examples/bindings.sh rust|go LIBRARY PYTHON     (LIBRARY: libattn.so)
set -eu
language=$1 library=$(realpath "$2") python=$3
case $language in
rust) compiler=rustc ;;
go) compiler=go ;;
esac
command -v $compiler >/dev/null || { echo "skipped: no $compiler"; exit 77; }
dir=$(mktemp -d)
trap 'chmod -R u+w "$dir"; rm -rf "$dir"' EXIT

# The page's folder: the sources, and a release build.
mkdir -p "$dir/build/release" "$dir/bin"
for name in *; do [ "$name" = build ] || ln -s "$PWD/$name" "$dir/$name"; done
ln -s "$(dirname "$library")" "$dir/build/release/lib"
ln -s "$(command -v "$python")" "$dir/bin/python3"

# The block of commands that has the compiler's.
awk -v compiler="(^|[\n ])$compiler " '/^    / { block = block substr($0, 5) "\n"; next } block ~ compiler { printf "%s", block; exit } { block = "" }' \
    docs/building.md >"$dir/commands"
grep -q "bindings.py $language" "$dir/commands" || { echo "docs/building.md has no commands for $language"; exit 1; }
sed -i 's/^rustc /rustc -D warnings /; s/&& go build/\&\& go vet .\/... \&\& go build/' "$dir/commands"
(cd "$dir" && PATH=$dir/bin:$PATH GOPATH=$dir/go GOCACHE=$dir/cache GOFLAGS=-mod=mod bash -eu commands >out)
tail -n 1 "$dir/out" >"$dir/last"
echo "3 sequences over 11 pages: the same bits as one by one" | diff - "$dir/last"
echo "$language: decodes"
