/* SPDX-License-Identifier: MIT
 * tree.c - the bits of a tree of drafts, as bytes. */
#include "tree.h"

const uint64_t *attn_tree_words(const attn_task *task, int64_t i)
{
    const attn_resolved *p = &task->walk->problem;
    const attn_visibility *v = &task->visibility;
    const int64_t *stride = p->at.tree.stride, query = v->rows_of_query > 1 ? i / v->rows_of_query : i;
    return (const uint64_t *)task->args->tree + task->b * stride[0] + (v->first_q + query) * stride[2];
}

int attn_tree_expand(const uint64_t *words, int64_t first, int64_t low, int64_t high, unsigned char *bytes)
{
    unsigned all = 1;
    for (int64_t j = low; j < high; j++) {
        const int64_t k = j - first;
        const unsigned bit = (unsigned)(words[k / 64] >> (k % 64) & 1);
        bytes[j - low] = (unsigned char)bit;
        all &= bit;
    }
    return (int)all;
}
