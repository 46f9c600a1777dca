/* SPDX-License-Identifier: MIT
 *
 * visible.h - which keys a query sees, as far as causality, windows and lengths decide it: for each query an interval.
 * Intervals move forward with the query, so a tile's keys follow from its first and last query.
 */
#ifndef ATTN_SCHED_VISIBLE_H
#define ATTN_SCHED_VISIBLE_H

#include "attn/attn.h"

/* One batch entry. */
typedef struct attn_sight {
    int64_t len_q, len_kv;
    int64_t first_q, first_kv; /* token 0 of this entry in packed tensors; 0 otherwise */
    int64_t offset;            /* query i stands at key i + offset */
    int64_t left, right;       /* keeps keys from i + offset - left to i + offset + right; INT64_MAX is no bound */
    int64_t chunk;             /* keeps keys of the same chunk; 0 is none */
} attn_sight;

typedef struct attn_interval {
    int64_t low, high; /* keys low <= j < high; low == high where there is none */
} attn_interval;

/* args may be NULL: then lengths are full and an explicit offset is 0. */
attn_sight attn_sight_of(const attn_problem *problem, const attn_args *args, int64_t b);

/* The keys that query i sees. */
attn_interval attn_keys_of_query(const attn_sight *sight, int64_t i);

/* The keys that at least one of the queries first .. first+rows-1 sees. */
attn_interval attn_keys_of_tile(const attn_sight *sight, int64_t first, int64_t rows);

/* 1 if each of these queries sees all of the keys low .. high-1. */
int attn_tile_sees_all(const attn_sight *sight, int64_t first, int64_t rows, int64_t low, int64_t high);

#endif
