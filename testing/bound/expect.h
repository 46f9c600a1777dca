/* SPDX-License-Identifier: MIT
 *
 * expect.h - the expected result of a library call: the reference over the same data, and the inputs of the error bound.
 */
#ifndef ATTN_TESTING_BOUND_EXPECT_H
#define ATTN_TESTING_BOUND_EXPECT_H

#include "attn_bound.h"
#include "testing/problem/tensors.h"

/* The inputs as dense doubles, and the reference's outputs (ref_forward documents their shapes). */
typedef struct expectation {
    ref_problem ref, sizes; /* sizes: ref_sizes_make */
    double *in[TENSORS];    /* all inputs of forward; NULL: unused.  ref points to these arrays */
    unsigned char *keep;    /* the boolean mask, the block mask and the patterns */
    double *Z;              /* dropout */
    int64_t *offset, *len_q, *len_kv;
    int64_t *begin_q, *begin_kv; /* packed: [batch + 1] */
    uint64_t *tree;              /* [B][Sq][words]; NULL: none */
    double *O, *lse, *S, *P;
    double *added; /* [B][Hq][Sq][Skv]: |bias| + |ALiBi| + |table|; NULL without any */
    double *dot,
        *sum_qk;   /* [B][Hq][Sq][Skv]: |scale| sum_c |q_c k_jc|, and the sum without scale; ref_score_size for other score kinds */
    double *sum_k; /* [B][Hkv][Skv]: sum_c |k_jc|, and other factors that multiply underflow */
    int64_t numbers_of_w;
    attn_dtype compute;
    int scaled;       /* rows of keys or values have scales: i8 and f8 */
    int fixed_keys;   /* keys are i8 or blocks: in decode, queries may be rounded to fixed point */
    int fixed_values; /* values are i8: likewise weights */
    int bf16;         /* queries and keys are bf16 */
} expectation;

/* Masks by name (testing/problem/sparse.h) that the problem has besides its own fields and tensors. */
typedef struct expected_patterns {
    int count;
    const ref_pattern *list;
} expected_patterns;

/* The problem's scale, or its default: 1/sqrt(dim_qk) for dot products, else 1. */
double expected_scale(const attn_problem *problem);

/* Reads the inputs through their slots, in any layout (they must have passed planning), and runs the reference; patterns: NULL for
 * none.  Returns 0 if out of memory; only then *e need not be destroyed. */
int expectation_create(expectation *e, const attn_problem *problem, const attn_tensors *tensors, const expected_patterns *patterns);
void expectation_destroy(expectation *e);

int64_t tensor_count(const int64_t size[4]);

#endif
