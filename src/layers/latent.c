/* SPDX-License-Identifier: MIT
 * latent.c - attn_latent_forward: latents, the keys and values expanded from them, attention, and one projection. */
#include "latent.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

attn_status attn_latents_layout(const latent *m, const extent *e, char *memory, saved *s, latents *at, attn_error *error)
{
    int64_t query, kv, normed;
    TRY(attn_saved_layout(&m->l, e->entries, e->tokens_q, e->tokens_kv, memory, s, error)); /* also that the next products fit */
    const int64_t rows_q = e->entries * e->tokens_q, rows_kv = e->entries * e->tokens_kv;
    TRY(attn_layer_bytes(m->l.size, rows_q, m->rank_query, 1, &query, error));
    TRY(attn_layer_bytes(m->l.size, rows_kv, m->rank + m->rotary, 1, &kv, error));
    TRY(attn_layer_bytes(m->l.size, rows_kv, m->rank, 1, &normed, error));
    at->bytes = s->bytes + 2 * query + kv + normed;
    if (!memory) return ATTN_OK;
    at->query = memory + s->bytes;
    at->query_normed = at->query + query;
    at->kv = at->query_normed + query;
    at->normed = at->kv + kv;
    return ATTN_OK;
}

attn_status attn_latent_begin(latent_call *lc, const attn_latent *given, const attn_latent_weights *weights,
                              const attn_layer_tensors *args, attn_error *error)
{
    latent *m = &lc->m;
    call *c = &lc->c;
    memset(lc, 0, sizeof *lc);
    TRY(attn_latent_resolve(given, m, error));
    TRY(attn_latent_bind(m, "weights", weights, WEIGHTS_READ, error));
    c->l = m->l;
    TRY(attn_call_check(c, m->rotary > 0, args, error));
    args = c->args;
    CHECK(!args->value.data, ATTN_ERR_ARGUMENT, "latent: value.data is set; keys and values come from the same latent");
    const extent *e = &c->extent;
    TRY(attn_layer_rows(m->l.dtype, &args->query, "query", e->entries, e->tokens_q, m->model, 1, &c->in[QUERY], error));
    TRY(attn_layer_rows(m->l.dtype, args->key.data ? &args->key : &args->query, "key", e->entries, e->tokens_kv, m->model,
                        !args->only_cached, &c->in[KEY], error));
    TRY(attn_latents_layout(m, e, args->saved, &c->saved, &lc->at, error));
    if (m->rotary) TRY(attn_latent_rotate(m, NULL, 1, m->rotary, 0, 0, 0, NULL, 0, error));
    int64_t widest = 0;
    for (int i = 0; i < MATRICES; i++) {
        int64_t rows, columns;
        attn_latent_shape(m, i, &rows, &columns);
        if (rows > widest) widest = rows;
        if (columns > widest) widest = columns;
    }
    return attn_call_scratch(c, widest, error);
}

void attn_latent_place(latent_call *lc, int64_t saved_bytes, int forward)
{
    attn_call_place(&lc->c, lc->m.weights, TENSORS, saved_bytes, forward);
    if (lc->m.rotary) places_add_rope(&lc->c.places, &lc->m.rope, lc->m.rotary);
}

projection attn_latent_matrix(const latent *m, int i)
{
    int64_t rows, columns;
    attn_latent_shape(m, i, &rows, &columns);
    return (projection){"", {m->w[i], NULL, rows * columns, columns, 1}, 1, rows, columns, 0, 0};
}

attn_status attn_latent_rotate(const latent *m, char *data, int64_t heads, int64_t width, int64_t first, int64_t entries,
                               int64_t tokens, const int64_t *positions, int inverse, attn_error *error)
{
    const int64_t shape[4] = {entries, heads, tokens, m->rotary};
    attn_rope rope = m->rope;
    if (!m->rotary) return ATTN_OK;
    rope.inverse = inverse ? !rope.inverse : rope.inverse;
    data = data ? data + first * m->l.size : NULL;
    const attn_input from = attn_input_by_token(&m->l, data, tokens, heads, width);
    const attn_output to = attn_output_by_token(&m->l, data, tokens, heads, width);
    const attn_input at = attn_in(positions);
    return attn_rope_apply(&rope, shape, &from, positions ? &at : NULL, &to, error);
}

/* y = weight x / sqrt(mean(x^2) + epsilon), for rows of x `stride` apart; without a weight, y = x. */
static void norm_rows(const latent *m, const char *weight, const char *x, int64_t stride, int64_t channels, int64_t rows, char *y)
{
    for (int64_t r = 0; r < rows; r++) {
        double square = 0;
        for (int64_t k = 0; k < channels; k++) {
            const double one = number_get(&m->l, x, r * stride + k);
            square += one * one;
        }
        const double scale = weight ? 1 / sqrt(square / (double)channels + m->epsilon) : 1;
        for (int64_t k = 0; k < channels; k++)
            number_put(&m->l, y, r * channels + k,
                       number_get(&m->l, x, r * stride + k) * scale * (weight ? number_get(&m->l, weight, k) : 1));
    }
}

