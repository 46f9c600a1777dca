#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The problems that end the lines of a list stay within their error bounds.  usage: list.sh ATTN LIST
set -euo pipefail
mapfile -t problems < <(awk '!/^#/ { print $NF }' "$2")
[ ${#problems[@]} -ge 10 ]
exec "$1" check --quiet "${problems[@]}"
