/* SPDX-License-Identifier: MIT
 * cache.c - the rules of appending to a cache. */
#include "cache.h"

#include <inttypes.h>
#include <string.h>

/* Without a batch, tokens with slots are written all the same, to the pages. */
static int has_entries(const attn_cache *cache, int slots) { return cache->batch > 0 || (slots && cache->pages > 0); }

static attn_status check_sizes(const attn_cache *cache, int slots, attn_error *error)
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
    CHECK(!has_entries(cache, slots) || (cache->k.data && cache->v.data && (cache->lengths.data || slots)), ATTN_ERR_ARGUMENT,
          "cache: %s is NULL",
          !cache->k.data   ? "k"
          : !cache->v.data ? "v"
                           : "lengths");
    CHECK(cache->page_size == 0 || cache->page_table.data || cache->batch == 0 || slots, ATTN_ERR_ARGUMENT,
          "cache: page_table is NULL and page_size is %" PRId64, cache->page_size);
    CHECK(cache->page_size > 0 || !cache->page_table.data, ATTN_ERR_ARGUMENT, "cache: page_table is set and page_size is 0");
    CHECK(cache->page_size > 0 || cache->pages == 0, ATTN_ERR_ARGUMENT, "cache: pages is %" PRId64 " and page_size is 0",
          cache->pages);
    return ATTN_OK;
}

/* Fills in dense strides and the default type of keys or values, of a cache or of new tokens, [.., .., .., dim];
 * `allows_quantised`: their formats are allowed. */
static attn_status resolve_rows(attn_input *slot, const char *name, const int64_t channels[4], attn_dtype natural,
                                int allows_quantised, attn_error *error)
{
    const attn_dtype dtype = slot->dtype ? slot->dtype : natural;
    const int64_t shape[4] = {channels[0], channels[1], channels[2], attn_row_elements(dtype, channels[3])};
    CHECK((dtype >= ATTN_F32 && dtype <= ATTN_BF16) || (allows_quantised && attn_is_quantised(dtype)), ATTN_ERR_UNSUPPORTED,
          "%s is %s; it must be f32, f64, f16%s", name, attn_dtype_name(dtype),
          allows_quantised ? ", bf16, i8, f8 or blocks" : " or bf16");
    CHECK(!attn_is_blocks(dtype) || channels[3] % ATTN_BLOCK == 0, ATTN_ERR_SHAPE,
          "%s is %s and its rows have %" PRId64 " channels; blocks need a multiple of %d", name, attn_dtype_name(dtype),
          channels[3], ATTN_BLOCK);
    TRY(slot_resolve(slot, name, shape, natural, error));
    CHECK(slot->stride[3] == 1 || shape[3] <= 1, ATTN_ERR_STRIDE,
          "%s.stride[3] is %" PRId64 "; the last axis must be contiguous (1)", name, slot->stride[3]);
    return ATTN_OK;
}

/* The same for a slot of the cache, which is written in place. */
static attn_status resolve_output(attn_output *slot, const char *name, const int64_t shape[4], attn_dtype natural,
                                  int allows_quantised, int broadcasts, attn_error *error)
{
    attn_input s = slot_of(slot);
    TRY(resolve_rows(&s, name, shape, natural, allows_quantised, error));
    const int64_t elements[4] = {shape[0], shape[1], shape[2], attn_row_elements(s.dtype, shape[3])};
    const int some = shape[0] > 0 && shape[1] > 0 && shape[2] > 0 && shape[3] > 0;
    for (int axis = 0; axis < 4; axis++)
        CHECK(broadcasts || s.stride[axis] != 0 || elements[axis] <= 1 || !some, ATTN_ERR_STRIDE,
              "%s.stride[%d] is 0; a cache is written and cannot broadcast", name, axis);
    if (broadcasts) s.stride[3] = 1; /* so that strides of 0 are not taken for dense */
    slot->dtype = s.dtype;
    memcpy(slot->stride, s.stride, sizeof s.stride);
    return ATTN_OK;
}

attn_status attn_cache_resolve_index(attn_input *slot, const char *name, int64_t batch, int64_t columns, attn_error *error)
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

