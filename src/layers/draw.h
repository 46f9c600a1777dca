/* SPDX-License-Identifier: MIT
 * draw.h - random numbers that depend only on a seed and a counter, and the ranges of initial weights. */
#ifndef ATTN_LAYERS_DRAW_H
#define ATTN_LAYERS_DRAW_H

#include <math.h>
#include <stdint.h>

#include "attn/layers.h"

/* A number in (0, 1): SplitMix64's finalizer (Steele et al. 2014) over the seed and a counter. */
static inline double draw_uniform(uint64_t seed, uint64_t counter)
{
    uint64_t z = seed * 0xd1342543de82ef95u + (counter + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return ((double)(z >> 11) + 0.5) * 0x1p-53;
}

static inline double draw_normal(uint64_t seed, uint64_t counter)
{
    return sqrt(-2 * log(draw_uniform(seed, 2 * counter))) * cos(6.283185307179586 * draw_uniform(seed, 2 * counter + 1));
}

/* The bound (uniform) or standard deviation (normal) of a matrix's elements by attn_init; the matrix maps `in` channels to `out`,
 * of which one head has of_head. */
static inline double draw_scale(attn_init init, double in, double out, double of_head)
{
    switch (init) {
    case ATTN_INIT_HEAD:
        return sqrt(2 / (in + of_head));
    case ATTN_INIT_SMALL:
        return 0.02;
    case ATTN_INIT_TORCH:
        return 1 / sqrt(in);
    default:
        return sqrt(6 / (in + out));
    }
}

static inline double draw_number(attn_init init, double scale, uint64_t seed, uint64_t counter)
{
    const int gaussian = init == ATTN_INIT_HEAD || init == ATTN_INIT_SMALL;
    return scale * (gaussian ? draw_normal(seed, counter) : 2 * draw_uniform(seed, counter) - 1);
}

#endif
