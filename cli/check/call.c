/* SPDX-License-Identifier: MIT
 * call.c - builds the tensors of a check case. */
#include "call.h"

#include <stdlib.h>
#include <string.h>

#include "../failure.h"
#include "element.h"
#include "fill.h"
#include "random.h"

/* The layouts of tensor number `which` (q, k, v, o, lse, weights, mask, bias) under the case's kind of memory. */
enum { T_Q, T_K, T_V, T_O, T_LSE, T_WEIGHTS, T_MASK, T_BIAS };

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

/* Creates a tensor and tells the problem its layout: as zeros where it is the plain one, to test that too. */
static int place(tensor *t, attn_layout *layout, attn_dtype dtype, const int64_t size[4], const check_case *c, int which)
{
    const tensor_plan plan = plan_of(c, which);
    if (!tensor_create(t, dtype, size, &plan)) return 0;
    *layout = t->layout;
    int broadcasts = 0;
    for (int axis = 0; axis < 4; axis++) broadcasts |= plan.broadcast[axis];
    if (c->memory == MEMORY_DENSE && plan.order[1] == 1 && !broadcasts) memset(layout->stride, 0, sizeof layout->stride);
    return 1;
}

/* An index array, of which every fourth entry is the lowest or the highest. */
static int draw_index(guarded *array, const check_case *c, int64_t low, int64_t high, random_state *random)
{
    const size_t bytes = c->index32 ? 4 : 8;
    const int64_t n = c->spec.shape.batch;
    if (!guarded_create(array, (size_t)n * bytes, GUARD_AFTER, 0)) return 0;
    for (int64_t b = 0; b < n; b++) {
        const int64_t pick = random_below(random, 8);
        const int64_t value = pick == 0 ? low : pick == 1 ? high : random_between(random, low, high);
        const int32_t narrow = (int32_t)value;
        memcpy(array->data + (size_t)b * bytes, c->index32 ? (const void *)&narrow : (const void *)&value, bytes);
    }
    return 1;
}

static int create_index(check_call *call, const check_case *c, random_state *random)
{
    attn_problem *p = &call->problem;
    const attn_shape *s = &p->shape;
    int ok = 1;
    p->mask.index_dtype = c->index32 ? ATTN_I32 : ATTN_I64;
    if (p->mask.lengths_q) ok &= draw_index(&call->lengths_q, c, 0, s->len_q, random);
    if (p->mask.lengths_kv) ok &= draw_index(&call->lengths_kv, c, 0, s->len_kv, random);
    if (p->mask.align == ATTN_ALIGN_OFFSET) {
        const int each = c->spec.offset_kind == SPEC_OFFSET_EACH;
        ok &= draw_index(&call->offset, c, each ? -s->len_q - 1 : c->spec.offset, each ? s->len_kv + 1 : c->spec.offset, random);
    }
    call->args.lengths_q = call->lengths_q.data;
    call->args.lengths_kv = call->lengths_kv.data;
    call->args.offset = call->offset.data;
    return ok;
}

static int create_tensors(check_call *call, const check_case *c)
{
    attn_problem *p = &call->problem;
    const tensor_sizes sizes = tensor_sizes_of(&p->shape);
    const attn_dtype q = problem_dtype(&c->spec);
    int ok = place(&call->q, &p->q, q, sizes.q, c, T_Q) && place(&call->k, &p->k, c->k_dtype ? c->k_dtype : q, sizes.k, c, T_K) &&
             place(&call->v, &p->v, c->v_dtype ? c->v_dtype : q, sizes.v, c, T_V);
    p->o.dtype = c->o_dtype ? c->o_dtype : q;
    if (ok && p->mask.boolean) ok = place(&call->mask, &p->mask.mask, ATTN_BOOL, sizes.weights, c, T_MASK);
    if (ok && p->bias.additive) {
        const attn_dtype compute = q == ATTN_F64 ? ATTN_F64 : ATTN_F32;
        ok = place(&call->bias, &p->bias.bias, c->bias_dtype ? c->bias_dtype : compute, sizes.weights, c, T_BIAS);
    }
    call->args.q = call->q.base;
    call->args.k = call->k.base;
    call->args.v = call->v.base;
    call->args.mask = call->mask.base;
    call->args.bias = call->bias.base;
    return ok;
}

