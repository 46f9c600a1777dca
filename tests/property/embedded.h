/* SPDX-License-Identifier: MIT
 *
 * embedded.h - a sequence among others, in one of several memory layouts, with options that change scores, masks and weights: for
 * tests that it has the same bits in every layout.
 */
#ifndef ATTN_TESTS_PROPERTY_EMBEDDED_H
#define ATTN_TESTS_PROPERTY_EMBEDDED_H

#include "test.h"

#include "attn/attn.h"

enum { MAX_HEADS = 32, D = 16, DV = 20, ROWS = 41, PAGE = 7, MAX_BATCH = 5 };

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

/* keys: 1 of keys, 0 of queries; dim: channels; read: 1 if operations read it. */
typedef struct tensor_kind {
    int keys, dim, read;
} tensor_kind;
extern const tensor_kind kinds[TENSORS];

/* ---- layouts ---- */

typedef enum place { EXACT, PLAIN, LONGER, PADDED, PACKED, PAGED, PLACES } place;
extern const char *const place_names[PLACES];

/* The sequence under test, and the others in its batch. */
typedef struct sizes {
    int64_t len_q, len_kv, heads_q, heads_kv, dim_v;
    uint64_t mixed; /* 0: others of similar lengths; else a seed that draws them of any lengths */
} sizes;

/* Flags of `uses`: tensors that change scores, in addition to fields of the problem. */
enum { BIAS = 1, SLOPES = 2, SINK = 4, MATRIX = 8, TABLE = 16, RELATIVE = 32, RELATIVE_QUERIES = 64, SHARED = 128 };

/* Attention over some sequences; number `own` is the one under test. */
typedef struct embedded {
    attn_problem problem;
    attn_tensors tensors;
    place where;
    attn_dtype dtype;
    sizes of;
    int uses;
    int64_t batch, own, len_q[MAX_BATCH], len_kv[MAX_BATCH], cu_q[MAX_BATCH + 1], cu_kv[MAX_BATCH + 1], long_q, long_kv;
    int32_t narrow_q[MAX_BATCH], narrow_kv[MAX_BATCH], *pages; /* indices of PAGED are narrow */
    char *data[TENSORS];
    float *bias, *grad_bias, *tan_bias, *second_bias;
    float slopes[MAX_HEADS], sink[MAX_HEADS], w[2 * D * D], table[MAX_HEADS * ROWS], u[MAX_HEADS * D], v[MAX_HEADS * D];
    float relative_keys[MAX_HEADS * ROWS * D], relative_values[MAX_HEADS * ROWS * DV];
    struct { /* sums over the batch: comparable only if that is one sequence */
        float slopes[MAX_HEADS], sink[MAX_HEADS], scale[MAX_HEADS], w[2 * D * D], table[MAX_HEADS * ROWS], u[MAX_HEADS * D],
            v[MAX_HEADS * D];
        float relative_keys[MAX_HEADS * ROWS * D], relative_values[MAX_HEADS * ROWS * DV];
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

/* Returns 0 if the operation does not support its options. */
int embedded_run(embedded *e, attn_op op, int threads);
/* Fails the test if the operation's outputs for the sequence under test differ in any bit. */
void embedded_compare(const embedded *x, const embedded *y, attn_op op, const char *name, int threads);

/* Options of a problem. */
typedef struct embedded_option {
    const char *name;
    void (*set)(embedded *e);
} embedded_option;
enum { OPTIONS = 17 };
extern const embedded_option options[OPTIONS];

/* Compares a sequence of these sizes, in every layout and every operation, with the same sequence on its own. */
void each_place(int option, attn_dtype dtype, const sizes *of);

#endif
