#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# script/release makes the same files from the same commit, whoever runs it: here, and in a clone in another folder, with another umask,
# time zone and git configuration.  The checksum is right, the SBOM is valid and names all libraries with which the binaries of this build
# are linked, and the recipes parse, if their parsers are installed.  Usage: tests/release/tarball.sh BINARY...
. tests/install/library.sh
git rev-parse --verify -q HEAD >/dev/null 2>&1 || { echo "skipped: no git repository"; exit 77; }
command -v readelf >/dev/null || { echo "skipped: no readelf"; exit 77; }
pkg-config --exists libcjson libzip libpng 2>/dev/null || { echo "skipped: no libcjson, libzip and libpng"; exit 77; }
from=(--url https://example.org/releases --home https://example.org)

quietly script/release "${from[@]}" -o "$dir/first"
quietly git clone -q --no-hardlinks . "$dir/clone"
quietly git -C "$dir/clone" checkout -q --detach "$(git rev-parse HEAD)"
cp -R script "$dir/clone" # (so that uncommitted changes are tested too)
printf '[tar]\n\tumask = 0077\n[core]\n\tabbrev = 20\n' >"$dir/config"
(umask 077 && cd "$dir/clone" && TZ=Asia/Tokyo LC_ALL=C GIT_CONFIG_GLOBAL=$dir/config quietly script/release "${from[@]}" -o "$dir/second")
diff -r "$dir/first" "$dir/second" || fail "the files of a release depend on who makes it"
(cd "$dir/first" && sha256sum --quiet -c -- *.sha256) || fail "the checksum is wrong"
tarball=$(basename "$dir"/first/*.tar.gz)
names=$(tar -tzf "$dir/first/$tarball")
[ "$(grep -vc "^${tarball%.tar.gz}/" <<<"$names")" = 0 ] || fail "the tarball is not one folder"
[ "$(tar --numeric-owner -tvzf "$dir/first/$tarball" | awk '{ print $2, $4 }' | sort -u | wc -l)" = 1 ] || fail "more than one owner or day"
notes=$dir/first/${tarball%.tar.gz}.notes.md
first=$(awk '/^## /{ n++; next } n == 1 && /^\*/ { print; exit }' CHANGELOG.md)
grep -qF "$first" "$notes" || fail "the notes lack the first change of CHANGELOG.md: $first"
grep -q "$(cut -d' ' -f1 "$dir/first/$tarball.sha256")" "$notes" || fail "the notes have another checksum"
if grep -q '^## ' "$notes"; then fail "the notes have another version's changes"; fi
echo "the same files twice, $(wc -l <<<"$names") names"

sbom=$(echo "$dir"/first/*.spdx.json)
python3 tools/sbom.py --check "$sbom" "$@"
grep -q "$(cut -d' ' -f1 "$dir/first/$tarball.sha256")" "$sbom" || fail "the SBOM is that of another tarball"
if command -v pyspdxtools >/dev/null; then pyspdxtools -i "$sbom"; fi

# Recipes: each is parsed by its language.
cd "$dir/first/packages"
python3 -m json.tool vcpkg/vcpkg.json >"$dir/log"
python3 -c 'import ast, sys; ast.parse(open(sys.argv[1]).read())' conan/conanfile.py
cat >"$dir/port.cmake" <<'END'
cmake_minimum_required(VERSION 3.22)
foreach(name download_distfile extract_source_archive check_features find_acquire_program cmake_configure cmake_install
        cmake_config_fixup fixup_pkgconfig copy_tools install_copyright)
  cmake_language(EVAL CODE "macro(vcpkg_${name})\nendmacro()")
endforeach()
include(${CMAKE_CURRENT_LIST_DIR}/first/packages/vcpkg/portfile.cmake)
END
quietly cmake -DCURRENT_PACKAGES_DIR="$dir/none" -P "$dir/port.cmake"
if command -v ruby >/dev/null; then quietly ruby -c homebrew/libattn.rb; else echo "not checked: homebrew/libattn.rb, no ruby"; fi
python3 - conda/meta.yaml <<'END'
import sys
try:
    import jinja2
    import yaml
except ImportError as error:
    print(f"not checked: conda/meta.yaml, {error}")
    sys.exit(0)
text = jinja2.Environment(undefined=jinja2.StrictUndefined).from_string(open(sys.argv[1], encoding="utf-8").read())
recipe = yaml.safe_load(text.render(compiler=lambda name: name, stdlib=lambda name: name, pin_subpackage=lambda name, max_pin: name))
assert {"package", "source", "build", "requirements", "test", "about"} <= set(recipe), recipe
END
