/* SPDX-License-Identifier: MIT
 *
 * cut.h - a random attention of many options, and parts of it: some batch entries, heads, queries and keys, each with its origin,
 * as devices of a ring or chunks of a prompt have them. */
#ifndef ATTN_TESTS_INTERFACE_CUT_H
#define ATTN_TESTS_INTERFACE_CUT_H

#include "test.h"

#include "attn/attn.h"
#include "random.h"

/* A dense array of the whole problem: element at[0..3] at the sum of at * stride; parts have its strides. */
typedef struct array {
    char *data;
    attn_dtype dtype;
    int64_t shape[4], stride[4];
} array;

enum { CUT_ARRAYS = 32 };

typedef struct whole {
    attn_problem problem;
    attn_dtype dtype; /* of everything but masks and indices: f32 or f64 */
    random_source random;
    attn_call call;
    int bottom_right; /* offset_q has what bottom-right alignment would be */
    array q, k, v, mask, bias, block_mask, ranges, slopes, table, relative_keys, relative_values, relative_u, relative_v, scale;
    array grad_o;
    array o, lse, keep, grad_q, grad_k, grad_v; /* results */
    int64_t lengths_q[8], lengths_kv[8], offset_q[8];
    int has_lengths, has_offset;
    char text[300]; /* the options, for messages */
    void *owned[CUT_ARRAYS];
    int count;
} whole;

/* Where a part lies: first and number of batch entries, key heads, queries and keys. */
typedef struct part {
    int64_t batch, entries, head, heads, q, queries, kv, keys;
} part;

/* What a part is computed into, dense. */
typedef struct results {
    array o, lse, keep, grad_q, grad_k, grad_v;
} results;

void whole_draw(whole *w, uint64_t seed, attn_dtype dtype);
void whole_free(whole *w);

/* Computes all of it, or a part; ops that have been computed before it: forward before backward, whose o and lse are the whole's.
 */
void whole_run(whole *w, attn_op op);
void part_run(whole *w, const part *p, attn_op op, results *r);
results results_make(const whole *w, const part *p);
void results_free(results *r);

double array_at(const array *a, int64_t b, int64_t h, int64_t i, int64_t c);

#endif
