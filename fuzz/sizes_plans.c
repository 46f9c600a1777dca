/* SPDX-License-Identifier: MIT
 * sizes_plans.c - plans of vast sizes: of attention and of linear attention, with random optional tensors. */
#include "sizes_case.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn/linear.h"

static attn_problem problem;
static attn_linear_problem linear;

void sizes_print_plan(void)
{
    const attn_shape *s = sizes.kind == SIZES_PLAN ? &problem.shape : &linear.shape;
    fprintf(stderr,
            "op %d  B %" PRId64 " Hq %" PRId64 " Hkv %" PRId64 " Sq %" PRId64 " Skv %" PRId64 " D %" PRId64 " Dv %" PRId64 "\n",
            (int)(sizes.kind == SIZES_PLAN ? problem.op : linear.op), s->batch, s->heads_q, s->heads_kv, s->len_q, s->len_kv,
            s->dim_qk, s->dim_v);
}

static void draw_shape(draws *d, attn_shape *s)
{
    *s = (attn_shape){2, 2, 2, 5, 7, 4, 3};
    draw_vast_fields(d, &s->batch, 7);
    if (draw_one_in(d, 2)) s->heads_kv = s->heads_q;
    else if (!draw_one_in(d, 4)) s->heads_kv = 1;
    /* Without a 0, the bytes of most shapes overflow. */
    if (draw_one_in(d, 2)) s->dim_qk = s->dim_v = 0;
    else if (draw_one_in(d, 2)) s->batch = 0;
    else if (draw_one_in(d, 2)) s->len_q = 0;
    else if (draw_one_in(d, 2)) s->len_kv = 0;
}

/* Makes the needed tensors of a family present, and some others. */
static void draw_slots(draws *d, attn_family family, attn_op op, void *tensors, const void *data)
{
    attn_tensor_description about = {.struct_size = sizeof about};
    const int shared = data == ATTN_EMPTY && draw_one_in(d, 3); /* inputs have elements */
    for (int t = 0; attn_tensor_describe(family, t, &about, NULL) == ATTN_OK; t++) {
        attn_output *slot = (void *)((char *)tensors + about.offset);
        if (about.role[op] == ATTN_ROLE_NONE) continue;
        if (about.need[op] != ATTN_NEED_ALWAYS && !draw_one_in(d, 16)) continue;
        slot->data = (void *)(uintptr_t)data;
        if (shared && about.need[op] == ATTN_NEED_ALWAYS && about.role[op] == ATTN_ROLE_INPUT) {
            const attn_input zeros = sizes_shared();
            memcpy(slot, &zeros, sizeof zeros);
        }
        if (draw_one_in(d, 24)) slot->stride[draw_below(d, 4)] = draw_hostile(d), slot->stride[3] = 1;
    }
}

/* Drops the tensor that an error names, or adds it; returns 0 if the error names none. */
static int repair(attn_family family, attn_op op, void *tensors, const void *data, const attn_error *error)
{
    attn_tensor_description about = {.struct_size = sizeof about};
    if (error->tensor < 0 || attn_tensor_describe(family, error->tensor, &about, NULL)) return 0;
    attn_output *slot = (void *)((char *)tensors + about.offset);
    if (slot->data && about.need[op] == ATTN_NEED_ALWAYS) return 0;
    const int absent = !slot->data;
    memset(slot, 0, sizeof *slot);
    if (absent) slot->data = (void *)(uintptr_t)data;
    return 1;
}

