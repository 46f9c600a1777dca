/* SPDX-License-Identifier: MIT
 * place.c - how the tensors of a check lie in memory. */
#include <string.h>

#include "call.h"

static tensor_plan plan_of(const check_case *c, int which)
{
    static const int bhsd[4] = {0, 1, 2, 3}, bshd[4] = {0, 2, 1, 3};
    static const int mixed[][4] = {
        [T_Q] = {0, 2, 1, 3},   [T_K] = {2, 0, 1, 3},       [T_V] = {1, 2, 0, 3},    [T_O] = {2, 1, 0, 3},
        [T_LSE] = {2, 0, 1, 3}, [T_WEIGHTS] = {2, 0, 1, 3}, [T_MASK] = {3, 2, 0, 1}, [T_BIAS] = {0, 1, 3, 2}};
    const int pairs = which >= T_WEIGHTS;
    tensor_plan plan = {.inner = 1};
    memcpy(plan.order, c->memory == MEMORY_MIXED ? mixed[which] : c->spec.order == SPEC_BSHD && !pairs ? bshd : bhsd, sizeof bhsd);
    switch (c->memory) {
    case MEMORY_PADDED:
        memcpy(plan.gap, (int64_t[4]){5 + which, 2, 3, which % 2 ? 1 : 7}, sizeof plan.gap);
        plan.shift = 1;
        if (which >= T_MASK) plan.inner = 2;
        break;
    case MEMORY_BACKWARD:
        plan.backward[0] = plan.backward[1] = plan.backward[2] = 1;
        plan.backward[3] = which >= T_MASK;
        plan.side = GUARD_BEFORE;
        plan.shift = which % 2;
        break;
    case MEMORY_BROADCAST:
        if (which == T_K || which == T_V) plan.broadcast[0] = plan.broadcast[1] = 1;
        plan.shift = 3;
        break;
    case MEMORY_MIXED:
        plan.gap[2] = which;
        break;
    default:
        break;
    }
    const int one = which == T_MASK ? c->spec.mask_one : which == T_BIAS ? c->spec.bias_one : 0;
    for (int axis = 0; axis < 4; axis++)
        if (one & 1 << axis) plan.broadcast[axis] = 1;
    return plan;
}

int place_tensor(tensor *t, attn_layout *layout, attn_dtype dtype, const int64_t size[4], const check_case *c, int which,
                 int64_t tokens)
{
    tensor_plan plan = plan_of(c, which);
    const int64_t whole[4] = {tokens < 0 ? size[0] : 1, size[1], tokens < 0 ? size[2] : tokens, size[3]};
    const int natural = tokens < 0 ? 1 : 2; /* the second axis where all strides are 0: heads, or packed tokens */
    if (tokens >= 0) plan.broadcast[0] = 0;
    if (!tensor_create(t, dtype, whole, &plan)) return 0;
    *layout = t->layout;
    int broadcasts = 0;
    for (int axis = 0; axis < 4; axis++) broadcasts |= plan.broadcast[axis];
    if (c->memory == MEMORY_DENSE && plan.order[1] == natural && !broadcasts) memset(layout->stride, 0, sizeof layout->stride);
    return 1;
}

void *token_at(const tensor *t, const int64_t *begin, int64_t b, int64_t h, int64_t i, int64_t c)
{
    if (!begin) return tensor_at(t, b, h, i, c);
    return begin[b] + i < begin[b + 1] ? tensor_at(t, 0, h, begin[b] + i, c) : NULL;
}
