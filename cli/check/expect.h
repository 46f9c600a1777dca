/* SPDX-License-Identifier: MIT
 *
 * expect.h - what a call of the library ought to return: the reference over the same data, with what the error bound needs.
 */
#ifndef ATTN_CLI_CHECK_EXPECT_H
#define ATTN_CLI_CHECK_EXPECT_H

#include "attn/attn.h"
#include "attn_bound.h"

/* The inputs as dense doubles, and the reference's outputs (ref_forward says their shapes). */
typedef struct expectation {
    ref_problem ref, sizes; /* sizes: ref_sizes_make */
    double *Q, *K, *V, *bias;
    unsigned char *keep; /* the boolean mask and the block mask */
    double *Z;           /* dropout */
    int64_t *offset, *len_q, *len_kv;
    int64_t *begin_q, *begin_kv; /* packed: [batch + 1] */
    double *O, *lse, *S, *P;
    double *scale_of_head, *slopes, *sink; /* NULL: not in use */
    double *W;                             /* of general, metric and additive; NULL: there are none */
    double *bias_table, *relative_keys, *relative_values, *relative_u, *relative_v; /* NULL: not in use */
    double *added;        /* [B][Hq][Sq][Skv]: |bias| + |ALiBi| + |table|; NULL without any */
    double *dot, *sum_qk; /* [B][Hq][Sq][Skv]: |scale| sum_c |q_c k_jc|, and the sum alone; of other kinds ref_score_size */
    double *sum_k;        /* [B][Hkv][Skv]: sum_c |k_jc|; with what else underflow is multiplied by */
    double *v_scale;      /* [B][Hkv][Skv]: of values of i8; else NULL */
    int64_t numbers_of_w;
    attn_dtype compute;
    int whole; /* keys or values are i8 */
    int bf16;  /* queries and keys are bf16 */
} expectation;

/* The problem with its defaults spelled out: dtypes, scale, index type. */
attn_problem problem_resolve(const attn_problem *problem);

/* Reads the inputs through the layouts of `problem` (which the library accepts: it has been planned), in any layout, and runs the
 * reference.  0 where memory is out; then and only then *e is not to be destroyed. */
int expectation_create(expectation *e, const attn_problem *problem, const attn_args *args);
void expectation_destroy(expectation *e);

/* Sizes of the tensors of a problem, in the order of attn_layout. */
typedef struct tensor_sizes {
    int64_t q[4], k[4], v[4], o[4], lse[4], weights[4]; /* mask and bias are as weights */
} tensor_sizes;
tensor_sizes tensor_sizes_of(const attn_problem *problem);
int64_t tensor_count(const int64_t size[4]);

#endif
