/* SPDX-License-Identifier: MIT
 *
 * random.h - random numbers that depend only on a seed, not on the machine (SplitMix64; Steele, Lea and Flood 2014).
 */
#ifndef ATTN_TESTING_RANDOM_H
#define ATTN_TESTING_RANDOM_H

#include <math.h>
#include <stdint.h>

typedef struct random_state {
    uint64_t state;
} random_state;

static const uint64_t random_step = 0x9e3779b97f4a7c15u;

static inline uint64_t random_bits(random_state *r)
{
    uint64_t z = r->state += random_step;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline random_state random_from(uint64_t seed) { return (random_state){seed}; }

/* As if n numbers had been drawn, or, below 0, had not. */
static inline void random_skip(random_state *r, int64_t n) { r->state += (uint64_t)n * random_step; }

/* [0, 1) */
static inline double random_unit(random_state *r) { return (double)(random_bits(r) >> 11) * 0x1p-53; }

/* [-1, 1) */
static inline double random_signed(random_state *r) { return 2 * random_unit(r) - 1; }

/* 0 .. n-1; n >= 1 */
static inline int64_t random_below(random_state *r, int64_t n) { return (int64_t)(random_bits(r) % (uint64_t)n); }

/* lo .. hi */
static inline int64_t random_between(random_state *r, int64_t lo, int64_t hi) { return lo + random_below(r, hi - lo + 1); }

/* lo .. hi, lo >= 1, as likely between n and 2 n for every n. */
static inline int64_t random_spread(random_state *r, int64_t lo, int64_t hi)
{
    const int64_t drawn = (int64_t)((double)lo * exp2(random_unit(r) * log2(((double)hi + 1) / (double)lo)));
    return drawn < lo ? lo : drawn < hi ? drawn : hi;
}

/* Of mean 0 and variance 1, within 3.47: the sum of four uniform numbers.  A tenth of the time of a normal one. */
static inline double random_bell(random_state *r)
{
    const uint64_t z = random_bits(r);
    const int64_t sum = (int64_t)((z & 0xffff) + (z >> 16 & 0xffff) + (z >> 32 & 0xffff) + (z >> 48)) - 2 * 0xffff;
    return (double)sum * (1.7320508075688772 / 0x1p16);
}

#endif