/* i8 has scales, and f8 may have them, its caller's if all tokens share one.  `some`: the cache has entries that may be written. */
static attn_status check_scales(attn_cache *cache, int64_t entries, int64_t tokens, int some, attn_error *error)
{
    const int64_t shape[4] = {entries, cache->heads_kv, tokens, 1};
    const struct {
        const char *name, *label, *tensor;
        const attn_output *rows;
        attn_output *slot;
    } both[] = {{"k_scale", "cache: k_scale", "k", &cache->k, &cache->k_scale},
                {"v_scale", "cache: v_scale", "v", &cache->v, &cache->v_scale}};
    for (int i = 0; i < 2; i++) {
        const attn_input given = slot_of(both[i].slot);
        const attn_dtype dtype = both[i].rows->dtype;
        if (dtype != ATTN_I8 && !attn_is_f8(dtype)) {
            CHECK(slot_is_absent(&given), ATTN_ERR_ARGUMENT, "cache: %s is set and %s is %s; only i8 and f8 have scales",
                  both[i].name, both[i].tensor, attn_dtype_name(dtype));
            continue;
        }
        CHECK(given.data || !some || dtype != ATTN_I8, ATTN_ERR_ARGUMENT, "cache: %s is i8 and %s is NULL", both[i].tensor,
              both[i].name);
        if (dtype != ATTN_I8 && slot_is_absent(&given)) continue;
        TRY(resolve_output(both[i].slot, both[i].label, shape, ATTN_F32, 0, attn_cache_gives_scale(both[i].rows, both[i].slot),
                           error));
        CHECK(both[i].slot->dtype == ATTN_F32, ATTN_ERR_UNSUPPORTED, "cache: %s is %s; it must be f32", both[i].name,
              attn_dtype_name(both[i].slot->dtype));
    }
    CHECK(!cache->rope || !attn_is_quantised(cache->k.dtype) || cache->dim_qk <= ATTN_ROTATED_CHANNELS, ATTN_ERR_UNSUPPORTED,
          "cache: k is %s and rotated, and dim_qk is %" PRId64 "; it must be at most %d", attn_dtype_name(cache->k.dtype),
          cache->dim_qk, ATTN_ROTATED_CHANNELS);
    return ATTN_OK;
}

/* Values in keys have the scales of these, and are written with them. */
static attn_status check_values_in_keys(attn_cache *cache, const attn_cache_tokens *tokens, attn_error *error)
{
    if (!attn_cache_has_values_in_keys(cache)) return ATTN_OK;
    CHECK(cache->dim_v <= cache->dim_qk, ATTN_ERR_SHAPE,
          "cache: v is k, whose %" PRId64 " channels are fewer than dim_v (%" PRId64 ")", cache->dim_qk, cache->dim_v);
    CHECK(!tokens->v.data, ATTN_ERR_ARGUMENT,
          "cache: tokens.v is set and v is k; leave it NULL, the values are the first channels of tokens.k");
    CHECK(!cache->v_scale.data || memcmp(&cache->v_scale, &cache->k_scale, sizeof cache->k_scale) == 0, ATTN_ERR_ARGUMENT,
          "cache: v_scale is set and v is k; leave it NULL, the scales of the values are those of k");
    cache->v_scale = cache->k_scale;
    return ATTN_OK;
}

/* Keys by channel: whole groups in pages, and a tail for each entry. */
static attn_status check_tail(attn_cache *cache, int some, attn_error *error)
{
    const int64_t shape[4] = {cache->batch, cache->heads_kv, ATTN_TAIL, cache->dim_qk};
    const attn_input given = slot_of(&cache->k_tail);
    const char *name = attn_dtype_name(cache->k.dtype);
    CHECK(!attn_is_by_channel(cache->v.dtype), ATTN_ERR_UNSUPPORTED, "cache: v is %s; only keys are quantised by channel",
          attn_dtype_name(cache->v.dtype));
    if (!attn_is_by_channel(cache->k.dtype)) {
        CHECK(slot_is_absent(&given), ATTN_ERR_ARGUMENT, "cache: k_tail is set and k is %s; only keys of q4_1c have a tail", name);
        return ATTN_OK;
    }
    CHECK(cache->page_size % ATTN_BLOCK == 0, ATTN_ERR_SHAPE,
          "cache: k is %s and page_size is %" PRId64 "; it must be a multiple of %d", name, cache->page_size, ATTN_BLOCK);
    CHECK(given.data || !some, ATTN_ERR_ARGUMENT, "cache: k is %s and k_tail is NULL", name);
    TRY(resolve_output(&cache->k_tail, "cache: k_tail", shape, ATTN_F16, 0, 0, error));
    CHECK(cache->k_tail.dtype == ATTN_F16, ATTN_ERR_UNSUPPORTED, "cache: k_tail is %s; it must be f16",
          attn_dtype_name(cache->k_tail.dtype));
    return ATTN_OK;
}

