/* SPDX-License-Identifier: MIT
 * read.c - from the caller's problem, tensors and call to the internal structs, before any rule is checked. */
#include <string.h>

#include "../base/error.h"
#include "plan.h"

attn_status attn_problem_read(attn_resolved *resolved, const attn_problem *problem, const attn_tensors *tensors, attn_error *error)
{
    attn_problem p;
    attn_call call = {.struct_size = 0};
    TRY(attn_struct_read(&p, sizeof p, sizeof p, problem, "attn_problem", error));
    memset(resolved, 0, sizeof *resolved);
    resolved->op = p.op;
    resolved->shape = p.shape;
    resolved->score = p.score;
    resolved->mask = p.mask;
    resolved->dropout = p.dropout;
    resolved->outputs = p.outputs;
    resolved->paging = p.paging;
    resolved->bias_table = p.bias_table;
    resolved->relative = p.relative;
    _Static_assert(offsetof(attn_presence, modifier) == ATTN_SLOTS, "one byte a tensor, first");
    TRY(attn_slots_presence(&attn_attention_family, tensors, (unsigned char *)&resolved->has, error));
    if (tensors->call) TRY(attn_struct_read(&call, sizeof call, sizeof call, tensors->call, "attn_call", error));
    resolved->has.modifier = call.modify_scores != NULL;
    resolved->has.rows = call.visit_rows != NULL;
    resolved->has.origin = call.origin != NULL;
    CHECK(call.modify_scores || !call.modify_slopes, ATTN_ERR_ARGUMENT, "call.modify_slopes is set and call.modify_scores is NULL");
    return ATTN_OK;
}
