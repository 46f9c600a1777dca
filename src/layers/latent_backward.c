/* SPDX-License-Identifier: MIT
 * latent_backward.c - attn_latent_backward: the chain rule through the steps of latent.c. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "latent.h"

typedef struct gradient {
    latent requested; /* its w are the requested gradients of the weights */
    sequence out, query, key;
    char *memory;
    saved s;      /* gradients of q, k, v and a */
    latents at;   /* gradients of the latents; query_normed and normed laid out as in forward */
    double *sums; /* of the gradient of a norm's weight */
    char *heads;  /* [token][head][head_dim + head_dim_v]: gradient of the product with `up` */
} gradient;

static attn_status check(latent_call *lc, const attn_latent_weights *gradients, gradient *g, attn_error *error)
{
    call *c = &lc->c;
    const extent *e = &c->extent;
    const attn_layer_tensors *args = c->args;
    CHECK(args->saved, ATTN_ERR_ARGUMENT, "latent: tensors.saved is NULL; forward fills it for backward");
    CHECK(args->key.data || !args->grad_key.data, ATTN_ERR_ARGUMENT,
          "latent: grad_key is set, but this input is shared with another: its gradient is added to grad_query");
    CHECK(!args->grad_value.data, ATTN_ERR_ARGUMENT, "latent: grad_value is set, but there is no value input");
    g->requested = lc->m;
    TRY(attn_latent_bind(&g->requested, "gradients", gradients, WEIGHTS_OPTIONAL, error));
    TRY(attn_layer_rows(lc->m.l.dtype, &args->grad_output, "grad_output", e->entries, e->tokens_q, lc->m.out, 1, &g->out, error));
    TRY(attn_layer_rows_out(lc->m.l.dtype, &args->grad_query, "grad_query", e->entries, e->tokens_q, lc->m.model, 0, &g->query,
                            error));
    TRY(attn_layer_rows_out(lc->m.l.dtype, args->key.data ? &args->grad_key : &args->grad_query, "grad_key", e->entries,
                            e->tokens_kv, lc->m.model, 0, &g->key, error));
    attn_latent_place(lc, lc->at.bytes, 0);
    attn_places_add_rows(&c->places, "grad_output", &g->out, 0);
    attn_places_add_rows(&c->places, "grad_query", &g->query, 1);
    if (args->key.data) attn_places_add_rows(&c->places, "grad_key", &g->key, 1);
    attn_places_add_weights(&c->places, "gradients", g->requested.weights, TENSORS, 1);
    c->module = "latent";
    return places_check(&c->places, c->module, error);
}

static attn_status take(const latent_call *lc, gradient *g, attn_error *error)
{
    const latent *m = &lc->m;
    const extent *e = &lc->c.extent;
    int64_t heads;
    TRY(attn_layer_bytes(m->l.size, e->entries * e->tokens_kv, m->heads, m->dim + m->dim_v, &heads, error));
    const int64_t most = m->rank > m->rank_query ? m->rank : m->rank_query, sums = (lc->at.bytes + heads + 7) / 8 * 8;
    TRY(attn_memory_acquire(lc->c.args->options, sums + most * (int64_t)sizeof(double), &g->memory, error));
    g->heads = g->memory + lc->at.bytes;
    g->sums = (double *)(void *)(g->memory + sums);
    return attn_latents_layout(m, e, g->memory, &g->s, &g->at, error);
}

static attn_status attend(latent_call *lc, const gradient *g, attn_error *error)
{
    call *c = &lc->c;
    attn_problem problem;
    attn_tensors core;
    attn_call of_core;
    const layer *l = &lc->m.l;
    const extent *e = &c->extent;
    TRY(attn_middle_problem(l, c->args, e, ATTN_BACKWARD, &c->saved, &problem, &core, &of_core, error));
    core.grad_o = attn_input_by_token(l, g->s.a, e->tokens_q, l->heads_q, l->head_dim_v);
    core.grad_q = attn_output_by_token(l, g->s.q, e->tokens_q, l->heads_q, l->head_dim);
    core.grad_k = attn_output_by_token(l, g->s.k, e->tokens_kv, l->heads_kv, l->head_dim_k);
    core.grad_v = attn_output_by_token(l, g->s.v, e->tokens_kv, l->heads_kv, l->head_dim_v);
    TRY(attn_call_plan(c, &problem, &core, error));
    return attn_call_execute(c, &core, error);
}

