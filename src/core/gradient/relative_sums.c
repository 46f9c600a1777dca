/* SPDX-License-Identifier: MIT
 * relative_sums.c - sums of the tables' gradients: of a group of tiles, of a key head, of all heads. */
#include "relative_sums.h"

#include <string.h>

#include "../base/checked.h"
#include "../base/element.h"
#include "../base/names.h"

/* The touched rows of a group's sums, for keys and for values. */
typedef struct touched_rows {
    int64_t low[2], high[2];
} touched_rows;
_Static_assert(sizeof(touched_rows) <= ATTN_SUMS_HEAD, "before the sums");

typedef struct summed {
    int nan_safe;
    int64_t rows, ld;
    const void *panels;
    char *sums;
    int64_t *low, *high;
} summed;

static void sum(const attn_band *v, int64_t row, int64_t count, void *context)
{
    const summed *to = context;
    attn_prefetch none = {0};
    *to->low = attn_min(*to->low, row);
    *to->high = attn_max(*to->high, row + count);
    (to->nan_safe ? v->w->kernel.outer->add_outer_nan_safe : v->w->kernel.outer->add_outer)(
        count, to->rows, v->dim, v->band, to->panels, to->sums + row * to->ld * (int64_t)attn_dtype_bytes(v->w->compute), to->ld,
        &none);
}

void attn_relative_sum(const attn_task *task, const attn_tile *tile, const attn_keys *keys, attn_relative_side side, const void *X,
                       int nan_safe, const void *panels, void *sums)
{
    const attn_band v = attn_band_of(task, tile, keys, side);
    const attn_relative_sums *r = &attn_sums_of(v.w)->relative;
    const int values = side == ATTN_RELATIVE_VALUES;
    touched_rows *rows = sums;
    summed to = {nan_safe,
                 tile->rows,
                 values ? r->ld_values : r->ld_keys,
                 panels,
                 (char *)sums + ATTN_SUMS_HEAD + (values ? r->sum_values : 0),
                 &rows->low[values],
                 &rows->high[values]};
    attn_each_band(&v, X, sum, &to);
}

/* ---- sums of the tables' gradients ---- */

static int64_t size_of(const attn_walk *w) { return (int64_t)attn_dtype_bytes(w->compute); }

static int64_t tables_of_key_head(const attn_walk *w)
{
    return attn_relative_shared(&w->problem) ? 1 : w->problem.shape.heads_q / w->problem.shape.heads_kv;
}

static const touched_rows no_rows = {{INT64_MAX, INT64_MAX}, {0, 0}};

void attn_relative_sums_begin(const attn_walk *w, void *sums)
{
    *(touched_rows *)sums = no_rows;
    memset((char *)sums + ATTN_SUMS_HEAD, 0, (size_t)attn_sums_of(w)->relative.sum_bytes);
}

void attn_relative_join(const attn_walk *w, void *sums, void *to)
{
    touched_rows *rows = sums;
    for (int side = ATTN_RELATIVE_KEYS; side <= ATTN_RELATIVE_VALUES; side++) {
        const int64_t ld = side == ATTN_RELATIVE_VALUES ? attn_sums_of(w)->relative.ld_values : attn_sums_of(w)->relative.ld_keys;
        const int64_t count = rows->high[side] - rows->low[side];
        if (count <= 0) continue;
        const int64_t at =
            (side == ATTN_RELATIVE_VALUES ? attn_sums_of(w)->relative.sum_values : 0) + rows->low[side] * ld * size_of(w);
        char *from = (char *)sums + ATTN_SUMS_HEAD + at;
        w->kernel.outer->add(count * ld, from, (char *)to + ATTN_SUMS_HEAD + at);
        memset(from, 0, (size_t)(count * ld * size_of(w)));
    }
    *rows = no_rows;
}

int attn_relative_split_sums(const attn_walk *w) { return tables_of_key_head(w) == 1; }

void *attn_relative_sums_at(const attn_walk *w, char *shared, int64_t place, int64_t k)
{
    const int64_t tables = tables_of_key_head(w);
    return shared + attn_sums_of(w)->shared.relative_sums +
           (place * tables + (tables > 1 ? k : 0)) * (ATTN_SUMS_HEAD + attn_sums_of(w)->relative.sum_bytes);
}

void attn_relative_sums_clear(const attn_walk *w, char *shared, int64_t place)
{
    for (int64_t k = 0; k < tables_of_key_head(w); k++) attn_relative_sums_begin(w, attn_relative_sums_at(w, shared, place, k));
}

static char *totals_of(const attn_walk *w, char *shared, int64_t table)
{
    return shared + attn_sums_of(w)->shared.relative_totals + table * attn_sums_of(w)->relative.sum_bytes;
}

void attn_relative_totals_clear(const attn_walk *w, char *shared)
{
    memset(totals_of(w, shared, 0), 0, (size_t)(attn_tiles_of(w)->relative.tables * attn_sums_of(w)->relative.sum_bytes));
}

