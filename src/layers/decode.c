/* SPDX-License-Identifier: MIT
 * decode.c - attn_layer_decode: appends new tokens to a cache of keys and values, then attends to it. */
#include "decode.h"

#include <inttypes.h>
#include <string.h>

static attn_status check_cache(const layer *l, const attn_cache *cache, int64_t batch, attn_error *error)
{
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
    CHECK(!attn_is_by_channel(cache->k.dtype), ATTN_ERR_UNSUPPORTED,
          "layer: the cache's k is %s; keys by channel are not there yet in layers", attn_dtype_name(cache->k.dtype));
    /* Elements are floats of at most 8 bytes; dense strides are filled in before attn_cache_append checks the cache. */
    const int paged = cache->page_table.data != NULL;
    const int64_t entries = paged ? cache->pages : batch, capacity = paged ? cache->page_size : cache->capacity;
    const int64_t numbers[4] = {entries, cache->heads_kv, capacity, cache->dim_qk > cache->dim_v ? cache->dim_qk : cache->dim_v};
    CHECK(cache->capacity >= 0 && cache->page_size >= 0 && cache->pages >= 0, ATTN_ERR_SHAPE,
          "layer: the cache's capacity (%" PRId64 "), page_size (%" PRId64 ") or pages (%" PRId64 ") is negative", cache->capacity,
          cache->page_size, cache->pages);
    const int64_t of_entry[3] = {cache->heads_kv, cache->capacity, numbers[3]};
    CHECK(sizes_fit(8, numbers, 4) && sizes_fit(8, numbers + 1, 3) && sizes_fit(8, of_entry, 3), ATTN_ERR_SHAPE,
          "layer: the cache is too large: its bytes overflow 64 bits");
    CHECK(!cache->rope, ATTN_ERR_ARGUMENT, "layer: the cache has a rope; leave it NULL, the layer rotates with its own");
    /* The lengths are read before attn_cache_append checks them, or without calling it. */
    const attn_input lengths = slot_of(&cache->lengths);
    CHECK(batch == 0 || lengths.data, ATTN_ERR_ARGUMENT, "cache: lengths is NULL");
    TRY(slot_check(&lengths, "cache: lengths", batch > 0, error));
    CHECK(!lengths.dtype || lengths.dtype == ATTN_I64, ATTN_ERR_UNSUPPORTED, "cache: lengths is %s; it must be i64",
          attn_dtype_name(lengths.dtype));
    CHECK(slot_is_dense(&lengths) || lengths.stride[0] == 1 || batch <= 1, ATTN_ERR_STRIDE,
          "cache: lengths.stride[0] is %" PRId64 "; it must be dense (1)", lengths.stride[0]);
    return slot_aligned(&lengths, "cache: lengths", sizeof(int64_t), error);
}

/* Rejects options that the cache determines. */
static attn_status check_options(const attn_problem *p, const attn_tensors *t, attn_error *error)
{
    CHECK(!p || p->mask.align == 0, ATTN_ERR_ARGUMENT,
          "layer: attention.mask.align is set; attn_layer_decode takes no such option");
    if (!t) return ATTN_OK;
    const struct {
        const char *name;
        const void *data;
    } filled[] = {{"lengths_q", t->lengths_q.data},
                  {"lengths_kv", t->lengths_kv.data},
                  {"offset_q", t->offset_q.data},
                  {"cu_seqlens_q", t->cu_seqlens_q.data},
                  {"cu_seqlens_kv", t->cu_seqlens_kv.data}};
    for (size_t i = 0; i < sizeof filled / sizeof *filled; i++)
        CHECK(!filled[i].data, ATTN_ERR_ARGUMENT, "layer: attention.%s is set; attn_layer_decode takes no such tensor",
              filled[i].name);
    return ATTN_OK;
}

