/* SPDX-License-Identifier: MIT
 * scheduled.c - what a schedule contains: attn_schedule_describe, attn_schedule_item. */
#include "../plan/schedule.h"

#include <inttypes.h>

#include "../base/checked.h"
#include "../base/error.h"

/* The work of a walk, and of that on a node what workers of the same node do. */
typedef struct shares {
    double all, longest, on_nodes, local;
} shares;

/* As each takes the next task when it is done; adds to the sums, and to `longest` the greatest work of a worker. */
static void hand_out(const attn_schedule *s, int n, int workers, shares *to)
{
    const attn_part_schedule *part = &s->part[n];
    const attn_node_items *nodes = &part->of_nodes;
    double work[ATTN_POOL_MAX] = {0}, most = 0;
    attn_node_counters counters;
    if (part->count == 0) return;
    attn_node_begin(&counters, nodes, s->tasks[n]);
    for (;;) {
        int least = 0;
        for (int k = 1; k < workers; k++)
            if (work[k] < work[least]) least = k;
        const int node = nodes->workers > 0 ? attn_node_of_worker(nodes, least) : nodes->nodes > 0 ? least % nodes->nodes : -1;
        const int64_t task = attn_node_take(&counters, node);
        if (task < 0) break;
        const attn_item *item = &part->items[task / s->tasks[n]];
        const int64_t home = part->entries[item->entry].node;
        const double cost = (double)item->cost;
        work[least] += cost;
        to->all += cost;
        if (home >= 0) to->on_nodes += cost;
        if (home >= 0 && home == node) to->local += cost;
        if (work[least] > most) most = work[least];
    }
    to->longest += most;
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

static attn_status check(const attn_schedule *schedule, attn_error *error)
{
    CHECK(schedule, ATTN_ERR_ARGUMENT, "schedule is NULL");
    CHECK(schedule->mark == ATTN_SCHEDULE_MARK, ATTN_ERR_ARGUMENT, "schedule is not a schedule of this version of libattn");
    return ATTN_OK;
}

attn_status attn_schedule_describe(const attn_schedule *schedule, int workers, attn_schedule_description *description,
                                   attn_error *error)
{
    attn_schedule_description d = {0};
    shares of = {0, 0, 0, 0};
    TRY(check(schedule, error));
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
        d.items += schedule->part[n].count;
        hand_out(schedule, n, workers, &of);
        d.keys_read += keys_of_part(schedule, n);
    }
    d.balance = of.longest > 0 ? of.all / (of.longest * workers) : 1;
    d.nodes = schedule->part[0].of_nodes.nodes;
    d.local = of.on_nodes > 0 ? of.local / of.on_nodes : 1;
    d.workspace_bytes = schedule->workspace;
    attn_struct_write(description, &d, sizeof d);
    return attn_succeed(error);
}

static int64_t sharers_of(const attn_schedule *s, int n, const attn_item *item)
{
    int64_t sequences = 0;
    for (int64_t b = item->entry; b < item->entry + item->sharers; b++)
        sequences += s->entry[b].part == n && item->first < s->entry[b].shared;
    return item->sharers > 1 ? sequences : 1;
}

attn_status attn_schedule_item(const attn_schedule *schedule, int64_t number, attn_scheduled_item *item, attn_error *error)
{
    int64_t items = 0, before = 0;
    int n = 0;
    TRY(check(schedule, error));
    CHECK(item, ATTN_ERR_ARGUMENT, "item is NULL");
    TRY(attn_struct_check(item->struct_size, sizeof *item, "attn_scheduled_item", error));
    for (int k = 0; k < schedule->parts; k++) {
        if (number >= items) n = k, before = items;
        items += schedule->part[k].count;
    }
    CHECK(number >= 0 && number < items, ATTN_ERR_ARGUMENT, "number is %" PRId64 "; the schedule has %" PRId64 " items", number,
          items);
    const attn_item *found = &schedule->part[n].items[number - before];
    const attn_scheduled_item d = {.entry = found->entry,
                                   .sequences = sharers_of(schedule, n, found),
                                   .tasks = schedule->tasks[n],
                                   .work = (double)found->cost * (double)schedule->tasks[n],
                                   .node = schedule->entry[found->entry].node};
    attn_struct_write(item, &d, sizeof d);
    return attn_succeed(error);
}
