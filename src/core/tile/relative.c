/* SPDX-License-Identifier: MIT
 * relative.c - relative terms of one tile and one block of keys, and the sums of the tables' gradients. */
#include "relative.h"

#include <string.h>

#include "../base/element.h"
#include "../base/names.h"

enum { MAX_KEYS = 128 }; /* of a band, so that it stays in L1 beside the scores */

static int64_t size_of(const attn_walk *w) { return (int64_t)attn_dtype_bytes(w->compute); }

static int64_t all_rows(const attn_tile_walk *tiles) { return tiles->walk.problem.relative.rows + 2 * tiles->relative.pad; }

/*
 * The lowest rows of a tile's last band.  The band of the next n keys lies n rows lower, so these are its highest rows.
 */
typedef struct reused_rows {
    int64_t row, first, lanes; /* the lowest row of the table, or -1: none; the tile's first query and number of lanes */
} reused_rows;
_Static_assert(sizeof(reused_rows) <= ATTN_REUSED_HEAD, "before the rows");

static reused_rows *reused_band(const attn_task *task, const attn_tile *tile, attn_relative_side side)
{
    const attn_tile_scratch *at = &attn_tiles_of(task->walk)->scratch;
    return attn_part(task, at->reused_rows + (2 * tile->place + side) * at->reused_bytes);
}

void attn_relative_forget(const attn_task *task, const attn_tile *tile)
{
    reused_band(task, tile, ATTN_RELATIVE_KEYS)->row = reused_band(task, tile, ATTN_RELATIVE_VALUES)->row = -1;
}

attn_band attn_band_of(const attn_task *task, const attn_tile *tile, const attn_keys *keys, attn_relative_side side)
{
    const attn_walk *w = task->walk;
    const attn_relative *r = &w->problem.relative;
    const int64_t much = (int64_t)1 << 60;
    attn_band v = {.w = w,
                   .tiles = attn_tiles_of(w),
                   .width = tile->width,
                   .lanes = tile->width * w->kernel.lanes,
                   .n = keys->high - keys->low};
    v.dim = side == ATTN_RELATIVE_KEYS ? w->problem.shape.dim_qk : w->problem.shape.dim_v;
    v.base = attn_add_saturate(attn_add_saturate(tile->first, task->visibility.offset), -keys->low);
    v.base = attn_clamp(v.base, -much, much);
    v.near = attn_clamp(v.base - (r->first + r->rows - 1) + 1, 0, v.n);
    /* As for a full tile, so that no sum depends on how many of its vectors are in use. */
    v.far = attn_clamp(v.base + w->tile_q - 1 - r->first, v.near, v.n);
    const void *tables = side == ATTN_RELATIVE_KEYS ? task->args->relative_keys : task->args->relative_values;
    v.rows = (const char *)tables + (v.tiles->relative.tables > 1 ? task->h : 0) * all_rows(v.tiles) * v.dim * size_of(w);
    v.stale = attn_part(task, v.tiles->scratch.band);
    v.band = v.stale + v.tiles->scratch.lane_bytes;
    return v;
}

static int64_t end_row(const attn_band *v, int last)
{
    return v->tiles->relative.pad + (last ? v->w->problem.relative.rows - 1 : 0);
}

static const void *row_at(const attn_band *v, int64_t row) { return v->rows + row * v->dim * size_of(v->w); }

static void *key_at(const attn_band *v, const void *S, int64_t j)
{
    return (char *)(uintptr_t)S + j * v->w->tile_q * size_of(v->w);
}

/* The lowest row of the band of keys j .. j+n-1, which has n + lanes - 1 rows. */
static int64_t band_row(const attn_band *v, int64_t j, int64_t n)
{
    return v->base - (j + n - 1) - v->w->problem.relative.first + v->tiles->relative.pad;
}

/* Number of next keys within the table; 0 after the last one. */
static int64_t next_keys(const attn_band *v, int64_t j) { return attn_min(MAX_KEYS, v->far - j); }

