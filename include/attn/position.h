/* SPDX-License-Identifier: MIT
 *
 * position.h - positions as plain functions on tensors: rotary position embedding (RoPE).
 * Conventions of attn.h hold: statuses, errors, layouts, ownership, threads.
 */
#ifndef ATTN_POSITION_H
#define ATTN_POSITION_H

#include "attn/attn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Which channels form a pair.  The two are different functions: a model needs the one that it was trained with. */
typedef enum attn_rope_pairs {
    ATTN_ROPE_INTERLEAVED = 0, /* channels 2i and 2i+1 (the paper, GPT-J) */
    ATTN_ROPE_HALVES = 1       /* channels i and i + dim_rotary/2 (GPT-NeoX, Llama in Hugging Face's layout) */
} attn_rope_pairs;

typedef struct attn_rope {
    size_t struct_size; /* sizeof(attn_rope) */
    attn_rope_pairs pairs;
    int64_t dim_rotary;  /* the first dim_rotary channels are rotated, the others copied; even; 0: all */
    double base;         /* 0: 10000 */
    double stretch;      /* positions are divided by this, linear interpolation (Chen et al. 2023); 0: 1 */
    int inverse;         /* 1: rotate back, which is also the gradient */
    int64_t reserved[4]; /* must be 0 */
} attn_rope;

/*
 * Rotates pairs of channels by their position (Su et al. 2021, equation 34).  For every b, h, t and pair i of channels (x, y),
 *
 *      a  = position[b,t] / stretch * base^(-2i / dim_rotary)
 *      x' = x cos a - y sin a
 *      y' = x sin a + y cos a
 *
 * in double, rounded once on store.
 *
 *  rope       [in]  which rotation
 *  shape      [in]  batch, heads, tokens, channels
 *  x          [in]  laid out as x_layout: f32, f64, f16 or bf16, all strides 0 = dense
 *  y          [out] laid out as y_layout (any of these types); may be x where the layouts are equal
 *  positions  [in]  [batch][tokens], dense; NULL: position t for token t
 *
 * Returns ATTN_ERR_ARGUMENT, ATTN_ERR_SHAPE, ATTN_ERR_STRIDE or ATTN_ERR_UNSUPPORTED with y untouched.
 */
ATTN_API attn_status attn_rope_apply(const attn_rope *rope, const int64_t shape[4], const attn_layout *x_layout, const void *x,
                                     const attn_layout *y_layout, void *y, const int64_t *positions, attn_error *error);

#ifdef __cplusplus
}
#endif

#endif
