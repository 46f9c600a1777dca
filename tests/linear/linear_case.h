/* SPDX-License-Identifier: MIT
 * linear_case.h - a linear attention problem with random tensors, for the library in any type and for ref/ in double. */
#ifndef ATTN_TESTS_LINEAR_CASE_H
#define ATTN_TESTS_LINEAR_CASE_H

#include "test.h"

#include "attn/linear.h"
#include "attn_ref.h"
#include "testing/random/random.h"

/* The tensors of a case: inputs, then outputs of forward, then gradients. */
enum {
    T_Q,
    T_K,
    T_V,
    T_OMEGA,
    T_DECAY,
    T_BETA,
    T_ERASE,
    T_WRITE,
    T_S0,
    T_Z0,
    T_DO,
    T_DS1,
    T_DZ1, /* drawn */
    T_O,
    T_N,
    T_S1,
    T_Z1, /* forward */
    T_DQ,
    T_DK,
    T_DV,
    T_DDECAY,
    T_DBETA,
    T_DERASE,
    T_DWRITE,
    T_DS0,
    T_DZ0, /* backward */
    TENSORS
};

typedef struct linear_case {
    attn_linear_problem problem; /* what to compute */
    int decays;                  /* 1: there is a decay, of problem.decay_kind */
    attn_dtype dtype;
    int64_t count[TENSORS];
    double *exact[TENSORS];   /* the tensors of ref/: inputs rounded to the type, outputs by definition */
    void *data[TENSORS];      /* of `dtype`, or the compute type (states, n, the feature matrix) */
    attn_linear_tensors args; /* dense, for both operations; linear_case_tensors selects those of one */
    const int64_t *lengths;
} linear_case;

/* Draws the inputs of c->problem (shape, map, rule ... as set by the caller) from a seed; values are within +-1. */
void linear_case_draw(linear_case *c, attn_dtype dtype, uint64_t seed);
void linear_case_free(linear_case *c);

/* The tensors of one operation. */
void linear_case_tensors(const linear_case *c, attn_op op, attn_linear_tensors *tensors);

/* Forward and backward of the library; fails the test on an error.  threads 0: the default. */
void linear_case_run(linear_case *c, int threads);
/* Forward only. */
void linear_case_forward(linear_case *c, int threads);
/* Both by definition, into exact; gradients use O as the library stored it if that was rounded to 16 bits. */
void linear_case_define(linear_case *c);

attn_dtype linear_case_type(const linear_case *c, int tensor);
double linear_case_at(const linear_case *c, int tensor, int64_t i);

/* The largest error of a tensor as a fraction of its bound: u (16 + features + len_kv) times the tensor's largest number, since
 * every sum has at most features + len_kv terms of either sign; gradients have dim_v more terms (those of a decay or a beta: the
 * numbers of the state too), and a 16-bit output adds its own rounding. */
double linear_case_error(const linear_case *c, int tensor);
extern const char *const linear_tensor_names[TENSORS];

#endif
