/* SPDX-License-Identifier: MIT
 *
 * walk.h - what the loops over tiles need to know: made once by the plan, read by every execution.
 * The scheduler cannot fail and never allocates; all that can go wrong was checked before.
 */
#ifndef ATTN_TASK_WALK_H
#define ATTN_TASK_WALK_H

#include "../base/problem.h"
#include "../kernels/kernel.h"
#include "attn/position.h"
#include "layout.h"

/*
 * One worker's memory, carved from the caller's workspace: offsets in bytes, all multiples of 64.  A part that a problem does not
 * use has no bytes.
 */
typedef struct attn_scratch {
    int64_t Qt, Ot, m, l, empty;            /* one for each tile of a group */
    int64_t Qt_bytes, Ot_bytes, lane_bytes; /* steps from one tile of the group to the next */
    int64_t part;                           /* forward, for each tile of a group: Ot, m and l of one part of the keys */
    int64_t S, block_max, low, high;        /* of the block at hand */
    int64_t scratch;                        /* for modifiers */
    int64_t spread;                         /* a mask, one byte a pair */
    int64_t K, V;                           /* keys and values, where they must be brought into compact rows of the compute type */
    int64_t K_pairs;                        /* keys as scores of bf16 take them; then K is for backward alone */
    int64_t dOt, dQt;                       /* backward, for each tile of a group: as Ot and Qt */
    int64_t Q_panels, dO_panels;            /* backward, likewise: its rows in column panels */
    int64_t panel_bytes;                    /* step from one tile of the group to the next */
    int64_t dP, slope;                      /* backward: tile buffers of the block at hand */
    int64_t rows;                           /* whole rows of a tile, for the caller's view */
    int64_t row_max, row_sums;              /* of a tile: T[tile_q] and double[2][tile_q] */
    int64_t top, top_index;                 /* of a tile: T[topk kept][tile_q] and int64_t likewise */
    int64_t columns;                        /* double[block_kv] */
    int64_t pairs;                          /* backward: sums of dS for the gradient of a bias */
    int64_t dK, dV;                         /* backward: sums over a key head's queries, where one task has them all */
    int64_t Qdt, At, mu, Sd, other;         /* forward mode: tile buffers */
    int64_t Kd, Vd;                         /* forward mode: tangents of keys and values in compact rows */
    int64_t kappa, bend, before, Qd_panels; /* second order */
    int64_t unmodified;                     /* scores as the caller's modifier was given them, where its slopes are needed */
    int64_t band;                           /* relative terms: products with rows of a table, and before it a row of lanes */
    int64_t kept, kept_bytes;               /* of it, for each tile of a group and each side, what the next keys need too */
    int64_t strips, strip_sums;             /* backward, with a bias by distance: room of sum_strip, and its sums */
    int64_t group, sums, dw;                /* backward: attn_gradient_group, and of each of its tiles attn_head_sums and, for */
                                            /* additive scores, double[2 * dim_qk] */
    int64_t relative_sums;                  /* of the group (relative.h) */
} attn_scratch;

/* What queries add to the gradients that are a number for each head. */
typedef struct attn_head_sums {
    double scale, slope, sink;
} attn_head_sums;

/* What follows the workers' memory. */
typedef struct attn_shared {
    int64_t states;      /* forward, [batch * heads_q][at_once + 1]: m, l, Ot and a flag of all parts so far, and of each at work */
    int64_t state_bytes; /* of one part */
    int64_t row_m, row_l;     /* forward, for column sums: of every row, each head's padded to whole vectors */
    int64_t counters;         /* backward, [at_once]: steps */
    int64_t row_empty;        /* likewise: 1 where it weighs all keys alike */
    int64_t dK, dV;           /* backward, of the key head at hand, where several tasks share it */
    int64_t sums;             /* attn_head_sums [batch * heads_q] */
    int64_t dw;               /* additive scores, double [batch * heads_q][2 * dim_qk]: sums for w and its biases */
    int64_t rows, rows_bytes; /* second order, [batch * heads_q][tiles]: mu and kappa, where a walk of the bias needs them again */
    int64_t table_sums;       /* backward, with a bias by distance: double [batch * heads_q][tables.length] */
    int64_t table_totals;     /* double [tables][buckets] */
    int64_t relative_sums, relative_totals; /* of table gradients: [places][tables of a key head], and [tables] */
} attn_shared;

