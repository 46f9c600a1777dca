/* SPDX-License-Identifier: MIT
 * place.c - the memory layout of a check's tensors. */
#include <string.h>

#include "call.h"

enum kind { LIKE_Q, LIKE_K, LIKE_V, LIKE_O, LIKE_LSE, LIKE_WEIGHTS, LIKE_MASK, LIKE_BIAS };

/* An incoming gradient or tangent is laid out like its tensor. */
static enum kind kind_of(attn_op op, int t)
{
    const attn_tensor_description *d = tensors_about(t);
    const int in = d->role[op] == ATTN_ROLE_INPUT, like = in && d->gradient_of >= 0 ? d->gradient_of : t;
    if (like == TENSOR(q)) return LIKE_Q;
    if (like == TENSOR(k) || like == TENSOR(k_scale) || like == TENSOR(k_tail)) return LIKE_K;
    if (like == TENSOR(v) || like == TENSOR(v_scale)) return LIKE_V;
    if (like == TENSOR(bias)) return LIKE_BIAS;
    if (tensors_packs(t)) return d->axes[3] == ATTN_AXIS_ONE ? LIKE_LSE : LIKE_O;
    return in ? LIKE_MASK : LIKE_WEIGHTS;
}

/* Arrays allow only dense strides; input tables need no others. */
static int is_array(attn_op op, int t)
{
    const attn_tensor_description *d = tensors_about(t);
    return d->axes[2] == ATTN_AXIS_ONE || (d->role[op] == ATTN_ROLE_INPUT && d->axes[0] == ATTN_AXIS_ONE);
}

static tensor_plan plan_of(const check_case *c, enum kind kind, int array)
{
    static const int bhsd[4] = {0, 1, 2, 3}, bshd[4] = {0, 2, 1, 3};
    static const int mixed[][4] = {
        [LIKE_Q] = {0, 2, 1, 3},   [LIKE_K] = {2, 0, 1, 3},       [LIKE_V] = {1, 2, 0, 3},    [LIKE_O] = {2, 1, 0, 3},
        [LIKE_LSE] = {2, 0, 1, 3}, [LIKE_WEIGHTS] = {2, 0, 1, 3}, [LIKE_MASK] = {3, 2, 0, 1}, [LIKE_BIAS] = {0, 1, 3, 2}};
    const int pairs = kind >= LIKE_WEIGHTS, gap = (int)kind;
    tensor_plan plan = {.inner = 1};
    const case_memory memory = array ? MEMORY_DENSE : c->memory;
    memcpy(plan.order,
           memory == MEMORY_MIXED                           ? mixed[kind]
           : c->spec.order == SPEC_BSHD && !pairs && !array ? bshd
                                                            : bhsd,
           sizeof bhsd);
    switch (memory) {
    case MEMORY_PADDED:
        memcpy(plan.gap, (int64_t[4]){5 + gap, 2, 3, gap % 2 ? 1 : 7}, sizeof plan.gap);
        plan.shift = 1;
        if (kind >= LIKE_MASK) plan.inner = 2;
        break;
    case MEMORY_BACKWARD:
        plan.backward[0] = plan.backward[1] = plan.backward[2] = 1;
        plan.backward[3] = kind >= LIKE_MASK;
        plan.side = GUARD_BEFORE;
        plan.shift = gap % 2;
        break;
    case MEMORY_BROADCAST:
        if (kind == LIKE_K || kind == LIKE_V) plan.broadcast[0] = plan.broadcast[1] = 1;
        plan.shift = 3;
        break;
    case MEMORY_MIXED:
        plan.gap[2] = gap;
        break;
    default:
        break;
    }
    return plan;
}

int place_tensor(tensor *to, check_call *call, int t, const check_case *c, int64_t tokens)
{
    const attn_problem *p = &call->problem;
    const int array = is_array(p->op, t), packed = tokens >= 0 && tensors_packs(t);
    attn_output *slot = tensors_slot(&call->tensors, t);
    tensor_plan plan = plan_of(c, kind_of(p->op, t), array);
    int64_t size[4];
    tensors_elements(p, &call->tensors, t, size);
    if (packed) size[0] = 1, size[2] = tokens;
    const int *order = plan.order, natural = packed ? 2 : 1; /* the second axis of the dense layout: heads, or packed tokens */
    const int plain = array ? !slot->stride[2] && !slot->stride[3] : c->memory == MEMORY_DENSE && order[1] == natural;
    int broadcasts = 0;
    for (int axis = 0; axis < 4; axis++) {
        if (tensors_broadcasts(&call->tensors, t, axis) && size[axis] > 1) plan.broadcast[axis] = 1;
        if (packed && axis == 0) plan.broadcast[axis] = 0;
        broadcasts |= plan.broadcast[axis] && !array;
    }
    slot->dtype = tensors_dtype(&call->tensors, t);
    if (!tensor_create(to, slot->dtype, size, &plan)) return 0;
    slot->data = to->base;
    memcpy(slot->stride, to->layout.stride, sizeof slot->stride);
    if (plain && !broadcasts) memset(slot->stride, 0, sizeof slot->stride);
    return 1;
}

void *token_at(const tensor *t, const int64_t *begin, int64_t b, int64_t h, int64_t i, int64_t c)
{
    if (!begin) return tensor_at(t, b, h, i, c);
    return begin[b] + i < begin[b + 1] ? tensor_at(t, 0, h, begin[b] + i, c) : NULL;
}
