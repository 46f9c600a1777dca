/* SPDX-License-Identifier: MIT
 *
 * run.h - one check case on one kernel: plans, executes in guarded memory, compares.
 */
#ifndef ATTN_TESTING_VERDICT_RUN_H
#define ATTN_TESTING_VERDICT_RUN_H

#include "testing/bound/compare.h"
#include "testing/case/call.h"

typedef enum check_status { CHECK_PASSED, CHECK_FAILED, CHECK_SKIPPED } check_status;

const char *check_status_name(check_status status); /* "passed", ... */

typedef struct check_result {
    check_status status;
    char kernel[48];
    comparison numbers;
    char reason[320]; /* why it failed or was skipped */
} check_result;

/* How to run it. */
typedef struct check_setting {
    attn_options options;                              /* with the instruction set and threads */
    void (*tamper)(check_outputs *out, void *context); /* modifies outputs before the comparison: proves that checks can fail */
    void *tamper_context;
} check_setting;

/* Ends the program if out of memory (end_out_of_memory). */
void check_run(check_result *result, check_call *call, const check_case *c, const check_setting *setting);

/* Builds the call and runs it; for a single case. */
void check_run_case(check_result *result, const check_case *c, const check_setting *setting);

#endif
