/* SPDX-License-Identifier: MIT
 * walks.c - the table of walks, expanded from walks.def. */
#include "walks.h"

const attn_walk_row attn_walk_rows[ATTN_WALKS] = {
#define WALK(name, operation, supported) [ATTN_WALK_##name] = {#name, operation, supported},
#include "walks.def"
#undef WALK
};

attn_walk_kind attn_walk_widest(attn_op op)
{
    int kind = ATTN_WALKS - 1;
    while (kind > 0 && attn_walk_rows[kind].op != op) kind--;
    return (attn_walk_kind)kind;
}

const char *attn_walks_refusal(const attn_resolved *p)
{
    const char *sentence = "there is no walk";
    for (int kind = 0; kind < ATTN_WALKS && sentence; kind++)
        if (attn_walk_rows[kind].op == p->op) sentence = attn_walk_refusal((attn_walk_kind)kind, p);
    return sentence;
}
