/* SPDX-License-Identifier: MIT
 * relative.c - relative terms of one tile and one block of keys, and the sums of the tables' gradients. */
#include "relative.h"

#include <string.h>

#include "../base/element.h"
#include "../base/names.h"

enum { MOST_KEYS = 128 }; /* of a band: it stays in the first cache beside the scores */

static int64_t size_of(const attn_walk *w) { return (int64_t)attn_dtype_bytes(w->compute); }

static int64_t all_rows(const attn_walk *w) { return w->problem.relative.rows + 2 * w->relative.pad; }

/*
 * The lowest rows of a tile's last band.  The keys after its keys are nearer by as many rows as they are, so the highest rows of
 * their band are these.
 */
typedef struct kept {
    int64_t row, first, lanes; /* the lowest row of the table, or -1: none; the tile's first query, and how many lanes */
} kept;
_Static_assert(sizeof(kept) <= ATTN_KEPT_HEAD, "before the rows");

static kept *kept_of(const attn_task *task, const attn_tile *tile, attn_relative_side side)
{
    const attn_scratch *at = &task->walk->scratch;
    return attn_part(task, at->kept + (2 * tile->place + side) * at->kept_bytes);
}

void attn_relative_forget(const attn_task *task, const attn_tile *tile)
{
    kept_of(task, tile, ATTN_RELATIVE_KEYS)->row = kept_of(task, tile, ATTN_RELATIVE_VALUES)->row = -1;
}

/* A tile and a block of keys as a table sees them. */
typedef struct view {
    const attn_walk *w;
    int width;
    int64_t lanes, n, dim;
    int64_t base;      /* the distance of lane 0 and key 0 */
    int64_t near, far; /* keys before `near` are beyond the last row for all lanes, those from `far` on beyond the first */
    const char *rows;  /* of the head's table, with its pads */
    char *stale, *band;
} view;

static view view_of(const attn_task *task, const attn_tile *tile, const attn_keys *keys, attn_relative_side side)
{
    const attn_walk *w = task->walk;
    const attn_relative *r = &w->problem.relative;
    const int64_t much = (int64_t)1 << 60;
    view v = {.w = w, .width = tile->width, .lanes = tile->width * w->kernel->lanes, .n = keys->high - keys->low};
    v.dim = side == ATTN_RELATIVE_KEYS ? w->problem.shape.dim_qk : w->problem.shape.dim_v;
    v.base = attn_add_saturate(attn_add_saturate(tile->first, task->sight.offset), -keys->low);
    v.base = attn_clamp(v.base, -much, much);
    v.near = attn_clamp(v.base - (r->first + r->rows - 1) + 1, 0, v.n);
    /* As for a full tile: how many of its vectors are in use changes no sum. */
    v.far = attn_clamp(v.base + w->tile_q - 1 - r->first, v.near, v.n);
    const void *tables = side == ATTN_RELATIVE_KEYS ? task->args->relative_keys : task->args->relative_values;
    v.rows = (const char *)tables + (w->relative.tables > 1 ? task->h : 0) * all_rows(w) * v.dim * size_of(w);
    v.stale = attn_part(task, w->scratch.band);
    v.band = v.stale + w->scratch.lane_bytes;
    return v;
}

static int64_t end_row(const view *v, int last) { return v->w->relative.pad + (last ? v->w->problem.relative.rows - 1 : 0); }

static const void *row_at(const view *v, int64_t row) { return v->rows + row * v->dim * size_of(v->w); }

static void *key_at(const view *v, const void *S, int64_t j) { return (char *)(uintptr_t)S + j * v->w->tile_q * size_of(v->w); }

/* The lowest row of the band of keys j .. j+n-1, which has n + lanes - 1 of them. */
static int64_t band_row(const view *v, int64_t j, int64_t n)
{
    return v->base - (j + n - 1) - v->w->problem.relative.first + v->w->relative.pad;
}

/* The next keys that are near; 0 after the last one. */
static int64_t next_keys(const view *v, int64_t j) { return attn_min(MOST_KEYS, v->far - j); }

/* Rows of nearer keys, which are lower, come next: an address before the table is only a hint. */
static void multiply(const view *v, const void *Xt, int64_t row, int64_t count)
{
    const void *next = (const void *)((uintptr_t)v->rows + (uintptr_t)((row - MOST_KEYS) * v->dim * size_of(v->w)));
    v->w->kernel->score(v->width, count, v->dim, Xt, row_at(v, row), v->dim, v->band, v->stale, next, v->dim);
}

/* The band of n keys, from its lowest row on; those that the band before it had too are taken from there. */
static void make_band(const view *v, const void *Xt, int64_t row, int64_t n, const attn_tile *tile, kept *from)
{
    const int64_t row_bytes = v->w->tile_q * size_of(v->w), bytes = (v->lanes - 1) * row_bytes;
    char *rows = (char *)from + ATTN_KEPT_HEAD;
    if (from->row == row + n && from->first == tile->first && from->lanes == v->lanes) {
        multiply(v, Xt, row, n);
        memcpy(v->band + n * row_bytes, rows, (size_t)bytes);
    } else {
        multiply(v, Xt, row, n + v->lanes - 1);
    }
    memcpy(rows, v->band, (size_t)bytes);
    *from = (kept){row, tile->first, v->lanes};
}

