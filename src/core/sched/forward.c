/* SPDX-License-Identifier: MIT
 *
 * forward.c - the walk of forward attention over tiles of (queries x keys).
 *
 *      for each task (a few query tiles of one head):
 *          for each block of keys that one of them sees:
 *              score     S = scale Q K^T                                  one product
 *              modify    mask, bias, visible range                        only where a tile needs it
 *              fold      m, l, O absorb S and V                           the online softmax
 *          finish        O / l, lse, and the weights where they are wanted
 *
 * Rows are independent of one another in every bit, so the order of tasks, the group and the workers are free.
 */
#include <string.h>

#include "../base/checked.h"
#include "../base/names.h"
#include "threads.h"
#include "tile.h"
#include "visible.h"
#include "walk.h"

/* What one task knows: its head, its keys and values, and its worker's memory. */
typedef struct task_state {
    const attn_walk *walk;
    const attn_args *args;
    char *memory;
    int64_t b, h, g;
    attn_sight sight;
    const char *k_head, *v_head; /* rows of this head */
} task_state;

typedef struct block {
    int64_t low, high; /* keys */
    const void *K, *V; /* row `low`, in the compute type */
    int64_t ldk, ldv;  /* elements */
} block;

/* Row (b, h, t) of a tensor.  By way of integers, since a tensor without elements may be NULL. */
static char *row_at(const void *base, const attn_layout *layout, int64_t b, int64_t h, int64_t t)
{
    int64_t at = b * layout->stride[0] + h * layout->stride[1] + t * layout->stride[2];
    return (char *)((uintptr_t)base + (uintptr_t)(at * (int64_t)attn_dtype_bytes(layout->dtype)));
}

static void *part(const task_state *s, int64_t offset) { return s->memory + offset; }
static void *part_of_tile(const task_state *s, int64_t offset, int64_t step, int64_t tile)
{
    return s->memory + offset + tile * step;
}

/* The rows of keys or values `low` onward, brought into the compute type where they are not usable in place. */
static const void *rows_of(const task_state *s, const attn_layout *layout, const char *head, int64_t dim, int compact,
                           int64_t copy_at, int64_t low, int64_t high, int64_t *ld)
{
    const char *rows = head + low * layout->stride[2] * (int64_t)attn_dtype_bytes(layout->dtype);
    if (!compact) {
        *ld = layout->stride[2];
        return rows;
    }
    *ld = dim;
    s->walk->kernel->load_rows(high - low, dim, rows, layout->dtype, layout->stride[2], part(s, copy_at), dim);
    return part(s, copy_at);
}

static block block_at(const task_state *s, int64_t low, int64_t high)
{
    const attn_walk *w = s->walk;
    const attn_problem *p = &w->problem;
    block kv = {low, high, NULL, NULL, 0, 0};
    kv.K = rows_of(s, &p->k, s->k_head, p->shape.dim_qk, w->compact_k, w->scratch.K, low, high, &kv.ldk);
    kv.V = rows_of(s, &p->v, s->v_head, p->shape.dim_v, w->compact_v, w->scratch.V, low, high, &kv.ldv);
    return kv;
}

static attn_block block_of(const task_state *s, const void *base, const attn_layout *layout, int64_t i, int64_t j)
{
    const char *at = row_at(base, layout, s->b, s->h, i) + j * layout->stride[3] * (int64_t)attn_dtype_bytes(layout->dtype);
    attn_block source = {at, layout->dtype, layout->stride[2], layout->stride[3]};
    return source;
}

static void keep_visible(const task_state *s, const attn_tile *tile, const block *kv)
{
    const attn_walk *w = s->walk;
    int32_t *low = part(s, w->scratch.low), *high = part(s, w->scratch.high);
    for (int64_t i = 0; i < tile->width * w->kernel->lanes; i++) {
        attn_interval keys = attn_keys_of_query(&s->sight, tile->first + attn_min(i, tile->rows - 1));
        low[i] = (int32_t)(attn_clamp(keys.low, kv->low, kv->high) - kv->low);
        high[i] = (int32_t)(attn_clamp(keys.high, kv->low, kv->high) - kv->low);
    }
    w->kernel->keep_range(tile->width, kv->high - kv->low, part(s, w->scratch.S), low, high);
}

