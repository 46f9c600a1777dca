/* SPDX-License-Identifier: MIT
 * share.h - how many random cases a test runs. */
#ifndef ATTN_TESTING_RANDOM_SHARE_H
#define ATTN_TESTING_RANDOM_SHARE_H

#include <stdint.h>
#include <stdlib.h>

/* $ATTN_TEST_SHARE, 1 without it: the stride through a table of cases. */
static inline int64_t share_stride(void)
{
    const char *share = getenv("ATTN_TEST_SHARE");
    const int64_t of = share ? strtol(share, NULL, 10) : 1;
    return of > 1 ? of : 1;
}

/* The number of random cases to run of n, at least one: one in $ATTN_TEST_SHARE, which script/test sets with --quick and
 * where it runs tests again (label isa, sanitizers); all without it.  For tests that spend most of their time in the reference. */
static inline int64_t share_of_cases(int64_t n)
{
    const int64_t of = share_stride();
    return n / of + (n % of != 0);
}

/* The same, but not fewer than show what the test is about. */
static inline int64_t share_at_least(int64_t n, int64_t least)
{
    const int64_t some = share_of_cases(n);
    return some > least ? some : least < n ? least : n;
}

/* 1 if case `number` of a table runs: one in $ATTN_TEST_SHARE, in no step with the lists that the table is a product of. */
static inline int share_has(int number)
{
    return ((uint64_t)number * UINT64_C(0x9e3779b97f4a7c15) >> 33) % (uint64_t)share_stride() == 0;
}

#endif
