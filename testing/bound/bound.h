/* SPDX-License-Identifier: MIT
 *
 * bound.h - how far a correct kernel may be from the reference (derived in docs/numerics.md).
 *
 * The bound is computed for every element of every output from the data itself, rigorously (not to first order), so that it holds
 * for scores of 0.01 and of 1000 alike.  Errors are reported as a fraction of it: above 1, something is wrong.
 */
#ifndef ATTN_TESTING_BOUND_H
#define ATTN_TESTING_BOUND_H

#include <stdint.h>

#include "attn/attn.h"

/* The arithmetic of a kernel, as far as its rounding errors depend on it. */
typedef struct bound_model {
    double unit;     /* u: half the distance from 1 to the next number of the compute type */
    double normal;   /* the smallest normal number: weights below it may become 0 */
    double denormal; /* the smallest number above 0 */
    int64_t dim_qk;
    int64_t len_kv;
    int64_t block_kv; /* keys summed from zero before they join the running sum */
    int additions;    /* how many terms are added to a score: bias, ALiBi */
    double softcap;   /* 0: none */
    int dropout;      /* 1: weights are scaled by 1/(1-p) */
    int scaled;       /* 1: keys or values are numbers times a scale: i8 and f8 */
    int fixed_point;  /* 1: in addition, queries and weights may be rounded to fixed point */
    int bf16;         /* 1: queries and keys are bf16 and may be multiplied as such, which flushes numbers below `normal` to 0 */
    int bands;        /* 1: values have a relative part, which is summed in bands of keys */
    attn_normaliser normaliser;
    double shift; /* of the sigmoid */
} bound_model;

/* compute is ATTN_F32 or ATTN_F64; block_kv is attn_plan_description.block_kv.  All other fields are 0. */
bound_model bound_model_of(attn_dtype compute, int64_t dim_qk, int64_t len_kv, int64_t block_kv);

/* One query and its keys, in double; every array has len_kv entries. */
typedef struct bound_row {
    const double *S;           /* scores of the reference, -infinity for keys that the query does not see */
    double lse;                /* of the reference */
    const double *dot;         /* |scale| sum_c |q_c k_jc| */
    const double *lost;        /* what a score may lose by underflow: bound_lost */
    const double *added;       /* sum of the absolute values of the terms added to the score; NULL without additions */
    double sink;               /* -infinity: none */
    const double *value_scale; /* with `fixed_point` and values of i8: their scales; else NULL */
} bound_row;

/* sum_q is |scale| sum_c |q_c|, sum_k is sum_c |k_jc|, sum_qk is sum_c |q_c k_jc|. */
double bound_lost(const bound_model *model, double scale, double sum_q, double sum_k, double sum_qk);
/* What it loses in addition if the query is rounded to fixed point; max_q is |scale| max_c |q_c|. */
double bound_cut(const bound_model *model, double max_q, double sum_k);

/* e_j: the error bound of a score at a stage before the softmax; lost is from bound_lost; added is 0 if nothing is added. */
double bound_score(const bound_model *model, attn_stage stage, double dot, double lost, double S, double added);

/* Shared by all outputs of a row.  The caller provides P, low, high and own, len_kv entries each; 0 for invisible keys. */
typedef struct bound_weights {
    double *P;                /* weights of the reference */
    double *low, *high;       /* bounds of the computed weight of key j as it enters the sums (before summation errors) */
    double *own;              /* log-error of a weight computed separately, for the weights output */
    double sum_low, sum_high; /* sums of low and high */
    double log_error;         /* the largest log-error of a weight that matters */
    double summing;           /* relative error of a sum of len_kv terms */
    double flushed;           /* bound of the sum of weights and products flushed below the smallest normal number */
    double visible;           /* number of keys that the query sees */
    double sink_moved;        /* high - P of the sink, which is a key with value 0 */
    double shared;            /* the divisor of elementwise weights: visible keys for ReLU, 1 for sigmoid */
    double max_scaled;        /* the largest high times its value's scale; 0 if weights are not rounded to fixed point */
    const double *value_scale;
} bound_weights;

void bound_prepare(const bound_model *model, const bound_row *row, bound_weights *weights);

/* Sums over the keys for the outputs of a row.  The caller provides all arrays, dim entries each. */
typedef struct bound_sums {
    int64_t dim;
    double *centre;   /* what the distance of a value is measured from: the reference's output, or 0 */
    double *moved;    /* what the output moves by if the weights do */
    double *mass;     /* the sum of weight times size */
    double *farthest; /* the largest distance of a value */
    double *largest;  /* the largest size */
    double *integers; /* the sum of the values in units of their scales, with max_scaled */
} bound_sums;

/* Without keys yet; o is the reference, dim entries. */
void bound_begin_sums(const bound_model *model, const double *o, bound_sums *sums);
/* Adds key j, if the query sees it, with its value v, whose numbers are summed from parts of these sizes in all. */
void bound_add_key(const bound_model *model, const bound_weights *weights, int64_t j, const double *v, const double *size,
                   bound_sums *sums);

/*
 * |computed - reference| <= bound before the last rounding, with the reference itself computed in double, for
 *
 *      bound_output   o_c, of which o is the reference, after bound_add_key was called with the value of every key
 *      bound_lse      lse
 *      bound_weight   the weight of key j
 *
 * The bound is 0 for a query that sees no key and for the weight of an invisible key: there the library is exact.
 */
double bound_output(const bound_model *model, const bound_weights *weights, const bound_sums *sums, int64_t c, double o);
double bound_lse(const bound_model *model, const bound_weights *weights, double lse);
double bound_weight(const bound_model *model, const bound_weights *weights, int64_t j);

/* The last rounding: the error of storing a number of this size in 16 bits.  0 for f32 and f64. */
double bound_storage(attn_dtype storage, double size);

#endif
