/* SPDX-License-Identifier: MIT
 * tensors.c - attn_tensor_describe and attn_plan_tensor: the table of tensors, and those of a plan, for programs. */
#include <inttypes.h>
#include <string.h>

#include "../base/error.h"
#include "../plan/linear.h"
#include "../plan/plan.h"

enum { SINCE_FIRST = 100 }; /* 0.1.0 */

const attn_tensor_family *attn_family_of(attn_family family)
{
    if (family == ATTN_FAMILY_ATTENTION) return &attn_attention_family;
    return family == ATTN_FAMILY_LINEAR ? &attn_linear_family : NULL;
}

attn_status attn_tensor_describe(attn_family family, int index, attn_tensor_description *description, attn_error *error)
{
    attn_tensor_description d = {0};
    const attn_tensor_family *table = attn_family_of(family);
    CHECK(description, ATTN_ERR_ARGUMENT, "description is NULL");
    TRY(attn_struct_check(description->struct_size, sizeof d, "attn_tensor_description", error));
    CHECK(table, ATTN_ERR_ARGUMENT, "family is %d; known: 0 (attention), 1 (linear)", (int)family);
    CHECK(index >= 0 && index < table->count, ATTN_ERR_ARGUMENT, "tensor %d does not exist; %s has %d", index, table->name,
          table->count);
    const attn_tensor_row *row = &table->rows[index];
    d.name = row->name;
    d.offset = sizeof(attn_tensors_head) + (size_t)index * sizeof(attn_input);
    memcpy(d.role, row->role, sizeof row->role);
    memcpy(d.need, row->need, sizeof row->need);
    memcpy(d.axes, row->axes, sizeof d.axes);
    d.types = attn_types_ever(row->type);
    d.gradient_of = row->gradient_of;
    d.may_alias = row->may_alias;
    d.since = SINCE_FIRST;
    attn_struct_write(description, &d, sizeof d);
    return attn_succeed(error);
}

static attn_status tell(const attn_tensor_family *family, const attn_planned_tensor *list, int count, int index,
                        attn_tensor_plan *tensor, attn_error *error)
{
    attn_tensor_plan d = {0};
    CHECK(tensor, ATTN_ERR_ARGUMENT, "tensor is NULL");
    TRY(attn_struct_check(tensor->struct_size, sizeof d, "attn_tensor_plan", error));
    CHECK(index >= 0 && index < family->count, ATTN_ERR_ARGUMENT, "tensor %d does not exist; %s has %d", index, family->name,
          family->count);
    for (int i = 0; i < count; i++) {
        const attn_planned_tensor *t = &list[i];
        if (t->number != index) continue;
        d.role = t->role;
        d.dtype = t->at.dtype;
        memcpy(d.shape, t->shape, sizeof d.shape);
        memcpy(d.stride, t->at.stride, sizeof d.stride);
        d.bytes = t->high - t->low;
    }
    attn_struct_write(tensor, &d, sizeof d);
    return attn_succeed(error);
}

attn_status attn_plan_tensor(const attn_plan *plan, int index, attn_tensor_plan *tensor, attn_error *error)
{
    CHECK(plan, ATTN_ERR_ARGUMENT, "plan is NULL");
    return tell(&attn_attention_family, plan->tensor, plan->tensors, index, tensor, error);
}

attn_status attn_linear_plan_tensor(const attn_linear_plan *plan, int index, attn_tensor_plan *tensor, attn_error *error)
{
    CHECK(plan, ATTN_ERR_ARGUMENT, "plan is NULL");
    return tell(&attn_linear_family, plan->tensor, plan->tensors, index, tensor, error);
}
