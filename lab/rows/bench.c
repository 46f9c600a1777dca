/* SPDX-License-Identifier: MIT
 *
 * bench.c - few queries of many heads: compares decode, rows of several heads, and tiles, and a ragged batch with its two halves.
 * Candidates alternate; CPU time of the process, best decile.
 *
 *      cc -O2 -Iinclude lab/rows/bench.c build/release/lib/libattn.a -lpthread -lm && ./a.out [few|ragged|order|short]
 */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "attn/attn.h"

enum { MAX_ROUNDS = 400, MAX_CANDIDATES = 4 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static void *numbers(int64_t count, attn_dtype dtype)
{
    char *to = malloc((size_t)count * attn_dtype_size(dtype) + 64);
    if (!to) exit(1);
    for (int64_t n = 0; n < count; n++) {
        const float x = (float)(n * 7919 % 2003) / 1001 - 1;
        (void)attn_convert(1, &x, ATTN_F32, to + n * (int64_t)attn_dtype_size(dtype), dtype, NULL);
    }
    return to;
}

typedef struct candidate {
    attn_plan *plan;
    attn_tensors tensors;
    void *workspace;
    size_t size;
    double times[MAX_ROUNDS], best;
    char why[256];
} candidate;

static void prepare(candidate *c, const attn_problem *p, const attn_tensors *t, int invariant)
{
    const attn_options how = {.struct_size = sizeof how, .threads = 1, .invariant = invariant};
    attn_plan_description d = {.struct_size = sizeof d};
    attn_error error;
    c->tensors = *t;
    if (attn_plan_create(&c->plan, p, t, &how, &error) != ATTN_OK) printf("%s\n", error.message), exit(1);
    attn_plan_describe(c->plan, &d, NULL);
    (void)snprintf(c->why, sizeof c->why, "%s", d.why);
    c->size = attn_plan_workspace_size(c->plan);
    c->workspace = malloc(c->size + 1);
}

static int by_size(const void *a, const void *b)
{
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

/* Runs the candidates alternately for the given milliseconds. */
static void race(candidate *c, int count, double budget)
{
    int rounds = 0;
    for (const double begin = now(); rounds < MAX_ROUNDS && (rounds < 5 || now() - begin < budget); rounds++)
        for (int n = 0; n < count; n++) {
            attn_error error;
            const double start = now();
            if (attn_execute(c[n].plan, &c[n].tensors, c[n].workspace, c[n].size, &error) != ATTN_OK)
                printf("%s\n", error.message), exit(1);
            c[n].times[rounds] = now() - start;
        }
    for (int n = 0; n < count; n++) {
        qsort(c[n].times, (size_t)rounds, sizeof c[n].times[0], by_size);
        c[n].best = c[n].times[rounds / 10];
        attn_plan_destroy(c[n].plan);
        free(c[n].workspace);
    }
}

/* The plan's choice, rows (options.invariant), and tiles (selected by uniform weights for fully masked rows, which no other walk
 * supports; no row is fully masked). */
static void few(int64_t heads_q, int64_t heads_kv, int64_t n, int64_t dim, int64_t dim_v, attn_dtype dtype)
{
    const int64_t len = 4096;
    attn_problem p = {.struct_size = sizeof p, .shape = {1, heads_q, heads_kv, n, len, dim, dim_v}};
    p.mask.causal = 1;
    p.mask.align = ATTN_ALIGN_BOTTOM_RIGHT;
    void *q = numbers(heads_q * n * dim, dtype), *k = numbers(heads_kv * len * dim, dtype),
         *v = numbers(heads_kv * len * dim_v, dtype);
    void *o = malloc((size_t)(heads_q * n * dim_v) * 8);
    const attn_tensors t = {.struct_size = sizeof t, .q = {q, dtype, {0}}, .k = attn_in(k), .v = attn_in(v), .o = attn_out(o)};
    static candidate c[MAX_CANDIDATES];
    prepare(&c[0], &p, &t, 0);
    prepare(&c[1], &p, &t, 1);
    p.mask.empty = ATTN_EMPTY_UNIFORM;
    prepare(&c[2], &p, &t, 0);
    race(c, 3, 1200);
    const char *text = strrchr(c[0].why, ';');
    printf("%s %3d/%d D %d n %2d: plan %8.3f  rows %8.3f  tiles %8.3f ms  plan/best %.2f  %s\n", attn_dtype_name(dtype),
           (int)heads_q, (int)heads_kv, (int)dim, (int)n, c[0].best, c[1].best, c[2].best,
           c[0].best / (c[1].best < c[2].best ? c[1].best : c[2].best), text ? text : "");
    fflush(stdout);
    free(q), free(k), free(v), free(o);
}

/* The plan's choice, without and with options.invariant. */
static void order(int64_t heads_q, int64_t heads_kv, int64_t n, int64_t len, int64_t dim, attn_dtype dtype, int causal)
{
    attn_problem p = {.struct_size = sizeof p, .shape = {1, heads_q, heads_kv, n, len, dim, dim}};
    p.mask.causal = causal;
    p.mask.align = ATTN_ALIGN_BOTTOM_RIGHT;
    void *q = numbers(heads_q * n * dim, dtype), *k = numbers(heads_kv * len * dim, dtype),
         *v = numbers(heads_kv * len * dim, dtype);
    void *o = malloc((size_t)(heads_q * n * dim) * 8);
    const attn_tensors t = {.struct_size = sizeof t, .q = {q, dtype, {0}}, .k = attn_in(k), .v = attn_in(v), .o = attn_out(o)};
    static candidate c[MAX_CANDIDATES];
    prepare(&c[0], &p, &t, 0);
    prepare(&c[1], &p, &t, 1);
    race(c, 2, 400);
    const char *text = strrchr(c[0].why, ';'), *other = strrchr(c[1].why, ';');
    printf("%s %2d/%d %5d keys D %3d n %2d%s: plan %8.3f  invariant %8.3f ms  ratio %.2f  %s / %s\n", attn_dtype_name(dtype),
           (int)heads_q, (int)heads_kv, (int)len, (int)dim, (int)n, causal ? " causal" : "", c[0].best, c[1].best,
           c[1].best / c[0].best, text ? text + 2 : "", other ? other + 2 : "");
    fflush(stdout);
    free(q), free(k), free(v), free(o);
}

/* 63 sequences that decode and one with a chunk, together and separately. */
static void ragged(int64_t heads_q, int64_t heads_kv, int64_t dim, attn_dtype dtype, int paged)
{
    enum { B = 64, LEN = 4096, CHUNK = 512, PAGE = 64 };
    static int64_t cu_q[B + 1], cu_kv[B + 1], lengths_q[B], lengths_kv[B], table[B * LEN / PAGE];
    const int64_t size = (int64_t)attn_dtype_size(dtype), rows_q = paged ? B * CHUNK : B - 1 + CHUNK;
    for (int b = 0; b < B; b++) {
        lengths_q[b] = b < B - 1 ? 1 : CHUNK;
        lengths_kv[b] = LEN;
        cu_q[b + 1] = cu_q[b] + lengths_q[b];
        cu_kv[b + 1] = cu_kv[b] + LEN;
    }
    for (int n = 0; n < B * LEN / PAGE; n++) table[n] = n;
    char *q = numbers(rows_q * heads_q * dim, dtype), *k = numbers((int64_t)B * LEN * heads_kv * dim, dtype),
         *v = numbers((int64_t)B * LEN * heads_kv * dim, dtype), *o = malloc((size_t)(rows_q * heads_q * dim * size));
    static candidate c[3];
    for (int n = 0; n < 3; n++) { /* all, those that decode, the chunk */
        const int64_t first = n == 2 ? B - 1 : 0,
                      count = n == 0   ? B
                              : n == 1 ? B - 1
                                       : 1,
                      most = n == 1 && !paged ? 1 : CHUNK; /* padding is written either way */
        attn_problem p = {.struct_size = sizeof p, .shape = {count, heads_q, heads_kv, most, LEN, dim, dim}};
        attn_tensors t = {.struct_size = sizeof t, .q = {q, dtype, {0}}, .k = attn_in(k), .v = attn_in(v), .o = attn_out(o)};
        static int64_t own_q[2] = {0, CHUNK}, own_kv[2] = {0, LEN};
        p.mask.causal = 1;
        p.mask.align = ATTN_ALIGN_BOTTOM_RIGHT;
        if (paged) {
            const int64_t entry = heads_q * CHUNK * dim;
            t.q = (attn_input){q + first * entry * size, dtype, {entry, CHUNK * dim, dim, 1}};
            t.o = (attn_output){o + first * entry * size, dtype, {entry, CHUNK * dim, dim, 1}};
            p.paging = (attn_paging){.page_size = PAGE, .pages = B * LEN / PAGE};
            t.page_table = (attn_input){table + first * (LEN / PAGE), ATTN_I64, {LEN / PAGE, 0, 0, 1}};
            t.lengths_q = attn_in(lengths_q + first);
            t.lengths_kv = attn_in(lengths_kv + first);
        } else {
            t.q.data = q + cu_q[first] * heads_q * dim * size;
            t.o.data = o + cu_q[first] * heads_q * dim * size;
            t.k.data = k + cu_kv[first] * heads_kv * dim * size;
            t.v.data = v + cu_kv[first] * heads_kv * dim * size;
            t.cu_seqlens_q = attn_in(n == 2 ? own_q : cu_q);
            t.cu_seqlens_kv = attn_in(n == 2 ? own_kv : cu_kv);
        }
        prepare(&c[n], &p, &t, 0);
    }
    race(c, 3, 15000);
    printf("%s %d/%d D %d %s: all %.2f  decode %.2f + chunk %.2f ms  all/sum %.3f%s\n", attn_dtype_name(dtype), (int)heads_q,
           (int)heads_kv, (int)dim, paged ? "paged with lengths" : "packed", c[0].best, c[1].best, c[2].best,
           c[0].best / (c[1].best + c[2].best), strrchr(c[0].why, ';'));
    fflush(stdout);
    free(q), free(k), free(v), free(o);
}

int main(int argc, char **argv)
{
    static const int64_t queries[] = {1, 2, 3, 4, 5, 6, 7, 8, 16, 17, 32, 48, 63, 64};
    static const attn_dtype types[] = {ATTN_F32, ATTN_BF16};
    const char *what = argc > 1 ? argv[1] : "";
    if (strcmp(what, "order") == 0) {
        static const attn_dtype stored[] = {ATTN_F32, ATTN_BF16, ATTN_F16};
        for (int t = 0; t < 3; t++)
            for (int64_t len = 4096; len <= 32768; len *= 8)
                for (int64_t dim = 64; dim <= 128; dim *= 2)
                    for (int64_t n = 1; n <= 8; n *= 2)
                        for (int64_t heads = 8; heads <= 32; heads *= 4) order(heads, 8, n, len, dim, stored[t], 1);
        return 0;
    }
    if (strcmp(what, "short") == 0) {
        static const int64_t lengths[] = {16, 32, 64, 100, 128, 200, 256};
        for (int causal = 0; causal < 2; causal++)
            for (int64_t dim = 64; dim <= 128; dim *= 2)
                for (int n = 0; n < 7; n++) order(64, 64, lengths[n], lengths[n], dim, ATTN_F32, causal);
        return 0;
    }
    for (int t = 0; t < 2 && strcmp(what, "ragged") != 0; t++) {
        for (size_t n = 0; n < sizeof queries / sizeof *queries; n++) few(32, 8, queries[n], 128, 128, types[t]);
        for (int64_t n = 1; n <= 8; n++) few(32, 1, n, 128, 128, types[t]);
        for (int64_t n = 1; n <= 8; n *= 2) few(128, 1, n, 576, 512, types[t]);
    }
    for (int t = 0; t < 2 && strcmp(what, "few") != 0; t++)
        for (int paged = 0; paged < 2; paged++) ragged(8, 2, 128, types[t], paged);
    return 0;
}
