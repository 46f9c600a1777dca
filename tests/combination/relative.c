/* SPDX-License-Identifier: MIT
 * relative.c - combinations with a bias by distance. */
#include "test.h"

#include "combination.h"

#include <math.h>

static int once_in(random_source *r, int64_t n) { return random_below(r, n) == 0; }

void combination_table(combination *c, random_source *r, int finite)
{
    static const attn_dtype types[] = {ATTN_F32, ATTN_F64, ATTN_BF16, ATTN_F16};
    attn_bias_table *t = &c->problem.bias_table;
    t->used = 1;
    t->kind = random_below(r, 2) ? ATTN_DISTANCE_T5 : ATTN_DISTANCE_CLIPPED;
    if (t->kind == ATTN_DISTANCE_CLIPPED) {
        t->max_distance = once_in(r, 5) ? 0 : once_in(r, 2) ? random_below(r, 10) : random_below(r, 400);
        c->ref.bucket_rule = REF_CLIPPED;
        c->ref.buckets = 2 * t->max_distance + 1, c->ref.reach = t->max_distance;
    } else {
        t->causal = (int)random_below(r, 2);
        if (once_in(r, 2)) t->buckets = 4 + 2 * random_below(r, 20), t->max_distance = t->buckets + random_below(r, 300);
        c->ref.bucket_rule = t->causal ? REF_T5_CAUSAL : REF_T5;
        c->ref.buckets = t->buckets ? t->buckets : 32, c->ref.reach = t->max_distance ? t->max_distance : 128;
    }
    t->shared = once_in(r, 3);
    c->ref.bias_table_of_each_head = !t->shared;
    const int64_t shape[4] = {1, t->shared ? 1 : c->ref.Hq, c->ref.buckets, 1};
    c->bias_table = tensor_make(random_below(r, 3) ? combination_compute(c) : types[random_below(r, 4)], shape,
                                random_below(r, 2) ? BY_TOKEN : BY_HEAD, 0, NULL);
    tensor_draw(&c->bias_table, r, 2);
    for (int64_t i = 0; !finite && once_in(r, 3) && i < c->bias_table.count; i++)
        if (once_in(r, 9)) tensor_set(&c->bias_table, i, -INFINITY);
    tensor_read(&c->bias_table);
    t->table = c->bias_table.layout;
    c->args.bias_table = c->bias_table.memory;
    c->ref.bias_table = c->bias_table.value;
}
