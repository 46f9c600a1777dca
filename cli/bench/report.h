/* SPDX-License-Identifier: MIT
 *
 * report.h - results as a table for people, as JSON, and as CSV.
 */
#ifndef ATTN_CLI_BENCH_REPORT_H
#define ATTN_CLI_BENCH_REPORT_H

#include "result.h"

typedef struct report {
    ceilings *ceilings;
    double seconds; /* of samples for each problem, as requested */
    const result *results;
    int count;
    int samples; /* 1: the JSON has the time of each sample */
} report;

void report_text(const report *r);
void report_json(const report *r);

/* Writes the file whole or not at all. */
attn_status report_csv(const report *r, const char *path, attn_error *error);

#endif
