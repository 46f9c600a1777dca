#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Runs a program under valgrind: tests/analyze/memcheck.sh PROGRAM [ARGUMENT...].  Fails on an error or a leaked block.
# valgrind 3.19 does not support AVX-512 and hides it in CPUID, so the library picks its AVX2 kernels, or those that ATTN_ISA names.
set -u
command -v valgrind >/dev/null || { echo "skipped: there is no valgrind"; exit 77; }
exec valgrind --quiet --error-exitcode=9 --leak-check=full --errors-for-leak-kinds=definite,indirect --show-leak-kinds=definite,indirect \
    --num-callers=20 --suppressions="$(dirname "$0")/valgrind.supp" "$@"
