/* SPDX-License-Identifier: MIT
 * walks.c - the list of walks, expanded from walks.def. */
#include "walks.h"

static const attn_walk_type *const walks[] = {
#define WALK(name) &attn_walk_##name,
#include "walks.def"
#undef WALK
    NULL};

const attn_walk_type *attn_walk_at(int index) { return walks[index]; }

const char *attn_walks_rejection(const attn_resolved *p)
{
    const attn_feature_set used = attn_features_of(p);
    const char *sentence = "no walk implements this operation";
    const attn_walk_type *type;
    for (int n = 0; sentence && (type = attn_walk_at(n)); n++)
        if (type->op == p->op) sentence = attn_feature_missing(used, type->supported);
    return sentence;
}
