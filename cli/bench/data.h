/* SPDX-License-Identifier: MIT
 *
 * data.h - the tensors of a problem, drawn from its seed.
 */
#ifndef ATTN_CLI_BENCH_DATA_H
#define ATTN_CLI_BENCH_DATA_H

#include "testing/problem/sparse.h"
#include "testing/problem/tensors.h"
#include "testing/random/random.h"

enum { MORE_BLOCKS = 8 }; /* of data_keep, beside the tensors of a problem; without one, TENSORS more */

typedef struct data {
    attn_tensors tensors;
    attn_call call;
    int64_t tokens; /* queries of the whole batch */
    double pairs;   /* visible (query, key) pairs; see work.h */
    double bytes;   /* of all tensors, each once */
    int64_t pages;  /* of keys and values that lengths fill and memory exists for, at most those of the problem */
    /* private */
    sparse_mask mask; /* of sparse= */
    random_state random;
    void *block[TENSORS + MORE_BLOCKS];
    size_t block_bytes[TENSORS + MORE_BLOCKS];
    int blocks;
} data;

/*
 * Draws everything that the problem reads and allocates what it writes, all of it touched.  Numbers are those of draw.h, lengths
 * those of lengths.h.  Operations after forward find the o and lse that forward computes, with the same options.
 */
attn_status data_create(data *d, const problem_spec *spec, const attn_problem *problem, const attn_tensors *tensors,
                        const attn_options *options, attn_error *error);
void data_destroy(data *d);

/* Memory that belongs to the data and counts as theirs: for kinds whose tensors are not those of a problem. */
void *data_keep(data *d, size_t bytes);

#endif
