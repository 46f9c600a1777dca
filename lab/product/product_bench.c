/* SPDX-License-Identifier: MIT
 *
 * product_bench.c - attn_product against a BLAS, alternately in one process: the three products of a projection.
 *
 *      cc -O2 -Iinclude lab/product/product_bench.c -Lbuild/release/lib -lattn $(pkg-config --cflags --libs openblas) -lm -o
 * product_bench product_bench [THREADS [SECONDS [32|64 [TOKENS DIM]]]]
 *
 * A turn repeats one product for 5 ms or more; between turns the threads of the other go to sleep.  Times are the best decile.
 */
#define _POSIX_C_SOURCE 200809L
#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "attn/product.h"

extern void openblas_set_num_threads(int count);

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

typedef struct product {
    const char *name;
    int64_t m, n, k;
    int ta, tb;
} product;

static int bits = 32;
static attn_options options = {.struct_size = sizeof options};

static void ours(const product *p, const void *a, const void *b, void *c)
{
    attn_product_problem q = {
        .struct_size = sizeof q, .dtype = bits == 64 ? ATTN_F64 : ATTN_F32, .rows = p->m, .columns = p->n, .inner = p->k};
    attn_product_tensors t = {.struct_size = sizeof t,
                              .a = p->ta ? attn_transposed(a, p->m) : attn_in(a),
                              .b = p->tb ? attn_transposed(b, p->k) : attn_in(b),
                              .c = attn_out(c)};
    attn_error error;
    if (attn_product(&q, &t, &options, &error) != ATTN_OK) fprintf(stderr, "%s\n", error.message), exit(1);
}

static void blas(const product *p, const void *a, const void *b, void *c)
{
    const CBLAS_TRANSPOSE ta = p->ta ? CblasTrans : CblasNoTrans, tb = p->tb ? CblasTrans : CblasNoTrans;
    const int m = (int)p->m, n = (int)p->n, k = (int)p->k, lda = p->ta ? m : k, ldb = p->tb ? k : n;
    if (bits == 64) cblas_dgemm(CblasRowMajor, ta, tb, m, n, k, 1, a, lda, b, ldb, 0, c, n);
    else cblas_sgemm(CblasRowMajor, ta, tb, m, n, k, 1, a, lda, b, ldb, 0, c, n);
}

typedef void candidate(const product *, const void *, const void *, void *);

static double turn(candidate *f, const product *p, const void *a, const void *b, void *c, int reps, int gap)
{
    if (gap) nanosleep(&(struct timespec){0, 30000000}, NULL);
    f(p, a, b, c);
    const double start = now();
    for (int i = 0; i < reps; i++) f(p, a, b, c);
    return (now() - start) / reps;
}

static int by_size(const void *x, const void *y)
{
    const double a = *(const double *)x, b = *(const double *)y;
    return a < b ? -1 : a > b;
}

static void *matrix(int64_t count)
{
    const size_t size = (size_t)bits / 8;
    void *m = aligned_alloc(64, ((size_t)count * size + 63) / 64 * 64);
    for (int64_t i = 0; i < count; i++) {
        const double x = (double)rand() / RAND_MAX - 0.5;
        if (bits == 64) ((double *)m)[i] = x;
        else ((float *)m)[i] = (float)x;
    }
    return m;
}

static double largest_difference(const void *x, const void *y, int64_t count)
{
    double most = 0;
    for (int64_t i = 0; i < count; i++) {
        const double d = bits == 64 ? ((const double *)x)[i] - ((const double *)y)[i]
                                    : (double)((const float *)x)[i] - (double)((const float *)y)[i];
        if (d > most || -d > most) most = d > 0 ? d : -d;
    }
    return most;
}

static void measure(const product *p, int64_t dim, int64_t tokens, int threads, double seconds)
{
    enum { CAPACITY = 4000 };
    static double t[2][CAPACITY];
    candidate *const f[2] = {ours, blas};
    void *a = matrix(p->m * p->k), *b = matrix(p->n * p->k), *c = matrix(p->m * p->n), *d = matrix(p->m * p->n);
    ours(p, a, b, c), blas(p, a, b, d);
    const double off = largest_difference(c, d, p->m * p->n);
    double once = now();
    blas(p, a, b, c);
    once = now() - once;
    const int reps = once > 5e-3 ? 1 : (int)(5e-3 / once) + 1, gap = threads > 1;
    int n = 0;
    for (double start = now(); n < CAPACITY && (n < 5 || now() - start < seconds); n++)
        for (int i = 0; i < 2; i++) t[(n + i) % 2][n] = turn(f[(n + i) % 2], p, a, b, c, reps, gap);
    for (int i = 0; i < 2; i++) qsort(t[i], (size_t)n, sizeof t[i][0], by_size);
    const double us[2] = {t[0][n / 10] * 1e6, t[1][n / 10] * 1e6}, mid[2] = {t[0][n / 2], t[1][n / 2]};
    const double work = 2.0 * (double)p->m * (double)p->n * (double)p->k;
    printf(
        "f%d %d thr  dim %5lld tokens %5lld %-9s  ours %10.2f us %6.1f GF  blas %10.2f us  ratio %5.2f (median %5.2f)  off %.1e\n",
        bits, threads, (long long)dim, (long long)tokens, p->name, us[0], work / us[0] / 1e3, us[1], us[1] / us[0], mid[1] / mid[0],
        off);
    fflush(stdout);
    free(a), free(b), free(c), free(d);
}

int main(int argc, char **argv)
{
    static const int64_t dims[] = {64, 512, 4096}, lengths[] = {1, 64, 4096};
    const int threads = argc > 1 ? atoi(argv[1]) : 1;
    const double seconds = argc > 2 ? atof(argv[2]) : 1;
    const char *only = argc > 6 ? argv[6] : NULL;
    if (argc > 3) bits = atoi(argv[3]);
    options.threads = threads;
    openblas_set_num_threads(threads);
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++) {
            const int64_t dim = dims[i], tokens = lengths[j];
            if (argc > 5 && ((atoll(argv[4]) && atoll(argv[4]) != tokens) || (atoll(argv[5]) && atoll(argv[5]) != dim))) continue;
            const product all[] = {
                {"to heads", tokens, dim, dim, 0, 1}, {"to model", tokens, dim, dim, 0, 0}, {"gradient", dim, dim, tokens, 1, 0}};
            for (int k = 0; k < 3; k++)
                if (!only || strcmp(only, all[k].name) == 0) measure(&all[k], dim, tokens, threads, seconds);
        }
    return 0;
}
