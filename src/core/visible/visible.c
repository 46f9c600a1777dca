/* SPDX-License-Identifier: MIT
 * visible.c - causality, windows, lengths, ranges and global tokens as intervals of keys for each query. */
#include "visible.h"

#include "../base/checked.h"
#include "../base/names.h"

static const attn_interval nothing = {0, 0};

static int is_empty(const attn_interval *keys) { return keys->low >= keys->high; }

static int64_t position_of(const attn_sight *sight, int64_t i)
{
    return attn_add_saturate(sight->rows_of_query > 1 ? i / sight->rows_of_query : i, sight->offset);
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

/* In place, and field by field: the sight of a short head is read at once, and would wait for wider stores and copies. */
void attn_sight_of(const attn_resolved *problem, const attn_args *args, int64_t b, int64_t h, attn_sight *sight)
{
    const attn_mask *mask = &problem->mask;
    const int64_t rows = attn_max(problem->rows_of_query, 1);
    int64_t len_q = rows > 1 ? problem->shape.len_q / rows : problem->shape.len_q, len_kv = problem->shape.len_kv, offset = 0;
    sight->of_others = 0;
    sight->rows_of_query = rows;
    sight->first_q = sight->first_kv = 0;
    sight->origin_kv = 0;
    sight->left = mask->window && mask->window_left >= 0 ? mask->window_left : INT64_MAX;
    sight->right = mask->causal ? 0 : mask->window && mask->window_right >= 0 ? mask->window_right : INT64_MAX;
    sight->chunk = mask->chunk;
    sight->causal = mask->causal;
    sight->dilation = attn_max(mask->dilation, 1);
    sight->global_q = mask->global_q;
    sight->global_kv = mask->global_kv;
    sight->ranges = NULL;
    sight->ranges_dtype = ATTN_DTYPE_DEFAULT;
    sight->ranges_stride = sight->ranges_step = 0;
    if (args && attn_is_packed(problem)) {
        sight->first_q = attn_index_at(args->cu_seqlens_q, problem->at.cu_seqlens_q.dtype, b);
        sight->first_kv = attn_index_at(args->cu_seqlens_kv, problem->at.cu_seqlens_kv.dtype, b);
        len_q = attn_index_at(args->cu_seqlens_q, problem->at.cu_seqlens_q.dtype, b + 1) - sight->first_q;
        len_kv = attn_index_at(args->cu_seqlens_kv, problem->at.cu_seqlens_kv.dtype, b + 1) - sight->first_kv;
    }
    if (args && problem->has.lengths_q) len_q = attn_index_at(args->lengths_q, problem->at.lengths_q.dtype, b);
    if (args && problem->has.lengths_kv) len_kv = attn_index_at(args->lengths_kv, problem->at.lengths_kv.dtype, b);
    if (mask->align == ATTN_ALIGN_BOTTOM_RIGHT) offset = len_kv - len_q;
    if (args && problem->has.offset_q) offset = attn_index_at(args->offset_q, problem->at.offset_q.dtype, b);
    if (args) { /* in the part's own numbers; absolute ones where a rule asks for them */
        sight->origin_kv = args->origin.kv;
        offset = attn_add_saturate(offset, args->origin.q - args->origin.kv);
        sight->global_kv = attn_max(sight->global_kv - args->origin.kv, 0);
    }
    if (args && !attn_is_of_walk(problem, len_q, len_kv)) {
        sight->of_others = problem->leaves_others;
        len_q = 0;
    }
    sight->len_q = len_q * rows;
    sight->len_kv = len_kv;
    sight->offset = offset;
    if (args && problem->has.ranges) {
        const attn_layout *layout = &problem->at.ranges;
        int64_t first = b * layout->stride[0] + h * layout->stride[1];
        sight->ranges = (const char *)args->ranges + first * (int64_t)attn_dtype_bytes(layout->dtype);
        sight->ranges_dtype = layout->dtype;
        sight->ranges_stride = layout->stride[2];
        sight->ranges_step = layout->stride[3];
    }
}

/* What all rules but window and dilation leave to query i. */
static attn_interval keys_in_reach(const attn_sight *sight, int64_t i, int64_t position)
{
    int64_t low = 0, high = sight->len_kv;
    if (sight->causal) high = attn_min(high, attn_add_saturate(position, 1));
    if (sight->chunk) { /* a chunk starts at or below its position */
        int64_t start = attn_add_saturate(position, -floor_mod(attn_add_saturate(position, sight->origin_kv), sight->chunk));
        low = attn_max(low, start);
        high = attn_min(high, attn_add_saturate(start, sight->chunk));
    }
    if (sight->ranges) {
        int64_t at = i * sight->ranges_stride;
        const int64_t first = attn_index_at(sight->ranges, sight->ranges_dtype, at),
                      end = attn_index_at(sight->ranges, sight->ranges_dtype, at + sight->ranges_step);
        low = attn_max(low, attn_add_saturate(first, -sight->origin_kv));
        high = attn_min(high, attn_add_saturate(end, -sight->origin_kv));
    }
    attn_interval keys = {attn_clamp(low, 0, sight->len_kv), 0};
    keys.high = attn_clamp(high, keys.low, sight->len_kv);
    return keys;
}

static int is_global(const attn_sight *sight, int64_t position)
{
    const int64_t absolute = attn_add_saturate(position, sight->origin_kv);
    return absolute >= 0 && absolute < sight->global_q;
}

attn_seen attn_keys_of_query(const attn_sight *sight, int64_t i)
{
    attn_seen seen = {nothing, nothing};
    if (i >= sight->len_q) return seen;
    int64_t position = position_of(sight, i);
    attn_interval reach = keys_in_reach(sight, i, position);
    seen.near = reach;
    if (is_global(sight, position)) return seen;

    if (sight->left != INT64_MAX) seen.near.low = attn_clamp(attn_add_saturate(position, -sight->left), reach.low, reach.high);
    if (sight->right != INT64_MAX)
        seen.near.high = attn_clamp(attn_add_saturate(attn_add_saturate(position, sight->right), 1), seen.near.low, reach.high);
    if (reach.low >= sight->global_kv) return seen;

    seen.far.low = reach.low;
    seen.far.high = attn_min(reach.high, sight->global_kv);
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

int attn_query_sees(const attn_sight *sight, const attn_seen *seen, int64_t i, int64_t j)
{
    if (is_in(&seen->far, j)) return 1;
    if (!is_in(&seen->near, j)) return 0;
    int64_t position = position_of(sight, i);
    if (sight->dilation == 1 || j < sight->global_kv || is_global(sight, position)) return 1;
    return floor_mod(position, sight->dilation) == j % sight->dilation;
}

/* How many of the numbers 0 .. end-1 leave this rest. */
static int64_t count_below(int64_t end, int64_t rest, int64_t divisor) { return end <= rest ? 0 : (end - 1 - rest) / divisor + 1; }

int64_t attn_count_near(const attn_sight *sight, const attn_seen *seen, int64_t i)
{
    const attn_interval *near = &seen->near;
    int64_t position = position_of(sight, i), d = sight->dilation, rest = floor_mod(position, d);
    if (is_empty(near)) return 0;
    if (d == 1 || is_global(sight, position)) return near->high - near->low;
    int64_t from = attn_clamp(sight->global_kv, near->low, near->high); /* keys before this one are global */
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
static int sees_all(const attn_sight *sight)
{
    return sight->left == INT64_MAX && sight->right == INT64_MAX && !sight->chunk && sight->dilation == 1 && !sight->ranges &&
           !sight->global_q && !sight->global_kv;
}

attn_view attn_view_of_tile(const attn_sight *sight, int64_t first, int64_t rows)
{
    const attn_seen none = {nothing, nothing};
    attn_view view = {none, none, 0, nothing};
    int64_t live = attn_clamp(sight->len_q - first, 0, rows);
    if (live == 0) return view;
    if (sees_all(sight)) {
        view.any.near.high = view.all.near.high = sight->len_kv;
    } else if (sight->ranges || sight->global_q || sight->global_kv) {
        for (int64_t i = first; i < first + live; i++) {
            attn_seen seen = attn_keys_of_query(sight, i);
            gather(&seen.near, i == first, &view.any.near, &view.all.near);
            gather(&seen.far, i == first, &view.any.far, &view.all.far);
            if (i == first + view.global_rows && is_global(sight, position_of(sight, i))) {
                view.global_rows++;
            } else {
                attn_interval ignored = nothing;
                gather(&seen.near, 1, &view.others, &ignored);
                gather(&seen.far, 1, &view.others, &ignored);
            }
        }
    } else {
        attn_interval low = attn_keys_of_query(sight, first).near, high = attn_keys_of_query(sight, first + live - 1).near;
        view.any.near.low = low.low;
        view.any.near.high = attn_max(low.low, high.high);
        view.all.near.low = high.low;
        view.all.near.high = low.high;
    }
    /* A query that sees none but global keys has them for near ones: then both may hold the same keys of the tile. */
    attn_interval *near = &view.any.near, *far = &view.any.far;
    if (!is_empty(near) && !is_empty(far) && near->low <= far->high) {
        near->low = attn_min(near->low, far->low);
        near->high = attn_max(near->high, far->high);
        *far = nothing;
    }
    if (live < rows) view.all = none;
    return view;
}

attn_interval attn_keys_of_view(const attn_view *view)
{
    const attn_interval *near = &view->any.near, *far = &view->any.far;
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
static int falls_between(const attn_sight *sight, int64_t first, int64_t rows, int64_t low, int64_t high)
{
    int64_t least = attn_add_saturate(attn_add_saturate(first, sight->offset), -(high - 1)), count = rows + high - low - 1;
    if (count >= sight->dilation || low < sight->global_kv ||
        attn_add_saturate(attn_add_saturate(first, sight->offset), sight->origin_kv) < sight->global_q)
        return 0;
    if (least < INT64_MIN / 2 || sight->offset > INT64_MAX / 2) return 0; /* positions may have saturated */
    int64_t to_next = floor_mod(-floor_mod(least, sight->dilation), sight->dilation);
    return to_next >= count;
}

int attn_view_misses(const attn_sight *sight, const attn_view *view, int64_t first, int64_t rows, int64_t low, int64_t high)
{
    if (!meets(&view->any.near, low, high) && !meets(&view->any.far, low, high)) return 1;
    return sight->dilation > 1 && falls_between(sight, first, rows, low, high);
}

static int holds(const attn_interval *keys, int64_t low, int64_t high) { return keys->low <= low && high <= keys->high; }

int attn_view_covers(const attn_sight *sight, const attn_view *view, int64_t low, int64_t high)
{
    return sight->dilation == 1 && (holds(&view->all.near, low, high) || holds(&view->all.far, low, high));
}
