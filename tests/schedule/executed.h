/* SPDX-License-Identifier: MIT
 * executed.h - an execution in a workspace of exactly its size, whose memory is of no use before. */
#ifndef ATTN_TESTS_SCHEDULE_EXECUTED_H
#define ATTN_TESTS_SCHEDULE_EXECUTED_H

#include "test.h"

static inline void execute_in(const attn_plan *plan, const attn_tensors *tensors, size_t bytes)
{
    attn_error error;
    void *workspace = malloc(bytes + 1);
    assert_non_null(workspace);
    memset(workspace, 0xff, bytes);
    if (attn_execute(plan, tensors, workspace, bytes, &error) != ATTN_OK) fail_msg("%s", error.message);
    free(workspace);
}

#endif
