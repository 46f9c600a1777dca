/* SPDX-License-Identifier: MIT
 * visible.c - causality, windows, lengths, ranges and global tokens as intervals of keys for each query. */
#include "visible.h"

#include "../base/checked.h"
#include "../base/names.h"

static const attn_interval nothing = {0, 0};

static int is_empty(const attn_interval *keys) { return keys->low >= keys->high; }

static int64_t position_of(const attn_visibility *visibility, int64_t i)
{
    return attn_add_saturate(visibility->rows_of_query > 1 ? i / visibility->rows_of_query : i, visibility->offset);
}

/* x - y * floor(x / y) for y > 0. */
static int64_t floor_mod(int64_t x, int64_t y)
{
    int64_t rest = x % y; /* rounds towards 0 */
    return rest < 0 ? rest + y : rest;
}

int attn_is_small(const attn_small *s, int64_t len_q, int64_t len_kv)
{
    return len_q >= s->least_q && len_q <= s->most_q && len_kv > 0 && len_kv <= s->most_kv && len_kv <= s->of_query * len_q;
}

int attn_is_of_walk(const attn_resolved *p, int64_t len_q, int64_t len_kv)
{
    if (p->most_q == 0) return 1;
    if (len_q < p->least_q || len_q > p->most_q) return 0;
    return p->small.most_q == 0 || attn_is_small(&p->small, len_q, len_kv) == p->small_alone;
}

/* Tokens of a batch entry: of a packed tensor, of a padded one, or all. */
static int64_t tokens_of_entry(const void *starts, attn_dtype starts_dtype, const void *lengths, attn_dtype dtype, int64_t b,
                               int64_t all)
{
    if (starts) return attn_index_at(starts, starts_dtype, b + 1) - attn_index_at(starts, starts_dtype, b);
    return lengths ? attn_index_at(lengths, dtype, b) : all;
}

int attn_has_entry(const attn_resolved *p, const attn_args *args, int64_t b)
{
    const attn_layouts *at = &p->at;
    const int64_t all_q = p->rows_of_query ? p->shape.len_q / p->rows_of_query : p->shape.len_q;
    return attn_is_of_walk(p,
                           tokens_of_entry(p->has.cu_seqlens_q ? args->cu_seqlens_q : NULL, at->cu_seqlens_q.dtype,
                                           p->has.lengths_q ? args->lengths_q : NULL, at->lengths_q.dtype, b, all_q),
                           tokens_of_entry(p->has.cu_seqlens_kv ? args->cu_seqlens_kv : NULL, at->cu_seqlens_kv.dtype,
                                           p->has.lengths_kv ? args->lengths_kv : NULL, at->lengths_kv.dtype, b, p->shape.len_kv));
}

/* In place, and field by field: the visibility of a short head is read at once, and would wait for wider stores and copies. */
void attn_visibility_of(const attn_resolved *problem, const attn_args *args, int64_t b, int64_t h, attn_visibility *visibility)
{
    const attn_mask *mask = &problem->mask;
    const int64_t rows = attn_max(problem->rows_of_query, 1);
    int64_t len_q = rows > 1 ? problem->shape.len_q / rows : problem->shape.len_q, len_kv = problem->shape.len_kv, offset = 0;
    visibility->of_others = 0;
    visibility->rows_of_query = rows;
    visibility->first_q = visibility->first_kv = 0;
    visibility->origin_kv = 0;
    visibility->left = mask->window && mask->window_left >= 0 ? mask->window_left : INT64_MAX;
    visibility->right = mask->causal ? 0 : mask->window && mask->window_right >= 0 ? mask->window_right : INT64_MAX;
    visibility->chunk = mask->chunk;
    visibility->causal = mask->causal;
    visibility->dilation = attn_max(mask->dilation, 1);
    visibility->global_q = mask->global_q;
    visibility->global_kv = mask->global_kv;
    visibility->ranges = NULL;
    visibility->ranges_dtype = ATTN_DTYPE_DEFAULT;
    visibility->ranges_stride = visibility->ranges_step = 0;
    if (args && attn_is_packed(problem)) {
        visibility->first_q = attn_index_at(args->cu_seqlens_q, problem->at.cu_seqlens_q.dtype, b);
        visibility->first_kv = attn_index_at(args->cu_seqlens_kv, problem->at.cu_seqlens_kv.dtype, b);
        len_q = attn_index_at(args->cu_seqlens_q, problem->at.cu_seqlens_q.dtype, b + 1) - visibility->first_q;
        len_kv = attn_index_at(args->cu_seqlens_kv, problem->at.cu_seqlens_kv.dtype, b + 1) - visibility->first_kv;
    }
    if (args && problem->has.lengths_q) len_q = attn_index_at(args->lengths_q, problem->at.lengths_q.dtype, b);
    if (args && problem->has.lengths_kv) len_kv = attn_index_at(args->lengths_kv, problem->at.lengths_kv.dtype, b);
    if (mask->align == ATTN_ALIGN_BOTTOM_RIGHT) offset = len_kv - len_q;
    if (args && problem->has.offset_q) offset = attn_index_at(args->offset_q, problem->at.offset_q.dtype, b);
    if (args) { /* in the part's own numbers; absolute ones where a rule asks for them */
        visibility->origin_kv = args->origin.kv;
        offset = attn_add_saturate(offset, args->origin.q - args->origin.kv);
        visibility->global_kv = attn_max(visibility->global_kv - args->origin.kv, 0);
    }
    if (args && !attn_is_of_walk(problem, len_q, len_kv)) {
        visibility->of_others = problem->leaves_others;
        len_q = 0;
    }
    visibility->len_q = len_q * rows;
    visibility->len_kv = len_kv;
    visibility->offset = offset;
    if (args && problem->has.ranges) {
        const attn_layout *layout = &problem->at.ranges;
        int64_t first = b * layout->stride[0] + h * layout->stride[1];
        visibility->ranges = (const char *)args->ranges + first * (int64_t)attn_dtype_bytes(layout->dtype);
        visibility->ranges_dtype = layout->dtype;
        visibility->ranges_stride = layout->stride[2];
        visibility->ranges_step = layout->stride[3];
    }
}

