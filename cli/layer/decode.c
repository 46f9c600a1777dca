/* SPDX-License-Identifier: MIT
 *
 * decode.c - `attn layer --decode`: processes the tokens a few at a time, with keys and values in a cache. */
#include <stdlib.h>
#include <string.h>

#include "layer.h"
#include "testing/text/failure.h"

attn_status layer_check_decode(layer_work *w, attn_error *error)
{
    const layer_settings *s = w->settings;
    const attn_mask *m = &w->attention.mask;
    const attn_tensors *all = &w->tensors;
    const int by_place =
        m->window || m->chunk || m->global_q || all->alibi_slopes.data || all->bias_table.data || all->relative_keys.data;
    const int sparse = w->masks.mask.rows || all->ranges.data || all->block_starts.data;
    const struct {
        int wrong;
        const char *why;
    } rules[] = {
        {s->backward, "no gradients; --backward needs all tokens at once"},
        {all->cu_seqlens_q.data != NULL, "no packed sequences; x is [batch, token, channel], with lengths_kv"},
        {sparse, "no --sparse but masks that are windows: longformer, strided, dilated, diagonal, local, radius, sliding, window"},
        {all->mask.data != NULL, "no tensor 'mask'; --ignore=mask leaves it out"},
        {all->bias.data != NULL, "no tensor 'bias'; --ignore=bias leaves it out"},
        {w->index[0] != NULL, "no lengths_q; the queries have the lengths of the keys"},
        {w->attention.dropout.probability > 0, "no dropout, which is for training"},
        {!w->context && !m->causal, "no later tokens into account; it needs --causal"},
        {w->context && m->causal, "no --causal with a context, all of which is visible"},
        {w->context && by_place, "no window, chunk or term by distance with a context, in which a token has no position"},
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i].wrong) return failure(error, ATTN_ERR_ARGUMENT, "--decode takes %s", rules[i].why);
    return ATTN_OK;
}

/* A cache for every token, contiguous or in pages, and its memory. */
static attn_cache cache_for(const layer_work *w, char **memory)
{
    const int64_t size = (int64_t)attn_dtype_size(w->x->dtype), requested = w->settings->page_size,
                  tokens = w->len_kv > 0 ? w->len_kv : 1, page = requested < tokens ? requested : tokens,
                  pages = page ? (tokens + page - 1) / page : 1, space = page ? page * pages : tokens;
    attn_cache cache = {
        .struct_size = sizeof cache, .batch = w->batch, .capacity = space, .page_size = page, .pages = page ? pages * w->batch : 0};
    w->kind->size_cache(w, &cache);
    const int64_t rows = w->batch * cache.heads_kv * space, index = (w->batch + pages * w->batch) * (int64_t)sizeof(int64_t),
                  keys = (rows * cache.dim_qk * size + 63) / 64 * 64;
    *memory = need_memory(index + 64 + keys + rows * cache.dim_v * size, 1);
    int64_t *const lengths = (int64_t *)(void *)*memory, *const table = lengths + w->batch;
    char *const k = *memory + (index + 63) / 64 * 64;
    cache.lengths = attn_out(lengths);
    /* pages of all entries interleaved, as they would be handed out */
    for (int64_t b = 0; b < w->batch; b++)
        for (int64_t p = 0; p < pages; p++) table[b * pages + p] = p * w->batch + b;
    if (page) cache.page_table.data = table;
    cache.k = (attn_output){k, w->x->dtype, {0, 0, 0, 0}};
    cache.v = (attn_output){k + keys, w->x->dtype, {0, 0, 0, 0}};
    return cache;
}

/* Rows t .. of every entry of [batch, tokens, width]. */
static attn_output rows_from(const layer_work *w, const void *data, int64_t t, int64_t width)
{
    char *from = (char *)(uintptr_t)data + t * width * (int64_t)attn_dtype_size(w->x->dtype);
    return (attn_output){from, ATTN_DTYPE_DEFAULT, {w->len_q * width, 0, width, 1}};
}

static int64_t *lengths_of(const attn_cache *cache) { return (int64_t *)cache->lengths.data; }

/* Appends the whole context. */
static attn_status remember(layer_work *w, const attn_cache *cache, attn_error *error)
{
    attn_layer_tensors args = w->args;
    args.len_q = 0;
    args.query = (attn_input){0};
    args.output = args.weights_mean = (attn_output){0};
    const attn_status status = w->kind->remember(w, cache, &args, error);
    for (int64_t b = 0; b < w->batch && status == ATTN_OK; b++)
        if (w->index[1]) lengths_of(cache)[b] = w->index[1][b];
    return status;
}

