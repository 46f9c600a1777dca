/* SPDX-License-Identifier: MIT
 *
 * columns.c - the weights that each key receives, summed over queries.  After the walk over query tiles, which left m and l of
 * every row, a second walk gives each task a block of keys and goes through the queries in order, so no sum depends on threads.
 *
 *      for each task (a block of keys of one head, or of the heads that share a sum):
 *          for each query tile that sees some of it:
 *              score, modify, normalise S = exp(S - m) / l
 *              add                      sums_j += sum_i S_ij
 */
#include <string.h>

#include "../../base/names.h"
#include "../../threads/threads.h"
#include "../../tile/runs.h"
#include "outputs.h"

/* Rows of a head lie one after the other, padded to whole vectors. */
static int64_t row_at(const attn_task *task, const attn_tile *tile)
{
    const attn_walk *w = task->walk;
    int64_t lanes = w->kernel.lanes, rows = attn_ceil_div(w->problem.shape.len_q, lanes) * lanes;
    return (task->b * w->problem.shape.heads_q + task->h) * rows + tile->first;
}

void attn_columns_keep(const attn_task *task, const attn_finished *f, char *shared)
{
    const attn_walk *w = task->walk;
    const attn_forward_walk *plan = attn_forward_of(w);
    const int64_t size = (int64_t)attn_dtype_bytes(w->compute), at = row_at(task, f->tile);
    const size_t lanes = (size_t)(f->tile->width * w->kernel.lanes);
    memcpy(shared + plan->shared.row_m + at * size, f->m, lanes * (size_t)size);
    memcpy(shared + plan->shared.row_l + at * size, f->l, lanes * (size_t)size);
    if (w->problem.mask.empty != ATTN_EMPTY_UNIFORM) return;
    int32_t *empty = (int32_t *)(void *)(shared + plan->shared.row_empty) + at;
    for (size_t i = 0; i < lanes; i++) empty[i] = f->empty ? f->empty[i] : 0;
}

typedef struct call {
    const attn_walk *walk;
    const attn_args *args;
    char *workspace;
    int64_t heads;  /* sums for each key */
    int64_t blocks; /* of keys */
} call;

/* Writes the sums of keys low .. high-1 (NULL: all 0) to the caller's output. */
static void write_sums(const call *c, const attn_visibility *visibility, int64_t b, int64_t head, int64_t low, int64_t high,
                       const double *sums)
{
    const attn_resolved *p = &c->walk->problem;
    const int64_t *stride = p->at.column_sum.stride;
    int64_t at = head * stride[1] + (attn_keys_are_packed(p) ? visibility->first_kv * stride[2] : b * stride[0]);
    if (attn_keys_are_packed(p)) high = attn_min(high, visibility->len_kv);
    for (int64_t j = low; j < high; j++)
        attn_real_put(c->args->column_sum, c->walk->compute, at + j * stride[2], sums ? sums[j - low] : 0);
}

/* Flags of the lanes of a tile whose weights are uniform; NULL if there is none. */
static const int32_t *uniform_in(const attn_task *task, const attn_tile *tile, const char *shared)
{
    const attn_walk *w = task->walk;
    const attn_forward_walk *plan = attn_forward_of(w);
    const int32_t *alike = (const int32_t *)(const void *)(shared + plan->shared.row_empty) + row_at(task, tile);
    for (int64_t i = 0; w->problem.mask.empty == ATTN_EMPTY_UNIFORM && i < tile->width * w->kernel.lanes; i++)
        if (alike[i]) return alike;
    return NULL;
}

/* The tile's queries, and their m and l from forward. */
static void open_rows(const attn_task *task, const attn_tile *tile, const char *shared)
{
    const attn_walk *w = task->walk;
    const attn_forward_walk *plan = attn_forward_of(w);
    const int64_t size = (int64_t)attn_dtype_bytes(w->compute), at = row_at(task, tile);
    const size_t bytes = (size_t)(tile->width * w->kernel.lanes * size);
    attn_task_pack(task, tile, attn_part(task, attn_tiles_of(w)->scratch.Qt));
    memcpy(attn_part(task, plan->scratch.m), shared + plan->shared.row_m + at * size, bytes);
    memcpy(attn_part(task, plan->scratch.l), shared + plan->shared.row_l + at * size, bytes);
}

