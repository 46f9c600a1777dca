/* SPDX-License-Identifier: MIT
 * backward.c - attn_layer_backward: the chain rule through one projection, the attention, and three projections. */
#include <stddef.h>
#include <string.h>

#include "call.h"

/* Gradients between the projections, dense like `saved`. */
typedef struct middle {
    char *a, *in[3];
    sequence out, to[3]; /* grad_output; the gradients of the inputs */
    layer requested;     /* its projections hold the requested gradients of the weights */
    attn_problem problem;
    attn_tensors core;
    attn_call of_core;
} middle;

static attn_status check(call *c, const attn_layer_weights *gradients, middle *m, attn_error *error)
{
    const attn_layer_tensors *args = c->args;
    const attn_output *given[3] = {&args->grad_query, &args->grad_key, &args->grad_value};
    static const char *const names[] = {"grad_query", "grad_key", "grad_value"};
    CHECK(args->saved, ATTN_ERR_ARGUMENT, "layer: tensors.saved is NULL; forward fills it for backward");
    memcpy(&m->requested, &c->l, offsetof(layer, weights));
    TRY(attn_layer_bind(&m->requested, "gradients", gradients, WEIGHTS_OPTIONAL, error));
    TRY(attn_layer_rows(c->l.dtype, &args->grad_output, "grad_output", c->extent.entries, c->extent.tokens_q, c->l.dim_output, 1,
                        &m->out, error));
    for (int i = QUERY; i <= VALUE; i++) {
        const int shared = i > QUERY && !(i == KEY ? args->key.data : args->value.data);
        CHECK(!shared || !given[i]->data, ATTN_ERR_ARGUMENT,
              "layer: %s is set, but this input is shared with another: its gradient is added to %s", names[i], names[i - 1]);
        if (shared) m->to[i] = m->to[i - 1];
        else
            TRY(attn_layer_rows_out(c->l.dtype, given[i], names[i], c->extent.entries, c->in[i].tokens, c->in[i].channels, 0,
                                    &m->to[i], error));
    }
    attn_call_place(c, c->l.weights, LAYER_WEIGHTS, c->saved.bytes, 0);
    attn_places_add_rows(&c->places, "grad_output", &m->out, 0);
    for (int i = QUERY; i <= VALUE; i++)
        if (given[i]->data) attn_places_add_rows(&c->places, names[i], &m->to[i], 1);
    attn_places_add_weights(&c->places, "gradients", m->requested.weights, LAYER_WEIGHTS, 1);
    c->module = "layer";
    return places_check(&c->places, c->module, error);
}

/* Plans the attention and acquires the memory of the call. */
static attn_status plan(call *c, middle *m, attn_error *error)
{
    const layer *l = &c->l;
    const extent *e = &c->extent;
    const saved *s = &c->saved;
    attn_tensors *core = &m->core;
    char *memory;
    TRY(attn_middle_problem(l, c->args, e, ATTN_BACKWARD, s, &m->problem, core, &m->of_core, error));
    core->grad_o = attn_input_by_token(l, ATTN_LATER, e->tokens_q, l->heads_q, l->head_dim_v);
    core->grad_q = attn_output_by_token(l, ATTN_LATER, e->tokens_q, l->heads_q, l->head_dim);
    core->grad_k = attn_output_by_token(l, ATTN_LATER, e->tokens_kv, l->heads_kv, l->head_dim_k);
    core->grad_v = attn_output_by_token(l, ATTN_LATER, e->tokens_kv, l->heads_kv, l->head_dim_v);
    TRY(attn_call_choose(c, &m->problem, core, error));
    TRY(attn_call_take(c, s->bytes, &memory, error));
    core->grad_q.data = m->in[QUERY] = memory;
    core->grad_k.data = m->in[KEY] = memory + (s->k - s->q);
    core->grad_v.data = m->in[VALUE] = memory + (s->v - s->q);
    core->grad_o.data = m->a = memory + (s->a - s->q);
    return ATTN_OK;
}

static attn_status weight_gradients(const layer *l, const projection *p, const sequence *heads_side, const sequence *model_side,
                                    const sequence *of_bias, attn_error *error)
{
    if (p->at.weight) TRY(attn_project_gradient(l, p, heads_side, model_side, error));
    if (p->at.bias) attn_bias_gradient(l, p->at.bias, of_bias);
    return ATTN_OK;
}

static attn_status run(call *c, middle *m, attn_error *error)
{
    const layer *l = &c->l;
    const extent *e = &c->extent;
    const int64_t width = l->heads_q * l->head_dim_v;
    const sequence grad_a = attn_layer_dense_rows(m->a, e->entries, e->tokens_q, width),
                   a = attn_layer_dense_rows(c->saved.a, e->entries, e->tokens_q, width);
    if (l->no_output) attn_move_rows(l, &m->out, &grad_a, 0);
    else TRY(attn_project_to_heads(l, &l->projections[OUTPUT], &m->out, &grad_a, error));
    TRY(attn_call_execute(c, &m->core, error));
    TRY(attn_extra_backward(l, c->args, e, &m->problem, &m->core, &c->saved, m->requested.extra_key, m->requested.extra_value,
                            error));
    TRY(attn_middle_rotate(l, m->in[QUERY], l->heads_q, e->entries, e->tokens_q, c->positions_q, 1, error));
    TRY(attn_middle_rotate(l, m->in[KEY], l->heads_kv, e->entries, e->tokens_kv, c->positions_kv, 1, error));

    if (!l->no_output) TRY(weight_gradients(l, &m->requested.projections[OUTPUT], &a, &m->out, &m->out, error));
    for (int i = QUERY; i <= VALUE; i++) {
        const projection *p = &l->projections[i];
        const sequence heads = attn_layer_dense_rows(m->in[i], e->entries, c->in[i].tokens, p->heads * p->dim);
        const int joins = i > QUERY && m->to[i].data == m->to[i - 1].data;
        TRY(weight_gradients(l, &m->requested.projections[i], &heads, &c->in[i], &heads, error));
        if (m->to[i].data && p->none) attn_move_rows(l, &heads, &m->to[i], joins);
        else if (m->to[i].data) TRY(attn_project_to_model(l, p, &heads, &m->to[i], joins, error));
    }
    return ATTN_OK;
}

attn_status attn_layer_backward(const attn_layer *given, const attn_layer_weights *weights, const attn_layer_tensors *args,
                                const attn_layer_weights *gradients, attn_error *error)
{
    call c;
    middle m;
    attn_status status = attn_call_begin(&c, given, weights, args, error);
    if (status == ATTN_OK) status = attn_call_reject_cached(&c, error);
    if (status == ATTN_OK) status = check(&c, gradients, &m, error);
    if (status == ATTN_OK) status = plan(&c, &m, error);
    if (status == ATTN_OK) status = run(&c, &m, error);
    attn_call_end(&c);
    return status == ATTN_OK ? succeed(error) : status;
}
