/* SPDX-License-Identifier: MIT
 * draw.h - seeded random numbers for the tests of the cache. */
#ifndef ATTN_TESTS_CACHE_DRAW_H
#define ATTN_TESTS_CACHE_DRAW_H

#include <stdint.h>

static uint64_t draw_state = 1;

static inline uint32_t draw(uint32_t below)
{
    draw_state = draw_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(draw_state >> 33) % below;
}

/* Within -1 .. 1. */
static inline float draw_real(void) { return (float)draw(1u << 20) / (float)(1u << 19) - 1; }

#endif
