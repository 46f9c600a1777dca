/* SPDX-License-Identifier: MIT
 *
 * attend.h - attention over arrays of doubles for tests of properties: any kernel and any storage type, through the public
 * interface.
 *
 * Everything is dense, in the order [batch][head][token][channel]; a failure to run fails the test.
 */
#ifndef ATTN_TESTS_PROPERTY_ATTEND_H
#define ATTN_TESTS_PROPERTY_ATTEND_H

#include "test.h"

#include "attn/attn.h"
#include "testing/memory/element.h"
#include "testing/random/random.h"

typedef struct attend {
    attn_problem problem;
    attn_tensors tensors; /* types, strides, and presence: ATTN_LATER if the array below is in use */
    attn_options options;
    int64_t lengths_q[16], lengths_kv[16], offset[16];
    /* In the storage type; bias and weights in the compute type. */
    char *q, *k, *v, *bias, *o, *lse, *weights;
    unsigned char *mask;
} attend;

/* One kernel and storage type to test. */
typedef struct variant {
    attn_isa isa;
    attn_dtype dtype;
    double rtol; /* for equalities up to rounding, with values and scores of ordinary size */
} variant;

/* f32 and f64 (and f16 and bf16 if `half`) on every instruction set of this CPU; returns how many. */
int all_variants(variant list[16], int half);
#define FOR_EACH_VARIANT(v, half)                                                                                                  \
    variant list_of_##v[16];                                                                                                       \
    const int count_of_##v = all_variants(list_of_##v, half);                                                                      \
    assert_true(count_of_##v > 0);                                                                                                 \
    for (const variant *v = list_of_##v; v < list_of_##v + count_of_##v; v++)

/* Tensors of this shape: q, k and v of mean 0 and variance 1; bias 0, a mask that keeps all and full lengths, which are not in use
 * yet.
 */
attend *attend_create(const variant *v, attn_shape shape, uint64_t seed);
/* The same with all data and options copied. */
attend *attend_copy(const attend *a);
void attend_destroy(attend *a);
/* From now on O is stored in the compute type. */
void attend_store_wide(attend *a);

/* Computes o, lse and weights. */
void attend_run(attend *a);
/* The tensors with their pointers. */
attn_tensors attend_tensors(const attend *a);

/* ---- elements ---- */

typedef enum part { Q, K, V, O, LSE, WEIGHTS, BIAS } part;

double get(const attend *a, part which, int64_t b, int64_t h, int64_t i, int64_t c);
void put(attend *a, part which, int64_t b, int64_t h, int64_t i, int64_t c, double x);
unsigned char *mask_at(attend *a, int64_t b, int64_t h, int64_t i, int64_t j);
void size_of(const attend *a, part which, int64_t size[4]);

/* The bytes of row (b, h, i), and their number. */
const void *row_of(const attend *a, part which, int64_t b, int64_t h, int64_t i);
size_t row_bytes(const attend *a, part which);

/* Copies row (b, h, i) of `from` to row (b2, h2, i2) of a. */
void copy_row(attend *a, int64_t b2, int64_t h2, int64_t i2, const attend *from, part which, int64_t b, int64_t h, int64_t i);

/* ---- assertions ---- */

/* Equal up to rounding: |x - y| <= rtol * scale. */
void assert_close(double x, double y, double rtol, double scale);
/* Equal bits of row (b, h, i) of x and (b2, h2, i2) of y. */
void assert_same_row(const attend *x, const attend *y, part which, int64_t b, int64_t h, int64_t i, int64_t b2, int64_t h2,
                     int64_t i2);
/* Equal bits everywhere: o, lse and weights. */
void assert_same_bits(const attend *x, const attend *y);
/* o, lse and weights equal up to rounding. */
void assert_same_numbers(const attend *x, const attend *y, double rtol);

#endif
