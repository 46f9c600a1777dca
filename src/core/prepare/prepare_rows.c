/* SPDX-License-Identifier: MIT
 * prepare_rows.c - prepared queries and keys of cosine and distance scores, and their gradients. */
#include <math.h>

#include "prepare.h"

#define T          float
#define NAME(name) name##_f32
#include "prepare_rows.inc.c"
#undef T
#undef NAME

#define T          double
#define NAME(name) name##_f64
#include "prepare_rows.inc.c"

void attn_rows_prepare(attn_score_kind kind, attn_side side, attn_dtype compute, int64_t n, int64_t dim, const void *x, void *y)
{
    if (compute == ATTN_F32) prepare_f32(kind, side, n, dim, x, y);
    else prepare_f64(kind, side, n, dim, x, y);
}

void attn_rows_gradient(attn_score_kind kind, attn_side side, attn_dtype compute, int64_t n, int64_t dim, const void *x,
                        const void *dy, void *dx)
{
    if (compute == ATTN_F32) gradient_f32(kind, side, n, dim, x, dy, dx);
    else gradient_f64(kind, side, n, dim, x, dy, dx);
}
