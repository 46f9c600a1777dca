/* SPDX-License-Identifier: MIT
 *
 * prepare.h - score kinds that are dot products of prepared rows.  From q~ and k~ in the workspace the plain walk computes
 * attention, and in backward the gradients of q~ and k~, from which those of q, k and w follow:
 *
 *      general    q~ = w^T q          k~ = k                (in place)
 *      metric     q~ = w^T (w q)      k~ = k                (in place)
 *      cosine     q~ = q / |q|        k~ = k / |k|
 *      distance   q~ = [2 q, -|q|^2, -1]      k~ = [k, 1, |k|^2]
 */
#ifndef ATTN_PREPARE_PREPARE_H
#define ATTN_PREPARE_PREPARE_H

#include "../task/walk.h"

/* Made once by the plan.  Offsets are in bytes in the workspace; those of a worker's parts are relative to the worker's memory. */
typedef struct attn_prepare {
    attn_resolved problem;             /* the caller's, resolved; the walk has that of the prepared rows */
    int64_t rows, columns, heads;      /* of w: its shape, and how many */
    int64_t Q, dQ;                     /* prepared queries and their gradient, in the compute type, laid out like the walk's q */
    int64_t K, dK;                     /* the same for keys, if they are prepared */
    int64_t w, wt;                     /* [heads][rows][columns] and [heads][columns][rows], of the compute type */
    int64_t sums, more_sums;           /* [heads_q]: gradients of w, transposed, and (metric) of its second use, not transposed */
    int64_t sum_bytes, more_sum_bytes; /* of one head */
    int64_t ld_sum, ld_more_sum;       /* their rows */
    int64_t workers, worker_bytes;
    int64_t X, Y, Z, lanes, panels; /* of a worker: tiles of q, q~ and w q, a row of lanes, column panels */
    int64_t in, out;                /* of a worker: rows of q or k, and of their gradient */
    int64_t bytes;
} attn_prepare;

/* 1 if the kind prepares keys. */
int attn_prepares_keys(const attn_resolved *problem);

/* The problem that the walk solves: *prepared starts as a copy of the resolved problem, and is unchanged for dot products.  Returns
 * 0 if a size overflows. */
int attn_prepare_problem(const attn_resolved *problem, attn_resolved *prepared);

/* Dense rows of `heads` heads; packed sequences are laid out by head too, with space for batch * tokens rows, an upper bound on
 * their total.  Returns 0 if a size overflows. */
int attn_dense_rows(attn_layout *layout, int64_t batch, attn_dtype compute, int64_t heads, int64_t tokens, int64_t dim, int packed);

/* Sizes the workspace.  prepare->problem is set and the walk has its grid,
 * tasks and workers.  Returns 0 if a size overflows. */
int attn_prepare_init(attn_prepare *prepare, const attn_walk *walk);

/*
 * Prepares what the walk reads: *prepared are its arguments, derived from the caller's.  attn_prepare_finish computes the caller's
 * gradients from those of prepared rows.  workspace: prepare->bytes, 64-byte aligned.  Both do nothing for dot products; for
 * additive scores only w is prepared here, since the walk prepares their rows (additive.h).
 */
void attn_prepare_begin(const attn_prepare *prepare, const attn_walk *walk, const attn_args *args, void *workspace,
                        attn_args *prepared);
void attn_prepare_finish(const attn_prepare *prepare, const attn_walk *walk, const attn_args *args, void *workspace);

/* ---- rows of cosine and distance (prepare_rows.c), of the compute type ---- */

typedef enum attn_side { ATTN_SIDE_Q, ATTN_SIDE_K } attn_side;

/* n rows: y = the prepared x. */
void attn_rows_prepare(attn_score_kind kind, attn_side side, attn_dtype compute, int64_t n, int64_t dim, const void *x, void *y);
/* dx from dy, the gradient of prepared rows.  Where a row of dy is all 0, so is dx, whatever x holds. */
void attn_rows_gradient(attn_score_kind kind, attn_side side, attn_dtype compute, int64_t n, int64_t dim, const void *x,
                        const void *dy, void *dx);

#endif
