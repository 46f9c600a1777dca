/* SPDX-License-Identifier: MIT
 *
 * linear_pass.h - linear attention of one rank, in calls of the library: a part of tokens and a group of heads each, with the state
 * before them and the state after them (or its gradients) in memory of this module. */
#ifndef ATTN_DISTRIBUTED_LINEAR_PASS_H
#define ATTN_DISTRIBUTED_LINEAR_PASS_H

#include "attn/distributed_linear.h"

/* What a call computes. */
typedef enum attn_pass_kind {
    ATTN_PASS_STATES = 0,       /* the state after keys */
    ATTN_PASS_TOKENS,           /* causal: outputs, and the state after their keys */
    ATTN_PASS_QUERIES,          /* not causal: outputs, from the state of all keys */
    ATTN_PASS_BACKWARD,         /* causal: all gradients, and that of the state before */
    ATTN_PASS_BACKWARD_QUERIES, /* not causal: gradients of queries, and what they add to that of the state of all keys */
    ATTN_PASS_BACKWARD_KEYS,    /* not causal: gradients of keys, from that */
    ATTN_PASS_MAPS,             /* what keys do to any state: values are 0, and there are as many as passes.map_width */
    ATTN_PASS_KINDS
} attn_pass_kind;

/* The parts of a rank along an axis of tokens, and the ranks whose parts come before and after them. */
typedef struct attn_stretch {
    int64_t parts_total, tokens_total;
    int64_t part, parts;   /* the first one, and how many */
    int64_t first, tokens; /* of these */
    int before, after;     /* -1: no rank */
    int last;              /* the rank with the last part; -1: there are no parts */
} attn_stretch;

/* A tensor that the caller passes, as planned; role ATTN_ROLE_NONE: he does not. */
typedef struct attn_linear_bound {
    attn_tensor_description about;
    attn_tensor_plan plan;
} attn_linear_bound;

enum { ATTN_LINEAR_BOUNDS = (sizeof(attn_linear_tensors) - offsetof(attn_linear_tensors, q)) / sizeof(attn_input) };

/* How many heads a call has, and what it needs for them. */
typedef struct attn_linear_passes {
    attn_linear_problem problem; /* the whole; its form and chunk are those of calls */
    attn_linear_tensors planned; /* with ATTN_LATER */
    attn_options options;
    attn_dtype compute;
    int normalised;         /* states have sums */
    int scans;              /* 1: parts begin with states that a scan has found, not with those of the part before */
    int64_t map_width;      /* columns of the maps of a scan (affine.h) */
    int64_t part;           /* tokens of all parts but the last */
    int64_t entries, heads; /* key heads of a group, of so many batch entries */
    int64_t groups;
    int64_t dim_features;
    size_t state, sum, group; /* bytes of the states of a group, of their sums, and of both */
    attn_stretch q, kv;
    attn_linear_bound bound[ATTN_LINEAR_BOUNDS];
    attn_linear_plan *plan[ATTN_PASS_KINDS][2]; /* for a part, and for the last one if it is shorter; NULL: not needed */
    size_t workspace;                           /* of the call that needs most */
} attn_linear_passes;

/* The stretch of a rank: parts in rank order. */
attn_stretch attn_stretch_of(int64_t tokens, int64_t part, int rank, int ranks);
/* Tokens of part n (0, 1, ... of the rank). */
static inline int64_t attn_stretch_tokens(const attn_stretch *s, int64_t part, int64_t n)
{
    return n + 1 < s->parts ? part : s->tokens - n * part;
}

/* Divides the heads into groups: about 8 for each rank, so that the last rank waits for a ninth of its time. */
void attn_linear_passes_divide(attn_linear_passes *passes, int ranks);
/* Makes the plans of all calls, once everything before them is set. */
attn_status attn_linear_passes_plan(attn_linear_passes *passes, attn_error *error);
void attn_linear_passes_free(attn_linear_passes *passes);

/* Which states a call reads and writes; those that its kind does not have are NULL.  `after` may be `before`. */
typedef struct attn_pass_states {
    char *before, *after;
    char *gradient_after, *gradient_before;
    const char *values; /* of ATTN_PASS_MAPS: a row of zeros; `before` is the identity of one head */
} attn_pass_states;

/* Of group g and part n of the rank.  lengths: of the part, for each entry of the batch, in the type of the plan. */
attn_status attn_linear_pass_run(const attn_linear_passes *passes, attn_pass_kind kind, int64_t g, int64_t n,
                                 const attn_linear_tensors *mine, const char *lengths, const attn_pass_states *states,
                                 void *workspace, attn_error *error);

/* Where a state tensor of the caller is, by its offset in attn_linear_tensors, and whether there is one. */
const attn_linear_bound *attn_linear_bound_at(const attn_linear_passes *passes, size_t offset);
/* Copies the states of group g from two tensors of the caller, or to them (`store`); absent ones are zeros. */
void attn_linear_move_states(const attn_linear_passes *passes, const attn_linear_tensors *mine, size_t state, size_t sum, int64_t g,
                             char *memory, int store);

#endif
