/* SPDX-License-Identifier: MIT
 * latent_decode.c - attn_latent_decode: queries are projected to the latents, so that keys and values are never expanded. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "decode.h"
#include "latent.h"

/* The attention over latents: one key head of rank + rotary channels, whose first `rank` are also the value. */
typedef struct absorbed {
    call c;
    decoding d;
    attn_problem options;
} absorbed;

/* The rows of `up` for head h's keys (value 0) or values (value 1), as a projection from the latent. */
static projection part_of_up(const latent *m, int64_t h, int value)
{
    const int64_t first = h * (m->dim + m->dim_v) + (value ? m->dim : 0), dim = value ? m->dim_v : m->dim;
    return (projection){"", {m->w[UP] + first * m->rank * m->l.size, NULL, dim * m->rank, m->rank, 1}, 1, dim, m->rank, 0, 0};
}

/* Channels first .. first + count - 1 of each row, as a sequence. */
static sequence channels(const latent_call *lc, char *data, int64_t width, int64_t first, int64_t count)
{
    sequence s = attn_layer_dense_rows(data, lc->c.extent.entries, lc->c.extent.tokens_q, width);
    s.data += first * lc->m.l.size;
    s.channels = count;
    return s;
}

static attn_status absorbed_begin(const latent_call *lc, absorbed *a, const attn_cache *given, attn_error *error)
{
    const latent *m = &lc->m;
    attn_cache cache;
    CHECK(given, ATTN_ERR_ARGUMENT, "cache is NULL");
    TRY(slots_read(&cache, sizeof cache, sizeof cache, given, "attn_cache", error));
    CHECK(!cache.v.data, ATTN_ERR_ARGUMENT, "latent: the cache has v; leave it NULL, the values are the first channels of k");
    const int64_t capacity = cache.page_table.data ? cache.page_size : cache.capacity, width = m->rank + m->rotary;
    const int64_t *s = cache.k.stride, numbers[2] = {capacity, width}, row = attn_row_elements(cache.k.dtype, width);
    CHECK(capacity >= 0 && sizes_fit(8, numbers, 2), ATTN_ERR_SHAPE,
          "latent: the capacity of the cache (%" PRId64 " tokens) is negative, or its bytes overflow 64 bits", capacity);
    if (!cache.k.dtype) cache.k.dtype = ATTN_F32;
    if (!s[0] && !s[1] && !s[2] && !s[3])
        cache.k = (attn_output){cache.k.data, cache.k.dtype, {capacity * row, capacity * row, row, 1}};
    CHECK(!cache.v_scale.data, ATTN_ERR_ARGUMENT,
          "latent: the cache has v_scale; leave it NULL, the scales of the values are those of k");
    cache.v = cache.k;
    cache.v_scale = cache.k_scale;

    a->options = m->l.attention ? *m->l.attention : (attn_problem){.struct_size = sizeof a->options};
    if (a->options.score.scale_kind == ATTN_SCALE_DEFAULT) { /* the scale of the expanded form */
        a->options.score.scale_kind = ATTN_SCALE_VALUE;
        a->options.score.scale = 1 / sqrt((double)(m->dim + m->rotary));
    }
    a->c = lc->c;
    a->c.taken = a->c.positions = a->c.l.scratch.memory = NULL; /* owned by the other call */
    a->c.l.heads_kv = 1;
    a->c.l.head_dim = a->c.l.head_dim_k = width;
    a->c.l.head_dim_v = m->rank;
    a->c.l.attention = &a->options;
    TRY(attn_call_save(&a->c, error));
    return attn_decoding_begin(&a->d, &a->c, &cache, error);
}

