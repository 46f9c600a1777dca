/* SPDX-License-Identifier: MIT
 * relative.c - combinations with biases by distance and relative terms. */
#include "test.h"

#include "combination.h"

#include <math.h>

static int once_in(random_state *r, int64_t n) { return random_below(r, n) == 0; }

void combination_table(combination *c, random_state *r, int finite)
{
    static const attn_dtype types[] = {ATTN_F32, ATTN_F64, ATTN_BF16, ATTN_F16};
    attn_bias_table *t = &c->problem.bias_table;
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
    const int shared = once_in(r, 3);
    c->ref.bias_table_of_each_head = !shared;
    const int64_t shape[4] = {1, shared ? 1 : c->ref.Hq, c->ref.buckets, 1};
    tensor *table = &c->of[TENSOR(bias_table)];
    *table = tensor_make(random_below(r, 3) ? combination_compute(c) : types[random_below(r, 4)], shape,
                         random_below(r, 2) ? BY_TOKEN : BY_HEAD, 0, NULL);
    tensor_draw(table, r, 2);
    for (int64_t i = 0; !finite && once_in(r, 3) && i < table->count; i++)
        if (once_in(r, 9)) tensor_set(table, i, -INFINITY);
    tensor_read(table);
    combination_give(c, TENSOR(bias_table));
    c->ref.bias_table = table->value;
}

static tensor draw_table(combination *c, random_state *r, int64_t dim)
{
    static const attn_dtype types[] = {ATTN_F32, ATTN_F64, ATTN_BF16, ATTN_F16};
    const int64_t shape[4] = {1, c->ref.relative_of_each_head ? c->ref.Hq : 1, c->ref.relative_rows, dim};
    tensor t = tensor_make(random_below(r, 3) ? combination_compute(c) : types[random_below(r, 4)], shape,
                           random_below(r, 2) ? BY_TOKEN : BY_HEAD, 0, NULL);
    tensor_draw(&t, r, 1);
    return t;
}

static tensor draw_vectors(combination *c, random_state *r)
{
    const int64_t shape[4] = {1, c->ref.Hq, 1, c->ref.D};
    tensor t = tensor_make(combination_compute(c), shape, BY_HEAD, 0, NULL);
    tensor_draw(&t, r, 1);
    return t;
}

/* Poisons the rows of a table that no visible pair reads. */
static void poison_rows(combination *c, tensor *t)
{
    const ref_problem *p = &c->ref;
    for (int64_t h = 0; h < t->shape[1]; h++)
        for (int64_t n = 0; n < t->shape[2]; n++) {
            int read = p->uniform != 0; /* fully masked queries read all values */
            for (int64_t b = 0; b < p->B && !read; b++)
                for (int64_t head = t->shape[1] > 1 ? h : 0; head < (t->shape[1] > 1 ? h + 1 : p->Hq) && !read; head++)
                    for (int64_t i = 0; i < p->Sq && !read; i++)
                        for (int64_t j = 0; j < p->Skv && !read; j++) {
                            int64_t d = i + (p->offset ? p->offset[b] : 0) - j - p->relative_first, last = p->relative_rows - 1;
                            read = (d < 0 ? 0 : d > last ? last : d) == n && ref_visible(p, b, head, i, j);
                        }
            for (int64_t k = 0; k < t->shape[3] && !read; k++) tensor_set(t, tensor_at(t, 0, h, n, k), NAN);
        }
    tensor_read(t);
}

void combination_relative(combination *c, random_state *r, int finite)
{
    attn_relative *rel = &c->problem.relative;
    const int64_t reach = once_in(r, 3) ? 400 : 12, kind = random_below(r, 4);
    rel->rows = 1 + random_below(r, reach);
    rel->first = random_below(r, 2) ? -(rel->rows / 2) : random_below(r, 60) - 40;
    if (once_in(r, 4)) rel->first = 1 - c->ref.Skv, rel->rows = c->ref.Sq + c->ref.Skv + 1; /* a full table */
    const int keys = kind > 0, values = kind != 1, u = keys && once_in(r, 2), v = keys && once_in(r, 2), shared = once_in(r, 2);
    c->ref.relative_first = rel->first, c->ref.relative_rows = rel->rows, c->ref.relative_of_each_head = !shared;
    if (keys) c->of[TENSOR(relative_keys)] = draw_table(c, r, c->ref.D);
    if (values) c->of[TENSOR(relative_values)] = draw_table(c, r, c->ref.Dv);
    if (u) c->of[TENSOR(relative_u)] = draw_vectors(c, r);
    if (v) c->of[TENSOR(relative_v)] = draw_vectors(c, r);
    if (!finite && keys && once_in(r, 3)) poison_rows(c, &c->of[TENSOR(relative_keys)]);
    if (!finite && values && once_in(r, 3)) poison_rows(c, &c->of[TENSOR(relative_values)]);
    for (int t = TENSOR(relative_keys); t <= TENSOR(relative_v); t++)
        if (c->of[t].memory) combination_give(c, t);
    c->ref.relative_keys = c->of[TENSOR(relative_keys)].value, c->ref.relative_values = c->of[TENSOR(relative_values)].value;
    c->ref.relative_u = c->of[TENSOR(relative_u)].value, c->ref.relative_v = c->of[TENSOR(relative_v)].value;
}
