/* SPDX-License-Identifier: MIT
 *
 * choose.h - which of very many keys a few queries read: bounds of the keys in each block, upper bounds of the scores that follow
 * from them, and the best blocks, as lists for attn_mask.block_heads.  Conventions of attn.h hold.
 *
 *      attn_cache_append(&cache, &tokens, &error);
 *      attn_page_bounds(&cache, &bounds, &first_new, &error);              the bounds follow what was appended
 *      attn_page_scores(&cache, heads_q, 1, &bounds, &q, &scores, &error);
 *      attn_choose_blocks(&choice, &error);                                scores -> block_starts, block_index
 *      attn_execute(plan, &tensors, workspace, size, &error);              mask.block_heads = 1
 *
 * This is Quest (Tang et al. 2024, "Quest: Query-Aware Sparsity for Efficient Long-Context LLM Inference", Algorithm 1).  Each step
 * stands alone: scores of tokens by an indexer of the caller's own (DSA) go to attn_choose_blocks with blocks of one token, and
 * lists made elsewhere (NSA) to attention.
 */
#ifndef ATTN_CHOOSE_H
#define ATTN_CHOOSE_H

#include "attn/cache.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The least and the greatest number of each channel, over the keys of a block: exact, since they are of the keys' type (of f32 if
 * keys are quantised, whose scales count).  With pages a block is a page, so pages that sequences share have their bounds once.
 */
typedef struct attn_bounds {
    size_t struct_size;          /* sizeof(attn_bounds) */
    int64_t block;               /* tokens of a block; in pages 0 or page_size */
    const attn_options *options; /* isa, threads, parallel_for; NULL: all defaults */
    attn_output rows; /* [pages, heads_kv, 2, dim_qk], the last two axes contiguous: the least numbers, then the greatest;
                       * without pages [batch * ceil(capacity / block), heads_kv, 2, dim_qk], block n of entry b being row
                       * b * ceil(capacity / block) + n.  By default of the type that they must have, that of the keys or f32 */
} attn_bounds;

/*
 * Lets bounds follow the tokens that each entry has from `first` on, up to lengths: a block that begins there is begun anew, and
 * the one before is widened.  NaN in a channel makes both of its bounds NaN.  Bounds of blocks without such tokens are not touched.
 * Pages that entries share lie at the same place of their rows; their bounds are of all keys that any of the entries has there.
 * Whoever changes keys that bounds have seen (attn_cache_shift, attn_cache_move, sinks with new positions) begins at 0 again.
 *
 *  cache  [in] k, lengths, page_table (for tokens from first on) and k_scale are read; v must be there, and is not
 *  first  [in] [batch], dense, of i64 (default) or i32, 0 .. lengths; NULL: 0, all tokens
 *
 * bounds->rows is updated in place, so calls with the same rows must not overlap.  Returns ATTN_ERR_ARGUMENT, ATTN_ERR_SHAPE,
 * ATTN_ERR_STRIDE or ATTN_ERR_UNSUPPORTED (a type of rows that is not that of the keys) with nothing written.
 */
ATTN_API attn_status attn_page_bounds(const attn_cache *cache, const attn_bounds *bounds, const attn_input *first,
                                      attn_error *error);

/*
 * How large the product of a query and a key of a block can be at most, for each key head the most of all its queries:
 *
 *      scores[b,g,n] = max over h of g, i of  sum_c max(q[b,h,i,c] least[n,g,c], q[b,h,i,c] greatest[n,g,c])
 *
 * rounded to f32, up to the rounding of the compute type; neither scale nor rotation is applied (rotate q first, as for attention).
 * -infinity past the last block of an entry; NaN, which is chosen first, where q or the bounds have NaN, where a bound is infinite
 * that the sign of q does not take (or q is 0), or infinities of both signs are added; else infinities give infinite scores.  The
 * bits do not depend on threads or pages.
 *
 *  q       [in]  [batch, heads_q, len_q, dim_qk] of f32 (default), f16 or bf16, or f64 if the cache is; channels contiguous
 *  scores  [out] [batch, heads_kv, 1, ceil(capacity / block)] of f32, the last axis contiguous
 *
 * dim_qk is at most 1024.  Allocates nothing.  Returns the same errors with nothing written.
 */
ATTN_API attn_status attn_page_scores(const attn_cache *cache, int64_t heads_q, int64_t len_q, const attn_bounds *bounds,
                                      const attn_input *q, const attn_output *scores, attn_error *error);

/* Scores of blocks, and the lists that are made of them. */
typedef struct attn_choice {
    size_t struct_size; /* sizeof(attn_choice) */
    int64_t batch;
    int64_t heads_kv;
    int64_t blocks;     /* of the longest entry: columns of scores */
    int64_t block;      /* keys of a block, attn_mask.block_kv */
    int64_t count;      /* how many blocks each list has, or all that the entry has if these are fewer */
    int64_t keep_first; /* of them, the first ones, which are in each list, as sinks */
    int64_t keep_last;  /* and the last ones, which hold the newest keys */
    const attn_options *options;
    attn_input lengths;       /* [batch], dense, of i64 (default) or i32: keys of each entry, up to blocks * block */
    attn_input scores;        /* [batch, heads_kv, 1, blocks] of f32, the last axis contiguous */
    attn_output block_starts; /* [batch * heads_kv + 1], dense, of i64 (default) or i32 */
    attn_output block_index;  /* [batch * heads_kv * count], dense, of i64 (default) or i32; past the last list not written */
} attn_choice;

/*
 * The `count` best blocks of each key head, ascending: keep_first and keep_last blocks, then those of the greatest scores; of equal
 * ones the first.  NaN is above all numbers.  attn_mask.block_entries is batch * heads_kv * count.  Allocates nothing.
 *
 * Returns ATTN_ERR_ARGUMENT (also if keep_first + keep_last exceeds count), ATTN_ERR_SHAPE, ATTN_ERR_STRIDE or ATTN_ERR_UNSUPPORTED
 * with nothing written.
 */
ATTN_API attn_status attn_choose_blocks(const attn_choice *choice, attn_error *error);

#ifdef __cplusplus
}
#endif

#endif
