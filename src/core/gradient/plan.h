/* SPDX-License-Identifier: MIT
 * plan.h - the common head of the plans of walks that recompute weights from lse: backward, forward mode and double backward. */
#ifndef ATTN_GRADIENT_PLAN_H
#define ATTN_GRADIENT_PLAN_H

#include "../tile/plan.h"

/* One worker's memory, as in attn_tile_scratch. */
typedef struct attn_gradient_scratch {
    int64_t O;          /* of the current tile, transposed */
    int64_t lse, delta; /* of each place: delta = dO.O - dlse */
    int64_t empty;      /* int32_t, of each place: 1 if a query is fully masked and its weights uniform */
    int64_t slope;      /* derivatives of the softcap for the scores of the current block */
} attn_gradient_scratch;

typedef struct attn_gradient_walk {
    attn_tile_walk tiles;
    attn_gradient_scratch scratch;
} attn_gradient_walk;

static inline const attn_gradient_walk *attn_gradient_of(const attn_walk *walk) { return (const attn_gradient_walk *)walk; }

/* Lays out a worker's memory, with the walk's own parts; channels: capacity of O.  plan: measured (attn_tiles_measure).  Returns 0
 * if a size overflows. */
int attn_gradient_lay_out(attn_gradient_walk *plan, int64_t channels, const attn_part_of *own, size_t n);

/* The sums of the per-head gradients. */
typedef struct attn_head_sums {
    double scale, slope, sink;
} attn_head_sums;

/* The gradients of relative tables (relative_sums.h). */
typedef struct attn_relative_sums {
    int64_t Q_panels;              /* bytes from a place's Q_panels to those for positions; 0 if they are the same */
    int64_t ld_keys, ld_values;    /* row lengths of the sums, which have as many rows as the tables */
    int64_t sum_values, sum_bytes; /* offset of the sums of values, and bytes of all sums of one table */
    int64_t places;                /* sums in progress at the same time, for each table of a key head */
} attn_relative_sums;

/* The shared memory that follows the workers' memory. */
typedef struct attn_sum_shared {
    int64_t dK, dV;          /* of the current key head, if several tasks share it */
    int64_t steps;           /* [at_once]: steps done */
    int64_t sums;            /* attn_head_sums [batch * heads_q] */
    int64_t dw;              /* additive scores, double [batch * heads_q][2 * dim_qk]: sums for w and its biases */
    int64_t table_sums;      /* with a bias by distance: double [batch * heads_q][tables.length] */
    int64_t table_totals;    /* double [tables][buckets] */
    int64_t relative_sums;   /* of relative tables: [places][tables of a key head] */
    int64_t relative_totals; /* [tables] */
} attn_sum_shared;

/* Walks that sum over the queries of a key head (chain.h): backward and double backward. */
typedef struct attn_sum_walk {
    attn_gradient_walk gradient;
    int64_t at_once;      /* tasks that follow each other over a key head's keys; 1: each task has a key head */
    int64_t joined;       /* groups of a head that share sums of table gradients */
    int sums_in_place;    /* dK and dV are accumulated in the caller's tensors */
    int64_t ld_dK, ld_dV; /* row lengths of their sums */
    attn_relative_sums relative;
    /* One worker's memory, as in attn_tile_scratch. */
    int64_t dOt, dOt_bytes;           /* dO of each place, transposed */
    int64_t dQt;                      /* as Qt */
    int64_t Q_panels, dO_panels;      /* rows of Q and dO of each place in column panels */
    int64_t panel_bytes;              /* step from one place to the next */
    int64_t dP;                       /* of the current block */
    int64_t pairs;                    /* sums of dS for the gradient of a bias */
    int64_t dK, dV;                   /* sums over a key head's queries, if one task has them all */
    int64_t diagonals, diagonal_sums; /* with a bias by distance: scratch of sum_diagonals, and its sums of each place */
    int64_t group;                    /* attn_gradient_group */
    int64_t sums;                     /* of each place, attn_head_sums */
    int64_t dw;                       /* of each place, double[2 * dim_qk], for additive scores */
    int64_t relative_sums;            /* of the group */
    attn_sum_shared shared;
} attn_sum_walk;

static inline const attn_sum_walk *attn_sums_of(const attn_walk *walk) { return (const attn_sum_walk *)walk; }

/* 1 if backward sums the gradient of additive weights: for the weights or for the scale. */
static inline int attn_sums_weights(const attn_resolved *p)
{
    return attn_is_additive(p) && (p->has.grad_score_matrix || p->has.grad_scale);
}

/* Divides a problem into tasks whose queries add to the same dK and dV, with these layouts; most: tiles of a group.  Returns 0 if a
 * size overflows. */
int attn_sums_deal(attn_sum_walk *plan, const attn_setting *setting, const attn_layout *dK, const attn_layout *dV, int64_t most);
/* Lays out the workers' memory, followed by the walk's own parts, and the shared memory.  Returns 0 if a size overflows. */
int attn_sums_lay_out(attn_sum_walk *plan, const attn_part_of *own, size_t n, const attn_part_of *shared, size_t n_shared);

#endif
