/* SPDX-License-Identifier: MIT
 * hadamard.c - attn_hadamard: rows times the Hadamard matrix, by butterflies over ascending distances. */
#include <math.h>

#include "../../common/bound.h"
#include "../base/checked.h"
#include "attn/cache.h"
#include "transfer.h"

enum { MOST = 4096 }; /* channels of a group */

static int64_t group_of(int64_t dim)
{
    int64_t n = 1;
    while (n < MOST && dim % (2 * n) == 0) n *= 2;
    return n;
}

static void rotate(int64_t n, double *x)
{
    const double factor = 1 / sqrt((double)n);
    for (int64_t apart = 1; apart < n; apart *= 2)
        for (int64_t first = 0; first < n; first += 2 * apart)
            for (int64_t i = first; i < first + apart; i++) {
                const double a = x[i], b = x[i + apart];
                x[i] = a + b;
                x[i + apart] = a - b;
            }
    for (int64_t i = 0; i < n; i++) x[i] *= factor;
}

attn_status attn_hadamard(int64_t rows, int64_t dim, const attn_input *src, const attn_output *dst, attn_error *error)
{
    bound_call call = {.module = "hadamard"};
    bound_tensor from, to;
    attn_transfer_walk walk = {.tensors = 0};
    double x[MOST];
    CHECK(rows >= 0 && dim >= 0, ATTN_ERR_SHAPE, "hadamard: %s (%" PRId64 ") is negative", rows < 0 ? "rows" : "dim",
          rows < 0 ? rows : dim);
    const bound_rule of_src = {"src", {1, 1, rows, dim}, ATTN_F32, BOUND_FLOAT, 0, 1},
                     of_dst = {"dst", {1, 1, rows, dim}, ATTN_F32, BOUND_FLOAT, 0, 1};
    TRY(bound_input(&call, of_src, src, &from, error));
    TRY(bound_output(&call, of_dst, dst, &to, error));
    TRY(bound_no_overlap(&call, error));
    TRY(attn_transfer_plan(&walk, NULL, 1, error)); /* for its conversions */
    const int64_t n = dim > 0 ? group_of(dim) : 1;
    for (int64_t i = 0; i < rows && dim > 0; i++)
        for (int64_t c = 0; c < dim; c += n) {
            const attn_transfer_rows group = {x, ATTN_F64, 0};
            walk.kernel->convert(
                1, n,
                (attn_transfer_rows){(char *)from.data + bound_at(&from, 0, 0, i, c) * (int64_t)attn_dtype_size(from.dtype),
                                     from.dtype, 0},
                group);
            rotate(n, x);
            walk.kernel->convert(
                1, n, group,
                (attn_transfer_rows){(char *)to.data + bound_at(&to, 0, 0, i, c) * (int64_t)attn_dtype_size(to.dtype), to.dtype,
                                     0});
        }
    return succeed(error);
}
