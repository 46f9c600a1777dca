#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# A program under valgrind: tests/analyze/memcheck.sh PROGRAM [ARGUMENT...].  An error, or a block that nothing points to, fails.
# valgrind 3.19 does not know AVX-512 and says so in CPUID, so the library takes its AVX2 kernels, or those that ATTN_ISA names.
set -u
command -v valgrind >/dev/null || { echo "skipped: there is no valgrind"; exit 77; }
exec valgrind --quiet --error-exitcode=9 --leak-check=full --errors-for-leak-kinds=definite,indirect --show-leak-kinds=definite,indirect \
    --num-callers=20 --suppressions="$(dirname "$0")/valgrind.supp" "$@"
