/* SPDX-License-Identifier: MIT
 * absolute.c - absolute positions: sinusoidal, and rows of a learned table with their gradient. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "../common/rows.h"

/* A table [1, 1, rows, channels], whose rows do not overlap. */
static attn_status resolve_table(attn_input *table, const char *name, int64_t rows, int64_t channels, attn_error *error)
{
    const int64_t shape[4] = {1, 1, rows, channels};
    TRY(attn_rows_resolve(table, name, shape, ATTN_F32, error));
    CHECK(rows <= 1 || table->stride[2] >= channels, ATTN_ERR_STRIDE,
          "%s.stride[2] (%" PRId64 ") is below the channels (%" PRId64 ")", name, table->stride[2], channels);
    CHECK(table->data || rows == 0 || channels == 0, ATTN_ERR_ARGUMENT, "%s is NULL", name);
    return ATTN_OK;
}

attn_status attn_sinusoidal(attn_rope_pairs order, int64_t tokens, int64_t channels, double base, const attn_input *positions,
                            const attn_output *table, attn_error *error)
{
    CHECK(order == ATTN_ROPE_PAIRS_INTERLEAVED || order == ATTN_ROPE_PAIRS_HALVES, ATTN_ERR_ARGUMENT,
          "sinusoidal: order is %d; known: 0 (interleaved), 1 (halves)", (int)order);
    CHECK(tokens >= 0 && channels >= 0, ATTN_ERR_SHAPE,
          "sinusoidal: %" PRId64 " tokens of %" PRId64 " channels; neither may be negative", tokens, channels);
    CHECK(base >= 0 && isfinite(base), ATTN_ERR_ARGUMENT, "sinusoidal: base is %g; it must be above 0 and finite (0 for 10000)",
          base);
    CHECK(table, ATTN_ERR_ARGUMENT, "sinusoidal: table is NULL");
    attn_input to = slot_of(table), at;
    TRY(resolve_table(&to, "sinusoidal: table", tokens, channels, error));
    const int64_t shape[4] = {1, 1, tokens, channels};
    TRY(attn_rows_positions(&at, positions, "sinusoidal: positions", 1, tokens, error));
    const attn_rows_places all_places = {.y = &to, .shape = shape, .positions = &at};
    TRY(attn_rows_no_overlap(&all_places, "sinusoidal", "table", "", error));
    const double b = base > 0 ? base : 10000;
    const int64_t sines = (channels + 1) / 2;
    for (int64_t t = 0; t < tokens && channels > 0; t++) {
        char *row = (char *)slot_written(&to) + t * to.stride[2] * (int64_t)attn_dtype_size(to.dtype);
        const double position = (double)attn_rows_position(&at, 0, t);
        for (int64_t c = 0; c < channels; c++) {
            int64_t i = order == ATTN_ROPE_PAIRS_INTERLEAVED ? c / 2 : c < sines ? c : c - sines;
            int is_sine = order == ATTN_ROPE_PAIRS_INTERLEAVED ? c % 2 == 0 : c < sines;
            double angle = position * pow(b, -2.0 * (double)i / (double)channels);
            attn_rows_put(row, to.dtype, c, is_sine ? sin(angle) : cos(angle));
        }
    }
    return succeed(error);
}

/* Checks for forward and backward; fills in the defaults of the table and of the positions. */
static attn_status check_table(int64_t rows, attn_input *table, const char *name, const int64_t shape[4],
                               const attn_input *positions, attn_input *at, attn_error *error)
{
    for (int axis = 0; axis < 4; axis++)
        CHECK(shape[axis] >= 0, ATTN_ERR_SHAPE, "position table: shape[%d] (%" PRId64 ") is negative", axis, shape[axis]);
    CHECK(rows >= 0, ATTN_ERR_SHAPE, "position table: rows (%" PRId64 ") is negative", rows);
    TRY(resolve_table(table, name, rows, shape[3], error));
    TRY(attn_rows_positions(at, positions, "position table: positions", shape[0], shape[2], error));
    CHECK(at->data || shape[0] == 0 || shape[2] <= rows, ATTN_ERR_ARGUMENT,
          "there are %" PRId64 " tokens and the position table has only %" PRId64 " rows", shape[2], rows);
    const int some = shape[0] > 0 && shape[1] > 0 && shape[2] > 0 && shape[3] > 0; /* else nothing is looked up */
    for (int64_t b = 0; some && at->data && b < shape[0]; b++)
        for (int64_t t = 0; t < shape[2]; t++) {
            const int64_t p = attn_rows_position(at, b, t);
            CHECK(p >= 0 && p < rows, ATTN_ERR_ARGUMENT, "positions[%" PRId64 "] is %" PRId64 "; the table has %" PRId64 " rows",
                  b * shape[2] + t, p, rows);
        }
    return ATTN_OK;
}

