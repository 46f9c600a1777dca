/* SPDX-License-Identifier: MIT
 * threads.c - the number of threads of a plan. */
#include <stdlib.h>

#include "../base/error.h"
#include "../threads/pool.h"
#include "plan.h"

/* The number at the start of a text; 0 if there is none from 1 to ATTN_POOL_MAX.  *rest: what follows it. */
static int number_of(const char *text, const char **rest)
{
    char *end;
    const long number = strtol(text, &end, 10);
    *rest = end;
    return end == text || number < 1 || number > ATTN_POOL_MAX ? 0 : (int)number;
}

attn_status attn_threads_choose(int given, int *threads, attn_error *error)
{
    const char *rest;
    *threads = given;
    if (given) return ATTN_OK;
    const char *const variable = getenv("ATTN_THREADS");
    if (variable && *variable) {
        *threads = number_of(variable, &rest);
        CHECK(*threads && !*rest, ATTN_ERR_ARGUMENT,
              "the environment variable ATTN_THREADS is '%s'; it must be a number from 1 to %d", variable, ATTN_POOL_MAX);
        return ATTN_OK;
    }
    const char *const openmp = getenv("OMP_NUM_THREADS");
    if (openmp) *threads = number_of(openmp, &rest); /* the first of a list; what OpenMP would reject is ignored */
    if (!*threads) *threads = attn_pool_cpus();
    return ATTN_OK;
}
