/* SPDX-License-Identifier: MIT
 * draw.h - numbers between -1 and 1, the same in every run. */
#ifndef ATTN_TESTS_BILINEAR_DRAW_H
#define ATTN_TESTS_BILINEAR_DRAW_H

#include <stdint.h>

static inline void draw(double *to, int64_t count, uint64_t seed)
{
    uint64_t state = seed;
    for (int64_t i = 0; i < count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        to[i] = (double)(state >> 33) / 1073741824.0 - 1;
    }
}

#endif
