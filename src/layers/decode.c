/* SPDX-License-Identifier: MIT
 * decode.c - attn_layer_decode: new tokens join a cache of keys and values, and attend to it. */
#include "decode.h"

#include <inttypes.h>
#include <string.h>

static attn_status check_cache(const layer *l, const attn_cache *cache, int64_t batch, attn_error *error)
{
    CHECK(cache, ATTN_ERR_ARGUMENT, "cache is NULL");
    CHECK(cache->struct_size == sizeof *cache, ATTN_ERR_ARGUMENT, "attn_cache.struct_size is %zu; set it to sizeof(attn_cache)",
          cache->struct_size);
    const struct {
        const char *name;
        int64_t has, needs;
    } sizes[] = {{"batch", cache->batch, batch},
                 {"heads_kv", cache->heads_kv, l->heads_kv},
                 {"dim_qk", cache->dim_qk, l->head_dim_k},
                 {"dim_v", cache->dim_v, l->head_dim_v}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        CHECK(sizes[i].has == sizes[i].needs, ATTN_ERR_SHAPE, "layer: the cache's %s is %" PRId64 "; the layer has %" PRId64,
              sizes[i].name, sizes[i].has, sizes[i].needs);
    CHECK(!cache->rope, ATTN_ERR_ARGUMENT, "layer: the cache has a rope; the layer's own rotates, leave it NULL");
    CHECK(batch == 0 || cache->lengths, ATTN_ERR_ARGUMENT, "cache: lengths is NULL");
    return ATTN_OK;
}

/* What the cache says of the attention must not be said twice. */
static attn_status check_options(const attn_problem *p, attn_error *error)
{
    if (!p) return ATTN_OK;
    const struct {
        const char *name;
        int set;
    } filled[] = {{"align", p->mask.align != 0},
                  {"lengths_q", p->mask.lengths_q},
                  {"lengths_kv", p->mask.lengths_kv},
                  {"packed", p->mask.packed}};
    for (size_t i = 0; i < sizeof filled / sizeof *filled; i++)
        CHECK(!filled[i].set, ATTN_ERR_ARGUMENT, "layer: attention.mask.%s is set; attn_layer_decode takes no such option",
              filled[i].name);
    return ATTN_OK;
}

attn_status decoding_begin(decoding *d, const call *c, const attn_cache *cache, attn_error *error)
{
    const attn_layer_args *args = c->args;
    const int64_t batch = args->batch, q = batch * args->len_q, kv = batch * args->len_kv;
    TRY(check_cache(&c->l, cache, batch, error));
    TRY(check_options(c->l.attention, error));
    d->cache = *cache;
    TRY(memory_take(args->options, (q + kv + batch) * (int64_t)sizeof(int64_t), &d->memory, error));
    d->appended = (int64_t *)d->memory;
    d->positions[0] = d->appended + batch;
    d->positions[1] = d->positions[0] + q;
    for (int64_t b = 0; b < batch; b++) {
        const int64_t held = cache->lengths[b];
        d->appended[b] = args->only_cached ? 0 : args->len_of_entry && !args->key.data ? args->len_of_entry[b] : args->len_kv;
        for (int64_t t = 0; t < args->len_q; t++) d->positions[0][b * args->len_q + t] = (args->only_cached ? 0 : held) + t;
        for (int64_t t = 0; t < args->len_kv; t++) d->positions[1][b * args->len_kv + t] = held + t;
        CHECK(!args->len_of_entry || (args->len_of_entry[b] >= 0 && args->len_of_entry[b] <= args->len_q), ATTN_ERR_ARGUMENT,
              "layer: len_of_entry[%" PRId64 "] (%" PRId64 ") is not within 0..%" PRId64, b, args->len_of_entry[b], args->len_q);
    }
    return ATTN_OK;
}

/* Strides of a cache's keys or values, which the core would not know: its dense is that of the longest entry. */
static void dense_cache(attn_layout *layout, const attn_cache *cache, int64_t dim)
{
    const int64_t room = cache->page_size ? cache->page_size : cache->capacity;
    int64_t *s = layout->stride;
    if (s[0] || s[1] || s[2] || s[3]) return;
    s[3] = 1, s[2] = dim, s[1] = room * dim, s[0] = cache->heads_kv * room * dim;
}

attn_status decoding_plan(decoding *d, call *c, attn_problem *p, attn_args *core, attn_error *error)
{
    const attn_layer_args *args = c->args;
    extent *e = &c->extent;
    e->len_kv = 0; /* of the longest entry */
    for (int64_t b = 0; b < args->batch; b++) {
        const int64_t length = d->cache.lengths[b] + d->appended[b];
        if (length > e->len_kv) e->len_kv = length;
    }
    TRY(middle_problem(&c->l, args, e, ATTN_FORWARD, &c->saved, p, core, error));
    memset(&p->gradients, 0, sizeof p->gradients);
    p->k = d->cache.k_layout;
    p->v = d->cache.v_layout;
    p->mask.align = ATTN_ALIGN_BOTTOM_RIGHT;
    p->mask.lengths_kv = 1;
    p->mask.lengths_q = args->len_of_entry != NULL;
    p->mask.index_dtype = ATTN_I64;
    if (!p->k.dtype) p->k.dtype = ATTN_F32;
    if (!p->v.dtype) p->v.dtype = p->k.dtype;
    dense_cache(&p->k, &d->cache, d->cache.dim_qk);
    dense_cache(&p->v, &d->cache, d->cache.dim_v);
    if (d->cache.page_size) {
        const int64_t pages = d->cache.capacity / d->cache.page_size + (d->cache.capacity % d->cache.page_size != 0);
        p->paging.paged = 1;
        p->paging.page_size = d->cache.page_size;
        p->paging.pages = d->cache.pages;
        p->paging.table_stride = d->cache.table_stride ? d->cache.table_stride : pages;
        core->page_table = d->cache.page_table;
    }
    core->k = d->cache.k;
    core->v = d->cache.v;
    core->lengths_kv = d->cache.lengths;
    core->lengths_q = args->len_of_entry;
    return args->len_q ? call_plan(c, p, error) : ATTN_OK;
}

attn_status decoding_append(const decoding *d, const call *c, const attn_layout *k_layout, const void *k,
                            const attn_layout *v_layout, const void *v, attn_error *error)
{
    const attn_cache_tokens tokens = {.struct_size = sizeof tokens,
                                      .len = c->args->len_kv,
                                      .len_of_entry = d->appended,
                                      .k_layout = *k_layout,
                                      .v_layout = *v_layout,
                                      .k = k,
                                      .v = v};
    return c->args->only_cached ? ATTN_OK : attn_cache_append(&d->cache, &tokens, error);
}

attn_status decoding_attend(decoding *d, call *c, const attn_problem *problem, const attn_args *core, attn_error *error)
{
    const attn_status status = attend_with_extra(c, problem, core, error);
    for (int64_t b = 0; status != ATTN_OK && b < c->args->batch; b++) d->cache.lengths[b] -= d->appended[b];
    return status;
}

void decoding_end(decoding *d, const call *c)
{
    if (d->memory) memory_give(c->args->options, d->memory);
}

static attn_status append(const decoding *d, const call *c, attn_error *error)
{
    const layer *l = &c->l;
    const attn_layer_args *args = c->args;
    char *const side[] = {NULL, c->saved.k, c->saved.v};
    const attn_layout k = layout_by_token(l, args->len_kv, l->heads_kv, l->head_dim_k),
                      v = layout_by_token(l, args->len_kv, l->heads_kv, l->head_dim_v);
    for (int i = KEY; i <= VALUE && !args->only_cached; i++) {
        const sequence heads = dense_rows(side[i], args->batch, args->len_kv, l->projections[i].heads * l->projections[i].dim);
        project_input(c, i, &heads);
    }
    TRY(middle_rotate(l, c->saved.k, l->heads_kv, args->batch, args->len_kv,
                      args->positions_kv ? args->positions_kv : d->positions[1], 0, error));
    return decoding_append(d, c, &k, c->saved.k, &v, c->saved.v, error);
}

static attn_status run(decoding *d, call *c, attn_error *error)
{
    const layer *l = &c->l;
    const attn_layer_args *args = c->args;
    attn_problem problem;
    attn_args core;
    const sequence q = dense_rows(c->saved.q, args->batch, args->len_q, l->heads_q * l->head_dim),
                   a = dense_rows(c->saved.a, args->batch, args->len_q, l->heads_q * l->head_dim_v);
    TRY(decoding_plan(d, c, &problem, &core, error));
    if (args->len_q) project_input(c, QUERY, &q);
    TRY(middle_rotate(l, c->saved.q, l->heads_q, args->batch, args->len_q, args->positions_q ? args->positions_q : d->positions[0],
                      0, error));
    TRY(append(d, c, error));
    if (args->len_q == 0) return ATTN_OK;
    TRY(decoding_attend(d, c, &problem, &core, error));
    project_output(c, &a);
    return ATTN_OK;
}

attn_status attn_layer_decode(const attn_layer *given, const attn_layer_weights *weights, const attn_cache *cache,
                              const attn_layer_args *args, attn_error *error)
{
    call c;
    decoding d;
    memset(&d, 0, sizeof d);
    CHECK(args, ATTN_ERR_ARGUMENT, "layer: args is NULL");
    attn_layer_args plain = *args; /* saved is memory of ours */
    plain.saved = NULL;
    attn_status status = call_begin(&c, given, weights, &plain, error);
    if (status == ATTN_OK) status = decoding_begin(&d, &c, cache, error);
    if (status == ATTN_OK && args->len_q)
        status = layer_rows(&args->output, "output", args->batch, args->len_q, c.l.dim_output, 1, &c.output, error);
    if (status == ATTN_OK) status = call_save(&c, error);
    if (status == ATTN_OK) status = run(&d, &c, error);
    decoding_end(&d, &c);
    call_end(&c);
    return status == ATTN_OK ? succeed(error) : status;
}
