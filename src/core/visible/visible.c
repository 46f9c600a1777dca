/* SPDX-License-Identifier: MIT
 * visible.c - causality, windows, lengths, ranges and global tokens as intervals of keys for each query. */
#include "visible.h"

#include <string.h>

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
    return len_q >= s->min_q && len_q <= s->max_q && len_kv > 0 && len_kv <= s->max_kv && len_kv <= s->of_query * len_q;
}

int attn_is_of_walk(const attn_resolved *p, int64_t len_q, int64_t len_kv)
{
    if (p->max_q == 0) return 1;
    if (len_q < p->min_q || len_q > p->max_q) return 0;
    return p->small.max_q == 0 || attn_is_small(&p->small, len_q, len_kv) == p->small_only;
}

/* Tokens in the pages of batch entry b, all of which are full but the last. */
static int64_t tokens_in_pages(const attn_resolved *p, const attn_args *args, int64_t b)
{
    const attn_dtype dtype = p->at.page_starts.dtype;
    const int64_t pages = attn_index_at(args->page_starts, dtype, b + 1) - attn_index_at(args->page_starts, dtype, b);
    return pages == 0
               ? 0
               : (pages - 1) * p->paging.page_size + attn_index_at(args->lengths_last_page, p->at.lengths_last_page.dtype, b);
}

attn_tokens attn_tokens_of(const attn_resolved *p, const attn_args *args, int64_t b)
{
    const attn_layouts *at = &p->at;
    attn_tokens t = {p->rows_of_query > 1 ? p->shape.len_q / p->rows_of_query : p->shape.len_q, p->shape.len_kv, 0, 0};
    if (attn_is_packed(p)) {
        t.first_q = attn_index_at(args->cu_seqlens_q, at->cu_seqlens_q.dtype, b);
        t.len_q = attn_index_at(args->cu_seqlens_q, at->cu_seqlens_q.dtype, b + 1) - t.first_q;
    }
    if (attn_keys_are_packed(p)) {
        t.first_kv = attn_index_at(args->cu_seqlens_kv, at->cu_seqlens_kv.dtype, b);
        t.len_kv = attn_index_at(args->cu_seqlens_kv, at->cu_seqlens_kv.dtype, b + 1) - t.first_kv;
    }
    if (p->has.lengths_q) t.len_q = attn_index_at(args->lengths_q, at->lengths_q.dtype, b);
    if (p->has.lengths_kv) t.len_kv = attn_index_at(args->lengths_kv, at->lengths_kv.dtype, b);
    if (p->has.lengths_last_page) t.len_kv = tokens_in_pages(p, args, b);
    return t;
}

int attn_has_entry(const attn_resolved *p, const attn_args *args, int64_t b)
{
    const attn_tokens t = attn_tokens_of(p, args, b);
    return attn_is_of_walk(p, t.len_q, t.len_kv);
}

/* Where the list of key head g of batch entry b begins and ends. */
static attn_interval list_at(const attn_resolved *p, const attn_args *args, int64_t b, int64_t g)
{
    const int64_t number = b * p->shape.heads_kv + g;
    return (attn_interval){attn_index_at(args->block_starts, p->at.block_starts.dtype, number),
                           attn_index_at(args->block_starts, p->at.block_starts.dtype, number + 1)};
}

int64_t attn_most_listed(const attn_resolved *p, const attn_args *args, int64_t b)
{
    int64_t most = 0;
    for (int64_t g = 0; g < p->shape.heads_kv; g++) {
        const attn_interval list = list_at(p, args, b, g);
        most = attn_max(most, list.high - list.low);
    }
    /* The last block may be cut short. */
    return attn_min(attn_min(most, attn_ceil_div(p->shape.len_kv, p->mask.block_kv)) * p->mask.block_kv, p->shape.len_kv);
}