/* A bias by distance (tables.h). */
typedef struct attn_tables {
    attn_distance_bias rule; /* resolved */
    int64_t count;           /* strips: one for each query head, or one */
    int64_t first, length;   /* the distance of a strip's first number, and how many it has */
    int64_t bytes;           /* of the workspace, before all else */
} attn_tables;

/* Relative keys and values (relative.h). */
typedef struct attn_relatives {
    int two;                  /* with u or v, keys and positions have queries of their own */
    int64_t tables, pad;      /* tables: one for each query head, or one; rows that each has more at both ends */
    int64_t keys, values;     /* offsets in bytes: [tables][pad + rows + pad][dim] of the compute type */
    int64_t QU, QV, dQU, dQV; /* q + u and q + v, laid out as the walk's q, and their gradients */
    int64_t bytes;            /* of the workspace, after attn_tables */
    int64_t Qrt,
        Qr_panels; /* bytes from a slot's Qt, dQt to those of positions, and from its Q_panels; 0 where they are the same */
    int64_t ld_keys, ld_values;    /* rows of the sums of their gradients, which have as many rows as the tables */
    int64_t sum_values, sum_bytes; /* sums of one table: those of values begin there */
    int64_t places;                /* sums that are worked on at the same time, for each table that a key head has */
} attn_relatives;

/* The most tiles that a task of forward can have. */
enum { ATTN_MOST_TILES = 8 };

/* Which queries a tile of a head has. */
typedef enum attn_tiling {
    ATTN_TILING_GRID,     /* those of a grid: sums depend on which rows are in a tile */
    ATTN_TILING_EVEN,     /* as many as the others */
    ATTN_TILING_FOUR,     /* likewise, but for the last one, which has the few queries after whole vectors */
    ATTN_TILING_SEQUENCE, /* as many as the others of a sequence's own length (attn_tile_of) */
} attn_tiling;

typedef struct attn_walk {
    attn_resolved problem; /* resolved: no default types, no implied strides, no ATTN_BROADCAST */
    attn_dtype compute;
    const attn_fwd_kernel *kernel;
    const attn_bwd_kernel *backward;
    const attn_jvp_kernel *jvp;
    const attn_second_kernel *second;
    const attn_dec_kernel *decode; /* NULL where the row of kernels.def has none */

    int64_t tile_q;   /* lanes * vectors */
    int64_t block_kv; /* keys in a block; blocks lie on a grid that starts at key 0 */
    int64_t tiles;    /* query tiles of one head */
    attn_tiling tiling;
    int64_t group;   /* tiles that share each block of keys and values; forward: a task has as many */
    int64_t joined;  /* backward: groups of a head that sum the gradients of tables together */
    int whole_heads; /* forward: a task goes through all groups of a head, one after another */
    int by_heads;    /* forward: they are tiles of different heads that share a key head, else of one head */
    int outputs;     /* forward: something is wanted of a tile beside O and lse */
    int64_t
        part_kv; /* forward: keys of a part, which is summed for itself, and merged in order: a multiple of block_kv that follows */
                 /* from the head sizes, since sums depend on it */
    int64_t parts;     /* of len_kv */
    int64_t at_once;   /* forward: parts of a head that are tasks of their own at the same time; 1: a task goes through all */
                       /* backward: tasks that follow each other over a key head's keys (chain.h); 1: a task has a key head */
    int one_sum;       /* backward, to keep to workspace_limit: key heads share the memory of one sum of dK and dV */
    int sums_in_place; /* backward: dK and dV are summed in the caller's tensors */
    int is_brief;      /* the work is done sooner than threads are awake */
    int64_t tasks;
    int64_t ld_dK, ld_dV; /* row lengths of the sums of dK and dV */
    int compact_k;        /* copy a block into compact rows before use */
    int compact_v;
    int compact_tan_k; /* the same for their tangents */
    int compact_tan_v;
    attn_scratch scratch;
    attn_shared shared;
    attn_tables tables;
    attn_relatives relative;
    int workers;
    int64_t worker_bytes, shared_bytes; /* of the memory of each worker, and of what follows them */
    int64_t bytes;                      /* of workspace in all, without room to align */
    attn_parallel_for *parallel_for;    /* NULL: the library's own threads (pool.h) */
    void *parallel_context;
} attn_walk;

