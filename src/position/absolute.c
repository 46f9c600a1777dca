/* SPDX-License-Identifier: MIT
 * absolute.c - absolute positions: sinusoidal, and rows of a learned table with their gradient. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "../common/fail.h"
#include "attn/position.h"
#include "rows.h"

attn_status attn_sinusoidal(attn_rope_pairs order, int64_t tokens, int64_t channels, double base, const int64_t *positions,
                            attn_dtype dtype, void *table, int64_t stride, attn_error *error)
{
    CHECK(order == ATTN_ROPE_INTERLEAVED || order == ATTN_ROPE_HALVES, ATTN_ERR_ARGUMENT,
          "sinusoidal: order is %d; known: 0 (interleaved), 1 (halves)", (int)order);
    CHECK(tokens >= 0 && channels >= 0, ATTN_ERR_SHAPE, "sinusoidal: %" PRId64 " tokens of %" PRId64 " channels", tokens, channels);
    CHECK(base >= 0 && isfinite(base), ATTN_ERR_ARGUMENT, "sinusoidal: base is %g; it must be above 0 and finite (0 for 10000)",
          base);
    CHECK(attn_rows_is_float(dtype), ATTN_ERR_UNSUPPORTED, "sinusoidal: table is %s; it must be f32, f64, f16 or bf16",
          attn_dtype_name(dtype));
    CHECK(stride >= channels, ATTN_ERR_STRIDE, "sinusoidal: stride (%" PRId64 ") is below the channels (%" PRId64 ")", stride,
          channels);
    CHECK(table || tokens == 0 || channels == 0, ATTN_ERR_ARGUMENT, "sinusoidal: table is NULL");
    const double b = base > 0 ? base : 10000;
    const int64_t sines = (channels + 1) / 2;
    for (int64_t t = 0; t < tokens; t++) {
        char *row = (char *)table + t * stride * (int64_t)attn_dtype_size(dtype);
        double position = positions ? (double)positions[t] : (double)t;
        for (int64_t c = 0; c < channels; c++) {
            int64_t i = order == ATTN_ROPE_INTERLEAVED ? c / 2 : c < sines ? c : c - sines;
            int is_sine = order == ATTN_ROPE_INTERLEAVED ? c % 2 == 0 : c < sines;
            double angle = position * pow(b, -2.0 * (double)i / (double)channels);
            attn_rows_put(row, dtype, c, is_sine ? sin(angle) : cos(angle));
        }
    }
    return succeed(error);
}

/* What both directions check; fills in the table's defaults. */
static attn_status check_table(attn_position_table *table, const void *rows, const int64_t shape[4], const int64_t *positions,
                               attn_error *error)
{
    for (int axis = 0; axis < 4; axis++)
        CHECK(shape[axis] >= 0, ATTN_ERR_SHAPE, "position table: shape[%d] (%" PRId64 ") is negative", axis, shape[axis]);
    if (table->dtype == ATTN_DTYPE_DEFAULT) table->dtype = ATTN_F32;
    if (table->stride == 0) table->stride = shape[3];
    CHECK(attn_rows_is_float(table->dtype), ATTN_ERR_UNSUPPORTED, "position table is %s; it must be f32, f64, f16 or bf16",
          attn_dtype_name(table->dtype));
    CHECK(table->rows >= 0, ATTN_ERR_SHAPE, "position table: rows (%" PRId64 ") is negative", table->rows);
    CHECK(table->stride >= shape[3], ATTN_ERR_STRIDE, "position table: stride (%" PRId64 ") is below the channels (%" PRId64 ")",
          table->stride, shape[3]);
    CHECK(rows || table->rows == 0 || shape[3] == 0, ATTN_ERR_ARGUMENT, "position table: rows is NULL");
    CHECK(positions || shape[0] == 0 || shape[2] <= table->rows, ATTN_ERR_ARGUMENT,
          "%" PRId64 " tokens and a position table of %" PRId64 " rows", shape[2], table->rows);
    for (int64_t n = 0; positions && n < shape[0] * shape[2]; n++)
        CHECK(positions[n] >= 0 && positions[n] < table->rows, ATTN_ERR_ARGUMENT,
              "positions[%" PRId64 "] is %" PRId64 "; the table has %" PRId64 " rows", n, positions[n], table->rows);
    return ATTN_OK;
}

