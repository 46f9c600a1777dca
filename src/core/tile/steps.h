/* SPDX-License-Identifier: MIT
 * steps.h - what is done to a tile of queries and a block of keys: they are brought to where products take them, scored, and their
 * scores modified. */
#ifndef ATTN_TILE_STEPS_H
#define ATTN_TILE_STEPS_H

#include "../task/task.h"
#include "plan.h"

/* Keys low .. high-1 with their rows in the compute type; where attn_scores_bf16, K is in pairs of bf16, and in backward V too. */
typedef struct attn_keys {
    int64_t low, high;
    const void *K, *V;  /* row `low` */
    int64_t ldk, ldv;   /* elements of the compute type */
    const void *K_wide; /* backward: K in the compute type at any rate */
    int64_t ldk_wide;
} attn_keys;

/* The keys low .. high-1, at most a block of them, copied into compact rows where they are not usable in place. */
attn_keys attn_task_keys(const attn_task *task, int64_t low, int64_t high);
/* The same without their values. */
attn_keys attn_task_keys_alone(const attn_task *task, int64_t low, int64_t high);

/* Keys, values or their tangents, with a scale for each row where they are i8. */
typedef struct attn_key_rows {
    const void *base;
    const attn_layout *layout;
    const void *scales;
    const attn_layout *scale_layout;
    int pairs; /* brought into pairs of bf16, not the compute type */
} attn_key_rows;

/* Rows low .. high-1 of them with steps of *ld: where they are or, compact, copied to the worker's memory at copy_at. */
const void *attn_rows_of_keys(const attn_task *task, const attn_key_rows *from, int64_t dim, int compact, int64_t copy_at,
                              int64_t low, int64_t high, int64_t *ld);
/* A part of a block of keys. */
attn_keys attn_keys_within(const attn_task *task, const attn_keys *keys, int64_t low, int64_t high);

/* The tile's queries, transposed, to Qt (where attn_scores_bf16, in pairs); where positions have queries of their own, these too,
 * at relative.Qrt after it. */
void attn_task_pack(const attn_task *task, const attn_tile *tile, void *Qt);

/* Scores before anything changes them, into scratch.S, and their maxima. */
void attn_task_score_raw(const attn_task *task, const attn_tile *tile, const void *Qt, const attn_keys *keys);

/*
 * Scores of a tile of queries (transposed in Qt) and a block of keys, with everything that changes them: softcap, bias, ALiBi,
 * masks. Leaves S in scratch.S and its maxima in scratch.block_max.  slope, bend: NULL, or room like S for the
 * softcap's first and second derivative.  Returns 0 or a sum of these.
 */
enum {
    ATTN_SCORE_DROPPED = 1, /* a key may have been dropped inside the block */
    ATTN_SCORE_STAIRS = 2   /* scratch.low and high say which keys each lane sees, as score_seen in kernel.h takes them */
};
int attn_task_score(const attn_task *task, const attn_tile *tile, const void *Qt, const attn_keys *keys, void *slope, void *bend);

/* The derivatives of the caller's modifier (modify.c) for the scores that attn_task_score met last, into scratch.modifiers.  dS:
 * NULL, or the gradients of what it made; again: as in attn_score_tile. */
void attn_task_slopes(const attn_task *task, const attn_tile *tile, const attn_keys *keys, const void *dS, int again);
/* Applies the modifier to scratch.S. */
void attn_task_modify(const attn_task *task, const attn_tile *tile, const attn_keys *keys);

/* Scores in scratch.S become weights, with the finished m and l of their rows. */
void attn_task_weigh(const attn_task *task, int width, int64_t n, const void *m, const void *l);

/* The dropout of this tile and these keys; NULL where there is none.  Fills *drop. */
const attn_drop *attn_task_drop(const attn_task *task, const attn_tile *tile, int64_t low, attn_drop *drop);

#endif
