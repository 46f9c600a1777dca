/* SPDX-License-Identifier: MIT
 * modify.c - the caller's modifier of scores. */
#include <string.h>

#include "../base/names.h"
#include "task.h"

static size_t bytes_of(const attn_task *task, const attn_keys *keys)
{
    return (size_t)((keys->high - keys->low) * task->walk->tile_q) * attn_dtype_bytes(task->walk->compute);
}

static attn_score_tile tile_of(const attn_task *task, const attn_tile *tile, const attn_keys *keys, void *scores)
{
    return (attn_score_tile){.batch = task->b,
                             .head = task->h,
                             .first_q = tile->first,
                             .queries = tile->rows,
                             .first_kv = keys->low,
                             .keys = keys->high - keys->low,
                             .position = attn_add_saturate(tile->first, task->sight.offset),
                             .dtype = task->walk->compute,
                             .stride = task->walk->tile_q,
                             .scores = scores};
}

void attn_task_modify(const attn_task *task, const attn_tile *tile, const attn_keys *keys)
{
    const attn_walk *w = task->walk;
    void *S = attn_part(task, w->scratch.S);
    const attn_score_tile given = tile_of(task, tile, keys, S);
    if (w->problem.op != ATTN_FORWARD) memcpy(attn_part(task, w->scratch.unmodified), S, bytes_of(task, keys));
    task->args->modify_scores(task->args->modify_context, &given);
    w->kernel->block_max(tile->width, keys->high - keys->low, S, attn_part(task, w->scratch.block_max));
}

void attn_task_slopes(const attn_task *task, const attn_tile *tile, const attn_keys *keys, const void *dS, int again)
{
    const attn_walk *w = task->walk;
    attn_score_tile given = tile_of(task, tile, keys, attn_part(task, w->scratch.unmodified));
    given.slopes = attn_part(task, w->scratch.scratch);
    given.gradients = dS;
    given.again = again;
    memset(given.slopes, 0, bytes_of(task, keys)); /* the lanes behind the tile's queries */
    task->args->modify_slopes(task->args->modify_context, &given);
}
