/* SPDX-License-Identifier: MIT
 * scheduled.c - a schedule for a combination. */
#include "test.h"

#include "combination.h"

enum { TAIL = 64 }; /* guard bytes after the schedule */

/* It takes no more workspace than its plan. */
const attn_schedule *combination_schedule(const combination *c, const attn_plan *plan, const attn_tensors *tensors, void **memory)
{
    const attn_schedule *schedule;
    const size_t size = attn_schedule_size(plan);
    attn_error error;
    unsigned char *at = malloc(size + TAIL);
    assert_non_null(at);
    memset(at, 0xff, size + TAIL);
    if (attn_schedule_make(&schedule, plan, tensors, at, size, NULL, &error) != ATTN_OK) fail_msg("%s: %s", c->text, error.message);
    for (size_t i = size; i < size + TAIL; i++) assert_int_equal(at[i], 0xff);
    assert_true(attn_schedule_workspace_size(schedule) <= attn_plan_workspace_size(plan));
    *memory = at;
    return schedule;
}