attn_status attn_decoding_begin(decoding *d, const call *c, const attn_cache *cache, attn_error *error)
{
    const attn_layer_tensors *args = c->args;
    const int64_t batch = args->batch, q = batch * args->len_q, kv = batch * args->len_kv;
    CHECK(cache, ATTN_ERR_ARGUMENT, "cache is NULL");
    TRY(slots_read(&d->cache, sizeof d->cache, sizeof d->cache, cache, "attn_cache", error));
    TRY(check_cache(&c->l, &d->cache, batch, error));
    if (attn_cache_has_values_in_keys(&d->cache) && !d->cache.v_scale.data) d->cache.v_scale = d->cache.k_scale;
    TRY(check_options(c->l.attention, args->attention, error));
    const int64_t *const lengths = d->cache.lengths.data;
    TRY(attn_memory_acquire(args->options, (q + kv + batch) * (int64_t)sizeof(int64_t), &d->memory, error));
    d->appended = (int64_t *)d->memory;
    d->positions[0] = d->appended + batch;
    d->positions[1] = d->positions[0] + q;
    for (int64_t b = 0; b < batch; b++) {
        const int64_t held = lengths[b], capacity = d->cache.capacity;
        d->appended[b] = args->only_cached ? 0 : c->lengths_q && !args->key.data ? c->lengths_q[b] : args->len_kv;
        CHECK(held >= 0 && held <= capacity, ATTN_ERR_ARGUMENT,
              "cache: lengths[%" PRId64 "] (%" PRId64 ") is not between 0 and %" PRId64, b, held, capacity);
        for (int64_t t = 0; t < args->len_q; t++) d->positions[0][b * args->len_q + t] = (args->only_cached ? 0 : held) + t;
        for (int64_t t = 0; t < args->len_kv; t++) d->positions[1][b * args->len_kv + t] = held + t;
        CHECK(!c->lengths_q || (c->lengths_q[b] >= 0 && c->lengths_q[b] <= args->len_q), ATTN_ERR_ARGUMENT,
              "layer: lengths_q[%" PRId64 "] (%" PRId64 ") is not between 0 and %" PRId64, b, c->lengths_q[b], args->len_q);
    }
    return ATTN_OK;
}

/* A cache's keys, values or their scales (dim 1) with explicit strides: the core would take dense strides from the longest entry,
 * not the capacity. */
static attn_input cached(const attn_cache *cache, const attn_output *slot, attn_dtype natural, int64_t dim)
{
    const int64_t capacity = cache->page_table.data ? cache->page_size : cache->capacity;
    attn_input s = slot_of(slot);
    if (!s.data) s.data = ATTN_EMPTY;
    if (!s.dtype) s.dtype = natural;
    const int64_t row = attn_row_elements(s.dtype, dim);
    if (slot_is_dense(&s))
        s.stride[3] = 1, s.stride[2] = row, s.stride[1] = capacity * row, s.stride[0] = cache->heads_kv * capacity * row;
    return s;
}

attn_status attn_decoding_plan(decoding *d, call *c, attn_problem *p, attn_tensors *core, attn_call *of_core, attn_error *error)
{
    const attn_layer_tensors *args = c->args;
    const attn_cache *cache = &d->cache;
    extent *e = &c->extent;
    e->len_kv = 0; /* of the longest entry */
    for (int64_t b = 0; b < args->batch; b++) {
        const int64_t length = ((const int64_t *)cache->lengths.data)[b] + d->appended[b];
        if (length > e->len_kv) e->len_kv = length;
    }
    TRY(attn_middle_problem(&c->l, args, e, ATTN_FORWARD, &c->saved, p, core, of_core, error));
    core->k = cached(cache, &cache->k, ATTN_F32, cache->dim_qk);
    core->v = cached(cache, &cache->v, core->k.dtype, cache->dim_v);
    if (cache->k_scale.data) core->k_scale = cached(cache, &cache->k_scale, ATTN_F32, 1);
    if (cache->v_scale.data) core->v_scale = cached(cache, &cache->v_scale, ATTN_F32, 1);
    p->mask.align = ATTN_ALIGN_BOTTOM_RIGHT;
    core->lengths_kv = attn_in(args->batch ? cache->lengths.data : ATTN_EMPTY);
    if (c->lengths_q) core->lengths_q = attn_in(c->lengths_q);
    if (cache->page_table.data) {
        const int64_t pages = cache->page_size > 0 ? (cache->capacity + cache->page_size - 1) / cache->page_size : 0;
        p->paging.page_size = cache->page_size;
        p->paging.pages = cache->pages;
        core->page_table = cache->page_table;
        if (slot_is_dense(&core->page_table)) core->page_table.stride[0] = pages, core->page_table.stride[3] = 1;
    }
    return args->len_q ? attn_call_plan(c, p, core, error) : ATTN_OK;
}

