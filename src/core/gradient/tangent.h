/* SPDX-License-Identifier: MIT
 * tangent.h - forward mode of one query tile, which jvp.c stores and double backward starts from. */
#ifndef ATTN_GRADIENT_TANGENT_H
#define ATTN_GRADIENT_TANGENT_H

#include "gradient.h"

typedef struct attn_tangents {
    int compact_k, compact_v; /* copy a block of tangents of keys and values into compact rows before use */
    /* Offsets in a worker's memory, as in attn_tile_scratch. */
    int64_t Qt, O, mu; /* tangents of a tile's queries, of its rows of O and of its lse */
    int64_t S, other;  /* of the scores of the current block, and one term of them */
    int64_t K, V;      /* of its keys and values, in compact rows */
} attn_tangents;

/* Decides what must be copied, from walk->problem. */
void attn_tangents_begin(attn_tangents *plan, const attn_walk *walk);
/* Adds the tangents' buffers to a worker's memory.  Returns 0 if a size overflows. */
int attn_tangents_lay_out(attn_tangents *plan, attn_walk *walk);

/* Tangents of the keys and values of a block; NULL if absent. */
attn_keys attn_tangents_of_keys(const attn_tangents *plan, const attn_task *task, int64_t low, int64_t high);

/* Packs the tangents of the queries of a tile that was opened. */
void attn_tangent_open(const attn_tangents *plan, const attn_task *task, const attn_gradient_tile *tile);

/* The tangents of the scores that attn_task_score computed, with the softcap's derivative in slope.  before: NULL, or a buffer like
 * S for the tangents before softcap and bias. */
void attn_tangent_scores(const attn_tangents *plan, const attn_task *task, const attn_gradient_tile *tile, const attn_keys *keys,
                         const attn_keys *tangents, void *before);

/* Goes over all keys that the tile sees.  Leaves the tangents of its lse and of its rows of O. */
void attn_tangent_walk(const attn_tangents *plan, const attn_task *task, attn_gradient_tile *tile);

/* Stores the tangents of o and (unless NULL) of lse. */
void attn_tangent_store(const attn_tangents *plan, const attn_task *task, const attn_gradient_tile *tile, const attn_layout *layout,
                        void *o, const attn_layout *lse_layout, void *lse);

#endif
