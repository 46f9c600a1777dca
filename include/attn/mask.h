/* SPDX-License-Identifier: MIT
 *
 * mask.h - masks by their usual names: as a boolean matrix for inspection, and as fields of an attn_problem that let attention skip
 * what a mask hides.
 *
 *      attn_pattern patterns[] = {attn_pattern_global_local(256, 16), attn_pattern_causal()};
 *      attn_pattern_set *set;
 *      attn_pattern_set_create(&set, len_q, len_kv, 2, patterns, &error);
 *      attn_pattern_set_apply(set, &problem, &tensors, &error);    then attn_compute, attn_plan_create ... as usual
 *      attn_pattern_set_destroy(set);                              once nothing uses it any more
 *
 * Conventions of attn.h hold: statuses, errors, ownership, threads.  p_i is the position of query i among the keys: i, or
 * i + len_kv - len_q in a set with attn_pattern_causal_bottom_right.
 */
#ifndef ATTN_MASK_H
#define ATTN_MASK_H

#include "attn/attn.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum attn_pattern_kind {
    ATTN_PATTERN_CAUSAL = 1,
    ATTN_PATTERN_CAUSAL_BOTTOM_RIGHT = 2,
    ATTN_PATTERN_WINDOW = 3,
    ATTN_PATTERN_SLIDING_WINDOW = 4,
    ATTN_PATTERN_RADIUS = 5,
    ATTN_PATTERN_LOCAL = 6,
    ATTN_PATTERN_BLOCK_DIAGONAL = 7,
    ATTN_PATTERN_STRIDED = 8,
    ATTN_PATTERN_COLUMNS = 9,
    ATTN_PATTERN_DILATED = 10,
    ATTN_PATTERN_FIXED = 11,
    ATTN_PATTERN_GLOBAL_LOCAL = 12,
    ATTN_PATTERN_BIGBIRD = 13,
    ATTN_PATTERN_PREFIX = 14,
    ATTN_PATTERN_LENGTHS = 15,
    ATTN_PATTERN_DOCUMENTS = 16,
    ATTN_PATTERN_BLOCK_MAP = 17
} attn_pattern_kind;

/* One rule.  Made by the functions below, which define what the sizes mean; a plain value; its reserved words are for future
 * patterns. */
typedef struct attn_pattern {
    attn_pattern_kind kind;
    int64_t size[4];
    uint64_t seed;
    int64_t count;             /* documents */
    const int64_t *lengths_q;  /* of documents; borrowed until the set is destroyed, as is blocks */
    const int64_t *lengths_kv; /* NULL: lengths_q */
    const unsigned char *blocks;
    int64_t reserved[2]; /* must be 0 */
} attn_pattern;

/* j <= p_i, aligned top-left: the first query has the position of the first key. */
ATTN_API attn_pattern attn_pattern_causal(void);
/* j <= p_i with p_i = i + len_kv - len_q, for all patterns of the set: the last query has the position of the last key, as in
 * decoding. */
ATTN_API attn_pattern attn_pattern_causal_bottom_right(void);

/* p_i - left <= j <= p_i + right, both ends included, -1 for no bound: the window of attn_mask and FlashAttention. */
ATTN_API attn_pattern attn_pattern_window(int64_t left, int64_t right);
/* p_i - keys < j <= p_i: causal, `keys` keys including the query's own (Mistral; `sliding_window` of Hugging Face; cuDNN's left
 * bound).  1 leaves only the query's own key. */
ATTN_API attn_pattern attn_pattern_sliding_window(int64_t keys);
/* |p_i - j| <= radius: 2 radius + 1 keys. */
ATTN_API attn_pattern attn_pattern_radius(int64_t radius);
/* |p_i - j| <= floor(width / 2): Longformer's window, in which an even width sees width + 1 keys.  1 leaves one key. */
ATTN_API attn_pattern attn_pattern_local(int64_t width);

