#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The example of docs/mechanisms/modifier.md is examples/modifier/modifier.c, letter for letter (its functions in 20 lines), and
# prints what it should: example.sh PROGRAM
set -eu
page=$(sed -n '/^```c$/,/^```$/{/^```/!p}' docs/mechanisms/modifier.md)
source=$(sed -n '/^\/\* begin \*\/$/,/^\/\* end \*\/$/{/^\/\* \(begin\|end\) \*\/$/!p}' examples/modifier/modifier.c)
[ "$page" = "$source" ] || { echo "docs/mechanisms/modifier.md has another example than examples/modifier/modifier.c"; exit 1; }
[ "$(printf '%s\n' "$source" | wc -l)" -le 20 ] || { echo "the example has more than 20 lines"; exit 1; }
diff examples/modifier/expected.txt <("$1")
