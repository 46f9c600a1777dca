/* SPDX-License-Identifier: MIT
 *
 * result.h - the results of a candidate's samples and the ceilings around them.  docs/benchmarks.md explains each number.
 */
#ifndef ATTN_CLI_BENCH_RESULT_H
#define ATTN_CLI_BENCH_RESULT_H

#include "candidate.h"
#include "ceiling.h"

/* A figure at the median time and at the best decile (the p10 of time). */
typedef struct typical {
    double median, best;
} typical;

typedef struct result {
    const candidate *candidate;
    double p10, median, p90, p95, p99, p999; /* seconds of one call */
    double least, most, mean, deviation;     /* deviation: the standard deviation */
    typical gflops, gbs;                     /* 1e9 per second */
    typical share_of_ceiling;                /* of the FMA loop of the same instruction set and compute type; NaN without one */
    typical share_of_stream;                 /* of plain reads from where the tensors lie */
    double ceiling_gflops, stream_gbs;       /* medians of what the samples were compared with */
    ceiling_kind stream;
    int stream_bound; /* 1: at the ceilings' speed, reading would take longer than computing */
    double tokens_per_second;
    double estimate_bytes; /* tensors, workspace and plan */
    double scores_bytes;   /* what a matrix of all scores would take in the compute type */
} result;

/* The ceilings that a candidate is compared with; fma may be NULL. */
typedef struct own_ceilings {
    ceiling *fma, *stream;
    int stream_bound;
    int reads; /* 1: reading takes a quarter of the time of computing or more, so each sample comes with one of reads */
} own_ceilings;
own_ceilings own_ceilings_of(ceilings *all, const candidate *c);

result result_of(const candidate *c, const own_ceilings *r);

#endif