/* floor(j / size) = floor(p_i / size): block diagonal; with causal, the chunks of Llama 4. */
ATTN_API attn_pattern attn_pattern_block_diagonal(int64_t size);
/* p_i mod stride = j mod stride: every stride-th key, counted from the query. */
ATTN_API attn_pattern attn_pattern_strided(int64_t stride);
/* j mod stride = 0: the same keys for all queries. */
ATTN_API attn_pattern attn_pattern_columns(int64_t stride);
/* |p_i - j| <= radius * dilation and p_i mod dilation = j mod dilation: 2 radius + 1 keys, dilation apart. */
ATTN_API attn_pattern attn_pattern_dilated(int64_t radius, int64_t dilation);
/* floor(j / stride) = floor(p_i / stride) or j mod stride >= stride - columns (Child et al. 2019, "Sparse Transformers", section
 * 4.3, without causality).  As fields, lists of blocks of `stride` queries; in a set with attn_pattern_causal_bottom_right only if
 * len_kv - len_q is a multiple of the stride. */
ATTN_API attn_pattern attn_pattern_fixed(int64_t stride, int64_t columns);

/* |p_i - j| <= floor(width / 2) or j < global or 0 <= p_i < global (Beltagy et al. 2020, "Longformer"). */
ATTN_API attn_pattern attn_pattern_global_local(int64_t width, int64_t global);
/*
 * Over blocks of `block` queries n and `block` keys k (Zaheer et al. 2020, "Big Bird", section 2): |n - k| <= floor(window / 2), or
 * k < global or n < global, or k is one of `random` others that n draws: for t = 0, 1, ... number floor(word * left / 2^32) of the
 * `left` blocks not yet seen, in ascending order, where word is the first of Philox4x32-10 with key = seed and counter = (0, n, t,
 * 0).
 */
ATTN_API attn_pattern attn_pattern_bigbird(int64_t block, int64_t window, int64_t global, int64_t random, uint64_t seed);

/* j <= p_i or j < prefix: a prefix language model, bidirectional over its prompt (Raffel et al. 2020, figure 3). */
ATTN_API attn_pattern attn_pattern_prefix(int64_t prefix);
/* i < len_q and j < len_kv: padding after a shorter sequence. */
ATTN_API attn_pattern attn_pattern_lengths(int64_t len_q, int64_t len_kv);
/* Query i and key j belong to the same one of `count` concatenated documents; lengths_kv NULL: the same lengths.  Queries after the
 * last document see nothing. */
ATTN_API attn_pattern attn_pattern_documents(int64_t count, const int64_t *lengths_q, const int64_t *lengths_kv);
/* blocks[n][k] != 0 for n = floor(i / block_q) and k = floor(j / block_kv), blocks a dense array of ceil(len_q / block_q) rows. */
ATTN_API attn_pattern attn_pattern_block_map(int64_t block_q, int64_t block_kv, const unsigned char *blocks);

/* The intersection of patterns over len_q queries and len_kv keys.  Immutable. */
typedef struct attn_pattern_set attn_pattern_set;

/* count may be 0: then everything is visible.  Returns ATTN_ERR_ARGUMENT with a message that names the number out of its range,
 * ATTN_ERR_SHAPE or ATTN_ERR_MEMORY, with *set = NULL. */
ATTN_API attn_status attn_pattern_set_create(attn_pattern_set **set, int64_t len_q, int64_t len_kv, int64_t count,
                                             const attn_pattern *patterns, attn_error *error);
/* NULL is a no-op. */
ATTN_API void attn_pattern_set_destroy(attn_pattern_set *set);

/* 1 if query i sees key j, by the definitions above; 0 for i or j out of range. */
ATTN_API int attn_pattern_set_sees(const attn_pattern_set *set, int64_t i, int64_t j);

