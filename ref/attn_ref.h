/* SPDX-License-Identifier: MIT
 *
 * attn_ref.h - attention by definition: loops in double over dense arrays, dependent on nothing.
 *
 * This is the law: every kernel, option and gradient of libattn is held against it.  It is written to be read aloud, not to be
 * fast, and it stores whole score matrices.  Letters are those of docs/notation.md.
 */
#ifndef ATTN_REF_H
#define ATTN_REF_H

#include <stdint.h>

/* Arrays are dense: Q [B][Hq][Sq][D], K [B][Hkv][Skv][D], V [B][Hkv][Skv][Dv], keep and bias [B][Hq][Sq][Skv]. */
typedef struct ref_problem {
    int64_t B, Hq, Hkv, Sq, Skv, D, Dv;
    const double *Q, *K, *V;
    double scale;

    int causal;
    int window; /* 1: window_left and window_right hold; -1 is no bound */
    int64_t window_left, window_right;
    const int64_t *offset;     /* [B]: query i stands at key i + offset[b]; NULL: 0 */
    const int64_t *len_q;      /* [B]; NULL: Sq */
    const int64_t *len_kv;     /* [B]; NULL: Skv */
    const unsigned char *keep; /* NULL: every key is kept */
    const double *bias;        /* NULL: 0 */
} ref_problem;

/* 1 if query i of head h sees key j. */
int ref_visible(const ref_problem *p, int64_t b, int64_t h, int64_t i, int64_t j);

/* O [B][Hq][Sq][Dv], lse [B][Hq][Sq], S (scores; -infinity where not visible) and P (weights) [B][Hq][Sq][Skv]; none NULL. */
void ref_forward(const ref_problem *p, double *O, double *lse, double *S, double *P);

#endif
