/* SPDX-License-Identifier: MIT
 *
 * linear.h - the walks of linear attention.  A task is one key head of one batch entry, with the query heads of its group: its
 * tokens update a state chunk by chunk.  Walks cannot fail and allocate nothing.
 */
#ifndef ATTN_WALK_LINEAR_LINEAR_H
#define ATTN_WALK_LINEAR_LINEAR_H

#include "../../base/linear_problem.h"
#include "../../base/names.h"
#include "../../kernels/kernel.h"

/* Byte offsets into a worker's memory; a buffer that the walk does not use has size 0. */
typedef struct attn_linear_scratch {
    int64_t Xt, dXt, X; /* random features: [dim_qk][tile_q] twice, [tile_q][ld_x] */
    int64_t Qf, Kf, V, A,
        Y;          /* a chunk's rows: [group][chunk][ld_f], [chunk][ld_f], [chunk][ld_v], [group][chunk][ld_v], [chunk][ld_v] */
    int64_t Qt, Vt; /* a tile of queries (or keys), [dim_f][tile_q]; of output gradients (or values), [dim_v][tile_q] */
    int64_t Ot, Gt; /* accumulators: [dim_v][tile_q], [dim_f][tile_q] */
    int64_t S, dS;  /* [chunk][tile_q] */
    int64_t G;      /* [tile_q][ld_f] */
    int64_t panels; /* a chunk's values, or output gradients */
    int64_t state, sum; /* [dim_f][ld_v], [dim_f] */
    int64_t grad_state, grad_sum;
    int64_t lanes;                        /* ATTN_LINEAR_LANES of [tile_q] */
    int64_t logs;                         /* [chunk]: sums of log(decay) from the chunk's first token on */
    int64_t weights;                      /* [chunk]: the weight of each row in the state */
    int64_t factors;                      /* [group][chunk]: scale / n_i */
    int64_t terms;                        /* [group][chunk]: what each row adds to its scores in backward */
    int64_t gates;                        /* [chunk][ld_f], or [chunk] of one decay per head: decays, recurrent and gated */
    int64_t W, U, N, dU, beta;            /* [chunk][ld_v] four times, [chunk]: gated; see gated_backward.c */
    int64_t decayed, dlogs;               /* [chunk][ld_f] */
    int64_t dK, total;                    /* [tile_q][ld_f], [ld_f] */
    int64_t token;                        /* [4 ld_v + 5 ld_f]: one token's vectors, recurrent */
    int64_t states;                       /* [segment + 1][dim_f][ld_v]: after each token or chunk of a segment, backward */
    int64_t sums;                         /* [segment + 1][dim_f] */
    int64_t checkpoints, checkpoint_sums; /* before each segment */
    int64_t bytes;
} attn_linear_scratch;

enum { LANES_L, LANES_TERM, LANES_LOG, LANES_FACTOR, LANES_MAX, ATTN_LINEAR_LANES };

typedef struct attn_linear_walk {
    attn_linear_resolved problem; /* resolved: no default is left */
    attn_dtype compute;
    attn_kernel kernel;
    int64_t dim_f, ld_f, ld_v, ld_x, tile_q, chunk, group;
    int gated;                 /* chunks of gated.h */
    int singles;               /* chunked, but sequences of one token take the recurrent walk: see choose_form */
    int64_t dim_u;             /* channels of a state: dim_v, and one more for its sum if gated */
    int64_t segment, segments; /* backward: keeps states at each segment's start, and within the current one (of tokens, or
                                * chunks) */
    int64_t tasks;             /* heads of states, times parts */
    int64_t parts; /* of one head: forward, ranges of `slice` channels of its values; backward, gradients of queries, and of keys */
    int64_t slice;
    int normalised;
    int workers;
    attn_parallel_for *parallel_for;
    void *parallel_context;
    attn_linear_scratch scratch; /* of each worker; after them all, backward in chunks with a decay per head: */
    int64_t decay;               /* double [workers, or tasks where heads are split][len_kv]: gradients of the sums of log(decay) */
    int64_t table;               /* bytes that the lists of slots need before the workers begin */
    int64_t bytes;
} attn_linear_walk;

enum { LINEAR_QUERIES, LINEAR_KEYS, LINEAR_ALL };

/* One task: which head, whose memory. */
typedef struct attn_linear_head {
    const attn_linear_walk *walk;
    const attn_linear_args *args;
    char *memory;
    double *decay; /* [len_kv]: this task's share of walk->decay */
    int64_t b, g;
    int64_t first;         /* the sequence's first token, in a ragged batch */
    int64_t next;          /* the number of the head that its worker is likely to take next */
    int part;              /* which gradients backward computes; LINEAR_ALL: it is not split */
    int64_t len_q, len_kv; /* tokens that exist */
} attn_linear_head;

/* Chooses form, chunk and memory; 0 if a size overflows.  May be called again, for other threads. */
int attn_linear_walk_init(attn_linear_walk *walk, int threads);
double attn_linear_walk_flops(const attn_linear_walk *walk);

void attn_run_linear(const attn_linear_walk *walk, const attn_linear_args *args, void *workspace);

/* The walks of one task. */
void attn_linear_forward_chunks(const attn_linear_head *head);
void attn_linear_backward_chunks(const attn_linear_head *head);
/* Then, with a decay: its gradient, from what queries and keys (NULL: included in `queries`) added to the gradients of the sums. */
void attn_linear_backward_decay(const attn_linear_head *head, const double *queries, const double *keys);
void attn_linear_forward_gated(const attn_linear_head *head);
void attn_linear_backward_gated(const attn_linear_head *head);
void attn_linear_forward_tokens(const attn_linear_head *head);
void attn_linear_backward_tokens(const attn_linear_head *head);

