/* SPDX-License-Identifier: MIT
 * split_sums.h - the sums over queries, and where they are kept until complete. */
#ifndef ATTN_GRADIENT_SPLIT_SUMS_H
#define ATTN_GRADIENT_SPLIT_SUMS_H

#include "../task/task.h"
#include "plan.h"

/* The sums that a group of query tiles adds to. */
typedef struct attn_split_sums {
    void *dK, *dV;        /* [len_kv][ld_dK], [len_kv][ld_dV]: of the key head */
    attn_head_sums *sums; /* [group]: of each tile, by its place */
    double *dw;           /* additive scores, likewise, each [2 * dim_qk]: for w and its biases; NULL if not requested */
    void *relative;       /* of the group (relative.h) */
    char *shared;         /* the shared memory after the workers' memory */
} attn_split_sums;

/* The destination of the sums over all queries: laid out like k and v. */
typedef struct attn_split_sums_target {
    const attn_layout *k_layout, *v_layout;
    void *k, *v;
} attn_split_sums_target;

/* The shared memory after the workers' memory. */
static inline char *attn_shared_of(const attn_walk *walk, void *workspace)
{
    return (char *)workspace + walk->workers * walk->worker_bytes;
}

/* Sums for w of a head (batch entry and head together); NULL if not requested. */
static inline double *attn_weight_sums_at(const attn_walk *walk, char *shared, int64_t head)
{
    if (!attn_sums_weights(&walk->problem)) return NULL;
    return (double *)(void *)(shared + attn_sums_of(walk)->shared.dw) + head * 2 * walk->problem.shape.dim_qk;
}

/* The per-head sums, likewise. */
static inline attn_head_sums *attn_head_sums_at(const attn_walk *walk, char *shared, int64_t head)
{
    return (attn_head_sums *)(void *)(shared + attn_sums_of(walk)->shared.sums) + head;
}

#endif