/* S and block_max of one tile and one block, modified; returns 1 if a key may have been dropped inside it. */
static int score_and_modify(const task_state *s, const attn_tile *tile, int64_t slot, const block *kv)
{
    const attn_walk *w = s->walk;
    const attn_problem *p = &w->problem;
    const attn_fwd_kernel *kernel = w->kernel;
    int64_t n = kv->high - kv->low;
    void *S = part(s, w->scratch.S), *block_max = part(s, w->scratch.block_max), *scratch = part(s, w->scratch.scratch);

    kernel->score(tile->width, n, p->shape.dim_qk, part_of_tile(s, w->scratch.Qt, w->scratch.Qt_bytes, slot), kv->K, kv->ldk, S,
                  block_max, kv->V, kv->ldv);

    int cut = !attn_tile_sees_all(&s->sight, tile->first, tile->rows, kv->low, kv->high);
    if (p->bias.additive) {
        attn_block bias = block_of(s, s->args->bias, &p->bias.bias, tile->first, kv->low);
        kernel->add_bias(tile->width, tile->rows, n, S, &bias, scratch);
    }
    if (p->mask.boolean) {
        attn_block mask = block_of(s, s->args->mask, &p->mask.mask, tile->first, kv->low);
        kernel->keep_mask(tile->width, tile->rows, n, S, &mask, scratch);
    }
    if (cut) keep_visible(s, tile, kv);

    int dropped = cut || p->bias.additive || p->mask.boolean;
    if (dropped) kernel->block_max(tile->width, n, S, block_max);
    return dropped;
}

static void fold(const task_state *s, const attn_tile *tile, int64_t slot, const block *kv, int careful)
{
    const attn_walk *w = s->walk;
    const attn_scratch *at = &w->scratch;
    void *m = part_of_tile(s, at->m, at->lane_bytes, slot), *l = part_of_tile(s, at->l, at->lane_bytes, slot);
    void *Ot = part_of_tile(s, at->Ot, at->Ot_bytes, slot), *S = part(s, at->S), *block_max = part(s, at->block_max);
    int64_t n = kv->high - kv->low, dim_v = w->problem.shape.dim_v;
    if (careful) {
        w->kernel->fold_careful(tile->width, n, dim_v, S, block_max, kv->V, kv->ldv, m, l, Ot, part(s, at->scratch));
    } else {
        /* What comes next is the block of keys behind this one; an address past the end is only a hint. */
        const void *next = (const void *)((uintptr_t)kv->K + (uintptr_t)(n * kv->ldk) * attn_dtype_bytes(w->compute));
        w->kernel->fold(tile->width, n, dim_v, S, block_max, kv->V, kv->ldv, m, l, Ot, next, kv->ldk);
    }
}

static void clear(const task_state *s, const attn_tile *tile, int64_t slot)
{
    const attn_scratch *at = &s->walk->scratch;
    s->walk->kernel->clear(tile->width, s->walk->problem.shape.dim_v, part_of_tile(s, at->m, at->lane_bytes, slot),
                           part_of_tile(s, at->l, at->lane_bytes, slot), part_of_tile(s, at->Ot, at->Ot_bytes, slot));
}

/* All of one tile's blocks again, for a tile whose O is not finite although keys were dropped: 0 * NaN must not leak. */
static void repeat_carefully(const task_state *s, const attn_tile *tile, int64_t slot)
{
    attn_interval keys = attn_keys_of_tile(&s->sight, tile->first, tile->rows);
    clear(s, tile, slot);
    for (int64_t j = keys.low; j < keys.high;) {
        block kv = block_at(s, j, attn_block_end(s->walk, j, keys.high));
        score_and_modify(s, tile, slot, &kv);
        fold(s, tile, slot, &kv, 1);
        j = kv.high;
    }
}

/* The second walk: weights from the scores and the finished m and l. */
static void write_weights(const task_state *s, const attn_tile *tile, int64_t slot)
{
    const attn_walk *w = s->walk;
    const attn_scratch *at = &w->scratch;
    const attn_layout *layout = &w->problem.want.weights_layout;
    size_t size = attn_dtype_bytes(layout->dtype);
    attn_interval keys = attn_keys_of_tile(&s->sight, tile->first, tile->rows);
    char *rows = row_at(s->args->weights, layout, s->b, s->h, tile->first);

    if (w->problem.shape.len_kv == 0) return;
    for (int64_t i = 0; i < tile->rows; i++) {
        char *row = rows + i * layout->stride[2] * (int64_t)size;
        memset(row, 0, (size_t)keys.low * size);
        memset(row + (size_t)keys.high * size, 0, (size_t)(w->problem.shape.len_kv - keys.high) * size);
    }
    for (int64_t j = keys.low; j < keys.high;) {
        block kv = block_at(s, j, attn_block_end(w, j, keys.high));
        score_and_modify(s, tile, slot, &kv);
        w->kernel->store_weights(tile->width, tile->rows, kv.high - kv.low, part(s, at->S),
                                 part_of_tile(s, at->m, at->lane_bytes, slot), part_of_tile(s, at->l, at->lane_bytes, slot),
                                 rows + (size_t)j * size, layout->dtype, layout->stride[2], part(s, at->scratch));
        j = kv.high;
    }
}

