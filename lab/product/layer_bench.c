/* SPDX-License-Identifier: MIT
 *
 * layer_bench.c - attn_layer_forward and attn_layer_backward of two builds of libattn_layers, in one process, by turns: one that
 * projects with attn_product, and an older one that does so with a BLAS.  Both use the same libattn.
 *
 *      cc -O2 -Iinclude lab/product/layer_bench.c -ldl -o layer_bench
 *      layer_bench NEW.so OLD.so [THREADS [SECONDS]]              OPENBLAS_NUM_THREADS=THREADS
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "attn/layers.h"

typedef attn_status forward(const attn_layer *, const attn_layer_weights *, const attn_layer_args *, attn_error *);
typedef attn_status backward(const attn_layer *, const attn_layer_weights *, const attn_layer_args *, const attn_layer_weights *,
                             attn_error *);
typedef attn_status count(const attn_layer *, const attn_layer_weights *, int64_t, int64_t, int64_t, attn_layer_counts *,
                          attn_error *);

typedef struct build {
    forward *forward;
    backward *backward;
    count *count;
} build;

static build load(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) fprintf(stderr, "%s\n", dlerror()), exit(1);
    build b;
    *(void **)&b.forward = dlsym(library, "attn_layer_forward");
    *(void **)&b.backward = dlsym(library, "attn_layer_backward");
    *(void **)&b.count = dlsym(library, "attn_layer_count");
    return b;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static float *drawn(int64_t n)
{
    float *x = aligned_alloc(64, ((size_t)n * sizeof *x + 63) / 64 * 64);
    for (int64_t i = 0; i < n; i++) x[i] = ((float)rand() / (float)RAND_MAX - 0.5f) / 8;
    return x;
}

static int by_size(const void *x, const void *y)
{
    const double a = *(const double *)x, b = *(const double *)y;
    return a < b ? -1 : a > b;
}

static attn_layer layer;
static attn_layer_weights weights, gradients;
static attn_layer_args args;

static double turn(const build *b, int back, int reps, int gap)
{
    attn_error error;
    double start = 0;
    if (gap) nanosleep(&(struct timespec){0, 30000000}, NULL);
    for (int i = -1; i < reps; i++) {
        if (i == 0) start = now();
        const attn_status s =
            back ? b->backward(&layer, &weights, &args, &gradients, &error) : b->forward(&layer, &weights, &args, &error);
        if (s != ATTN_OK) fprintf(stderr, "%s\n", error.message), exit(1);
    }
    return (now() - start) / reps;
}

static void measure(const build *b, int back, int threads, double seconds)
{
    enum { MOST = 4000 };
    static double t[2][MOST];
    double once = turn(&b[1], back, 1, 0);
    const int reps = once > 5e-3 ? 1 : (int)(5e-3 / once) + 1;
    int n = 0;
    for (double start = now(); n < MOST && (n < 5 || now() - start < seconds); n++)
        for (int i = 0; i < 2; i++) t[(n + i) % 2][n] = turn(&b[(n + i) % 2], back, reps, threads > 1);
    for (int i = 0; i < 2; i++) qsort(t[i], (size_t)n, sizeof(double), by_size);
    printf("dim %5lld tokens %5lld %-8s %d thr  attn_product %10.2f us  blas %10.2f us  ratio %.2f (median %.2f)\n",
           (long long)layer.dim_model, (long long)args.len_q, back ? "backward" : "forward", threads, t[0][n / 10] * 1e6,
           t[1][n / 10] * 1e6, t[1][n / 10] / t[0][n / 10], t[1][n / 2] / t[0][n / 2]);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static const int64_t dims[] = {64, 512, 4096}, lengths[] = {1, 64, 4096};
    if (argc < 3) return 1;
    const build b[2] = {load(argv[1]), load(argv[2])};
    const int threads = argc > 3 ? atoi(argv[3]) : 1;
    const double seconds = argc > 4 ? atof(argv[4]) : 1;
    const attn_options options = {.struct_size = sizeof options, .threads = threads};
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++) {
            const int64_t dim = dims[i], tokens = lengths[j], n = dim * tokens;
            if (dim == 4096 && tokens == 4096 && seconds < 2) continue;
            attn_layer_counts counts = {.struct_size = sizeof counts};
            float *w[8];
            for (int k = 0; k < 8; k++) w[k] = drawn(dim * dim);
            layer = (attn_layer){.struct_size = sizeof layer, .dim_model = dim, .heads_q = dim / 64};
            weights = (attn_layer_weights){.struct_size = sizeof weights,
                                           .query = {.weight = w[0]},
                                           .key = {.weight = w[1]},
                                           .value = {.weight = w[2]},
                                           .output = {.weight = w[3]}};
            gradients = (attn_layer_weights){.struct_size = sizeof weights,
                                             .query = {.weight = w[4]},
                                             .key = {.weight = w[5]},
                                             .value = {.weight = w[6]},
                                             .output = {.weight = w[7]}};
            if (b[0].count(&layer, &weights, 1, tokens, tokens, &counts, NULL) != ATTN_OK) return 1;
            args = (attn_layer_args){.struct_size = sizeof args,
                                     .batch = 1,
                                     .len_q = tokens,
                                     .query = {drawn(n), 0, 0},
                                     .output = {drawn(n), 0, 0},
                                     .saved = malloc((size_t)counts.saved_bytes),
                                     .options = &options,
                                     .grad_output = {drawn(n), 0, 0},
                                     .grad_query = {drawn(n), 0, 0}};
            measure(b, 0, threads, seconds);
            measure(b, 1, threads, seconds);
            for (int k = 0; k < 8; k++) free(w[k]);
            free(args.query.data), free(args.output.data), free(args.saved), free(args.grad_output.data),
                free(args.grad_query.data);
        }
    return 0;
}
