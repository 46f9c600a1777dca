/* SPDX-License-Identifier: MIT
 * latent_decode.c - attn_latent_decode: queries are taken to the latents, so that nothing is ever expanded. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "decode.h"
#include "latent.h"

/* The call of the attention over latents: one key head of rank + rotary channels, whose first `rank` are the value. */
typedef struct absorbed {
    call c;
    decoding d;
    attn_problem options;
} absorbed;

/* The rows of `up` that make head h's keys (value 0) or values (value 1), as a projection between them and the latent. */
static projection part_of_up(const latent *m, int64_t h, int value)
{
    const int64_t first = h * (m->dim + m->dim_v) + (value ? m->dim : 0), dim = value ? m->dim_v : m->dim;
    return (projection){"", {m->w[UP] + first * m->rank * m->l.size, NULL, dim * m->rank, m->rank, 1}, 1, dim, m->rank, 0, 0};
}

/* Some channels of each row, as rows of their own. */
static sequence channels(const latent_call *lc, char *data, int64_t width, int64_t first, int64_t count)
{
    sequence s = dense_rows(data, lc->c.extent.entries, lc->c.extent.tokens_q, width);
    s.data += first * lc->m.l.size;
    s.channels = count;
    return s;
}

static attn_status absorbed_begin(const latent_call *lc, absorbed *a, const attn_cache *given, attn_error *error)
{
    const latent *m = &lc->m;
    attn_cache cache;
    CHECK(given, ATTN_ERR_ARGUMENT, "cache is NULL");
    CHECK(given->struct_size == sizeof *given, ATTN_ERR_ARGUMENT, "attn_cache.struct_size is %zu; set it to sizeof(attn_cache)",
          given->struct_size);
    CHECK(!given->v, ATTN_ERR_ARGUMENT, "latent: the cache has v; its values are the first channels of k, leave it NULL");
    cache = *given;
    cache.v = cache.k;
    const int64_t room = cache.page_size ? cache.page_size : cache.capacity, width = m->rank + m->rotary;
    const int64_t *s = cache.k_layout.stride;
    if (!cache.k_layout.dtype) cache.k_layout.dtype = ATTN_F32;
    if (!s[0] && !s[1] && !s[2] && !s[3])
        cache.k_layout = (attn_layout){cache.k_layout.dtype, {room * width, room * width, width, 1}};
    cache.v_layout = cache.k_layout;

    a->options = m->l.attention ? *m->l.attention : (attn_problem){.struct_size = sizeof a->options};
    if (a->options.score.scale_kind == ATTN_SCALE_DEFAULT) { /* that of the expanded form */
        a->options.score.scale_kind = ATTN_SCALE_VALUE;
        a->options.score.scale = 1 / sqrt((double)(m->dim + m->rotary));
    }
    a->c = lc->c;
    a->c.taken = a->c.positions = NULL; /* the other call's */
    a->c.l.heads_kv = 1;
    a->c.l.head_dim = a->c.l.head_dim_k = width;
    a->c.l.head_dim_v = m->rank;
    a->c.l.attention = &a->options;
    TRY(call_save(&a->c, error));
    return decoding_begin(&a->d, &a->c, &cache, error);
}

static attn_status run(latent_call *lc, absorbed *a, attn_error *error)
{
    const latent *m = &lc->m;
    const layer *l = &m->l;
    const attn_layer_args *args = lc->c.args;
    const extent *e = &lc->c.extent;
    const int64_t width = m->dim + m->rotary, wide = m->rank + m->rotary, rows = e->entries * e->tokens_q;
    const attn_layout low = layout_by_token(l, e->tokens_kv, 1, wide);
    attn_problem problem;
    attn_args core;
    TRY(decoding_plan(&a->d, &a->c, &problem, &core, error));
    TRY(latent_project(lc, args->positions_q ? args->positions_q : a->d.positions[0],
                       args->positions_kv ? args->positions_kv : a->d.positions[1], error));
    for (int64_t r = 0; r < e->entries * e->tokens_kv; r++) /* the latents as they were normed, in front of the rotated key */
        memcpy(lc->at.kv + r * wide * l->size, lc->at.normed + r * m->rank * l->size, (size_t)(m->rank * l->size));
    for (int64_t h = 0; h < m->heads; h++) {
        const projection keys = part_of_up(m, h, 0);
        const sequence q = channels(lc, lc->c.saved.q, m->heads * width, h * width, m->dim),
                       to = channels(lc, a->c.saved.q, m->heads * wide, h * wide, m->rank);
        project_to_model(l, &keys, &q, &to, 0);
    }
    for (int64_t n = 0; n < rows * m->heads; n++)
        memcpy(a->c.saved.q + (n * wide + m->rank) * l->size, lc->c.saved.q + (n * width + m->dim) * l->size,
               (size_t)(m->rotary * l->size));
    TRY(decoding_append(&a->d, &a->c, &low, lc->at.kv, &low, lc->at.kv, error));
    if (args->len_q == 0) return ATTN_OK;
    TRY(decoding_attend(&a->d, &a->c, &problem, &core, error));
    for (int64_t h = 0; h < m->heads; h++) {
        const projection values = part_of_up(m, h, 1);
        const sequence from = channels(lc, a->c.saved.a, m->heads * m->rank, h * m->rank, m->rank),
                       to = channels(lc, lc->c.saved.a, m->heads * m->dim_v, h * m->dim_v, m->dim_v);
        project_to_heads(l, &values, &from, &to);
    }
    const projection out = latent_matrix(m, OUT);
    const sequence heads = dense_rows(lc->c.saved.a, e->entries, e->tokens_q, m->heads * m->dim_v);
    project_to_heads(l, &out, &heads, &lc->c.output);
    return ATTN_OK;
}

attn_status attn_latent_decode(const attn_latent *given, const attn_latent_weights *weights, const attn_cache *cache,
                               const attn_layer_args *args, attn_error *error)
{
    latent_call lc;
    absorbed a;
    call *c = &lc.c;
    memset(&a, 0, sizeof a);
    CHECK(args, ATTN_ERR_ARGUMENT, "layer: args is NULL");
    attn_layer_args plain = *args; /* saved is memory of ours */
    plain.saved = NULL;
    attn_status status = latent_begin(&lc, given, weights, &plain, error);
    if (status == ATTN_OK && args->len_q)
        status = layer_rows(&args->output, "output", args->batch, args->len_q, lc.m.out, 1, &c->output, error);
    if (status == ATTN_OK) status = memory_take(args->options, lc.at.bytes, &c->taken, error);
    if (status == ATTN_OK) status = latents_layout(&lc.m, &c->extent, c->taken, &c->saved, &lc.at, error);
    if (status == ATTN_OK) status = absorbed_begin(&lc, &a, cache, error);
    if (status == ATTN_OK) status = run(&lc, &a, error);
    decoding_end(&a.d, &a.c);
    call_end(&a.c);
    call_end(c);
    return status == ATTN_OK ? succeed(error) : status;
}
