# shellcheck shell=bash
# SPDX-License-Identifier: MIT
# What the tests of the installed tree share: a folder to work in, $dir, and the program of README.md in $dir/readme/readme.c.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
root=$PWD

fail() { echo "$*"; exit 1; }
quietly() { "$@" >"$dir/log" 2>&1 || { cat "$dir/log"; echo "failed: $*"; exit 1; }; }

mkdir "$dir/readme"
awk '/^```c$/ { on = 1; next } on && /^```$/ { exit } on' README.md >"$dir/readme/readme.c"
grep -q 'int main' "$dir/readme/readme.c" || fail "README.md has no program in C"

check() { # NAME PROGRAM: it prints what the program of README.md should
    "$2" >"$dir/out"
    diff "$root/examples/minimal/expected.txt" "$dir/out"
    echo "$1: works"
}
linked() { ldd "$1" | grep -q "libattn"; } # PROGRAM: with a shared library of ours
