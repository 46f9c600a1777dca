#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The example learns to copy and to reverse all held-out sequences.
. tests/layers/learns.sh "$1" attention.csv 600
grep -q '<rect class="cell"' "$dir/attention.svg"
