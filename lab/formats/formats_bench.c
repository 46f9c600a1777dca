/* SPDX-License-Identifier: MIT
 *
 * formats_bench.c - decoding over caches in each format, as a share of reading their bytes: one thread's CPU time, all formats and
 * reads in turn, so that what else the machine does meets them alike.
 *
 *      cc -O2 -march=native -Iinclude lab/formats/formats_bench.c -lattn -lm
 *      ./a.out [keys] [query heads] [key heads] [head size] [rounds] [MB]
 *
 * MB: bytes of each format's caches, which are gone through in turn; those of all are more than the last-level cache holds.  Prints
 * the best decile, in ns a key.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "attn/cache.h"

enum { FORMATS = 9, MOST = 400 };

static const attn_dtype formats[FORMATS] = {ATTN_BF16, ATTN_I8,      ATTN_Q8_0,    ATTN_Q4_0, ATTN_Q4_1,
                                            ATTN_F16,  ATTN_F8_E4M3, ATTN_F8_E5M2, ATTN_Q4_1C}; /* with values of q4_1 */
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

/* Bytes that are numbers of moderate size. */
static char *fill(attn_dtype dtype, size_t bytes)
{
    const size_t size = attn_dtype_size(dtype);
    char *p = malloc(bytes + 4096);
    for (size_t i = 0; p && i < bytes + 4096; i++) p[i] = (char)(i * 2654435761u >> 13);
    for (size_t i = 0; p && i + size <= bytes; i += size) {
        if (dtype == ATTN_BF16 || dtype == ATTN_F16) p[i + 1] = (char)(0x3c | (p[i + 1] & 0x81));
        if (dtype == ATTN_F8_E4M3 || dtype == ATTN_F8_E5M2) p[i] &= (char)0xbf;
        if (size > 2) memcpy(p + i, "\x00\x20\x00\x20", size == 20 ? 4 : 2); /* 2^-7 */
    }
    return p;
}

int main(int argc, char **argv)
{
    const int64_t keys = argument(argc, argv, 1, 32768), heads = argument(argc, argv, 2, 32), groups = argument(argc, argv, 3, 8),
                  dim = argument(argc, argv, 4, 128), megabytes = argument(argc, argv, 6, 150);
    const int rounds = (int)argument(argc, argv, 5, 40);
    const int64_t rows = keys * groups;
    const size_t whole = (size_t)megabytes << 20;
    float *q = calloc((size_t)(heads * dim), 4), *o = calloc((size_t)(heads * dim), 4), *row = calloc((size_t)dim, 4);
    float *scales = calloc((size_t)rows, 4);
    uint16_t *tail = calloc((size_t)(groups * ATTN_TAIL * dim), 2);
    attn_error error;
    for (int64_t i = 0; i < heads * dim; i++) q[i] = (float)((i * 7919) % 1000) / 500 - 1;
    for (int64_t i = 0; i < rows; i++) scales[i] = 0.01F;
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
            static char *memory[FORMATS];
            if (!memory[f]) memory[f] = fill(dtype, whole);
            if (!memory[f]) return 1;
            if (!plans[f]) {
                attn_problem p = {.struct_size = sizeof p, .shape = {1, heads, groups, 1, keys, dim, dim}};
                t[f] = (attn_tensors){.struct_size = sizeof t[f], .q = attn_in(q), .o = attn_out(o)};
                t[f].k = t[f].v = (attn_input){memory[f], dtype, {0, 0, 0, 0}};
                if (dtype == ATTN_I8) t[f].k_scale = t[f].v_scale = attn_in(scales);
                if (dtype == ATTN_Q4_1C) t[f].v.dtype = ATTN_Q4_1, t[f].k_tail = attn_in(tail);
                if (attn_plan_create(&plans[f], &p, &t[f], &options, &error) != ATTN_OK) {
                    if (n == 0) printf("%s: %s\n", attn_dtype_name(dtype), error.message);
                    continue;
                }
                workspace[f] = malloc(attn_plan_workspace_size(plans[f]) + 64);
            }
            if (at[f] + 2 * bytes > whole) at[f] = 0;
            char *k = memory[f] + at[f], *v = k + bytes;
            at[f] += 2 * bytes;
            t[f].k.data = k, t[f].v.data = v;
            const double start = now();
            if (attn_execute(plans[f], &t[f], workspace[f], attn_plan_workspace_size(plans[f]), &error) != ATTN_OK)
                printf("%s\n", error.message);
            samples[f][n] = now() - start;
            char *again = memory[f] + (at[f] + 2 * bytes > whole ? 0 : at[f]); /* not those just read */
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