/* Weights of a tile and these keys in scratch.S. */
static void compute_weights(const attn_task *task, const attn_tile *tile, const attn_keys *keys, const int32_t *alike)
{
    const attn_walk *w = task->walk;
    const attn_forward_walk *plan = attn_forward_of(w);
    const attn_tile_scratch *at = &attn_tiles_of(w)->scratch;
    const int64_t n = keys->high - keys->low;
    void *S = attn_part(task, at->S);
    attn_task_score(task, tile, attn_part(task, at->Qt), keys, NULL, NULL);
    if (alike) w->kernel.modify->unmask_empty(tile->width, n, S, alike);
    attn_task_normalise(task, tile->width, n, attn_part(task, plan->scratch.m), attn_part(task, plan->scratch.l));
}

/* Adds one head to the sums of keys low .. high-1. */
static void add_head(const call *c, const attn_task *task, int64_t low, int64_t high, double *sums)
{
    const attn_walk *w = c->walk;
    const attn_tile_scratch *at = &attn_tiles_of(w)->scratch;
    const attn_resolved *p = &w->problem;
    const char *shared = c->workspace + w->workers * w->worker_bytes;
    const int64_t len_q = task->visibility.len_q, last = p->outputs.column_queries;
    const int64_t from = last ? attn_max(0, len_q - last) : 0; /* query */
    int all = p->mask.empty == ATTN_EMPTY_UNIFORM && !attn_keys_are_packed(p);
    high = attn_min(high, all ? p->shape.len_kv : task->visibility.len_kv);
    if (low >= high) return;

    attn_keys keys = attn_task_keys_only(task, low, high);
    for (int64_t t = 0; t < w->tiles; t++) {
        attn_tile tile = attn_tile_at(w, t);
        tile.rows = attn_clamp(len_q - tile.first, 0, tile.rows);
        if (tile.rows == 0 || tile.first + tile.rows <= from) continue;
        const int32_t *alike = uniform_in(task, &tile, shared);
        attn_tile_find_keys(&task->visibility, &tile);
        attn_interval run = {low, low};
        for (int open = 0; attn_task_next(task, &tile, alike != NULL, high, &run); open = 1) {
            if (!open) open_rows(task, &tile, shared);
            attn_keys part = attn_keys_within(task, &keys, run.low, run.high);
            compute_weights(task, &tile, &part, alike);
            w->kernel.outputs->sum_columns(tile.width, attn_max(0, from - tile.first), tile.rows, run.high - run.low,
                                           attn_part(task, at->S), sums + run.low - low);
        }
    }
}

static void run_block(void *context, int64_t worker, int64_t number)
{
    const call *c = context;
    const attn_walk *w = c->walk;
    const attn_forward_walk *plan = attn_forward_of(w);
    const attn_shape *shape = &w->problem.shape;
    const int64_t block = number % c->blocks, head = number / c->blocks % c->heads, b = number / c->blocks / c->heads;
    const int64_t low = block * w->block_kv, high = attn_min(low + w->block_kv, shape->len_kv), share = shape->heads_q / c->heads;
    char *memory = c->workspace + worker * w->worker_bytes;
    double *sums = (double *)(void *)(memory + plan->scratch.columns);
    attn_visibility visibility;
    attn_visibility_of(&w->problem, c->args, b, 0, &visibility);

    for (int64_t j = 0; j < high - low; j++) sums[j] = 0;
    for (int64_t h = head * share; h < (head + 1) * share; h++) {
        attn_task task = attn_task_of_head(w, c->args, memory, b * shape->heads_q + h);
        add_head(c, &task, low, high, sums);
    }
    write_sums(c, &visibility, b, head, low, high, sums);
}

void attn_sum_columns(const attn_walk *walk, const attn_args *args, void *workspace)
{
    const attn_shape *shape = &walk->problem.shape;
    call c = {walk, args, workspace, attn_column_heads(&walk->problem), attn_ceil_div(shape->len_kv, walk->block_kv)};
    if (walk->tasks > 0) {
        attn_threads_run(walk->parallel_for, walk->parallel_context, walk->workers, shape->batch * c.heads * c.blocks, run_block,
                         &c);
        return;
    }
    for (int64_t b = 0; b < shape->batch; b++) { /* no queries, and no workspace */
        attn_visibility visibility;
        attn_visibility_of(&walk->problem, args, b, 0, &visibility);
        for (int64_t head = 0; head < c.heads; head++) write_sums(&c, &visibility, b, head, 0, shape->len_kv, NULL);
    }
}