/* What all rules but window and dilation leave to query i. */
static attn_interval keys_in_reach(const attn_visibility *visibility, int64_t i, int64_t position)
{
    int64_t low = 0, high = visibility->len_kv;
    if (visibility->causal) high = attn_min(high, attn_add_saturate(position, 1));
    if (visibility->chunk) { /* a chunk starts at or below its position */
        int64_t start =
            attn_add_saturate(position, -floor_mod(attn_add_saturate(position, visibility->origin_kv), visibility->chunk));
        low = attn_max(low, start);
        high = attn_min(high, attn_add_saturate(start, visibility->chunk));
    }
    if (visibility->ranges) {
        int64_t at = i * visibility->ranges_stride;
        const int64_t first = attn_index_at(visibility->ranges, visibility->ranges_dtype, at),
                      end = attn_index_at(visibility->ranges, visibility->ranges_dtype, at + visibility->ranges_step);
        low = attn_max(low, attn_add_saturate(first, -visibility->origin_kv));
        high = attn_min(high, attn_add_saturate(end, -visibility->origin_kv));
    }
    attn_interval keys = {attn_clamp(low, 0, visibility->len_kv), 0};
    keys.high = attn_clamp(high, keys.low, visibility->len_kv);
    return keys;
}

static int is_global(const attn_visibility *visibility, int64_t position)
{
    const int64_t absolute = attn_add_saturate(position, visibility->origin_kv);
    return absolute >= 0 && absolute < visibility->global_q;
}

attn_visible_keys attn_keys_of_query(const attn_visibility *visibility, int64_t i)
{
    attn_visible_keys seen = {nothing, nothing};
    if (i >= visibility->len_q) return seen;
    int64_t position = position_of(visibility, i);
    attn_interval reach = keys_in_reach(visibility, i, position);
    seen.near = reach;
    if (is_global(visibility, position)) return seen;

    if (visibility->left != INT64_MAX)
        seen.near.low = attn_clamp(attn_add_saturate(position, -visibility->left), reach.low, reach.high);
    if (visibility->right != INT64_MAX)
        seen.near.high =
            attn_clamp(attn_add_saturate(attn_add_saturate(position, visibility->right), 1), seen.near.low, reach.high);
    if (reach.low >= visibility->global_kv) return seen;

    seen.far.low = reach.low;
    seen.far.high = attn_min(reach.high, visibility->global_kv);
    if (is_empty(&seen.near)) {
        seen.near = seen.far;
        seen.far = nothing;
    } else if (seen.far.high >= seen.near.low) {
        seen.near.low = seen.far.low;
        seen.near.high = attn_max(seen.near.high, seen.far.high);
        seen.far = nothing;
    }
    return seen;
}

static int is_in(const attn_interval *keys, int64_t j) { return keys->low <= j && j < keys->high; }

int attn_query_sees(const attn_visibility *visibility, const attn_visible_keys *seen, int64_t i, int64_t j)
{
    if (is_in(&seen->far, j)) return 1;
    if (!is_in(&seen->near, j)) return 0;
    int64_t position = position_of(visibility, i);
    if (visibility->dilation == 1 || j < visibility->global_kv || is_global(visibility, position)) return 1;
    return floor_mod(position, visibility->dilation) == j % visibility->dilation;
}

/* How many of the numbers 0 .. end-1 leave this rest. */
static int64_t count_below(int64_t end, int64_t rest, int64_t divisor) { return end <= rest ? 0 : (end - 1 - rest) / divisor + 1; }

int64_t attn_count_near(const attn_visibility *visibility, const attn_visible_keys *seen, int64_t i)
{
    const attn_interval *near = &seen->near;
    int64_t position = position_of(visibility, i), d = visibility->dilation, rest = floor_mod(position, d);
    if (is_empty(near)) return 0;
    if (d == 1 || is_global(visibility, position)) return near->high - near->low;
    int64_t from = attn_clamp(visibility->global_kv, near->low, near->high); /* keys before this one are global */
    return from - near->low + count_below(near->high, rest, d) - count_below(from, rest, d);
}

