/* SPDX-License-Identifier: MIT
 *
 * token.h - a part of a kernel: linear attention token by token.
 */
#ifndef ATTN_KERNELS_PART_TOKEN_H
#define ATTN_KERNELS_PART_TOKEN_H

#include "tile.h"

/* One token of one state: S [dim_k][ld].  `step` reads the state from `before`, which may be S, and for it alone both may be of
 * another storage type. */
typedef struct attn_token {
    int64_t dim_k, dim_v, ld;
    const void *q, *k, *v; /* features of the query and the key; the value */
    const void *gate;      /* NULL, one factor, or, with gate_channels, dim_k */
    int gate_channels;
    int delta; /* 1: the delta rule, with beta */
    double beta;
    void *S;
    const void *before; /* [dim_k][ld_before] */
    int64_t ld_before;
    attn_dtype stored; /* type of S and before; S is rounded, and y is as if it were not */
    const void *next;  /* what is likely to be `before` next, and is prefetched meanwhile; NULL: nothing */
    void *y;           /* [dim_v]: sum_c q_c S[c][:], after the update; scratch in `backward` */
    void *u;           /* [dim_v]: scratch of the delta rule */
} attn_token;

typedef struct attn_token_part {
    attn_tile_shape shape;

    /* S = gate before + k u^T;  y = q^T S. */
    void (*step)(const attn_token *t);
    /* y = q^T S. */
    void (*recall)(int64_t dim_k, int64_t dim_v, const void *q, const void *S, int64_t ld, void *y);
    /* z = gate z + k (k NULL: z stays); returns q.z */
    double (*sum)(int64_t dim, const void *q, const void *k, const void *gate, int channels, void *z);
#ifndef ATTN_INFERENCE_ONLY /* base/inference.h */
    /* dS += q a^T;  dq = S a. */
    void (*recall_backward)(int64_t dim_k, int64_t dim_v, const void *q, const void *a, const void *S, int64_t ld, void *dS,
                            void *dq);
    /* From dS after the token to dS before it, with the state `before` the token; dlog [dim_k]: gradient of the log of each
     * gate. */
    void (*backward)(const attn_token *t, const void *before, void *dS, void *dk, void *dv, double *dbeta, void *dlog);
#endif
} attn_token_part;

#endif
