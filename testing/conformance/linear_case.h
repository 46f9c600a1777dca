/* SPDX-License-Identifier: MIT
 *
 * linear_case.h - a case of linear attention in libattn's terms: its translation (linear_suites.c), the expected result
 * (linear_reference.c), and the library's result (linear_run.c).
 */
#ifndef ATTN_TESTING_CONFORMANCE_LINEAR_CASE_H
#define ATTN_TESTING_CONFORMANCE_LINEAR_CASE_H

#include "attn/linear.h"
#include "linear.h"

/* Tensors by role; all are arranged as [batch, head, token, channel]. */
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
    int decays;                /* 1: the decay tensor is used */
    int64_t heads_q, heads_kv; /* of tensors whose channels contain the heads; 0: heads have an axis */
    int tokens_first;          /* [batch, token, head, channel] */
    double rtol, atol;
    double size[ALL];        /* the largest number that enters an output's sums */
    const double *size_of_o; /* of each query; NULL: size[OUT_O] for all */
} linear_case;

/* Reads the case.  Returns 0, with a status other than passed, if it cannot be run. */
int linear_translate(evaluation *e, linear_case *c, const char *suite, const cJSON *json, const attn_archive *tensors);

/* By definition: every output of the library, and the sizes for its bounds. */
void linear_define(linear_case *c, double *exact[ALL]);

/* A tensor as dense doubles; NULL if the case has none. */
double *linear_doubles(linear_case *c, int t);

#endif
