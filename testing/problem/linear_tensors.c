/* SPDX-License-Identifier: MIT
 * linear_tensors.c - the library's table of tensors of linear attention. */
#include "linear_tensors.h"

#include <stdio.h>
#include <string.h>

const attn_tensor_description *linear_about(int t)
{
    static attn_tensor_description table[LINEARS];
    if (!table[t].name) {
        table[t].struct_size = sizeof table[t];
        (void)attn_tensor_describe(ATTN_FAMILY_LINEAR, t, &table[t], NULL);
    }
    return &table[t];
}

attn_output *linear_slot(attn_linear_tensors *all, int t) { return (attn_output *)(void *)&all->q + t; }
void linear_request(attn_linear_tensors *all, int t) { linear_slot(all, t)->data = ATTN_LATER; }

attn_linear_tensors linear_of_op(const attn_linear_problem *p, const attn_linear_tensors *all)
{
    attn_linear_tensors some = *all;
    const int undivided = p->op == ATTN_BACKWARD && p->denominator == ATTN_DENOMINATOR_NONE;
    for (int t = 0; t < LINEARS; t++)
        if (linear_about(t)->role[p->op] == ATTN_ROLE_NONE) *linear_slot(&some, t) = (attn_output){0};
    if (undivided) some.o = some.denominators = (attn_output){0};
    return some;
}

const char *linear_file_name(int t)
{
    static char made[LINEARS][32];
    const char *name = linear_about(t)->name;
    if (t == LINEAR(feature_matrix)) return "omega";
    if (strncmp(name, "grad_", 5) != 0) return name;
    snprintf(made[t], sizeof made[t], "d%s", name + 5);
    return made[t];
}

attn_status linear_plan(attn_linear_plan **plan, const attn_linear_problem *p, attn_linear_tensors *all,
                        const attn_options *options, linear_take *take, void *context, attn_error *error)
{
    const attn_linear_tensors some = linear_of_op(p, all);
    attn_status status = attn_linear_plan_create(plan, p, &some, options, error);
    for (int t = 0; t < LINEARS && status == ATTN_OK; t++) {
        attn_tensor_plan about = {.struct_size = sizeof about};
        attn_output *slot = linear_slot(all, t);
        if (slot->data != ATTN_LATER) continue;
        status = attn_linear_plan_tensor(*plan, t, &about, error);
        if (status != ATTN_OK || about.role == ATTN_ROLE_NONE) continue;
        void *memory = take(context, t, &about);
        if (memory) slot->data = memory;
    }
    return status;
}
