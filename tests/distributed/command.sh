#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# attn-mpi, built with an MPI: command.py.
# Usage: tests/distributed/command.sh MPI ATTN LIBRARY...     (MPI: openmpi or mpich; ATTN: the command; the libraries of attn-mpi)
set -eu
mpi=$1 attn=$2
shift 2
command -v mpicc.$mpi >/dev/null || { echo "skipped: there is no $mpi"; exit 77; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mpicc.$mpi -std=c11 -O1 -D_POSIX_C_SOURCE=200809L -Wall -Wextra -Wconversion -Wshadow -Werror -Iinclude -I. -o "$dir/attn-mpi" \
    cli/mpi/*.c cli/explain/*.c "$@" -lcjson -lzip -pthread -lm
. tests/distributed/mpi_environment.sh
python3 tests/distributed/command.py "$attn" "$dir/attn-mpi" mpirun.$mpi
