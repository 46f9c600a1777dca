/* SPDX-License-Identifier: MIT
 *
 * formats_bench.c - decoding over caches in each format, as a share of reading their bytes: one thread's CPU time, all formats and
 * reads in turn, so that what else the machine does meets them alike.
 *
 *      cc -O2 -march=native -Iinclude lab/formats/formats_bench.c -lattn -lm
 *      ./a.out [keys] [query heads] [key heads] [head size] [rounds] [MB]
 *
 * MB: bytes of caches that are gone through in turn, more than the last-level cache holds.  Prints the best decile, in ns a key.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "attn/cache.h"

enum { FORMATS = 8, MOST = 400 };

static const attn_dtype formats[FORMATS] = {ATTN_BF16, ATTN_I8,  ATTN_Q8_0,    ATTN_Q4_0,
                                            ATTN_Q4_1, ATTN_F16, ATTN_F8_E4M3, ATTN_F8_E5M2};
static double samples[FORMATS][MOST], reads[FORMATS][MOST];

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double decile(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, by_value);
    return x[n / 10];
}

static void read_all(const char *p, size_t bytes)
{
    __asm__ volatile("1:\n vmovdqu (%0), %%ymm0\n vmovdqu 32(%0), %%ymm1\n vmovdqu 64(%0), %%ymm2\n vmovdqu 96(%0), %%ymm3\n"
                     "add $128, %0\n sub $128, %1\n ja 1b\n vzeroupper\n"
                     : "+r"(p), "+r"(bytes)
                     :
                     : "xmm0", "xmm1", "xmm2", "xmm3", "cc", "memory");
}

static int64_t argument(int argc, char **argv, int n, int64_t otherwise) { return argc > n ? atoll(argv[n]) : otherwise; }

int main(int argc, char **argv)
{
    const int64_t keys = argument(argc, argv, 1, 32768), heads = argument(argc, argv, 2, 32), groups = argument(argc, argv, 3, 8),
                  dim = argument(argc, argv, 4, 128), megabytes = argument(argc, argv, 6, 600);
    const int rounds = (int)argument(argc, argv, 5, 40);
    const int64_t rows = keys * groups;
    const size_t whole = (size_t)megabytes << 20;
    float *q = calloc((size_t)(heads * dim), 4), *o = calloc((size_t)(heads * dim), 4), *row = calloc((size_t)dim, 4);
    float *scales = calloc((size_t)rows, 4);
    char *memory = malloc(whole + 4096);
    attn_error error;
    for (int64_t i = 0; i < heads * dim; i++) q[i] = (float)((i * 7919) % 1000) / 500 - 1;
    for (int64_t i = 0; i < rows; i++) scales[i] = 0.01F;
    for (size_t i = 0; i < whole; i++) memory[i] = (char)(i * 40503 >> 7);
    for (int n = 0; n < rounds && n < MOST; n++)
        for (int f = 0; f < FORMATS; f++) {
            static attn_plan *plans[FORMATS];
            static void *workspace[FORMATS];
            static size_t at[FORMATS];
            static attn_tensors t[FORMATS];
            const attn_dtype dtype = formats[f];
            const int64_t block = dtype >= ATTN_Q8_0 ? ATTN_BLOCK : 1;
            const size_t bytes = (size_t)(rows * dim / block) * attn_dtype_size(dtype);
            const attn_options options = {.struct_size = sizeof options, .threads = 1};
            if (!plans[f]) {
                attn_problem p = {.struct_size = sizeof p, .shape = {1, heads, groups, 1, keys, dim, dim}};
                t[f] = (attn_tensors){.struct_size = sizeof t[f], .q = attn_in(q), .o = attn_out(o)};
                t[f].k = t[f].v = (attn_input){memory, dtype, {0, 0, 0, 0}};
                if (dtype == ATTN_I8) t[f].k_scale = t[f].v_scale = attn_in(scales);
                if (attn_plan_create(&plans[f], &p, &t[f], &options, &error) != ATTN_OK) {
                    if (n == 0) printf("%s: %s\n", attn_dtype_name(dtype), error.message);
                    continue;
                }
                workspace[f] = malloc(attn_plan_workspace_size(plans[f]) + 64);
            }
            if (at[f] + 2 * bytes > whole) at[f] = 0;
            char *k = memory + at[f], *v = k + bytes;
            at[f] += 2 * bytes;
            /* Blocks whose scales are in range: their content does not matter for time, but NaN and subnormal numbers would. */
            if (block > 1 && n * 2 * bytes < whole + 2 * bytes)
                for (size_t b = 0; b < 2 * bytes; b += attn_dtype_size(dtype)) memcpy(k + b, "\x00\x20\x00\x20", 4);
            if (dtype == ATTN_BF16 || dtype == ATTN_F16)
                for (size_t b = 1; b < 2 * bytes; b += 2) k[b] = (char)(0x3c | (k[b] & 0x81));
            t[f].k.data = k, t[f].v.data = v;
            const double start = now();
            if (attn_execute(plans[f], &t[f], workspace[f], attn_plan_workspace_size(plans[f]), &error) != ATTN_OK)
                printf("%s\n", error.message);
            samples[f][n] = now() - start;
            char *again = memory + (at[f] + 2 * bytes > whole ? 0 : at[f]); /* not those just read */
            const double middle = now();
            read_all(again, 2 * bytes);
            reads[f][n] = now() - middle;
        }
    for (int f = 0; f < FORMATS; f++) {
        const int64_t block = formats[f] >= ATTN_Q8_0 ? ATTN_BLOCK : 1;
        const double bytes = 2 * (double)(rows * dim / block) * (double)attn_dtype_size(formats[f]);
        const double time = decile(samples[f], rounds), read = decile(reads[f], rounds);
        printf("%-8s %6.2f ns a key, %5.1f GB/s; reads %5.1f GB/s; %3.0f %% of the stream\n", attn_dtype_name(formats[f]),
               1e9 * time / (double)rows, 1e-9 * bytes / time, 1e-9 * bytes / read, 100 * read / time);
    }
    return 0;
}
