/* SPDX-License-Identifier: MIT
 *
 * relative.h - groups of attn_problem for terms that depend on the distance between query and key: a bias from a table (T5, clipped
 * distances), relative keys and values (Shaw et al.), Transformer-XL.  Nothing of size len_q * len_kv is formed: tiles read tables
 * by distance.
 */
#ifndef ATTN_RELATIVE_H
#define ATTN_RELATIVE_H

#include "attn/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum attn_distance_kind {
    ATTN_DISTANCE_T5 = 0,     /* buckets, exact near 0 and logarithmic beyond (Raffel et al. 2020, section 2.1, and its code) */
    ATTN_DISTANCE_CLIPPED = 1 /* one number per distance, clipped at max_distance (Shaw et al. 2018) */
} attn_distance_kind;

/*
 * A bias by distance, added with the other biases, after the softcap: with p_i the position of query i (attn_align, so including an
 * offset when decoding) and the buckets of attn_distance_bias (attn/position.h),
 *
 *      s_ij += table[h, bucket(p_i - j)]                                    -infinity masks the key
 *
 * and in ATTN_BACKWARD, if grad_bias_table is present,
 *
 *      grad_table[h, n] = sum of dS_ij over all pairs in bucket n, over the batch and the heads that share the table
 *
 * In the other operations the table is a constant.  If bias_table is absent, all fields must be 0.  Any number of buckets costs the
 * same: a table is expanded by distance once per call, in memory of max_distance numbers per head.
 */
typedef struct attn_bias_table {
    attn_distance_kind kind;
    int64_t buckets;      /* as in attn_distance_bias: T5: 0 is 32.  CLIPPED: 0, or 2 max_distance + 1 */
    int64_t max_distance; /* at most 2^24.  T5: 0 is 128 */
    int causal;           /* T5: 1 uses all buckets for keys before the query */
    int64_t reserved[4];
} attn_bias_table;

/*
 * Relative keys and values (Shaw et al. 2018, equations 3 and 4) and Transformer-XL (Dai et al. 2019, section 3.3), for dot
 * products: with t = clamp(p_i - j - first, 0, rows - 1), so that the end rows stand for all distances beyond them,
 *
 *      x_ij = (q_i + u_h) . k_j + (q_i + v_h) . relative_keys[h, t]         then scale, temperature, softcap and so on
 *      o_i  = sum_j keep_ij weights_ij (v_j + relative_values[h, t])
 *
 * Clipped to n: first = -n, rows = 2n + 1.  A full table of len_q + len_kv - 1 rows: first = -(len_kv - 1).  Causal: first = 0.
 * Transformer-XL's R is such a table, of positions projected by the model; its scale is 1/sqrt(dim_qk).
 *
 * Each of the four tensors is optional; u and v need relative_keys.  ATTN_FORWARD and ATTN_BACKWARD only.  Gradients are summed
 * over the batch and the heads that share a table.
 */
typedef struct attn_relative {
    int64_t first; /* the distance p_i - j of row 0 */
    int64_t rows;  /* at least 1 */
    int64_t reserved[4];
} attn_relative;

#ifdef __cplusplus
}
#endif

#endif
