#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The problems in worst.txt stay within their error bounds.  usage: worst.sh ATTN
set -euo pipefail
mapfile -t problems < <(awk '!/^#/ { print $3 }' "$(dirname "$0")/worst.txt")
[ ${#problems[@]} -ge 10 ]
exec "$1" check --quiet "${problems[@]}"