static void draw_problem(draws *d)
{
    attn_problem *const p = &problem;
    *p = (attn_problem){.struct_size = sizeof *p, .op = (attn_op)draw_below(d, 4)};
    draw_shape(d, &p->shape);
    p->mask.causal = draw_one_in(d, 2), p->mask.align = (attn_align)draw_one_in(d, 3);
    if (draw_one_in(d, 3)) p->mask.window = 1, p->mask.window_left = draw_vast(d), p->mask.window_right = draw_vast(d);
    if (draw_one_in(d, 4)) draw_vast_fields(d, &p->mask.chunk, 4); /* dilation, global_q, global_kv */
    if (draw_one_in(d, 4)) p->mask.least_distance = draw_vast(d);
    if (p->op <= ATTN_BACKWARD && draw_one_in(d, 4)) p->score.kind = (attn_score_kind)draw_below(d, 6);
    if (p->op <= ATTN_BACKWARD && draw_one_in(d, 4)) p->score.normaliser = (attn_normaliser)draw_below(d, 4);
    if (p->score.kind == ATTN_SCORE_GENERAL && draw_one_in(d, 2)) p->score.dim_k = draw_vast(d);
    if (p->score.kind == ATTN_SCORE_METRIC && draw_one_in(d, 2)) p->score.dim_metric = draw_vast(d);
    p->score.additive_bias = p->score.kind == ATTN_SCORE_ADDITIVE && draw_one_in(d, 2);
    p->outputs.column_heads = (attn_columns)draw_below(d, 3);
    if (draw_one_in(d, 4)) p->outputs.column_queries = draw_vast(d);
}

/* What a present tensor needs, and what may not be set without it. */
static void draw_company(draws *d, const attn_tensors *t)
{
    attn_problem *const p = &problem;
    if (t->block_mask.data || t->block_starts.data) p->mask.block_q = draw_vast(d), p->mask.block_kv = draw_vast(d);
    if (t->block_index.data) p->mask.block_entries = draw_vast(d);
    if (t->tree.data) p->mask.tree_keys = draw_vast(d);
    if (t->topk_index.data || t->topk_weight.data) p->outputs.topk = draw_vast(d);
    if (t->page_table.data) p->paging.page_size = draw_vast(d), p->paging.pages = draw_vast(d);
    if (t->relative_keys.data || t->relative_values.data) p->relative.rows = draw_vast(d), p->relative.first = draw_hostile(d);
    if (t->bias_table.data) {
        p->bias_table.kind = draw_one_in(d, 2) ? ATTN_DISTANCE_T5 : ATTN_DISTANCE_CLIPPED;
        p->bias_table.max_distance = draw_vast(d);
        if (p->bias_table.kind == ATTN_DISTANCE_T5) p->bias_table.buckets = draw_vast(d);
    }
}

/* A pair that comes together: with one, the other too. */
static void pair(attn_input *a, attn_input *b)
{
    if (a->data && !b->data) *b = *a;
    if (b->data && !a->data) *a = *b;
}

static attn_options draw_options(draws *d)
{
    attn_options o = {.struct_size = sizeof o, .threads = 1 + (int)draw_below(d, 70), .isa = (attn_isa)draw_below(d, 3)};
    o.invariant = draw_one_in(d, 6), o.reproducible = draw_one_in(d, 8);
    if (draw_one_in(d, 4)) o.workspace_limit = (size_t)draw_vast(d);
    o.allocator = (attn_allocator){sizes_allocate, sizes_release, NULL};
    return o;
}

static int is_short(const attn_shape *s) /* so that counting tiles ends soon */
{
    const int64_t most = 1 << 12;
    return s->batch <= most && s->heads_q <= most && s->heads_kv <= most && s->len_q <= most && s->len_kv <= most;
}

