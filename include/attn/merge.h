/* SPDX-License-Identifier: MIT
 *
 * merge.h - merges results of the same queries over disjoint sets of keys into the result over all of them: for split-KV, a cache
 * plus new keys, ring attention.  Conventions of attn.h hold.
 */
#ifndef ATTN_MERGE_H
#define ATTN_MERGE_H

#include "attn/attn.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct attn_merge_problem {
    size_t struct_size; /* sizeof(attn_merge_problem) */
    int64_t parts;      /* at least 1 */
    int64_t batch;
    int64_t heads;
    int64_t len_q;
    int64_t dim_v;
    int64_t reserved[4]; /* must be 0 */
} attn_merge_problem;

/*
 * One slot per tensor; those of the parts are arrays of `parts` slots, each with its own strides.  All of o_parts have one type,
 * f32, f64, f16 or bf16 (f32 by default), and o, grad_o and grad_o_parts are of that type too.  lse is f32, or f64 where o is f64.
 * The last stride of o_parts, o and their gradients is 1.
 */
typedef struct attn_merge_tensors {
    size_t struct_size;          /* sizeof(attn_merge_tensors) */
    const attn_call *call;       /* must be NULL */
    const attn_input *o_parts;   /* [parts] slots of [batch, heads, len_q, dim_v] */
    const attn_input *lse_parts; /* [parts] slots of [batch, heads, len_q, 1] */
    attn_output o;               /* [batch, heads, len_q, dim_v]: attn_merge; may be one of the parts, with the same strides */
    attn_output lse;             /* [batch, heads, len_q, 1], optional: likewise */
    attn_input grad_o;           /* attn_merge_backward, like all below: shaped like o */
    attn_input grad_lse;         /* shaped like lse; absent: 0 */
    attn_output *grad_o_parts;   /* [parts] slots */
    attn_output *grad_lse_parts; /* [parts] slots */
} attn_merge_tensors;

/*
 * For every row, with p over the parts,
 *
 *      lse = log(sum_p exp(lse_p))      o = sum_p exp(lse_p - lse) o_p
 *
 * exact up to rounding (Dao et al. 2023, "Flash-Decoding").  Weights and o are computed in the compute type (f64 where o is f64,
 * else f32), weights of more than 32 parts and the logarithm in double; o is rounded once on store.  A part with lse_p = -infinity
 * has weight 0, whatever its o holds; if all are, o = 0 and lse = -infinity.  NaN in another one is in the result, also if its
 * weight is rounded to 0.  The result has the same bits for any number of threads.
 *
 * Allocates nothing.  options may be NULL.  Returns ATTN_ERR_ARGUMENT (also for a tensor that is missing or has no use),
 * ATTN_ERR_SHAPE, ATTN_ERR_STRIDE (also for an output that shares elements with another tensor) or ATTN_ERR_UNSUPPORTED, with
 * outputs untouched.  Messages name the tensor and its part, `o_parts[3]`; attn_error.tensor is -1, since these tensors are in no
 * table.
 */
ATTN_API attn_status attn_merge(const attn_merge_problem *problem, const attn_merge_tensors *tensors, const attn_options *options,
                                attn_error *error);

/*
 * The gradient of attn_merge: from that of o and of lse,
 *
 *      w_p = exp(lse_p - lse)      grad_o_p = w_p grad_o      grad_lse_p = w_p (grad_o . (o_p - o) + grad_lse)
 *
 * from o_parts, lse_parts, grad_o and grad_lse; o and lse are not read and must be absent.  options.reproducible is rejected
 * (ATTN_ERR_UNSUPPORTED): the inner products are summed in lanes.  (attn_merge has the same bits with AVX2, AVX-512 and NEON.)
 */
ATTN_API attn_status attn_merge_backward(const attn_merge_problem *problem, const attn_merge_tensors *tensors,
                                         const attn_options *options, attn_error *error);

#ifdef __cplusplus
}
#endif

#endif
