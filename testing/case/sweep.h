/* SPDX-License-Identifier: MIT
 *
 * sweep.h - which cases `attn check` runs when it is given none.
 *
 * All combinations would be too many.  So every value of every dimension comes once or more with the others drawn at random, pairs
 * that are known to matter (option x numbers, option x poison, option x memory) come in all combinations, and more cases are drawn
 * freely.  The same seed gives the same cases.
 */
#ifndef ATTN_TESTING_CASE_SWEEP_H
#define ATTN_TESTING_CASE_SWEEP_H

#include "case.h"

typedef struct sweep {
    check_case *cases;
    int64_t count, room;
    int failed; /* 1: out of memory */
} sweep;

/* The largest tile of the kernels that will run: query lengths go to twice tile_q, key lengths past twice block_kv. */
typedef struct sweep_tile {
    int64_t tile_q, block_kv;
} sweep_tile;

/* 0 where memory is out. */
int sweep_create(sweep *s, sweep_tile tile, uint64_t seed, int thorough);
void sweep_destroy(sweep *s);

#endif
