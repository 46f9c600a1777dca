/* SPDX-License-Identifier: MIT
 * walks.h - the walks by name, and what each supports: walks.def, as numbers. */
#ifndef ATTN_WALK_WALKS_H
#define ATTN_WALK_WALKS_H

#include "../base/features.h"

typedef enum attn_walk_kind {
#define WALK(name, operation, supported) ATTN_WALK_##name,
#include "walks.def"
#undef WALK
    ATTN_WALKS
} attn_walk_kind;

typedef struct attn_walk_row {
    const char *name; /* "DECODE" */
    attn_op op;
    attn_feature_set supported;
} attn_walk_row;

extern const attn_walk_row attn_walk_rows[ATTN_WALKS];

/* NULL, or the sentence of what keeps the problem from a walk of its operation. */
static inline const char *attn_walk_refusal(attn_walk_kind kind, const attn_resolved *p)
{
    return attn_feature_missing(attn_features_of(p), attn_walk_rows[kind].supported);
}

/* The walk of the operation that takes what all others leave: the last of its rows. */
attn_walk_kind attn_walk_widest(attn_op op);

/* NULL where some walk of its operation has all that the problem uses; else the sentence of what the last and widest one lacks. */
const char *attn_walks_refusal(const attn_resolved *p);

#endif
