/* SPDX-License-Identifier: MIT
 * small.c - which heads are short, and functions shared by their walks. */
#include "small.h"

#include <string.h>

#include "../../base/names.h"

/* ---- which problems ---- */

enum { MIN_QUERIES = 8, MIN_LANES = 4 };

/* All tensors have the compute type: others are converted into tiles anyway. */
static int is_unconverted(const attn_resolved *p, attn_dtype t)
{
    const attn_layouts *at = &p->at;
    if (at->q.dtype != t || at->k.dtype != t || at->v.dtype != t || at->o.dtype != t) return 0;
    return p->op == ATTN_FORWARD ||
           (at->grad_o.dtype == t && at->grad_q.dtype == t && at->grad_k.dtype == t && at->grad_v.dtype == t);
}

int attn_small_limits(const attn_resolved *p, const attn_kernel_row *row, attn_walk_limits *to)
{
    const attn_shape *s = &p->shape;
    const int64_t lanes = attn_kernel_product(row)->shape.lanes;
    if (lanes < MIN_LANES || s->dim_qk % lanes || s->dim_v % lanes || s->dim_qk == 0 || s->dim_v == 0) return 0;
    if (!is_unconverted(p, row->compute)) return 0;
    /* This walk transposes keys, tiles transpose queries: better those of which there are fewer. */
    to->small = (attn_small){MIN_QUERIES, ATTN_SMALL_TOKENS, ATTN_SMALL_TOKENS, 2};
    return 1;
}

int64_t attn_small_queries(const attn_walk *walk) { return attn_min(walk->problem.shape.len_q, walk->problem.small.max_q); }
int64_t attn_small_keys(const attn_walk *walk) { return attn_min(walk->problem.shape.len_kv, walk->problem.small.max_kv); }

int64_t attn_small_queries_of_task(const attn_walk *walk, int64_t heads, int threads)
{
    const int64_t len_q = attn_small_queries(walk), least = 32;
    if (walk->problem.op == ATTN_BACKWARD || attn_is_serial(&walk->problem) || heads == 0 || heads >= 2 * threads) return len_q;
    const int64_t parts = attn_clamp(attn_ceil_div(2 * threads, heads), 1, attn_ceil_div(len_q, least));
    return attn_ceil_div(len_q, parts);
}

/* Padded so that a column of a head's scores uses all sets of the cache. */
int64_t attn_small_row(const attn_walk *walk)
{
    const int64_t lanes = walk->kernel.lanes, row = attn_ceil_div(attn_small_keys(walk), lanes) * lanes;
    return row * (int64_t)attn_dtype_bytes(walk->compute) % 256 == 0 ? row + lanes : row;
}

int attn_small_finish(attn_walk *walk, int threads)
{
    walk->workers = attn_is_serial(&walk->problem) ? 1 : (int)attn_clamp(walk->tasks, 1, threads);
    return attn_walk_add_bytes(walk, 0, 0);
}

/* ---- a head ---- */

int64_t attn_key_tiles(const attn_walk *w, int64_t len_kv) { return attn_ceil_div(len_kv, w->tile_q); }

attn_key_tile attn_key_tile_at(const attn_walk *w, int64_t len, int64_t t)
{
    const int64_t lanes = w->kernel.lanes, tiles = attn_key_tiles(w, len);
    const int64_t vectors = attn_ceil_div(len, lanes), each = vectors / tiles, more = vectors % tiles;
    attn_key_tile tile = {(t * each + attn_min(t, more)) * lanes, 0, (int)(each + (t < more))};
    tile.rows = attn_min(len - tile.first, tile.width * lanes);
    return tile;
}

int64_t attn_seen_by_first(const attn_task *task)
{
    const attn_visibility *s = &task->visibility;
    if (!s->causal) return s->len_q + s->len_kv;
    return attn_clamp(attn_add_saturate(s->offset, 1), -s->len_q, s->len_kv);
}

static const void *gather(const attn_task *task, const void *base, const attn_layout *layout, int64_t dim, char *to)
{
    const attn_walk *w = task->walk;
    for (int64_t j = 0, n; j < task->visibility.len_kv; j += n) {
        n = task->visibility.len_kv - j;
        const void *run = attn_key_run(task, base, layout, j, &n);
        w->kernel.storage->load_rows(n, dim, run, layout->dtype, layout->stride[2],
                                     to + j * dim * (int64_t)attn_dtype_bytes(w->compute), dim);
    }
    return to;
}

