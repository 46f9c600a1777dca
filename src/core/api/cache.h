/* SPDX-License-Identifier: MIT
 * cache.h - what appending to a cache and attending over it share. */
#ifndef ATTN_API_CACHE_H
#define ATTN_API_CACHE_H

#include "../../common/decoding.h"
#include "transfer.h"

/* A call that appends: the caller's structs with default types and strides filled in. */
typedef struct attn_append {
    attn_cache cache; /* its rope is NULL or the one below */
    attn_cache_tokens tokens;
    attn_rope rope;
    int64_t longest; /* the most new tokens of an entry */
} attn_append;

/* Checks every rule that does not need the tokens' places, and those of lengths or slots. */
attn_status attn_append_read(attn_append *call, const attn_cache *cache, const attn_cache_tokens *tokens, attn_error *error);
/* [batch, columns] of an index type; columns 0: a dense array of [batch]. */
attn_status attn_cache_resolve_index(attn_input *slot, const char *name, int64_t batch, int64_t columns, attn_error *error);
/* The pages of an entry's tokens from .. end-1 exist. */
attn_status attn_cache_check_pages(const attn_cache *cache, int64_t entry, int64_t from, int64_t end, attn_error *error);
/* Every slot exists, once, and its position is within the rope's tables (append_slots.c). */
attn_status attn_append_check_slots(const attn_append *call, attn_error *error);

/* Adds to p the memory that appending reads and writes. */
void attn_append_places(places *p, const attn_append *call);

/* Chooses kernel and threads; the walk refers to the call. */
attn_status attn_append_plan(attn_transfer_walk *walk, const attn_append *call, const attn_options *options, attn_error *error);
/* Rotates the new keys, writes the new tokens and updates the lengths. */
void attn_append_run(const attn_transfer_walk *walk, const attn_append *call);

/* Element i of an index array, i32 or i64. */
static inline int64_t attn_cache_index(const attn_input *slot, int64_t i)
{
    return slot->dtype == ATTN_I32 ? ((const int32_t *)slot->data)[i] : ((const int64_t *)slot->data)[i];
}
static inline int attn_cache_has_pages(const attn_cache *cache) { return cache->page_size > 0; }
/* Where token `at` of entry b is: its entry or page, and the token within it. */
static inline int64_t attn_cache_entry(const attn_cache *c, int64_t b, int64_t at)
{
    if (!attn_cache_has_pages(c)) return b;
    return attn_cache_index(&c->page_table, b * c->page_table.stride[0] + at / c->page_size);
}
static inline int64_t attn_cache_token(const attn_cache *c, int64_t at) { return attn_cache_has_pages(c) ? at % c->page_size : at; }

static inline int64_t *attn_cache_lengths(const attn_cache *cache) { return cache->lengths.data; }
/* The number of slots, at most 2^63 - 1. */
static inline int64_t attn_append_slots(const attn_append *call)
{
    const attn_cache *c = &call->cache;
    const int64_t entries = attn_cache_has_pages(c) ? c->pages : c->batch,
                  each = attn_cache_has_pages(c) ? c->page_size : c->capacity;
    return each > 0 && entries > INT64_MAX / each ? INT64_MAX : entries * each;
}
static inline int attn_append_has_slots(const attn_append *call) { return call->tokens.slots.data != NULL; }

/* Whether tokens are packed by entry, those of entry b from attn_append_first on. */
static inline int attn_append_is_packed(const attn_append *call) { return call->tokens.cu_seqlens.data != NULL; }
static inline int64_t attn_append_first(const attn_append *call, int64_t b)
{
    return attn_append_is_packed(call) ? attn_cache_index(&call->tokens.cu_seqlens, b) : 0;
}
/* The number of new tokens of entry b. */
static inline int64_t attn_append_count(const attn_append *call, int64_t b)
{
    const attn_input *lengths = &call->tokens.lengths;
    if (attn_append_is_packed(call)) return attn_append_first(call, b + 1) - attn_append_first(call, b);
    return lengths->data ? attn_cache_index(lengths, b) : call->tokens.len;
}

#endif
