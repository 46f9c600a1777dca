/* SPDX-License-Identifier: MIT
 *
 * expect.h - what a call of the library ought to return: the reference over the same data, with what the error bound needs.
 */
#ifndef ATTN_TESTING_BOUND_EXPECT_H
#define ATTN_TESTING_BOUND_EXPECT_H

#include "attn_bound.h"
#include "testing/problem/tensors.h"

/* The inputs as dense doubles, and the reference's outputs (ref_forward says their shapes). */
typedef struct expectation {
    ref_problem ref, sizes; /* sizes: ref_sizes_make */
    double *in[TENSORS];    /* all that forward reads; NULL: not in use.  The reference's arrays are these */
    unsigned char *keep;    /* the boolean mask and the block mask */
    double *Z;              /* dropout */
    int64_t *offset, *len_q, *len_kv;
    int64_t *begin_q, *begin_kv; /* packed: [batch + 1] */
    double *O, *lse, *S, *P;
    double *added;        /* [B][Hq][Sq][Skv]: |bias| + |ALiBi| + |table|; NULL without any */
    double *dot, *sum_qk; /* [B][Hq][Sq][Skv]: |scale| sum_c |q_c k_jc|, and the sum alone; of other kinds ref_score_size */
    double *sum_k;        /* [B][Hkv][Skv]: sum_c |k_jc|; with what else underflow is multiplied by */
    int64_t numbers_of_w;
    attn_dtype compute;
    int whole; /* keys or values are i8 */
    int bf16;  /* queries and keys are bf16 */
} expectation;

/* 1/sqrt(dim_qk) and the like where the problem says no scale. */
double expected_scale(const attn_problem *problem);

/* Reads the inputs through their slots (which the library accepts: they have been planned), in any layout, and runs the reference.
 * 0 where memory is out; then and only then *e is not to be destroyed. */
int expectation_create(expectation *e, const attn_problem *problem, const attn_tensors *tensors);
void expectation_destroy(expectation *e);

int64_t tensor_count(const int64_t size[4]);

#endif