/* *any grows to hold `keys`; *all shrinks to what it shares with them. */
static void gather(const attn_interval *keys, int first, attn_interval *any, attn_interval *all)
{
    if (!is_empty(keys)) {
        int was_empty = is_empty(any);
        any->low = was_empty ? keys->low : attn_min(any->low, keys->low);
        any->high = was_empty ? keys->high : attn_max(any->high, keys->high);
    }
    all->low = first ? keys->low : attn_max(all->low, keys->low);
    all->high = first ? keys->high : attn_min(all->high, keys->high);
}

/* Nothing but lengths: a short head is over so soon that finding this out the long way would be seen. */
static int sees_all(const attn_visibility *visibility)
{
    return visibility->left == INT64_MAX && visibility->right == INT64_MAX && !visibility->chunk && visibility->dilation == 1 &&
           !visibility->ranges && !visibility->global_q && !visibility->global_kv;
}

attn_tile_visibility attn_visibility_of_tile(const attn_visibility *visibility, int64_t first, int64_t rows)
{
    const attn_visible_keys none = {nothing, nothing};
    attn_tile_visibility visible = {none, none, 0, nothing};
    int64_t live = attn_clamp(visibility->len_q - first, 0, rows);
    if (live == 0) return visible;
    if (sees_all(visibility)) {
        visible.any.near.high = visible.all.near.high = visibility->len_kv;
    } else if (visibility->ranges || visibility->global_q || visibility->global_kv) {
        for (int64_t i = first; i < first + live; i++) {
            attn_visible_keys seen = attn_keys_of_query(visibility, i);
            gather(&seen.near, i == first, &visible.any.near, &visible.all.near);
            gather(&seen.far, i == first, &visible.any.far, &visible.all.far);
            if (i == first + visible.global_rows && is_global(visibility, position_of(visibility, i))) {
                visible.global_rows++;
            } else {
                attn_interval ignored = nothing;
                gather(&seen.near, 1, &visible.others, &ignored);
                gather(&seen.far, 1, &visible.others, &ignored);
            }
        }
    } else {
        attn_interval low = attn_keys_of_query(visibility, first).near,
                      high = attn_keys_of_query(visibility, first + live - 1).near;
        visible.any.near.low = low.low;
        visible.any.near.high = attn_max(low.low, high.high);
        visible.all.near.low = high.low;
        visible.all.near.high = low.high;
    }
    /* A query that sees none but global keys has them for near ones: then both may hold the same keys of the tile. */
    attn_interval *near = &visible.any.near, *far = &visible.any.far;
    if (!is_empty(near) && !is_empty(far) && near->low <= far->high) {
        near->low = attn_min(near->low, far->low);
        near->high = attn_max(near->high, far->high);
        *far = nothing;
    }
    if (live < rows) visible.all = none;
    return visible;
}

attn_interval attn_keys_of_tile(const attn_tile_visibility *visible)
{
    const attn_interval *near = &visible->any.near, *far = &visible->any.far;
    if (is_empty(far)) return *near;
    attn_interval keys = {far->low, attn_max(far->high, near->high)};
    if (!is_empty(near)) keys.low = attn_min(far->low, near->low);
    return keys;
}

static int meets(const attn_interval *keys, int64_t low, int64_t high)
{
    return attn_max(low, keys->low) < attn_min(high, keys->high);
}

/* 1 if no key of low .. high-1 is at a multiple of the dilation from any of these queries: the distances are consecutive numbers.
 */
static int falls_between(const attn_visibility *visibility, int64_t first, int64_t rows, int64_t low, int64_t high)
{
    int64_t least = attn_add_saturate(attn_add_saturate(first, visibility->offset), -(high - 1)), count = rows + high - low - 1;
    if (count >= visibility->dilation || low < visibility->global_kv ||
        attn_add_saturate(attn_add_saturate(first, visibility->offset), visibility->origin_kv) < visibility->global_q)
        return 0;
    if (least < INT64_MIN / 2 || visibility->offset > INT64_MAX / 2) return 0; /* positions may have saturated */
    int64_t to_next = floor_mod(-floor_mod(least, visibility->dilation), visibility->dilation);
    return to_next >= count;
}

int attn_tile_sees_none(const attn_visibility *visibility, const attn_tile_visibility *visible, int64_t first, int64_t rows,
                        int64_t low, int64_t high)
{
    if (!meets(&visible->any.near, low, high) && !meets(&visible->any.far, low, high)) return 1;
    return visibility->dilation > 1 && falls_between(visibility, first, rows, low, high);
}

static int holds(const attn_interval *keys, int64_t low, int64_t high) { return keys->low <= low && high <= keys->high; }

int attn_tile_sees_all(const attn_visibility *visibility, const attn_tile_visibility *visible, int64_t low, int64_t high)
{
    return visibility->dilation == 1 && (holds(&visible->all.near, low, high) || holds(&visible->all.far, low, high));
}