attn_status attn_latent_project(const latent_call *lc, const int64_t *positions_q, const int64_t *positions_kv, attn_error *error)
{
    const latent *m = &lc->m;
    const call *c = &lc->c;
    const layer *l = &c->l;
    const extent *e = &c->extent;
    const int64_t width = m->dim + m->rotary, wide = m->rank + m->rotary;
    const projection up = attn_latent_matrix(m, QUERY_UP), down = attn_latent_matrix(m, DOWN);
    const sequence q = attn_layer_dense_rows(c->saved.q, e->entries, e->tokens_q, m->heads * width),
                   kv = attn_layer_dense_rows(lc->at.kv, e->entries, e->tokens_kv, wide);
    if (m->rank_query) {
        const projection first = attn_latent_matrix(m, QUERY_DOWN);
        const sequence low = attn_layer_dense_rows(lc->at.query, e->entries, e->tokens_q, m->rank_query),
                       normed = attn_layer_dense_rows(lc->at.query_normed, e->entries, e->tokens_q, m->rank_query);
        TRY(attn_project_to_heads(l, &first, &c->in[QUERY], &low, error));
        norm_rows(m, m->w[QUERY_NORM], low.data, m->rank_query, m->rank_query, e->entries * e->tokens_q, normed.data);
        TRY(attn_project_to_heads(l, &up, &normed, &q, error));
    } else TRY(attn_project_to_heads(l, &up, &c->in[QUERY], &q, error));
    TRY(attn_latent_rotate(m, q.data, m->heads, width, m->dim, e->entries, e->tokens_q, positions_q, 0, error));
    if (c->args->only_cached) return ATTN_OK;
    TRY(attn_project_to_heads(l, &down, &c->in[KEY], &kv, error));
    norm_rows(m, m->w[NORM], kv.data, wide, m->rank, e->entries * e->tokens_kv, lc->at.normed);
    return attn_latent_rotate(m, kv.data, 1, wide, m->rank, e->entries, e->tokens_kv, positions_kv, 0, error);
}

/* Computes keys and values of all heads from the latents. */
static attn_status expand(latent_call *lc, attn_error *error)
{
    const latent *m = &lc->m;
    const call *c = &lc->c;
    const extent *e = &c->extent;
    const int64_t rows = e->entries * e->tokens_kv, both = m->dim + m->dim_v, size = m->l.size;
    char *memory;
    TRY(attn_memory_acquire(c->args->options, rows * m->heads * both * size, &memory, error));
    const projection up = attn_latent_matrix(m, UP);
    const sequence low = attn_layer_dense_rows(lc->at.normed, e->entries, e->tokens_kv, m->rank),
                   heads = attn_layer_dense_rows(memory, e->entries, e->tokens_kv, m->heads * both);
    TRY(attn_project_to_heads(&c->l, &up, &low, &heads, error));
    for (int64_t r = 0; r < rows; r++)
        for (int64_t h = 0; h < m->heads; h++) {
            const char *from = memory + (r * m->heads + h) * both * size;
            char *k = c->saved.k + (r * m->heads + h) * (m->dim + m->rotary) * size;
            memcpy(k, from, (size_t)(m->dim * size));
            memcpy(k + m->dim * size, lc->at.kv + (r * (m->rank + m->rotary) + m->rank) * size, (size_t)(m->rotary * size));
            memcpy(c->saved.v + (r * m->heads + h) * m->dim_v * size, from + m->dim * size, (size_t)(m->dim_v * size));
        }
    attn_memory_release(c->args->options, memory);
    return ATTN_OK;
}

static attn_status run(latent_call *lc, attn_error *error)
{
    const latent *m = &lc->m;
    call *c = &lc->c;
    const extent *e = &c->extent;
    attn_problem problem;
    attn_tensors core;
    attn_call of_core;
    TRY(attn_middle_problem(&m->l, c->args, e, ATTN_FORWARD, &c->saved, &problem, &core, &of_core, error));
    TRY(attn_call_plan(c, &problem, &core, error));
    TRY(attn_latent_project(lc, c->positions_q, c->positions_kv, error));
    TRY(expand(lc, error));
    TRY(attn_attend_with_extra(c, &problem, &core, error));
    const projection out = attn_latent_matrix(m, OUT);
    const sequence a = attn_layer_dense_rows(c->saved.a, e->entries, e->tokens_q, m->heads * m->dim_v);
    TRY(attn_project_to_heads(&c->l, &out, &a, &c->output, error));
    return ATTN_OK;
}

attn_status attn_latent_forward(const attn_latent *given, const attn_latent_weights *weights, const attn_layer_tensors *args,
                                attn_error *error)
{
    latent_call lc;
    call *c = &lc.c;
    attn_status status = attn_latent_begin(&lc, given, weights, args, error);
    if (status == ATTN_OK) status = attn_call_reject_cached(c, error);
    if (status == ATTN_OK)
        status = attn_layer_rows_out(lc.m.l.dtype, &c->args->output, "output", c->extent.entries, c->extent.tokens_q, lc.m.out, 1,
                                     &c->output, error);
    if (status == ATTN_OK) {
        attn_latent_place(&lc, lc.at.bytes, 1);
        status = attn_call_place_outputs(c, "latent", error);
    }
    if (status == ATTN_OK && !c->args->saved) status = attn_memory_acquire(c->args->options, lc.at.bytes, &c->taken, error);
    if (status == ATTN_OK && !c->args->saved) status = attn_latents_layout(&lc.m, &c->extent, c->taken, &c->saved, &lc.at, error);
    if (status == ATTN_OK) status = run(&lc, error);
    attn_call_end(c);
    return status == ATTN_OK ? succeed(error) : status;
}
