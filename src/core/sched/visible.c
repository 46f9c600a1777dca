/* SPDX-License-Identifier: MIT
 * visible.c - causality, windows and lengths as an interval of keys for each query. */
#include "visible.h"

#include "../base/checked.h"
#include "../base/names.h"

attn_sight attn_sight_of(const attn_problem *problem, const attn_args *args, int64_t b)
{
    const attn_mask *mask = &problem->mask;
    attn_sight sight = {problem->shape.len_q, problem->shape.len_kv, 0, 0, 0, INT64_MAX, INT64_MAX, mask->chunk};
    if (args && mask->packed) {
        sight.first_q = attn_index_at(args->cu_seqlens_q, mask->index_dtype, b);
        sight.first_kv = attn_index_at(args->cu_seqlens_kv, mask->index_dtype, b);
        sight.len_q = attn_index_at(args->cu_seqlens_q, mask->index_dtype, b + 1) - sight.first_q;
        sight.len_kv = attn_index_at(args->cu_seqlens_kv, mask->index_dtype, b + 1) - sight.first_kv;
    }
    if (args && mask->lengths_q) sight.len_q = attn_index_at(args->lengths_q, mask->index_dtype, b);
    if (args && mask->lengths_kv) sight.len_kv = attn_index_at(args->lengths_kv, mask->index_dtype, b);
    if (mask->align == ATTN_ALIGN_BOTTOM_RIGHT) sight.offset = sight.len_kv - sight.len_q;
    if (mask->align == ATTN_ALIGN_OFFSET && args) sight.offset = attn_index_at(args->offset, mask->index_dtype, b);
    if (mask->window && mask->window_left >= 0) sight.left = mask->window_left;
    if (mask->window && mask->window_right >= 0) sight.right = mask->window_right;
    if (mask->causal) sight.right = 0;
    return sight;
}

attn_interval attn_keys_of_query(const attn_sight *sight, int64_t i)
{
    attn_interval keys = {0, 0};
    if (i >= sight->len_q) return keys;
    int64_t position = attn_add_saturate(i, sight->offset);
    int64_t low = sight->left == INT64_MAX ? 0 : attn_add_saturate(position, -sight->left);
    int64_t high = sight->right == INT64_MAX ? sight->len_kv : attn_add_saturate(attn_add_saturate(position, sight->right), 1);
    if (sight->chunk) {
        int64_t into = position % sight->chunk; /* rounds towards 0; a chunk starts at or below its position */
        int64_t start = attn_add_saturate(position, -(into < 0 ? into + sight->chunk : into));
        low = attn_max(low, start);
        high = attn_min(high, attn_add_saturate(start, sight->chunk));
    }
    keys.low = attn_clamp(low, 0, sight->len_kv);
    keys.high = attn_clamp(high, keys.low, sight->len_kv);
    return keys;
}

attn_interval attn_keys_of_tile(const attn_sight *sight, int64_t first, int64_t rows)
{
    int64_t live = attn_clamp(sight->len_q - first, 0, rows);
    attn_interval keys = {0, 0};
    if (live == 0) return keys;
    keys.low = attn_keys_of_query(sight, first).low;
    keys.high = attn_max(keys.low, attn_keys_of_query(sight, first + live - 1).high);
    return keys;
}

int attn_tile_sees_all(const attn_sight *sight, int64_t first, int64_t rows, int64_t low, int64_t high)
{
    if (first + rows > sight->len_q) return 0;
    return attn_keys_of_query(sight, first).high >= high && attn_keys_of_query(sight, first + rows - 1).low <= low;
}
