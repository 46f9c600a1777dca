/* SPDX-License-Identifier: MIT
 *
 * measure.h - takes samples of all problems and all ceilings, interleaved.
 */
#ifndef ATTN_CLI_BENCH_MEASURE_H
#define ATTN_CLI_BENCH_MEASURE_H

#include "result.h"

/* The first samples of all ceilings: NEARBY of each, or fewer where those before took as long as `seconds`; at least one. */
void measure_ceilings(ceilings *all, double seconds);

/* What every candidate has at the end: seconds of samples, and as many samples. */
typedef struct measure_limit {
    double seconds;
    int64_t samples;
} measure_limit;

/* Samples until every candidate has reached the limit.  The next sample is always of the candidate with the least time so far,
 * right after samples of the ceilings that it is compared with; so problems of any length share all states of the machine. Ceilings
 * take no more time than the candidates, by more than a sample of each: on a busy machine, threads that wait for each other take
 * long. */
void measure(candidate *candidates, const own_ceilings *against, int count, ceilings *all, const measure_limit *limit, int quiet);

#endif
