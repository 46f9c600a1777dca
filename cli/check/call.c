/* SPDX-License-Identifier: MIT
 * call.c - the inputs of a check case. */
#include "call.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../failure.h"
#include "element.h"
#include "fill.h"
#include "random.h"

/* ---- lengths and offsets ---- */

static void write_index(guarded *array, const check_case *c, int64_t n, int64_t value)
{
    const int32_t narrow = (int32_t)value;
    const size_t bytes = c->index32 ? 4 : 8;
    memcpy(array->data + (size_t)n * bytes, c->index32 ? (const void *)&narrow : (const void *)&value, bytes);
}

/* Of every four entries, one is the lowest or the highest. */
static int64_t draw_between(int64_t low, int64_t high, random_state *random)
{
    const int64_t pick = random_below(random, 8);
    return pick == 0 ? low : pick == 1 ? high : random_between(random, low, high);
}

static int draw_index(guarded *array, const check_case *c, int64_t low, int64_t high, random_state *random)
{
    const int64_t n = c->spec.shape.batch;
    if (!guarded_create(array, (size_t)n * (c->index32 ? 4 : 8), GUARD_AFTER, 0)) return 0;
    for (int64_t b = 0; b < n; b++) write_index(array, c, b, draw_between(low, high, random));
    return 1;
}

/* Where packed sequences begin.  The first one is as long as the shape says. */
static int draw_begins(guarded *array, const check_case *c, int64_t longest, int64_t *total, random_state *random)
{
    const int64_t n = c->spec.shape.batch;
    *total = 0;
    if (!guarded_create(array, (size_t)(n + 1) * (c->index32 ? 4 : 8), GUARD_AFTER, 0)) return 0;
    write_index(array, c, 0, 0);
    for (int64_t b = 0; b < n; b++) {
        *total += b ? draw_between(0, longest, random) : longest;
        write_index(array, c, b + 1, *total);
    }
    return 1;
}

/* Tokens of all packed sequences; -1: not packed. */
typedef struct totals {
    int64_t q, kv;
} totals;

static int create_index(check_call *call, const check_case *c, totals *all, random_state *random)
{
    attn_problem *p = &call->problem;
    const attn_shape *s = &p->shape;
    int ok = 1;
    *all = (totals){-1, -1};
    p->mask.index_dtype = c->index32 ? ATTN_I32 : ATTN_I64;
    if (p->mask.packed)
        ok &= draw_begins(&call->begin_q, c, s->len_q, &all->q, random) &&
              draw_begins(&call->begin_kv, c, s->len_kv, &all->kv, random);
    if (p->mask.lengths_q) ok &= draw_index(&call->lengths_q, c, 0, s->len_q, random);
    if (p->mask.lengths_kv) ok &= draw_index(&call->lengths_kv, c, 0, s->len_kv, random);
    if (p->mask.align == ATTN_ALIGN_OFFSET) {
        const int each = c->spec.offset_kind == SPEC_OFFSET_EACH;
        ok &= draw_index(&call->offset, c, each ? -s->len_q - 1 : c->spec.offset, each ? s->len_kv + 1 : c->spec.offset, random);
    }
    call->args.lengths_q = call->lengths_q.data;
    call->args.lengths_kv = call->lengths_kv.data;
    call->args.offset = call->offset.data;
    call->args.cu_seqlens_q = call->begin_q.data;
    call->args.cu_seqlens_kv = call->begin_kv.data;
    return ok;
}

/* ---- tensors ---- */

