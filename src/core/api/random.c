/* SPDX-License-Identifier: MIT
 * random.c - the rows of random feature maps, drawn from a seed. */
#include <math.h>

#include "../../common/bound.h"
#include "../base/philox.h"
#include "attn/linear.h"

/* Number `column` of row `row`: standard normal (Box and Muller 1958), from words of 32 bits. */
static double normal_at(uint64_t seed, uint32_t draw, uint32_t row, uint32_t column, uint32_t block)
{
    const uint32_t counter[4] = {draw, row, column / 2, block};
    uint32_t x[4];
    attn_philox(seed, counter, x);
    double radius = sqrt(-2 * log(((double)x[0] + 1) / 4294967296.0)), angle = 6.283185307179586 * ((double)x[1] / 4294967296.0);
    return column % 2 ? radius * sin(angle) : radius * cos(angle);
}

static double get(const bound_tensor *m, int64_t row, int64_t c) { return bound_get(m, bound_at(m, 0, 0, row, c)); }
static void put(const bound_tensor *m, int64_t row, int64_t c, double x) { bound_put(m, bound_at(m, 0, 0, row, c), x); }

/* Row `row` minus its projections on the rows first .. row-1 of its block, twice for accuracy; then normalised. */
static void make_orthogonal(const bound_tensor *m, int64_t first, int64_t row, int64_t dim)
{
    for (int pass = 0; pass < 2; pass++)
        for (int64_t other = first; other < row; other++) {
            double inner = 0;
            for (int64_t c = 0; c < dim; c++) inner += get(m, row, c) * get(m, other, c);
            for (int64_t c = 0; c < dim; c++) put(m, row, c, get(m, row, c) - inner * get(m, other, c));
        }
    double square = 0;
    for (int64_t c = 0; c < dim; c++) square += get(m, row, c) * get(m, row, c);
    for (int64_t c = 0; c < dim; c++) put(m, row, c, get(m, row, c) / sqrt(square));
}

attn_status attn_random_features(attn_random_rows rows, int64_t features, int64_t dim_qk, uint64_t seed, uint32_t draw,
                                 const attn_output *matrix, attn_error *error)
{
    bound_call call = {.module = "random features"};
    bound_tensor m;
    CHECK(rows == ATTN_RANDOM_ROWS_ORTHOGONAL || rows == ATTN_RANDOM_ROWS_NORMAL, ATTN_ERR_ARGUMENT,
          "random features: rows is %d; known: 0 (orthogonal), 1 (normal)", (int)rows);
    CHECK(features >= 0 && dim_qk >= 0 && features <= UINT32_MAX && dim_qk <= UINT32_MAX, ATTN_ERR_SHAPE,
          "random features: matrix cannot have %" PRId64 " rows of %" PRId64 " numbers", features, dim_qk);
    const bound_rule rule = {.name = "matrix", .shape = {1, 1, features, dim_qk}, .natural = ATTN_F32, .types = BOUND_REAL};
    TRY(bound_output(&call, rule, matrix, &m, error));
    if (dim_qk == 0) return succeed(error);
    for (int64_t row = 0; row < features; row++)
        for (int64_t c = 0; c < dim_qk; c++) put(&m, row, c, normal_at(seed, draw, (uint32_t)row, (uint32_t)c, 0));
    if (rows == ATTN_RANDOM_ROWS_NORMAL) return succeed(error);
    for (int64_t row = 0; row < features; row++) make_orthogonal(&m, row / dim_qk * dim_qk, row, dim_qk);
    for (int64_t row = 0; row < features; row++) {
        double square = 0;
        for (int64_t c = 0; c < dim_qk; c++) {
            double x = normal_at(seed, draw, (uint32_t)row, (uint32_t)c, 1);
            square += x * x;
        }
        for (int64_t c = 0; c < dim_qk; c++) put(&m, row, c, sqrt(square) * get(&m, row, c));
    }
    return succeed(error);
}
