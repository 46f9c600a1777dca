/* SPDX-License-Identifier: MIT
 *
 * bound.h - the tensors of a rank: which of them the problem has, how each is spread over the ranks, and its layout.  Everything
 * follows from the table of tensors (attn_tensor_describe). */
#ifndef ATTN_DISTRIBUTED_BOUND_H
#define ATTN_DISTRIBUTED_BOUND_H

#include "grid.h"

/* What of a tensor a rank has, by its axes. */
typedef enum attn_spread {
    ATTN_SPREAD_SAME = 0, /* all of it, as every rank: slopes, tables, scales */
    ATTN_SPREAD_QUERIES,  /* the rows of its queries */
    ATTN_SPREAD_KEYS,     /* the rows of its keys */
    ATTN_SPREAD_PAIRS,    /* the rows of its queries, with all keys: masks, biases */
    ATTN_SPREAD_BLOCKS,   /* the same in blocks */
    ATTN_SPREAD_ENTRIES,  /* of packed sequences, a mask or bias for each: all of it; cells get the one of their sequence */
    ATTN_SPREAD_INDEX     /* lengths, offsets, lists: all of it; cells get their own */
} attn_spread;

typedef struct attn_bound {
    int index;     /* of attn_tensor_describe */
    size_t offset; /* of the slot in attn_tensors */
    attn_role role;
    attn_spread spread;
    attn_dtype dtype;            /* the caller's */
    int64_t shape[4], stride[4]; /* of the rank's tensor */
    int has_elements;            /* if not, its strides may be any; also not of results that the caller does not want */
    int in_ranges;   /* 1: a sum of which a cell has the numbers of its own tokens and sequence alone: for what others share
                      */
    int shares;      /* of what has a number for each pair: bit n is set if all elements along axis n are one */
    int of_heads_kv; /* axis 1 has the heads of keys, and not of queries */
    int64_t width;   /* numbers of a token and head, of ATTN_SPREAD_QUERIES and _KEYS */
    const char *name;
} attn_bound;

enum { ATTN_BOUND = 80 };
_Static_assert(sizeof(attn_tensors) / sizeof(attn_input) <= ATTN_BOUND, "all tensors have a place");

typedef struct attn_bounds {
    attn_bound all[ATTN_BOUND];
    int count;
    attn_dtype compute; /* f32 or f64 */
    int64_t starts;     /* how many numbers cu_seqlens_q and _kv have each: cells have none of these; 0: they are absent */
} attn_bounds;

/* problem: the whole, with ATTN_ALIGN_TOP_LEFT.  tensors: what the rank passes, of which only presence, types and strides are
 * read.  queries and keys: tokens of the rank. */
attn_status attn_bounds_fill(attn_bounds *bounds, const attn_problem *problem, const attn_tensors *tensors, int64_t part,
                             int64_t queries, int64_t keys, const attn_options *options, attn_error *error);

/* The tensor at an offset of attn_tensors; NULL: it is not there. */
static inline const attn_bound *attn_bound_find(const attn_bounds *bounds, size_t offset)
{
    for (const attn_bound *b = bounds->all; b < bounds->all + bounds->count; b++)
        if (b->offset == offset) return b;
    return NULL;
}

/* One that is there. */
static inline const attn_bound *attn_bound_get(const attn_bounds *bounds, size_t offset)
{
    const attn_bound *b = bounds->all;
    while (b->offset != offset) b++;
    return b;
}

/* 1 if all ranks have all of a tensor, and no tokens are theirs alone. */
static inline int attn_bound_is_same(const attn_bound *b)
{
    return b->spread == ATTN_SPREAD_SAME || b->spread == ATTN_SPREAD_ENTRIES;
}

static inline attn_input attn_bound_slot(const attn_bound *b, const attn_tensors *t)
{
    return *(const attn_input *)(const void *)((const char *)t + b->offset);
}

/* A copy of tensors->call; all zeros if that is NULL. */
attn_status attn_bounds_read_call(attn_call *copy, const attn_tensors *tensors, attn_error *error);
/* Checks a call, and that it has the functions that the plan was made with. */
attn_status attn_bounds_check_call(const attn_call *planned, const attn_call *call, attn_op op, attn_error *error);

/* Memory of the caller beside the tensors. */
typedef struct attn_scratch {
    void *data;
    size_t bytes;
} attn_scratch;

/* Checks that the tensors of an execution are those that were planned, and that neither an output nor the workspace shares elements
 * with another tensor. */
attn_status attn_bounds_check(const attn_bounds *bounds, const attn_tensors *planned, const attn_tensors *tensors,
                              attn_scratch workspace, attn_error *error);

#endif
