/* SPDX-License-Identifier: MIT
 *
 * linear_walk.h - a plan of linear attention over ranks; a run of it, and walks of states over the parts of all ranks, which a
 * chain (linear_run.c) and a scan (linear_scan.h) make in their own ways. */
#ifndef ATTN_DISTRIBUTED_LINEAR_WALK_H
#define ATTN_DISTRIBUTED_LINEAR_WALK_H

#include "linear_pass.h"
#include "link.h"

/* What an execution does; found by one that only counts. */
typedef struct attn_linear_needs {
    int64_t requests; /* messages under way at the same time */
    int64_t messages, bytes, calls;
} attn_linear_needs;

struct attn_distributed_linear_plan {
    attn_linear_passes passes;
    attn_linear_plan *own; /* of all tokens of the rank in one call: it checks what executions are given */
    attn_transport transport;
    attn_isa isa;
    int me, ranks;
    attn_linear_needs needs;
    size_t workspace;
};

/* How the workspace is divided. */
typedef struct attn_linear_memory {
    char *lengths; /* [parts of keys + 1][batch]: of each part, and of the rank */
    void **requests;
    char *states, *gradients; /* [copies][groups][passes.group] */
    char *scan;               /* linear_scan.h */
    char *call;
} attn_linear_memory;

/* A run, or a count of what a run does. */
typedef struct attn_linear_running {
    const attn_distributed_linear_plan *plan;
    const attn_linear_tensors *mine; /* NULL: counts */
    attn_linear_memory memory;
    attn_link link;
    int64_t calls;
    attn_status failed; /* of the first call that failed; messages go on, so that no rank waits for ever */
    attn_error *error;
} attn_linear_running;

/* A caller's tensor of states and that of their sums, by their offsets. */
typedef struct attn_state_slots {
    size_t state, sum;
} attn_state_slots;

/* A walk in which the state of each group, or its gradient, moves over the parts of one rank after another. */
typedef struct attn_state_walk {
    attn_pass_kind kind;
    int reverse; /* 1: from the last part to the first */
    int open;    /* 1: where the walk ends nobody needs what has moved */
    int tag;
    attn_state_slots begin; /* what it begins with */
} attn_state_walk;

/* A call of the library on part n and group g of the rank. */
void attn_linear_call(attn_linear_running *r, attn_pass_kind kind, int64_t g, int64_t n, const attn_pass_states *states);
/* Copies what a walk begins with. */
void attn_linear_load(attn_linear_running *r, attn_state_slots slots, int64_t g, char *memory);
/* Where what moves is before call number `step` of a rank; after its last one, what it leaves. */
char *attn_linear_moving_at(const attn_linear_running *r, const attn_state_walk *w, int64_t step, int64_t g);

/* States are kept before each part, for backward; else one copy moves along.  Gradients: two copies take turns, since a call reads
 * one and writes another. */
int64_t attn_linear_state_copies(const attn_linear_passes *passes);
size_t attn_linear_copy_bytes(const attn_linear_passes *passes);
char *attn_linear_state_at(const attn_linear_running *r, int64_t copy, int64_t g);
char *attn_linear_gradient_at(const attn_linear_running *r, int64_t copy, int64_t g);

#endif
