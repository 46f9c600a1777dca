/* SPDX-License-Identifier: MIT
 * product.c - `attn check` of matrix products. */
#include "product.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "testing/random/random.h"
#include "testing/text/failure.h"

int product_case(int index, ref_matrices *product)
{
    static const int64_t rows[] = {1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 31, 70}, columns[] = {1, 7, 15, 16, 33, 47, 48, 49, 95, 130},
                         inner[] = {1, 5, 8, 9, 17, 300};
    enum { R = sizeof rows / sizeof *rows, C = sizeof columns / sizeof *columns, K = sizeof inner / sizeof *inner };
    const int way = index % 8, size = index / 8;
    if (size >= R * C * K) return 0;
    *product = (ref_matrices){.rows = rows[size % R],
                              .columns = columns[size / R % C],
                              .inner = inner[size / R / C],
                              .a_transposed = way & 1,
                              .b_transposed = way >> 1 & 1,
                              .add = way >> 2};
    matrices_dense(product);
    return 1;
}

/* The numbers of a matrix: exact, their absolute values, and in the library's type. */
typedef struct numbers {
    double *exact, *size;
    void *data;
} numbers;

static numbers draw(int64_t count, attn_dtype dtype, random_state *random)
{
    numbers n = {need_memory(count, sizeof(double)), need_memory(count, sizeof(double)), need_memory(count, sizeof(double))};
    for (int64_t i = 0; i < count; i++) n.exact[i] = 2 * random_unit(random) - 1;
    (void)attn_convert(count, n.exact, ATTN_F64, n.data, dtype, NULL);
    (void)attn_convert(count, n.data, dtype, n.exact, ATTN_F64, NULL);
    for (int64_t i = 0; i < count; i++) n.size[i] = fabs(n.exact[i]);
    return n;
}

static void drop(numbers *n) { free(n->exact), free(n->size), free(n->data); }

attn_status product_check(const ref_matrices *product, attn_dtype dtype, const attn_options *options, product_verdict *verdict,
                          attn_error *error)
{
    const ref_matrices *p = product;
    const attn_product_problem problem = matrices_problem(p, dtype);
    const int64_t count = p->rows * p->columns;
    const double unit = dtype == ATTN_F64 ? 0x1p-53 : 0x1p-24,
                 roundings = 5 + fmin((double)p->inner, 256) + (double)p->inner / 256 + p->add;
    random_state random = {(uint64_t)(p->rows * 1000 + p->columns * 10 + p->inner)};
    numbers a = draw(p->rows * p->inner, dtype, &random), b = draw(p->inner * p->columns, dtype, &random),
            c = draw(count, dtype, &random);
    memset(verdict, 0, sizeof *verdict);
    snprintf(verdict->name, sizeof verdict->name, "product:%" PRId64 "x%" PRId64 "x%" PRId64 "%s%s%s", p->rows, p->columns,
             p->inner, p->a_transposed ? ":at" : "", p->b_transposed ? ":bt" : "", p->add ? ":add" : "");
    const attn_product_tensors tensors = matrices_tensors(p, a.data, b.data, c.data);
    const attn_status status = attn_product(&problem, &tensors, options, error);
    if (status == ATTN_OK) {
        ref_product(p, a.exact, b.exact, c.exact);
        ref_product(p, a.size, b.size, c.size);
        for (int64_t i = 0; i < count; i++) {
            double got;
            (void)attn_convert(1, (const char *)c.data + (size_t)i * attn_dtype_size(dtype), dtype, &got, ATTN_F64, NULL);
            const double off = fabs(got - c.exact[i]), share = off / (roundings * unit * c.size[i] + 1e-300);
            if (!(off <= verdict->max_error)) verdict->max_error = off;
            if (!(share <= verdict->bound_fraction)) verdict->bound_fraction = share;
        }
    }
    drop(&a), drop(&b), drop(&c);
    return status;
}
