/* SPDX-License-Identifier: MIT
 * schedule.c - attn_schedule_size, attn_schedule_make, attn_schedule_workspace_size, attn_schedule_describe. */
#include "../plan/prefixes.h"

#include <stdint.h>

#include "../base/checked.h"
#include "../base/error.h"
#include "../threads/pool.h"

size_t attn_schedule_size(const attn_plan *plan)
{
    size_t bytes;
    if (!plan || attn_schedule_rejection(plan) || !attn_schedule_bytes(plan, &bytes)) return 0;
    return bytes + 63; /* for alignment */
}

attn_status attn_schedule_make(const attn_schedule **schedule, const attn_plan *plan, const attn_tensors *tensors, void *memory,
                               size_t size, attn_error *error)
{
    return attn_schedule_make_shared(schedule, 0, plan, NULL, tensors, memory, size, error);
}

attn_status attn_schedule_make_shared(const attn_schedule **schedule, int64_t count, const attn_plan *plan,
                                      const attn_prefix *prefixes, const attn_tensors *tensors, void *memory, size_t size,
                                      attn_error *error)
{
    const attn_prefixes shared = {prefixes, count};
    attn_args args;
    CHECK(schedule, ATTN_ERR_ARGUMENT, "schedule is NULL");
    *schedule = NULL;
    CHECK(plan, ATTN_ERR_ARGUMENT, "plan is NULL");
    CHECK(tensors, ATTN_ERR_ARGUMENT, "tensors is NULL");
    CHECK(memory, ATTN_ERR_ARGUMENT, "memory is NULL");
    const char *rejection = attn_schedule_rejection(plan);
    CHECK(!rejection, ATTN_ERR_UNSUPPORTED, "the plan cannot be scheduled: %s", rejection);
    const size_t need = attn_schedule_size(plan);
    CHECK(need > 0, ATTN_ERR_SHAPE, "the size of a schedule of this plan overflows");
    CHECK(size >= need, ATTN_ERR_MEMORY, "memory has %zu bytes; a schedule of this plan may need %zu", size, need);
    TRY(attn_lengths_read(plan, tensors, &args, error));
    TRY(attn_prefixes_check(&shared, plan, &args, error));
    attn_schedule *made = attn_schedule_fill(plan, &args, &shared, attn_workspace_align(memory));
    made->workspace = attn_plan_workspace_size(plan) ? attn_schedule_need(made, plan) : 0;
    *schedule = made;
    return attn_succeed(error);
}

size_t attn_schedule_workspace_size(const attn_schedule *schedule) { return schedule ? schedule->workspace : 0; }

/* The greatest work of a worker, if each takes the next task when it is done; *all: the work of all. */
static double makespan(const attn_schedule *s, int n, int workers, double *all)
{
    double work[ATTN_POOL_MAX] = {0}, most = 0;
    for (int64_t i = 0; i < s->part[n].count; i++)
        for (int64_t t = 0; t < s->tasks[n]; t++) {
            int least = 0;
            for (int k = 1; k < workers; k++)
                if (work[k] < work[least]) least = k;
            work[least] += (double)s->part[n].items[i].cost;
            *all += (double)s->part[n].items[i].cost;
            if (work[least] > most) most = work[least];
        }
    return most;
}

/* Keys that the sequences of part n read; a shared piece counts once. */
static int64_t keys_of_part(const attn_schedule *s, int n)
{
    int64_t keys = 0;
    for (int64_t b = 0; b < s->key.shape.batch; b++) {
        const attn_scheduled_entry *entry = &s->entry[b];
        if (entry->part != n) continue;
        keys += s->key.listed ? attn_min(entry->listed, entry->tokens.len_kv)
                              : entry->tokens.len_kv - entry->skipped * s->key.part[n].block_kv;
    }
    for (int64_t i = 0; i < s->part[n].count; i++) {
        const attn_item *item = &s->part[n].items[i];
        for (int64_t b = item->entry + 1; b < item->entry + item->sharers; b++)
            if (s->entry[b].part == n && item->first < s->entry[b].shared) keys -= s->key.part[n].block_kv;
    }
    return keys;
}

attn_status attn_schedule_describe(const attn_schedule *schedule, int workers, attn_schedule_description *description,
                                   attn_error *error)
{
    attn_schedule_description d = {0};
    double work = 0, longest = 0;
    CHECK(schedule, ATTN_ERR_ARGUMENT, "schedule is NULL");
    CHECK(schedule->mark == ATTN_SCHEDULE_MARK, ATTN_ERR_ARGUMENT, "schedule is not a schedule of this version of libattn");
    CHECK(description, ATTN_ERR_ARGUMENT, "description is NULL");
    CHECK(workers >= 1 && workers <= ATTN_POOL_MAX, ATTN_ERR_ARGUMENT, "workers is %d; it must be between 1 and %d", workers,
          ATTN_POOL_MAX);
    TRY(attn_struct_check(description->struct_size, sizeof d, "attn_schedule_description", error));
    for (int64_t b = 0; b < schedule->key.shape.batch; b++) {
        const attn_tokens *t = &schedule->entry[b].tokens;
        d.sequences += t->len_q > 0;
        d.queries += t->len_q;
        d.keys += t->len_kv;
    }
    for (int n = 0; n < schedule->parts; n++) {
        d.walks += schedule->part[n].count > 0;
        d.tasks += schedule->part[n].count * schedule->tasks[n];
        longest += makespan(schedule, n, workers, &work);
        d.keys_read += keys_of_part(schedule, n);
    }
    d.balance = longest > 0 ? work / (longest * workers) : 1;
    d.workspace_bytes = schedule->workspace;
    attn_struct_write(description, &d, sizeof d);
    return attn_succeed(error);
}
