/* SPDX-License-Identifier: MIT
 *
 * embedded.h - a sequence among others, in one of several ways to lie in memory, with what changes scores, masks and weights: for
 * tests of whether it has the same bits wherever it lies.
 */
#ifndef ATTN_TESTS_PROPERTY_EMBEDDED_H
#define ATTN_TESTS_PROPERTY_EMBEDDED_H

#include "test.h"

#include "attn/attn.h"

enum { MOST_HEADS = 32, D = 16, DV = 20, ROWS = 41, PAGE = 7, MOST_BATCH = 5 };

typedef struct memory_layout {
    attn_dtype dtype;
    int64_t stride[4];
} memory_layout;

typedef enum tensor {
    Q,
    K,
    V,
    O,
    LSE,
    GRAD_O,
    GRAD_LSE,
    GRAD_Q,
    GRAD_K,
    GRAD_V,
    TAN_Q,
    TAN_K,
    TAN_V,
    TAN_O,
    TAN_LSE,
    SECOND_GRAD_O,
    SECOND_GRAD_LSE,
    SECOND_Q,
    SECOND_K,
    SECOND_V,
    TENSORS
} tensor;

/* Of keys or of queries; channels; whether an operation reads it. */
typedef struct tensor_kind {
    int keys, dim, read;
} tensor_kind;
extern const tensor_kind kinds[TENSORS];

/* ---- places ---- */

typedef enum place { EXACT, PLAIN, LONGER, PADDED, PACKED, PAGED, PLACES } place;
extern const char *const place_names[PLACES];

/* The one sequence, and what it lies among. */
typedef struct sizes {
    int64_t len_q, len_kv, heads_q, heads_kv, dim_v;
    uint64_t mixed; /* 0: beside others of about its lengths; else the number of a draw of any lengths */
} sizes;

/* What changes scores beside numbers in the problem. */
enum { BIAS = 1, SLOPES = 2, SINK = 4, MATRIX = 8, TABLE = 16, RELATIVE = 32, RELATIVE_QUERIES = 64, SHARED = 128 };

/* An attention of some sequences, of which number `own` is the one. */
typedef struct embedded {
    attn_problem problem;
    attn_tensors tensors;
    place where;
    attn_dtype dtype;
    sizes of;
    int uses;
    int64_t batch, own, len_q[MOST_BATCH], len_kv[MOST_BATCH], cu_q[MOST_BATCH + 1], cu_kv[MOST_BATCH + 1], long_q, long_kv;
    int32_t narrow_q[MOST_BATCH], narrow_kv[MOST_BATCH], *pages; /* pages have narrow indices */
    char *data[TENSORS];
    float *bias, *grad_bias, *tan_bias, *second_bias;
    float slopes[MOST_HEADS], sink[MOST_HEADS], w[2 * D * D], table[MOST_HEADS * ROWS], u[MOST_HEADS * D], v[MOST_HEADS * D];
    float relative_keys[MOST_HEADS * ROWS * D], relative_values[MOST_HEADS * ROWS * DV];
    struct { /* of a whole batch: the same only where that is one sequence */
        float slopes[MOST_HEADS], sink[MOST_HEADS], scale[MOST_HEADS], w[2 * D * D], table[MOST_HEADS * ROWS], u[MOST_HEADS * D],
            v[MOST_HEADS * D];
        float relative_keys[MOST_HEADS * ROWS * D], relative_values[MOST_HEADS * ROWS * DV];
    } grad;
} embedded;

embedded *embed(place where, attn_dtype dtype, const sizes *of);
void destroy(embedded *e);

attn_dtype type_of(const embedded *e, int t);
int dim_of(const embedded *e, int t);
int64_t heads_of(const embedded *e, int t);
const int64_t *lengths_of(const embedded *e, int t); /* of each sequence */
memory_layout layout_of(const embedded *e, int t);
char *row_at(const embedded *e, int t, int64_t b, int64_t h, int64_t i);
int64_t pages_of(const embedded *e); /* of a sequence */

/* Returns 0 if the operation does not go with its options. */
int embedded_run(embedded *e, attn_op op, int threads);
/* Fails the test where what the operation wrote for the one sequence has other bits. */
void embedded_compare(const embedded *x, const embedded *y, attn_op op, const char *name, int threads);

/* What else a problem has. */
typedef struct embedded_option {
    const char *name;
    void (*set)(embedded *e);
} embedded_option;
enum { OPTIONS = 17 };
extern const embedded_option options[OPTIONS];

/* The sequence of these sizes in every way to lie, in every operation, against itself alone. */
void each_place(int option, attn_dtype dtype, const sizes *of);

#endif
