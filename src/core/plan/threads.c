/* SPDX-License-Identifier: MIT
 * threads.c - how many threads a plan is for. */
#include <stdlib.h>

#include "../base/error.h"
#include "../threads/pool.h"
#include "plan.h"

/* The number that a text is or begins with; 0 if none from 1 to the pool's most. *rest: what follows it. */
static int number_of(const char *text, const char **rest)
{
    char *end;
    const long number = strtol(text, &end, 10);
    *rest = end;
    return end == text || number < 1 || number > ATTN_POOL_MOST ? 0 : (int)number;
}

attn_status attn_threads_choose(int given, int *threads, attn_error *error)
{
    const char *rest;
    *threads = given;
    if (given) return ATTN_OK;
    const char *const ours = getenv("ATTN_THREADS");
    if (ours && *ours) {
        *threads = number_of(ours, &rest);
        CHECK(*threads && !*rest, ATTN_ERR_ARGUMENT, "the environment variable ATTN_THREADS is '%s'; it is a number from 1 to %d",
              ours, ATTN_POOL_MOST);
        return ATTN_OK;
    }
    const char *const openmp = getenv("OMP_NUM_THREADS");
    if (openmp) *threads = number_of(openmp, &rest); /* of a list, the first; what OpenMP would not take is no concern of ours */
    if (!*threads) *threads = attn_pool_cpus();
    return ATTN_OK;
}