/* Packed tokens: where those of each entry begin. */
static attn_status check_starts(const attn_append *call, attn_error *error)
{
    if (!attn_append_is_packed(call)) return ATTN_OK;
    const int64_t first = attn_append_first(call, 0);
    CHECK(first == 0, ATTN_ERR_ARGUMENT, "cache: tokens.cu_seqlens[0] (%" PRId64 ") is not 0", first);
    for (int64_t b = 0; b < call->cache.batch; b++) {
        const int64_t start = attn_append_first(call, b), end = attn_append_first(call, b + 1);
        CHECK(end >= start && end <= call->tokens.len, ATTN_ERR_ARGUMENT,
              "cache: tokens.cu_seqlens[%" PRId64 "] (%" PRId64 ") is not between its predecessor (%" PRId64 ") and len (%" PRId64
              ")",
              b + 1, end, start, call->tokens.len);
    }
    return ATTN_OK;
}

attn_status attn_cache_check_pages(const attn_cache *cache, int64_t entry, int64_t from, int64_t end, attn_error *error)
{
    if (!attn_cache_has_pages(cache)) return ATTN_OK;
    const int64_t pages = end / cache->page_size + (end % cache->page_size != 0);
    for (int64_t i = from / cache->page_size; i < pages; i++) {
        const int64_t page = attn_cache_index(&cache->page_table, entry * cache->page_table.stride[0] + i);
        CHECK(page >= 0 && page < cache->pages, ATTN_ERR_ARGUMENT,
              "cache: page %" PRId64 " of entry %" PRId64 " is %" PRId64 "; pages is %" PRId64, i, entry, page, cache->pages);
    }
    return ATTN_OK;
}

/* Every entry has capacity for its new tokens, and the pages that they come to exist: earlier ones may have been freed. */
static attn_status check_places(attn_append *call, attn_error *error)
{
    const attn_cache *cache = &call->cache;
    call->longest = 0;
    for (int64_t b = 0; b < cache->batch; b++) {
        int64_t held = attn_cache_lengths(cache)[b], more = attn_append_count(call, b);
        CHECK(more >= 0 && more <= call->tokens.len, ATTN_ERR_ARGUMENT,
              "cache: tokens.lengths[%" PRId64 "] (%" PRId64 ") is not between 0 and %" PRId64, b, more, call->tokens.len);
        CHECK(held >= 0 && held <= cache->capacity, ATTN_ERR_ARGUMENT,
              "cache: lengths[%" PRId64 "] (%" PRId64 ") is not between 0 and %" PRId64, b, held, cache->capacity);
        CHECK(more <= cache->capacity - held, ATTN_ERR_SHAPE,
              "cache: entry %" PRId64 " holds %" PRId64 " of %" PRId64 " tokens; %" PRId64 " more do not fit", b, held,
              cache->capacity, more);
        if (more > call->longest) call->longest = more;
        if (more > 0) TRY(attn_cache_check_pages(cache, b, held, held + more, error)); /* not beyond capacity */
    }
    return ATTN_OK;
}

/* The rope's tables, if any, cover the position of every new key. */
static attn_status check_angles(const attn_append *call, attn_error *error)
{
    const attn_rope *rope = call->cache.rope;
    for (int64_t b = 0; rope && attn_rope_has_table(rope) && b < call->cache.batch; b++) {
        const int64_t more = attn_append_count(call, b), last = attn_cache_lengths(&call->cache)[b] + more - 1;
        CHECK(more == 0 || last < rope->table_rows, ATTN_ERR_ARGUMENT,
              "cache: the last token of entry %" PRId64 " is at %" PRId64 "; the tables of the rope have %" PRId64 " rows", b, last,
              rope->table_rows);
    }
    return ATTN_OK;
}

