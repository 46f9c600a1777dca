/* SPDX-License-Identifier: MIT
 *
 * fuzz_product.c - attn_product and attn_product_in on random matrices in memory of exactly their size: against the sum in double
 * within the bound of attn/product.h, rows kept apart, the same bits for other threads, and room for what is no larger.
 *
 *      test_fuzz_product --seconds=S --seed=N [--first=I] [--cases=C] */
#include "attn/product.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "draws.h"

static uint64_t seed, number;

_Noreturn static void fail(const attn_product_problem *p, const char *what, const attn_error *error)
{
    fprintf(stderr,
            "FINDING --seed=%" PRIu64 " --first=%" PRIu64 " --cases=1: %s (%s)\n%s rows %" PRId64 " columns %" PRId64
            " inner %" PRId64 " turned %d %d strides %" PRId64 " %" PRId64 " %" PRId64 " add %d\n",
            seed, number, what, error ? error->message : "", attn_dtype_name(p->dtype), p->rows, p->columns, p->inner, p->a_turned,
            p->b_turned, p->stride_a, p->stride_b, p->stride_c, p->add);
    abort();
}

typedef struct matrix {
    int64_t rows, columns, stride; /* as it lies in memory */
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
        attn_convert(m.memory + (size_t)i * attn_dtype_size(dtype), dtype, &x, ATTN_F64, 1);
    }
    return m;
}

static double at(const matrix *m, attn_dtype dtype, int64_t i, int64_t j)
{
    double x;
    attn_convert(&x, ATTN_F64, m->memory + (size_t)(i * m->stride + j) * attn_dtype_size(dtype), dtype, 1);
    return x;
}

static void check(const attn_product_problem *p, const matrix *a, const matrix *b, const matrix *c, const matrix *before)
{
    const double u = p->dtype == ATTN_F64 ? DBL_EPSILON / 2 : (double)FLT_EPSILON / 2;
    const double terms = 5 + fmin((double)p->inner, 256) + (double)(p->inner / 256) + p->add;
    for (int64_t i = 0; i < p->rows; i++)
        for (int64_t j = 0; j < p->columns; j++) {
            double sum = p->add ? at(before, p->dtype, i, j) : 0, size = fabs(sum);
            for (int64_t k = 0; k < p->inner; k++) {
                const double x = (p->a_turned ? at(a, p->dtype, k, i) : at(a, p->dtype, i, k)) *
                                 (p->b_turned ? at(b, p->dtype, j, k) : at(b, p->dtype, k, j));
                sum += x, size += fabs(x);
            }
            if (!(fabs(at(c, p->dtype, i, j) - sum) <= 2 * terms * u * size + FLT_MIN)) fail(p, "off by more than the bound", NULL);
        }
    const size_t element = attn_dtype_size(p->dtype);
    for (int64_t i = 0; i + 1 < p->rows && p->columns > 0; i++) {
        const size_t from = (size_t)(i * c->stride + c->columns) * element, n = (size_t)(c->stride - c->columns) * element;
        if (memcmp(c->memory + from, before->memory + from, n) != 0) fail(p, "written between rows", NULL);
    }
}

static int64_t draw_size(draws *d) { return draw_one_in(d, 5) ? draw_below(d, 700) : draw_below(d, 40); }

static void run(draws *d)
{
    attn_product_problem p = {.struct_size = sizeof p, .dtype = draw_one_in(d, 3) ? ATTN_F64 : ATTN_F32};
    attn_options options = {.struct_size = sizeof options, .threads = 1 + (int)draw_below(d, 4), .isa = (attn_isa)draw_below(d, 4)};
    attn_error error;
    p.rows = draw_size(d), p.columns = draw_size(d), p.inner = draw_size(d);
    while (p.rows * p.columns * p.inner > 3000000) p.rows /= 2, p.inner /= 2;
    p.a_turned = draw_one_in(d, 2), p.b_turned = draw_one_in(d, 2), p.add = draw_one_in(d, 3);
    if (draw_one_in(d, 10)) { /* sizes that nothing holds: refused, or nothing to do */
        attn_product_problem bad = p;
        size_t bytes;
        (&bad.rows)[draw_below(d, 3)] = draw_hostile(d);
        if (draw_one_in(d, 2)) (&bad.stride_a)[draw_below(d, 3)] = draw_hostile(d);
        (void)attn_product_workspace_size(&bad, &options, &bytes, &error);
        if (attn_product(&bad, NULL, NULL, NULL, &options, &error) == ATTN_OK && bad.rows && bad.columns)
            fail(&bad, "NULL is taken", NULL);
        return;
    }
    matrix a = p.a_turned ? make(d, p.dtype, p.inner, p.rows, &p.stride_a) : make(d, p.dtype, p.rows, p.inner, &p.stride_a);
    matrix b = p.b_turned ? make(d, p.dtype, p.columns, p.inner, &p.stride_b) : make(d, p.dtype, p.inner, p.columns, &p.stride_b);
    matrix c = make(d, p.dtype, p.rows, p.columns, &p.stride_c), before = c, again = c;
    before.memory = malloc(c.bytes + 1), again.memory = malloc(c.bytes + 1);
    memcpy(before.memory, c.memory, c.bytes), memcpy(again.memory, c.memory, c.bytes);
    if (attn_product(&p, a.memory, b.memory, c.memory, &options, &error)) fail(&p, "refused", &error);
    check(&p, &a, &b, &c, &before);
    attn_product_problem larger = p;
    larger.rows += draw_below(d, 50), larger.columns += draw_below(d, 50), larger.inner += draw_below(d, 50);
    larger.stride_a = larger.stride_b = larger.stride_c = 0;
    options.threads = 1 + (int)draw_below(d, 6);
    size_t bytes;
    if (attn_product_workspace_size(&larger, &options, &bytes, &error)) fail(&larger, "no size", &error);
    const size_t off = (size_t)draw_below(d, 64);
    unsigned char *workspace = malloc(bytes + off + 1);
    memset(workspace, 0xFF, bytes + off);
    if (attn_product_in(&p, a.memory, b.memory, again.memory, workspace + off, bytes, &options, &error))
        fail(&p, "refused in the workspace of a larger one", &error);
    if (memcmp(again.memory, c.memory, c.bytes) != 0) fail(&p, "other bits with other threads", NULL);
    free(workspace), free(a.memory), free(b.memory), free(c.memory), free(before.memory), free(again.memory);
}

static uint64_t value_of(const char *text, const char *name, uint64_t otherwise)
{
    const size_t n = strlen(name);
    return strncmp(text, name, n) ? otherwise : strtoull(text + n, NULL, 10);
}

int main(int count, char **arguments)
{
    uint64_t seconds = 5, cases = UINT64_MAX, first = 0;
    for (int i = 1; i < count; i++) {
        seconds = value_of(arguments[i], "--seconds=", seconds);
        seed = value_of(arguments[i], "--seed=", seed);
        first = value_of(arguments[i], "--first=", first);
        cases = value_of(arguments[i], "--cases=", cases);
    }
    const time_t begin = time(NULL);
    for (number = first; number - first < cases && (uint64_t)(time(NULL) - begin) < seconds; number++) {
        const uint64_t name[2] = {seed, number};
        draws mixed = draws_from((const uint8_t *)name, sizeof name);
        mixed.left = 0;
        run(&mixed);
    }
    printf("seed %" PRIu64 ": %" PRIu64 " products\n", seed, number - first);
    return 0;
}
