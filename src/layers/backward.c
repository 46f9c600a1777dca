/* SPDX-License-Identifier: MIT
 * backward.c - attn_layer_backward: the chain rule through one projection, the attention, and three projections. */
#include <string.h>

#include "call.h"

/* Gradients on the heads' side, dense like `saved`. */
typedef struct middle {
    char *memory, *a, *in[3];
    sequence out, to[3]; /* grad_output; where the gradients of the inputs go */
    layer wanted;        /* whose projections hold the gradients of the weights */
} middle;

static attn_status check(const call *c, const attn_layer_weights *gradients, middle *m, attn_error *error)
{
    const attn_layer_args *args = c->args;
    const attn_sequence *given[3] = {&args->grad_query, &args->grad_key, &args->grad_value};
    static const char *const names[] = {"grad_query", "grad_key", "grad_value"};
    CHECK(args->saved, ATTN_ERR_ARGUMENT, "layer: args.saved is NULL; forward fills it for backward");
    m->wanted = c->l;
    TRY(layer_bind(&m->wanted, gradients, 0, error));
    TRY(layer_rows(&args->grad_output, "grad_output", c->extent.entries, c->extent.tokens_q, c->l.dim_output, 1, &m->out, error));
    for (int i = QUERY; i <= VALUE; i++) {
        const int shared = i > QUERY && !(i == KEY ? args->key.data : args->value.data);
        CHECK(!shared || !given[i]->data, ATTN_ERR_ARGUMENT,
              "layer: %s is given, and this input is another's: its gradient joins %s", names[i], names[i - 1]);
        if (shared) m->to[i] = m->to[i - 1];
        else TRY(layer_rows(given[i], names[i], c->extent.entries, c->in[i].tokens, c->in[i].channels, 0, &m->to[i], error));
    }
    return ATTN_OK;
}

static attn_status take(const call *c, middle *m, attn_error *error)
{
    const saved *s = &c->saved;
    TRY(memory_take(c->args->options, s->bytes, &m->memory, error));
    m->in[QUERY] = m->memory;
    m->in[KEY] = m->memory + (s->k - s->q);
    m->in[VALUE] = m->memory + (s->v - s->q);
    m->a = m->memory + (s->a - s->q);
    return ATTN_OK;
}

static attn_status attend(call *c, const middle *m, attn_error *error)
{
    attn_problem problem;
    attn_args core;
    TRY(middle_problem(&c->l, c->args, &c->extent, ATTN_BACKWARD, &c->saved, &problem, &core, error));
    const attn_layout lse = problem.want.lse_layout;
    memset(&problem.want, 0, sizeof problem.want);
    problem.want.lse_layout = lse;
    problem.gradients.grad_o = problem.o;
    problem.gradients.grad_q = problem.q;
    problem.gradients.grad_k = problem.k;
    problem.gradients.grad_v = problem.v;
    core.grad_o = m->a;
    core.grad_q = m->in[QUERY];
    core.grad_k = m->in[KEY];
    core.grad_v = m->in[VALUE];
    TRY(call_plan(c, &problem, error));
    TRY(call_execute(c, &core, error));
    return extra_backward(&c->l, c->args, &c->extent, &problem, &core, &c->saved, m->wanted.extra_key, m->wanted.extra_value,
                          error);
}

static void weight_gradients(const layer *l, const projection *p, const sequence *heads_side, const sequence *model_side,
                             const sequence *of_bias)
{
    if (p->at.weight) project_gradient(l, p, heads_side, model_side);
    if (p->at.bias) bias_gradient(l, p->at.bias, of_bias);
}

static attn_status run(call *c, middle *m, attn_error *error)
{
    const layer *l = &c->l;
    const attn_layer_args *args = c->args;
    const extent *e = &c->extent;
    const int64_t width = l->heads_q * l->head_dim_v;
    const sequence grad_a = dense_rows(m->a, e->entries, e->tokens_q, width),
                   a = dense_rows(c->saved.a, e->entries, e->tokens_q, width);
    if (l->no_output) move_rows(l, &m->out, &grad_a, 0);
    else project_to_heads(l, &l->projections[OUTPUT], &m->out, &grad_a);
    TRY(attend(c, m, error));
    TRY(middle_rotate(l, m->in[QUERY], l->heads_q, e->entries, e->tokens_q, args->positions_q, 1, error));
    TRY(middle_rotate(l, m->in[KEY], l->heads_kv, e->entries, e->tokens_kv, args->positions_kv, 1, error));

    if (!l->no_output) weight_gradients(l, &m->wanted.projections[OUTPUT], &a, &m->out, &m->out);
    for (int i = QUERY; i <= VALUE; i++) {
        const projection *p = &l->projections[i];
        const sequence heads = dense_rows(m->in[i], e->entries, c->in[i].tokens, p->heads * p->dim);
        const int joins = i > QUERY && m->to[i].data == m->to[i - 1].data;
        weight_gradients(l, &m->wanted.projections[i], &heads, &c->in[i], &heads);
        if (m->to[i].data && p->none) move_rows(l, &heads, &m->to[i], joins);
        else if (m->to[i].data) project_to_model(l, p, &heads, &m->to[i], joins);
    }
    return ATTN_OK;
}

attn_status attn_layer_backward(const attn_layer *given, const attn_layer_weights *weights, const attn_layer_args *args,
                                const attn_layer_weights *gradients, attn_error *error)
{
    call c;
    middle m;
    memset(&m, 0, sizeof m);
    attn_status status = call_begin(&c, given, weights, args, error);
    if (status == ATTN_OK) status = call_refuse_cached(&c, error);
    if (status == ATTN_OK) status = check(&c, gradients, &m, error);
    if (status == ATTN_OK) status = take(&c, &m, error);
    if (status == ATTN_OK) status = run(&c, &m, error);
    if (m.memory) memory_give(args->options, m.memory);
    call_end(&c);
    return status == ATTN_OK ? succeed(error) : status;
}
