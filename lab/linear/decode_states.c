/* SPDX-License-Identifier: MIT
 * decode_states.c - decoding with the states of 64 sequences in slots of a pool, one token each: bytes of states read and written a
 * second, against memcpy of as many bytes, in turn.  CPU time of the process, one thread, best decile.
 *
 *      cc -O2 -Iinclude lab/linear/decode_states.c libattn.a -pthread -lm && ./a.out [HEADS] [RUNS]
 */
#define _POSIX_C_SOURCE 199309L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "attn/linear.h"

enum { SEQUENCES = 64, DIM = 128 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static float *drawn(int64_t count, float low, float high)
{
    float *x = malloc((size_t)count * sizeof *x);
    for (int64_t i = 0; i < count; i++) x[i] = low + (high - low) * (float)rand() / (float)RAND_MAX;
    return x;
}

static void check(attn_status status, const attn_error *error)
{
    if (status == ATTN_OK) return;
    fprintf(stderr, "%s\n", error->message);
    exit(1);
}

static void measure(int64_t heads, int runs, attn_dtype stored, attn_linear_rule rule)
{
    const int64_t tokens = SEQUENCES * heads, elements = tokens * DIM * DIM;
    const size_t bytes = (size_t)elements * attn_dtype_size(stored);
    char *pool = calloc(bytes, 1), *copy = calloc(bytes, 1);
    int64_t starts[SEQUENCES + 1];
    int32_t slots[SEQUENCES];
    for (int i = 0; i <= SEQUENCES; i++) starts[i] = i;
    for (int i = 0; i < SEQUENCES; i++) slots[i] = i * 37 % SEQUENCES;
    memset(copy, 1, bytes);
    const attn_linear_problem p = {.struct_size = sizeof p,
                                   .shape = {SEQUENCES, heads, heads, 1, 1, DIM, DIM},
                                   .features = ATTN_FEATURES_IDENTITY,
                                   .denominator = ATTN_DENOMINATOR_NONE,
                                   .causal = 1,
                                   .rule = rule,
                                   .pool = SEQUENCES};
    attn_linear_tensors t = {.struct_size = sizeof t,
                             .q = attn_in(drawn(tokens * DIM, -1, 1)),
                             .k = attn_in(drawn(tokens * DIM, -0.05f, 0.05f)),
                             .v = attn_in(drawn(tokens * DIM, -1, 1)),
                             .o = attn_out(drawn(tokens * DIM, 0, 0)),
                             .decay = attn_in(drawn(tokens, -0.1f, 0)),
                             .initial_state = {pool, stored, {0, 0, 0, 0}},
                             .final_state = {pool, stored, {0, 0, 0, 0}},
                             .cu_seqlens = attn_in(starts),
                             .initial_slots = {slots, ATTN_I32, {0, 0, 0, 0}},
                             .final_slots = {slots, ATTN_I32, {0, 0, 0, 0}}};
    if (rule == ATTN_LINEAR_RULE_DELTA) t.beta = attn_in(drawn(tokens, 0, 1));
    const attn_options options = {.struct_size = sizeof options, .threads = 1};
    attn_linear_plan *plan;
    attn_error error;
    check(attn_linear_plan_create(&plan, &p, &t, &options, &error), &error);
    const size_t size = attn_linear_plan_workspace_size(plan);
    void *workspace = malloc(size);
    double *times[2] = {malloc((size_t)runs * sizeof(double)), malloc((size_t)runs * sizeof(double))};
    for (int r = 0; r < runs; r++) {
        double start = now();
        memcpy(copy, pool, bytes);
        times[0][r] = now() - start;
        start = now();
        check(attn_linear_execute(plan, &t, workspace, size, &error), &error);
        times[1][r] = now() - start;
    }
    for (int i = 0; i < 2; i++) qsort(times[i], (size_t)runs, sizeof(double), by_size);
    const double copied = times[0][runs / 10], decoded = times[1][runs / 10];
    printf("%d heads of %d x %d, %s, %s: memcpy %.1f GB/s, decoding %.1f GB/s, %.0f %%\n", (int)heads, DIM, DIM,
           attn_dtype_name(stored), rule == ATTN_LINEAR_RULE_DELTA ? "delta rule" : "adding", 2e-9 * (double)bytes / copied,
           2e-9 * (double)bytes / decoded, 100 * copied / decoded);
    attn_linear_plan_destroy(plan);
    free(workspace), free(pool), free(copy), free(times[0]), free(times[1]);
}

int main(int argc, char **argv)
{
    const int64_t heads = argc > 1 ? atoi(argv[1]) : 48;
    const int runs = argc > 2 ? atoi(argv[2]) : 40;
    for (int stored = 0; stored < 2; stored++)
        for (int rule = ATTN_LINEAR_RULE_ADD; rule <= ATTN_LINEAR_RULE_DELTA; rule++)
            measure(heads, runs, stored ? ATTN_BF16 : ATTN_F32, (attn_linear_rule)rule);
    return 0;
}
