/* SPDX-License-Identifier: MIT
 *
 * linear_case.h - a case of linear attention in the library's words: what suites say it means (linear_suites.c), what it ought to
 * give (linear_reference.c), and what the library gives (linear_run.c).
 */
#ifndef ATTN_TESTING_CONFORMANCE_LINEAR_CASE_H
#define ATTN_TESTING_CONFORMANCE_LINEAR_CASE_H

#include "attn/linear.h"
#include "linear.h"

/* Tensors by role; all are brought to [batch, head, token, channel]. */
enum {
    IN_Q,
    IN_K,
    IN_V,
    IN_OMEGA,
    IN_DECAY,
    IN_BETA,
    IN_ERASE,
    IN_WRITE,
    IN_STATE,
    IN_DO,
    INPUTS,
    OUT_O = INPUTS,
    OUT_STATE,
    OUT_DQ,
    OUT_DK,
    OUT_DV,
    ALL
};

typedef struct linear_case {
    view_pool pool;
    view tensor[ALL];
    attn_linear_problem problem;
    int decays;                /* 1: the tensor of decays is used */
    int64_t heads_q, heads_kv; /* of tensors with heads in their channels; 0: they have an axis */
    int tokens_first;          /* [batch, token, head, channel] */
    double rtol, atol;
    double size[ALL];        /* the largest number that goes into an output's sums */
    const double *size_of_o; /* of each query; NULL: that of all */
} linear_case;

/* Reads the case.  0, and a status other than passed, if it cannot be run. */
int linear_translate(evaluation *e, linear_case *c, const char *suite, const cJSON *json, const attn_archive *tensors);

/* By definition: every tensor that the library will give, and the sizes that its bounds are made of. */
void linear_define(linear_case *c, double *exact[ALL]);

/* A tensor as dense numbers; NULL where the case has none. */
double *linear_doubles(linear_case *c, int t);

#endif