void attn_relative_add(const attn_task *task, const attn_tile *tile, const attn_keys *keys, attn_relative_side side, const void *Xt,
                       void *S)
{
    const view v = view_of(task, tile, keys, side);
    const attn_fwd_kernel *k = v.w->kernel;
    void *block_max = attn_part(task, v.w->scratch.block_max);
    k->block_max(v.width, 0, S, block_max);
    if (v.near > 0) {
        multiply(&v, Xt, end_row(&v, 1), 1);
        k->add_to_lanes(v.width, v.near, S, v.band, block_max);
    }
    for (int64_t j = v.near, n; (n = next_keys(&v, j)) > 0; j += n) {
        make_band(&v, Xt, band_row(&v, j, n), n, tile, kept_of(task, tile, side));
        k->add_skewed(v.width, n, v.band, key_at(&v, S, j), block_max);
    }
    if (v.far < v.n) {
        multiply(&v, Xt, end_row(&v, 0), 1);
        k->add_to_lanes(v.width, v.n - v.far, key_at(&v, S, v.far), v.band, block_max);
    }
}

/* For each band, and each end where one row does for all keys: use(...) with X askew in the band, or summed over keys in its first
 * row. */
typedef void use_band(const view *v, int64_t row, int64_t count, void *context);

static void each_band(const view *v, const void *X, use_band *use, void *context)
{
    const attn_fwd_kernel *k = v->w->kernel;
    if (v->near > 0) {
        k->sum_keys(v->width, v->near, X, v->band);
        use(v, end_row(v, 1), 1, context);
    }
    for (int64_t j = v->near, n; (n = next_keys(v, j)) > 0; j += n) {
        k->skew(v->width, n, key_at(v, X, j), v->band);
        use(v, band_row(v, j, n), n + v->lanes - 1, context);
    }
    if (v->far < v->n) {
        k->sum_keys(v->width, v->n - v->far, key_at(v, X, v->far), v->band);
        use(v, end_row(v, 0), 1, context);
    }
}

typedef struct absorbed {
    int careful;
    void *Yt;
} absorbed;

static void absorb(const view *v, int64_t row, int64_t count, void *context)
{
    const absorbed *to = context;
    (to->careful ? v->w->kernel->add_values_careful : v->w->kernel->add_values)(v->width, count, v->dim, v->band, row_at(v, row),
                                                                                v->dim, to->Yt);
}

void attn_relative_absorb(const attn_task *task, const attn_tile *tile, const attn_keys *keys, attn_relative_side side,
                          const void *X, int careful, void *Yt)
{
    const view v = view_of(task, tile, keys, side);
    absorbed to = {careful, Yt};
    each_band(&v, X, absorb, &to);
}

/* Rows of a group's sums that are not 0, for keys and for values. */
typedef struct met {
    int64_t low[2], high[2];
} met;
_Static_assert(sizeof(met) <= ATTN_SUMS_HEAD, "before the sums");

typedef struct summed {
    int careful;
    int64_t rows, ld;
    const void *panels;
    char *sums;
    int64_t *low, *high;
} summed;

static void sum(const view *v, int64_t row, int64_t count, void *context)
{
    const summed *to = context;
    attn_soon none = {0};
    *to->low = attn_min(*to->low, row);
    *to->high = attn_max(*to->high, row + count);
    (to->careful ? v->w->backward->add_outer_careful : v->w->backward->add_outer)(
        count, to->rows, v->dim, v->band, to->panels, to->sums + row * to->ld * size_of(v->w), to->ld, &none);
}

void attn_relative_sum(const attn_task *task, const attn_tile *tile, const attn_keys *keys, attn_relative_side side, const void *X,
                       int careful, const void *panels, void *sums)
{
    const view v = view_of(task, tile, keys, side);
    const attn_relatives *r = &v.w->relative;
    const int values = side == ATTN_RELATIVE_VALUES;
    met *rows = sums;
    summed to = {careful,
                 tile->rows,
                 values ? r->ld_values : r->ld_keys,
                 panels,
                 (char *)sums + ATTN_SUMS_HEAD + (values ? r->sum_values : 0),
                 &rows->low[values],
                 &rows->high[values]};
    each_band(&v, X, sum, &to);
}

/* ---- sums of the tables' gradients ---- */

static int64_t tables_of_key_head(const attn_walk *w)
{
    return attn_relative_shared(&w->problem) ? 1 : w->problem.shape.heads_q / w->problem.shape.heads_kv;
}

static const met no_rows = {{INT64_MAX, INT64_MAX}, {0, 0}};

void attn_relative_sums_begin(const attn_walk *w, void *sums)
{
    *(met *)sums = no_rows;
    memset((char *)sums + ATTN_SUMS_HEAD, 0, (size_t)w->relative.sum_bytes);
}

