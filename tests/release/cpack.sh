#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# CPack's packages have exactly the files that `cmake --install` installs: the archive, and Debian's packages of all components together.
# Usage: tests/release/cpack.sh BUILD
. tests/install/library.sh
build=$1
command -v cpack >/dev/null || { echo "skipped: no cpack"; exit 77; }
list() { find "$1" ! -type d -printf '%P\n' | sort; }
quietly cmake --install "$build" --prefix "$dir/usr"
list "$dir/usr" >"$dir/installed"

quietly cpack --config "$build/CPackConfig.cmake" -G TGZ -B "$dir/tgz"
mkdir "$dir/archive"
tar -xzf "$dir"/tgz/*.tar.gz --strip-components=1 -C "$dir/archive"
list "$dir/archive" | diff "$dir/installed" - || fail "files of the archive (>) differ from those of cmake --install (<)"
echo "TGZ: $(wc -l <"$dir/installed") files"

if command -v dpkg-deb >/dev/null && command -v dpkg-shlibdeps >/dev/null; then
    quietly cpack --config "$build/CPackConfig.cmake" -G DEB -B "$dir/deb"
    for package in "$dir"/deb/*.deb; do
        dpkg-deb -x "$package" "$dir/debian"
        echo "$(dpkg-deb -f "$package" Package): $(dpkg-deb -f "$package" Depends)"
    done
    list "$dir/debian/usr" | diff "$dir/installed" - || fail "files of the packages (>) differ from those of cmake --install (<)"
    if dpkg-deb -f "$dir"/deb/libattn0*.deb Depends | grep libattn; then fail "the libraries depend on themselves"; fi
else
    echo "DEB: not tried, no dpkg-deb and dpkg-shlibdeps"
fi
