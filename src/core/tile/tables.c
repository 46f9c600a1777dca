/* SPDX-License-Identifier: MIT
 * tables.c - a bias by distance: strips of the table, and the gradient of the table. */
#include "tables.h"

#include <math.h>
#include <string.h>

#include "../base/distance.h"
#include "../base/element.h"
#include "../base/names.h"

enum { HEAD_BYTES = 64 }; /* before the strips: an int, 1 if a number is not finite */

int attn_tables_init(attn_tables *t, const attn_walk *walk, int64_t span)
{
    const attn_resolved *p = &walk->problem;
    const attn_bias_table *given = &p->bias_table;
    if (!p->has.bias_table) return 1;
    t->rule = (attn_distance_bias){.struct_size = sizeof t->rule,
                                   .kind = given->kind,
                                   .buckets = given->buckets,
                                   .max_distance = given->max_distance,
                                   .causal = given->causal};
    t->count = attn_bias_table_shared(p) ? 1 : p->shape.heads_q;
    t->first = -t->rule.max_distance - span;
    t->length = 2 * (t->rule.max_distance + span) + 1;
    int64_t end = HEAD_BYTES, at;
    const attn_part_of strips = {&at, t->count, t->length, attn_dtype_bytes(walk->compute)};
    if (!attn_place(&strips, 1, &end)) return 0;
    t->bytes = end;
    return 1;
}

void attn_tables_begin(const attn_tables *t, const attn_walk *walk, const attn_args *args, void *memory, attn_args *prepared)
{
    const attn_layout *layout = &walk->problem.at.bias_table;
    char *strips = (char *)memory + HEAD_BYTES;
    int special = 0;
    if (!walk->problem.has.bias_table || walk->tasks == 0) return;
    for (int64_t n = 0; n < t->length && t->count; n++) {
        const int64_t bucket = attn_distance_bucket_of(&t->rule, t->first + n);
        for (int64_t h = 0; h < t->count; h++) {
            double x = attn_element_get(args->bias_table, layout->dtype, h * layout->stride[1] + bucket * layout->stride[2]);
            attn_real_put(strips, walk->compute, h * t->length + n, x);
            special |= !isfinite(attn_real_at(strips, walk->compute, h * t->length + n));
        }
    }
    memcpy(memory, &special, sizeof special);
    prepared->bias_table = memory;
}

/* Where in a strip a run of `count` distances begins: where it would pass an end, all are alike. */
static int64_t place_in_strip(const attn_tables *t, int64_t first, int64_t last, int64_t count)
{
    const int64_t distance = attn_add_saturate(first, -last);
    return attn_clamp(attn_add_saturate(distance, -t->first), 0, t->length - count);
}

const void *attn_strip_at(const attn_tables *t, const attn_task *task, int64_t first, int64_t last, int64_t count)
{
    const int64_t at = (t->count > 1 ? task->h : 0) * t->length + place_in_strip(t, first, last, count);
    return (const char *)task->args->bias_table + HEAD_BYTES + at * (int64_t)attn_dtype_bytes(task->walk->compute);
}

int attn_tables_special(const attn_task *task)
{
    int special;
    memcpy(&special, task->args->bias_table, sizeof special);
    return special;
}

/* ---- the gradient ---- */

static double *sums_of_tile(const attn_task *task, int64_t place)
{
    const attn_walk *w = task->walk;
    return (double *)attn_part(task, w->scratch.strip_sums) + place * w->tables.length;
}

void attn_table_sums_clear(const attn_task *task, int64_t place)
{
    double *sums = sums_of_tile(task, place);
    for (int64_t n = 0; n < task->walk->tables.length; n++) sums[n] = 0;
}

void attn_table_sums_add(const attn_task *task, const attn_tile *tile, const attn_keys *keys, const void *dS)
{
    const attn_walk *w = task->walk;
    const int64_t n = keys->high - keys->low, first = attn_add_saturate(tile->first, task->sight.offset);
    double *sums = sums_of_tile(task, tile->place);
    sums += place_in_strip(&w->tables, first, keys->high - 1, n + tile->width * w->kernel->lanes - 1);
    w->backward->sum_strip(tile->width, tile->rows, n, dS, attn_part(task, w->scratch.strips), sums);
}

static double *sums_of_head(const attn_walk *w, const char *shared, int64_t head)
{
    char *base = (char *)(uintptr_t)shared + w->shared.table_sums;
    return (double *)(void *)base + head * w->tables.length;
}

void attn_table_sums_begin(const attn_walk *walk, int64_t head, char *shared)
{
    double *sums = sums_of_head(walk, shared, head);
    for (int64_t n = 0; n < walk->tables.length; n++) sums[n] = 0;
}

void attn_table_sums_keep(const attn_task *task, int64_t place, char *shared)
{
    const attn_walk *w = task->walk;
    const double *sums = sums_of_tile(task, place);
    double *to = sums_of_head(w, shared, task->b * w->problem.shape.heads_q + task->h);
    for (int64_t n = 0; n < w->tables.length; n++) to[n] += sums[n];
}

/* What all heads of a table and all batch entries have at a distance, in order. */
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
    const attn_tables *t = &walk->tables;
    const attn_layout *layout = &p->at.grad_bias_table;
    const int64_t tables = attn_bias_table_shared(p) ? 1 : p->shape.heads_q, buckets = t->rule.buckets;
    double *totals = (double *)(void *)(shared + walk->shared.table_totals);
    const int any = walk->tasks > 0; /* else there is no memory either */
    for (int64_t n = 0; any && n < tables * buckets; n++) totals[n] = 0;
    for (int64_t n = 0; any && n < t->length; n++) {
        const int64_t bucket = attn_distance_bucket_of(&t->rule, t->first + n);
        for (int64_t table = 0; table < tables; table++) totals[table * buckets + bucket] += sum_at(walk, shared, table, n);
    }
    const int64_t shared_buckets = layout->stride[2] ? 1 : buckets; /* of one element */
    for (int64_t table = 0; table < tables; table++)
        for (int64_t n = 0; n < buckets; n += shared_buckets) {
            double sum = 0;
            for (int64_t k = n; any && k < n + shared_buckets; k++) sum += totals[table * buckets + k];
            attn_element_put(args->grad_bias_table, layout->dtype, table * layout->stride[1] + n * layout->stride[2], sum);
        }
}
