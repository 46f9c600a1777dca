/* SPDX-License-Identifier: MIT
 * shift.c - attn_cache_shift and attn_cache_move: tokens of a cache that take other places in it. */
#include <inttypes.h>

#include "cache.h"

typedef struct moves {
    const attn_cache *cache;
    int64_t keep, longest; /* of a shift: the most tokens that an entry moves */
    attn_input drop;       /* [batch] */
    attn_input from, to;   /* slots */
} moves;

/* Token n of the tokens that move, entry after entry and first ones first: none goes where another has yet to be read. */
static int find_shifted(const void *context, int64_t n, attn_transfer_token *t)
{
    const moves *m = context;
    const attn_cache *c = m->cache;
    const int64_t b = n / m->longest, to = m->keep + n % m->longest, drop = attn_cache_index(&m->drop, b), from = to + drop;
    if (drop == 0 || from >= attn_cache_lengths(c)[b]) return 0;
    *t = (attn_transfer_token){.entry = attn_cache_entry(c, b, from),
                               .token = attn_cache_token(c, from),
                               .to_entry = attn_cache_entry(c, b, to),
                               .to_token = attn_cache_token(c, to),
                               .position = to,
                               .again = 1,
                               .was = from};
    return 1;
}

static int find_moved(const void *context, int64_t n, attn_transfer_token *t)
{
    const moves *m = context;
    const int64_t from = attn_cache_index(&m->from, n), to = attn_cache_index(&m->to, n),
                  each = attn_cache_has_pages(m->cache) ? m->cache->page_size : m->cache->capacity;
    *t =
        (attn_transfer_token){.entry = from / each, .token = from % each, .to_entry = to / each, .to_token = to % each, .plain = 1};
    return 1;
}

/* For `each` tokens of so many entries. */
static attn_status run(const moves *m, int64_t entries, int64_t each, attn_transfer_find *find, const attn_rope *rope,
                       attn_error *error)
{
    const attn_cache *c = m->cache;
    const int written = c->heads_kv > 0 && (c->dim_qk > 0 || c->dim_v > 0 || c->k_scale.data || c->v_scale.data);
    attn_transfer_walk walk = {
        .tokens = written ? entries * each : 0, /* which then fit the cache's memory, or the list of slots */
        .find = find,
        .context = m,
        .tensor = {{c->heads_kv, c->dim_qk, slot_of(&c->k), c->k, c->k_scale, rope, attn_cache_gives_scale(&c->k, &c->k_scale), 0},
                   {c->heads_kv, c->dim_v, slot_of(&c->v), c->v, c->v_scale, NULL, attn_cache_gives_scale(&c->v, &c->v_scale), 0}},
        .tensors = attn_cache_has_values_in_keys(c) ? 1 : 2};
    TRY(attn_transfer_plan(&walk, NULL, 1, error));
    attn_run_transfer(&walk);
    return ATTN_OK;
}

/* An index array may not be part of what is written. */
static attn_status check_apart(const attn_append *call, const char *name, const attn_input *index, int64_t count, attn_error *error)
{
    const int64_t shape[4] = {count, 1, 1, 1};
    places p;
    attn_append_places(&p, call);
    places_add_slot(&p, "", name, index, shape, ATTN_I64, 0);
    return places_check(&p, "cache", error);
}

