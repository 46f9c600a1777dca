/* SPDX-License-Identifier: MIT
 *
 * relative.h - groups of attn_problem for what a score has of the distance between its query and its key: a bias from a table (T5,
 * clipped distances).  Nothing of size len_q * len_kv is formed: tiles read small tables by distance.
 */
#ifndef ATTN_RELATIVE_H
#define ATTN_RELATIVE_H

#include "attn/types.h"

typedef enum attn_distance_kind {
    ATTN_DISTANCE_T5 = 0,     /* buckets, exact near 0 and logarithmic beyond (Raffel et al. 2020, section 2.1, and its code) */
    ATTN_DISTANCE_CLIPPED = 1 /* one number for each distance up to max_distance, which those beyond share (Shaw et al. 2018) */
} attn_distance_kind;

/*
 * A bias by distance, with the other biases behind the softcap: with p_i where query i stands (attn_align, so an offset for
 * decoding too) and the buckets of attn_distance_bias (attn/position.h),
 *
 *      s_ij += table[h, bucket(p_i - j)]                                    -infinity drops the key
 *
 * and in ATTN_BACKWARD, with attn_gradients.bias_table,
 *
 *      grad_table[h, n] = sum of dS_ij over all pairs in bucket n, over the batch and the heads that share the table
 *
 * In the other operations it is a constant.  Any number of buckets costs the same: a table is spelled out by distance once for each
 * call, in memory of max_distance numbers a head.
 */
typedef struct attn_bias_table {
    int used; /* 1: attn_args.bias_table is read */
    attn_distance_kind kind;
    int64_t buckets;      /* as in attn_distance_bias: T5: 0 is 32.  CLIPPED: 0, or 2 max_distance + 1 */
    int64_t max_distance; /* at most 2^24.  T5: 0 is 128 */
    int causal;           /* T5: 1 has all buckets for keys before the query */
    int shared;           /* 1: one table for all heads */
    attn_layout table;    /* [1, heads_q, buckets, 1], or [1, 1, buckets, 1] where shared; any float type, any strides */
    int64_t reserved[4];
} attn_bias_table;

#endif
