/* SPDX-License-Identifier: MIT
 * checked.h - all arithmetic on sizes: products that overflow are detected, and positions saturate. */
#ifndef ATTN_BASE_CHECKED_H
#define ATTN_BASE_CHECKED_H

#include <stddef.h>
#include <stdint.h>

/* The most that a size of a problem may be (plan/validate.c): a multiple of one by a few constants fits 64 bits, such as the bytes
 * of its numbers for all lanes of all tiles of a group, and so does a sum of several.  Products of two sizes are checked. */
#define ATTN_MAX_SIZE (INT64_C(1) << 48)

/* *out = a*b for a, b >= 0; returns 0 on overflow. */
static inline int attn_mul(int64_t a, int64_t b, int64_t *out)
{
    if ((a | b) >> 31 && a != 0 && b > INT64_MAX / a) return 0; /* division is slow, and seldom needed */
    *out = a * b;
    return 1;
}

/* *out = a+b for a, b >= 0; returns 0 on overflow. */
static inline int attn_add(int64_t a, int64_t b, int64_t *out)
{
    if (b > INT64_MAX - a) return 0;
    *out = a + b;
    return 1;
}

/* a+b, clamped to the range of int64_t. */
static inline int64_t attn_add_saturate(int64_t a, int64_t b)
{
    if (b > 0 && a > INT64_MAX - b) return INT64_MAX;
    if (b < 0 && a < INT64_MIN - b) return INT64_MIN;
    return a + b;
}

static inline int64_t attn_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t attn_max(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t attn_clamp(int64_t x, int64_t low, int64_t high) { return attn_min(attn_max(x, low), high); }
static inline int64_t attn_ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }

/* The smallest multiple of 64 that is >= bytes: for cache lines and 512-bit vectors. */
static inline int64_t attn_round_64(int64_t bytes) { return (bytes + 63) & ~(int64_t)63; }

#endif
