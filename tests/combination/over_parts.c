/* SPDX-License-Identifier: MIT
 * over_parts.c - a combination over parts of its queries and keys, on one rank. */
#include "combination.h"
#include "test.h"

#include "attn/distributed.h"

int combination_run_parts(combination *c, attn_op op, int64_t part, int any_order)
{
    attn_problem problem = c->problem;
    attn_distributed_plan *plan;
    attn_error error;
    const attn_tensors tensors = tensors_of_op(&c->tensors, op);
    const attn_split split = {.struct_size = sizeof split, .part = part, .any_order = any_order};
    problem.op = op;
    const attn_status status = attn_distributed_plan_create(&plan, &problem, &tensors, &split, NULL, NULL, &error);
    if (status == ATTN_ERR_UNSUPPORTED) return 0;
    if (status != ATTN_OK) fail_msg("%s, parts of %d: %s", c->text, (int)part, error.message);
    const size_t size = attn_distributed_workspace_size(plan);
    void *workspace = malloc(size + 1);
    assert_non_null(workspace);
    memset(workspace, 0xff, size); /* NaN */
    if (attn_distributed_execute(plan, &tensors, workspace, size, &error) != ATTN_OK) fail_msg("%s: %s", c->text, error.message);
    free(workspace);
    attn_distributed_plan_destroy(plan);
    return 1;
}