attn_status attn_decoding_append(const decoding *d, const call *c, const attn_input *k, const attn_input *v, attn_error *error)
{
    attn_cache_tokens tokens = {
        .struct_size = sizeof tokens, .len = c->args->len_kv, .k = *k, .lengths = {d->appended, ATTN_I64, {0, 0, 0, 0}}};
    if (v) tokens.v = *v;
    return c->args->only_cached ? ATTN_OK : attn_cache_append(&d->cache, &tokens, error);
}

attn_status attn_decoding_attend(decoding *d, call *c, const attn_problem *problem, const attn_tensors *core, attn_error *error)
{
    const attn_status status = attn_attend_with_extra(c, problem, core, error);
    for (int64_t b = 0; status != ATTN_OK && b < c->args->batch; b++) ((int64_t *)d->cache.lengths.data)[b] -= d->appended[b];
    return status;
}

void attn_decoding_end(decoding *d, const call *c)
{
    if (d->memory) attn_memory_release(c->args->options, d->memory);
}

static attn_status append(const decoding *d, const call *c, attn_error *error)
{
    const layer *l = &c->l;
    const attn_layer_tensors *args = c->args;
    char *const side[] = {NULL, c->saved.k, c->saved.v};
    const attn_input k = attn_input_by_token(l, c->saved.k, args->len_kv, l->heads_kv, l->head_dim_k),
                     v = attn_input_by_token(l, c->saved.v, args->len_kv, l->heads_kv, l->head_dim_v);
    for (int i = KEY; i <= VALUE && !args->only_cached; i++) {
        const sequence heads =
            attn_layer_dense_rows(side[i], args->batch, args->len_kv, l->projections[i].heads * l->projections[i].dim);
        TRY(attn_project_input(c, i, &heads, error));
    }
    TRY(attn_middle_rotate(l, c->saved.k, l->heads_kv, args->batch, args->len_kv,
                           c->positions_kv ? c->positions_kv : d->positions[1], 0, error));
    return attn_decoding_append(d, c, &k, &v, error);
}

static attn_status run(decoding *d, call *c, attn_error *error)
{
    const layer *l = &c->l;
    const attn_layer_tensors *args = c->args;
    attn_problem problem;
    attn_tensors core;
    attn_call of_core;
    const sequence q = attn_layer_dense_rows(c->saved.q, args->batch, args->len_q, l->heads_q * l->head_dim),
                   a = attn_layer_dense_rows(c->saved.a, args->batch, args->len_q, l->heads_q * l->head_dim_v);
    TRY(attn_decoding_plan(d, c, &problem, &core, &of_core, error));
    if (args->len_q) TRY(attn_project_input(c, QUERY, &q, error));
    TRY(attn_middle_rotate(l, c->saved.q, l->heads_q, args->batch, args->len_q, c->positions_q ? c->positions_q : d->positions[0],
                           0, error));
    TRY(append(d, c, error));
    if (args->len_q == 0) return ATTN_OK;
    TRY(attn_decoding_attend(d, c, &problem, &core, error));
    return attn_project_output(c, &a, error);
}

attn_status attn_layer_decode(const attn_layer *given, const attn_layer_weights *weights, const attn_cache *cache,
                              const attn_layer_tensors *args, attn_error *error)
{
    call c;
    decoding d;
    memset(&d, 0, sizeof d);
    attn_layer_tensors plain;
    TRY(attn_call_read(&plain, NULL, args, error));
    plain.saved = NULL; /* ours is used instead */
    attn_status status = attn_call_begin(&c, given, weights, &plain, error);
    if (status == ATTN_OK) status = attn_decoding_begin(&d, &c, cache, error);
    if (status == ATTN_OK) status = attn_memory_acquire(c.args->options, c.l.scratch.bytes, &c.l.scratch.memory, error);
    if (status == ATTN_OK && plain.len_q)
        status =
            attn_layer_rows_out(c.l.dtype, &plain.output, "output", plain.batch, plain.len_q, c.l.dim_output, 1, &c.output, error);
    if (status == ATTN_OK) {
        attn_call_place(&c, c.l.weights, LAYER_WEIGHTS, 0, 1);
        places_add_cache(&c.places, "cache", &d.cache, !plain.only_cached);
        status = attn_call_place_outputs(&c, "layer", error);
    }
    if (status == ATTN_OK) status = attn_call_save(&c, error);
    if (status == ATTN_OK) status = run(&d, &c, error);
    attn_decoding_end(&d, &c);
    attn_call_end(&c);
    return status == ATTN_OK ? succeed(error) : status;
}
