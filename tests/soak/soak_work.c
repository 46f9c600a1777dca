/* SPDX-License-Identifier: MIT
 * soak_work.c - the work of one thread.  Problems are those of the fuzzer of the interface (fuzz/api_case.h), without its oracles.
 */
#include "soak.h"
#include "testing/random/random.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../fnv.h"
#include "api_case.h"
#include "attn/cache.h"
#include "attn/layers.h"
#include "testing/random/random.h"

enum {
    ENTRIES = 3,
    HEADS = 2,
    CAPACITY = 96,
    PAGE = 16,
    PAGES = CAPACITY / PAGE,
    DIM = 8,
    TOKENS = 8,
    MODEL = 16,
    SENTENCE = 7,
    MAX_WORKSPACE = 1 << 27
};

struct soak_worker {
    soak_totals *totals;
    draws from;
    int number;
    int64_t steps, fail_at; /* the index of the next allocation that fails; -1: none */
    api_case c;

    attn_cache cache;
    int64_t lengths[ENTRIES], dropped[ENTRIES], table[ENTRIES * PAGES]; /* dropped: evicted tokens before those in the cache */
    float k[ENTRIES * HEADS * CAPACITY * DIM], v[ENTRIES * HEADS * CAPACITY * DIM];
};

static _Thread_local volatile uint64_t running; /* the problem's number, to report if it fails */

