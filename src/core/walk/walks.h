/* SPDX-License-Identifier: MIT
 * walks.h - the interface of a walk, and the list of all walks. */
#ifndef ATTN_WALK_WALKS_H
#define ATTN_WALK_WALKS_H

#include "../base/features.h"
#include "../task/schedule.h"
#include "../task/walk.h"

/* ---- features that several walks support ---- */

#define ATTN_USES_MASKS                                                                                                            \
    (ATTN_USES(CAUSAL) | ATTN_USES(ALIGNED) | ATTN_USES(ORIGIN) | ATTN_USES(WINDOW) | ATTN_USES(CHUNK) | ATTN_USES(LENGTHS) |      \
     ATTN_USES(PACKED) | ATTN_USES(MASK) | ATTN_USES(RANGES))
#define ATTN_USES_TILE_MASKS                                                                                                       \
    (ATTN_USES_MASKS | ATTN_USES(BLOCKS) | ATTN_USES(DILATION) | ATTN_USES(LEAST_DISTANCE) | ATTN_USES(GLOBAL) |                   \
     ATTN_USES(UNIFORM) | ATTN_USES(DROPOUT) | ATTN_USES(GROUPS) | ATTN_USES(SCALES) | ATTN_USES(INVARIANT) |                      \
     ATTN_USES(REPRODUCIBLE))
#define ATTN_USES_BIASES (ATTN_USES(BIAS) | ATTN_USES(BIAS_TABLE) | ATTN_USES(ALIBI) | ATTN_USES(SINK) | ATTN_USES(SOFTCAP))
#define ATTN_USES_SCORES                                                                                                           \
    (ATTN_USES(ADDITIVE) | ATTN_USES(PREPARED) | ATTN_USES(RELATIVE) | ATTN_USES(ELEMENTWISE) | ATTN_USES(MODIFIER))

/* ---- a walk ---- */

/* The sequences that a walk takes; the others are left to later walks. */
typedef struct attn_walk_limits {
    int64_t max_q;    /* queries */
    attn_small small; /* if not 0: of these only the small ones */
} attn_walk_limits;

/* How a schedule cuts the sequences of a walk (task/schedule.h).  Nothing here may change the bits of a result. */
typedef struct attn_walk_cut {
    /* The most pieces of a sequence; of an item; and the tasks of an item. */
    int64_t (*most)(const attn_walk *walk);
    int64_t (*group)(const attn_walk *walk);
    int64_t (*tasks)(const attn_walk *walk);
    double tasks_of_worker; /* items have fewer pieces if there are fewer tasks than that */
    /* Sets entry->pieces, and entry->skipped if there are such pieces; returns its units, which size the workspace. */
    int64_t (*pieces)(const attn_walk *walk, const attn_visibility *seen, attn_scheduled_entry *entry);
    int64_t (*cost)(const attn_walk *walk, const attn_visibility *seen, const attn_scheduled_entry *entry, const attn_item *item);
    /* Keys of a piece, which ends at a multiple of them, if one task may take a piece of several sequences; NULL: it may not. */
    int64_t (*keys_of_piece)(const attn_walk *walk);
    /* Bytes of workspace for so many units, at most those for the walk's capacity. */
    int64_t (*bytes)(const attn_walk *walk, int64_t units);
} attn_walk_cut;

typedef struct attn_walk_type {
    const char *name;
    attn_op op;
    attn_feature_set supported; /* no other feature reaches the walk, so a new one is rejected until it is listed here */
    int decodes;                /* 1: its row of kernels.def is one of decode */
    const char *why;            /* for attn_plan_description.why, if it takes all sequences; NULL: nothing */
    /* Depends on head sizes, types and options only, not on the batch around a sequence, nor on threads; `tiles` is the row of
     * kernels.def of walks over tiles.  Returns 0 if the walk takes no sequence; NULL: it takes all. */
    int (*limits)(const attn_resolved *problem, const attn_kernel_row *tiles, attn_walk_limits *limits);

    size_t size; /* of its plan, a struct that begins with an attn_walk */
    /* Completes what attn_walk_begin began.  Returns 0 if a size overflows. */
    int (*init)(attn_walk *walk, const attn_setting *setting);
    /* args: the caller's; workspace: walk->bytes, 64-byte aligned.  Cannot fail. */
    void (*run)(const attn_walk *walk, const attn_args *args, char *workspace);
    const attn_walk_cut *cut;                 /* of forward walks */
    int (*can_rotate)(const attn_walk *walk); /* 1 if args->rotation may be set; NULL: it may not */
} attn_walk_type;

#define WALK(name) extern const attn_walk_type attn_walk_##name;
#include "walks.def"
#undef WALK

/* Walk `index`, in the order of walks.def; NULL after the last one. */
const attn_walk_type *attn_walk_at(int index);

/* NULL, or a sentence that tells why this walk of the problem's operation cannot take it. */
static inline const char *attn_walk_rejection(const attn_walk_type *type, const attn_resolved *p)
{
    return attn_feature_missing(attn_features_of(p), type->supported);
}

/* NULL if some walk of the operation supports everything that the problem uses; else a sentence on what the last and widest one
 * lacks. */
const char *attn_walks_rejection(const attn_resolved *p);

#endif
