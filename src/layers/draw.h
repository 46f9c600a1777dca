/* SPDX-License-Identifier: MIT
 * draw.h - numbers that depend on a seed and a place alone. */
#ifndef ATTN_LAYERS_DRAW_H
#define ATTN_LAYERS_DRAW_H

#include <math.h>
#include <stdint.h>

/* A number in (0, 1) from a place: SplitMix64's finalizer (Steele et al. 2014) over the seed and a counter. */
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

#endif
