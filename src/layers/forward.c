/* SPDX-License-Identifier: MIT
 * forward.c - attn_layer_forward: three projections, attention, one projection. */
#include "call.h"

#include <string.h>

/* The weights of every head, added up row by row; one thread brings them, so their order is fixed. */
typedef struct mean {
    char *sum;
    int64_t len_q, len_kv;
    double share;
    int wide;
} mean;

static void add_rows(void *context, const attn_rows *r)
{
    const mean *m = context;
    for (int64_t i = 0; i < r->count; i++) {
        const int64_t to = (r->batch * m->len_q + r->first + i) * m->len_kv, from = i * r->stride;
        if (m->wide)
            for (int64_t j = 0; j < r->len_kv; j++) ((double *)m->sum)[to + j] += m->share * ((const double *)r->values)[from + j];
        else
            for (int64_t j = 0; j < r->len_kv; j++)
                ((float *)m->sum)[to + j] += (float)m->share * ((const float *)r->values)[from + j];
    }
}

static attn_status average(const call *c, const attn_problem *problem, const attn_args *core, attn_error *error)
{
    mean m = {c->args->weights_mean, c->args->len_q, c->args->len_kv, 1 / (double)c->l.heads_q, c->l.dtype == ATTN_F64};
    attn_problem only_rows = *problem;
    attn_args a = *core;
    attn_options one = {.struct_size = sizeof one, .threads = 1};
    attn_plan *plan = NULL;
    char *workspace = NULL;
    memset(&only_rows.want, 0, sizeof only_rows.want);
    only_rows.want.after_dropout = problem->want.after_dropout;
    only_rows.want.rows = 1;
    only_rows.want.rows_stage = ATTN_STAGE_WEIGHTS;
    a.visit_rows = add_rows;
    a.visit_context = &m;
    if (c->args->options) one.isa = c->args->options->isa, one.allocator = c->args->options->allocator;
    memset(m.sum, 0, (size_t)(c->args->batch * m.len_q * m.len_kv * c->l.size));
    attn_status status = attn_plan_create(&plan, &only_rows, &one, error);
    if (status == ATTN_OK) {
        size_t size = attn_plan_workspace_size(plan);
        status = memory_take(c->args->options, (int64_t)size, &workspace, error);
        if (status == ATTN_OK) status = attn_execute(plan, &a, workspace, size, error);
    }
    memory_give(c->args->options, workspace);
    attn_plan_destroy(plan);
    return status;
}

/* Everything that can fail is behind us when the first output is written, but for memory and the arguments of the options: so the
 * attention runs on memory of ours, and outputs are written after it. */
static attn_status run(call *c, attn_error *error)
{
    const layer *l = &c->l;
    const attn_layer_args *args = c->args;
    const saved *s = &c->saved;
    char *const heads_side[3] = {s->q, s->k, s->v};
    attn_problem problem;
    attn_args core;
    TRY(middle_problem(l, args, ATTN_FORWARD, s, &problem, &core, error));
    memset(&problem.gradients, 0, sizeof problem.gradients);
    TRY(call_plan(c, &problem, error));
    for (int i = QUERY; i <= VALUE; i++) {
        const projection *p = &l->projections[i];
        sequence heads = dense_rows(heads_side[i], args->batch, c->in[i].tokens, p->heads * p->dim);
        project_to_heads(l, p, &c->in[i], heads_side[i]);
        if (p->at.bias) bias_add(l, p->at.bias, &heads);
    }
    TRY(middle_rotate(l, s->q, l->heads_q, args->batch, args->len_q, args->positions_q, 0, error));
    TRY(middle_rotate(l, s->k, l->heads_kv, args->batch, args->len_kv, args->positions_kv, 0, error));
    TRY(call_execute(c, &core, error));
    if (args->weights_mean) TRY(average(c, &problem, &core, error));
    if (args->attention && args->attention->lse && l->attention && l->attention->want.lse)
        memcpy(args->attention->lse, s->lse, (size_t)(args->batch * l->heads_q * args->len_q * l->size));
    if (l->no_output) copy_rows(l, s->a, &c->output);
    else {
        const projection *p = &l->projections[OUTPUT];
        project_to_model(l, p, s->a, &c->output, 0);
        if (p->at.bias) bias_add(l, p->at.bias, &c->output);
    }
    return ATTN_OK;
}

attn_status attn_layer_forward(const attn_layer *given, const attn_layer_weights *weights, const attn_layer_args *args,
                               attn_error *error)
{
    call c;
    TRY(call_begin(&c, given, weights, args, error));
    attn_status status = layer_rows(&args->output, "output", args->batch, args->len_q, c.l.dim_output, 1, &c.output, error);
    if (status == ATTN_OK && !args->saved) status = call_save(&c, error);
    if (status == ATTN_OK) status = run(&c, error);
    call_end(&c);
    return status == ATTN_OK ? succeed(error) : status;
}
