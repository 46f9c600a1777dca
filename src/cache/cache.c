/* SPDX-License-Identifier: MIT
 * cache.c - attn_cache_append: its rules, and where new tokens go. */
#include "cache.h"

#include <inttypes.h>

int64_t attn_cache_new_tokens(const attn_cache_tokens *tokens, int64_t b)
{
    return tokens->len_of_entry ? tokens->len_of_entry[b] : tokens->len;
}

static attn_status check_sizes(const attn_cache *cache, attn_error *error)
{
    const struct {
        const char *name;
        int64_t value;
    } sizes[] = {{"batch", cache->batch}, {"heads_kv", cache->heads_kv},   {"capacity", cache->capacity}, {"dim_qk", cache->dim_qk},
                 {"dim_v", cache->dim_v}, {"page_size", cache->page_size}, {"pages", cache->pages}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        CHECK(sizes[i].value >= 0, ATTN_ERR_SHAPE, "cache: %s (%" PRId64 ") is negative", sizes[i].name, sizes[i].value);
    CHECK(cache->batch == 0 || (cache->k && cache->v && cache->lengths), ATTN_ERR_ARGUMENT, "cache: %s is NULL",
          !cache->k   ? "k"
          : !cache->v ? "v"
                      : "lengths");
    CHECK(cache->page_size == 0 || cache->page_table || cache->batch == 0, ATTN_ERR_ARGUMENT, "cache: page_table is NULL");
    return ATTN_OK;
}

/* Dense strides and the default type, of a cache's or of new tokens' keys or values. */
static attn_status resolve(attn_layout *layout, const char *name, int64_t b, int64_t h, int64_t t, int64_t c, attn_dtype natural,
                           int whole, attn_error *error)
{
    const int64_t shape[4] = {b, h, t, c};
    int64_t *stride = layout->stride, dense = 1;
    int implied = stride[0] == 0 && stride[1] == 0 && stride[2] == 0 && stride[3] == 0;
    if (layout->dtype == ATTN_DTYPE_DEFAULT) layout->dtype = natural;
    CHECK((layout->dtype >= ATTN_F32 && layout->dtype <= ATTN_BF16) || (whole && layout->dtype == ATTN_I8), ATTN_ERR_UNSUPPORTED,
          "cache: %s is %s; it must be f32, f64, f16%s", name, attn_dtype_name(layout->dtype), whole ? ", bf16 or i8" : " or bf16");
    for (int axis = 3; axis >= 0; axis--) {
        if (implied) stride[axis] = dense;
        CHECK(shape[axis] == 0 || dense <= INT64_MAX / 8 / shape[axis], ATTN_ERR_SHAPE,
              "cache: %s has more bytes than 64 bits count", name);
        dense *= shape[axis];
    }
    CHECK(stride[3] == 1 || c <= 1, ATTN_ERR_STRIDE, "cache: %s.stride[3] is %" PRId64 "; the last axis must be contiguous (1)",
          name, stride[3]);
    return ATTN_OK;
}

static attn_status check_scales(attn_cache *cache, int64_t entries, int64_t room, attn_error *error)
{
    const struct {
        const char *name, *of;
        attn_dtype dtype;
        attn_layout *layout;
        const float *scales;
    } both[] = {{"k_scale", "k", cache->k_layout.dtype, &cache->k_scale_layout, cache->k_scale},
                {"v_scale", "v", cache->v_layout.dtype, &cache->v_scale_layout, cache->v_scale}};
    for (int i = 0; i < 2; i++) {
        if (both[i].dtype != ATTN_I8) continue;
        TRY(resolve(both[i].layout, both[i].name, entries, cache->heads_kv, room, 1, ATTN_F32, 0, error));
        CHECK(both[i].layout->dtype == ATTN_F32, ATTN_ERR_UNSUPPORTED, "cache: %s is %s; it must be f32", both[i].name,
              attn_dtype_name(both[i].layout->dtype));
        CHECK(both[i].scales || cache->batch == 0, ATTN_ERR_ARGUMENT, "cache: %s is i8 and %s is NULL", both[i].of, both[i].name);
    }
    CHECK(!cache->rope || cache->k_layout.dtype != ATTN_I8 || cache->dim_qk <= ATTN_CACHE_MOST_ROTATED, ATTN_ERR_UNSUPPORTED,
          "cache: k is i8 and rotated, and dim_qk is %" PRId64 "; it must be at most %d", cache->dim_qk, ATTN_CACHE_MOST_ROTATED);
    return ATTN_OK;
}

/* Every entry has room, and its pages exist. */
static attn_status check_room(const attn_cache *cache, const attn_cache_tokens *tokens, attn_error *error)
{
    for (int64_t b = 0; b < cache->batch; b++) {
        int64_t held = cache->lengths[b], more = attn_cache_new_tokens(tokens, b);
        CHECK(more >= 0 && more <= tokens->len, ATTN_ERR_ARGUMENT,
              "cache: len_of_entry[%" PRId64 "] (%" PRId64 ") is not within 0..%" PRId64, b, more, tokens->len);
        CHECK(held >= 0 && held <= cache->capacity, ATTN_ERR_ARGUMENT,
              "cache: lengths[%" PRId64 "] (%" PRId64 ") is not within 0..%" PRId64, b, held, cache->capacity);
        CHECK(more <= cache->capacity - held, ATTN_ERR_SHAPE,
              "cache: entry %" PRId64 " holds %" PRId64 " of %" PRId64 " tokens; %" PRId64 " more do not fit", b, held,
              cache->capacity, more);
        for (int64_t i = 0; cache->page_size && i * cache->page_size < held + more; i++) {
            int64_t page = cache->page_table[b * cache->table_stride + i];
            CHECK(page >= 0 && page < cache->pages, ATTN_ERR_ARGUMENT,
                  "cache: page %" PRId64 " of entry %" PRId64 " is %" PRId64 "; there are %" PRId64 " pages", i, b, page,
                  cache->pages);
        }
    }
    return ATTN_OK;
}

attn_status attn_cache_resolve(const attn_cache *given, const attn_cache_tokens *new_tokens, attn_cache *cache,
                               attn_cache_tokens *tokens, attn_error *error)
{
    CHECK(given, ATTN_ERR_ARGUMENT, "cache is NULL");
    CHECK(new_tokens, ATTN_ERR_ARGUMENT, "tokens is NULL");
    CHECK(given->struct_size == sizeof *given, ATTN_ERR_ARGUMENT, "attn_cache.struct_size is %zu; set it to sizeof(attn_cache)",
          given->struct_size);
    CHECK(new_tokens->struct_size == sizeof *new_tokens, ATTN_ERR_ARGUMENT,
          "attn_cache_tokens.struct_size is %zu; set it to sizeof(attn_cache_tokens)", new_tokens->struct_size);
    *cache = *given;
    *tokens = *new_tokens;
    TRY(check_sizes(cache, error));
    CHECK(tokens->len >= 0, ATTN_ERR_SHAPE, "cache: len (%" PRId64 ") is negative", tokens->len);

    int64_t entries = cache->page_size ? cache->pages : cache->batch, room = cache->page_size ? cache->page_size : cache->capacity;
    TRY(resolve(&cache->k_layout, "k", entries, cache->heads_kv, room, cache->dim_qk, ATTN_F32, 1, error));
    TRY(resolve(&cache->v_layout, "v", entries, cache->heads_kv, room, cache->dim_v, cache->k_layout.dtype, 1, error));
    TRY(check_scales(cache, entries, room, error));
    const attn_dtype new_k = cache->k_layout.dtype == ATTN_I8 ? ATTN_F32 : cache->k_layout.dtype,
                     new_v = cache->v_layout.dtype == ATTN_I8 ? ATTN_F32 : cache->v_layout.dtype;
    TRY(resolve(&tokens->k_layout, "the new k", cache->batch, cache->heads_kv, tokens->len, cache->dim_qk, new_k, 0, error));
    TRY(resolve(&tokens->v_layout, "the new v", cache->batch, cache->heads_kv, tokens->len, cache->dim_v, new_v, 0, error));
    if (cache->page_size && cache->table_stride == 0)
        cache->table_stride = cache->capacity / cache->page_size + (cache->capacity % cache->page_size != 0);
    int some = cache->batch > 0 && cache->heads_kv > 0 && tokens->len > 0;
    CHECK(!some || cache->dim_qk == 0 || tokens->k, ATTN_ERR_ARGUMENT, "cache: the new k is NULL");
    CHECK(!some || cache->dim_v == 0 || tokens->v, ATTN_ERR_ARGUMENT, "cache: the new v is NULL");
    TRY(check_room(cache, tokens, error));
    if (cache->rope) { /* its own rules, before anything is written */
        const int64_t none[4] = {0, 0, 0, cache->dim_qk};
        const attn_layout *to = cache->k_layout.dtype == ATTN_I8 ? &tokens->k_layout : &cache->k_layout;
        TRY(attn_rope_apply(cache->rope, none, &tokens->k_layout, NULL, to, NULL, NULL, error));
    }
    return ATTN_OK;
}

/* Where token j of entry b and head h lies. */
static char *slot_of(const attn_cache *cache, const attn_layout *layout, void *base, int64_t b, int64_t h, int64_t j)
{
    int64_t entry = b, token = j;
    if (cache->page_size) {
        entry = cache->page_table[b * cache->table_stride + j / cache->page_size];
        token = j % cache->page_size;
    }
    int64_t at = entry * layout->stride[0] + h * layout->stride[1] + token * layout->stride[2];
    return (char *)base + at * (int64_t)attn_dtype_size(layout->dtype);
}

static const char *row_of(const attn_layout *layout, const void *base, int64_t b, int64_t h, int64_t t)
{
    int64_t at = b * layout->stride[0] + h * layout->stride[1] + t * layout->stride[2];
    return (const char *)base + at * (int64_t)attn_dtype_size(layout->dtype);
}

/* A new row into its place j. */
typedef struct place {
    const attn_cache *cache;
    int64_t b, h, j;
} place;

static void write_row(const place *at, const attn_layout *layout, void *base, const attn_layout *scale_layout, float *scales,
                      int64_t dim, const void *row, attn_dtype dtype)
{
    char *slot = slot_of(at->cache, layout, base, at->b, at->h, at->j);
    if (layout->dtype != ATTN_I8) {
        attn_convert(slot, layout->dtype, row, dtype, dim);
        return;
    }
    char *scale = slot_of(at->cache, scale_layout, scales, at->b, at->h, at->j);
    attn_quantise_row(dim, row, dtype, (int8_t *)slot, (float *)(void *)scale);
}

static void write_key(const place *at, const void *row, attn_dtype dtype)
{
    const attn_cache *c = at->cache;
    const int64_t one_row[4] = {1, 1, 1, c->dim_qk};
    const attn_layout from = {dtype, {0, 0, 0, 0}};
    float rotated[ATTN_CACHE_MOST_ROTATED];
    if (c->rope && c->k_layout.dtype != ATTN_I8) {
        const attn_layout to = {c->k_layout.dtype, {0, 0, 0, 0}};
        (void)attn_rope_apply(c->rope, one_row, &from, row, &to, slot_of(c, &c->k_layout, c->k, at->b, at->h, at->j), &at->j, NULL);
        return;
    }
    if (c->rope) {
        const attn_layout to = {ATTN_F32, {0, 0, 0, 0}};
        (void)attn_rope_apply(c->rope, one_row, &from, row, &to, rotated, &at->j, NULL);
        row = rotated;
        dtype = ATTN_F32;
    }
    write_row(at, &c->k_layout, c->k, &c->k_scale_layout, c->k_scale, c->dim_qk, row, dtype);
}

void attn_cache_write(const attn_cache *cache, const attn_cache_tokens *tokens)
{
    for (int64_t b = 0; b < cache->batch; b++) {
        int64_t count = attn_cache_new_tokens(tokens, b);
        for (int64_t h = 0; h < cache->heads_kv; h++)
            for (int64_t t = 0; t < count; t++) {
                const place at = {cache, b, h, cache->lengths[b] + t};
                write_key(&at, row_of(&tokens->k_layout, tokens->k, b, h, t), tokens->k_layout.dtype);
                write_row(&at, &cache->v_layout, cache->v, &cache->v_scale_layout, cache->v_scale, cache->dim_v,
                          row_of(&tokens->v_layout, tokens->v, b, h, t), tokens->v_layout.dtype);
            }
        cache->lengths[b] += count;
    }
}

attn_status attn_cache_append(const attn_cache *cache, const attn_cache_tokens *tokens, attn_error *error)
{
    attn_cache c;
    attn_cache_tokens t;
    TRY(attn_cache_resolve(cache, tokens, &c, &t, error));
    attn_cache_write(&c, &t);
    return succeed(error);
}
