/* SPDX-License-Identifier: MIT
 *
 * shares.h - how the walks that sum over queries are dealt to tasks.  The queries of a key head, of all the query heads of its
 * group, are dealt to splits whose number follows from the head's own shape; each split is summed alone and the sums are added in
 * order. Whether a task goes through all splits or has one is a matter of how many key heads there are: neither that nor the
 * workers nor the batch changes a bit.
 */
#ifndef ATTN_SCHED_SHARES_H
#define ATTN_SCHED_SHARES_H

#include "task.h"

/* What the queries of one task add up to. */
typedef struct attn_shares {
    void *dK, *dV;        /* [len_kv][walk->ld_dK], [len_kv][walk->ld_dV] */
    attn_head_sums *sums; /* of the head at hand */
    void *relative;       /* of the table of the head at hand (relative.h) */
    double *dw;           /* additive scores, likewise: for w and its biases; NULL where nobody asks */
} attn_shares;

/* Where the sums over all queries go: like k and v. */
typedef struct attn_shares_target {
    const attn_layout *k_layout, *v_layout;
    void *k, *v;
} attn_shares_target;

/* `count` query tiles, at most walk->group: number, number + walk->splits, ...; `shared` is the memory that walk->shared lays out.
 */
typedef void attn_run_tiles(const attn_task *task, int64_t number, int64_t count, const attn_shares *to, char *shared);

/* Runs every query tile of every head, then adds the shares of each key head and stores them. */
void attn_shares_run(const attn_walk *walk, const attn_args *args, void *workspace, attn_run_tiles *run_tiles,
                     const attn_shares_target *target);

/* Stores what a key head's queries added up to. */
void attn_shares_store(const attn_task *task, const attn_shares_target *target, const void *dK, const void *dV);

/* What lies behind the workers' memory. */
static inline char *attn_shared_of(const attn_walk *walk, void *workspace)
{
    return (char *)workspace + walk->workers * walk->scratch.bytes;
}

/* Sums for w of a head in one split; NULL where nobody asks. */
double *attn_weight_sums_at(const attn_walk *walk, char *shared, int64_t head, int64_t split);

/* The sums of a head (batch entry and head together) in one split. */
attn_head_sums *attn_head_sums_at(const attn_walk *walk, char *shared, int64_t head, int64_t split);

#endif