static void finish(const task_state *s, const attn_tile *tile, int64_t slot)
{
    const attn_walk *w = s->walk;
    const attn_problem *p = &w->problem;
    const attn_scratch *at = &w->scratch;
    char *lse = NULL;
    if (p->want.lse) lse = row_at(s->args->lse, &p->want.lse_layout, s->b, s->h, tile->first);
    w->kernel->finish(tile->width, tile->rows, p->shape.dim_v, part_of_tile(s, at->m, at->lane_bytes, slot),
                      part_of_tile(s, at->l, at->lane_bytes, slot), part_of_tile(s, at->Ot, at->Ot_bytes, slot),
                      row_at(s->args->o, &p->o, s->b, s->h, tile->first), p->o.dtype, p->o.stride[2], lse,
                      p->want.lse_layout.stride[2]);
}

/* Query tiles first_tile .. last_tile-1 of one head. */
static void run_group(const task_state *s, int64_t first_tile, int64_t last_tile)
{
    const attn_walk *w = s->walk;
    const attn_problem *p = &w->problem;
    int64_t low = p->shape.len_kv, high = 0;
    unsigned dropped = 0; /* one bit a tile */

    for (int64_t t = first_tile; t < last_tile; t++) {
        attn_tile tile = attn_tile_at(w, t);
        attn_interval keys = attn_keys_of_tile(&s->sight, tile.first, tile.rows);
        clear(s, &tile, t - first_tile);
        if (keys.low == keys.high) continue;
        low = attn_min(low, keys.low);
        high = attn_max(high, keys.high);
        w->kernel->pack_query(tile.width, tile.rows, p->shape.dim_qk, row_at(s->args->q, &p->q, s->b, s->h, tile.first), p->q.dtype,
                              p->q.stride[2], w->scale, part_of_tile(s, w->scratch.Qt, w->scratch.Qt_bytes, t - first_tile));
    }
    for (int64_t j = low; j < high;) {
        int64_t end = attn_block_end(w, j, high);
        block all = block_at(s, j, end);
        for (int64_t t = first_tile; t < last_tile; t++) {
            attn_tile tile = attn_tile_at(w, t);
            attn_interval keys = attn_keys_of_tile(&s->sight, tile.first, tile.rows);
            block kv = all;
            kv.low = attn_max(j, keys.low);
            kv.high = attn_min(end, keys.high);
            if (kv.low >= kv.high) continue;
            kv.K = (const char *)all.K + (kv.low - j) * all.ldk * (int64_t)attn_dtype_bytes(w->compute);
            kv.V = (const char *)all.V + (kv.low - j) * all.ldv * (int64_t)attn_dtype_bytes(w->compute);
            if (score_and_modify(s, &tile, t - first_tile, &kv)) dropped |= 1u << (t - first_tile);
            fold(s, &tile, t - first_tile, &kv, 0);
        }
        j = end;
    }
    for (int64_t t = first_tile; t < last_tile; t++) {
        attn_tile tile = attn_tile_at(w, t);
        int64_t slot = t - first_tile;
        const void *Ot = part_of_tile(s, w->scratch.Ot, w->scratch.Ot_bytes, slot);
        if ((dropped >> slot & 1) && w->kernel->not_finite(tile.width, tile.rows, p->shape.dim_v, Ot))
            repeat_carefully(s, &tile, slot);
        finish(s, &tile, slot);
        if (p->want.weights) write_weights(s, &tile, slot);
    }
}

typedef struct call {
    const attn_walk *walk;
    const attn_args *args;
    char *workspace;
} call;

static void run_task(void *context, int64_t worker, int64_t task)
{
    const call *c = context;
    const attn_walk *w = c->walk;
    const attn_problem *p = &w->problem;
    int64_t groups = attn_ceil_div(w->tiles, w->group);
    /* Heads in order, so that workers share a head's keys in the cache; the last queries first, since they see the most keys. */
    int64_t head = task / groups, group = groups - 1 - task % groups;

    task_state s;
    s.walk = w;
    s.args = c->args;
    s.memory = c->workspace + worker * w->scratch.bytes;
    s.b = head / p->shape.heads_q;
    s.h = head % p->shape.heads_q;
    s.g = s.h / (p->shape.heads_q / p->shape.heads_kv);
    s.sight = attn_sight_of(p, c->args, s.b);
    s.k_head = row_at(c->args->k, &p->k, s.b, s.g, 0);
    s.v_head = row_at(c->args->v, &p->v, s.b, s.g, 0);
    run_group(&s, group * w->group, attn_min((group + 1) * w->group, w->tiles));
}

void attn_sched_forward(const attn_walk *walk, const attn_args *args, void *workspace)
{
    call c = {walk, args, workspace};
    attn_threads_run(walk->parallel_for, walk->parallel_context, walk->workers, walk->tasks, run_task, &c);
}
