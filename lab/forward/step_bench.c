/* SPDX-License-Identifier: MIT
 *
 * step_bench.c - the forward kernels without the scheduler: one head, one thread, as a share of the rate of an FMA loop between the
 * samples.  A sample is `group` query tiles against all keys, from packing to storing.
 *
 *      kernels=src/core/kernels
 *      cc -O3 -Iinclude lab/forward/step_bench.c $kernels/registry.c $kernels/{scalar,avx2,avx512}/[a-z]*.c src/core/base/cpu.c -lm
 *      ./a.out [kernel's name or part of it] [length] [head size ...]
 *
 * Environment: GROUP tiles that share a block (1), BLOCK keys per block (the kernel's), SAMPLES (400), WIDTH vectors per tile
 * (all), STRIDE of keys and values in rows (1), PHASES=1 times the scores separately, MODIFY=1 a mask or 2 a bias for each query
 * and key.
 */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../../src/core/base/cpu.h"
#include "../../src/core/kernels/kernel.h"

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* f32 GFLOP/s of 12 independent sums. */
#define FMA12(reg) reg("0") reg("1") reg("2") reg("3") reg("4") reg("5") reg("6") reg("7") reg("8") reg("9") reg("10") reg("11")
#define YMM(i)     "vfmadd231ps %%ymm12, %%ymm13, %%ymm" i "\n"
#define ZMM(i)     "vfmadd231ps %%zmm12, %%zmm13, %%zmm" i "\n"
#define ZERO(i)    "vxorps %%xmm" i ", %%xmm" i ", %%xmm" i "\n"
#define CLOBBERS                                                                                                                   \
    "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "cc"