/* ---- shared by the walks (rows.c) ---- */

static inline void *attn_linear_part(const attn_linear_head *head, int64_t offset) { return head->memory + offset; }
static inline void *attn_linear_lanes(const attn_linear_head *head, int which)
{
    const attn_linear_walk *w = head->walk;
    return head->memory + w->scratch.lanes + which * w->tile_q * (w->compute == ATTN_F64 ? 8 : 4);
}

/* The row of token t of head h in a caller's tensor with tokens. */
const void *attn_linear_row(const attn_linear_head *head, const void *base, const attn_layout *layout, int64_t h, int64_t t);
void *attn_linear_row_out(const attn_linear_head *head, void *base, const attn_layout *layout, int64_t h, int64_t t);

/* The head's state, or its sum, in row `row` of a caller's tensor of states. */
void *attn_linear_state_row(const attn_linear_head *head, int64_t row, const void *base, const attn_layout *layout);

/* The rows of the states where the head's sequence begins and ends (column > 0: without its last tokens); -1: none. */
static inline int64_t attn_linear_initial_row(const attn_linear_head *head)
{
    const attn_linear_resolved *p = &head->walk->problem;
    if (!p->has.initial_state) return -1;
    return p->has.initial_slots ? attn_index_at(head->args->initial_slots, p->at.initial_slots.dtype, head->b) : head->b;
}
static inline int64_t attn_linear_final_row(const attn_linear_head *head, int64_t column)
{
    const attn_linear_resolved *p = &head->walk->problem;
    if (!p->has.final_state) return -1;
    if (!p->has.final_slots) return head->b;
    return attn_index_at(head->args->final_slots, p->at.final_slots.dtype, head->b * p->snapshots + column);
}

/* Features of n tokens from `first` on, of q (h is a query head) or k, as rows of ld_f. */
void attn_linear_query_features(const attn_linear_head *head, int64_t h, int64_t first, int64_t n, void *F);
void attn_linear_key_features(const attn_linear_head *head, int64_t first, int64_t n, void *F);
/* Features of the queries of a tile, Xt [dim_f][tile_q]. */
void attn_linear_query_tile(const attn_linear_head *head, int64_t h, int64_t first, int64_t rows, void *Xt);
/* G [n][ld_f], the gradient of these features, n <= tile_q, goes through the map and is stored as grad_q or grad_k. */
void attn_linear_store_query_gradient(const attn_linear_head *head, int64_t h, int64_t first, int64_t n, const void *F, void *G);
void attn_linear_store_key_gradient(const attn_linear_head *head, int64_t first, int64_t n, const void *F, void *G);

/* Adds to `prefetch` the rows of the chunk at token `first`, if there is one: of any tensor of `len` tokens, of its keys and
 * values, of its queries and outputs. */
void attn_linear_prefetch(const attn_linear_head *head, const void *base, const attn_layout *layout, int64_t h, int64_t first,
                          int64_t len, int64_t dim, attn_prefetch *prefetch);
void attn_linear_prefetch_keys(const attn_linear_head *head, int64_t first, attn_prefetch *prefetch);
void attn_linear_prefetch_queries(const attn_linear_head *head, int64_t h, int64_t first, attn_prefetch *prefetch);

/* Rows of the compute type and their distance: in place if the caller's are suitable, else copied to `buffer` with ld_v. */
const void *attn_linear_values(const attn_linear_head *head, int64_t first, int64_t n, void *buffer, int64_t *ld);

/* Loads state [dim_f][ld] and sum [dim_f] from the caller's (0 if absent), and stores them there. */
enum { LINEAR_INITIAL, LINEAR_FINAL, LINEAR_GRAD_FINAL, LINEAR_GRAD_INITIAL };
void attn_linear_load_state(const attn_linear_head *head, int which, void *S, int64_t ld, void *z);
/* The same into a state of scratch, with ld_v. */
void attn_linear_load_own_state(const attn_linear_head *head, int which, void *S, void *z);
void attn_linear_store_state(const attn_linear_head *head, const void *S, int64_t ld, const void *z, int which);
/* The sums alone: initial, and final. */
void attn_linear_load_sum(const attn_linear_head *head, void *z);
void attn_linear_store_sum(const attn_linear_head *head, const void *z);
/* Stores a snapshot: column `column` of final_slots. */
void attn_linear_store_snapshot(const attn_linear_head *head, int64_t column, const void *S, int64_t ld, const void *z);

/* log(decay) of token t, channel c. */
double attn_linear_log(const attn_linear_head *head, int64_t t, int64_t c);
/* [n][ld_f]: the decays of n tokens' channels. */
void attn_linear_gates(const attn_linear_head *head, int64_t first, int64_t n, void *gates);
/* Returns the guarded denominator of n; *clamped = 1 if it does not depend on n. */
double attn_linear_guard(const attn_linear_resolved *problem, double n, int *clamped);
/* A [n][ld_v]: rows of grad_o of query head h (number `in_group` of its group) times their factors; and their terms if there is a
 * denominator. */
void attn_linear_scaled_gradient(const attn_linear_head *head, int64_t h, int64_t in_group, int64_t first, int64_t n, void *A);
/* Rows first .. end-1 of an output [.., .., dim] = 0. */
void attn_linear_clear(const attn_linear_head *head, void *base, const attn_layout *layout, int64_t h, int64_t first, int64_t end,
                       int64_t dim);

#endif
