/* SPDX-License-Identifier: MIT
 *
 * lengths.h - lengths, beginnings and positions of the sequences of a measured problem. */
#ifndef ATTN_CLI_MEASURE_LENGTHS_H
#define ATTN_CLI_MEASURE_LENGTHS_H

#include "testing/problem/problem.h"
#include "testing/problem/tensors.h"
#include "testing/random/random.h"

typedef struct batch_lengths {
    const int64_t *q, *kv; /* of each batch entry; NULL: full */
    int64_t total[2];      /* tokens of packed queries and keys; else 0 */
    int64_t tokens;        /* queries of the whole batch */
    double pairs;          /* visible (query, key) pairs; see work.h */
    /* private */
    int64_t *of_packed[2];
} batch_lengths;

/* The memory of tensor t. */
typedef void *lengths_memory(void *context, int t, size_t bytes);

/* Draws the lengths, beginnings and offsets that the problem has, as i64, into memory of `allocate`, and sets their slots: lengths
 * lie between 1 (keys: those of the prefix that all share, or of the drafts) and the full length, offsets between 0 and len_kv -
 * len_q unless the string names one. */
void lengths_draw(batch_lengths *l, const problem_spec *spec, const attn_problem *p, attn_tensors *tensors, random_state *random,
                  lengths_memory *allocate, void *context);
void lengths_free(batch_lengths *l);

#endif