static double ceiling(int wide)
{
    long turns = 2000, count = turns;
    double start = now();
    if (wide)
        __asm__ volatile(FMA12(ZERO) ZERO("12") ZERO("13") ".p2align 6\n1:\n" FMA12(ZMM) FMA12(ZMM) FMA12(ZMM)
                             FMA12(ZMM) "dec %0\n jnz 1b\n vzeroupper\n"
                         : "+r"(count)
                         :
                         : CLOBBERS);
    else
        __asm__ volatile(FMA12(ZERO) ZERO("12") ZERO("13") ".p2align 6\n1:\n" FMA12(YMM) FMA12(YMM) FMA12(YMM)
                             FMA12(YMM) "dec %0\n jnz 1b\n vzeroupper\n"
                         : "+r"(count)
                         :
                         : CLOBBERS);
    return (double)turns * 48 * (wide ? 32 : 16) / (now() - start) / 1e9;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static long option(const char *name, long otherwise) { return getenv(name) ? atol(getenv(name)) : otherwise; }

static void *memory(size_t bytes)
{
    void *p = aligned_alloc(4096, (bytes + 8191) / 4096 * 4096);
    if (!p) exit(1);
    memset(p, 0, bytes);
    return p;
}

static void fill(void *p, int wide, long n)
{
    static unsigned long long state = 88172645463325252ull;
    for (long i = 0; i < n; i++) {
        double x = 0;
        for (int k = 0; k < 4; k++) {
            state ^= state << 13, state ^= state >> 7, state ^= state << 17;
            x += (double)(state >> 11) * 0x1p-53 - 0.5;
        }
        if (wide) ((double *)p)[i] = x * 1.7;
        else ((float *)p)[i] = (float)(x * 1.7);
    }
}

static void bench(const attn_kernel_row *row, long length, long dim)
{
    attn_kernel kernel;
    attn_kernel_assemble(row, &kernel);
    const attn_kernel *k = &kernel;
    const int wide = row->compute == ATTN_F64, zmm = row->isa == ATTN_ISA_AVX512, phases = (int)option("PHASES", 0),
              modify = (int)option("MODIFY", 0);
    const long size = wide ? 8 : 4, full = k->lanes * k->vectors, group = option("GROUP", 1), samples = option("SAMPLES", 400);
    const int width = (int)option("WIDTH", k->vectors) < k->vectors ? (int)option("WIDTH", k->vectors) : k->vectors;
    const long tile = (long)k->lanes * width, ld = dim * option("STRIDE", 1);
    const long block = option("BLOCK", (long)k->product->block_kv(dim, dim)), tiles = length / tile;
    char *q = memory((size_t)(length * dim * size)), *keys = memory((size_t)(length * ld * size));
    char *values = memory((size_t)(length * ld * size)), *o = memory((size_t)(length * dim * size));
    char *Qt = memory((size_t)(group * dim * full * size)), *Ot = memory((size_t)(group * dim * full * size));
    char *S = memory((size_t)(block * full * size)), *ml = memory((size_t)(group * 8192)), *lse = memory((size_t)(length * size));
    double *share = memory((size_t)samples * sizeof(double)), *scores = memory((size_t)samples * sizeof(double)), gflops = 0;
    fill(q, wide, length * dim), fill(keys, wide, length * ld), fill(values, wide, length * ld);
    void *scratch = memory((size_t)(full * (block + full) * size));
    void *extra = memory((size_t)(modify ? length * length * size : 1));
    memset(extra, modify == 1 ? 1 : 0, (size_t)(modify ? length * length : 1));
    long at = 0;
    for (long s = -20; s < samples; s++) {
        if (at + group > tiles) at = 0;
        double spent = 0, before = ceiling(zmm), start = now();
        for (long g = 0; g < group; g++) {
            char *m = ml + g * 8192;
            k->storage->pack_query(width, tile, dim, q + (at + g) * tile * dim * size, row->compute, dim, 1 / sqrt((double)dim),
                                   Qt + g * dim * full * size);
            k->softmax->start(width, dim, -INFINITY, m, m + 2048, Ot + g * dim * full * size);
        }
        for (long j = 0; j < length; j += block) {
            long n = length - j < block ? length - j : block;
            char *K = keys + j * ld * size, *V = values + j * ld * size;
            for (long g = 0; g < group; g++) {
                char *m = ml + g * 8192;
                double t0 = phases ? now() : 0;
                k->product->score(width, n, dim, Qt + g * dim * full * size, K, ld, S, m + 4096, g + 1 < group ? K : V, ld);
                if (phases) spent += now() - t0;
                if (modify) {
                    attn_block block_of = {(char *)extra + ((at + g) * tile * length + j) * (modify == 1 ? 1 : size),
                                           modify == 1 ? ATTN_BOOL : row->compute, length, 1};
                    (modify == 1 ? k->modify->keep_mask : k->modify->add_bias)(width, tile, n, S, m + 4096, &block_of, scratch);
                }
                k->softmax->exponentiate(width, n, S, m + 4096, NULL, m, m + 2048, m + 6144);
                k->product->values(width, n, dim, S, V, ld, m + 6144, Ot + g * dim * full * size,
                                   g + 1 < group ? K : K + n * ld * size, ld);
            }
        }
        for (long g = 0; g < group; g++) {
            char *m = ml + g * 8192;
            k->softmax->finish(width, tile, dim, 1, m, m + 2048, Ot + g * dim * full * size, o + (at + g) * tile * dim * size,
                               row->compute, dim, lse, 1);
        }
        double seconds = now() - start, after = ceiling(zmm), flops = 4.0 * (double)(tile * group) * (double)length * (double)dim;
        at += group;
        if (s < 0) continue;
        double most = (before + after) / 2 / (wide ? 2 : 1);
        share[s] = 100 * flops / seconds / 1e9 / most;
        scores[s] = spent * most * 1e9 / (flops / 2);
        gflops += flops / seconds / 1e9 / (double)samples;
    }
    qsort(share, (size_t)samples, sizeof *share, by_value);
    printf("%-20s S%-5ld D%-4ld block %-4ld group %ld width %d stride %ld  median %5.1f %%  best decile %5.1f %%  %6.1f GFLOP/s",
           row->name, length, dim, block, group, width, ld / dim, share[samples / 2], share[samples * 9 / 10], gflops);
    if (phases) { /* in units of the ideal time of one product, so that 1 + 1 is 100 % */
        qsort(scores, (size_t)samples, sizeof *scores, by_value);
        printf("  scores %.3f, all else %.3f", scores[samples / 2], 200 / share[samples / 2] - scores[samples / 2]);
    }
    printf("\n");
    fflush(stdout);
    free(q), free(keys), free(values), free(o), free(Qt), free(Ot), free(S), free(ml), free(lse), free(share), free(scores),
        free(extra), free(scratch);
}

int main(int argc, char **argv)
{
    static const long usual[] = {32, 40, 64, 80, 96, 128, 160, 256};
    long length = argc > 2 ? atol(argv[2]) : 2048;
    uint32_t has = attn_cpu_features();
    for (int r = 0; attn_kernel_at(r); r++) {
        const attn_kernel_row *row = attn_kernel_at(r);
        if (row->op != ATTN_FORWARD || row->needs & ~has || (argc > 1 && !strstr(row->name, argv[1]))) continue;
        if (argc > 3) {
            for (int i = 3; i < argc; i++) bench(row, length, atol(argv[i]));
        } else {
            for (size_t i = 0; i < sizeof usual / sizeof usual[0]; i++) bench(row, length, usual[i]);
        }
    }
    return 0;
}
