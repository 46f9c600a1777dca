/* SPDX-License-Identifier: MIT
 * candidate.c - plans and times one problem. */
#include "candidate.h"

#include <math.h>
#include <stdlib.h>

#include "attn/schedule.h"
#include "cli/measure/work.h"
#include "clock.h"
#include "linear.h"
#include "memory.h"
#include "testing/problem/serving.h"

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

static attn_status execute(candidate *c, attn_error *error)
{
    if (c->linear) return linear_candidate_execute(c, error);
    return attn_execute(c->plan, &c->data.tensors, c->workspace, c->plan_says.workspace_bytes, error);
}

static double time_calls(candidate *c, int64_t calls)
{
    const double begin = clock_seconds();
    for (int64_t n = 0; n < calls; n++) execute(c, NULL);
    return clock_seconds() - begin;
}

/* Execution has a schedule, and the workspace of that, from here on. */
static attn_status make_schedule(candidate *c, const problem_spec *spec, attn_error *error)
{
    const attn_schedule *schedule;
    attn_prefix prefix;
    const attn_schedule_options known = serving_options(spec, &prefix);
    c->schedule_bytes = attn_schedule_size(c->plan);
    c->schedule = fresh_memory(c->schedule_bytes);
    const attn_status status =
        attn_schedule_make(&schedule, c->plan, &c->data.tensors, c->schedule, c->schedule_bytes, &known, error);
    if (status != ATTN_OK) return status;
    c->data.call.schedule = schedule;
    c->data.tensors.call = &c->data.call; /* the data may have moved since they were drawn */
    c->plan_says.workspace_bytes = attn_schedule_workspace_size(schedule);
    return ATTN_OK;
}

/* The first call: its time and the memory it takes. */
static attn_status run_first(candidate *c, const attn_options *given, const problem_spec *spec, double *seconds, attn_error *error)
{
    attn_options options = *given;
    options.allocator = (attn_allocator){count_allocate, count_release, &c->plan_bytes};
    const int counted = memory_forget_peak();
    const int64_t before = memory_now();
    attn_status status = c->linear ? ATTN_OK : attn_plan_create(&c->plan, &c->problem, &c->data.tensors, &options, error);
    if (status == ATTN_OK && !c->linear) status = attn_plan_describe(c->plan, &c->plan_says, error);
    if (status == ATTN_OK && spec->schedule) status = make_schedule(c, spec, error);
    if (status != ATTN_OK) return status;
    c->workspace = fresh_memory(c->plan_says.workspace_bytes);
    const double begin = clock_seconds();
    status = execute(c, error);
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

attn_status candidate_create(candidate *c, const problem_spec *spec, const common_settings *settings, attn_error *error)
{
    const attn_options options = options_for_library(settings);
    *c = (candidate){.plan_says.struct_size = sizeof c->plan_says};
    problem_spec seeded = *spec;
    if (!seeded.seed) seeded.seed = settings->seed;
    problem_print(&seeded, c->text, sizeof c->text);
    double first = 0;
    if (linear_problem_is(&seeded)) {
        attn_status done = linear_candidate_create(c, &seeded, &options, error);
        if (done == ATTN_OK) done = run_first(c, &options, &seeded, &first, error);
        if (done == ATTN_OK) calibrate(c, first);
        return done;
    }
    attn_tensors tensors;
    attn_status status = problem_build(&seeded, &c->problem, &tensors, error);
    if (status != ATTN_OK) return status;
    attn_plan *trial; /* whatever the library rejects is rejected before gigabytes are filled */
    if ((status = attn_plan_create(&trial, &c->problem, &tensors, &options, error)) != ATTN_OK) return status;
    attn_plan_destroy(trial);

    status = data_create(&c->data, &seeded, &c->problem, &tensors, &options, error);
    if (c->data.pages > 0) c->problem.paging.pages = c->data.pages; /* those that have memory, so that no other tensor lies there */
    if (status == ATTN_OK) status = run_first(c, &options, &seeded, &first, error);
    if (status == ATTN_OK) {
        c->flops = problem_flops(&c->problem, c->data.pairs);
        calibrate(c, first);
    }
    return status;
}

void candidate_destroy(candidate *c)
{
    fresh_release(c->workspace, c->plan_says.workspace_bytes);
    fresh_release(c->schedule, c->schedule_bytes);
    attn_plan_destroy(c->plan);
    linear_candidate_destroy(c);
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
