#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# mpi.c and mpi_linear.c with an MPI, on 1 to 8 ranks; mpi_large.c on 2; and attn/mpi.h compiles alone with it, in C99, C11 and C++11.
# Usage: tests/distributed/mpi.sh MPI LIBRARY     (MPI: openmpi or mpich; LIBRARY: libattn.a)
set -eu
mpi=$1 library=$2
command -v mpicc.$mpi >/dev/null || { echo "skipped: there is no $mpi"; exit 77; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
warnings="-Wall -Wextra -Wconversion -Wshadow -Werror -Iinclude"
echo '#include <attn/mpi.h>' >"$dir/alone.c"
cp "$dir/alone.c" "$dir/alone.cpp"
# shellcheck disable=SC2086
for dialect in c99 c11; do mpicc.$mpi -std=$dialect $warnings -pedantic -fsyntax-only "$dir/alone.c"; done
# shellcheck disable=SC2086 # (without MPI's own C++ headers, which have warnings)
if command -v mpicxx.$mpi >/dev/null; then
    mpicxx.$mpi -std=c++11 $warnings -DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX -fsyntax-only "$dir/alone.cpp"
fi
# build NAME [FLAG...]
build() {
    local name=$1
    shift
    # shellcheck disable=SC2086
    mpicc.$mpi -std=c11 -O1 $warnings -I. -Itests "$@" -o "$dir/$name" tests/distributed/{mpi,draw,spread}.c testing/ranks/ranks.c tests/cut/*.c \
        "$library" -lcmocka -pthread -lm
}
build test
build pieces -DATTN_MPI_MESSAGE=100 # messages have several pieces
# shellcheck disable=SC2086
mpicc.$mpi -std=c11 -O1 $warnings -o "$dir/linear" tests/distributed/mpi_linear.c "$library" -pthread -lm
# shellcheck disable=SC2086
mpicc.$mpi -std=c11 -O1 $warnings -o "$dir/large" tests/distributed/mpi_large.c "$library" -pthread -lm
. tests/distributed/mpi_environment.sh
timeout 200 mpirun.$mpi -n 2 "$dir/large"
for ranks in 1 2 3 5 8; do timeout 200 mpirun.$mpi -n $ranks "$dir/test"; done
for ranks in 2 3; do timeout 200 mpirun.$mpi -n $ranks "$dir/pieces"; done
for ranks in 1 3 8; do timeout 200 mpirun.$mpi -n $ranks "$dir/linear"; done
