/* SPDX-License-Identifier: MIT
 * cache.h - what append and attend share. */
#ifndef ATTN_CACHE_CACHE_H
#define ATTN_CACHE_CACHE_H

#include "../common/decoding.h"

/* Copies of what the caller gave with default types and strides filled in; every rule is checked. */
attn_status attn_cache_resolve(const attn_cache *given, const attn_cache_tokens *new_tokens, attn_cache *cache,
                               attn_cache_tokens *tokens, attn_error *error);

/* What is appended, to what, and what is read for it; both are resolved. */
void attn_cache_places(places *p, const attn_cache *cache, const attn_cache_tokens *tokens);

/* Writes the new tokens into their places, keys rotated, and adds to the lengths. */
void attn_cache_write(const attn_cache *cache, const attn_cache_tokens *tokens);

/* One row of attn_quantise. */
void attn_quantise_row(int64_t dim, const void *src, attn_dtype dtype, int8_t *whole, float *scale);

/* Channels of a key that is rotated and then quantised, which is done on the stack. */
enum { ATTN_CACHE_MOST_ROTATED = 4096 };

/* How many tokens entry b gets; its entries in arrays of any index type. */
int64_t attn_cache_index(const attn_input *slot, int64_t i);
static inline int64_t *attn_cache_lengths(const attn_cache *cache) { return cache->lengths.data; }
int64_t attn_cache_new_tokens(const attn_cache_tokens *tokens, int64_t b);

#endif
