/* SPDX-License-Identifier: MIT
 *
 * fuzz_product.c - fuzzes attn_product and attn_product_in (target.h) on random matrices in memory of exactly their size: against
 * sums in double within the bound of attn/product.h, gaps between rows untouched, the same bits for other threads, and a workspace
 * that also suffices for smaller products. */
#include "testing/verdict/matrices.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "target.h"

const char *const target_cases = "products";

static ref_matrices shown; /* the running case */
static attn_dtype shown_dtype;

void target_print(void)
{
    const ref_matrices *p = &shown;
    fprintf(stderr,
            "%s rows %" PRId64 " columns %" PRId64 " inner %" PRId64 " turned %d %d strides %" PRId64 " %" PRId64 " %" PRId64
            " add %d\n",
            attn_dtype_name(shown_dtype), p->rows, p->columns, p->inner, p->a_transposed, p->b_transposed, p->stride_a, p->stride_b,
            p->stride_c, p->add);
}

_Noreturn static void fail(const ref_matrices *p, attn_dtype dtype, const char *what, const attn_error *error)
{
    shown = *p, shown_dtype = dtype;
    finding("%s (%s)", what, error ? error->message : "");
}

typedef struct matrix {
    int64_t rows, columns, stride; /* as stored */
    unsigned char *memory;
    size_t bytes;
} matrix;

static matrix make(draws *d, attn_dtype dtype, int64_t rows, int64_t columns, int64_t *stride)
{
    matrix m = {rows, columns, columns, NULL, 0};
    if (draw_one_in(d, 3)) m.stride = *stride = columns + draw_below(d, 9);
    const int64_t count = rows > 0 && columns > 0 ? (rows - 1) * m.stride + columns : 0;
    m.bytes = (size_t)count * attn_dtype_size(dtype);
    m.memory = malloc(m.bytes + (m.bytes == 0));
    for (int64_t i = 0; i < count; i++) {
        const double x = (double)(int64_t)(draw_word(d) >> 11) / 4503599627370496.0 * 2 - 2;
        (void)attn_convert(1, &x, ATTN_F64, m.memory + (size_t)i * attn_dtype_size(dtype), dtype, NULL);
    }
    return m;
}

static double at(const matrix *m, attn_dtype dtype, int64_t i, int64_t j)
{
    double x;
    (void)attn_convert(1, m->memory + (size_t)(i * m->stride + j) * attn_dtype_size(dtype), dtype, &x, ATTN_F64, NULL);
    return x;
}

static void check(const ref_matrices *p, attn_dtype dtype, const matrix *a, const matrix *b, const matrix *c, const matrix *before)
{
    const double u = dtype == ATTN_F64 ? DBL_EPSILON / 2 : (double)FLT_EPSILON / 2;
    const double terms = 5 + fmin((double)p->inner, 256) + (double)(p->inner / 256) + p->add;
    for (int64_t i = 0; i < p->rows; i++)
        for (int64_t j = 0; j < p->columns; j++) {
            double sum = p->add ? at(before, dtype, i, j) : 0, size = fabs(sum);
            for (int64_t k = 0; k < p->inner; k++) {
                const double x = (p->a_transposed ? at(a, dtype, k, i) : at(a, dtype, i, k)) *
                                 (p->b_transposed ? at(b, dtype, j, k) : at(b, dtype, k, j));
                sum += x, size += fabs(x);
            }
            if (!(fabs(at(c, dtype, i, j) - sum) <= 2 * terms * u * size + FLT_MIN))
                fail(p, dtype, "off by more than the bound", NULL);
        }
    const size_t element = attn_dtype_size(dtype);
    for (int64_t i = 0; i + 1 < p->rows && p->columns > 0; i++) {
        const size_t from = (size_t)(i * c->stride + c->columns) * element, n = (size_t)(c->stride - c->columns) * element;
        if (memcmp(c->memory + from, before->memory + from, n) != 0) fail(p, dtype, "written between rows", NULL);
    }
}

static int64_t draw_size(draws *d) { return draw_one_in(d, 5) ? draw_below(d, 700) : draw_below(d, 40); }

