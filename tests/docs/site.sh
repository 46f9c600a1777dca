#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The site is made without a warning, twice with the same bytes, has what it should (site.py), and is found
# through and read in a browser (browser.py): tests/docs/site.sh ATTN PYTHON
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
script/docs --attn "$1" -o "$dir/site" || exit $? # 77: Sphinx cannot be had
script/docs --attn "$1" -o "$dir/again"
diff -r "$dir/site" "$dir/again"
"$2" tests/docs/site.py "$1" "$dir/site"
"$2" tests/docs/browser.py "$dir/site"
