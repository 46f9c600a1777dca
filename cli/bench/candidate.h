/* SPDX-License-Identifier: MIT
 *
 * candidate.h - one problem, planned, with its data and a workspace, ready to be timed repeatedly.
 */
#ifndef ATTN_CLI_BENCH_CANDIDATE_H
#define ATTN_CLI_BENCH_CANDIDATE_H

#include "cli/base/options.h"
#include "cli/measure/statistics.h"
#include "data.h"

typedef struct candidate {
    char text[512]; /* the problem string, in its shortest form */
    attn_problem problem;
    data data;
    attn_plan *plan;
    struct linear_candidate *linear; /* instead of plan, for linear attention; NULL: none */
    attn_plan_description plan_says;
    void *workspace, *schedule; /* schedule: of the lengths of the data, NULL: none */
    size_t schedule_bytes;
    double flops;

    int64_t calls;  /* in one sample */
    int warm;       /* 1: as many untimed calls precede each sample */
    series seconds; /* of one call, a mean over the calls of each sample */
    series
        stream; /* bytes per second of plain reads of the tensors, one before each sample, if memory traffic matters; else empty */
    double spent; /* seconds in all samples */

    size_t plan_bytes;
    int64_t extra_bytes; /* memory that the first call took besides the tensors, as the operating system counts it; -1: unknown */
    int64_t peak_bytes;  /* of the whole process, tensors and program included; -1: unknown */
} candidate;

/* Draws the data, plans, runs once to measure memory, and finds how many calls make a sample. */
attn_status candidate_create(candidate *c, const problem_spec *spec, const common_settings *settings, attn_error *error);
void candidate_destroy(candidate *c);

/* Takes one sample. */
void candidate_sample(candidate *c);

#endif
