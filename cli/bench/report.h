/* SPDX-License-Identifier: MIT
 *
 * report.h - results as a table for people, as JSON, and as CSV.
 */
#ifndef ATTN_CLI_BENCH_REPORT_H
#define ATTN_CLI_BENCH_REPORT_H

#include <cjson/cJSON.h>

#include "result.h"

typedef struct report {
    ceilings *ceilings;
    double seconds; /* of samples for each problem, as requested */
    const result *results;
    int count;
    int samples;        /* 1: the JSON has the time of each sample */
    const int *base;    /* of each result, the one that its speed-up is over */
    int64_t iterations; /* calls of each, one by one; 0: for `seconds` */
} report;

/* All of it, for JSON and CSV; report_json prints it. */
cJSON *report_object(const report *r);

void report_text(const report *r);
void report_json(const report *r);

/* Writes the file whole or not at all. */
attn_status report_csv(const report *r, const char *path, attn_error *error);

#endif