/* The first block on the list from `block` on. */
static int64_t find_listed(const attn_visibility *v, int64_t block)
{
    int64_t low = 0, high = v->listed;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (attn_index_at(v->list, v->list_dtype, middle) < block) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* How many keys of the list are before key j of the sequence. */
static int64_t listed_before(const attn_visibility *v, int64_t j)
{
    if (j >= v->all_kv || v->listed == 0) return v->len_kv;
    const int64_t block = j / v->block, n = find_listed(v, block);
    const int within = n < v->listed && attn_index_at(v->list, v->list_dtype, n) == block;
    return n * v->block + (within ? j % v->block : 0);
}

/* Turns to the list of the key head: the last of its blocks may end beyond the sequence. */
static void read_list(const attn_resolved *p, const attn_args *args, int64_t b, int64_t g, attn_visibility *v)
{
    const attn_interval list = list_at(p, args, b, g);
    static const int64_t empty;
    const int given = args->block_index != NULL; /* else there is no entry, or a schedule is made, from lengths alone */
    v->list_dtype = p->at.block_index.dtype;
    v->list = given ? (const char *)args->block_index + list.low * (int64_t)attn_dtype_bytes(v->list_dtype) : (const void *)&empty;
    v->block = p->mask.block_kv;
    v->listed = given ? list.high - list.low : 0;
    v->listed = find_listed(v, attn_ceil_div(v->all_kv, v->block));
    v->len_kv = v->listed * v->block;
    if (v->listed == 0) return;
    const int64_t last = attn_index_at(v->list, v->list_dtype, v->listed - 1) * v->block;
    v->len_kv += attn_min(v->all_kv - last, v->block) - v->block;
}

/* In place, field by field: the visibility of a short head is read at once, and loads would stall on wider stores and copies. */
void attn_visibility_of(const attn_resolved *problem, const attn_args *args, int64_t b, int64_t h, attn_visibility *visibility)
{
    const attn_mask *mask = &problem->mask;
    const int64_t rows = attn_max(problem->rows_of_query, 1);
    int64_t len_q = rows > 1 ? problem->shape.len_q / rows : problem->shape.len_q, len_kv = problem->shape.len_kv, offset = 0;
    visibility->of_other_walk = 0;
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
    if (args) {
        const attn_tokens tokens = attn_tokens_of(problem, args, b);
        len_q = tokens.len_q;
        len_kv = tokens.len_kv;
        visibility->first_q = tokens.first_q;
        visibility->first_kv = tokens.first_kv;
    }
    if (mask->align == ATTN_ALIGN_BOTTOM_RIGHT) offset = len_kv - len_q;
    if (args && problem->has.offset_q) offset = attn_index_at(args->offset_q, problem->at.offset_q.dtype, b);
    if (args) { /* positions are relative to the part; absolute where a rule needs them */
        visibility->origin_kv = args->origin.kv;
        offset = attn_add_saturate(offset, args->origin.q - args->origin.kv);
        visibility->global_kv = attn_max(visibility->global_kv - args->origin.kv, 0);
    }
    if (args && !attn_is_of_walk(problem, len_q, len_kv)) {
        visibility->of_other_walk = problem->skips_others;
        len_q = 0;
    }
    visibility->len_q = len_q * rows;
    visibility->len_kv = visibility->all_kv = len_kv;
    visibility->offset = offset;
    visibility->list = NULL;
    if (args && attn_has_choices(problem) && problem->shape.heads_q > 0)
        read_list(problem, args, b, h / (problem->shape.heads_q / problem->shape.heads_kv), visibility);
    if (args && args->ranges) { /* a schedule reads none */
        const attn_layout *layout = &problem->at.ranges;
        int64_t first = b * layout->stride[0] + h * layout->stride[1];
        visibility->ranges = (const char *)args->ranges + first * (int64_t)attn_dtype_bytes(layout->dtype);
        visibility->ranges_dtype = layout->dtype;
        visibility->ranges_stride = layout->stride[2];
        visibility->ranges_step = layout->stride[3];
    }
}

/* The keys that all rules but window and dilation leave to query i. */
static attn_interval keys_in_reach(const attn_visibility *visibility, int64_t i, int64_t position)
{
    int64_t low = 0, high = visibility->all_kv;
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
    attn_interval keys = {attn_clamp(low, 0, visibility->all_kv), 0};
    keys.high = attn_clamp(high, keys.low, visibility->all_kv);
    return keys;
}

static int is_global(const attn_visibility *visibility, int64_t position)
{
    const int64_t absolute = attn_add_saturate(position, visibility->origin_kv);
    return absolute >= 0 && absolute < visibility->global_q;
}

/* Of all keys of the sequence. */
static attn_visible_keys keys_of_query(const attn_visibility *visibility, int64_t i)
{
    attn_visible_keys seen = {nothing, nothing};
    if (i >= visibility->len_q) return seen;
    int64_t position = position_of(visibility, i);
    attn_interval reach = keys_in_reach(visibility, i, position);
    seen.local = reach;
    if (is_global(visibility, position)) return seen;

    if (visibility->left != INT64_MAX)
        seen.local.low = attn_clamp(attn_add_saturate(position, -visibility->left), reach.low, reach.high);
    if (visibility->right != INT64_MAX)
        seen.local.high =
            attn_clamp(attn_add_saturate(attn_add_saturate(position, visibility->right), 1), seen.local.low, reach.high);
    if (reach.low >= visibility->global_kv) return seen;

    seen.global.low = reach.low;
    seen.global.high = attn_min(reach.high, visibility->global_kv);
    if (is_empty(&seen.local)) {
        seen.local = seen.global;
        seen.global = nothing;
    } else if (seen.global.high >= seen.local.low) {
        seen.local.low = seen.global.low;
        seen.local.high = attn_max(seen.local.high, seen.global.high);
        seen.global = nothing;
    }
    return seen;
}

/* (No problem has both lists and global keys.) */
attn_visible_keys attn_keys_of_query(const attn_visibility *visibility, int64_t i)
{
    attn_visible_keys seen = keys_of_query(visibility, i);
    if (!visibility->list) return seen; /* (tiles use the ends of empty intervals, too) */
    seen.local.low = listed_before(visibility, seen.local.low);
    seen.local.high = listed_before(visibility, seen.local.high);
    return seen;
}

static void mark_interval(const attn_interval *keys, int64_t low, int64_t high, unsigned char *bytes)
{
    const int64_t from = attn_max(low, keys->low), end = attn_min(high, keys->high);
    if (from < end) memset(bytes + (from - low), 1, (size_t)(end - from));
}

void attn_query_mark(const attn_visibility *visibility, const attn_visible_keys *seen, int64_t i, int64_t low, int64_t high,
                     unsigned char *bytes)
{
    const int64_t position = position_of(visibility, i), step = visibility->dilation;
    memset(bytes, 0, (size_t)(high - low));
    mark_interval(&seen->global, low, high, bytes);
    if (step == 1 || is_global(visibility, position)) {
        mark_interval(&seen->local, low, high, bytes);
        return;
    }
    const attn_interval global = {seen->local.low, attn_min(seen->local.high, visibility->global_kv)};
    const int64_t from = attn_max(attn_max(low, seen->local.low), visibility->global_kv), end = attn_min(high, seen->local.high);
    mark_interval(&global, low, high, bytes);
    if (from >= end) return;
    const int64_t rest = floor_mod(position, step) - from % step, first = rest < 0 ? rest + step : rest;
    for (int64_t n = first; n < end - from; n += step) { /* (of from on, so that no sum overflows) */
        bytes[from - low + n] = 1;
        if (step >= end - from) break;
    }
}

/* How many of 0 .. end-1 have this remainder. */
static int64_t count_below(int64_t end, int64_t rest, int64_t divisor) { return end <= rest ? 0 : (end - 1 - rest) / divisor + 1; }

int64_t attn_count_local(const attn_visibility *visibility, const attn_visible_keys *seen, int64_t i)
{
    const attn_interval *local = &seen->local;
    int64_t position = position_of(visibility, i), d = visibility->dilation, rest = floor_mod(position, d);
    if (is_empty(local)) return 0;
    if (d == 1 || is_global(visibility, position)) return local->high - local->low;
    int64_t from = attn_clamp(visibility->global_kv, local->low, local->high); /* keys before this one are global */
    return from - local->low + count_below(local->high, rest, d) - count_below(from, rest, d);
}

/* *any grows to the hull with `keys`; *all shrinks to the intersection. */
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

/* Only lengths: a short head is so fast that the general path would show in its time. */
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
        visible.any.local.high = visible.all.local.high = visibility->len_kv;
    } else if (visibility->ranges || visibility->global_q || visibility->global_kv) {
        for (int64_t i = first; i < first + live; i++) {
            attn_visible_keys seen = attn_keys_of_query(visibility, i);
            gather(&seen.local, i == first, &visible.any.local, &visible.all.local);
            gather(&seen.global, i == first, &visible.any.global, &visible.all.global);
            if (i == first + visible.global_rows && is_global(visibility, position_of(visibility, i))) {
                visible.global_rows++;
            } else {
                attn_interval ignored = nothing;
                gather(&seen.local, 1, &visible.others, &ignored);
                gather(&seen.global, 1, &visible.others, &ignored);
            }
        }
    } else {
        attn_interval low = attn_keys_of_query(visibility, first).local,
                      high = attn_keys_of_query(visibility, first + live - 1).local;
        visible.any.local.low = low.low;
        visible.any.local.high = attn_max(low.low, high.high);
        visible.all.local.low = high.low;
        visible.all.local.high = low.high;
    }
    /* A query that sees only global keys has them in `local`: then both intervals of the tile may contain the same keys. */
    attn_interval *local = &visible.any.local, *global = &visible.any.global;
    if (!is_empty(local) && !is_empty(global) && local->low <= global->high) {
        local->low = attn_min(local->low, global->low);
        local->high = attn_max(local->high, global->high);
        *global = nothing;
    }
    if (live < rows) visible.all = none;
    return visible;
}

attn_interval attn_keys_of_tile(const attn_tile_visibility *visible)
{
    const attn_interval *local = &visible->any.local, *global = &visible->any.global;
    if (is_empty(global)) return *local;
    attn_interval keys = {global->low, attn_max(global->high, local->high)};
    if (!is_empty(local)) keys.low = attn_min(global->low, local->low);
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
    if (!meets(&visible->any.local, low, high) && !meets(&visible->any.global, low, high)) return 1;
    return visibility->dilation > 1 && falls_between(visibility, first, rows, low, high);
}

static int holds(const attn_interval *keys, int64_t low, int64_t high) { return keys->low <= low && high <= keys->high; }

int attn_tile_sees_all(const attn_visibility *visibility, const attn_tile_visibility *visible, int64_t low, int64_t high)
{
    return visibility->dilation == 1 && (holds(&visible->all.local, low, high) || holds(&visible->all.global, low, high));
}
