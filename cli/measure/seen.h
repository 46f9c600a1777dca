/* SPDX-License-Identifier: MIT
 *
 * seen.h - which keys a query sees by the fields of attn_mask, ranges and lists of blocks: for counting pairs and tiles.  Boolean
 * masks and biases hide more. */
#ifndef ATTN_CLI_MEASURE_SEEN_H
#define ATTN_CLI_MEASURE_SEEN_H

#include "attn/attn.h"

/* Keys low <= j < high; none if low >= high. */
typedef struct seen_interval {
    int64_t low, high;
} seen_interval;

typedef struct seen_rules {
    attn_mask mask;
    int64_t len_kv;
    const int64_t *ranges;         /* [queries][2], for all heads; NULL: none */
    const int64_t *starts, *index; /* lists of blocks; starts NULL: none */
} seen_rules;

/* Rules of a problem for an entry of len_kv keys; ranges and lists are those of tensors that have i64 data, as sparse_put gives it
 * (NULL: none). */
seen_rules seen_rules_of(const attn_problem *problem, const attn_tensors *tensors, int64_t len_kv);

/* The interval around query i at this position, and the global keys before it that it does not contain; dilation and lists leave
 * some of their keys. */
void seen_keys(const seen_rules *rules, int64_t i, int64_t position, seen_interval *near, seen_interval *global);

/* How many keys that is. */
double seen_count(const seen_rules *rules, int64_t i, int64_t position);

#endif
