/* SPDX-License-Identifier: MIT
 * forward.c - attn_layer_forward: three projections, attention, one projection. */
#include "call.h"

#include <string.h>

/* The mean of the weights over the heads, summed row by row; one thread delivers the rows, so their order is fixed. */
typedef struct mean {
    char *sum;
    int64_t len_q, columns; /* columns: one for each key, plus one for the extra key */
    double share;
    const layer *l;
    const extent *e;
    const extra *x;
} mean;

static void add_rows(void *context, const attn_rows *r)
{
    const mean *m = context;
    for (int64_t i = 0; i < r->count; i++) {
        const int64_t to = (r->batch * m->len_q + r->first + i) * m->columns, from = i * r->stride;
        const int64_t row = attn_extra_row(m->l, m->e, r->batch, r->head, r->first + i);
        const double share = m->x->factor && row >= 0 ? m->share * m->x->factor[row] : m->share;
        if (m->l->dtype == ATTN_F64)
            for (int64_t j = 0; j < r->len_kv; j++) ((double *)m->sum)[to + j] += share * ((const double *)r->values)[from + j];
        else
            for (int64_t j = 0; j < r->len_kv; j++)
                ((float *)m->sum)[to + j] += (float)share * ((const float *)r->values)[from + j];
        if (m->x->weight && row >= 0)
            number_put(m->l, m->sum, to + m->columns - 1,
                       number_get(m->l, m->sum, to + m->columns - 1) + m->share * m->x->weight[row]);
    }
}

static attn_status weights_average(const call *c, const attn_problem *problem, const attn_tensors *core, const extra *x,
                                   attn_error *error)
{
    const extent *e = &c->extent;
    const int64_t columns = e->len_kv + (c->l.extra_key != NULL);
    const mean m = {c->weights_mean, e->len_q, columns, 1 / (double)c->l.heads_q, &c->l, e, x};
    attn_problem only_rows = *problem;
    attn_tensors a = *core;
    attn_call visit = {.struct_size = sizeof visit};
    attn_options one = {.struct_size = sizeof one, .threads = 1};
    attn_plan *plan = NULL;
    char *workspace = NULL;
    memset(&only_rows.outputs, 0, sizeof only_rows.outputs);
    only_rows.outputs.after_dropout = problem->outputs.after_dropout;
    only_rows.outputs.rows_stage = ATTN_STAGE_WEIGHTS;
    attn_clear_outputs(&a);
    if (core->call) visit = *core->call;
    visit.visit_rows = add_rows;
    visit.visit_context = (void *)(uintptr_t)&m;
    a.call = &visit;
    if (c->args->options) one.isa = c->args->options->isa, one.allocator = c->args->options->allocator;
    attn_status status = attn_plan_create(&plan, &only_rows, &a, &one, error);
    if (status == ATTN_OK) {
        size_t size = attn_plan_workspace_size(plan);
        status = attn_memory_acquire(c->args->options, (int64_t)size, &workspace, error);
        if (status == ATTN_OK) memset(m.sum, 0, (size_t)(e->batch * m.len_q * m.columns * c->l.size));
        if (status == ATTN_OK) status = attn_execute(plan, &a, workspace, size, error);
    }
    attn_memory_release(c->args->options, workspace);
    attn_plan_destroy(plan);
    return status;
}

/* Projected rows, with their bias. */
attn_status attn_project_input(const call *c, int i, const sequence *heads, attn_error *error)
{
    const projection *p = &c->l.projections[i];
    if (p->none) attn_move_rows(&c->l, &c->in[i], heads, 0);
    else TRY(attn_project_to_heads(&c->l, p, &c->in[i], heads, error));
    if (p->at.bias) attn_bias_add(&c->l, p->at.bias, heads);
    return ATTN_OK;
}

attn_status attn_project_output(const call *c, const sequence *heads, attn_error *error)
{
    const projection *p = &c->l.projections[OUTPUT];
    if (c->l.no_output) attn_move_rows(&c->l, heads, &c->output, 0);
    else {
        TRY(attn_project_to_model(&c->l, p, heads, &c->output, 0, error));
        if (p->at.bias) attn_bias_add(&c->l, p->at.bias, &c->output);
    }
    return ATTN_OK;
}

attn_status attn_attend_with_extra(call *c, const attn_problem *problem, const attn_tensors *core, attn_error *error)
{
    const layer *l = &c->l;
    const attn_layer_tensors *args = c->args;
    extra x;
    TRY(attn_call_execute(c, core, error));
    TRY(attn_extra_weights(l, args, &c->extent, problem, core, &c->saved, &x, error));
    attn_status status = c->weights_mean ? weights_average(c, problem, core, &x, error) : ATTN_OK;
    if (status == ATTN_OK && l->extra_key) attn_extra_merge(l, &c->extent, core, &c->saved, &x);
    attn_memory_release(args->options, x.memory);
    if (status == ATTN_OK && args->attention && args->attention->lse.data)
        memcpy(args->attention->lse.data, c->saved.lse, (size_t)(c->extent.entries * l->heads_q * c->extent.tokens_q * l->size));
    return status;
}

/* Outputs are written only after everything that can fail, except lack of memory and invalid arguments of the options: so the
 * attention runs in our own memory, and outputs are written afterwards. */
static attn_status run(call *c, attn_error *error)
{
    const layer *l = &c->l;
    const attn_layer_tensors *args = c->args;
    const extent *e = &c->extent;
    const saved *s = &c->saved;
    char *const heads_side[3] = {s->q, s->k, s->v};
    attn_problem problem;
    attn_tensors core;
    attn_call of_core;
    TRY(attn_middle_problem(l, args, e, ATTN_FORWARD, s, &problem, &core, &of_core, error));
    TRY(attn_call_choose(c, &problem, &core, error));
    TRY(attn_call_take(c, 0, NULL, error));
    for (int i = QUERY; i <= VALUE; i++) {
        const projection *p = &l->projections[i];
        const sequence heads = attn_layer_dense_rows(heads_side[i], e->entries, c->in[i].tokens, p->heads * p->dim);
        TRY(attn_project_input(c, i, &heads, error));
    }
    TRY(attn_middle_rotate(l, s->q, l->heads_q, e->entries, e->tokens_q, c->positions_q, 0, error));
    TRY(attn_middle_rotate(l, s->k, l->heads_kv, e->entries, e->tokens_kv, c->positions_kv, 0, error));
    TRY(attn_attend_with_extra(c, &problem, &core, error));
    const sequence a = attn_layer_dense_rows(s->a, e->entries, e->tokens_q, l->heads_q * l->head_dim_v);
    return attn_project_output(c, &a, error);
}

attn_status attn_layer_forward(const attn_layer *given, const attn_layer_weights *weights, const attn_layer_tensors *args,
                               attn_error *error)
{
    call c;
    attn_status status = attn_call_begin(&c, given, weights, args, error);
    if (status == ATTN_OK) status = attn_call_reject_cached(&c, error);
    if (status == ATTN_OK)
        status = attn_layer_rows_out(c.l.dtype, &c.args->output, "output", c.extent.entries, c.extent.tokens_q, c.l.dim_output, 1,
                                     &c.output, error);
    if (status == ATTN_OK) {
        attn_call_place(&c, c.l.weights, LAYER_WEIGHTS, c.saved.bytes, 1);
        status = attn_call_place_outputs(&c, "layer", error);
    }
    if (status == ATTN_OK && !c.args->saved) status = attn_call_save(&c, error);
    if (status == ATTN_OK) status = run(&c, error);
    attn_call_end(&c);
    return status == ATTN_OK ? succeed(error) : status;
}
