/* SPDX-License-Identifier: MIT
 * linear_bench.c - linear attention of the library against a loop of multiply-adds in registers, one thread:
 *
 *      cc -O3 -march=native -Iinclude lab/linear/linear_bench.c libattn.a -pthread -lm && ./a.out [SECONDS] [LEN] [DIM] [CHUNK]
 */
#define _POSIX_C_SOURCE 199309L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "attn/linear.h"

typedef float lanes __attribute__((vector_size(64)));

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* GFLOP/s of 16 independent chains of 16-lane multiply-adds. */
static double ceiling(void)
{
    enum { CHAINS = 16, TURNS = 100000 };
    lanes x[CHAINS];
    for (int i = 0; i < CHAINS; i++)
        for (int l = 0; l < 16; l++) x[i][l] = (float)(i + l);
    lanes a = x[0] * 0 + 0.999f, b = x[0] * 0 + 0.001f;
    double start = now();
    for (int t = 0; t < TURNS; t++) {
#pragma GCC unroll 16
        for (int i = 0; i < CHAINS; i++) x[i] = x[i] * a + b;
    }
    double seconds = now() - start;
    volatile float sink = 0;
    for (int i = 0; i < CHAINS; i++) sink += x[i][0];
    return 2.0 * CHAINS * 16 * TURNS / seconds * 1e-9;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef struct runner {
    attn_linear_plan *plan;
    attn_linear_tensors tensors;
    void *workspace;
    size_t size;
    double flops;
    const char *name;
} runner;

static runner make(const char *name, const attn_linear_problem *p, attn_linear_tensors tensors)
{
    runner r = {.tensors = tensors, .name = name};
    attn_error error;
    attn_linear_plan_description d = {.struct_size = sizeof d};
    const attn_options o = {.struct_size = sizeof o, .threads = 1};
    if (attn_linear_plan_create(&r.plan, p, &tensors, &o, &error)) {
        (void)fprintf(stderr, "%s\n", error.message);
        exit(1);
    }
    attn_linear_plan_describe(r.plan, &d, NULL);
    r.flops = d.flops;
    r.size = d.workspace_bytes;
    r.workspace = malloc(r.size + 1);
    return r;
}

static void run(runner *r) { (void)attn_linear_execute(r->plan, &r->tensors, r->workspace, r->size, NULL); }

static void report(runner *r, double seconds, double tokens)
{
    double times[4000], splits[4000], start = now();
    int n = 0;
    run(r);
    while (n < 4000 && now() - start < seconds) {
        double before = ceiling(), begin = now();
        int turns = 0;
        do run(r), turns++;
        while (now() - begin < 2e-3);
        times[n] = (now() - begin) / turns;
        double after = ceiling();
        splits[n] = r->flops / times[n] * 1e-9 / ((before + after) / 2);
        n++;
    }
    qsort(times, (size_t)n, sizeof *times, by_value);
    qsort(splits, (size_t)n, sizeof *splits, by_value);
    printf("%-24s %6.0f ns a token (best decile %6.0f)   share of ceiling %4.1f %% (best decile %4.1f)   %d samples\n", r->name,
           times[n / 2] / tokens * 1e9, times[n / 10] / tokens * 1e9, 100 * splits[n / 2], 100 * splits[n - 1 - n / 10], n);
}

int main(int count, char **words)
{
    const double seconds = count > 1 ? atof(words[1]) : 2;
    const int64_t len = count > 2 ? atoll(words[2]) : 8192, dim = count > 3 ? atoll(words[3]) : 64,
                  chunk = count > 4 ? atoll(words[4]) : 0;
    float *x[12];
    for (int i = 0; i < 12; i++) {
        x[i] = malloc((size_t)(len * dim) * sizeof(float));
        for (int64_t k = 0; k < len * dim; k++) x[i][k] = (float)rand() / (float)RAND_MAX - 0.5f;
    }
    attn_linear_problem p = {.struct_size = sizeof p, .shape = {1, 1, 1, len, len, dim, dim}, .causal = 1, .chunk = chunk};
    const attn_linear_tensors plain = {
        .struct_size = sizeof plain, .q = attn_in(x[0]), .k = attn_in(x[1]), .v = attn_in(x[2]), .o = attn_out(x[3])};
    attn_linear_tensors t = plain;
    t.denominators = attn_out(x[4]);
    runner forward = make("forward", &p, t);
    run(&forward);
    p.op = ATTN_BACKWARD;
    t.grad_o = attn_in(x[5]);
    t.grad_q = attn_out(x[6]), t.grad_k = attn_out(x[7]), t.grad_v = attn_out(x[8]);
    runner backward = make("backward", &p, t);
    p.op = ATTN_FORWARD, p.causal = 0;
    runner full = make("full", &p, plain);
    report(&forward, seconds, (double)len);
    report(&backward, seconds, (double)len);
    report(&full, seconds, (double)len);
    p.causal = 1, p.denominator = ATTN_DENOMINATOR_NONE;
    t = plain;
    t.decay = attn_in(x[11]);
    runner decayed = make("forward, decay", &p, t);
    report(&decayed, seconds / 4, (double)len);
    memset(x[9], 0, 4 * (size_t)(dim * dim)), memset(x[10], 0, 4 * (size_t)dim);
    p.denominator = ATTN_DENOMINATOR_CLAMP;
    p.shape.len_q = p.shape.len_kv = 1;
    t = plain;
    t.initial_state = attn_in(x[9]), t.final_state = attn_out(x[9]);
    t.initial_sum = attn_in(x[10]), t.final_sum = attn_out(x[10]);
    runner token = make("one token", &p, t);
    report(&token, seconds / 4, 1);
    p.rule = ATTN_LINEAR_RULE_DELTA, p.denominator = ATTN_DENOMINATOR_NONE;
    t.initial_sum = plain.initial_sum, t.final_sum = plain.final_sum;
    t.beta = attn_in(x[11]);
    runner delta = make("one token, delta rule", &p, t);
    report(&delta, seconds / 4, 1);
    return 0;
}