static attn_status run(latent_call *lc, absorbed *a, attn_error *error)
{
    const latent *m = &lc->m;
    const layer *l = &lc->c.l;
    const attn_layer_tensors *args = lc->c.args;
    const extent *e = &lc->c.extent;
    const int64_t width = m->dim + m->rotary, wide = m->rank + m->rotary, rows = e->entries * e->tokens_q;
    const attn_input low = attn_input_by_token(l, lc->at.kv, e->tokens_kv, 1, wide);
    attn_problem problem;
    attn_tensors core;
    attn_call of_core;
    TRY(attn_decoding_plan(&a->d, &a->c, &problem, &core, &of_core, error));
    TRY(attn_latent_project(lc, lc->c.positions_q ? lc->c.positions_q : a->d.positions[0],
                            lc->c.positions_kv ? lc->c.positions_kv : a->d.positions[1], error));
    for (int64_t r = 0; r < e->entries * e->tokens_kv; r++) /* the normed latents, before the rotated key */
        memcpy(lc->at.kv + r * wide * l->size, lc->at.normed + r * m->rank * l->size, (size_t)(m->rank * l->size));
    for (int64_t h = 0; h < m->heads; h++) {
        const projection keys = part_of_up(m, h, 0);
        const sequence q = channels(lc, lc->c.saved.q, m->heads * width, h * width, m->dim),
                       to = channels(lc, a->c.saved.q, m->heads * wide, h * wide, m->rank);
        TRY(attn_project_to_model(l, &keys, &q, &to, 0, error));
    }
    for (int64_t n = 0; n < rows * m->heads; n++)
        memcpy(a->c.saved.q + (n * wide + m->rank) * l->size, lc->c.saved.q + (n * width + m->dim) * l->size,
               (size_t)(m->rotary * l->size));
    TRY(attn_decoding_append(&a->d, &a->c, &low, NULL, error));
    if (args->len_q == 0) return ATTN_OK;
    TRY(attn_decoding_attend(&a->d, &a->c, &problem, &core, error));
    for (int64_t h = 0; h < m->heads; h++) {
        const projection values = part_of_up(m, h, 1);
        const sequence from = channels(lc, a->c.saved.a, m->heads * m->rank, h * m->rank, m->rank),
                       to = channels(lc, lc->c.saved.a, m->heads * m->dim_v, h * m->dim_v, m->dim_v);
        TRY(attn_project_to_heads(l, &values, &from, &to, error));
    }
    const projection out = attn_latent_matrix(m, OUT);
    const sequence heads = attn_layer_dense_rows(lc->c.saved.a, e->entries, e->tokens_q, m->heads * m->dim_v);
    return attn_project_to_heads(l, &out, &heads, &lc->c.output, error);
}

/* Adds the caller's cache to the places; absorbed_begin reports its errors. */
static void place_cache(call *c, const attn_cache *given)
{
    attn_cache cache;
    if (given && slots_read(&cache, sizeof cache, sizeof cache, given, "attn_cache", NULL) == ATTN_OK)
        places_add_cache(&c->places, "cache", &cache, !c->args->only_cached);
}

attn_status attn_latent_decode(const attn_latent *given, const attn_latent_weights *weights, const attn_cache *cache,
                               const attn_layer_tensors *args, attn_error *error)
{
    latent_call lc;
    absorbed a;
    call *c = &lc.c;
    memset(&a, 0, sizeof a);
    attn_layer_tensors plain;
    TRY(attn_call_read(&plain, NULL, args, error));
    plain.saved = NULL; /* ours is used instead */
    attn_status status = attn_latent_begin(&lc, given, weights, &plain, error);
    if (status == ATTN_OK && plain.len_q)
        status =
            attn_layer_rows_out(lc.m.l.dtype, &plain.output, "output", plain.batch, plain.len_q, lc.m.out, 1, &c->output, error);
    if (status == ATTN_OK) {
        attn_latent_place(&lc, 0, 1);
        place_cache(c, cache);
        status = attn_call_place_outputs(c, "latent", error);
    }
    if (status == ATTN_OK) status = attn_memory_acquire(c->args->options, lc.at.bytes, &c->taken, error);
    if (status == ATTN_OK) status = attn_latents_layout(&lc.m, &c->extent, c->taken, &c->saved, &lc.at, error);
    if (status == ATTN_OK) status = absorbed_begin(&lc, &a, cache, error);
    if (status == ATTN_OK) status = run(&lc, &a, error);
    attn_decoding_end(&a.d, &a.c);
    attn_call_end(&a.c);
    attn_call_end(c);
    return status == ATTN_OK ? succeed(error) : status;
}
