/* SPDX-License-Identifier: MIT
 *
 * predicted.h - the problems that are both planned and predicted (test_model.c, test_times.c). */
#ifndef ATTN_TESTS_DISTRIBUTED_PREDICTED_H
#define ATTN_TESTS_DISTRIBUTED_PREDICTED_H

#include "attn/distributed.h"

enum { PREDICTED_HEADS = 6, PREDICTED_HEADS_KV = 3, PREDICTED_DIM = 8 };

typedef struct problem_case {
    const char *name;
    int64_t queries, keys;
    attn_mask mask;
    int has_sink, documents; /* has_sink -1: and no heads; documents -1: two entries, with offsets */
    attn_dtype dtype;
    int bias; /* 1: that all queries share, 2: all keys; of each head: 3, 4, 5: none; 6: all heads; with its gradient, but for 6 */
} problem_case;

extern const problem_case predicted[];
extern const int predicted_count;

/* A machine that does not merge. */
extern const attn_split_machine predicted_machine;

attn_problem predicted_problem(const problem_case *c, attn_op op);
/* Of a rank, or the whole, with so many tokens; all pointers are ATTN_LATER or ATTN_EMPTY. */
attn_tensors predicted_tensors(const problem_case *c, attn_op op, int64_t queries, int64_t keys);

/* Fails if it is rejected. */
attn_split_prediction predicted_by(const problem_case *c, attn_op op, const attn_split *split, int ranks, attn_split_machine m);

#endif
