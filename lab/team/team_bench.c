/* SPDX-License-Identifier: MIT
 *
 * team_bench.c - what it costs to enter an execution with threads of one's own (attn_execute_worker, a spinning barrier), against
 * the same plan's pieces in an OpenMP region, on two threads.
 *
 *      cc -O2 -fopenmp -Iinclude lab/team/team_bench.c -Lbuild/release/lib -lattn -lm && ./a.out
 *
 * Ways alternate in phases of some milliseconds, after whose beginning the other way's threads sleep; each execution is timed, and
 * a row has the best decile and the median of all of them, in microseconds, and their differences.
 */
#define _GNU_SOURCE
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "attn/team.h"

enum { WORKERS = 2, WARM = 100, PHASE = 400, PHASES = 40, DIM = 64, MOST = 8 * 4096 * DIM };

static float q[64 * DIM], k[MOST], v[MOST], o[64 * DIM];
static double times[2][PHASES * PHASE];

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

/* ---- OpenMP ---- */

static void on_openmp(void *context, int64_t n, void (*body)(void *body_context, int64_t i), void *body_context)
{
    (void)context;
#pragma omp parallel for schedule(static, 1) num_threads(WORKERS)
    for (int64_t i = 0; i < n; i++) body(body_context, i);
}

/* ---- a team ---- */

static atomic_int arrived, round_number, phase;

static void spin(void *context)
{
    (void)context;
    const int mine = atomic_load_explicit(&round_number, memory_order_relaxed);
    if (atomic_fetch_add(&arrived, 1) == WORKERS - 1) {
        atomic_store_explicit(&arrived, 0, memory_order_relaxed);
        atomic_store(&round_number, mine + 1);
        return;
    }
    while (atomic_load_explicit(&round_number, memory_order_acquire) == mine) __builtin_ia32_pause();
}

static attn_plan *plan;
static attn_tensors tensors;
static void *workspace;
static size_t size;
static attn_team team = {.struct_size = sizeof team, .workers = WORKERS, .barrier = spin};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t begins = PTHREAD_COND_INITIALIZER;

static void execute_as(int worker)
{
    attn_error error;
    if (attn_execute_worker(plan, worker, &tensors, workspace, size, &team, &error) != ATTN_OK) puts(error.message), exit(1);
}

/* Worker 1, which sleeps between phases. */
static void *follow(void *context)
{
    (void)context;
    for (int seen = 0;;) {
        (void)pthread_mutex_lock(&lock);
        while (atomic_load(&phase) == seen) (void)pthread_cond_wait(&begins, &lock);
        seen = atomic_load(&phase);
        (void)pthread_mutex_unlock(&lock);
        if (seen < 0) return NULL;
        for (int n = 0; n < WARM + PHASE; n++) execute_as(1);
    }
}

static void begin_phase(int number)
{
    (void)pthread_mutex_lock(&lock);
    atomic_store(&phase, number);
    (void)pthread_cond_signal(&begins);
    (void)pthread_mutex_unlock(&lock);
}

/* ---- measuring ---- */

static void run_phase(int way, int number)
{
    attn_error error;
    if (way) begin_phase(number + 1);
    for (int n = -WARM; n < PHASE; n++) {
        const double begin = now();
        if (way) execute_as(0);
        else if (attn_execute(plan, &tensors, workspace, size, &error) != ATTN_OK) puts(error.message), exit(1);
        if (n >= 0) times[way][number * PHASE + n] = now() - begin;
    }
    const struct timespec pause = {0, 3000000};
    (void)nanosleep(&pause, NULL); /* the other way's threads sleep by then */
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(int64_t keys)
{
    const attn_problem p = {.struct_size = sizeof p, .shape = {1, 32, 8, 1, keys, DIM, DIM}};
    const attn_options options = {.struct_size = sizeof options, .threads = WORKERS, .parallel_for = on_openmp};
    attn_error error;
    pthread_t other;
    tensors = (attn_tensors){.struct_size = sizeof tensors, .q = attn_in(q), .k = attn_in(k), .v = attn_in(v), .o = attn_out(o)};
    if (attn_plan_create(&plan, &p, &tensors, &options, &error) != ATTN_OK) puts(error.message), exit(1);
    size = attn_plan_workspace_size(plan);
    workspace = malloc(size + 1);
    atomic_store(&phase, 0);
    if (!workspace || pthread_create(&other, NULL, follow, NULL)) exit(1);
    for (int n = 0; n < PHASES; n++)
        for (int way = 0; way < 2; way++) run_phase(way, n);
    begin_phase(-1);
    (void)pthread_join(other, NULL);
    for (int way = 0; way < 2; way++) qsort(times[way], PHASES * PHASE, sizeof(double), ascending);
    const double *a = times[0], *b = times[1];
    const int tenth = PHASES * PHASE / 10, half = PHASES * PHASE / 2;
    printf("%5d keys    OpenMP %7.2f %7.2f    team %7.2f %7.2f    difference %6.2f %6.2f\n", (int)keys, a[tenth], a[half], b[tenth],
           b[half], b[tenth] - a[tenth], b[half] - a[half]);
    attn_plan_destroy(plan);
    free(workspace);
}

int main(void)
{
    for (int i = 0; i < MOST; i++) k[i] = (float)(i % 17) / 17, v[i] = (float)(i % 13) / 13;
    for (int i = 0; i < 64 * DIM; i++) q[i] = (float)(i % 7) / 7;
    puts("best decile and median, us");
    for (int64_t keys = 16; keys <= 1024; keys *= 4) measure(keys);
}
