/* SPDX-License-Identifier: MIT
 * tree.h - trees of drafts: which of the last keys of a sequence a query sees, a bit for each (attn_mask.tree_keys). */
#ifndef ATTN_TASK_TREE_H
#define ATTN_TASK_TREE_H

#include "task.h"

/* The first key that has a bit; negative in a sequence of fewer keys. */
static inline int64_t attn_tree_first(const attn_resolved *p, int64_t len_kv) { return len_kv - p->mask.tree_keys; }

/* The words of row i of the task. */
const uint64_t *attn_tree_words(const attn_task *task, int64_t i);

/* bytes[j - low] = 1 if key j of low .. high-1, which all have bits, is seen, else 0.  Returns 1 if all are. */
int attn_tree_expand(const uint64_t *words, int64_t first, int64_t low, int64_t high, unsigned char *bytes);

#endif
