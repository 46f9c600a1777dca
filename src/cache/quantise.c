/* SPDX-License-Identifier: MIT
 * quantise.c - attn_quantise: rows as int8, each row with its scale. */
#include <math.h>

#include "../common/bound.h"
#include "cache.h"

enum { SOME = 64 }; /* elements converted to double at a time */

static int64_t next_count(int64_t left) { return left < SOME ? left : SOME; }

/* Elements c .. c+n-1 of a row. */
static void read_some(const void *src, attn_dtype dtype, int64_t c, int64_t n, double *x)
{
    (void)attn_convert(n, (const char *)src + c * (int64_t)attn_dtype_size(dtype), dtype, x, ATTN_F64, NULL);
}

void attn_quantise_row(int64_t dim, const void *src, attn_dtype dtype, int8_t *values, float *scale)
{
    double x[SOME], most = 0;
    int finite = 1;
    for (int64_t c = 0, n; c < dim; c += n) {
        n = next_count(dim - c);
        read_some(src, dtype, c, n, x);
        for (int64_t i = 0; i < n; i++) {
            finite &= fabs(x[i]) < (double)INFINITY;
            if (fabs(x[i]) > most) most = fabs(x[i]);
        }
    }
    *scale = finite ? (float)(most / 127) : NAN;
    const double step = (double)*scale;
    for (int64_t c = 0, n; c < dim; c += n) {
        n = next_count(dim - c);
        read_some(src, dtype, c, n, x);
        for (int64_t i = 0; i < n; i++) {
            /* More than 127 steps if the scale was rounded down, or if f32 cannot represent an f64 row's. */
            const double steps = step > 0 ? nearbyint(x[i] / step) : 0;
            values[c + i] = (int8_t)(steps > 127 ? 127 : steps < -127 ? -127 : steps);
        }
    }
}

attn_status attn_quantise(int64_t rows, int64_t dim, const attn_input *src, const attn_output *values, const attn_output *scales,
                          attn_error *error)
{
    bound_call call = {.module = "quantise"};
    bound_tensor from, to, scale;
    CHECK(rows >= 0 && dim >= 0, ATTN_ERR_SHAPE, "quantise: %s (%" PRId64 ") is negative", rows < 0 ? "rows" : "dim",
          rows < 0 ? rows : dim);
    const bound_rule of_src = {"src", {1, 1, rows, dim}, ATTN_F32, BOUND_FLOAT, 0, 1},
                     of_values = {"values", {1, 1, rows, dim}, ATTN_I8, BOUND_I8, 0, 1},
                     of_scales = {"scales", {1, 1, rows, 1}, ATTN_F32, BOUND_F32, 0, 0};
    TRY(bound_input(&call, of_src, src, &from, error));
    TRY(bound_output(&call, of_values, values, &to, error));
    TRY(bound_output(&call, of_scales, scales, &scale, error));
    TRY(bound_no_overlap(&call, error));
    for (int64_t i = 0; i < rows; i++)
        attn_quantise_row(dim, (const char *)from.data + bound_at(&from, 0, 0, i, 0) * (int64_t)attn_dtype_size(from.dtype),
                          from.dtype, (int8_t *)to.data + bound_at(&to, 0, 0, i, 0),
                          (float *)scale.data + bound_at(&scale, 0, 0, i, 0));
    return succeed(error);
}
