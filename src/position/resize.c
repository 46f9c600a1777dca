/* SPDX-License-Identifier: MIT
 * resize.c - a learned table of positions, brought to another number of rows. */
#include <inttypes.h>
#include <math.h>

#include "../common/fail.h"
#include "../common/sizes.h"
#include "attn/position.h"
#include "rows.h"

static attn_status check(attn_dtype dtype, int64_t channels, int64_t rows, const void *in, int64_t rows_y, const void *out,
                         attn_error *error)
{
    CHECK(dtype == ATTN_F32 || dtype == ATTN_F64, ATTN_ERR_UNSUPPORTED, "position resize: %s; it must be f32 or f64",
          attn_dtype_name(dtype));
    CHECK(channels >= 0 && rows >= 0 && rows_y >= 0, ATTN_ERR_SHAPE,
          "position resize: %" PRId64 " channels, %" PRId64 " rows to %" PRId64, channels, rows, rows_y);
    CHECK(rows > 0 || rows_y == 0, ATTN_ERR_SHAPE, "position resize: no rows to make %" PRId64 " of", rows_y);
    const int64_t x[2] = {rows, channels}, y[2] = {rows_y, channels}, size = (int64_t)attn_dtype_size(dtype);
    CHECK(sizes_fit(size, x, 2) && sizes_fit(size, y, 2), ATTN_ERR_SHAPE,
          "position resize: %" PRId64 " channels, %" PRId64 " rows to %" PRId64 ": more bytes than 64 bits count", channels, rows,
          rows_y);
    CHECK((in && out) || channels == 0, ATTN_ERR_ARGUMENT, "position resize: %s is NULL", in ? "the output" : "the input");
    return ATTN_OK;
}

/* Where row t of rows_y stands in x: after row `first` by `part` of the way to row `second`. */
typedef struct between {
    int64_t first, second;
    double part;
} between;

static between place(int64_t t, int64_t rows, int64_t rows_y)
{
    const double at = fmax(((double)t + 0.5) * (double)rows / (double)rows_y - 0.5, 0);
    between b = {(int64_t)at, 0, at - floor(at)};
    if (b.first > rows - 1) b.first = rows - 1, b.part = 0;
    b.second = b.first < rows - 1 ? b.first + 1 : b.first;
    return b;
}

attn_status attn_position_resize(attn_dtype dtype, int64_t channels, int64_t rows, const void *x, int64_t rows_y, void *y,
                                 attn_error *error)
{
    TRY(check(dtype, channels, rows, x, rows_y, y, error));
    for (int64_t t = 0; t < rows_y; t++) {
        const between at = place(t, rows, rows_y);
        for (int64_t c = 0; c < channels; c++)
            attn_rows_put(y, dtype, t * channels + c,
                          (1 - at.part) * attn_rows_get(x, dtype, at.first * channels + c) +
                              at.part * attn_rows_get(x, dtype, at.second * channels + c));
    }
    return succeed(error);
}

attn_status attn_position_resize_backward(attn_dtype dtype, int64_t channels, int64_t rows, int64_t rows_y, const void *grad_y,
                                          void *grad_x, attn_error *error)
{
    TRY(check(dtype, channels, rows, grad_y, rows_y, grad_x, error));
    for (int64_t p = 0; p < rows; p++)
        for (int64_t c = 0; c < channels; c++) {
            double sum = 0;
            for (int64_t t = 0; t < rows_y; t++) {
                const between at = place(t, rows, rows_y);
                const double part = (at.first == p ? 1 - at.part : 0) + (at.second == p ? at.part : 0);
                if (part > 0) sum += part * attn_rows_get(grad_y, dtype, t * channels + c);
            }
            attn_rows_put(grad_x, dtype, p * channels + c, sum);
        }
    return succeed(error);
}