typedef struct stepping {
    attn_cache cache;
    int64_t *real;   /* [batch]: how many tokens of this step are real; NULL: all */
    int64_t *places; /* [batch][tokens of a step]: positions of the queries over a context, which the cache does not know */
    char *mean;      /* weights of one step, averaged */
} stepping;

/* The averaged weights of one step, [batch, n, columns], into those of all; a learned key is in the last column of both. */
static void place_mean(const layer_work *w, const stepping *s, int64_t t, int64_t n)
{
    const size_t size = attn_dtype_size(w->x->dtype);
    int64_t longest = 0;
    for (int64_t b = 0; b < w->batch; b++) longest = lengths_of(&s->cache)[b] > longest ? lengths_of(&s->cache)[b] : longest;
    for (int64_t r = 0; r < w->batch * n; r++) {
        const char *from = s->mean + (size_t)(r * (longest + w->extra)) * size;
        char *to = (char *)w->args.weights_mean.data + (size_t)((r / n * w->len_q + t + r % n) * (w->len_kv + w->extra)) * size;
        memcpy(to, from, (size_t)longest * size);
        memcpy(to + (size_t)w->len_kv * size, from + (size_t)longest * size, (size_t)w->extra * size);
    }
}

static attn_status step(layer_work *w, const stepping *s, int64_t t, int64_t n, void *weights, attn_error *error)
{
    attn_layer_tensors args = w->args;
    args.len_q = n;
    args.len_kv = w->context ? 0 : n;
    const attn_output query = rows_from(w, w->args.query.data, t, layer_width(w->x));
    args.query.data = query.data;
    memcpy(args.query.stride, query.stride, sizeof query.stride);
    args.output = rows_from(w, w->args.output.data, t, w->width);
    args.key = args.value = (attn_input){0};
    args.only_cached = w->context != NULL;
    if (args.weights_mean.data) args.weights_mean.data = s->mean;
    for (int64_t b = 0; b < w->batch && s->real; b++) {
        const int64_t left = w->index[1][b] - t;
        s->real[b] = left < 0 ? 0 : left < n ? left : n;
    }
    args.lengths_q.data = s->real;
    for (int64_t r = 0; r < w->batch * n && w->context; r++) s->places[r] = t + r % n;
    args.positions_q.data = w->context && w->rotates ? s->places : NULL;
    if (weights) w->tensors.weights.data = (char *)weights + t * w->len_kv * (int64_t)attn_dtype_size(w->x->dtype);
    const attn_status status = w->kind->step(w, &s->cache, &args, error);
    if (status == ATTN_OK && args.weights_mean.data) place_mean(w, s, t, n);
    return status;
}

attn_status layer_decode(layer_work *w, attn_error *error)
{
    const int64_t size = w->settings->decode < w->len_q ? w->settings->decode
                         : w->len_q > 0                 ? w->len_q
                                                        : 1,
                  rows = w->len_q * w->len_kv;
    const attn_problem whole = w->attention;
    const attn_tensors all = w->tensors;
    char *memory;
    stepping s = {.cache = cache_for(w, &memory)};
    if (w->args.weights_mean.data) s.mean = need_memory(w->batch * size * (w->len_kv + w->extra), attn_dtype_size(w->x->dtype));
    if (all.lengths_kv.data && !w->context) s.real = need_memory(w->batch, sizeof *s.real);
    if (w->context) s.places = need_memory(w->batch * size, sizeof *s.places);
    w->attention.mask.align = ATTN_ALIGN_TOP_LEFT;
    w->tensors.lengths_q = w->tensors.lengths_kv = (attn_input){0}; /* the cache has them */
    const int64_t stride[4] = {w->heads * rows, rows, w->len_kv, 1};
    if (all.weights.data) memcpy(w->tensors.weights.stride, stride, sizeof stride);
    attn_status status = w->context ? remember(w, &s.cache, error) : ATTN_OK;
    for (int64_t t = 0; t < w->len_q && status == ATTN_OK; t += size)
        status = step(w, &s, t, size < w->len_q - t ? size : w->len_q - t, all.weights.data, error);
    w->attention = whole;
    w->tensors = all;
    free(s.mean);
    free(s.real);
    free(s.places);
    free(memory);
    return status;
}
