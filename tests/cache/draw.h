/* SPDX-License-Identifier: MIT
 * draw.h - seeded random numbers for the cache tests. */
#ifndef ATTN_TESTS_CACHE_DRAW_H
#define ATTN_TESTS_CACHE_DRAW_H

#include "testing/random/random.h"

static random_state draw_source = {1};

static inline uint32_t draw(uint32_t below) { return (uint32_t)random_below(&draw_source, below); }

/* Within -1 .. 1. */
static inline float draw_real(void) { return (float)draw(1u << 20) / (float)(1u << 19) - 1; }

#endif