/* Neither is needed with slots. */
static attn_status check_lengths(attn_cache *cache, attn_error *error)
{
    attn_input lengths = slot_of(&cache->lengths);
    TRY(attn_cache_resolve_index(&lengths, "cache: lengths", cache->batch, 0, error));
    CHECK(lengths.dtype == ATTN_I64, ATTN_ERR_UNSUPPORTED, "cache: lengths is %s; it must be i64", attn_dtype_name(lengths.dtype));
    if (!cache->page_table.data) return ATTN_OK;
    const int64_t columns = cache->capacity / cache->page_size + (cache->capacity % cache->page_size != 0);
    return attn_cache_resolve_index(&cache->page_table, "cache: page_table", cache->batch, columns > 0 ? columns : 1, error);
}

void attn_append_places(places *p, const attn_append *call)
{
    const attn_cache *cache = &call->cache;
    const attn_cache_tokens *tokens = &call->tokens;
    const int64_t entries = attn_append_has_slots(call) || attn_append_is_packed(call) ? 1 : cache->batch;
    const int64_t k[4] = {entries, cache->heads_kv, tokens->len, cache->dim_qk},
                  v[4] = {entries, cache->heads_kv, tokens->len, cache->dim_v}, starts[4] = {cache->batch + 1, 1, 1, 1},
                  each[4] = {cache->batch, 1, 1, 1}, list[4] = {tokens->len, 1, 1, 1};
    p->count = p->group = 0;
    places_add_cache(p, "", cache, 1);
    places_add_slot(p, "tokens", "k", &tokens->k, k, ATTN_F32, 0);
    places_add_slot(p, "tokens", "v", &tokens->v, v, ATTN_F32, 0);
    places_add_slot(p, "tokens", "lengths", &tokens->lengths, each, ATTN_I64, 0);
    places_add_slot(p, "tokens", "slots", &tokens->slots, list, ATTN_I64, 0);
    places_add_slot(p, "tokens", "positions", &tokens->positions, list, ATTN_I64, 0);
    places_add_slot(p, "tokens", "cu_seqlens", &tokens->cu_seqlens, starts, ATTN_I64, 0);
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
static attn_status check_no_overlap(const attn_append *call, attn_error *error)
{
    const attn_cache *const c = &call->cache;
    const int64_t entries = attn_cache_has_pages(c) ? c->pages : c->batch,
                  capacity = attn_cache_has_pages(c) ? c->page_size : c->capacity;
    const int64_t k[4] = {entries, c->heads_kv, capacity, attn_row_elements(c->k.dtype, c->dim_qk)},
                  v[4] = {entries, c->heads_kv, capacity, attn_row_elements(c->v.dtype, c->dim_v)},
                  scale[4] = {entries, c->heads_kv, capacity, 1}, tail[4] = {c->batch, c->heads_kv, ATTN_TAIL, c->dim_qk};
    places p;
    TRY(check_itself("k", &c->k, k, error));
    TRY(check_itself("v", &c->v, v, error));
    if (!attn_cache_gives_scale(&c->k, &c->k_scale)) TRY(check_itself("k_scale", &c->k_scale, scale, error));
    if (!attn_cache_has_values_in_keys(c) && !attn_cache_gives_scale(&c->v, &c->v_scale))
        TRY(check_itself("v_scale", &c->v_scale, scale, error));
    TRY(check_itself("k_tail", &c->k_tail, tail, error));
    attn_append_places(&p, call);
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

/* Tokens [entries, heads_kv, len, dim], and which of lengths, slots, positions and cu_seqlens they have. */
static attn_status check_tokens(attn_append *call, attn_error *error)
{
    const attn_cache *cache = &call->cache;
    attn_cache_tokens *tokens = &call->tokens;
    const int slots = attn_append_has_slots(call), packed = attn_append_is_packed(call);
    const int64_t entries = slots || packed ? 1 : cache->batch;
    const int64_t k[4] = {entries, cache->heads_kv, tokens->len, cache->dim_qk},
                  v[4] = {entries, cache->heads_kv, tokens->len, cache->dim_v};
    const attn_dtype natural = cache->k.dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32;
    TRY(resolve_rows(&tokens->k, "cache: tokens.k", k, natural, 0, error));
    TRY(resolve_rows(&tokens->v, "cache: tokens.v", v, natural, 0, error));
    TRY(check_doubles(cache, tokens, error));
    TRY(attn_cache_resolve_index(&tokens->lengths, "cache: tokens.lengths", cache->batch, 0, error));
    TRY(attn_cache_resolve_index(&tokens->slots, "cache: tokens.slots", tokens->len, 0, error));
    TRY(attn_cache_resolve_index(&tokens->positions, "cache: tokens.positions", tokens->len, 0, error));
    TRY(attn_cache_resolve_index(&tokens->cu_seqlens, "cache: tokens.cu_seqlens", cache->batch + 1, 0, error));
    CHECK(!packed || (!slots && !tokens->lengths.data), ATTN_ERR_ARGUMENT,
          "cache: tokens.cu_seqlens and tokens.%s are both set; set only one of them", slots ? "slots" : "lengths");
    CHECK(!slots || !tokens->lengths.data, ATTN_ERR_ARGUMENT,
          "cache: tokens.lengths and tokens.slots are both set; a slot of -1 skips a token");
    CHECK(slots || !tokens->positions.data, ATTN_ERR_ARGUMENT,
          "cache: tokens.positions is set and tokens.slots is not; without slots, positions follow from lengths");
    CHECK(cache->rope || !tokens->positions.data, ATTN_ERR_ARGUMENT, "cache: tokens.positions is set and the cache has no rope");
    CHECK(!slots || !cache->rope || tokens->positions.data || tokens->len == 0, ATTN_ERR_ARGUMENT,
          "cache: tokens.positions is missing; with slots, the rope needs the position of each token");
    const int some = entries > 0 && cache->heads_kv > 0 && tokens->len > 0;
    CHECK(!some || cache->dim_qk == 0 || tokens->k.data, ATTN_ERR_ARGUMENT, "cache: tokens.k is NULL");
    CHECK(!some || cache->dim_v == 0 || tokens->v.data || attn_cache_has_values_in_keys(cache), ATTN_ERR_ARGUMENT,
          "cache: tokens.v is NULL");
    return ATTN_OK;
}

attn_status attn_append_read(attn_append *call, const attn_cache *given, const attn_cache_tokens *new_tokens, attn_error *error)
{
    attn_cache *const cache = &call->cache;
    attn_cache_tokens *const tokens = &call->tokens;
    CHECK(given, ATTN_ERR_ARGUMENT, "cache is NULL");
    CHECK(new_tokens, ATTN_ERR_ARGUMENT, "tokens is NULL");
    TRY(slots_read(cache, sizeof *cache, sizeof *cache, given, "attn_cache", error));
    TRY(slots_read(tokens, sizeof *tokens, sizeof *tokens, new_tokens, "attn_cache_tokens", error));
    const int slots = attn_append_has_slots(call);
    TRY(check_sizes(cache, slots, error));
    CHECK(tokens->len >= 0, ATTN_ERR_SHAPE, "cache: len (%" PRId64 ") is negative", tokens->len);

    const int paged = attn_cache_has_pages(cache);
    const int64_t entries = paged ? cache->pages : cache->batch, capacity = paged ? cache->page_size : cache->capacity;
    const int64_t k_shape[4] = {entries, cache->heads_kv, capacity, cache->dim_qk},
                  v_shape[4] = {entries, cache->heads_kv, capacity, cache->dim_v};
    TRY(resolve_output(&cache->k, "cache: k", k_shape, ATTN_F32, 1, 0, error));
    TRY(resolve_output(&cache->v, "cache: v", v_shape, cache->k.dtype, 1, 0, error));
    TRY(check_values_in_keys(cache, tokens, error));
    TRY(check_lengths(cache, error));
    TRY(check_scales(cache, entries, capacity, has_entries(cache, slots), error));
    TRY(check_tail(cache, cache->batch > 0, error));
    TRY(check_tokens(call, error));
    if (!slots) TRY(check_starts(call, error));
    if (!slots) TRY(check_places(call, error));
    if (cache->rope) {
        TRY(attn_rope_read(&call->rope, cache->rope, cache->dim_qk, error));
        cache->rope = &call->rope;
    }
    if (slots) TRY(attn_append_check_slots(call, error));
    else TRY(check_angles(call, error));
    return check_no_overlap(call, error);
}
