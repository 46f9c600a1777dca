/* SPDX-License-Identifier: MIT
 * schedule.c - the tasks of a call, with a schedule or without. */
#include "schedule.h"

#include "../threads/threads.h"

void attn_scheduled_run(const attn_walk *walk, const attn_args *args, int64_t planned, int64_t each,
                        void (*run)(void *context, int64_t worker, int64_t task), void *context)
{
    const attn_part_schedule *s = args->schedule;
    if (s && s->of_nodes.nodes > 0)
        attn_threads_run_near(&s->of_nodes, each, walk->parallel_for, walk->parallel_context, walk->workers, run, context);
    else attn_threads_run(walk->parallel_for, walk->parallel_context, walk->workers, s ? s->count * each : planned, run, context);
}
