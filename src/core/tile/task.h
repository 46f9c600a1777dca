/* SPDX-License-Identifier: MIT
 * task.h - what the code that runs one task knows: its head, its keys and values, its worker's memory. */
#ifndef ATTN_TILE_TASK_H
#define ATTN_TILE_TASK_H

#include "../visible/visible.h"
#include "ahead.h"
#include "tile.h"
#include "walk.h"

typedef struct attn_task {
    const attn_walk *walk;
    const attn_args *args;
    char *memory; /* of the worker */
    int64_t b, h, g;
    attn_sight sight;
    attn_ahead *ahead; /* NULL, or what the worker's next task will need */
} attn_task;

/* Keys low .. high-1 with their rows in the compute type; where attn_scores_bf16, K is in pairs of bf16, and in backward V too. */
typedef struct attn_keys {
    int64_t low, high;
    const void *K, *V;  /* row `low` */
    int64_t ldk, ldv;   /* elements of the compute type */
    const void *K_wide; /* backward: K in the compute type at any rate */
    int64_t ldk_wide;
} attn_keys;

/* Batch entry and head of number `head`, 0 .. batch * heads_q - 1. */
attn_task attn_task_of_head(const attn_walk *walk, const attn_args *args, char *memory, int64_t head);
/* That of the first query head of key head number `key_head` of the batch; there may be none, and then it is for its keys alone. */
attn_task attn_task_of_key_head(const attn_walk *walk, const attn_args *args, char *memory, int64_t key_head);

/* The worker's memory at a byte offset of walk->scratch. */
static inline void *attn_part(const attn_task *task, int64_t offset) { return task->memory + offset; }

/* Row t of the task's head in a tensor on the side of the queries (q, o, lse, ...) or of the keys (k, v, ...). */
char *attn_query_row(const attn_task *task, const void *base, const attn_layout *layout, int64_t t);
char *attn_key_row(const attn_task *task, const void *base, const attn_layout *layout, int64_t t);
/* Key row t, in its page where keys are in pages; *count is cut to the rows that follow each other from there on. */
const char *attn_key_run(const attn_task *task, const void *base, const attn_layout *layout, int64_t t, int64_t *count);
/* Element (i, j) of the task's head in a mask, bias or weights tensor. */
char *attn_pair_at(const attn_task *task, const void *base, const attn_layout *layout, int64_t i, int64_t j);

/* The keys low .. high-1, at most a block of them, copied into compact rows where they are not usable in place. */
attn_keys attn_task_keys(const attn_task *task, int64_t low, int64_t high);
/* Where the next task is known, what to prefetch while a product runs over n keys; else leaves *next and *ld alone. */
static inline void attn_task_look_ahead(const attn_task *task, int64_t n, const void **next, int64_t *ld)
{
    if (task->ahead) attn_ahead_take(task->ahead, n, next, ld);
}

/* The same without their values. */
attn_keys attn_task_keys_alone(const attn_task *task, int64_t low, int64_t high);
/* Their tangents, likewise; NULL where they are not given. */
attn_keys attn_task_tangents_of_keys(const attn_task *task, int64_t low, int64_t high);
/* A part of these. */
attn_keys attn_keys_within(const attn_task *task, const attn_keys *keys, int64_t low, int64_t high);

/* The tile's queries, transposed, to Qt (where attn_scores_bf16, in pairs); where positions have queries of their own, these too,
 * at walk->relative.Qrt after it. */
void attn_task_pack(const attn_task *task, const attn_tile *tile, void *Qt);

/* Scores before anything changes them, into walk->scratch.S, and their maxima. */
void attn_task_score_raw(const attn_task *task, const attn_tile *tile, const void *Qt, const attn_keys *keys);

/*
 * Scores of a tile of queries (transposed in Qt) and a block of keys, with everything that changes them: softcap, bias, ALiBi,
 * masks. Leaves S in walk->scratch.S and its maxima in walk->scratch.block_max.  slope: NULL, or room like S for the softcap's
 * derivative (in the second order, the next one goes to scratch.bend).  Returns 0 or a sum of these.
 */
enum {
    ATTN_SCORE_DROPPED = 1, /* a key may have been dropped inside the block */
    ATTN_SCORE_STAIRS = 2   /* scratch.low and high say which keys each lane sees, as score_seen in kernel.h takes them */
};
int attn_task_score(const attn_task *task, const attn_tile *tile, const void *Qt, const attn_keys *keys, void *slope);

/* The derivatives of the caller's modifier (modify.c) for the scores that attn_task_score met last, into scratch.scratch.  dS:
 * NULL, or the gradients of what it made; again: as in attn_score_tile. */
void attn_task_slopes(const attn_task *task, const attn_tile *tile, const attn_keys *keys, const void *dS, int again);
/* Applies the modifier to scratch.S. */
void attn_task_modify(const attn_task *task, const attn_tile *tile, const attn_keys *keys);

/* Scores in walk->scratch.S become weights, with the finished m and l of their rows. */
void attn_task_weigh(const attn_task *task, int width, int64_t n, const void *m, const void *l);

/* The dropout of this tile and these keys; NULL where there is none.  Fills *drop. */
const attn_drop *attn_task_drop(const attn_task *task, const attn_tile *tile, int64_t low, attn_drop *drop);

/* Numbers of head h: the scale over the temperature; additive scores: w as their kernel takes it. */
double attn_head_scale(const attn_walk *walk, const attn_args *args, int64_t h);
const void *attn_head_weights(const attn_walk *walk, const attn_args *args, int64_t h);

/* Numbers of this head. */
double attn_task_scale(const attn_task *task);
const void *attn_task_weights(const attn_task *task);
double attn_task_slope(const attn_task *task);
double attn_task_sink(const attn_task *task); /* -infinity where there is none */

#endif