/* Prefetches the lower rows, of nearer keys, which come next; an address before the table is only a hint. */
static void multiply(const attn_band *v, const void *Xt, int64_t row, int64_t count)
{
    const void *next = (const void *)((uintptr_t)v->rows + (uintptr_t)((row - MAX_KEYS) * v->dim * size_of(v->w)));
    v->w->kernel.product->score(v->width, count, v->dim, Xt, row_at(v, row), v->dim, v->band, v->stale, next, v->dim);
}

/* The band of n keys, from its lowest row on; rows in common with the band before are copied from it. */
static void make_band(const attn_band *v, const void *Xt, int64_t row, int64_t n, const attn_tile *tile, reused_rows *from)
{
    const int64_t row_bytes = v->w->tile_q * size_of(v->w), bytes = (v->lanes - 1) * row_bytes;
    char *rows = (char *)from + ATTN_REUSED_HEAD;
    if (from->row == row + n && from->first == tile->first && from->lanes == v->lanes) {
        multiply(v, Xt, row, n);
        memcpy(v->band + n * row_bytes, rows, (size_t)bytes);
    } else {
        multiply(v, Xt, row, n + v->lanes - 1);
    }
    memcpy(rows, v->band, (size_t)bytes);
    *from = (reused_rows){row, tile->first, v->lanes};
}

void attn_relative_add(const attn_task *task, const attn_tile *tile, const attn_keys *keys, attn_relative_side side, const void *Xt,
                       void *S)
{
    const attn_band v = attn_band_of(task, tile, keys, side);
    const attn_kernel *k = &v.w->kernel;
    void *block_max = attn_part(task, v.tiles->scratch.block_max);
    k->modify->block_max(v.width, 0, S, block_max);
    if (v.near > 0) {
        multiply(&v, Xt, end_row(&v, 1), 1);
        k->relative->add_to_lanes(v.width, v.near, S, v.band, block_max);
    }
    for (int64_t j = v.near, n; (n = next_keys(&v, j)) > 0; j += n) {
        make_band(&v, Xt, band_row(&v, j, n), n, tile, reused_band(task, tile, side));
        k->relative->add_relative_shift(v.width, n, v.band, key_at(&v, S, j), block_max);
    }
    if (v.far < v.n) {
        multiply(&v, Xt, end_row(&v, 0), 1);
        k->relative->add_to_lanes(v.width, v.n - v.far, key_at(&v, S, v.far), v.band, block_max);
    }
}

void attn_each_band(const attn_band *v, const void *X, attn_use_band *use, void *context)
{
    const attn_kernel *k = &v->w->kernel;
    if (v->near > 0) {
        k->relative->sum_keys(v->width, v->near, X, v->band);
        use(v, end_row(v, 1), 1, context);
    }
    for (int64_t j = v->near, n; (n = next_keys(v, j)) > 0; j += n) {
        k->relative->relative_shift(v->width, n, key_at(v, X, j), v->band);
        use(v, band_row(v, j, n), n + v->lanes - 1, context);
    }
    if (v->far < v->n) {
        k->relative->sum_keys(v->width, v->n - v->far, key_at(v, X, v->far), v->band);
        use(v, end_row(v, 0), 1, context);
    }
}

typedef struct absorbed {
    int nan_safe;
    void *Yt;
} absorbed;

static void absorb(const attn_band *v, int64_t row, int64_t count, void *context)
{
    const absorbed *to = context;
    (to->nan_safe ? v->w->kernel.product->add_values_nan_safe : v->w->kernel.product->add_values)(v->width, count, v->dim, v->band,
                                                                                                  row_at(v, row), v->dim, to->Yt);
}

void attn_relative_absorb(const attn_task *task, const attn_tile *tile, const attn_keys *keys, attn_relative_side side,
                          const void *X, int nan_safe, void *Yt)
{
    const attn_band v = attn_band_of(task, tile, keys, side);
    absorbed to = {nan_safe, Yt};
    attn_each_band(&v, X, absorb, &to);
}