static int create_tensors(check_call *call, const check_case *c, totals all)
{
    attn_problem *p = &call->problem;
    attn_args *a = &call->args;
    const attn_shape *s = &p->shape;
    const tensor_sizes sizes = tensor_sizes_of(p);
    const attn_dtype q = problem_dtype(&c->spec), compute = q == ATTN_F64 ? ATTN_F64 : ATTN_F32;
    int ok = place_tensor(&call->q, &p->q, q, sizes.q, c, T_Q, all.q) &&
             place_tensor(&call->k, &p->k, c->k_dtype ? c->k_dtype : p->k.dtype, sizes.k, c, T_K, all.kv) &&
             place_tensor(&call->v, &p->v, c->v_dtype ? c->v_dtype : p->v.dtype, sizes.v, c, T_V, all.kv);
    const int64_t scales[4] = {s->batch, s->heads_kv, s->len_kv, 1};
    if (p->k.dtype == ATTN_I8) ok = ok && place_tensor(&call->k_scale, &p->quantised.k_scale, ATTN_F32, scales, c, T_K, all.kv);
    if (p->v.dtype == ATTN_I8) ok = ok && place_tensor(&call->v_scale, &p->quantised.v_scale, ATTN_F32, scales, c, T_V, all.kv);
    p->o.dtype = c->o_dtype ? c->o_dtype : q;
    if (p->mask.boolean) ok = ok && place_tensor(&call->mask, &p->mask.mask, ATTN_BOOL, sizes.weights, c, T_MASK, -1);
    if (p->mask.block) {
        const int64_t size[4] = {s->batch, s->heads_q, problem_blocks(s->len_q, p->mask.block_q),
                                 problem_blocks(s->len_kv, p->mask.block_kv)};
        check_case like_mask = *c;
        like_mask.spec.mask_one = c->spec.block_one;
        ok = ok && place_tensor(&call->blocks, &p->mask.blocks, ATTN_BOOL, size, &like_mask, T_MASK, -1);
    }
    if (p->bias.additive)
        ok = ok && place_tensor(&call->bias, &p->bias.bias, c->bias_dtype ? c->bias_dtype : compute, sizes.weights, c, T_BIAS, -1);
    for (int f = 0; ok && f < FLOW_OUTPUTS; f++) {
        static const int which[] = {T_O, T_LSE, T_Q, T_K, T_V, T_BIAS};
        int64_t size[4];
        if (!flow_used((flow)f, p)) continue;
        flow_size((flow)f, p, size);
        const int64_t tokens = !flow_has_tokens((flow)f) ? -1 : flow_of_keys((flow)f) ? all.kv : all.q;
        ok = place_tensor(&call->flow[f], flow_layout((flow)f, p), flow_dtype((flow)f, p), size, c, which[f], tokens);
        flow_point((flow)f, a, call->flow[f].base);
    }
    a->q = call->q.base;
    a->k = call->k.base;
    a->v = call->v.base;
    a->k_scale = call->k_scale.base;
    a->v_scale = call->v_scale.base;
    a->mask = call->mask.base;
    a->blocks = call->blocks.base;
    a->bias = call->bias.base;
    return ok;
}

/* `count` numbers of the compute type. */
static int create_array(guarded *array, attn_dtype compute, int64_t count, double spread, double least, random_state *random)
{
    const size_t bytes = attn_dtype_size(compute);
    if (!guarded_create(array, (size_t)count * bytes, GUARD_AFTER, 0)) return 0;
    for (int64_t n = 0; n < count; n++)
        element_write(compute, array->data + (size_t)n * bytes, least + spread * random_unit(random));
    return 1;
}

/* Slopes as trained models have them, sinks about as large as scores, scales around the usual one. */
static int create_arrays(check_call *call, random_state *random)
{
    const attn_problem *p = &call->problem;
    const attn_shape *s = &p->shape;
    const attn_dtype compute = p->q.dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32;
    const int64_t slopes = p->bias.alibi == ATTN_ALIBI_BATCH_HEAD ? s->batch * s->heads_q : s->heads_q;
    int ok = 1;
    if (p->bias.alibi) ok &= create_array(&call->slopes, compute, slopes, 0.6, -0.1, random);
    if (p->bias.sink) ok &= create_array(&call->sink, compute, s->heads_q, 8, -4, random);
    if (p->score.scale_kind == ATTN_SCALE_PER_HEAD) ok &= create_array(&call->scale, compute, s->heads_q, 0.5, -0.2, random);
    call->args.slopes = call->slopes.data;
    call->args.sink = call->sink.data;
    call->args.scale = call->scale.data;
    return ok;
}

/* Half the width of uniform numbers that leave scores of about 2. */
static double spread_of_weights(const attn_problem *p, const int64_t size[4])
{
    if (p->score.kind == ATTN_SCORE_ADDITIVE || size[2] * size[3] == 0) return 1;
    if (p->score.kind == ATTN_SCORE_GENERAL) return 2 * sqrt(3 / (double)(size[2] * size[3]));
    return sqrt(6 / ((double)size[3] * sqrt((double)size[2])));
}

