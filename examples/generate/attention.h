/* SPDX-License-Identifier: MIT
 *
 * attention.h - attention of one step over pages: sequences of any lengths, each with some new tokens, in one call.  The step is
 * planned and scheduled once, and every layer executes it:
 *
 *      attention_begin(a, p, first, count, counts, &model, &error)
 *      for each layer:  attention_layer(a, layer, q, k, v, o, &error)
 *      attention_end(a, p)          the new tokens count
 */
#ifndef ATTENTION_H
#define ATTENTION_H

#include "attn/schedule.h"
#include "pages.h"

typedef struct attention {
    const attn_options *options;
    int64_t first, count, rows; /* sequences first .. first + count - 1, which bring so many tokens */
    int64_t heads, heads_kv, dim;
    int64_t *numbers;          /* of which the next four are parts */
    int64_t *starts, *lengths; /* [count + 1] where the queries of each begin; [count] tokens with the new ones */
    int64_t *held, *positions; /* [count]: tokens while a layer appends; [rows]: in its sequence */
    int64_t *table;            /* of the first of the sequences */
    attn_plan *plan;
    const attn_schedule *schedule;
    void *schedule_memory, *workspace;
    size_t workspace_bytes;
    float *rotated; /* with hadamard: [2 * heads_kv + heads][rows * dim] */
} attention;

/* Memory is kept from step to step; attention_free releases it. */
attn_status attention_begin(attention *a, const pages *p, int64_t first, int64_t count, const int64_t *counts, int64_t heads,
                            const attn_options *options, attn_error *error);

/* q and o [rows][heads][dim], k and v [rows][heads_kv][dim]; q is rotated in place. */
attn_status attention_layer(attention *a, const pages *p, int64_t layer, float *q, const float *k, const float *v, float *o,
                            attn_error *error);
void attention_end(attention *a, pages *p);
void attention_free(attention *a);

#endif
