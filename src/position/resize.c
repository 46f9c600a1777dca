/* SPDX-License-Identifier: MIT
 * resize.c - interpolates a learned position table to another number of rows. */
#include <math.h>

#include "../common/bound.h"
#include "attn/position.h"

static attn_status check_sizes(int64_t channels, int64_t rows, int64_t rows_y, attn_error *error)
{
    CHECK(channels >= 0 && rows >= 0 && rows_y >= 0, ATTN_ERR_SHAPE,
          "position resize: %" PRId64 " channels, %" PRId64 " rows to %" PRId64 "; none may be negative", channels, rows, rows_y);
    CHECK(rows > 0 || rows_y == 0, ATTN_ERR_SHAPE, "position resize: there are no rows to resize to %" PRId64, rows_y);
    return ATTN_OK;
}

static bound_rule table(const char *name, int64_t rows, int64_t channels, attn_dtype natural)
{
    return (bound_rule){.name = name, .shape = {1, 1, rows, channels}, .natural = natural, .types = BOUND_REAL};
}

static double get(const bound_tensor *t, int64_t row, int64_t c) { return bound_get(t, bound_at(t, 0, 0, row, c)); }

/* The position of row t of y in x: `part` of the way from row `first` to row `second`. */
typedef struct between {
    int64_t first, second;
    double part;
} between;

static between between_rows(int64_t t, int64_t rows, int64_t rows_y)
{
    const double at = fmax(((double)t + 0.5) * (double)rows / (double)rows_y - 0.5, 0);
    between b = {(int64_t)at, 0, at - floor(at)};
    if (b.first > rows - 1) b.first = rows - 1, b.part = 0;
    b.second = b.first < rows - 1 ? b.first + 1 : b.first;
    return b;
}

attn_status attn_position_resize(int64_t channels, int64_t rows, int64_t rows_y, const attn_input *x, const attn_output *y,
                                 attn_error *error)
{
    bound_call call = {.module = "position resize"};
    bound_tensor from, to;
    TRY(check_sizes(channels, rows, rows_y, error));
    TRY(bound_input(&call, table("x", rows, channels, ATTN_F32), x, &from, error));
    TRY(bound_output(&call, table("y", rows_y, channels, from.dtype), y, &to, error));
    TRY(bound_no_overlap(&call, error));
    for (int64_t t = 0; t < rows_y && channels > 0; t++) {
        const between at = between_rows(t, rows, rows_y);
        for (int64_t c = 0; c < channels; c++)
            bound_put(&to, bound_at(&to, 0, 0, t, c), (1 - at.part) * get(&from, at.first, c) + at.part * get(&from, at.second, c));
    }
    return succeed(error);
}

attn_status attn_position_resize_backward(int64_t channels, int64_t rows, int64_t rows_y, const attn_input *grad_y,
                                          const attn_output *grad_x, attn_error *error)
{
    bound_call call = {.module = "position resize"};
    bound_tensor from, to;
    TRY(check_sizes(channels, rows, rows_y, error));
    TRY(bound_input(&call, table("grad_y", rows_y, channels, ATTN_F32), grad_y, &from, error));
    TRY(bound_output(&call, table("grad_x", rows, channels, from.dtype), grad_x, &to, error));
    TRY(bound_no_overlap(&call, error));
    for (int64_t p = 0; p < rows && channels > 0; p++)
        for (int64_t c = 0; c < channels; c++) {
            double sum = 0;
            for (int64_t t = 0; t < rows_y; t++) {
                const between at = between_rows(t, rows, rows_y);
                const double part = (at.first == p ? 1 - at.part : 0) + (at.second == p ? at.part : 0);
                if (part > 0) sum += part * get(&from, t, c);
            }
            bound_put(&to, bound_at(&to, 0, 0, p, c), sum);
        }
    return succeed(error);
}
