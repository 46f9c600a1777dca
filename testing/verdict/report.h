/* SPDX-License-Identifier: MIT
 *
 * report.h - the results of a run of checks, as text or JSON (spec: `attn check --json`).
 */
#ifndef ATTN_TESTING_VERDICT_REPORT_H
#define ATTN_TESTING_VERDICT_REPORT_H

#include <cjson/cJSON.h>
#include <stdint.h>

#include "run.h"

typedef struct report {
    cJSON *object, *cases; /* NULL: as text */
    int64_t passed, failed, skipped;
} report;

/* One check.  reason may be empty (passed); problem may be NULL if the check never became a problem. */
typedef struct report_entry {
    const char *suite, *name, *problem, *reason;
    check_status status;
    double max_error, bound_fraction;
} report_entry;

void report_begin(report *r, int json);
/* Counts the check; as JSON adds it to the list, as text prints it on standard output if it failed. */
void report_add(report *r, const report_entry *entry);
/* Prints the object or the summary line; returns the exit status. */
int report_end(report *r);
/* Frees the report without printing it. */
void report_drop(report *r);

#endif
