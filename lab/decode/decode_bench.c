/* SPDX-License-Identifier: MIT
 *
 * decode_bench.c - the decode kernels without the scheduler: one thread, `rows` queries for each of 8 key heads, compared with
 * plain reads of the same memory between the samples.
 *
 *      kernels=src/core/kernels
 *      cc -O3 -Iinclude lab/decode/decode_bench.c $kernels/registry.c $kernels/{scalar,avx2,avx512}/[a-z]*.c \
 *          src/core/base/cpu.c -lm
 *      ./a.out [kernel's name] [type] [keys] [head size] [rows]
 *
 * Environment: PIECE keys per call (default: 16 KB of them), BLOCK keys per block (512), FETCH the prefetch distance (0 none, 1 the
 * next piece, 2 interleaved: keys prefetch keys and values prefetch values of the next block), PAGES=0 does not prefetch a line of
 * each page of the next piece, PHASES 1 keys only, 2 values only (3), FAR=0 keys from a cache, HUGE=1 pages of 2 MB, MS
 * milliseconds (2000).
 */
#define _DEFAULT_SOURCE /* madvise */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <sys/mman.h>

#include "../../src/core/base/cpu.h"
#include "../../src/core/kernels/kernel.h"

enum { HEADS = 8 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int64_t number(const char *name, int64_t otherwise) { return getenv(name) ? atoll(getenv(name)) : otherwise; }

static void read_all(const char *p, size_t bytes)
{
    __asm__ volatile("1:\n vmovdqu (%0), %%ymm0\n vmovdqu 32(%0), %%ymm1\n vmovdqu 64(%0), %%ymm2\n vmovdqu 96(%0), %%ymm3\n"
                     "add $128, %0\n sub $128, %1\n ja 1b\n vzeroupper\n"
                     : "+r"(p), "+r"(bytes)
                     :
                     : "xmm0", "xmm1", "xmm2", "xmm3", "cc", "memory");
}

typedef struct problem {
    const attn_decode_part *kernel;
    attn_dtype dtype;
    int64_t size, keys, dim, rows, block, piece, mode, phases, lds;
    int pages, far;
    char *K, *V;
    float *Q, *S, *O, *m, *l;
    const attn_decode_pairs_part *pairs;
    const attn_fixed_point_part *integers; /* NULL: i8 takes the path of the other types */
    char *integer_queries, *integer_weights;
    int32_t *sums;
} problem;

/* Interleaved: K and V of the next block, alternating over both phases. */
static int64_t beside(const problem *p, const char *K, const char *V, const char *here, int64_t turn, int64_t n)
{
    const int64_t row = p->dim * p->size, at = (n + turn / 2 * p->piece) * row;
    return (turn % 2 ? V : K) + at - here;
}

static void dots(const problem *p, int64_t j, int64_t n, const char *K, int64_t fetch)
{
    if (p->integers)
        p->integers->dots(p->rows, n, p->dim, p->integer_queries, ATTN_FIXED_POINT_BYTES(p->dim), K, p->dim, p->S + j, p->lds,
                          fetch);
    else if (p->dtype == ATTN_BF16 && p->pairs)
        p->pairs->dots(p->rows, n, p->dim, p->Q, p->dim, K, p->dim, p->S + j, p->lds, fetch, p->far);
    else p->kernel->dots(p->rows, n, p->dim, p->Q, p->dim, K, p->dtype, p->dim, p->S + j, p->lds, fetch, p->far);
}

static void add_values(const problem *p, int64_t j, int64_t n, const char *V, int64_t fetch)
{
    if (p->integers)
        p->integers->add_values(p->rows, n, p->dim, p->integer_weights, ATTN_FIXED_POINT_BYTES(p->block), j, V, p->dim, p->sums,
                                fetch);
    else p->kernel->add_values(p->rows, n, p->dim, p->S + j, p->lds, V, p->dtype, p->dim, p->O, p->dim, fetch, p->far);
}

/* Prefetches from `next` as the scheduler does.  Not __builtin_prefetch: gcc considers a function with nothing else free of side
 * effects, and drops calls of it. */
static void prefetch_pages(const problem *p, const char *next)
{
    for (int64_t at = 0; p->pages && at < p->piece * p->dim * p->size; at += ATTN_PAGE)
        __asm__ volatile("prefetcht0 %0" : : "m"(next[at]));
}

static void one_block(const problem *p, int64_t h, int64_t j0, int64_t n)
{
    const int64_t row = p->dim * p->size;
    const char *K = p->K + (h * p->keys + j0) * row, *V = p->V + (h * p->keys + j0) * row;
    for (int64_t j = 0; j < n && p->phases & 1; j += p->piece) {
        int64_t count = n - j < p->piece ? n - j : p->piece;
        int64_t fetch = p->mode == 0 ? 0 : p->mode == 2 ? p->block * row : p->piece * row;
        if (p->mode == 1 && j + p->piece >= n && p->phases & 2) fetch = V - (K + j * row);
        if (p->mode == 3) fetch = V + j * row - (K + j * row);
        if (p->mode == 4) fetch = beside(p, K, V, K + j * row, j / p->piece, n);
        if (p->mode >= 16) fetch = p->mode * 64;
        if (p->mode == 1) prefetch_pages(p, K + j * row + fetch);
        dots(p, j, count, K + j * row, fetch);
    }
    for (int64_t r = 0; r < p->rows; r++) p->kernel->exponentiate_row(n, p->S + r * p->lds, p->m + r, p->l + r);
    memset(p->O, 0, (size_t)(p->rows * p->dim) * 4);
    if (p->integers) {
        const int64_t bytes = ATTN_FIXED_POINT_BYTES(p->block);
        for (int64_t r = 0; r < p->rows; r++)
            p->integers->convert_weights(n, p->S + r * p->lds, p->integer_weights + r * bytes, bytes);
        memset(p->sums, 0, (size_t)(p->rows * ATTN_FIXED_POINT_SUMS(p->dim)) * 4);
    }
    for (int64_t j = 0; j < n && p->phases & 2; j += p->piece) {
        int64_t count = n - j < p->piece ? n - j : p->piece;
        int64_t fetch = p->mode == 0 ? 0 : p->mode == 2 ? p->block * row : p->piece * row;
        if (p->mode == 1 && j + p->piece >= n && p->phases & 1) fetch = K + n * row - (V + j * row);
        if (p->mode == 3) fetch = K + (n + j) * row - (V + j * row);
        if (p->mode == 4) fetch = beside(p, K, V, V + j * row, n / p->piece + j / p->piece, n);
        if (p->mode >= 16) fetch = p->mode * 64;
        if (p->mode == 1) prefetch_pages(p, V + j * row + fetch);
        add_values(p, j, count, V + j * row, fetch);
    }
    for (int64_t r = 0; p->integers && r < p->rows; r++)
        p->integers->output(p->dim, p->integer_weights + r * ATTN_FIXED_POINT_BYTES(p->block),
                            p->sums + r * ATTN_FIXED_POINT_SUMS(p->dim), p->O + r * p->dim, p->dim);
}

int main(int argc, char **argv)
{
    static const char *const types[] = {"", "f32", "f64", "f16", "bf16", "bool", "i8"};
    problem p = {
        .keys = argc > 3 ? atoll(argv[3]) : 32768, .dim = argc > 4 ? atoll(argv[4]) : 128, .rows = argc > 5 ? atoll(argv[5]) : 4};
    const char *name = argc > 1 ? argv[1] : "attn_dec_f32";
    const attn_kernel_row *row;
    attn_kernel kernel;
    for (int i = 0; (row = attn_kernel_at(i)); i++)
        if (row->decode && strstr(row->name, name)) break;
    if (!row) return 1;
    attn_kernel_assemble(row, &kernel);
    p.kernel = kernel.decode, p.pairs = kernel.decode_pairs;
    for (int t = 1; t < 7; t++)
        if (argc > 2 && strcmp(argv[2], types[t]) == 0) p.dtype = (attn_dtype)t;
    if (!p.dtype) p.dtype = ATTN_F32;
    p.size = p.dtype == ATTN_F32 ? 4 : p.dtype == ATTN_I8 ? 1 : 2;
    p.integers = p.dtype == ATTN_I8 ? kernel.fixed_point : NULL;
    p.block = number("BLOCK", 512), p.piece = number("PIECE", 16384 / (p.dim * p.size)), p.mode = number("FETCH", 1);
    p.lds = p.block + 16, p.phases = number("PHASES", 3);
    p.pages = (int)number("PAGES", 1), p.far = (int)number("FAR", 1);
    int64_t padded = (p.rows + 3) / 4 * 4;
    size_t bytes = (size_t)(HEADS * p.keys * p.dim * p.size);
    p.K = aligned_alloc(2 << 20, (bytes + (2 << 20) - 1) >> 21 << 21),
    p.V = aligned_alloc(2 << 20, (bytes + (2 << 20) - 1) >> 21 << 21);
    if (number("HUGE", 0)) madvise(p.K, bytes, MADV_HUGEPAGE), madvise(p.V, bytes, MADV_HUGEPAGE);
    p.Q = aligned_alloc(64, (size_t)(padded * p.dim) * 4), p.O = aligned_alloc(64, (size_t)(padded * p.dim) * 4);
    p.S = aligned_alloc(64, (size_t)(padded * p.lds) * 4), p.m = calloc(64, 4), p.l = calloc(64, 4);
    p.integer_queries = aligned_alloc(64, (size_t)(padded * ATTN_FIXED_POINT_BYTES(p.dim)));
    p.integer_weights = aligned_alloc(64, (size_t)(padded * ATTN_FIXED_POINT_BYTES(p.block)));
    p.sums = aligned_alloc(64, (size_t)(padded * ATTN_FIXED_POINT_SUMS(p.dim)) * 4);
    if (p.size == 4)
        for (size_t i = 0; i < bytes / 4; i++) ((float *)p.K)[i] = (float)((i * 7919) % 1000) / 1000, ((float *)p.V)[i] = 1;
    else
        for (size_t i = 0; i < bytes / 2; i++)
            ((uint16_t *)p.K)[i] = (uint16_t)(0x3000 + (i * 7919) % 1000), ((uint16_t *)p.V)[i] = 0x3c00;
    for (int64_t i = 0; i < padded * p.dim; i++) p.Q[i] = 0.001f;
    for (int64_t r = 0; p.integers && r < padded; r++)
        p.integers->convert_query(p.dim, p.Q + r * p.dim, p.integer_queries + r * ATTN_FIXED_POINT_BYTES(p.dim));

    enum { CAPACITY = 4096 };
    static double share[CAPACITY], took[CAPACITY], rate[CAPACITY];
    int count = 0;
    double begin = now(), seconds = 1e-3 * (double)number("MS", 2000);
    while (now() - begin < seconds && count < CAPACITY) {
        double t0 = now();
        read_all(p.K, bytes);
        read_all(p.V, bytes);
        double t1 = now();
        for (int64_t h = 0; h < HEADS; h++)
            for (int64_t j = 0; j < p.keys; j += p.block) one_block(&p, h, j, p.keys - j < p.block ? p.keys - j : p.block);
        double t2 = now();
        share[count] = (t1 - t0) / (t2 - t1), took[count] = t2 - t1, rate[count++] = 2 * (double)bytes / (t1 - t0) / 1e9;
    }
    qsort(share, (size_t)count, sizeof *share, by_value);
    qsort(took, (size_t)count, sizeof *took, by_value);
    qsort(rate, (size_t)count, sizeof *rate, by_value);
    double each = took[count / 2] / (double)(HEADS * p.keys);
    printf("%s %-4s keys %6lld rows %2lld block %4lld piece %3lld fetch %3lld: %5.1f ns a key, %5.1f GB/s, read %5.1f GB/s, share "
           "%5.1f "
           "(best %5.1f) %%; FMA %5.1f GFLOP/s\n",
           row->name, types[p.dtype], (long long)p.keys, (long long)p.rows, (long long)p.block, (long long)p.piece,
           (long long)p.mode, each * 1e9, (double)(2 * p.dim * p.size) / each / 1e9, rate[count / 2], 100 * share[count / 2],
           100 * share[count * 9 / 10], (double)(4 * p.rows * p.dim) / each / 1e9);
    return 0;
}
