/* SPDX-License-Identifier: MIT
 * draw.h - numbers between -1 and 1, the same in every run. */
#ifndef ATTN_TESTS_BILINEAR_DRAW_H
#define ATTN_TESTS_BILINEAR_DRAW_H

#include "testing/random/random.h"

static inline void draw(double *to, int64_t count, uint64_t seed)
{
    random_state r = {seed};
    for (int64_t i = 0; i < count; i++) to[i] = random_signed(&r);
}

#endif
