/* SPDX-License-Identifier: MIT
 *
 * pairs.c - elements of the dense outputs that depend on no score: the dropout mask, and in packed problems the rows after a
 * sequence's end, which belong to no query tile. */
#include <string.h>

#include "../../base/names.h"
#include "../../threads/threads.h"
#include "outputs.h"

typedef struct call {
    const attn_walk *walk;
    const attn_args *args;
    char *workspace;
} call;

static void write_keep(const attn_task *task, const attn_tile *tile)
{
    const attn_walk *w = task->walk;
    const attn_layout *layout = &w->problem.at.dropout_keep;
    const int64_t n = w->problem.shape.len_kv;
    char *keep = attn_pair_at(task, task->args->dropout_keep, layout, tile->first, 0);
    attn_drop drop;
    if (attn_task_drop(task, tile, 0, &drop)) {
        w->kernel.outputs->store_keep(n, &drop, (unsigned char *)keep, layout->stride[2]);
    } else {
        for (int64_t i = 0; i < tile->rows && n; i++) memset(keep + i * layout->stride[2], 1, (size_t)n);
    }
}

static void run_tile(void *context, int64_t worker, int64_t number)
{
    const call *c = context;
    const attn_walk *w = c->walk;
    attn_task task = attn_task_of_head(w, c->args, c->workspace + worker * w->worker_bytes, number / w->tiles);
    attn_tile tile = attn_tile_at(w, number % w->tiles);
    if (w->problem.has.dropout_keep) write_keep(&task, &tile);
    if (!w->problem.has.cu_seqlens_q) return;

    attn_pairs pairs[ATTN_MAX_PAIRS];
    int64_t first = attn_max(tile.first, task.visibility.len_q), rows = tile.first + tile.rows - first;
    int count = attn_requested_pairs(&task, first, pairs);
    for (int k = 0; k < count; k++) attn_pairs_clear(&task, &pairs[k], rows);
}

void attn_write_pairs(const attn_walk *walk, const attn_args *args, void *workspace)
{
    const attn_shape *shape = &walk->problem.shape;
    call c = {walk, args, workspace};
    attn_threads_run(walk->parallel_for, walk->parallel_context, walk->workers, shape->batch * shape->heads_q * walk->tiles,
                     run_tile, &c);
}
