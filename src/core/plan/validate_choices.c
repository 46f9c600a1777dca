/* SPDX-License-Identifier: MIT
 * validate_choices.c - the rules of lists of each key head and of trees of drafts. */
#include <inttypes.h>

#include "../base/checked.h"
#include "../base/error.h"
#include "../base/features.h"
#include "plan.h"

/* Lists of each key head. */
static attn_status check_lists_of_heads(const attn_resolved *p, attn_error *error)
{
    const attn_feature_set with_lists = ATTN_USES(INVARIANT) | ATTN_USES(REPRODUCIBLE) | ATTN_USES(CHOICES) | ATTN_USES(CAUSAL) |
                                        ATTN_USES(ALIGNED) | ATTN_USES(WINDOW) | ATTN_USES(CHUNK) | ATTN_USES(LENGTHS) |
                                        ATTN_USES(PACKED) | ATTN_USES(RAGGED) | ATTN_USES(PAGED) | ATTN_USES(RANGES) |
                                        ATTN_USES(LEAST_DISTANCE) | ATTN_USES(MASK) | ATTN_USES(TREE) | ATTN_USES(BIAS) |
                                        ATTN_USES(BIAS_TABLE) | ATTN_USES(ALIBI) | ATTN_USES(SINK) | ATTN_USES(SOFTCAP) |
                                        ATTN_USES(SCALES) | ATTN_USES(QUANTISED) | ATTN_USES(GROUPS);
    int64_t lists;
    if (!p->mask.block_heads) return ATTN_OK;
    CHECK_TENSOR(p->has.block_starts, ATTN_SLOT_block_starts, ATTN_ERR_ARGUMENT,
                 "mask.block_heads is 1 and block_starts is not set");
    CHECK(p->op == ATTN_FORWARD, ATTN_ERR_UNSUPPORTED,
          "mask.block_heads is 1 and op is not ATTN_FORWARD; lists of each key head have no gradients");
    CHECK(!p->has.origin, ATTN_ERR_UNSUPPORTED,
          "mask.block_heads is 1 and the call has an origin; lists of each key head are those of a whole problem");
    CHECK_TENSOR(attn_mul(p->shape.batch, p->shape.heads_kv, &lists) && attn_mul(lists, attn_lists_of_head(p), &lists) &&
                     lists < INT64_MAX,
                 ATTN_SLOT_block_starts, ATTN_ERR_SHAPE, "block_starts has more lists than 64 bits can count");
    const char *beside = attn_has_choices(p) ? attn_feature_missing(attn_features_of(p), with_lists) : NULL;
    CHECK(!beside, ATTN_ERR_UNSUPPORTED, "mask.block_heads is 1, so that each key head goes over a list of its own, and %s",
          beside);
    return ATTN_OK;
}

static attn_status check_tree(const attn_resolved *p, attn_error *error)
{
    CHECK(p->mask.tree_keys >= 0, ATTN_ERR_ARGUMENT, "mask.tree_keys is %" PRId64 "; it must be at least 1, or 0 for none",
          p->mask.tree_keys);
    CHECK_TENSOR(!p->has.tree == !p->mask.tree_keys, ATTN_SLOT_tree, ATTN_ERR_ARGUMENT,
                 "tree is %s and mask.tree_keys is %" PRId64 "; set both or neither", p->has.tree ? "set" : "not set",
                 p->mask.tree_keys);
    CHECK_TENSOR(!p->has.tree || !p->has.origin, ATTN_SLOT_tree, ATTN_ERR_UNSUPPORTED,
                 "tree is set and the call has an origin, whose last keys are those of a part");
    return ATTN_OK;
}

attn_status attn_choices_validate(const attn_resolved *p, attn_error *error)
{
    TRY(check_lists_of_heads(p, error));
    return check_tree(p, error);
}
