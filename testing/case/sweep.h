/* SPDX-License-Identifier: MIT
 *
 * sweep.h - the cases that `attn check` runs when none are given.
 *
 * All combinations would be too many.  So every value of every dimension occurs at least once with the others drawn at random,
 * pairs that are known to matter (option x numbers, option x poison, option x memory) occur in all combinations, and more cases are
 * drawn freely.  The same seed gives the same cases.
 */
#ifndef ATTN_TESTING_CASE_SWEEP_H
#define ATTN_TESTING_CASE_SWEEP_H

#include "case.h"

typedef struct sweep {
    check_case *cases;
    int64_t count, capacity;
    int failed; /* 1: out of memory */
} sweep;

/* The largest tile of the kernels that will run: query lengths go to twice tile_q, key lengths past twice block_kv. */
typedef struct sweep_tile {
    int64_t tile_q, block_kv;
} sweep_tile;

/* Returns 0 if out of memory. */
int sweep_create(sweep *s, sweep_tile tile, uint64_t seed, int thorough);
void sweep_destroy(sweep *s);

#endif
