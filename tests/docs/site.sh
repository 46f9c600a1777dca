#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The site builds without warnings, is complete (site.py), and works in a browser
# (browser.py): tests/docs/site.sh ATTN PYTHON
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
script/docs --attn "$1" -o "$dir/site" || exit $? # 77: no Sphinx
"$2" tests/docs/site.py "$1" "$dir/site"
"$2" tests/docs/browser.py "$dir/site"