attn_small_sources attn_small_sources_of(const attn_task *task, int64_t K, int64_t V)
{
    const attn_walk *w = task->walk;
    const attn_resolved *p = &w->problem;
    const attn_args *a = task->args;
    if (!attn_is_paged(p))
        return (attn_small_sources){attn_key_row(task, a->k, &p->at.k, 0), attn_key_row(task, a->v, &p->at.v, 0), p->at.k.stride[2],
                                    p->at.v.stride[2]};
    return (attn_small_sources){gather(task, a->k, &p->at.k, p->shape.dim_qk, attn_part(task, K)),
                                gather(task, a->v, &p->at.v, p->shape.dim_v, attn_part(task, V)), p->shape.dim_qk, p->shape.dim_v};
}

static void add_rows(attn_prefetch *prefetch, const attn_walk *w, const void *at, int64_t rows, int64_t dim,
                     const attn_layout *layout)
{
    const int64_t size = (int64_t)attn_dtype_bytes(w->compute);
    prefetch->list[prefetch->count++] = (struct attn_prefetch_rows){(uintptr_t)at, rows, dim * size, layout->stride[2] * size};
}

attn_prefetch attn_small_prefetch(const attn_task *task, int64_t head)
{
    const attn_walk *w = task->walk;
    const attn_resolved *p = &w->problem;
    const attn_args *a = task->args;
    const attn_shape *s = &p->shape;
    attn_prefetch prefetch = {0};
    if (head >= s->batch * s->heads_q) return prefetch;
    const attn_task next = attn_task_of_head(w, a, task->memory, head);
    const int same_keys = attn_is_paged(p) || (next.b == task->b && next.g == task->g);
    const int64_t len_q = next.visibility.len_q, len_kv = next.visibility.len_kv;
    if (next.visibility.of_other_walk) return prefetch;
    add_rows(&prefetch, w, attn_query_row(&next, a->o, &p->at.o, 0), len_q, s->dim_v, &p->at.o);
    if (!same_keys) {
        add_rows(&prefetch, w, attn_key_row(&next, a->v, &p->at.v, 0), len_kv, s->dim_v, &p->at.v);
        add_rows(&prefetch, w, attn_key_row(&next, a->k, &p->at.k, 0), len_kv, s->dim_qk, &p->at.k);
    }
    add_rows(&prefetch, w, attn_query_row(&next, a->q, &p->at.q, 0), len_q, s->dim_qk, &p->at.q);
    if (p->op == ATTN_FORWARD) return prefetch;
    add_rows(&prefetch, w, attn_query_row(&next, a->grad_o, &p->at.grad_o, 0), len_q, s->dim_v, &p->at.grad_o);
    add_rows(&prefetch, w, attn_key_row(&next, a->grad_v, &p->at.grad_v, 0), len_kv, s->dim_v, &p->at.grad_v);
    add_rows(&prefetch, w, attn_key_row(&next, a->grad_k, &p->at.grad_k, 0), len_kv, s->dim_qk, &p->at.grad_k);
    add_rows(&prefetch, w, attn_query_row(&next, a->grad_q, &p->at.grad_q, 0), len_q, s->dim_qk, &p->at.grad_q);
    return prefetch;
}

int attn_small_multiply(const attn_walk *w, const attn_short_product *p, attn_prefetch *prefetch)
{
    if (!w->kernel.small->product(p, prefetch)) return 0;
    w->kernel.small->nan_safe(p);
    return 1;
}

void attn_small_clear_empty(const attn_walk *w, int64_t rows, const void *factors, char *o)
{
    const size_t size = attn_dtype_bytes(w->compute);
    for (int64_t i = 0; i < rows; i++, o += w->problem.at.o.stride[2] * (int64_t)size)
        if (attn_real_at(factors, w->compute, i) == 0) memset(o, 0, (size_t)w->problem.shape.dim_v * size);
}

/* ---- schedules: a piece is a whole sequence ---- */

static int64_t one(const attn_walk *walk)
{
    (void)walk;
    return 1;
}

static int64_t tasks_of_entry(const attn_walk *walk) { return walk->tasks / attn_max(1, walk->problem.shape.batch); }

static int64_t whole(const attn_walk *walk, const attn_visibility *seen, attn_scheduled_entry *entry)
{
    (void)walk, (void)seen;
    entry->pieces = 1;
    return 0;
}

static int64_t pairs_of_entry(const attn_walk *walk, const attn_visibility *seen, const attn_scheduled_entry *entry,
                              const attn_item *item)
{
    (void)walk, (void)entry, (void)item;
    return seen->len_q * seen->len_kv;
}

static int64_t bytes_of_schedule(const attn_walk *walk, int64_t units)
{
    (void)units;
    return walk->bytes;
}

const attn_walk_cut attn_small_cut = {one, one, tasks_of_entry, 1, whole, pairs_of_entry, NULL, bytes_of_schedule};
