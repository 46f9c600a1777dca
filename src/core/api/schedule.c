/* SPDX-License-Identifier: MIT
 * schedule.c - attn_schedule_size, attn_schedule_make, attn_schedule_workspace_size; scheduled.c describes. */
#include "../plan/prefixes.h"

#include <inttypes.h>

#include "../base/checked.h"
#include "../base/error.h"
#include "../threads/pool.h"

size_t attn_schedule_size(const attn_plan *plan)
{
    size_t bytes;
    if (!plan || attn_schedule_rejection(plan) || !attn_schedule_bytes(plan, &bytes)) return 0;
    return bytes + 63; /* for alignment */
}

/* Every rule of the options but those of prefixes. */
static attn_status check_nodes(const attn_schedule_options *o, int64_t batch, attn_error *error)
{
    CHECK(o->nodes >= 0 && o->nodes <= ATTN_MAX_NODES, ATTN_ERR_ARGUMENT, "options.nodes is %d; it must be between 0 and %d",
          o->nodes, ATTN_MAX_NODES);
    CHECK(o->workers >= 0 && o->workers <= ATTN_POOL_MAX, ATTN_ERR_ARGUMENT, "options.workers is %d; it must be between 0 and %d",
          o->workers, ATTN_POOL_MAX);
    CHECK(!o->entry_nodes == (o->nodes == 0), ATTN_ERR_ARGUMENT, "options.entry_nodes is %s and options.nodes is %d",
          o->entry_nodes ? "set" : "NULL", o->nodes);
    CHECK(!o->worker_nodes == (o->workers == 0), ATTN_ERR_ARGUMENT, "options.worker_nodes is %s and options.workers is %d",
          o->worker_nodes ? "set" : "NULL", o->workers);
    for (int64_t b = 0; o->nodes > 0 && b < batch; b++)
        CHECK(o->entry_nodes[b] >= -1 && o->entry_nodes[b] < o->nodes, ATTN_ERR_ARGUMENT,
              "options.entry_nodes[%" PRId64 "] is %d; it must be -1 or a node below %d", b, (int)o->entry_nodes[b], o->nodes);
    for (int k = 0; k < o->workers; k++)
        CHECK(o->worker_nodes[k] >= -1 && o->worker_nodes[k] < o->nodes, ATTN_ERR_ARGUMENT,
              "options.worker_nodes[%d] is %d; it must be -1 or a node below %d", k, (int)o->worker_nodes[k], o->nodes);
    return ATTN_OK;
}

attn_status attn_schedule_make(const attn_schedule **schedule, const attn_plan *plan, const attn_tensors *tensors, void *memory,
                               size_t size, const attn_schedule_options *options, attn_error *error)
{
    attn_schedule_options o = {.struct_size = sizeof o};
    attn_args args;
    CHECK(schedule, ATTN_ERR_ARGUMENT, "schedule is NULL");
    *schedule = NULL;
    CHECK(plan, ATTN_ERR_ARGUMENT, "plan is NULL");
    CHECK(tensors, ATTN_ERR_ARGUMENT, "tensors is NULL");
    CHECK(memory, ATTN_ERR_ARGUMENT, "memory is NULL");
    if (options) TRY(attn_struct_read(&o, sizeof o, sizeof o, options, "attn_schedule_options", error));
    const char *rejection = attn_schedule_rejection(plan);
    CHECK(!rejection, ATTN_ERR_UNSUPPORTED, "the plan cannot be scheduled: %s", rejection);
    const size_t need = attn_schedule_size(plan);
    CHECK(need > 0, ATTN_ERR_SHAPE, "the size of a schedule of this plan overflows");
    CHECK(size >= need, ATTN_ERR_MEMORY, "memory has %zu bytes; a schedule of this plan may need %zu", size, need);
    TRY(attn_lengths_read(plan, tensors, &args, error));
    TRY(check_nodes(&o, plan->problem.shape.batch, error));
    TRY(attn_prefixes_check(&(attn_prefixes){o.prefixes, o.prefix_count}, plan, &args, error));
    attn_schedule *made = attn_schedule_fill(plan, &args, &o, attn_workspace_align(memory));
    made->workspace = attn_plan_workspace_size(plan) ? attn_schedule_need(made, plan) : 0;
    *schedule = made;
    return attn_succeed(error);
}

size_t attn_schedule_workspace_size(const attn_schedule *schedule) { return schedule ? schedule->workspace : 0; }
