/* SPDX-License-Identifier: MIT
 * draws.h - random choices of the fuzzers. */
#ifndef ATTN_FUZZ_DRAWS_H
#define ATTN_FUZZ_DRAWS_H

#include <stddef.h>
#include <stdint.h>

#include "testing/random/random.h"

/* The source of choices: the fuzzer's bytes, then a generator seeded with them. */
typedef struct draws {
    const uint8_t *bytes;
    size_t left;
    random_state random;
} draws;

draws draws_from(const uint8_t *bytes, size_t size);
uint64_t draw_word(draws *d);            /* from the generator only: for numbers in tensors */
int64_t draw_below(draws *d, int64_t n); /* 0 .. n-1 */
int draw_one_in(draws *d, int n);
int64_t draw_hostile(draws *d); /* a number that makes sizes overflow */
int64_t draw_vast(draws *d);    /* a size: 0, a small one, or one at or beyond a limit; never negative */
/* Replaces some of n fields, at least one and possibly all, by such sizes. */
void draw_vast_fields(draws *d, int64_t *fields, int n);

#endif
