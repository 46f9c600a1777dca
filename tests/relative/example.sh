#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The example of docs/mechanisms/modifier.md equals examples/modifier/modifier.c, letter for letter (its functions have at most 20
# lines), and prints the expected output: example.sh PROGRAM
set -eu
page=$(sed -n '/^```c$/,/^```$/{/^```/!p}' docs/mechanisms/modifier.md)
source=$(sed -n '/^\/\* begin \*\/$/,/^\/\* end \*\/$/{/^\/\* \(begin\|end\) \*\/$/!p}' examples/modifier/modifier.c)
[ "$page" = "$source" ] || { echo "the example in docs/mechanisms/modifier.md differs from examples/modifier/modifier.c"; exit 1; }
[ "$(printf '%s\n' "$source" | wc -l)" -le 20 ] || { echo "the example has more than 20 lines"; exit 1; }
diff examples/modifier/expected.txt <("$1")
