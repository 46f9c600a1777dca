/* SPDX-License-Identifier: MIT
 * test.h - included first by every C test: cmocka, and the headers that must come before it. */
#ifndef ATTN_TEST_H
#define ATTN_TEST_H

#define _POSIX_C_SOURCE 200809L /* setenv, threads */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#if defined(__has_feature)
#if __has_feature(memory_sanitizer)
#define ATTN_TESTS_MEMORY
#endif
#endif

/* Number of random cases to run of n: all without a sanitizer, fewer under one in proportion to its slowdown.  (Data races depend
 * on the walk and its options, all of which combination/walks covers, and not on the numbers.) */
#if defined(__SANITIZE_THREAD__)
#define CASES(n) ((n) / 12)
#define EVERY(n) (19 * (n)) /* stride through a table of cases, likewise */
#elif defined(__SANITIZE_ADDRESS__)
#define CASES(n) ((n) / 8)
#define EVERY(n) (13 * (n))
#elif defined(ATTN_TESTS_MEMORY)
#define CASES(n) ((n) / 3)
#define EVERY(n) (3 * (n))
#else
#define CASES(n) (n)
#define EVERY(n) (n)
#endif

/* Leaves a test of a program that cannot run here; tools/sum_tests.py counts it and says why. */
#define SKIP_BECAUSE(reason)                                                                                                       \
    do {                                                                                                                           \
        print_message("skipped in part: %s\n", reason);                                                                            \
        skip();                                                                                                                    \
    } while (0)

/* 1 if attn_isa `isa` belongs to another architecture than this one (the default and plain C belong to all). */
static inline int isa_is_foreign(int isa)
{
    enum { SCALAR = 1, NEON = 4, WASM128 = 5 };
#if defined(__aarch64__)
    return isa > SCALAR && isa != NEON;
#else
    return isa == NEON || isa == WASM128;
#endif
}

/* 1 if `message` rejects `isa` for that reason, or because this CPU lacks an instruction set that it needs. */
static inline int isa_is_elsewhere(int isa, const char *message)
{
    return strncmp(message, "this CPU cannot", 15) == 0 || (isa_is_foreign(isa) && strncmp(message, "this build has no", 17) == 0);
}

#endif
