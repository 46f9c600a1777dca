/* SPDX-License-Identifier: MIT
 *
 * schedule.h - the word `schedule` of `attn explain`: what a schedule of the problem contains. */
#ifndef ATTN_CLI_EXPLAIN_SCHEDULE_H
#define ATTN_CLI_EXPLAIN_SCHEDULE_H

#include <cjson/cJSON.h>

#include "attn/schedule.h"
#include "testing/problem/problem.h"

typedef struct schedule_facts {
    attn_schedule_description description;
    size_t bytes; /* of memory, for any lengths */
} schedule_facts;

/* Makes the schedule of the lengths that `attn bench` draws from the seed, for so many threads. */
attn_status schedule_explain(schedule_facts *facts, const problem_spec *spec, const attn_problem *problem,
                             const attn_tensors *tensors, const attn_plan *plan, int threads, attn_error *error);

void schedule_print(const schedule_facts *facts, int threads);
/* The object `schedule`. */
void schedule_json(cJSON *object, const schedule_facts *facts);

#endif
