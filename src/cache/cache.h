/* SPDX-License-Identifier: MIT
 * cache.h - what appending to a cache and attending over it share. */
#ifndef ATTN_CACHE_CACHE_H
#define ATTN_CACHE_CACHE_H

#include "../common/decoding.h"

/* Checks every rule and copies the caller's structs with default types and strides filled in. */
attn_status attn_cache_resolve(const attn_cache *given, const attn_cache_tokens *new_tokens, attn_cache *cache,
                               attn_cache_tokens *tokens, attn_error *error);

/* Adds to p the memory that appending reads and writes; cache and tokens are resolved. */
void attn_cache_places(places *p, const attn_cache *cache, const attn_cache_tokens *tokens);

/* Rotates the new keys, appends the new tokens and updates the lengths. */
void attn_cache_write(const attn_cache *cache, const attn_cache_tokens *tokens);

/* One row of attn_quantise. */
void attn_quantise_row(int64_t dim, const void *src, attn_dtype dtype, int8_t *values, float *scale);

/* The most channels of a key that is rotated and then quantised, which is done on the stack. */
enum { ATTN_CACHE_MAX_ROTATED = 4096 };

/* Element i of an index array, i32 or i64. */
int64_t attn_cache_index(const attn_input *slot, int64_t i);
static inline int64_t *attn_cache_lengths(const attn_cache *cache) { return cache->lengths.data; }
/* The number of new tokens of entry b. */
int64_t attn_cache_new_tokens(const attn_cache_tokens *tokens, int64_t b);

#endif