void attn_relative_join(const attn_walk *w, void *sums, void *to)
{
    met *rows = sums;
    for (int side = ATTN_RELATIVE_KEYS; side <= ATTN_RELATIVE_VALUES; side++) {
        const int64_t ld = side == ATTN_RELATIVE_VALUES ? w->relative.ld_values : w->relative.ld_keys;
        const int64_t count = rows->high[side] - rows->low[side];
        if (count <= 0) continue;
        const int64_t at = (side == ATTN_RELATIVE_VALUES ? w->relative.sum_values : 0) + rows->low[side] * ld * size_of(w);
        char *from = (char *)sums + ATTN_SUMS_HEAD + at;
        w->backward->add(count * ld, from, (char *)to + ATTN_SUMS_HEAD + at);
        memset(from, 0, (size_t)(count * ld * size_of(w)));
    }
    *rows = no_rows;
}

int attn_relative_shares(const attn_walk *w) { return tables_of_key_head(w) == 1; }

void *attn_relative_sums_at(const attn_walk *w, char *shared, int64_t place, int64_t k)
{
    const int64_t tables = tables_of_key_head(w);
    return shared + w->shared.relative_sums + (place * tables + (tables > 1 ? k : 0)) * (ATTN_SUMS_HEAD + w->relative.sum_bytes);
}

void attn_relative_sums_clear(const attn_walk *w, char *shared, int64_t place)
{
    for (int64_t k = 0; k < tables_of_key_head(w); k++) attn_relative_sums_begin(w, attn_relative_sums_at(w, shared, place, k));
}

static char *totals_of(const attn_walk *w, char *shared, int64_t table)
{
    return shared + w->shared.relative_totals + table * w->relative.sum_bytes;
}

void attn_relative_totals_clear(const attn_walk *w, char *shared)
{
    memset(totals_of(w, shared, 0), 0, (size_t)(w->relative.tables * w->relative.sum_bytes));
}

void attn_relative_totals_add(const attn_walk *w, char *shared, int64_t table, int64_t place, int64_t key_head)
{
    const int64_t each = tables_of_key_head(w), g = key_head % w->problem.shape.heads_kv;
    if (!attn_relative_shared(&w->problem) && table / each != g) return;
    w->backward->add(w->relative.sum_bytes / size_of(w),
                     (char *)attn_relative_sums_at(w, shared, place, table % each) + ATTN_SUMS_HEAD, totals_of(w, shared, table));
}

/* Of a table whose rows are all the same memory the gradient has one. */
static int64_t rows_of_gradient(const attn_walk *w, const attn_layout *layout)
{
    return layout->stride[2] ? w->problem.relative.rows : 1;
}

/* Rows beyond the ends belong to these; then the table is stored. */
static void store_table(const attn_walk *w, char *sums, int64_t dim, int64_t ld, const attn_layout *layout, void *out,
                        int64_t table)
{
    const int64_t pad = w->relative.pad, rows = w->problem.relative.rows, bytes = ld * size_of(w),
                  stored = rows_of_gradient(w, layout);
    if (dim == 0) return;
    for (int64_t n = 0; n < pad; n++) {
        w->backward->add(ld, sums + n * bytes, sums + pad * bytes);
        w->backward->add(ld, sums + (pad + rows + n) * bytes, sums + (pad + rows - 1) * bytes);
    }
    for (int64_t n = stored; n < rows; n++) w->backward->add(ld, sums + (pad + n) * bytes, sums + pad * bytes);
    w->backward->store_rows(stored, dim, 1, sums + pad * bytes, ld,
                            (char *)out + table * layout->stride[1] * (int64_t)attn_dtype_bytes(layout->dtype), layout->dtype,
                            layout->stride[2]);
}

static void store_zeros(const attn_walk *w, int64_t dim, const attn_layout *layout, void *out)
{
    for (int64_t table = 0; table < w->relative.tables; table++)
        for (int64_t row = 0; row < rows_of_gradient(w, layout); row++)
            for (int64_t c = 0; c < dim; c++)
                attn_element_put(out, layout->dtype, table * layout->stride[1] + row * layout->stride[2] + c, 0);
}

void attn_relative_totals_store(const attn_walk *w, const attn_args *args, char *shared)
{
    const attn_resolved *g = &w->problem;
    const attn_relatives *r = &w->relative;
    const attn_shape *s = &w->problem.shape;
    if (w->tasks == 0) { /* no memory, and nothing to sum */
        if (g->has.grad_relative_keys) store_zeros(w, s->dim_qk, &g->at.grad_relative_keys, args->grad_relative_keys);
        if (g->has.grad_relative_values) store_zeros(w, s->dim_v, &g->at.grad_relative_values, args->grad_relative_values);
        return;
    }
    for (int64_t table = 0; table < r->tables; table++) {
        char *sums = totals_of(w, shared, table);
        if (g->has.grad_relative_keys)
            store_table(w, sums, s->dim_qk, r->ld_keys, &g->at.grad_relative_keys, args->grad_relative_keys, table);
        if (g->has.grad_relative_values)
            store_table(w, sums + r->sum_values, s->dim_v, r->ld_values, &g->at.grad_relative_values, args->grad_relative_values,
                        table);
    }
}
