/* SPDX-License-Identifier: MIT
 * outer.h - products over the queries of a tile, in one chain, or in the chains common to all instruction sets. */
#ifndef ATTN_GRADIENT_OUTER_H
#define ATTN_GRADIENT_OUTER_H

#include "../base/checked.h"
#include "../base/names.h"
#include "../task/walk.h"

/* A tile's queries first .. first+rows-1 of a head, and which of them are summed in one chain: the whole tile, whose size depends
 * on the instruction set, or a number common to all instruction sets. */
typedef struct attn_outer {
    const attn_walk *walk;
    int64_t first, rows;
    int nan_safe;
    int64_t from, count; /* the current chain: rows from .. from+count-1 */
} attn_outer;

/* The next chain.  Returns 0 after the last one. */
static inline int attn_outer_next(attn_outer *o)
{
    const attn_walk *w = o->walk;
    o->from += o->count;
    o->count = o->rows - o->from;
    if (w->problem.reproducible) {
        const int64_t chain = ATTN_CHAIN_OF_ALL / (int64_t)attn_dtype_bytes(w->compute);
        o->count = attn_min(o->count, chain - (o->first + o->from) % chain);
    }
    return o->count > 0;
}

/* Adds the chain to C; A and panels are the tile's (attn_outer_part). */
static inline void attn_outer_add(const attn_outer *o, int64_t n, int64_t dim, const void *A, const void *panels, void *C,
                                  int64_t ldc, attn_prefetch *prefetch)
{
    const attn_walk *w = o->walk;
    const attn_outer_part *k = w->kernel.outer;
    const int64_t size = (int64_t)attn_dtype_bytes(w->compute);
    (o->nan_safe ? k->add_outer_nan_safe : k->add_outer)(n, o->count, dim, (const char *)A + o->from * size,
                                                         (const char *)panels + o->from * w->tile_q * size, C, ldc, prefetch);
}

/* Adds all chains, one after another. */
static inline void attn_outer_add_all(attn_outer outer, int64_t n, int64_t dim, const void *A, const void *panels, void *C,
                                      int64_t ldc, attn_prefetch *prefetch)
{
    while (attn_outer_next(&outer)) attn_outer_add(&outer, n, dim, A, panels, C, ldc, prefetch);
}

#endif
