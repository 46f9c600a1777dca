/* SPDX-License-Identifier: MIT
 *
 * layer_bench.c - a layer of dim_model channels, 64 per head, forward or backward: the best decile of one call, in us.  To compare
 * two builds, run theirs alternately; -DBEFORE_SLOTS is for builds up to 7ceb6ab, which projected with a BLAS, and -DREAL=double
 * for f64.
 *
 *      cc -O2 -Iinclude lab/product/layer_bench.c -L build/release/lib -lattn_layers -lattn -o layer_bench
 *      layer_bench DIM_MODEL TOKENS forward|backward [THREADS [SECONDS]]          OPENBLAS_NUM_THREADS=THREADS
 */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "attn/layers.h"

#ifdef BEFORE_SLOTS
#define MATRIX(x)                                                                                                                  \
    {                                                                                                                              \
        .weight = (x)                                                                                                              \
    }
typedef attn_layer_args tensors;
#else
#define MATRIX(x)                                                                                                                  \
    {                                                                                                                              \
        .data = (x)                                                                                                                \
    }
typedef attn_layer_tensors tensors;
#endif

#ifndef REAL
#define REAL float
#endif

enum { CAPACITY = 4000 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static REAL *drawn(int64_t n)
{
    REAL *x = aligned_alloc(64, ((size_t)n * sizeof *x + 63) / 64 * 64);
    for (int64_t i = 0; i < n; i++) x[i] = ((REAL)rand() / (REAL)RAND_MAX - (REAL)0.5) / 8;
    return x;
}

static int by_size(const void *x, const void *y)
{
    const double a = *(const double *)x, b = *(const double *)y;
    return a < b ? -1 : a > b;
}

int main(int argc, char **argv)
{
    if (argc < 4) return fprintf(stderr, "layer_bench DIM_MODEL TOKENS forward|backward [THREADS [SECONDS]]\n"), 2;
    const int64_t dim = atoll(argv[1]), count = atoll(argv[2]), n = dim * count;
    const int back = strcmp(argv[3], "backward") == 0;
    const attn_options options = {.struct_size = sizeof options, .threads = argc > 4 ? atoi(argv[4]) : 1};
    const double seconds = argc > 5 ? atof(argv[5]) : 1;
    static double sample[CAPACITY];
    REAL *w[8];
    attn_error error;
    attn_layer_counts counts = {.struct_size = sizeof counts};
    for (int k = 0; k < 8; k++) w[k] = drawn(dim * dim);
    const attn_layer layer = {
        .struct_size = sizeof layer, .dtype = sizeof(REAL) == 8 ? ATTN_F64 : ATTN_F32, .dim_model = dim, .heads_q = dim / 64};
    const attn_layer_weights weights = {.struct_size = sizeof weights,
                                        .query = MATRIX(w[0]),
                                        .key = MATRIX(w[1]),
                                        .value = MATRIX(w[2]),
                                        .output = MATRIX(w[3])},
                             gradients = {.struct_size = sizeof gradients,
                                          .query = MATRIX(w[4]),
                                          .key = MATRIX(w[5]),
                                          .value = MATRIX(w[6]),
                                          .output = MATRIX(w[7])};
    if (attn_layer_count(&layer, 1, count, count, &weights, &counts, &error)) return puts(error.message), 1;
    const tensors t = {.struct_size = sizeof t,
                       .batch = 1,
                       .len_q = count,
                       .query = {.data = drawn(n)},
                       .output = {.data = drawn(n)},
                       .saved = malloc((size_t)counts.saved_bytes),
                       .options = &options,
                       .grad_output = {.data = drawn(n)},
                       .grad_query = {.data = drawn(n)}};
    if (attn_layer_forward(&layer, &weights, &t, &error)) return puts(error.message), 1;
    int reps = 1, samples = 0;
    for (const double start = now(); samples < CAPACITY && (samples < 5 || now() - start < seconds);) {
        const double begin = now();
        for (int i = 0; i < reps; i++)
            if (back ? attn_layer_backward(&layer, &weights, &t, &gradients, &error)
                     : attn_layer_forward(&layer, &weights, &t, &error))
                return puts(error.message), 1;
        const double took = now() - begin;
        if (took < 2e-3 && reps < 1 << 20) reps *= 2;
        else sample[samples++] = took / reps;
    }
    qsort(sample, (size_t)samples, sizeof *sample, by_size);
    printf("%.3f\n", sample[samples / 10] * 1e6);
    return 0;
}