/* Extreme sizes and strides without memory: must be rejected, unless there is nothing to do. */
static void run_hostile(draws *d, ref_matrices m, attn_dtype dtype, const attn_options *options)
{
    size_t bytes;
    attn_error error;
    (&m.rows)[draw_below(d, 3)] = draw_hostile(d);
    if (draw_one_in(d, 2)) draw_vast_fields(d, &m.rows, 3);
    matrices_dense(&m);
    if (draw_one_in(d, 2)) (&m.stride_a)[draw_below(d, 3)] = draw_hostile(d);
    const attn_product_problem p = matrices_problem(&m, dtype);
    const attn_product_tensors t = matrices_tensors(&m, NULL, NULL, NULL);
    (void)attn_product_workspace_size(&p, &bytes, options, &error);
    if (attn_product(&p, &t, options, &error) == ATTN_OK && m.rows && m.columns)
        fail(&m, dtype, "a matrix without memory is accepted", NULL);
}

void target_run(draws *d)
{
    ref_matrices m = {0};
    const attn_dtype dtype = draw_one_in(d, 3) ? ATTN_F64 : ATTN_F32;
    attn_options options = {.struct_size = sizeof options, .threads = 1 + (int)draw_below(d, 4), .isa = (attn_isa)draw_below(d, 4)};
    attn_error error;
    m.rows = draw_size(d), m.columns = draw_size(d), m.inner = draw_size(d);
    while (m.rows * m.columns * m.inner > 3000000) m.rows /= 2, m.inner /= 2;
    m.a_transposed = draw_one_in(d, 2), m.b_transposed = draw_one_in(d, 2), m.add = draw_one_in(d, 3);
    if (draw_one_in(d, 10)) {
        run_hostile(d, m, dtype, &options);
        target_rejected++;
        return;
    }
    matrix a = make(d, dtype, m.a_transposed ? m.inner : m.rows, matrices_row_a(&m), &m.stride_a);
    matrix b = make(d, dtype, m.b_transposed ? m.columns : m.inner, matrices_row_b(&m), &m.stride_b);
    matrix c = make(d, dtype, m.rows, m.columns, &m.stride_c), before = c, again = c;
    before.memory = malloc(c.bytes + 1), again.memory = malloc(c.bytes + 1);
    memcpy(before.memory, c.memory, c.bytes), memcpy(again.memory, c.memory, c.bytes);
    matrices_dense(&m);
    shown = m, shown_dtype = dtype;
    target_drawn();
    target_ran++;
    const attn_product_problem p = matrices_problem(&m, dtype);
    attn_product_tensors t = matrices_tensors(&m, a.memory, b.memory, c.memory);
    attn_status status = attn_product(&p, &t, &options, &error);
    if (status == ATTN_ERR_UNSUPPORTED && options.isa != ATTN_ISA_DEFAULT) { /* not in this CPU or build */
        options.isa = ATTN_ISA_DEFAULT;
        status = attn_product(&p, &t, &options, &error);
    }
    if (status) fail(&m, dtype, "rejected", &error);
    check(&m, dtype, &a, &b, &c, &before);
    attn_product_problem larger = p;
    larger.rows += draw_below(d, 50), larger.columns += draw_below(d, 50), larger.inner += draw_below(d, 50);
    options.threads = 1 + (int)draw_below(d, 6);
    size_t bytes;
    if (attn_product_workspace_size(&larger, &bytes, &options, &error))
        fail(&m, dtype, "no workspace size of a larger product", &error);
    const size_t off = (size_t)draw_below(d, 64);
    unsigned char *workspace = malloc(bytes + off + 1);
    memset(workspace, 0xFF, bytes + off);
    t.c.data = again.memory;
    if (attn_product_in(&p, &t, workspace + off, bytes, &options, &error))
        fail(&m, dtype, "rejected in the workspace of a larger product", &error);
    if (memcmp(again.memory, c.memory, c.bytes) != 0) fail(&m, dtype, "other bits with other threads", NULL);
    free(workspace), free(a.memory), free(b.memory), free(c.memory), free(before.memory), free(again.memory);
}
