/* SPDX-License-Identifier: MIT
 *
 * options.h - what each option of a problem costs. */
#ifndef ATTN_CLI_EXPLAIN_OPTIONS_H
#define ATTN_CLI_EXPLAIN_OPTIONS_H

#include "attn/attn.h"

/* One option that the problem has. */
typedef struct option_cost {
    const char *name;
    const char *cost; /* a phrase */
    int fused;        /* 1: done inside the walk over the tiles, in the cache; 0: a walk of its own */
    int64_t bytes;    /* of memory that the option reads or writes besides q, k, v and o */
} option_cost;

enum { MAX_COSTS = 48 };

/* Fills list, in the order in which the options act on a score; returns how many there are. */
int option_costs(const attn_problem *problem, const attn_tensors *tensors, const attn_plan *plan, option_cost list[MAX_COSTS]);

#endif
