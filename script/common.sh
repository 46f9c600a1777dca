# shellcheck shell=bash
# SPDX-License-Identifier: MIT
# Shared by the scripts, which work from any folder, without a terminal, as root or with sudo.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive

# Debian's packages, by purpose.
BUILD_PACKAGES="gcc libc6-dev cmake ninja-build pkg-config libcjson-dev libzip-dev libpng-dev"
TEST_PACKAGES="g++ binutils python3 python3-numpy libcmocka-dev libsimde-dev"
PYTHON_PACKAGES="python3-dev python3-numpy python3-pytest python3-venv" # for the Python package and its tests
CLANG_PACKAGES="clang"
PAGE_PACKAGES="chromium"
FORMAT_PACKAGES="clang-format-14"
MAN_PACKAGES="man-db"
DOCS_PACKAGES="python3-venv" # Sphinx itself comes from PyPI
CPPCHECK_PACKAGES="cppcheck"
VALGRIND_PACKAGES="valgrind"
BUILD_MPI_PACKAGES="libopenmpi-dev openmpi-bin" # for attn-mpi
MPI_PACKAGES="libopenmpi-dev openmpi-bin libmpich-dev mpich" # for tests over MPI
MSAN_PACKAGES="libclang-rt-dev llvm" # its runtime for clang, and the symbolizer for its reports
ARM_PACKAGES="gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user" # for script/arm
ARM_LIBRARIES="libc6-dev libcjson-dev libzip-dev libpng-dev libcmocka-dev" # for AArch64, unpacked by script/arm
MODULE_PACKAGES="clang lld wasi-libc libclang-rt-dev-wasm32" # for attn.wasm
WASM_PACKAGES="$MODULE_PACKAGES libcjson-dev nodejs python3-numpy" # for script/test-platform wasm
TYPES_PACKAGES="node-typescript" # for the types of the npm package
TIDY_PACKAGES="clang-tidy" # for script/analyze alone
ABI_PACKAGES="abigail-tools git" # for script/abi --since alone
DEBIAN_PACKAGES="debhelper dh-python dpkg-dev fakeroot lintian" # for script/release --debian alone

say() { printf '\n== %s\n' "$*"; }
usage() { echo "usage: script/$(basename "$0")${1:+ $1}" >&2; exit 2; }
die() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; exit 1; }

installed() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"
    elif command -v sudo >/dev/null && [ -t 0 ]; then sudo "$@"
    elif command -v sudo >/dev/null; then sudo -n "$@"
    else return 1; fi
}

apt_updated=
# need PURPOSE PACKAGE...: installs missing packages.  If that fails, prints which are missing and returns 1.
need() {
    local purpose=$1 package missing=()
    shift
    if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
        echo "$purpose: this is not Debian, so nothing is installed; it needs these packages (Debian names): $*"
        return 0
    fi
    for package in "$@"; do installed "$package" || missing+=("$package"); done
    [ ${#missing[@]} -gt 0 ] || return 0
    echo "$purpose: installing ${missing[*]}"
    if [ -z "$apt_updated" ]; then as_root apt-get update -qq </dev/null >/dev/null 2>&1 || true; fi
    apt_updated=1
    as_root apt-get install -y -qq --no-install-recommends "${missing[@]}" </dev/null >/dev/null 2>&1 || true
    for package in "$@"; do
        installed "$package" || {
            echo "$purpose: cannot install ${missing[*]}; as root: apt-get install ${missing[*]}"
            return 1
        }
    done
}

cores() { nproc 2>/dev/null || echo 2; }

# build_release: the command, build/release/attn.
build_release() {
    # shellcheck disable=SC2086
    need "building" $BUILD_PACKAGES || die "building needs the packages above"
    # shellcheck disable=SC2086
    command -v mpicc >/dev/null || need "attn-mpi" $BUILD_MPI_PACKAGES || echo "attn-mpi is left out"
    mkdir -p build
    cmake --preset release -DATTN_TESTS=OFF >build/configure.log 2>&1 || { cat build/configure.log; die "configuring failed"; }
    cmake --build --preset release --parallel "$(cores)"
}
