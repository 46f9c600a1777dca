/* SPDX-License-Identifier: MIT
 * gradient.h - shared by the backward walks: a query tile with the data of its rows, and dS of one block. */
#ifndef ATTN_GRADIENT_GRADIENT_H
#define ATTN_GRADIENT_GRADIENT_H

#include "../tile/steps.h"
#include "plan.h"

typedef struct attn_gradient_tile {
    attn_tile tile;
    attn_interval keys;                   /* visited keys */
    attn_interval seen[ATTN_MAX_VECTORS]; /* of these, the keys that each vector of its queries sees */
    int dropped;                          /* a key was masked inside the last block */
    int nan_safe_queries;                 /* a row of Q or dO is not finite */
    const int32_t *empty;                 /* NULL, or flags of the fully masked lanes, whose weights are uniform */
    char *Qt, *dOt, *lse, *delta, *dQt;   /* tile buffers; Qt and dOt are in pairs if attn_scores_bf16 */
    char *Q_panels, *dO_panels;           /* the rows of Q, scaled, and of dO */
} attn_gradient_tile;

/* Tiles that go over the keys together. */
typedef struct attn_gradient_group {
    int64_t count;
    attn_gradient_tile tiles[ATTN_MAX_TILES];
    attn_prefetch prefetch; /* what a product may prefetch */
} attn_gradient_group;

/*
 * Loads tile `number` into the worker's memory, at place `slot` of a group: Qt, dOt, Q_panels and dO_panels, lse, and delta = dO.O
 * - dlse.  Returns 0 if the tile has no rows.
 */
int attn_gradient_tile_open(const attn_task *task, int64_t number, int64_t slot, attn_gradient_tile *tile);
/* The same without dO, for forward mode: only Qt, O and lse. */
int attn_gradient_tile_open_rows(const attn_task *task, int64_t number, int64_t slot, attn_gradient_tile *tile);

/*
 * If a causal mask or a window cuts a tile, not all vectors of its queries see the same keys.  Fills *part with the vectors from
 * the first to the last that sees key j, and returns up to which key, at most `high`, this holds; part->tile.width is 0 if none
 * does.
 */
int64_t attn_gradient_tile_part(const attn_task *task, const attn_gradient_tile *tile, int64_t j, int64_t high,
                                attn_gradient_tile *part);

/* The next run of keys that the tile visits, from run->high on; returns 0 after the last one. */
int attn_gradient_next(const attn_task *task, const attn_gradient_tile *tile, attn_interval *run);
/* The same below `high`, without stopping at blocks of the grid. */
int attn_gradient_run(const attn_task *task, const attn_gradient_tile *tile, int64_t high, attn_interval *run);

/* Computes the block's weights after dropout in scratch.S, the gradient of its scores in dP, and the softcap's derivative in
 * slope. */
void attn_gradient_block(const attn_task *task, attn_gradient_tile *tile, const attn_keys *keys);

#endif
