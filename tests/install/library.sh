# shellcheck shell=bash
# SPDX-License-Identifier: MIT
# Helpers of the installation tests: a temporary folder, $dir, and the program of README.md in $dir/readme/readme.c.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
root=$PWD

fail() { echo "$*"; exit 1; }
quietly() { "$@" >"$dir/log" 2>&1 || { cat "$dir/log"; echo "failed: $*"; exit 1; }; }

mkdir "$dir/readme"
awk '/^```c$/ { on = 1; next } on && /^```$/ { exit } on' README.md >"$dir/readme/readme.c"
grep -q 'int main' "$dir/readme/readme.c" || fail "README.md has no program in C"

check() { # NAME PROGRAM: it prints the expected output of the README program
    "$2" >"$dir/out"
    diff "$root/examples/minimal/expected.txt" "$dir/out"
    echo "$1: works"
}
linked() { ldd "$1" | grep -q "libattn"; } # PROGRAM: is it linked with our shared library?