attn_status check_call_create(check_call *call, const check_case *c, attn_error *error)
{
    *call = (check_call){.args.struct_size = sizeof call->args};
    problem_spec spec = c->spec;
    attn_status status = problem_build(&spec, &call->problem, error);
    if (status != ATTN_OK) return status;

    random_state random = {c->spec.seed * 2 + 1};
    int ok = create_index(call, c, &random) && create_tensors(call, c);
    if (ok) {
        fill_tensors(call, c, &random);
        if (call->problem.mask.boolean) fill_mask(&call->mask, c->spec.mask_drop, &random);
        if (call->problem.bias.additive) fill_bias(&call->bias, c, &random);
        fill_plant(call, c, &random);
        ok = expectation_create(&call->expected, &call->problem, &call->args);
    }
    if (!ok) {
        check_call_destroy(call);
        return failure(error, ATTN_ERR_MEMORY, "out of memory for the tensors of a check");
    }
    fill_poison(call, c);
    guarded *inputs[] = {&call->q.block,    &call->k.block,   &call->v.block,    &call->mask.block,
                         &call->bias.block, &call->lengths_q, &call->lengths_kv, &call->offset};
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
        if (inputs[i]->map) guarded_freeze(inputs[i]);
    return ATTN_OK;
}

void check_call_destroy(check_call *call)
{
    tensor_destroy(&call->q);
    tensor_destroy(&call->k);
    tensor_destroy(&call->v);
    tensor_destroy(&call->mask);
    tensor_destroy(&call->bias);
    guarded_destroy(&call->lengths_q);
    guarded_destroy(&call->lengths_kv);
    guarded_destroy(&call->offset);
    expectation_destroy(&call->expected);
    *call = (check_call){0};
}

int check_outputs_create(check_outputs *out, check_call *call, const check_case *c)
{
    attn_problem *p = &call->problem;
    const tensor_sizes sizes = tensor_sizes_of(&p->shape);
    const attn_dtype compute = call->expected.compute;
    *out = (check_outputs){0};
    int ok = place(&out->o, &p->o, p->o.dtype, sizes.o, c, T_O);
    if (ok && p->want.lse) ok = place(&out->lse, &p->want.lse_layout, compute, sizes.lse, c, T_LSE);
    if (ok && p->want.weights) ok = place(&out->weights, &p->want.weights_layout, compute, sizes.weights, c, T_WEIGHTS);
    out->O = calloc((size_t)tensor_count(sizes.o) + 1, sizeof(double));
    if (p->want.lse) out->L = calloc((size_t)tensor_count(sizes.lse) + 1, sizeof(double));
    if (p->want.weights) out->P = calloc((size_t)tensor_count(sizes.weights) + 1, sizeof(double));
    if (!ok || !out->O || (p->want.lse && !out->L) || (p->want.weights && !out->P)) {
        check_outputs_destroy(out);
        return 0;
    }
    call->args.o = out->o.base;
    call->args.lse = out->lse.base;
    call->args.weights = out->weights.base;
    return 1;
}

const char *check_outputs_take(check_outputs *out)
{
    const char *spilled = NULL;
    if (!tensor_take(&out->o, out->O)) spilled = "o";
    if (out->L && !tensor_take(&out->lse, out->L)) spilled = "lse";
    if (out->P && !tensor_take(&out->weights, out->P)) spilled = "weights";
    return spilled;
}

void check_outputs_destroy(check_outputs *out)
{
    tensor_destroy(&out->o);
    tensor_destroy(&out->lse);
    tensor_destroy(&out->weights);
    free(out->O);
    free(out->L);
    free(out->P);
    *out = (check_outputs){0};
}
