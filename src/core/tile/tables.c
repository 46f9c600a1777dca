/* SPDX-License-Identifier: MIT
 * tables.c - a bias by distance: the table expanded into strips. */
#include "tables.h"

#include <math.h>
#include <string.h>

#include "../base/distance.h"
#include "../base/element.h"
#include "../base/names.h"

enum { HEAD_BYTES = 64 }; /* header before the strips: an int, 1 if an element is not finite */

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
    t->count = attn_tables_to_read(p, attn_bias_table_shared(p));
    t->first = -t->rule.max_distance - span;
    t->length = 2 * (t->rule.max_distance + span) + 1;
    int64_t end = HEAD_BYTES, at;
    const attn_part_of diagonals = {&at, t->count, t->length, attn_dtype_bytes(walk->compute)};
    if (!attn_place(&diagonals, 1, &end)) return 0;
    t->bytes = end;
    return 1;
}

void attn_tables_begin(const attn_tables *t, const attn_walk *walk, const attn_args *args, void *memory, attn_args *prepared)
{
    const attn_layout *layout = &walk->problem.at.bias_table;
    char *diagonals = (char *)memory + HEAD_BYTES;
    int special = 0;
    if (!walk->problem.has.bias_table || walk->tasks == 0) return;
    for (int64_t n = 0; n < t->length && t->count; n++) {
        const int64_t bucket = attn_distance_bucket_of(&t->rule, t->first + n);
        for (int64_t h = 0; h < t->count; h++) {
            double x = attn_element_get(args->bias_table, layout->dtype, h * layout->stride[1] + bucket * layout->stride[2]);
            attn_real_put(diagonals, walk->compute, h * t->length + n, x);
            if (!isfinite(attn_real_at(diagonals, walk->compute, h * t->length + n))) special = 1;
        }
    }
    memcpy(memory, &special, sizeof special);
    prepared->bias_table = memory;
}

const void *attn_diagonals_at(const attn_tables *t, const attn_task *task, int64_t first, int64_t last, int64_t count)
{
    const int64_t at = (t->count > 1 ? task->h : 0) * t->length + attn_place_on_diagonals(t, first, last, count);
    return (const char *)task->args->bias_table + HEAD_BYTES + at * (int64_t)attn_dtype_bytes(task->walk->compute);
}

int attn_tables_special(const attn_task *task)
{
    int special;
    memcpy(&special, task->args->bias_table, sizeof special);
    return special;
}
