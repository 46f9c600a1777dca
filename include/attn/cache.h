/* SPDX-License-Identifier: MIT
 *
 * cache.h - inference over a cache of keys and values: append new tokens and attend to everything so far, for a batch of sequences
 * of different lengths.  The cache's memory is the caller's, contiguous or in pages.  Conventions of attn.h hold.
 */
#ifndef ATTN_CACHE_H
#define ATTN_CACHE_H

#include "attn/attn.h"
#include "attn/position.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Rows as whole numbers of 8 bits, each row with a scale of its own (attn_quantised of attn.h):
 *
 *      scales[i]   = max_c |x_ic| / 127, rounded to f32
 *      whole[i, c] = x_ic / scales[i] to the nearest, ties to even; 0 where the scale is 0
 *
 * so that a number is off by at most half a scale.  NaN or an infinity makes its row's scale NaN, which is then all of the row.
 * src: rows x dim of any float type, dense, read at `stride` elements from row to row; whole likewise at dim.
 */
ATTN_API attn_status attn_quantise(int64_t rows, int64_t dim, const void *src, attn_dtype dtype, int64_t stride, int8_t *whole,
                                   float *scales, attn_error *error);

/*
 * Keys [batch, heads_kv, capacity, dim_qk] and values [batch, heads_kv, capacity, dim_v] of f32, f16, bf16 or i8, or f64.  In pages
 * (page_size > 0) they are [pages, heads_kv, page_size, dim], and token j of entry b is token j % page_size of page
 * page_table[b*table_stride + j/page_size]; capacity is then what one entry's row of the table can hold.  Where keys (values) are
 * i8, k_scale (v_scale) has a number for each of their rows, a tensor with 1 for dim, and appending quantises as attn_quantise.
 * The only thing in libattn that is written in place: appending writes k, v, their scales and lengths.
 */
typedef struct attn_cache {
    size_t struct_size; /* sizeof(attn_cache) */
    int64_t batch;
    int64_t heads_kv;
    int64_t capacity;
    int64_t dim_qk;
    int64_t dim_v;
    attn_layout k_layout;
    attn_layout v_layout;
    void *k;
    void *v;
    int64_t *lengths; /* [batch]: tokens in the cache; appending adds to them */

    int64_t page_size; /* 0: contiguous */
    int64_t pages;
    const int64_t *page_table;
    int64_t table_stride; /* 0: ceil(capacity / page_size) */

    const attn_rope *rope; /* NULL, or the rotation of keys (as they are appended) and queries, at their places in the sequence */

    attn_layout k_scale_layout; /* of f32 */
    attn_layout v_scale_layout;
    float *k_scale; /* NULL unless k is i8 */
    float *v_scale;
} attn_cache;

/*
 * New tokens of every entry: k is [batch, heads_kv, len, dim_qk] and v [batch, heads_kv, len, dim_v], of any float type (all or
 * none f64, as the cache), rounded once to the cache's type (keys rotated into i8: rotated in f32, dim_qk at most 4096).
 * len_of_entry [batch] says how many of the `len` tokens are real, NULL: all.
 *
 *      token t of entry b becomes key lengths[b] + t;   lengths[b] += len_of_entry[b]
 *
 * Returns ATTN_ERR_ARGUMENT, ATTN_ERR_SHAPE (an entry would pass its capacity) or ATTN_ERR_UNSUPPORTED with the cache untouched.
 */
typedef struct attn_cache_tokens {
    size_t struct_size; /* sizeof(attn_cache_tokens) */
    int64_t len;
    const int64_t *len_of_entry;
    attn_layout k_layout;
    attn_layout v_layout;
    const void *k;
    const void *v;
} attn_cache_tokens;

ATTN_API attn_status attn_cache_append(const attn_cache *cache, const attn_cache_tokens *tokens, attn_error *error);

/*
 * Appends, then lets the new tokens attend, causally, to all of their sequence, themselves included: query t of entry b sees keys
 * 0 .. lengths_before[b] + t.  Key heads shared by query heads are read once.
 *
 *  problem  [in] the queries' side and every option of attn_problem that fits: shape.heads_q, q and o (layouts [batch, heads_q,
 * len, dim]), score, mask.window, bias, want.  What follows from the cache and the tokens (the other sizes, causality, alignment,
 *                lengths, paging, layouts of k and v) is filled in.
 *  args     [in] q, o, lse, sink, ... as the problem needs; k, v, lengths and page_table are filled in
 *  options  [in] as in attn_plan_create; may be NULL
 *
 * Plans and allocates for the call; a loop that must not allocate appends by attn_cache_append and keeps a plan with
 * mask.lengths_kv and mask.lengths_q for the longest sequence.
 * Returns what attn_cache_append and attn_forward return; on an error of the problem nothing was appended.
 */
ATTN_API attn_status attn_cache_attend(const attn_cache *cache, const attn_cache_tokens *tokens, const attn_problem *problem,
                                       const attn_args *args, const attn_options *options, attn_error *error);

#ifdef __cplusplus
}
#endif

#endif
