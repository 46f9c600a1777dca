/* SPDX-License-Identifier: MIT
 * modify.c - the caller's modifier of scores. */
#include <string.h>

#include "../base/names.h"
#include "steps.h"

static size_t bytes_of(const attn_task *task, const attn_keys *keys)
{
    return (size_t)((keys->high - keys->low) * task->walk->tile_q) * attn_dtype_bytes(task->walk->compute);
}

static attn_score_tile tile_of(const attn_task *task, const attn_tile *tile, const attn_keys *keys, void *scores)
{
    const attn_origin *origin = &task->args->origin;
    return (attn_score_tile){.batch = task->b + origin->batch,
                             .head = task->h + origin->head,
                             .first_q = tile->first + origin->q,
                             .queries = tile->rows,
                             .first_kv = keys->low + origin->kv,
                             .keys = keys->high - keys->low,
                             .position = attn_add_saturate(attn_add_saturate(tile->first, task->visibility.offset), origin->kv),
                             .dtype = task->walk->compute,
                             .stride = task->walk->tile_q,
                             .scores = scores};
}

void attn_task_modify(const attn_task *task, const attn_tile *tile, const attn_keys *keys)
{
    const attn_walk *w = task->walk;
    const attn_tile_scratch *at = &attn_tiles_of(w)->scratch;
    void *S = attn_part(task, at->S);
    const attn_score_tile given = tile_of(task, tile, keys, S);
    if (w->problem.op != ATTN_FORWARD) memcpy(attn_part(task, at->unmodified), S, bytes_of(task, keys));
    task->args->call.modify_scores(task->args->call.modify_context, &given);
    w->kernel.modify->block_max(tile->width, keys->high - keys->low, S, attn_part(task, at->block_max));
}

void attn_task_slopes(const attn_task *task, const attn_tile *tile, const attn_keys *keys, const void *dS, int again)
{
    const attn_walk *w = task->walk;
    const attn_tile_scratch *at = &attn_tiles_of(w)->scratch;
    attn_score_tile given = tile_of(task, tile, keys, attn_part(task, at->unmodified));
    given.slopes = attn_part(task, at->modifiers);
    given.gradients = dS;
    given.again = again;
    memset(given.slopes, 0, bytes_of(task, keys)); /* for the lanes after the tile's queries */
    task->args->call.modify_slopes(task->args->call.modify_context, &given);
}
