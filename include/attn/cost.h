/* SPDX-License-Identifier: MIT
 *
 * cost.h - the cost of attention by counting: operations, memory, traffic between a large slow memory and a small fast one, and the
 * attainable rate of a machine.  Nothing is measured here; `attn bench` does that.  Conventions of attn.h hold.
 */
#ifndef ATTN_COST_H
#define ATTN_COST_H

#include "attn/attn.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum attn_cost_method {
    ATTN_COST_METHOD_TILED = 0,  /* softmax attention in tiles (Dao et al. 2022, "FlashAttention"): what ATTN_FORWARD does */
    ATTN_COST_METHOD_MATRIX = 1, /* softmax attention that writes the matrix of scores and reads it again */
    ATTN_COST_METHOD_LINEAR = 2  /* linear attention through its state (attn/linear.h) */
} attn_cost_method;

typedef struct attn_cost_problem {
    size_t struct_size; /* sizeof(attn_cost_problem) */
    attn_cost_method method;
    attn_shape shape;
    attn_dtype dtype;      /* of q, o and a matrix of scores: f32 (default), f64, f16 or bf16 */
    double pairs;          /* visible pairs of a query and a key, over all heads; 0: all pairs */
    int64_t features;      /* linear: of the feature map; 0: dim_qk */
    int64_t rank;          /* channels of a latent cache (multi-head latent attention); 0: none */
    int64_t fast_elements; /* tiled, matrix: how many numbers the fast memory of one core holds; 0: all of them */
    attn_dtype k_dtype;    /* of k; 0: dtype; otherwise also i8, f8 or blocks (softmax attention only) */
    attn_dtype v_dtype;    /* of v */
    int k_scaled;          /* 1: each row of k has a scale in f32, as rows of i8 always have; only with f8 and i8 */
    int v_scaled;          /* likewise of v */
    int64_t reserved[2];   /* must be 0 */
} attn_cost_problem;

/*
 * With B, Hq, Hkv, Sq, Skv, D, Dv the sizes, s the bytes of a number, F features, M fast_elements, and R the bytes of a row of k
 * and one of v with their scales, which are s (D + Dv) without types of their own:
 *
 *      operations   tiled, matrix   2 (D + Dv) pairs                          (both products; the softmax is not counted)
 *                   linear          2 F Dv (B Hkv Skv + B Hq Sq)              (the state, and reading it)
 *      traffic      tiled           q and o once, lse; k and v once for each tile of r = M / (4 max(D, Dv)) queries of each
 *                                   head, or once in all if those of a head fill at most half of M: on the order of
 *                                   Sq Skv D^2 / M numbers
 *                   matrix          q, k, v and o once, the matrix written and read, and what its two products read again:
 *                                   nothing if a factor fills at most half of M; else the right factor once for each strip of r
 *                                   rows, or both once for each column or row of blocks of sqrt(M / 3) squared, whichever is less
 *                   linear          q, k, v and o once
 */
typedef struct attn_cost {
    size_t struct_size;         /* in: sizeof(attn_cost) */
    double scores;              /* B Hq Sq Skv */
    double pairs;               /* the visible ones */
    double operations;          /* forward */
    double backward_operations; /* softmax: 2.5 times that, five products instead of two; linear: twice */
    double qkv_bytes;           /* B (s Hq Sq D + Hkv Skv R) */
    double output_bytes;        /* s B Hq Sq Dv */
    double matrix_bytes;        /* s scores: size of the matrix, whether or not the method has one */
    double lse_bytes;           /* 4 B Hq Sq, or 8 */
    double cache_bytes;         /* B Skv Hkv R: keys and values kept for decoding */
    double latent_bytes;        /* s B Skv rank, instead of cache_bytes */
    double state_bytes;         /* s B Hkv F Dv */
    double extra_bytes;         /* what the method needs besides q, k, v and o: the matrix, lse or the state */
    double traffic_bytes;
    double intensity; /* operations / traffic_bytes; 0 without traffic */
} attn_cost;

/* Returns ATTN_ERR_ARGUMENT, ATTN_ERR_SHAPE or ATTN_ERR_UNSUPPORTED with *cost untouched. */
ATTN_API attn_status attn_cost_estimate(const attn_cost_problem *problem, attn_cost *cost, attn_error *error);

/* The roofline (Williams et al. 2009): min(peak, bandwidth * intensity).  In operations per second, bytes per second and operations
 * per byte. */
ATTN_API double attn_attainable_rate(double peak, double bandwidth, double intensity);

#ifdef __cplusplus
}
#endif

#endif