static char *element(const void *base, const attn_layout *layout, int64_t b, int64_t h, int64_t t)
{
    const int64_t *stride = layout->stride;
    return (char *)(uintptr_t)base + (b * stride[0] + h * stride[1] + t * stride[2]) * (int64_t)attn_dtype_size(layout->dtype);
}

attn_status attn_position_add(const attn_position_table *given, const void *rows, const int64_t shape[4],
                              const attn_layout *x_layout, const void *x, const attn_layout *y_layout, void *y,
                              const int64_t *positions, attn_error *error)
{
    CHECK(given && shape && x_layout && y_layout, ATTN_ERR_ARGUMENT, "position table: %s is NULL",
          !given      ? "table"
          : !shape    ? "shape"
          : !x_layout ? "x_layout"
                      : "y_layout");
    attn_position_table table = *given;
    attn_layout from = *x_layout, to = *y_layout;
    TRY(check_table(&table, rows, shape, positions, error));
    TRY(attn_rows_resolve(&from, "position table: x", shape, error));
    TRY(attn_rows_resolve(&to, "position table: y", shape, error));
    int empty = shape[0] == 0 || shape[1] == 0 || shape[2] == 0 || shape[3] == 0;
    CHECK(empty || (x && y), ATTN_ERR_ARGUMENT, "position table: %s is NULL", x ? "y" : "x");
    for (int64_t b = 0; b < shape[0] && !empty; b++)
        for (int64_t h = 0; h < shape[1]; h++)
            for (int64_t t = 0; t < shape[2]; t++) {
                int64_t p = positions ? positions[b * shape[2] + t] : t;
                const char *row = (const char *)rows + p * table.stride * (int64_t)attn_dtype_size(table.dtype);
                const char *in = element(x, &from, b, h, t);
                char *out = element(y, &to, b, h, t);
                for (int64_t c = 0; c < shape[3]; c++)
                    attn_rows_put(out, to.dtype, c, attn_rows_get(in, from.dtype, c) + attn_rows_get(row, table.dtype, c));
            }
    return succeed(error);
}

attn_status attn_position_add_backward(const attn_position_table *given, void *grad_rows, const int64_t shape[4],
                                       const attn_layout *grad_y_layout, const void *grad_y, const int64_t *positions,
                                       attn_error *error)
{
    CHECK(given && shape && grad_y_layout, ATTN_ERR_ARGUMENT, "position table: %s is NULL",
          !given   ? "table"
          : !shape ? "shape"
                   : "grad_y_layout");
    attn_position_table table = *given;
    attn_layout from = *grad_y_layout;
    TRY(check_table(&table, grad_rows, shape, positions, error));
    TRY(attn_rows_resolve(&from, "position table: grad_y", shape, error));
    int empty = shape[0] == 0 || shape[1] == 0 || shape[2] == 0 || shape[3] == 0;
    CHECK(empty || grad_y, ATTN_ERR_ARGUMENT, "position table: grad_y is NULL");
    const int64_t channels = shape[3];
    CHECK(channels == 0 || table.rows < INT64_MAX / 16 / channels, ATTN_ERR_SHAPE,
          "position table: grad_rows has more bytes than 64 bits count");
    double *sums = calloc((size_t)(table.rows * channels) + 1, sizeof *sums);
    CHECK(sums, ATTN_ERR_MEMORY, "no memory for the gradient of a position table");
    for (int64_t b = 0; b < shape[0] && !empty; b++)
        for (int64_t h = 0; h < shape[1]; h++)
            for (int64_t t = 0; t < shape[2]; t++) {
                double *sum = sums + (positions ? positions[b * shape[2] + t] : t) * channels;
                const char *row = element(grad_y, &from, b, h, t);
                for (int64_t c = 0; c < channels; c++) sum[c] += attn_rows_get(row, from.dtype, c);
            }
    for (int64_t p = 0; p < table.rows; p++) {
        char *row = (char *)grad_rows + p * table.stride * (int64_t)attn_dtype_size(table.dtype);
        for (int64_t c = 0; c < channels; c++) attn_rows_put(row, table.dtype, c, sums[p * channels + c]);
    }
    free(sums);
    return succeed(error);
}