void sizes_plan(draws *d)
{
    const void *const data = draw_one_in(d, 3) ? ATTN_EMPTY : ATTN_LATER;
    attn_tensors t = {.struct_size = sizeof t};
    attn_call call = {.struct_size = sizeof call};
    attn_origin origin = {0};
    attn_plan *plan = NULL;
    attn_error error;
    draw_problem(d);
    draw_slots(d, ATTN_FAMILY_ATTENTION, problem.op, &t, data);
    pair(&t.cu_seqlens_q, &t.cu_seqlens_kv), pair(&t.block_starts, &t.block_index);
    draw_company(d, &t);
    if (draw_one_in(d, 4)) {
        draw_vast_fields(d, &origin.batch, 5);
        call.origin = &origin, t.call = &call;
    }
    const attn_options o = draw_options(d);
    attn_status status = ATTN_OK;
    for (int round = 0; round < 12; round++) {
        memset(&error, 0x55, sizeof error);
        status = attn_plan_create(&plan, &problem, &t, &o, &error);
        check_error(status, &error);
        if (status == ATTN_OK || status == ATTN_ERR_SHAPE || !repair(ATTN_FAMILY_ATTENTION, problem.op, &t, data, &error)) break;
    }
    if (status) {
        target_rejected++;
        return;
    }
    target_ran++;
    attn_plan_description about = {.struct_size = sizeof about};
    attn_tensor_plan tensor = {.struct_size = sizeof tensor};
    for (int i = 0; attn_plan_tensor(plan, i, &tensor, NULL) == ATTN_OK; i++) continue;
    if (is_short(&problem.shape) && attn_plan_describe(plan, &about, &error)) finding("no description: %s", error.message);
    const size_t bytes = attn_plan_workspace_size(plan);
    void *const workspace = data == ATTN_EMPTY ? sizes_allocate(NULL, bytes) : NULL;
    if (workspace) check_error(attn_execute(plan, &t, workspace, bytes, &error), &error);
    free(workspace);
    attn_plan_destroy(plan);
}

void sizes_linear(draws *d)
{
    const void *const data = draw_one_in(d, 3) ? ATTN_EMPTY : ATTN_LATER;
    attn_linear_problem *const p = &linear;
    attn_linear_tensors t = {.struct_size = sizeof t};
    attn_linear_plan *plan = NULL;
    attn_error error;
    *p = (attn_linear_problem){.struct_size = sizeof *p, .op = draw_one_in(d, 2) ? ATTN_BACKWARD : ATTN_FORWARD};
    draw_shape(d, &p->shape);
    p->features = (attn_features)draw_below(d, 7);
    p->causal = !draw_one_in(d, 4);
    if (p->causal) p->shape.len_q = p->shape.len_kv;
    if (p->features >= ATTN_FEATURES_FAVOR) p->random_features = draw_one_in(d, 2) ? 3 : draw_vast(d);
    if (p->causal) p->rule = (attn_linear_rule)draw_below(d, 3);
    p->denominator = p->rule != ATTN_LINEAR_RULE_ADD ? ATTN_DENOMINATOR_NONE : (attn_denominator)draw_below(d, 3);
    p->form = (attn_linear_form)draw_below(d, 4);
    if (draw_one_in(d, 2)) p->chunk = draw_vast(d);
    draw_slots(d, ATTN_FAMILY_LINEAR, p->op, &t, data);
    if (t.decay.data && draw_one_in(d, 2)) p->decay_kind = ATTN_DECAY_CHANNEL;
    const attn_options o = draw_options(d);
    attn_status status = ATTN_OK;
    for (int round = 0; round < 12; round++) {
        memset(&error, 0x55, sizeof error);
        status = attn_linear_plan_create(&plan, p, &t, &o, &error);
        check_error(status, &error);
        if (status == ATTN_OK || status == ATTN_ERR_SHAPE || !repair(ATTN_FAMILY_LINEAR, p->op, &t, data, &error)) break;
    }
    if (status) {
        target_rejected++;
        return;
    }
    target_ran++;
    attn_linear_plan_description about = {.struct_size = sizeof about};
    attn_tensor_plan tensor = {.struct_size = sizeof tensor};
    for (int i = 0; attn_linear_plan_tensor(plan, i, &tensor, NULL) == ATTN_OK; i++) continue;
    if (attn_linear_plan_describe(plan, &about, &error)) finding("no description: %s", error.message);
    const size_t bytes = attn_linear_plan_workspace_size(plan);
    void *const workspace = data == ATTN_EMPTY ? sizes_allocate(NULL, bytes) : NULL;
    if (workspace) check_error(attn_linear_execute(plan, &t, workspace, bytes, &error), &error);
    free(workspace);
    attn_linear_plan_destroy(plan);
}
