/* SPDX-License-Identifier: MIT
 * channels.c - keys that are quantised by channel: where they are, and as rows. */
#include "../base/names.h"
#include "task.h"

attn_channel_run attn_channels_at(const attn_task *task, int64_t t, int64_t count)
{
    const attn_visibility *seen = &task->visibility;
    const attn_layout *k = &task->walk->problem.at.k, *tail = &task->walk->problem.at.k_tail;
    attn_channel_run run = {.count = count};
    const int64_t j = seen->list ? attn_listed_key(seen, t, &run.count) : t;
    run.first = j % ATTN_BLOCK;
    run.count = attn_min(run.count, ATTN_BLOCK - run.first);
    if (j >= seen->all_kv - seen->all_kv % ATTN_BLOCK) { /* raw scores: also keys past the last */
        const int64_t row = task->b * tail->stride[0] + task->g * tail->stride[1] + j % ATTN_TAIL * tail->stride[2];
        run.tail = (const char *)task->args->k_tail + row * (int64_t)attn_dtype_bytes(ATTN_F16);
        return run;
    }
    const char *key = attn_key_run(task, task->args->k, k, t, &run.count);
    run.group = key - run.first * k->stride[2] * (int64_t)attn_dtype_bytes(k->dtype);
    return run;
}

void attn_load_channels(const attn_task *task, int64_t low, int64_t high, void *to, int64_t ld)
{
    const attn_walk *w = task->walk;
    const int64_t dim = attn_problem_dim_k(&w->problem);
    const attn_layout *k = &w->problem.at.k, *tail = &w->problem.at.k_tail;
    for (int64_t t = low; t < high;) {
        const attn_channel_run run = attn_channels_at(task, t, high - t);
        float *at = (float *)to + (t - low) * ld;
        if (run.tail) w->kernel.storage->load_rows(run.count, dim, run.tail, ATTN_F16, tail->stride[2], at, ld);
        else w->kernel.channels->load(run.first, run.count, dim, run.group, k->stride[2], at, ld);
        t += run.count;
    }
}