/* Gathers the gradients of keys and values in the order of `up`; the rotated key's, summed over the heads, follows the latent's. */
static void collect(const latent_call *lc, const gradient *g)
{
    const latent *m = &lc->m;
    const extent *e = &lc->c.extent;
    const int64_t width = m->dim + m->rotary, both = m->dim + m->dim_v, size = m->l.size;
    for (int64_t r = 0; r < e->entries * e->tokens_kv; r++) {
        for (int64_t h = 0; h < m->heads; h++) {
            char *to = g->heads + (r * m->heads + h) * both * size;
            memcpy(to, g->s.k + (r * m->heads + h) * width * size, (size_t)(m->dim * size));
            memcpy(to + m->dim * size, g->s.v + (r * m->heads + h) * m->dim_v * size, (size_t)(m->dim_v * size));
        }
        for (int64_t i = 0; i < m->rotary; i++) {
            double sum = 0;
            for (int64_t h = 0; h < m->heads; h++) sum += number_get(&m->l, g->s.k, (r * m->heads + h) * width + m->dim + i);
            number_put(&m->l, g->at.kv, r * (m->rank + m->rotary) + m->rank + i, sum);
        }
    }
}

/*
 * Back through y = w x / s, s = sqrt(mean(x^2) + epsilon):  dx = (w dy - x sum(w dy x) / (n s^2)) / s,  dw = sum over rows of
 * dy x / s.  The rows of x and dx are `stride` apart; without a norm dx = dy.
 */
static void norm_backward(const latent_call *lc, double *dw, const char *weight, char *grad_weight, const char *x, int64_t stride,
                          int64_t channels, int64_t rows, const char *dy, char *dx)
{
    const layer *l = &lc->m.l;
    if (!weight) {
        for (int64_t n = 0; n < rows * channels; n++) number_put(l, dx, n / channels * stride + n % channels, number_get(l, dy, n));
        return;
    }
    memset(dw, 0, (size_t)channels * sizeof *dw);
    for (int64_t r = 0; r < rows; r++) {
        double square = 0, along = 0;
        for (int64_t k = 0; k < channels; k++) {
            const double one = number_get(l, x, r * stride + k);
            square += one * one;
            along += one * number_get(l, weight, k) * number_get(l, dy, r * channels + k);
        }
        const double s = sqrt(square / (double)channels + lc->m.epsilon);
        for (int64_t k = 0; k < channels; k++) {
            const double one = number_get(l, x, r * stride + k), up = number_get(l, dy, r * channels + k);
            dw[k] += up * one / s;
            number_put(l, dx, r * stride + k, (number_get(l, weight, k) * up - one * along / ((double)channels * s * s)) / s);
        }
    }
    for (int64_t k = 0; grad_weight && k < channels; k++) number_put(l, grad_weight, k, dw[k]);
}

/* y = x w^T: the gradient of w, if requested, and of x, if dx->data is not NULL. */
static attn_status through(const latent_call *lc, const gradient *g, int i, const sequence *x, const sequence *dy,
                           const sequence *dx, int add, attn_error *error)
{
    const projection w = attn_latent_matrix(&lc->m, i), dw = attn_latent_matrix(&g->requested, i);
    if (dw.at.weight) TRY(attn_project_gradient(&lc->c.l, &dw, dy, x, error));
    if (dx->data) TRY(attn_project_to_model(&lc->c.l, &w, dy, dx, add, error));
    return ATTN_OK;
}

