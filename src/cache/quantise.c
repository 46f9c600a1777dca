/* SPDX-License-Identifier: MIT
 * quantise.c - attn_quantise: rows as whole numbers of 8 bits, each row with its scale. */
#include <inttypes.h>
#include <math.h>

#include "cache.h"

enum { SOME = 64 }; /* numbers at a time, as doubles */

static int64_t next_count(int64_t left) { return left < SOME ? left : SOME; }

/* Elements c .. c+n-1 of a row. */
static void read_some(const void *src, attn_dtype dtype, int64_t c, int64_t n, double *x)
{
    (void)attn_convert(x, ATTN_F64, (const char *)src + c * (int64_t)attn_dtype_size(dtype), dtype, n, NULL);
}

void attn_quantise_row(int64_t dim, const void *src, attn_dtype dtype, int8_t *whole, float *scale)
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
            /* A scale that was rounded down, or an f64 row that f32 cannot hold, may ask for more than 127 steps. */
            const double steps = step > 0 ? nearbyint(x[i] / step) : 0;
            whole[c + i] = (int8_t)(steps > 127 ? 127 : steps < -127 ? -127 : steps);
        }
    }
}

attn_status attn_quantise(int64_t rows, int64_t dim, const void *src, attn_dtype dtype, int64_t stride, int8_t *whole,
                          float *scales, attn_error *error)
{
    CHECK(rows >= 0 && dim >= 0, ATTN_ERR_SHAPE, "quantise: %s (%" PRId64 ") is negative", rows < 0 ? "rows" : "dim",
          rows < 0 ? rows : dim);
    CHECK(dtype >= ATTN_F32 && dtype <= ATTN_BF16, ATTN_ERR_UNSUPPORTED, "quantise: src is %s; it must be f32, f64, f16 or bf16",
          attn_dtype_name(dtype));
    CHECK(rows == 0 || scales, ATTN_ERR_ARGUMENT, "quantise: scales is NULL");
    CHECK(rows == 0 || dim == 0 || (src && whole), ATTN_ERR_ARGUMENT, "quantise: %s is NULL", src ? "whole" : "src");
    const int64_t size = (int64_t)attn_dtype_size(dtype), shape[4] = {1, 1, rows, dim}, read[4] = {0, 0, stride, 1};
    CHECK(sizes_fit(size, shape, 4) && sizes_fit((int64_t)sizeof *scales, &rows, 1), ATTN_ERR_SHAPE,
          "quantise: %" PRId64 " rows of %" PRId64 " have more bytes than 64 bits count", rows, dim);
    CHECK(dim == 0 || strides_beyond(size, shape, read) < 0, ATTN_ERR_SHAPE,
          "quantise: stride (%" PRId64 ") times %" PRId64 " rows overflows 64-bit addresses", stride, rows);
    if (dim == 0) stride = 0;
    for (int64_t i = 0; i < rows; i++)
        attn_quantise_row(dim, (const char *)src + i * stride * size, dtype, whole + i * dim, scales + i);
    return succeed(error);
}
