/* SPDX-License-Identifier: MIT
 * candidate.c - plans and times one problem. */
#include "candidate.h"

#include <math.h>
#include <stdlib.h>

#include "clock.h"
#include "memory.h"
#include "testing/text/failure.h"

/* A sample lasts at least this long, so that clock resolution and thread start are negligible. */
static const double sample_seconds = 2e-3;
/* Shorter calls are timed back to back: caches, pages and branch predictors as the previous call left them. */
static const double warm_below = 20e-3;
static const int64_t max_calls = 1000000;

/* An allocator that counts. */
static void *count_allocate(void *context, size_t bytes)
{
    *(size_t *)context += bytes;
    return aligned_alloc(64, (bytes + 63) & ~(size_t)63);
}

static void count_release(void *context, void *memory)
{
    (void)context;
    free(memory);
}

static double time_calls(candidate *c, int64_t calls)
{
    const double begin = clock_seconds();
    for (int64_t n = 0; n < calls; n++) c->kind->execute(c, NULL);
    return clock_seconds() - begin;
}

/* The first call: its time and the memory it takes. */
static attn_status run_first(candidate *c, const attn_options *given, const operand *o, double *seconds, attn_error *error)
{
    attn_options options = *given;
    options.allocator = (attn_allocator){count_allocate, count_release, &c->plan_bytes};
    const int counted = memory_forget_peak();
    const int64_t before = memory_now();
    attn_status status = c->kind->plan ? c->kind->plan(c, o, &options, error) : ATTN_OK;
    if (status != ATTN_OK) return status;
    c->workspace = fresh_memory(c->plan_says.workspace_bytes);
    const double begin = clock_seconds();
    status = c->kind->execute(c, error);
    *seconds = clock_seconds() - begin;
    c->peak_bytes = memory_peak();
    c->extra_bytes = counted && before >= 0 ? c->peak_bytes - before : -1;
    return status;
}

static void calibrate(candidate *c, double first)
{
    c->calls = 1;
    if (first > 10 * warm_below) return; /* even if the first call was slow, one call is long enough */
    double seconds = time_calls(c, 1);
    int64_t calls = 1;
    while (seconds < sample_seconds && calls < max_calls) { /* one measurement of a short call says little */
        calls *= 2;
        seconds = time_calls(c, calls);
    }
    const double each = seconds / (double)calls;
    c->calls = each > 0 ? (int64_t)ceil(sample_seconds / each) : max_calls;
    if (c->calls > max_calls) c->calls = max_calls;
    if (c->calls < 1) c->calls = 1;
    c->warm = each < warm_below;
}

static const candidate_kind *kind_of(const operand *o)
{
    if (o->kind == OPERAND_MATRIX) return &matrix_kind;
#if ATTN_CLI_LAYERS
    if (o->kind == OPERAND_LAYER) return &layer_kind;
#else
    if (o->kind == OPERAND_LAYER) return NULL;
#endif
    if (o->spec.op == SPEC_LINEAR || o->spec.op == SPEC_LINEAR_BACKWARD) return &linear_kind;
    return o->spec.op == SPEC_DECODE ? &decode_kind : &attention_kind;
}

attn_status candidate_check(const operand *o, attn_error *error)
{
    const candidate_kind *kind = kind_of(o);
    if (!kind) return failure(error, ATTN_ERR_UNSUPPORTED, "layers need libattn_layers, which this build was made without");
    return kind->check ? kind->check(o, error) : ATTN_OK;
}

attn_status candidate_create(candidate *c, const operand *o, const common_settings *settings, const sampling *how,
                             attn_error *error)
{
    const attn_options options = options_for_library(settings);
    operand seeded = *o;
    double first = 0;
    *c = (candidate){.name = c->name, .plan_says.struct_size = sizeof c->plan_says, .kind = kind_of(o)};
    if (!seeded.spec.seed) seeded.spec.seed = settings->seed;
    operand_print(&seeded, c->text, sizeof c->text);
    attn_status status = c->kind->create(c, &seeded, &options, error);
    if (status == ATTN_OK && c->moved <= 0) c->moved = c->data.bytes;
    if (status == ATTN_OK) status = run_first(c, &options, &seeded, &first, error);
    if (status != ATTN_OK) return status;
    if (how->warmup > 0) time_calls(c, how->warmup - 1); /* the first one was made */
    if (how->single) c->calls = 1, c->warm = how->warmup != 0 && first < warm_below;
    else calibrate(c, first);
    return ATTN_OK;
}

void candidate_destroy(candidate *c)
{
    if (c->kind) c->kind->destroy(c);
    fresh_release(c->workspace, c->plan_says.workspace_bytes);
    fresh_release(c->schedule, c->schedule_bytes);
    attn_plan_destroy(c->plan);
    data_destroy(&c->data);
    series_free(&c->seconds);
    series_free(&c->stream);
    *c = (candidate){0};
}

void candidate_sample(candidate *c)
{
    if (c->warm) time_calls(c, c->calls);
    const double begin = clock_seconds(), seconds = time_calls(c, c->calls);
    series_add(&c->seconds, begin + seconds / 2, seconds / (double)c->calls);
    c->spent += seconds;
}
