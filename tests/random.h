/* SPDX-License-Identifier: MIT
 * random.h - numbers drawn from a seed, the same on every machine (Knuth's 64-bit linear congruence, upper bits). */
#ifndef ATTN_TESTS_RANDOM_H
#define ATTN_TESTS_RANDOM_H

#include <stdint.h>

typedef struct random_source {
    uint64_t state;
} random_source;

static inline uint32_t random_word(random_source *r)
{
    r->state = r->state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(r->state >> 33);
}

static inline random_source random_from(uint64_t seed)
{
    random_source r = {seed * 0x9E3779B97F4A7C15u + 1};
    for (int i = 0; i < 4; i++) (void)random_word(&r);
    return r;
}

/* 0 .. n-1 */
static inline int64_t random_below(random_source *r, int64_t n) { return (int64_t)random_word(r) % n; }

/* -1 .. 1 */
static inline double random_signed(random_source *r) { return (double)random_word(r) / 1073741824.0 - 1; }

#endif