/* The mask as a matrix: keep[i][j] = 1 or 0 for all queries and keys.  keep is [1, 1, len_q, len_kv] of bool (default) or u8.
 * Returns ATTN_ERR_ARGUMENT, ATTN_ERR_SHAPE, ATTN_ERR_STRIDE or ATTN_ERR_UNSUPPORTED with keep untouched. */
ATTN_API attn_status attn_pattern_set_fill(const attn_pattern_set *set, const attn_output *keep, attn_error *error);

/* Results of attn_pattern_set_count. */
typedef struct attn_pattern_set_counts {
    size_t struct_size;    /* in: sizeof(attn_pattern_set_counts) */
    int64_t pairs;         /* visible ones */
    double sparsity;       /* 1 - pairs / (len_q len_kv); 0 where there are none */
    int64_t tiles;         /* of tile_q queries and tile_kv keys */
    int64_t tiles_empty;   /* of these, without a visible pair: work that attention can skip */
    int64_t queries_empty; /* that see no key */
} attn_pattern_set_counts;

/* Counts by going through all pairs.  tile_q, tile_kv >= 1, or ATTN_ERR_ARGUMENT. */
ATTN_API attn_status attn_pattern_set_count(const attn_pattern_set *set, int64_t tile_q, int64_t tile_kv,
                                            attn_pattern_set_counts *counts, attn_error *error);

/*
 * Makes attention use the set as its mask, in memory linear in len_q + len_kv and, with blocks, in their number: sets problem->mask
 * (causal, align, window, chunk, dilation, global tokens, sizes of blocks) and fills slots of tensors, dense and of the natural
 * type except for a mask that broadcasts: ranges, block_starts and block_index, or, for attn_pattern_columns that keeps many keys,
 * mask.  The same set serves all batch entries and heads.  The slots point to arrays of the set, which must outlive plans and
 * executions that use them.  Lengths, bias and all other masks stay as they are and are combined by and; with
 * attn_pattern_causal_bottom_right, everything that depends on positions (a least distance, ALiBi, tables) uses the positions of
 * the set.  Not with an origin of queries or keys (attn_call): a set begins at 0.
 *
 * tensors->struct_size is at least sizeof(attn_tensors) of this header.  Returns, with both structs untouched,
 *      ATTN_ERR_ARGUMENT     one of these fields or slots is already in use, if only by a type or a stride; an origin; or the
 *                            set's lengths are not those of the problem
 *      ATTN_ERR_UNSUPPORTED  the patterns together need a mask of len_q x len_kv; the message names the one that does.  Then
 *                            attn_pattern_set_fill and attn_tensors.mask compute the same, without skipping anything
 */
ATTN_API attn_status attn_pattern_set_apply(const attn_pattern_set *set, attn_problem *problem, attn_tensors *tensors,
                                            attn_error *error);

/* keep[n] = 1 where drop[n] is 0, else 0: converts masks that mark what to leave out (nn.MultiheadAttention).  Both are [1, 1, 1,
 * count] of bool (default) or u8; keep may be drop, with the same stride.  Returns what attn_mask_bias_from_keep returns. */
ATTN_API attn_status attn_mask_keep_from_drop(int64_t count, const attn_input *drop, const attn_output *keep, attn_error *error);

/* bias[n] = 0 where keep[n] is not 0, else `fill`: -infinity masks, a finite fill such as -1e9 is just a number (and becomes
 * -infinity in f16, whose largest number is 65504).  keep is [1, 1, 1, count] of bool (default) or u8, bias the same of f32
 * (default), f64, f16 or bf16.  Returns ATTN_ERR_ARGUMENT, ATTN_ERR_SHAPE, ATTN_ERR_STRIDE or ATTN_ERR_UNSUPPORTED with outputs
 * untouched. */
ATTN_API attn_status attn_mask_bias_from_keep(int64_t count, double fill, const attn_input *keep, const attn_output *bias,
                                              attn_error *error);

#ifdef __cplusplus
}
#endif

#endif