static attn_status run(latent_call *lc, gradient *g, attn_error *error)
{
    const latent *m = &lc->m;
    const call *c = &lc->c;
    const extent *e = &c->extent;
    const attn_layer_tensors *args = c->args;
    const int64_t width = m->dim + m->rotary, wide = m->rank + m->rotary, rows_q = e->entries * e->tokens_q,
                  rows_kv = e->entries * e->tokens_kv;
    const sequence a = attn_layer_dense_rows(c->saved.a, e->entries, e->tokens_q, m->heads * m->dim_v),
                   da = attn_layer_dense_rows(g->s.a, e->entries, e->tokens_q, m->heads * m->dim_v),
                   dq = attn_layer_dense_rows(g->s.q, e->entries, e->tokens_q, m->heads * width),
                   normed = attn_layer_dense_rows(lc->at.normed, e->entries, e->tokens_kv, m->rank),
                   dnormed = attn_layer_dense_rows(g->at.normed, e->entries, e->tokens_kv, m->rank),
                   dheads = attn_layer_dense_rows(g->heads, e->entries, e->tokens_kv, m->heads * (m->dim + m->dim_v)),
                   dkv = attn_layer_dense_rows(g->at.kv, e->entries, e->tokens_kv, wide);
    /* All memory is acquired before the first gradient is written. */
    const projection to_heads = attn_latent_matrix(m, OUT), of_heads = attn_latent_matrix(&g->requested, OUT);
    TRY(attn_project_to_model(&c->l, &to_heads, &g->out, &da, 0, error));
    TRY(attend(lc, g, error));
    if (of_heads.at.weight) TRY(attn_project_gradient(&c->l, &of_heads, &g->out, &a, error));
    collect(lc, g);
    TRY(attn_latent_rotate(m, g->s.q, m->heads, width, m->dim, e->entries, e->tokens_q, c->positions_q, 1, error));
    TRY(attn_latent_rotate(m, g->at.kv, 1, wide, m->rank, e->entries, e->tokens_kv, c->positions_kv, 1, error));

    if (m->rank_query) {
        const sequence low = attn_layer_dense_rows(lc->at.query_normed, e->entries, e->tokens_q, m->rank_query),
                       dlatent = attn_layer_dense_rows(g->at.query, e->entries, e->tokens_q, m->rank_query),
                       dlatent_normed = attn_layer_dense_rows(g->at.query_normed, e->entries, e->tokens_q, m->rank_query);
        TRY(through(lc, g, QUERY_UP, &low, &dq, &dlatent_normed, 0, error));
        norm_backward(lc, g->sums, m->w[QUERY_NORM], g->requested.w[QUERY_NORM], lc->at.query, m->rank_query, m->rank_query, rows_q,
                      dlatent_normed.data, dlatent.data);
        TRY(through(lc, g, QUERY_DOWN, &c->in[QUERY], &dlatent, &g->query, 0, error));
    } else TRY(through(lc, g, QUERY_UP, &c->in[QUERY], &dq, &g->query, 0, error));

    TRY(through(lc, g, UP, &normed, &dheads, &dnormed, 0, error));
    norm_backward(lc, g->sums, m->w[NORM], g->requested.w[NORM], lc->at.kv, wide, m->rank, rows_kv, dnormed.data, dkv.data);
    return through(lc, g, DOWN, &c->in[KEY], &dkv, &g->key, !args->key.data, error);
}

attn_status attn_latent_backward(const attn_latent *given, const attn_latent_weights *weights, const attn_layer_tensors *args,
                                 const attn_latent_weights *gradients, attn_error *error)
{
    latent_call lc;
    gradient g;
    memset(&g, 0, sizeof g);
    attn_status status = attn_latent_begin(&lc, given, weights, args, error);
    if (status == ATTN_OK) status = attn_call_reject_cached(&lc.c, error);
    if (status == ATTN_OK) status = check(&lc, gradients, &g, error);
    if (status == ATTN_OK) status = take(&lc, &g, error);
    if (status == ATTN_OK) status = run(&lc, &g, error);
    if (g.memory) attn_memory_release(lc.c.args->options, g.memory);
    attn_call_end(&lc.c);
    return status == ATTN_OK ? succeed(error) : status;
}
