/* SPDX-License-Identifier: MIT
 * read.c - from the caller's problem, tensors and call to what the inside has of them, before any rule is checked. */
#include <string.h>

#include "../base/error.h"
#include "plan.h"

attn_status attn_problem_read(attn_resolved *ours, const attn_problem *problem, const attn_tensors *tensors, attn_error *error)
{
    attn_problem p;
    attn_call call = {.struct_size = 0};
    TRY(attn_struct_read(&p, sizeof p, sizeof p, problem, "attn_problem", error));
    memset(ours, 0, sizeof *ours);
    ours->op = p.op;
    ours->shape = p.shape;
    ours->score = p.score;
    ours->mask = p.mask;
    ours->dropout = p.dropout;
    ours->outputs = p.outputs;
    ours->paging = p.paging;
    ours->bias_table = p.bias_table;
    ours->relative = p.relative;
    _Static_assert(offsetof(attn_presence, modifier) == ATTN_SLOTS, "one byte a tensor, first");
    TRY(attn_slots_presence(&attn_attention_family, tensors, (unsigned char *)&ours->has, error));
    if (tensors->call) TRY(attn_struct_read(&call, sizeof call, sizeof call, tensors->call, "attn_call", error));
    ours->has.modifier = call.modify_scores != NULL;
    ours->has.rows = call.visit_rows != NULL;
    ours->has.origin = call.origin != NULL;
    CHECK(call.modify_scores || !call.modify_slopes, ATTN_ERR_ARGUMENT,
          "call.modify_slopes is there and call.modify_scores is NULL");
    return ATTN_OK;
}