/* Weights of scores, and tables by distance.  In some tables of a bias, -infinity drops keys. */
static int create_terms(check_call *call, uint64_t seed, random_state *random)
{
    const attn_problem *p = &call->problem;
    const attn_relative *r = &p->relative;
    const attn_dtype compute = p->q.dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32;
    const int64_t heads = p->shape.heads_q, tables = r->shared ? 1 : heads, D = p->shape.dim_qk,
                  numbers = (p->bias_table.shared ? 1 : heads) * problem_buckets(&p->bias_table);
    int64_t w[4];
    problem_w_size(p, w);
    const double spread = spread_of_weights(p, w);
    int ok = 1;
    if (w[2] > 0) ok &= create_array(&call->w, compute, tensor_count(w), 2 * spread, -spread, random);
    if (p->bias_table.used) ok &= create_array(&call->bias_table, compute, numbers, 4, -2, random);
    for (int64_t n = 0; p->bias_table.used && ok && seed % 3 == 0 && n < numbers; n++)
        if (random_below(random, 12) == 0)
            element_write(compute, call->bias_table.data + (size_t)n * attn_dtype_size(compute), -INFINITY);
    if (r->keys) ok &= create_array(&call->relative_keys, compute, tables * r->rows * D, 2, -1, random);
    if (r->values) ok &= create_array(&call->relative_values, compute, tables * r->rows * p->shape.dim_v, 2, -1, random);
    if (r->u) ok &= create_array(&call->relative_u, compute, heads * D, 2, -1, random);
    if (r->v) ok &= create_array(&call->relative_v, compute, heads * D, 2, -1, random);
    call->args.w = call->w.data;
    call->args.bias_table = call->bias_table.data;
    call->args.relative_keys = call->relative_keys.data;
    call->args.relative_values = call->relative_values.data;
    call->args.relative_u = call->relative_u.data;
    call->args.relative_v = call->relative_v.data;
    return ok;
}

/* ---- the whole ---- */

static void freeze_inputs(check_call *call)
{
    guarded *inputs[] = {&call->q.block,       &call->k.block,   &call->v.block,    &call->mask.block,    &call->blocks.block,
                         &call->bias.block,    &call->lengths_q, &call->lengths_kv, &call->offset,        &call->begin_q,
                         &call->begin_kv,      &call->slopes,    &call->sink,       &call->scale,         &call->k_scale.block,
                         &call->v_scale.block, &call->w,         &call->bias_table, &call->relative_keys, &call->relative_values,
                         &call->relative_u,    &call->relative_v};
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
        if (inputs[i]->map) guarded_freeze(inputs[i]);
    for (int f = 0; f < FLOW_OUTPUTS; f++)
        if (call->flow[f].block.map) guarded_freeze(&call->flow[f].block);
}

attn_status check_call_create(check_call *call, const check_case *c, attn_error *error)
{
    *call = (check_call){.args.struct_size = sizeof call->args};
    problem_spec spec = c->spec;
    attn_status status = problem_build(&spec, &call->problem, error);
    if (status != ATTN_OK) return status;
    if (call->problem.op != ATTN_FORWARD && c->plant)
        return failure(error, ATTN_ERR_ARGUMENT, "plant is for fwd: it says which output a NaN must reach");

    random_state random = {c->spec.seed * 2 + 1};
    totals all;
    call->args.dropout_seed = c->spec.seed * 0x9e3779b97f4a7c15u;
    call->args.dropout_offset = (uint32_t)(c->spec.seed % 5);
    int ok = create_index(call, c, &all, &random) && create_tensors(call, c, all) && create_arrays(call, &random) &&
             create_terms(call, c->spec.seed, &random);
    if (ok) {
        fill_tensors(call, c, &random);
        if (call->problem.mask.boolean) fill_mask(&call->mask, c->spec.mask_drop, &random);
        if (call->problem.mask.block) fill_mask(&call->blocks, c->spec.block_drop, &random);
        if (call->problem.bias.additive) fill_bias(&call->bias, c, &random);
        fill_plant(call, c, &random);
        ok = expectation_create(&call->expected, &call->problem, &call->args) &&
             flows_create(&call->flows, &call->expected, &call->problem, &call->args);
    }
    if (!ok) {
        check_call_destroy(call);
        return failure(error, ATTN_ERR_MEMORY, "out of memory for the tensors of a check");
    }
    fill_poison(call, c);
    freeze_inputs(call);
    return ATTN_OK;
}

void check_call_destroy(check_call *call)
{
    tensor *tensors[] = {&call->q, &call->k, &call->v, &call->mask, &call->blocks, &call->bias, &call->k_scale, &call->v_scale};
    guarded *arrays[] = {&call->lengths_q,  &call->lengths_kv, &call->offset,        &call->begin_q,
                         &call->begin_kv,   &call->slopes,     &call->sink,          &call->scale,
                         &call->w,          &call->bias_table, &call->relative_keys, &call->relative_values,
                         &call->relative_u, &call->relative_v};
    for (size_t n = 0; n < sizeof tensors / sizeof *tensors; n++) tensor_destroy(tensors[n]);
    for (size_t n = 0; n < sizeof arrays / sizeof *arrays; n++) guarded_destroy(arrays[n]);
    for (int f = 0; f < FLOWS; f++) tensor_destroy(&call->flow[f]);
    flows_destroy(&call->flows);
    expectation_destroy(&call->expected);
    *call = (check_call){0};
}
