/* SPDX-License-Identifier: MIT
 * named.c - patterns by name. */
#include "attn/mask.h"

#define PATTERN(kind, ...) ((attn_pattern){kind, {__VA_ARGS__}, 0, 0, 0, 0, 0, {0, 0}})

attn_pattern attn_pattern_causal(void) { return PATTERN(ATTN_PATTERN_CAUSAL, 0); }
attn_pattern attn_pattern_causal_bottom_right(void) { return PATTERN(ATTN_PATTERN_CAUSAL_BOTTOM_RIGHT, 0); }
attn_pattern attn_pattern_window(int64_t left, int64_t right) { return PATTERN(ATTN_PATTERN_WINDOW, left, right); }
attn_pattern attn_pattern_sliding_window(int64_t keys) { return PATTERN(ATTN_PATTERN_SLIDING_WINDOW, keys); }
attn_pattern attn_pattern_radius(int64_t radius) { return PATTERN(ATTN_PATTERN_RADIUS, radius); }
attn_pattern attn_pattern_local(int64_t width) { return PATTERN(ATTN_PATTERN_LOCAL, width); }
attn_pattern attn_pattern_block_diagonal(int64_t size) { return PATTERN(ATTN_PATTERN_BLOCK_DIAGONAL, size); }
attn_pattern attn_pattern_strided(int64_t stride) { return PATTERN(ATTN_PATTERN_STRIDED, stride); }
attn_pattern attn_pattern_columns(int64_t stride) { return PATTERN(ATTN_PATTERN_COLUMNS, stride); }
attn_pattern attn_pattern_dilated(int64_t radius, int64_t dilation) { return PATTERN(ATTN_PATTERN_DILATED, radius, dilation); }
attn_pattern attn_pattern_fixed(int64_t stride, int64_t columns) { return PATTERN(ATTN_PATTERN_FIXED, stride, columns); }
attn_pattern attn_pattern_global_local(int64_t width, int64_t global) { return PATTERN(ATTN_PATTERN_GLOBAL_LOCAL, width, global); }
attn_pattern attn_pattern_prefix(int64_t prefix) { return PATTERN(ATTN_PATTERN_PREFIX, prefix); }
attn_pattern attn_pattern_lengths(int64_t len_q, int64_t len_kv) { return PATTERN(ATTN_PATTERN_LENGTHS, len_q, len_kv); }

attn_pattern attn_pattern_bigbird(int64_t block, int64_t window, int64_t global, int64_t random, uint64_t seed)
{
    attn_pattern pattern = {ATTN_PATTERN_BIGBIRD, {block, window, global, random}, seed, 0, 0, 0, 0, {0, 0}};
    return pattern;
}

attn_pattern attn_pattern_documents(int64_t count, const int64_t *lengths_q, const int64_t *lengths_kv)
{
    attn_pattern pattern = {ATTN_PATTERN_DOCUMENTS, {0}, 0, count, lengths_q, lengths_kv, 0, {0, 0}};
    return pattern;
}

attn_pattern attn_pattern_block_map(int64_t block_q, int64_t block_kv, const unsigned char *blocks)
{
    attn_pattern pattern = {ATTN_PATTERN_BLOCK_MAP, {block_q, block_kv}, 0, 0, 0, 0, blocks, {0, 0}};
    return pattern;
}