attn_status attn_cache_shift(const attn_cache *cache, int64_t keep, const attn_input *drop, attn_error *error)
{
    const attn_cache_tokens none = {.struct_size = sizeof none};
    attn_append call;
    TRY(attn_append_read(&call, cache, &none, error));
    const attn_cache *c = &call.cache;
    moves m = {.cache = c, .keep = keep};
    CHECK(keep >= 0, ATTN_ERR_SHAPE, "cache: keep (%" PRId64 ") is negative", keep);
    CHECK(drop && (drop->data || c->batch == 0), ATTN_ERR_ARGUMENT, "cache: drop is NULL");
    m.drop = *drop;
    TRY(attn_cache_resolve_index(&m.drop, "cache: drop", c->batch, 0, error));
    CHECK(!attn_is_by_channel(c->k.dtype), ATTN_ERR_UNSUPPORTED, "cache: k is %s; a shift would move keys out of their groups",
          attn_dtype_name(c->k.dtype));
    CHECK(!c->rope || !attn_is_quantised(c->k.dtype) || c->dim_qk == 0, ATTN_ERR_UNSUPPORTED,
          "cache: k is %s and rotated; a shift would quantise it again", attn_dtype_name(c->k.dtype));
    for (int64_t b = 0; b < c->batch; b++) {
        const int64_t held = attn_cache_lengths(c)[b], less = attn_cache_index(&m.drop, b);
        CHECK(less >= 0 && (less == 0 || (keep <= held && less <= held - keep)), ATTN_ERR_ARGUMENT,
              "cache: drop[%" PRId64 "] is %" PRId64 "; the entry holds %" PRId64 " tokens, of which %" PRId64 " are to be kept", b,
              less, held, keep);
        CHECK(less == 0 || !c->rope || !attn_rope_has_table(c->rope) || held <= c->rope->table_rows, ATTN_ERR_ARGUMENT,
              "cache: entry %" PRId64 " holds %" PRId64 " tokens; the tables of the rope have %" PRId64 " rows", b, held,
              c->rope->table_rows);
        const int64_t moving = less > 0 ? held - keep - less : 0;
        if (moving == 0) continue;
        /* Not those of other dropped tokens, which may have been freed behind a window. */
        TRY(attn_cache_check_pages(c, b, keep, keep + moving, error));
        TRY(attn_cache_check_pages(c, b, held - moving, held, error));
        if (moving > m.longest) m.longest = moving;
    }
    TRY(check_apart(&call, "drop", &m.drop, c->batch, error));
    TRY(run(&m, c->batch, m.longest, find_shifted, c->rope, error));
    for (int64_t b = 0; b < c->batch; b++) attn_cache_lengths(c)[b] -= attn_cache_index(&m.drop, b);
    return succeed(error);
}

/* Slots from or to, resolved. */
static attn_status read_slots(const attn_append *call, attn_input *slots, const attn_input *given, const char *name, int64_t count,
                              attn_error *error)
{
    const int64_t all = attn_append_slots(call);
    char label[16];
    text_join(label, sizeof label, "cache: ", name, "");
    CHECK(given && (given->data || count == 0), ATTN_ERR_ARGUMENT, "%s is NULL", label);
    *slots = *given;
    TRY(attn_cache_resolve_index(slots, label, count, 0, error));
    for (int64_t i = 0; i < count; i++) {
        const int64_t slot = attn_cache_index(slots, i);
        CHECK(slot >= 0 && slot < all, ATTN_ERR_ARGUMENT, "%s[%" PRId64 "] is %" PRId64 "; the cache has %" PRId64 " slots", label,
              i, slot, all);
    }
    return check_apart(call, name, slots, count, error);
}

attn_status attn_cache_move(const attn_cache *cache, int64_t count, const attn_input *from, const attn_input *to, attn_error *error)
{
    /* No tokens with slots: lengths and pages of entries are not needed. */
    const attn_cache_tokens none = {.struct_size = sizeof none, .slots = {ATTN_EMPTY, ATTN_DTYPE_DEFAULT, {0, 0, 0, 0}}};
    attn_append call;
    TRY(attn_append_read(&call, cache, &none, error));
    moves m = {.cache = &call.cache};
    CHECK(!attn_is_by_channel(m.cache->k.dtype), ATTN_ERR_UNSUPPORTED, "cache: k is %s; its keys are in groups, not in slots",
          attn_dtype_name(m.cache->k.dtype));
    CHECK(count >= 0, ATTN_ERR_SHAPE, "cache: count (%" PRId64 ") is negative", count);
    TRY(read_slots(&call, &m.from, from, "from", count, error));
    TRY(read_slots(&call, &m.to, to, "to", count, error));
    TRY(run(&m, 1, count, find_moved, NULL, error));
    return succeed(error);
}
