/* SPDX-License-Identifier: MIT
 *
 * report.h - what a run of checks found, for people or as JSON (spec: `attn check --json`).
 */
#ifndef ATTN_TESTING_VERDICT_REPORT_H
#define ATTN_TESTING_VERDICT_REPORT_H

#include <cjson/cJSON.h>
#include <stdint.h>

#include "run.h"

typedef struct report {
    cJSON *object, *cases; /* NULL: for people */
    int64_t passed, failed, skipped;
} report;

/* One check.  reason may be empty (passed); problem may be NULL where the check never became a problem. */
typedef struct report_entry {
    const char *suite, *name, *problem, *reason;
    check_status status;
    double max_error, bound_fraction;
} report_entry;

void report_begin(report *r, int json);
/* Counts; writes an object of the list for JSON, and for people one line on standard output if it failed. */
void report_add(report *r, const report_entry *entry);
/* Prints the object or the last line; returns the exit status. */
int report_end(report *r);
/* Frees it unprinted. */
void report_drop(report *r);

#endif
