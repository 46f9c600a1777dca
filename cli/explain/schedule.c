/* SPDX-License-Identifier: MIT
 * schedule.c - see schedule.h. */
#include "schedule.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/measure/lengths.h"
#include "testing/problem/serving.h"
#include "testing/text/failure.h"
#include "testing/text/json.h"

/* The index arrays of the batch, by tensor. */
static void *allocate(void *context, int t, size_t bytes) { return ((void **)context)[t] = need_memory((int64_t)bytes + 1, 1); }

attn_status schedule_explain(schedule_facts *facts, const problem_spec *spec, const attn_problem *problem,
                             const attn_tensors *tensors, const attn_plan *plan, int threads, attn_error *error)
{
    void *arrays[TENSORS] = {0};
    attn_tensors batch = *tensors;
    random_state random = {2 * spec->seed + 1};
    batch_lengths l;
    const attn_schedule *schedule;
    attn_prefix prefix;
    const attn_schedule_options known = serving_options(spec, &prefix);
    lengths_draw(&l, spec, problem, &batch, &random, allocate, arrays);
    *facts = (schedule_facts){.description.struct_size = sizeof facts->description, .bytes = attn_schedule_size(plan)};
    void *memory = need_memory((int64_t)facts->bytes + 1, 1);
    attn_status status = attn_schedule_make(&schedule, plan, &batch, memory, facts->bytes, &known, error);
    if (status == ATTN_OK) status = attn_schedule_describe(schedule, threads, &facts->description, error);
    free(memory);
    lengths_free(&l);
    for (int t = 0; t < TENSORS; t++) free(arrays[t]);
    return status;
}

void schedule_print(const schedule_facts *facts, int threads)
{
    const attn_schedule_description *d = &facts->description;
    printf("schedule   %" PRId64 " sequences of %" PRId64 " queries and %" PRId64 " keys in all, drawn from the seed: %" PRId64
           " items, %" PRId64 " tasks\n",
           d->sequences, d->queries, d->keys, d->items, d->tasks);
    printf("           balance %.3f on %d thread%s; %" PRId64 " keys read from memory for each head; workspace %.1f KiB\n",
           d->balance, threads, threads == 1 ? "" : "s", d->keys_read, (double)d->workspace_bytes / 1024);
    printf("           up to %.1f KiB of memory for a schedule, whatever the lengths\n", (double)facts->bytes / 1024);
}

void schedule_json(cJSON *object, const schedule_facts *facts)
{
    const attn_schedule_description *d = &facts->description;
    cJSON *schedule = json_object(object, "schedule");
    json_int(schedule, "sequences", d->sequences);
    json_int(schedule, "queries", d->queries);
    json_int(schedule, "keys", d->keys);
    json_int(schedule, "keys_read", d->keys_read);
    json_int(schedule, "walks", d->walks);
    json_int(schedule, "items", d->items);
    json_int(schedule, "tasks", d->tasks);
    json_number(schedule, "balance", d->balance);
    json_int(schedule, "workspace_bytes", (int64_t)d->workspace_bytes);
    json_int(schedule, "memory_bytes", (int64_t)facts->bytes);
}
