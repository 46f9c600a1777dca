/* SPDX-License-Identifier: MIT
 * soak.h - the work of the soak's threads: plans, a cache, a layer, over and over.  soak.c is the program, soak_work.c the work.
 */
#ifndef ATTN_TESTS_SOAK_H
#define ATTN_TESTS_SOAK_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum { REMEMBERED = 64 };

/* Shared by all threads. */
typedef struct soak_totals {
    atomic_llong plans, rejected, tokens, evictions, layers, short_of_memory, too_large, compared;
    atomic_llong blocks;             /* that were allocated and not released */
    uint64_t first_bits[REMEMBERED]; /* of the problems 0, 1, ... at the start */
    uint64_t first_layer;            /* of the layer */
    int limited;                     /* address space has a limit: larger problems must be rejected */
    uint64_t seed;
} soak_totals;

typedef struct soak_worker soak_worker;

soak_worker *soak_worker_new(soak_totals *totals, int number);
void soak_worker_step(soak_worker *w); /* one problem, some tokens, and sometimes a layer; ends the program if one is wrong */
void soak_worker_free(soak_worker *w);

/* Computes the results that later ones are compared with. */
void soak_remember(soak_totals *totals);

/* Runs one problem and returns a hash of its bits; 0 if it was rejected. */
uint64_t soak_problem(soak_totals *totals, uint64_t number);

#endif
