/* SPDX-License-Identifier: MIT
 * steps.h - the steps for a tile of queries and a block of keys: they are packed for the products, scored, and their scores
 * modified. */
#ifndef ATTN_TILE_STEPS_H
#define ATTN_TILE_STEPS_H

#include "../task/task.h"
#include "plan.h"

/* Keys low .. high-1 with rows in the compute type; if attn_scores_bf16, K is in bf16 pairs, and in backward V too. */
typedef struct attn_keys {
    int64_t low, high;
    const void *K, *V;  /* row `low` */
    int64_t ldk, ldv;   /* elements of the compute type */
    const void *K_wide; /* backward: K in the compute type in any case */
    int64_t ldk_wide;
} attn_keys;

/* The keys low .. high-1, at most a block of them, copied into compact rows if they are not usable in place. */
attn_keys attn_task_keys(const attn_task *task, int64_t low, int64_t high);
/* The same without their values. */
attn_keys attn_task_keys_only(const attn_task *task, int64_t low, int64_t high);

/* Keys, values or their tangents, with a scale for each row if they are i8. */
typedef struct attn_key_rows {
    const void *base;
    const attn_layout *layout;
    const void *scales;
    const attn_layout *scale_layout;
    int pairs; /* 1: as bf16 pairs, not the compute type */
} attn_key_rows;

/* Rows low .. high-1 with stride *ld: in place or, if compact, copied to the worker's memory at copy_at. */
const void *attn_rows_of_keys(const attn_task *task, const attn_key_rows *from, int64_t dim, int compact, int64_t copy_at,
                              int64_t low, int64_t high, int64_t *ld);
/* A part of a block of keys. */
attn_keys attn_keys_within(const attn_task *task, const attn_keys *keys, int64_t low, int64_t high);

/* Packs the tile's queries, transposed, into Qt (in pairs if attn_scores_bf16); if positions have their own queries, these too,
 * relative.Qrt bytes later. */
void attn_task_pack(const attn_task *task, const attn_tile *tile, void *Qt);

/* Scores before anything modifies them, into scratch.S, and their maxima. */
void attn_task_score_raw(const attn_task *task, const attn_tile *tile, const void *Qt, const attn_keys *keys);

/*
 * Scores of a tile of queries (transposed in Qt) and a block of keys, with all modifications: softcap, bias, ALiBi, masks.  Leaves
 * S in scratch.S and its maxima in scratch.block_max.  slope, curvature: NULL, or buffers like S for the softcap's first and second
 * derivative.  Returns a combination of these flags.
 */
enum {
    ATTN_SCORE_DROPPED = 1, /* a key may have been masked inside the block */
    ATTN_SCORE_SEGMENTS = 2 /* scratch.low and high hold the keys that each lane sees, as score_seen in kernel.h takes them */
};
int attn_task_score(const attn_task *task, const attn_tile *tile, const void *Qt, const attn_keys *keys, void *slope,
                    void *curvature);

/* The derivatives of the caller's modifier (modify.c) at the scores of the last attn_task_score, into scratch.modifiers.  dS: NULL,
 * or the gradients of its results; again: as in attn_score_tile. */
void attn_task_slopes(const attn_task *task, const attn_tile *tile, const attn_keys *keys, const void *dS, int again);
/* Applies the modifier to scratch.S. */
void attn_task_modify(const attn_task *task, const attn_tile *tile, const attn_keys *keys);

/* Turns the scores in scratch.S into weights, with the final m and l of their rows. */
void attn_task_normalise(const attn_task *task, int width, int64_t n, const void *m, const void *l);

/* The dropout of this tile and these keys; NULL if there is none.  Fills *drop. */
const attn_drop *attn_task_drop(const attn_task *task, const attn_tile *tile, int64_t low, attn_drop *drop);

#endif
