/* SPDX-License-Identifier: MIT
 *
 * run.h - a plan for the cells of a rank, and what happens in what order: the keys of one rank after another arrive, are used in
 * cells and go on, while results are combined.  The same code counts, without numbers, what a plan has to provide. */
#ifndef ATTN_DISTRIBUTED_RUN_H
#define ATTN_DISTRIBUTED_RUN_H

#include "cell.h"
#include "choose.h"
#include "tree.h"

/* What an execution needs and does; found by one that only counts. */
typedef struct attn_run_needs {
    int64_t slots[ATTN_NODE_KINDS]; /* nodes that wait at the same time */
    int64_t requests;
    size_t arriving; /* bytes of the keys of one step */
    size_t home;     /* bytes of the rank's own keys, as messages */
    int64_t cells, messages, bytes;
} attn_run_needs;

/* Where heads are divided (heads.h), the plan that the caller has is about what ranks own, and that of `heads`, with other ranks,
 * about what is computed. */
struct attn_distributed_plan {
    attn_cells cells;
    attn_transport transport; /* ranks 1: unused */
    attn_way way;
    int me, ranks, first, apart; /* rank n of these is rank first + n apart of the transport */
    int members;                 /* ranks that divide the heads among themselves; 1: none do */
    struct attn_heads *heads;    /* NULL: all heads are computed where their tokens are */
    struct attn_runs *runs;      /* NULL: one run does all (runs.h) */
    /* NULL: all heads at once.  Otherwise what runs: a plan of one key head, `rounds` times (gather.h). */
    struct attn_distributed_plan *head;
    int gathers; /* this is such a plan */
    int64_t rounds;
    attn_owned own;
    int64_t queries, keys;      /* tokens of the rank */
    int64_t most_kv;            /* parts of keys of the rank that has the most */
    attn_split_machine machine; /* of predictions */
    int divided;                /* 1: heads can be divided, as far as this rank knows */
    attn_choice choice;         /* as asked for, or by predictions */
    attn_run_needs needs;
    int64_t cells_most, cells_total;
    size_t workspace;
    void *memory, *numbers, *lists; /* of the arrays */
};

/* Plans the cells of this rank, and counts: cells but for their plans, transport, way and ranks are filled in. */
attn_status attn_run_plan(attn_distributed_plan *plan, attn_error *error);

/* Bytes of workspace for attn_run, with numbers or without. */
size_t attn_run_bytes(const attn_distributed_plan *plan, int counts);

/* Checks that these do not overflow. */
attn_status attn_run_fits(const attn_distributed_plan *plan, attn_error *error);

/* Runs the plan with plan->needs.  If a cell fails, all messages are exchanged nevertheless; the transport failed if this returns
 * ATTN_ERR_IO. */
attn_status attn_run(const attn_distributed_plan *plan, const attn_tensors *mine, void *workspace, attn_error *error);

/* Counts into *needs what a run does; *enough = 0 if plan->needs.slots are too few for that. */
attn_status attn_run_count(const attn_distributed_plan *plan, void *workspace, attn_run_needs *needs, int *enough,
                           attn_error *error);

#endif
