#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# types.sh PACKAGE: TypeScript accepts types.mts, and rejects what it marks as wrong.
set -euo pipefail
command -v tsc >/dev/null || { echo "skipped: there is no tsc (apt-get install node-typescript)" && exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder/node_modules"
cp -r "$1" "$folder/node_modules/libattn"
cp "$(dirname "$0")/types.mts" "$folder"
cd "$folder"
flags="--noEmit --strict --module nodenext --moduleResolution nodenext --target es2022 --lib es2022,dom"
# shellcheck disable=SC2086
tsc $flags types.mts
sed 's/^ *q: Tensor; k: Tensor; v: Tensor;$/q: Tensor; k: Tensor; v?: Tensor;/' node_modules/libattn/index.d.ts >changed
mv changed node_modules/libattn/index.d.ts
# shellcheck disable=SC2086
if tsc $flags types.mts >/dev/null; then echo "a wrong index.d.ts is not noticed" && exit 1; fi
echo "# index.d.ts: accepted by tsc $(tsc --version | cut -d ' ' -f 2)"