static char *element(const attn_input *slot, int64_t b, int64_t h, int64_t t)
{
    const int64_t *stride = slot->stride;
    return (char *)slot_written(slot) + (b * stride[0] + h * stride[1] + t * stride[2]) * (int64_t)attn_dtype_size(slot->dtype);
}

attn_status attn_position_add(int64_t rows, const int64_t shape[4], const attn_input *x, const attn_input *given,
                              const attn_input *positions, const attn_output *y, attn_error *error)
{
    CHECK(given && shape && x && y, ATTN_ERR_ARGUMENT, "position table: %s is NULL",
          !given   ? "table"
          : !shape ? "shape"
          : !x     ? "x"
                   : "y");
    attn_input table = *given, from = *x, to = slot_of(y), at;
    TRY(check_table(rows, &table, "position table", shape, positions, &at, error));
    TRY(attn_rows_resolve(&from, "position table: x", shape, ATTN_F32, error));
    TRY(attn_rows_resolve(&to, "position table: y", shape, from.dtype, error));
    int empty = shape[0] == 0 || shape[1] == 0 || shape[2] == 0 || shape[3] == 0;
    CHECK(empty || (from.data && to.data), ATTN_ERR_ARGUMENT, "position table: %s is NULL", from.data ? "y" : "x");
    const attn_rows_places all_places = {.y = &to,
                                         .x = &from,
                                         .table = &table,
                                         .shape = shape,
                                         .shape_x = shape,
                                         .rows = rows,
                                         .channels = shape[3],
                                         .positions = &at};
    TRY(attn_rows_no_overlap(&all_places, "position table", "y", "x", error));
    for (int64_t b = 0; b < shape[0] && !empty; b++)
        for (int64_t h = 0; h < shape[1]; h++)
            for (int64_t t = 0; t < shape[2]; t++) {
                const char *row = element(&table, 0, 0, attn_rows_position(&at, b, t));
                const char *in = element(&from, b, h, t);
                char *out = element(&to, b, h, t);
                for (int64_t c = 0; c < shape[3]; c++)
                    attn_rows_put(out, to.dtype, c, attn_rows_get(in, from.dtype, c) + attn_rows_get(row, table.dtype, c));
            }
    return succeed(error);
}

attn_status attn_position_add_backward(int64_t rows, const int64_t shape[4], const attn_input *grad_y, const attn_input *positions,
                                       const attn_output *grad_table, attn_error *error)
{
    CHECK(grad_table && shape && grad_y, ATTN_ERR_ARGUMENT, "position table: %s is NULL",
          !grad_table ? "grad_table"
          : !shape    ? "shape"
                      : "grad_y");
    attn_input table = slot_of(grad_table), from = *grad_y, at;
    TRY(check_table(rows, &table, "position table: grad_table", shape, positions, &at, error));
    TRY(attn_rows_resolve(&from, "position table: grad_y", shape, ATTN_F32, error));
    int empty = shape[0] == 0 || shape[1] == 0 || shape[2] == 0 || shape[3] == 0;
    CHECK(empty || from.data, ATTN_ERR_ARGUMENT, "position table: grad_y is NULL");
    const int64_t channels = shape[3], written[4] = {1, 1, rows, channels};
    const attn_rows_places all_places = {.y = &table, .x = &from, .shape = written, .shape_x = shape, .positions = &at};
    TRY(attn_rows_no_overlap(&all_places, "position table", "grad_table", "grad_y", error));
    CHECK(channels == 0 || rows < INT64_MAX / 16 / channels, ATTN_ERR_SHAPE,
          "position table: grad_table is too large: its bytes overflow 64 bits");
    double *sums = calloc((size_t)(rows * channels) + 1, sizeof *sums);
    CHECK(sums, ATTN_ERR_MEMORY, "cannot allocate the gradient of a position table");
    for (int64_t b = 0; b < shape[0] && !empty; b++)
        for (int64_t h = 0; h < shape[1]; h++)
            for (int64_t t = 0; t < shape[2]; t++) {
                double *sum = sums + attn_rows_position(&at, b, t) * channels;
                const char *row = element(&from, b, h, t);
                for (int64_t c = 0; c < channels; c++) sum[c] += attn_rows_get(row, from.dtype, c);
            }
    for (int64_t p = 0; p < rows && channels > 0; p++)
        for (int64_t c = 0; c < channels; c++) attn_rows_put(element(&table, 0, 0, p), table.dtype, c, sums[p * channels + c]);
    free(sums);
    return succeed(error);
}
