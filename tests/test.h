/* SPDX-License-Identifier: MIT
 * test.h - what every C test includes first: cmocka with the headers that it wants before it. */
#ifndef ATTN_TEST_H
#define ATTN_TEST_H

#define _POSIX_C_SOURCE 200809L /* setenv, and threads */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* How many of n random cases are drawn: without a sanitizer all of them, and as much fewer as each takes longer under one.  (What
 * the thread sanitizer looks for depends on the walk and its options, of which combination/walks leaves none out, and not on
 * numbers.) */
#if defined(__SANITIZE_THREAD__)
#define CASES(n) ((n) / 12)
#define EVERY(n) (19 * (n)) /* the step through a table of cases, likewise */
#elif defined(__SANITIZE_ADDRESS__)
#define CASES(n) ((n) / 4)
#define EVERY(n) (7 * (n))
#else
#define CASES(n) (n)
#define EVERY(n) (n)
#endif

/* 1 if attn_isa `isa` (the default and plain C are everywhere) is of another architecture than this one. */
static inline int isa_is_foreign(int isa)
{
    enum { SCALAR = 1, NEON = 4 };
#if defined(__aarch64__)
    return isa > SCALAR && isa != NEON;
#else
    return isa == NEON;
#endif
}

/* 1 if that is why the library has rejected it, or since this CPU lacks what it needs. */
static inline int isa_is_elsewhere(int isa, const char *message)
{
    return strncmp(message, "this CPU cannot", 15) == 0 || (isa_is_foreign(isa) && strncmp(message, "this build has no", 17) == 0);
}

#endif
