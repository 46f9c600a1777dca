/* SPDX-License-Identifier: MIT
 * table_sums.c - dS summed by distance, and the sums as the gradient of the table. */
#include "table_sums.h"

#include "../base/distance.h"
#include "../base/element.h"
#include "../base/names.h"

static double *sums_of_tile(const attn_task *task, int64_t place)
{
    const attn_walk *w = task->walk;
    return (double *)attn_part(task, attn_sums_of(w)->diagonal_sums) + place * attn_tiles_of(w)->tables.length;
}

void attn_table_sums_clear(const attn_task *task, int64_t place)
{
    double *sums = sums_of_tile(task, place);
    for (int64_t n = 0; n < attn_tiles_of(task->walk)->tables.length; n++) sums[n] = 0;
}

void attn_table_sums_add(const attn_task *task, const attn_tile *tile, const attn_keys *keys, const void *dS)
{
    const attn_walk *w = task->walk;
    const int64_t n = keys->high - keys->low, first = attn_add_saturate(tile->first, task->visibility.offset);
    double *sums = sums_of_tile(task, tile->place);
    sums += attn_place_on_diagonals(&attn_tiles_of(w)->tables, first, keys->high - 1, n + tile->width * w->kernel.lanes - 1);
    w->kernel.gradient->sum_diagonals(tile->width, tile->rows, n, dS, attn_part(task, attn_sums_of(w)->diagonals), sums);
}

static double *sums_of_head(const attn_walk *w, const char *shared, int64_t head)
{
    char *base = (char *)(uintptr_t)shared + attn_sums_of(w)->shared.table_sums;
    return (double *)(void *)base + head * attn_tiles_of(w)->tables.length;
}

void attn_table_sums_begin(const attn_walk *walk, int64_t head, char *shared)
{
    double *sums = sums_of_head(walk, shared, head);
    for (int64_t n = 0; n < attn_tiles_of(walk)->tables.length; n++) sums[n] = 0;
}

void attn_table_sums_keep(const attn_task *task, int64_t place, char *shared)
{
    const attn_walk *w = task->walk;
    const double *sums = sums_of_tile(task, place);
    double *to = sums_of_head(w, shared, task->b * w->problem.shape.heads_q + task->h);
    for (int64_t n = 0; n < attn_tiles_of(w)->tables.length; n++) to[n] += sums[n];
}

/* The sum at a distance over all heads of a table and all batch entries, in order. */
static double sum_at(const attn_walk *walk, const char *shared, int64_t table, int64_t n)
{
    const attn_resolved *p = &walk->problem;
    const int64_t Hq = p->shape.heads_q, heads = attn_bias_table_shared(p) ? Hq : 1;
    double sum = 0;
    for (int64_t b = 0; b < p->shape.batch; b++)
        for (int64_t h = table * heads; h < (table + 1) * heads; h++) sum += sums_of_head(walk, shared, b * Hq + h)[n];
    return sum;
}

void attn_tables_finish(const attn_walk *walk, const attn_args *args, char *shared)
{
    const attn_resolved *p = &walk->problem;
    const attn_tables *t = &attn_tiles_of(walk)->tables;
    const attn_layout *layout = &p->at.grad_bias_table;
    const int64_t tables = attn_bias_table_shared(p) ? 1 : p->shape.heads_q, buckets = t->rule.buckets;
    double *totals = (double *)(void *)(shared + attn_sums_of(walk)->shared.table_totals);
    const int any = walk->tasks > 0 && p->shape.heads_q > 0; /* else there is no workspace either */
    for (int64_t n = 0; any && n < tables * buckets; n++) totals[n] = 0;
    for (int64_t n = 0; any && n < t->length; n++) {
        const int64_t bucket = attn_distance_bucket_of(&t->rule, t->first + n);
        for (int64_t table = 0; table < tables; table++) totals[table * buckets + bucket] += sum_at(walk, shared, table, n);
    }
    const int64_t shared_buckets = layout->stride[2] ? 1 : buckets; /* buckets per element */
    for (int64_t table = 0; table < tables; table++)
        for (int64_t n = 0; n < buckets; n += shared_buckets) {
            double sum = 0;
            for (int64_t k = n; any && k < n + shared_buckets; k++) sum += totals[table * buckets + k];
            attn_element_put(args->grad_bias_table, layout->dtype, table * layout->stride[1] + n * layout->stride[2], sum);
        }
}
