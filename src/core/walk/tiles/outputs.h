/* SPDX-License-Identifier: MIT
 * outputs.h - outputs other than O and lse: those computed from a query tile once its m and l are final, and those that need a walk
 * of their own. */
#ifndef ATTN_WALK_TILES_OUTPUTS_H
#define ATTN_WALK_TILES_OUTPUTS_H

#include "../../tile/steps.h"
#include "tiles.h"

/* A query tile that forward has finished. */
typedef struct attn_finished {
    const attn_tile *tile;
    void *Qt; /* packed, unless `keys` is empty */
    const void *m, *l;
    attn_interval keys;   /* that it visits */
    const int32_t *empty; /* NULL, or flags of the fully masked lanes, whose weights are uniform */
} attn_finished;

/* An output with an element for each pair of a query and a key, from one query on. */
typedef struct attn_pairs {
    attn_stage stage;
    char *base; /* key 0 of the first query */
    attn_dtype dtype;
    int64_t stride; /* elements from query to query */
} attn_pairs;

/* The requested dense outputs, from query `first` on; returns their number. */
enum { ATTN_MAX_PAIRS = 3 };
int attn_requested_pairs(const attn_task *task, int64_t first, attn_pairs pairs[ATTN_MAX_PAIRS]);
/* Fills `rows` rows as without any key: weights 0, scores -infinity. */
void attn_pairs_clear(const attn_task *task, const attn_pairs *pairs, int64_t rows);

/* How many keys top-k can return; the entries past them are marked as unused. */
static inline int64_t attn_topk_kept(const attn_resolved *p)
{
    return p->outputs.topk < p->shape.len_kv ? p->outputs.topk : p->shape.len_kv;
}

/* Everything that is requested of a tile except O and lse.  shared: the memory after that of the workers. */
void attn_outputs_of_tile(const attn_task *task, const attn_finished *f, char *shared);

/* Keeps m and l of a tile for the walk over columns. */
void attn_columns_keep(const attn_task *task, const attn_finished *f, char *shared);

/* After the tiles: column sums; the dropout mask and, in packed problems, the rows of pairs after a sequence's end. */
void attn_sum_columns(const attn_walk *walk, const attn_args *args, void *workspace);
void attn_write_pairs(const attn_walk *walk, const attn_args *args, void *workspace);

#endif
