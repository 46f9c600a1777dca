/* SPDX-License-Identifier: MIT
 * parts.c - see parts.h. */
#include "parts.h"

#include <attn/distributed.h>
#include <stdio.h>
#include <stdlib.h>

attn_status xla_compute_parts(const attn_problem *problem, const attn_tensors *tensors, int64_t part, const attn_options *options,
                              attn_error *error)
{
    const attn_split split = {.struct_size = sizeof split, .part = part};
    attn_distributed_plan *plan;
    attn_status status = attn_distributed_plan_create(&plan, problem, tensors, &split, NULL, options, error);
    if (status) return status;
    const size_t size = attn_distributed_workspace_size(plan);
    void *workspace = malloc(size);
    if (workspace) status = attn_distributed_execute(plan, tensors, workspace, size, error);
    else {
        *error = (attn_error){.status = status = ATTN_ERR_MEMORY, .tensor = -1, .other = -1};
        snprintf(error->message, sizeof error->message, "cannot allocate a workspace of %zu bytes", size);
    }
    free(workspace);
    attn_distributed_plan_destroy(plan);
    return status;
}
