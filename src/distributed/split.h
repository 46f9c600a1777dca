/* SPDX-License-Identifier: MIT
 * split.h - which rank owns a part. */
#ifndef ATTN_DISTRIBUTED_SPLIT_H
#define ATTN_DISTRIBUTED_SPLIT_H

#include "attn/distributed.h"

/* A copy with its defaults; NULL is all defaults. */
attn_status attn_split_read(attn_split *copy, const attn_split *caller, attn_error *error);
/* Checks the number of parts of an axis of `tokens` tokens, and that it has owners. */
attn_status attn_split_check(const attn_split *split, int64_t tokens, attn_axis axis, const char *name, attn_error *error);

/* 1 if ranks divide the heads. */
static inline int attn_split_has_heads(const attn_split *split)
{
    return split->way == ATTN_WAY_HEADS || split->way == ATTN_WAY_HEADS_RING;
}

/* 1 if heads are computed apart: what sums over heads is not there then. */
static inline int attn_split_heads_apart(const attn_split *split)
{
    return attn_split_has_heads(split) || split->way == ATTN_WAY_GATHER;
}

/* How many ranks divide the heads among themselves; 1: none do. */
attn_status attn_split_members(const attn_split *split, int64_t heads_kv, int ranks, int *members, attn_error *error);

/* Whether the way has the operation. */
attn_status attn_split_check_op(const attn_split *split, attn_op op, attn_error *error);

/* 1 if each rank has all of an axis. */
static inline int attn_split_is_everywhere(const attn_split *split, attn_axis axis)
{
    return split->way == ATTN_WAY_SPLIT_KEYS && axis == ATTN_AXIS_QUERY;
}

/* The owner of part n of `count`, 0 for what each rank has; with ATTN_LAYOUT_OWNERS what the caller says, unchecked. */
int32_t attn_split_owner(const attn_split *split, attn_axis axis, int64_t n, int64_t count, int ranks);
/* Checks that. */
attn_status attn_split_check_owner(int32_t owner, attn_axis axis, int64_t n, int ranks, attn_error *error);

#endif