static _Noreturn void wrong(const char *what, ...)
{
    va_list arguments;
    va_start(arguments, what);
    fputs("soak: ", stderr);
    vfprintf(stderr, what, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(1);
}

/* Of the fuzzer's cases (fuzz/target.h). */
_Noreturn void finding(const char *what, ...)
{
    va_list arguments;
    va_start(arguments, what);
    vfprintf(stderr, what, arguments);
    va_end(arguments);
    wrong(" (problem %llu)", (unsigned long long)running);
}

void check_error(attn_status status, const attn_error *error)
{
    if (error->status != status) finding("status %d, but %d in the error", (int)status, (int)error->status);
}

/* ---- an allocator that fails on request ---- */

static void *allocate(void *context, size_t bytes)
{
    soak_worker *w = context;
    if (w->fail_at >= 0 && w->fail_at-- == 0) return NULL;
    void *memory = bytes <= SIZE_MAX - 63 ? aligned_alloc(64, (bytes + 63) / 64 * 64) : NULL;
    if (memory) atomic_fetch_add(&w->totals->blocks, 1);
    return memory;
}

static void release(void *context, void *memory)
{
    soak_worker *w = context;
    if (memory) atomic_fetch_sub(&w->totals->blocks, 1);
    free(memory);
}

static attn_options options_of(soak_worker *w, int threads)
{
    return (attn_options){.struct_size = sizeof(attn_options), .threads = threads, .allocator = {allocate, release, w}};
}

/* ---- problems ---- */

static void say_which(int signal_number)
{
    char text[80];
    const int n = snprintf(text, sizeof text, "soak: signal %d in problem %llu\n", signal_number, (unsigned long long)running);
    if (write(STDERR_FILENO, text, (size_t)n) != n) _exit(3);
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

/* A hostile size may be legal if tensors have no elements, and would then run forever. */
static int is_endless(const attn_shape *s)
{
    const double heads = (double)s->batch * (double)(s->heads_q + s->heads_kv);
    const double rows = heads * ((double)s->len_q + (double)s->len_kv), pairs = heads * (double)s->len_q * (double)s->len_kv;
    return rows > 1e6 || pairs > 1e8;
}

/* Draws problem `number`, runs it with `threads` (0: as drawn) and returns a hash of its bits, or 0 if it was rejected. */
static uint64_t run_problem(soak_worker *w, uint64_t number, int threads, int failing)
{
    const uint64_t name[2] = {w->totals->seed, number};
    api_case *c = &w->c;
    uint64_t bits = 0;
    running = number;
    memset(c, 0, sizeof *c);
    c->from = draws_from((const uint8_t *)name, sizeof name);
    c->from.left = 0;
    attn_plan *drawn = case_draw(c), *plan = NULL;
    if (!drawn) {
        atomic_fetch_add(&w->totals->rejected, 1);
        return 0;
    }
    atomic_fetch_add(&w->totals->plans, 1);
    const int fits = !is_endless(&c->problem.shape) && case_allocate(c, drawn);
    attn_plan_destroy(drawn);
    if (!fits) {
        blocks_free(c->blocks, c->count);
        return 0;
    }
    blocks_canary(c->blocks, c->count, 0x5A);
    attn_options options = c->options;
    attn_error error;
    options.allocator = options_of(w, 1).allocator;
    if (threads > 0) options.threads = threads;
    w->fail_at = failing ? 0 : -1;
    attn_status status = attn_plan_create(&plan, &c->problem, &c->tensors, &options, &error);
    if (failing) {
        if (status != ATTN_ERR_MEMORY || plan)
            wrong("problem %llu without memory: status %d", (unsigned long long)number, (int)status);
        atomic_fetch_add(&w->totals->short_of_memory, 1);
        w->fail_at = -1;
        status = attn_plan_create(&plan, &c->problem, &c->tensors, &options, &error);
    }
    if (status == ATTN_OK) {
        atomic_fetch_add(&w->totals->plans, 1);
        const size_t size = attn_plan_workspace_size(plan);
        void *workspace = size <= MAX_WORKSPACE ? malloc(size + 1) : NULL;
        if (workspace && attn_execute(plan, &c->tensors, workspace, size, &error) == ATTN_OK)
            bits = blocks_checksum(c->blocks, c->count);
        free(workspace);
    }
    attn_plan_destroy(plan);
    blocks_free(c->blocks, c->count);
    return bits;
}

/* Prepared queries and keys exceed the address space: the call is rejected and touches no tensor (there is no memory behind them).
 */
static void ask_too_much(soak_worker *w)
{
    attn_problem problem = {
        .struct_size = sizeof problem, .shape = {1, 1, 1, 1 << 28, 1 << 28, 64, 64}, .score.kind = ATTN_SCORE_COSINE};
    attn_tensors tensors = {.struct_size = sizeof tensors};
    attn_input *inputs[] = {&tensors.q, &tensors.k, &tensors.v};
    attn_error error;
    for (uintptr_t i = 0; i < 3; i++) *inputs[i] = attn_in((void *)(((uintptr_t)0x10 + i) << 40));
    tensors.o = attn_out((void *)((uintptr_t)0x20 << 40));
    attn_plan *plan = NULL;
    const attn_options options = options_of(w, 2);
    const attn_status status = attn_plan_create(&plan, &problem, &tensors, &options, &error);
    const size_t need = status == ATTN_OK ? attn_plan_workspace_size(plan) : SIZE_MAX;
    attn_plan_destroy(plan);
    if (need < (size_t)16 << 30) wrong("a workspace of %zu bytes is smaller than the soak expects", need);
    if (attn_compute(&problem, &tensors, &error) != ATTN_ERR_MEMORY) wrong("too large: '%s'", error.message);
    atomic_fetch_add(&w->totals->too_large, 1);
}

/* ---- a cache ---- */

/* Channel c of the key (side 0) or value (1) of a token, computed from its position in its sequence. */
static float number_of(int64_t entry, int64_t token, int64_t head, int64_t c, int side)
{
    random_state r = random_from(((uint64_t)token * 64 + (uint64_t)(entry * 16 + head * 8 + c)) * 2 + (uint64_t)side);
    return (float)random_signed(&r);
}

static int64_t place_of(int64_t entry, int64_t token, int64_t head, const int64_t *table)
{
    return ((table[entry * PAGES + token / PAGE] * HEADS + head) * PAGE + token % PAGE) * DIM;
}

/* Evicts the oldest page of an entry, which becomes the last one. */
static void evict(soak_worker *w, int64_t entry)
{
    int64_t *table = w->table + entry * PAGES, first = table[0];
    memmove(table, table + 1, (PAGES - 1) * sizeof *table);
    table[PAGES - 1] = first;
    w->lengths[entry] -= PAGE, w->dropped[entry] += PAGE;
    atomic_fetch_add(&w->totals->evictions, 1);
}

static void cache_init(soak_worker *w)
{
    for (int64_t i = 0; i < ENTRIES * PAGES; i++) w->table[i] = i;
    w->cache = (attn_cache){.struct_size = sizeof w->cache,
                            .batch = ENTRIES,
                            .heads_kv = HEADS,
                            .capacity = CAPACITY,
                            .dim_qk = DIM,
                            .dim_v = DIM,
                            .page_size = PAGE,
                            .pages = ENTRIES * PAGES,
                            .k = attn_out(w->k),
                            .v = attn_out(w->v),
                            .lengths = attn_out(w->lengths),
                            .page_table = attn_in(w->table)};
}

/* Appends up to TOKENS to each entry, sometimes with attention; an entry that is nearly full first evicts its oldest page. */
static void step_cache(soak_worker *w, int attend, int failing)
{
    float new_k[ENTRIES * HEADS * TOKENS * DIM], new_v[ENTRIES * HEADS * TOKENS * DIM];
    float q[ENTRIES * 2 * HEADS * TOKENS * DIM], o[ENTRIES * 2 * HEADS * TOKENS * DIM];
    int64_t real[ENTRIES];
    attn_error error;
    for (int64_t b = 0; b < ENTRIES; b++) {
        if (w->lengths[b] + TOKENS > CAPACITY) evict(w, b);
        real[b] = draw_below(&w->from, TOKENS + 1);
        for (int64_t h = 0; h < HEADS; h++)
            for (int64_t t = 0; t < TOKENS; t++)
                for (int64_t c = 0; c < DIM; c++) {
                    const int64_t at = ((b * HEADS + h) * TOKENS + t) * DIM + c;
                    new_k[at] = number_of(b, w->dropped[b] + w->lengths[b] + t, h, c, 0);
                    new_v[at] = number_of(b, w->dropped[b] + w->lengths[b] + t, h, c, 1);
                }
    }
    const attn_cache_tokens tokens = {.struct_size = sizeof tokens,
                                      .len = TOKENS,
                                      .k = attn_in(new_k),
                                      .v = attn_in(new_v),
                                      .lengths = {.data = real, .dtype = ATTN_I64}};
    attn_status status;
    if (attend) {
        attn_problem problem = {.struct_size = sizeof problem, .shape.heads_q = 2 * HEADS};
        const attn_tensors tensors = {.struct_size = sizeof tensors, .q = attn_in(q), .o = attn_out(o)};
        const attn_options options = options_of(w, 2);
        for (size_t i = 0; i < sizeof q / sizeof *q; i++) q[i] = number_of(0, (int64_t)i, 0, 0, 0);
        if (failing) {
            const int64_t before = w->lengths[0];
            w->fail_at = draw_below(&w->from, 2);
            status = attn_cache_attend(&w->cache, &tokens, &problem, &tensors, &options, &error);
            w->fail_at = -1;
            if (status != ATTN_ERR_MEMORY || w->lengths[0] != before) wrong("the cache without memory: status %d", (int)status);
            atomic_fetch_add(&w->totals->short_of_memory, 1);
        }
        status = attn_cache_attend(&w->cache, &tokens, &problem, &tensors, &options, &error);
        if (status == ATTN_OK) atomic_fetch_add(&w->totals->plans, 1);
    } else {
        status = attn_cache_append(&w->cache, &tokens, &error);
    }
    if (status != ATTN_OK) wrong("the cache: %s", error.message);
    for (int64_t b = 0; b < ENTRIES; b++) atomic_fetch_add(&w->totals->tokens, real[b]);
}

/* The cache holds what was appended, through all evictions. */
static void check_cache(soak_worker *w)
{
    for (int64_t b = 0; b < ENTRIES; b++)
        for (int64_t j = 0; j < w->lengths[b]; j++)
            for (int64_t h = 0; h < HEADS; h++)
                for (int64_t c = 0; c < DIM; c++) {
                    const int64_t at = place_of(b, j, h, w->table) + c, token = w->dropped[b] + j;
                    if (w->k[at] != number_of(b, token, h, c, 0) || w->v[at] != number_of(b, token, h, c, 1))
                        wrong("token %lld of entry %lld is not what was appended", (long long)token, (long long)b);
                }
    atomic_fetch_add(&w->totals->compared, 1);
}

/* ---- a layer ---- */

/* Forward and backward of one small layer, always with the same numbers, in new memory each time.  Returns a hash of its bits. */
static uint64_t run_layer(soak_worker *w, int threads, int failing)
{
    enum { SQUARE = MODEL * MODEL, ROWS = 2 * SENTENCE * MODEL };
    float *all = malloc((8 * SQUARE + 4 * ROWS) * sizeof *all), *x = all + 8 * SQUARE, *y = x + ROWS, *dy = y + ROWS,
          *dx = dy + ROWS;
    if (!all) return 0;
    const attn_problem causal = {.struct_size = sizeof causal, .mask.causal = 1};
    const attn_layer layer = {.struct_size = sizeof layer, .dim_model = MODEL, .heads_q = 4, .attention = &causal};
    attn_layer_weights weights = {.struct_size = sizeof weights}, gradients = weights;
    attn_output *slots[] = {&weights.query,   &weights.key,   &weights.value,   &weights.output,
                            &gradients.query, &gradients.key, &gradients.value, &gradients.output};
    for (int i = 0; i < 8; i++) *slots[i] = attn_out(all + i * SQUARE);
    for (int i = 0; i < ROWS; i++) x[i] = number_of(0, i, 0, 0, 0), dy[i] = number_of(0, i, 0, 0, 1);
    attn_layer_counts counts = {.struct_size = sizeof counts};
    attn_error error;
    attn_status status = attn_layer_count(&layer, 2, SENTENCE, SENTENCE, &weights, &counts, &error);
    if (status != ATTN_OK) wrong("the layer: %s", error.message);
    void *saved = malloc((size_t)counts.saved_bytes);
    const attn_options options = options_of(w, threads);
    const attn_layer_tensors tensors = {.struct_size = sizeof tensors,
                                        .batch = 2,
                                        .len_q = SENTENCE,
                                        .options = &options,
                                        .saved = saved,
                                        .query = attn_in(x),
                                        .output = attn_out(y),
                                        .grad_output = attn_in(dy),
                                        .grad_query = attn_out(dx)};
    uint64_t bits = 0;
    if (saved) {
        status = attn_layer_initialise(&layer, ATTN_INIT_XAVIER, 1, &weights, &error);
        if (failing && status == ATTN_OK) {
            w->fail_at = draw_below(&w->from, 2);
            if (attn_layer_forward(&layer, &weights, &tensors, NULL) != ATTN_ERR_MEMORY)
                wrong("a layer out of memory does not report it");
            w->fail_at = -1;
            atomic_fetch_add(&w->totals->short_of_memory, 1);
        }
        if (status == ATTN_OK) status = attn_layer_forward(&layer, &weights, &tensors, &error);
        if (status == ATTN_OK) status = attn_layer_backward(&layer, &weights, &tensors, &gradients, &error);
        if (status != ATTN_OK) wrong("the layer: %s", error.message);
        bits = fnv_add(fnv_add(1, all, 8 * SQUARE * sizeof *all), x, ROWS * 4 * sizeof *x);
        atomic_fetch_add(&w->totals->layers, 1);
    }
    free(saved);
    free(all);
    return bits;
}

/* ---- the steps ---- */

soak_worker *soak_worker_new(soak_totals *totals, int number)
{
    soak_worker *w = calloc(1, sizeof *w);
    if (!w) wrong("no memory to begin with");
    const uint64_t name[2] = {totals->seed, (uint64_t)number};
    w->totals = totals, w->number = number, w->fail_at = -1;
    w->from = draws_from((const uint8_t *)name, sizeof name);
    w->from.left = 0;
    cache_init(w);
    return w;
}

void soak_worker_free(soak_worker *w) { free(w); }

void soak_remember(soak_totals *totals)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGABRT};
    soak_worker *w = soak_worker_new(totals, -1);
    for (size_t i = 0; totals->limited && i < sizeof faults / sizeof *faults; i++) signal(faults[i], say_which);
    for (int i = 0; i < REMEMBERED; i++) totals->first_bits[i] = run_problem(w, (uint64_t)i, 1, 0);
    totals->first_layer = run_layer(w, 1, 0);
    soak_worker_free(w);
}

uint64_t soak_problem(soak_totals *totals, uint64_t number)
{
    soak_worker *w = soak_worker_new(totals, -1);
    const uint64_t bits = run_problem(w, number, 0, 0);
    soak_worker_free(w);
    return bits;
}

void soak_worker_step(soak_worker *w)
{
    const int64_t step = ++w->steps;
    const int threads = 1 + (int)draw_below(&w->from, 4);
    (void)run_problem(w, draw_word(&w->from), 0, step % 50 == 0);
    step_cache(w, step % 16 == 0, step % 80 == 0);
    if (step % 32 == 0 && run_layer(w, threads, step % 64 == 0) != w->totals->first_layer)
        wrong("the bits of the layer differ from those at the start");
    if (step % 1000 == 500) {
        const int64_t i = draw_below(&w->from, REMEMBERED);
        if (run_problem(w, (uint64_t)i, threads, 0) != w->totals->first_bits[i])
            wrong("the bits of problem %lld with %d threads differ from those at the start", (long long)i, threads);
        atomic_fetch_add(&w->totals->compared, 1);
        check_cache(w);
    }
    if (step % 4000 == 100 && w->totals->limited) ask_too_much(w);
}