/* What a plan is made from. */
typedef struct attn_setting {
    const attn_resolved *problem; /* the caller's: of the sequences that are this walk's */
    const attn_kernel_row *row;
    int threads;      /* at least 1 */
    int saves_memory; /* to keep to workspace_limit */
    attn_parallel_for *parallel_for;
    void *parallel_context;
} attn_setting;

static inline int attn_is_additive(const attn_resolved *p) { return p->score.kind == ATTN_SCORE_ADDITIVE; }

/* 1 if scores, and in backward products of dO and V, are of bf16 as it is stored (attn_bf16_kernel). */
static inline int attn_scores_bf16(const attn_walk *walk) { return walk->kernel->bf16 != NULL; }

/* 1 if backward sums the gradient of additive weights: for themselves or for the scale. */
static inline int attn_sums_weights(const attn_resolved *p)
{
    return attn_is_additive(p) && (p->has.grad_score_matrix || p->has.grad_scale);
}

/* 1 if a weight is a function of its own score alone. */
static inline int attn_weighs_alone(const attn_resolved *p) { return p->score.normaliser >= ATTN_NORMALISER_SIGMOID; }

static inline int attn_has_sink(const attn_resolved *p)
{
    return p->has.sink || p->score.normaliser == ATTN_NORMALISER_SOFTMAX_ONE;
}

/* Of the keys that top-k names, how many there can be; past them the outputs say that there is none. */
static inline int64_t attn_topk_kept(const attn_resolved *p)
{
    return p->outputs.topk < p->shape.len_kv ? p->outputs.topk : p->shape.len_kv;
}

static inline int attn_drops_weights(const attn_resolved *p) { return p->dropout.probability > 0 || p->has.dropout_given; }

static inline int attn_has_relative(const attn_resolved *p) { return p->has.relative_keys || p->has.relative_values; }

/* 1 if the operation sums over the queries of a key head. */
static inline int attn_walk_sums(const attn_walk *walk)
{
    return walk->problem.op == ATTN_BACKWARD || walk->problem.op == ATTN_DOUBLE_BACKWARD;
}

/* Fills everything after the kernels from what is before them.  threads >= 1.  Returns 0 if a size overflows. */
int attn_walk_init(attn_walk *walk, int threads);
int attn_scratch_init(attn_walk *walk);
int attn_shared_init(attn_walk *walk);

/* What every walk begins with: *walk is zeros but for what the setting says. */
void attn_walk_begin(attn_walk *walk, const attn_setting *setting);
/* 1 if the work is so little that it is done sooner than threads are awake. */
int attn_is_brief(const attn_resolved *problem);
/* Sets walk->bytes: `before`, all workers and what they share.  Returns 0 if that overflows. */
int attn_walk_add_bytes(attn_walk *walk, int64_t before);

/* workspace: 64-byte aligned. */
void attn_sched_forward(const attn_walk *walk, const attn_args *args, void *workspace);
void attn_sched_backward(const attn_walk *walk, const attn_args *args, void *workspace);
/* Sums for each key. */
int64_t attn_column_heads(const attn_resolved *problem);
void attn_sched_jvp(const attn_walk *walk, const attn_args *args, void *workspace);
void attn_sched_second(const attn_walk *walk, const attn_args *args, void *workspace);
/* The gradient of a bias that is broadcast: summed in a walk of its own, in an order that threads do not change. */
void attn_sched_bias_gradient(const attn_walk *walk, const attn_args *args, void *workspace);

/* Tiles of the whole problem at its full lengths (explicit offsets count as 0), and its visible (query, key) pairs.  Exact up to
 * 2^18 query tiles a head; beyond, from as many of them, evenly spaced. */
typedef struct attn_tile_count {
    int64_t total, visited, modified;
    double pairs;
} attn_tile_count;
void attn_walk_count(const attn_walk *walk, attn_tile_count *count);

#endif
