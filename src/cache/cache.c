/* SPDX-License-Identifier: MIT
 * cache.c - attn_cache_append: its rules, and where new tokens go. */
#include "cache.h"

#include <inttypes.h>
#include <string.h>

int64_t attn_cache_index(const attn_input *slot, int64_t i)
{
    return slot->dtype == ATTN_I32 ? ((const int32_t *)slot->data)[i] : ((const int64_t *)slot->data)[i];
}

int64_t attn_cache_new_tokens(const attn_cache_tokens *tokens, int64_t b)
{
    return tokens->lengths.data ? attn_cache_index(&tokens->lengths, b) : tokens->len;
}

static int is_paged(const attn_cache *cache) { return cache->page_table.data != NULL; }

static attn_status check_sizes(const attn_cache *cache, attn_error *error)
{
    const struct {
        const char *name;
        int64_t value;
    } sizes[] = {{"batch", cache->batch}, {"heads_kv", cache->heads_kv},   {"capacity", cache->capacity}, {"dim_qk", cache->dim_qk},
                 {"dim_v", cache->dim_v}, {"page_size", cache->page_size}, {"pages", cache->pages}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        CHECK(sizes[i].value >= 0, ATTN_ERR_SHAPE, "cache: %s (%" PRId64 ") is negative", sizes[i].name, sizes[i].value);
    for (int k = 0; k < 3; k++)
        CHECK(cache->reserved[k] == 0, ATTN_ERR_ARGUMENT, "cache: reserved[%d] is %" PRId64 "; it must be 0", k,
              cache->reserved[k]);
    CHECK(cache->batch == 0 || (cache->k.data && cache->v.data && cache->lengths.data), ATTN_ERR_ARGUMENT, "cache: %s is NULL",
          !cache->k.data   ? "k"
          : !cache->v.data ? "v"
                           : "lengths");
    CHECK(cache->page_size == 0 || is_paged(cache) || cache->batch == 0, ATTN_ERR_ARGUMENT,
          "cache: page_table is NULL and page_size is %" PRId64, cache->page_size);
    CHECK(cache->page_size > 0 || !is_paged(cache), ATTN_ERR_ARGUMENT, "cache: page_table is set and page_size is 0");
    return ATTN_OK;
}

/* Fills in dense strides and the default type of keys or values, of a cache or of new tokens; `allows_i8`: int8 is allowed. */
static attn_status resolve_rows(attn_input *slot, const char *name, const int64_t shape[4], attn_dtype natural, int allows_i8,
                                attn_error *error)
{
    TRY(slot_resolve(slot, name, shape, natural, error));
    CHECK((slot->dtype >= ATTN_F32 && slot->dtype <= ATTN_BF16) || (allows_i8 && slot->dtype == ATTN_I8), ATTN_ERR_UNSUPPORTED,
          "%s is %s; it must be f32, f64, f16%s", name, attn_dtype_name(slot->dtype), allows_i8 ? ", bf16 or i8" : " or bf16");
    CHECK(slot->stride[3] == 1 || shape[3] <= 1, ATTN_ERR_STRIDE,
          "%s.stride[3] is %" PRId64 "; the last axis must be contiguous (1)", name, slot->stride[3]);
    return ATTN_OK;
}

/* The same for a slot of the cache, which is written in place. */
static attn_status resolve_output(attn_output *slot, const char *name, const int64_t shape[4], attn_dtype natural, int allows_i8,
                                  attn_error *error)
{
    attn_input s = slot_of(slot);
    TRY(resolve_rows(&s, name, shape, natural, allows_i8, error));
    const int some = shape[0] > 0 && shape[1] > 0 && shape[2] > 0 && shape[3] > 0;
    for (int axis = 0; axis < 4; axis++)
        CHECK(s.stride[axis] != 0 || shape[axis] <= 1 || !some, ATTN_ERR_STRIDE,
              "%s.stride[%d] is 0; a cache is written and cannot broadcast", name, axis);
    slot->dtype = s.dtype;
    memcpy(slot->stride, s.stride, sizeof s.stride);
    return ATTN_OK;
}

/* [batch, columns] of an index type; columns 0: a dense array of [batch]. */
static attn_status resolve_index(attn_input *slot, const char *name, int64_t batch, int64_t columns, attn_error *error)
{
    const int64_t shape[4] = {batch, 1, 1, columns ? columns : 1}, given[2] = {slot->stride[0], slot->stride[3]};
    TRY(slot_resolve(slot, name, shape, ATTN_I64, error));
    CHECK(slot->dtype == ATTN_I64 || slot->dtype == ATTN_I32, ATTN_ERR_UNSUPPORTED, "%s is %s; it must be i64 or i32", name,
          attn_dtype_name(slot->dtype));
    CHECK(columns || batch <= 1 || slot->stride[0] == 1, ATTN_ERR_STRIDE, "%s.stride[0] is %" PRId64 "; it must be dense (1)", name,
          given[0]);
    CHECK(columns <= 1 || slot->stride[3] == 1, ATTN_ERR_STRIDE,
          "%s.stride[3] is %" PRId64 "; the last axis must be contiguous (1)", name, given[1]);
    return ATTN_OK;
}

static attn_status check_scales(attn_cache *cache, int64_t entries, int64_t tokens, attn_error *error)
{
    const int64_t shape[4] = {entries, cache->heads_kv, tokens, 1};
    const struct {
        const char *name, *label, *tensor;
        attn_dtype dtype;
        attn_output *slot;
    } both[] = {{"k_scale", "cache: k_scale", "k", cache->k.dtype, &cache->k_scale},
                {"v_scale", "cache: v_scale", "v", cache->v.dtype, &cache->v_scale}};
    for (int i = 0; i < 2; i++) {
        const attn_input given = slot_of(both[i].slot);
        if (both[i].dtype != ATTN_I8) {
            CHECK(slot_is_absent(&given), ATTN_ERR_ARGUMENT, "cache: %s is set and %s is %s; only i8 has scales", both[i].name,
                  both[i].tensor, attn_dtype_name(both[i].dtype));
            continue;
        }
        CHECK(given.data || cache->batch == 0, ATTN_ERR_ARGUMENT, "cache: %s is i8 and %s is NULL", both[i].tensor, both[i].name);
        TRY(resolve_output(both[i].slot, both[i].label, shape, ATTN_F32, 0, error));
        CHECK(both[i].slot->dtype == ATTN_F32, ATTN_ERR_UNSUPPORTED, "cache: %s is %s; it must be f32", both[i].name,
              attn_dtype_name(both[i].slot->dtype));
    }
    CHECK(!cache->rope || cache->k.dtype != ATTN_I8 || cache->dim_qk <= ATTN_CACHE_MAX_ROTATED, ATTN_ERR_UNSUPPORTED,
          "cache: k is i8 and rotated, and dim_qk is %" PRId64 "; it must be at most %d", cache->dim_qk, ATTN_CACHE_MAX_ROTATED);
    return ATTN_OK;
}

/* Every entry has capacity for its new tokens, and its pages exist. */
static attn_status check_scratch(const attn_cache *cache, const attn_cache_tokens *tokens, attn_error *error)
{
    for (int64_t b = 0; b < cache->batch; b++) {
        int64_t held = attn_cache_lengths(cache)[b], more = attn_cache_new_tokens(tokens, b);
        CHECK(more >= 0 && more <= tokens->len, ATTN_ERR_ARGUMENT,
              "cache: tokens.lengths[%" PRId64 "] (%" PRId64 ") is not between 0 and %" PRId64, b, more, tokens->len);
        CHECK(held >= 0 && held <= cache->capacity, ATTN_ERR_ARGUMENT,
              "cache: lengths[%" PRId64 "] (%" PRId64 ") is not between 0 and %" PRId64, b, held, cache->capacity);
        CHECK(more <= cache->capacity - held, ATTN_ERR_SHAPE,
              "cache: entry %" PRId64 " holds %" PRId64 " of %" PRId64 " tokens; %" PRId64 " more do not fit", b, held,
              cache->capacity, more);
        const int64_t end = held + more; /* not beyond capacity */
        const int64_t pages = is_paged(cache) ? end / cache->page_size + (end % cache->page_size != 0) : 0;
        for (int64_t i = 0; i < pages; i++) {
            int64_t page = attn_cache_index(&cache->page_table, b * cache->page_table.stride[0] + i);
            CHECK(page >= 0 && page < cache->pages, ATTN_ERR_ARGUMENT,
                  "cache: page %" PRId64 " of entry %" PRId64 " is %" PRId64 "; pages is %" PRId64, i, b, page, cache->pages);
        }
    }
    return ATTN_OK;
}

/* The rope's tables, if any, cover the position of every new key. */
static attn_status check_angles(const attn_cache *cache, const attn_cache_tokens *tokens, attn_error *error)
{
    for (int64_t b = 0; cache->rope->cosines && b < cache->batch; b++) {
        const int64_t more = attn_cache_new_tokens(tokens, b), last = attn_cache_lengths(cache)[b] + more - 1;
        CHECK(more == 0 || last < cache->rope->table_rows, ATTN_ERR_ARGUMENT,
              "cache: the last token of entry %" PRId64 " is at %" PRId64 "; the tables of the rope have %" PRId64 " rows", b, last,
              cache->rope->table_rows);
    }
    return ATTN_OK;
}

static attn_status check_lengths(attn_cache *cache, attn_error *error)
{
    attn_input lengths = slot_of(&cache->lengths);
    TRY(resolve_index(&lengths, "cache: lengths", cache->batch, 0, error));
    CHECK(lengths.dtype == ATTN_I64, ATTN_ERR_UNSUPPORTED, "cache: lengths is %s; it must be i64", attn_dtype_name(lengths.dtype));
    if (!is_paged(cache)) return ATTN_OK;
    const int64_t columns = cache->capacity / cache->page_size + (cache->capacity % cache->page_size != 0);
    return resolve_index(&cache->page_table, "cache: page_table", cache->batch, columns > 0 ? columns : 1, error);
}

void attn_cache_places(places *p, const attn_cache *cache, const attn_cache_tokens *tokens)
{
    const int64_t k[4] = {cache->batch, cache->heads_kv, tokens->len, cache->dim_qk},
                  v[4] = {cache->batch, cache->heads_kv, tokens->len, cache->dim_v}, each[4] = {cache->batch, 1, 1, 1};
    p->count = p->group = 0;
    places_add_cache(p, "", cache, 1);
    places_add_slot(p, "tokens", "k", &tokens->k, k, ATTN_F32, 0);
    places_add_slot(p, "tokens", "v", &tokens->v, v, ATTN_F32, 0);
    places_add_slot(p, "tokens", "lengths", &tokens->lengths, each, ATTN_I64, 0);
    if (cache->rope) places_add_rope(p, cache->rope, cache->dim_qk);
}

static attn_status check_itself(const char *name, const attn_output *slot, const int64_t shape[4], attn_error *error)
{
    int64_t span;
    const int axis = slot->data ? elements_self_overlap(shape, slot->stride, &span) : -1;
    CHECK(axis < 0, ATTN_ERR_STRIDE, "cache: %s.stride[%d] is %" PRId64 "; its elements overlap", name, axis, slot->stride[axis]);
    return ATTN_OK;
}

/* What appending writes must not overlap itself or another tensor. */
static attn_status check_no_overlap(const attn_cache *c, const attn_cache_tokens *tokens, attn_error *error)
{
    const int64_t entries = is_paged(c) ? c->pages : c->batch, capacity = is_paged(c) ? c->page_size : c->capacity;
    const int64_t k[4] = {entries, c->heads_kv, capacity, c->dim_qk}, v[4] = {entries, c->heads_kv, capacity, c->dim_v},
                  scale[4] = {entries, c->heads_kv, capacity, 1};
    places p;
    TRY(check_itself("k", &c->k, k, error));
    TRY(check_itself("v", &c->v, v, error));
    TRY(check_itself("k_scale", &c->k_scale, scale, error));
    TRY(check_itself("v_scale", &c->v_scale, scale, error));
    attn_cache_places(&p, c, tokens);
    return places_check(&p, "cache", error);
}

/* f64 does not mix with other types: it is never rounded to them, and attention over it is computed in f64. */
static attn_status check_doubles(const attn_cache *cache, const attn_cache_tokens *tokens, attn_error *error)
{
    const struct {
        const char *name;
        attn_dtype dtype;
    } all[] = {{"k", cache->k.dtype}, {"v", cache->v.dtype}, {"tokens.k", tokens->k.dtype}, {"tokens.v", tokens->v.dtype}};
    for (int i = 1; i < 4; i++)
        CHECK((all[i].dtype == ATTN_F64) == (all[0].dtype == ATTN_F64), ATTN_ERR_UNSUPPORTED,
              "cache: k is %s and %s is %s; either all are f64 or none", attn_dtype_name(all[0].dtype), all[i].name,
              attn_dtype_name(all[i].dtype));
    return ATTN_OK;
}

attn_status attn_cache_resolve(const attn_cache *given, const attn_cache_tokens *new_tokens, attn_cache *cache,
                               attn_cache_tokens *tokens, attn_error *error)
{
    CHECK(given, ATTN_ERR_ARGUMENT, "cache is NULL");
    CHECK(new_tokens, ATTN_ERR_ARGUMENT, "tokens is NULL");
    TRY(slots_read(cache, sizeof *cache, sizeof *cache, given, "attn_cache", error));
    TRY(slots_read(tokens, sizeof *tokens, sizeof *tokens, new_tokens, "attn_cache_tokens", error));
    TRY(check_sizes(cache, error));
    CHECK(tokens->len >= 0, ATTN_ERR_SHAPE, "cache: len (%" PRId64 ") is negative", tokens->len);

    int64_t entries = is_paged(cache) ? cache->pages : cache->batch,
            capacity = is_paged(cache) ? cache->page_size : cache->capacity;
    const int64_t k_shape[4] = {entries, cache->heads_kv, capacity, cache->dim_qk},
                  v_shape[4] = {entries, cache->heads_kv, capacity, cache->dim_v},
                  new_k[4] = {cache->batch, cache->heads_kv, tokens->len, cache->dim_qk},
                  new_v[4] = {cache->batch, cache->heads_kv, tokens->len, cache->dim_v};
    TRY(resolve_output(&cache->k, "cache: k", k_shape, ATTN_F32, 1, error));
    TRY(resolve_output(&cache->v, "cache: v", v_shape, cache->k.dtype, 1, error));
    TRY(check_lengths(cache, error));
    TRY(check_scales(cache, entries, capacity, error));
    const attn_dtype natural = cache->k.dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32;
    TRY(resolve_rows(&tokens->k, "cache: tokens.k", new_k, natural, 0, error));
    TRY(resolve_rows(&tokens->v, "cache: tokens.v", new_v, natural, 0, error));
    TRY(check_doubles(cache, tokens, error));
    TRY(resolve_index(&tokens->lengths, "cache: tokens.lengths", cache->batch, 0, error));
    int some = cache->batch > 0 && cache->heads_kv > 0 && tokens->len > 0;
    CHECK(!some || cache->dim_qk == 0 || tokens->k.data, ATTN_ERR_ARGUMENT, "cache: tokens.k is NULL");
    CHECK(!some || cache->dim_v == 0 || tokens->v.data, ATTN_ERR_ARGUMENT, "cache: tokens.v is NULL");
    TRY(check_scratch(cache, tokens, error));
    if (cache->rope) { /* checks the rope's own rules before anything is written */
        const int64_t none[4] = {0, 0, 0, cache->dim_qk};
        const attn_output to = {NULL, ATTN_DTYPE_DEFAULT, {0, 0, 0, 0}};
        const attn_input from = {NULL, ATTN_DTYPE_DEFAULT, {0, 0, 0, 0}};
        TRY(attn_rope_apply(cache->rope, none, &from, NULL, &to, error));
        TRY(check_angles(cache, tokens, error));
    }
    return check_no_overlap(cache, tokens, error);
}

/* The address of token j of entry b and head h. */
static char *place_of(const attn_cache *cache, const attn_output *slot, int64_t b, int64_t h, int64_t j)
{
    int64_t entry = b, token = j;
    if (is_paged(cache)) {
        entry = attn_cache_index(&cache->page_table, b * cache->page_table.stride[0] + j / cache->page_size);
        token = j % cache->page_size;
    }
    int64_t at = entry * slot->stride[0] + h * slot->stride[1] + token * slot->stride[2];
    return (char *)slot->data + at * (int64_t)attn_dtype_size(slot->dtype);
}

static const char *row_of(const attn_input *slot, int64_t b, int64_t h, int64_t t)
{
    int64_t at = b * slot->stride[0] + h * slot->stride[1] + t * slot->stride[2];
    return (const char *)slot->data + at * (int64_t)attn_dtype_size(slot->dtype);
}

/* Where a new row goes: token j of entry b and head h. */
typedef struct token_place {
    const attn_cache *cache;
    int64_t b, h, j;
} token_place;

static void write_row(const token_place *at, const attn_output *slot, const attn_output *scale, int64_t dim, const void *row,
                      attn_dtype dtype)
{
    char *to = place_of(at->cache, slot, at->b, at->h, at->j);
    if (slot->dtype == ATTN_I8)
        attn_quantise_row(dim, row, dtype, (int8_t *)to, (float *)(void *)place_of(at->cache, scale, at->b, at->h, at->j));
    else (void)attn_convert(dim, row, dtype, to, slot->dtype, NULL);
}

/* A row without channels still has a scale, which attention reads: 0. */
static void write_no_row(const token_place *at, const attn_output *slot, const attn_output *scale)
{
    const float none = 0;
    if (slot->dtype == ATTN_I8) memcpy(place_of(at->cache, scale, at->b, at->h, at->j), &none, sizeof none);
}

static void write_key(const token_place *at, const void *row, attn_dtype dtype)
{
    const attn_cache *c = at->cache;
    const int64_t one_row[4] = {1, 1, 1, c->dim_qk};
    const attn_input from = {row, dtype, {0, 0, 0, 0}}, position = attn_in(&at->j);
    float rotated[ATTN_CACHE_MAX_ROTATED];
    if (c->rope && c->k.dtype != ATTN_I8) {
        const attn_output to = {place_of(c, &c->k, at->b, at->h, at->j), c->k.dtype, {0, 0, 0, 0}};
        (void)attn_rope_apply(c->rope, one_row, &from, &position, &to, NULL);
        return;
    }
    if (c->rope) {
        const attn_output to = {rotated, ATTN_F32, {0, 0, 0, 0}};
        (void)attn_rope_apply(c->rope, one_row, &from, &position, &to, NULL);
        row = rotated;
        dtype = ATTN_F32;
    }
    write_row(at, &c->k, &c->k_scale, c->dim_qk, row, dtype);
}

void attn_cache_write(const attn_cache *cache, const attn_cache_tokens *tokens)
{
    int64_t *lengths = attn_cache_lengths(cache);
    const int written = cache->dim_qk > 0 || cache->dim_v > 0 || cache->k.dtype == ATTN_I8 || cache->v.dtype == ATTN_I8;
    for (int64_t b = 0; b < cache->batch; b++) {
        const int64_t count = attn_cache_new_tokens(tokens, b);
        const int64_t heads = written && count > 0 ? cache->heads_kv : 0; /* of no channels or no tokens there may be 2^48 */
        for (int64_t h = 0; h < heads; h++)
            for (int64_t t = 0; t < count; t++) {
                const token_place at = {cache, b, h, lengths[b] + t};
                if (cache->dim_qk > 0) write_key(&at, row_of(&tokens->k, b, h, t), tokens->k.dtype);
                else write_no_row(&at, &cache->k, &cache->k_scale);
                if (cache->dim_v > 0)
                    write_row(&at, &cache->v, &cache->v_scale, cache->dim_v, row_of(&tokens->v, b, h, t), tokens->v.dtype);
                else write_no_row(&at, &cache->v, &cache->v_scale);
            }
        lengths[b] += count;
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
