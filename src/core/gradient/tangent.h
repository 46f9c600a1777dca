/* SPDX-License-Identifier: MIT
 * tangent.h - forward mode of one query tile: what jvp.c stores, and what double backward starts from. */
#ifndef ATTN_GRADIENT_TANGENT_H
#define ATTN_GRADIENT_TANGENT_H

#include "gradient.h"

typedef struct attn_tangents {
    int compact_k, compact_v; /* copy a block of tangents of keys and values into compact rows before use */
    /* Offsets in a worker's memory, as in attn_tile_scratch. */
    int64_t Qt, O, mu; /* tangents of a tile's queries, its rows of O and its lse */
    int64_t S, other;  /* of the scores of the block at hand, and a part of them */
    int64_t K, V;      /* of its keys and values, in compact rows */
} attn_tangents;

/* What is copied, of walk->problem. */
void attn_tangents_begin(attn_tangents *plan, const attn_walk *walk);
/* Adds what they need to a worker's memory.  Returns 0 if a size overflows. */
int attn_tangents_lay_out(attn_tangents *plan, attn_walk *walk);

/* Tangents of keys and values of a block; NULL where they are not given. */
attn_keys attn_tangents_of_keys(const attn_tangents *plan, const attn_task *task, int64_t low, int64_t high);

/* Of a tile that was opened: the tangents of its queries. */
void attn_tangent_open(const attn_tangents *plan, const attn_task *task, const attn_gradient_tile *tile);

/* The tangents of a block's scores: of the scores that attn_task_score left, whose softcap's derivative is in slope.  before: NULL,
 * or room like S for the tangents before softcap and bias. */
void attn_tangent_scores(const attn_tangents *plan, const attn_task *task, const attn_gradient_tile *tile, const attn_keys *keys,
                         const attn_keys *tangents, void *before);

/* The walk over all keys that the tile sees.  Leaves the tangents of its lse and of its rows of O. */
void attn_tangent_walk(const attn_tangents *plan, const attn_task *task, attn_gradient_tile *tile);

/* Stores them: like o, and (unless NULL) like lse. */
void attn_tangent_store(const attn_tangents *plan, const attn_task *task, const attn_gradient_tile *tile, const attn_layout *layout,
                        void *o, const attn_layout *lse_layout, void *lse);

#endif