void attn_relative_totals_add(const attn_walk *w, char *shared, int64_t table, int64_t place, int64_t key_head)
{
    const int64_t each = tables_of_key_head(w), g = key_head % w->problem.shape.heads_kv;
    if (!attn_relative_shared(&w->problem) && table / each != g) return;
    w->kernel.outer->add(attn_sums_of(w)->relative.sum_bytes / size_of(w),
                         (char *)attn_relative_sums_at(w, shared, place, table % each) + ATTN_SUMS_HEAD,
                         totals_of(w, shared, table));
}

/* The gradient of a table whose rows all share memory has one row. */
static int64_t rows_of_gradient(const attn_walk *w, const attn_layout *layout)
{
    return layout->stride[2] ? w->problem.relative.rows : 1;
}

/* Adds rows beyond the ends to the end rows, then stores the table. */
static void store_table(const attn_walk *w, char *sums, int64_t dim, int64_t ld, const attn_layout *layout, void *out,
                        int64_t table)
{
    const int64_t pad = attn_tiles_of(w)->relative.pad, rows = w->problem.relative.rows, bytes = ld * size_of(w),
                  stored = rows_of_gradient(w, layout);
    if (dim == 0) return;
    for (int64_t n = 0; n < pad; n++) {
        w->kernel.outer->add(ld, sums + n * bytes, sums + pad * bytes);
        w->kernel.outer->add(ld, sums + (pad + rows + n) * bytes, sums + (pad + rows - 1) * bytes);
    }
    for (int64_t n = stored; n < rows; n++) w->kernel.outer->add(ld, sums + (pad + n) * bytes, sums + pad * bytes);
    w->kernel.storage->store_rows(stored, dim, 1, sums + pad * bytes, ld,
                                  (char *)out + table * layout->stride[1] * (int64_t)attn_dtype_bytes(layout->dtype), layout->dtype,
                                  layout->stride[2]);
}

/* of: the table, whose strides determine how many tables its gradient has.  With 0 heads one side may be shared and the other have
 * none. */
static void store_zeros(const attn_walk *w, int64_t dim, const attn_layout *like, const attn_layout *layout, void *out)
{
    const int64_t tables = like->stride[1] == 0 ? 1 : w->problem.shape.heads_q;
    for (int64_t table = 0; table < tables; table++)
        for (int64_t row = 0; row < rows_of_gradient(w, layout); row++)
            for (int64_t c = 0; c < dim; c++)
                attn_element_put(out, layout->dtype, table * layout->stride[1] + row * layout->stride[2] + c, 0);
}

void attn_relative_totals_store(const attn_walk *w, const attn_args *args, char *shared)
{
    const attn_resolved *g = &w->problem;
    const attn_relative_sums *r = &attn_sums_of(w)->relative;
    const attn_shape *s = &w->problem.shape;
    if (w->tasks == 0 || s->heads_q == 0) { /* no workspace, and nothing to sum */
        if (g->has.grad_relative_keys)
            store_zeros(w, s->dim_qk, &g->at.relative_keys, &g->at.grad_relative_keys, args->grad_relative_keys);
        if (g->has.grad_relative_values)
            store_zeros(w, s->dim_v, &g->at.relative_values, &g->at.grad_relative_values, args->grad_relative_values);
        return;
    }
    for (int64_t table = 0; table < attn_tiles_of(w)->relative.tables; table++) {
        char *sums = totals_of(w, shared, table);
        if (g->has.grad_relative_keys)
            store_table(w, sums, s->dim_qk, r->ld_keys, &g->at.grad_relative_keys, args->grad_relative_keys, table);
        if (g->has.grad_relative_values)
            store_table(w, sums + r->sum_values, s->dim_v, r->ld_values, &g->at.grad_relative_values, args->grad_relative_values,
                        table);
    }
}

int attn_relative_sums_init(attn_sum_walk *plan)
{
    const attn_relatives *tables = &plan->gradient.tiles.relative;
    attn_relative_sums *r = &plan->relative;
    const attn_walk *walk = &plan->gradient.tiles.walk;
    const attn_resolved *p = &walk->problem;
    const int64_t lanes = walk->kernel.lanes, size = (int64_t)attn_dtype_bytes(walk->compute);
    const int64_t rows = p->relative.rows + 2 * tables->pad;
    int64_t of_keys, of_values, all;
    if (!attn_grads_relative(p)) return 1;
    r->ld_keys = attn_ceil_div(p->shape.dim_qk, lanes) * lanes;
    r->ld_values = attn_ceil_div(p->shape.dim_v, lanes) * lanes;
    if (!attn_mul(rows, r->ld_keys, &of_keys) || !attn_mul(rows, r->ld_values, &of_values)) return 0;
    if (!attn_add(of_keys, of_values, &all) || all > INT64_MAX / 16) return 0;
    r->sum_values = p->has.relative_keys ? of_keys * size : 0;
    r->sum_bytes = r->sum_values + (p->has.relative_values ? of_values * size : 0);
    r->sum_bytes = (r->sum_bytes + 7) / 8 * 8; /* the header of the next sums has 8-byte integers */
    return 1;
}
