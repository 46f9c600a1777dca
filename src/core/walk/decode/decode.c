/* SPDX-License-Identifier: MIT
 *
 * decode.c - the walk of forward attention for few queries: all query heads of a group, and all their queries, are rows against the
 * keys of their head, which are read once and in place.
 *
 *      for each task (some blocks of a key head's keys):
 *          for each block:
 *              dots        S = scale Q K^T                    piece by piece
 *              modify      softcap, bias, masks, interval     row by row, only where a row needs it
 *              exponentiate m, l of the block; S becomes weights
 *              add_values  O of the block                     piece by piece
 *      the worker that ends a key head's last task merges its blocks: exp(m_p - M) once for each, in ascending order
 *
 * A block is computed on its own, so the bits do not depend on tasks, workers or paging.
 */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "../../base/names.h"
#include "../../threads/threads.h"
#include "group.h"

static atomic_llong *open_tasks(const attn_decode_call *c, int64_t number)
{
    return (atomic_llong *)(void *)(attn_decode_after_workers(c) + c->shared.open_tasks) + number;
}

/* ---- one block ---- */

/* Rows that are unpacked at a time, and prefetched: fewer than a piece, so that memory works while they are used. */
enum { PART = 16 };

/* n rows from j on: in place, or unpacked if the kernels do not read their format (all but i8). */
static attn_decode_rows usable(const attn_decode_group *g, const attn_decode_source *s, int64_t j, int64_t n, const char *at,
                               int64_t fetch)
{
    const attn_dtype dtype = s->layout->dtype;
    if (attn_decode_unpacks(dtype)) return attn_decode_unpacked(g, s, j, n, at, fetch);
    return (attn_decode_rows){at, dtype, s->ld, fetch};
}

/* Scores of `rows` rows from `first` on. */
static void dots(const attn_decode_group *g, const attn_decode_block *b, int64_t rows, int64_t first, const attn_decode_source *s,
                 int64_t j, attn_decode_rows K, int64_t n)
{
    g->call->walk->kernel.decode->dots(rows, n, s->dim, attn_decode_at(g, b->Q, first * g->ldq), g->ldq, K.at, K.dtype, K.ld,
                                       attn_decode_at(g, b->S, first * g->lds + j - b->base), g->lds, K.fetch,
                                       g->call->plan->streams);
}

/* As integers, but for the rows that cannot be. */
static void integer_dots(const attn_decode_group *g, const attn_decode_block *b, const attn_decode_source *s, int64_t j, int64_t n,
                         const char *at, int64_t fetch)
{
    const attn_fixed_point_part *kernel = g->call->walk->kernel.fixed_point;
    const attn_dtype dtype = s->layout->dtype;
    const int64_t bytes = ATTN_FIXED_POINT_BYTES(s->dim);
    void *S = attn_decode_at(g, b->S, j - b->base);
    if (dtype == ATTN_I8) kernel->dots(g->rows, n, s->dim, b->integer_queries, bytes, at, s->ld, S, g->lds, fetch);
    else kernel->block_dots(g->rows, n, s->dim, b->integer_queries, bytes, at, dtype, s->ld, S, g->lds, fetch);
    if (!b->odd_queries) return;
    const attn_decode_rows K = usable(g, s, j, n, at, dtype == ATTN_I8 ? fetch : 0);
    for (int64_t row = 0; row < g->rows; row++)
        if (b->odd_queries >> row & 1) dots(g, b, 1, row, s, j, K, n);
}

/* Keys by channel: groups as they are, and rows of the tail. */
static void channel_dots(const attn_decode_group *g, const attn_decode_block *b, const attn_decode_source *s, int64_t j, int64_t n)
{
    const attn_channels_part *kernel = g->call->walk->kernel.channels;
    const attn_layout *tail = &g->call->walk->problem.at.k_tail;
    for (int64_t end = j + n; j < end;) {
        const attn_channel_run run = attn_channels_at(g->task, j, end - j);
        if (run.tail) dots(g, b, g->rows, 0, s, j, (attn_decode_rows){run.tail, ATTN_F16, tail->stride[2], 0}, run.count);
        else
            kernel->dots(g->rows, run.first, run.count, s->dim, b->Q, g->ldq, run.group, s->layout->stride[2],
                         attn_decode_at(g, b->S, j - b->base), g->lds);
        j += run.count;
    }
}

static void score_piece(const attn_decode_group *g, const attn_decode_source *s, int64_t j, int64_t n, const char *at,
                        int64_t fetch, void *context)
{
    const attn_decode_walk *plan = g->call->plan;
    const attn_walk *w = g->call->walk;
    const attn_decode_block *b = context;
    if (w->kernel.decode_pairs) {
        w->kernel.decode_pairs->dots(g->rows, n, s->dim, b->Q, g->ldq, at, s->ld, attn_decode_at(g, b->S, j - b->base), g->lds,
                                     fetch, plan->streams);
        return;
    }
    if (attn_is_by_channel(s->layout->dtype)) {
        attn_decode_prefetch(s, n, at, fetch);
        channel_dots(g, b, s, j, n);
        return;
    }
    const int64_t part = attn_decode_unpacks(s->layout->dtype) ? PART : n;
    for (int64_t i = 0; i < n; i += part) {
        const int64_t some = attn_min(part, n - i);
        if (plan->integer_keys) integer_dots(g, b, s, j + i, some, at + i * s->stride, fetch);
        else dots(g, b, g->rows, 0, s, j + i, usable(g, s, j + i, some, at + i * s->stride, fetch), some);
    }
}

static void value_piece(const attn_decode_group *g, const attn_decode_source *s, int64_t j, int64_t n, const char *at,
                        int64_t fetch, void *context)
{
    const attn_decode_walk *plan = g->call->plan;
    const attn_walk *w = g->call->walk;
    const attn_decode_block *b = context;
    const int64_t first = j - b->base;
    void *P = attn_decode_at(g, b->S, first);
    if (!plan->integer_values) {
        const int64_t part = attn_decode_unpacks(s->layout->dtype) ? PART : n;
        for (int64_t i = 0; i < n; i += part) {
            const int64_t some = attn_min(part, n - i);
            if (w->kernel.fixed_point && attn_is_blocks(s->layout->dtype)) {
                w->kernel.fixed_point->block_values(g->rows, some, s->dim, attn_decode_at(g, P, i), g->lds, at + i * s->stride,
                                                    s->layout->dtype, s->ld, b->O, g->ldo, fetch);
                continue;
            }
            const attn_decode_rows V = usable(g, s, j + i, some, at + i * s->stride, fetch);
            w->kernel.decode->add_values(g->rows, some, s->dim, attn_decode_at(g, P, i), g->lds, V.at, V.dtype, V.ld, b->O, g->ldo,
                                         V.fetch, plan->streams);
        }
        return;
    }
    w->kernel.fixed_point->add_values(g->rows, n, s->dim, b->integer_weights, ATTN_FIXED_POINT_BYTES(w->block_kv), first, at, s->ld,
                                      b->sums, fetch);
    for (int64_t row = 0; row < g->rows; row++)
        if (b->odd_weights >> row & 1)
            w->kernel.decode->add_values(1, n, s->dim, attn_decode_at(g, P, row * g->lds), g->lds, at, s->layout->dtype, s->ld,
                                         attn_decode_at(g, b->O, row * g->ldo), g->ldo, fetch, plan->streams);
}

/* Converts n weights of each row, times their values' factors, to fixed point. */
static void convert_weights(const attn_decode_group *g, attn_decode_block *b, int64_t n)
{
    const attn_walk *w = g->call->walk;
    const int64_t bytes = ATTN_FIXED_POINT_BYTES(w->block_kv), sums = ATTN_FIXED_POINT_SUMS(w->problem.shape.dim_v);
    b->odd_weights = 0;
    for (int64_t row = 0; row < g->rows; row++)
        if (!w->kernel.fixed_point->convert_weights(n, attn_decode_at(g, b->S, row * g->lds), b->integer_weights + row * bytes,
                                                    bytes))
            b->odd_weights |= 1u << row;
    memset(b->sums, 0, (size_t)(g->rows * sums) * sizeof *b->sums);
}

static void store_fixed_point_output(const attn_decode_group *g, const attn_decode_block *b)
{
    const attn_walk *w = g->call->walk;
    const int64_t dim_v = w->problem.shape.dim_v;
    for (int64_t row = 0; row < g->rows; row++)
        if (!(b->odd_weights >> row & 1))
            w->kernel.fixed_point->output(dim_v, b->integer_weights + row * ATTN_FIXED_POINT_BYTES(w->block_kv),
                                          b->sums + row * ATTN_FIXED_POINT_SUMS(dim_v), attn_decode_at(g, b->O, row * g->ldo),
                                          g->ldo);
}

/* The factors of the block's keys (values), contiguous; NULL if there are none. */
static const float *factors_of(const attn_decode_group *g, const attn_decode_block *b, int values)
{
    const attn_resolved *p = &g->call->walk->problem;
    const attn_layout *layout = values ? &p->at.v_scale : &p->at.k_scale;
    const void *base = values ? g->call->args->v_scale : g->call->args->k_scale;
    if ((values ? p->at.v : p->at.k).dtype != ATTN_I8) return NULL;
    for (int64_t j = b->low, n; j < b->high; j += n) {
        n = b->high - j;
        const float *run = (const void *)attn_key_run(g->task, base, layout, j, &n);
        if (layout->stride[2] == 1 && n == b->high - b->low) return run;
        for (int64_t i = 0; i < n; i++) b->factors[j - b->low + i] = run[i * layout->stride[2]];
    }
    return b->factors;
}

/* The factors are needed after all products with the keys, which leaves memory the time to deliver them. */
static void prefetch_factors(const attn_decode_group *g, const attn_decode_block *b, int values)
{
    enum { FLOATS = 64 / sizeof(float) }; /* of a line */
    const attn_resolved *p = &g->call->walk->problem;
    const attn_layout *layout = values ? &p->at.v_scale : &p->at.k_scale;
    const void *base = values ? g->call->args->v_scale : g->call->args->k_scale;
    if ((values ? p->at.v : p->at.k).dtype != ATTN_I8) return;
    const int64_t stride = layout->stride[2], step = attn_max(1, FLOATS / attn_max(1, llabs(stride)));
    for (int64_t j = b->low, n; j < b->high; j += n) {
        n = b->high - j;
        const float *run = (const void *)attn_key_run(g->task, base, layout, j, &n);
        for (int64_t i = 0; i < n; i += step) __builtin_prefetch(run + i * stride, 0, 2);
    }
}

static void value_nan_safe(const attn_decode_group *g, const attn_decode_source *s, int64_t j, int64_t n, const char *at,
                           int64_t fetch, void *context)
{
    const attn_walk *w = g->call->walk;
    const attn_decode_block *b = context; /* its S, kept_scores and O are those of one row */
    const attn_decode_rows V = usable(g, s, j, n, at, fetch);
    w->kernel.decode->add_values_nan_safe(n, s->dim, attn_decode_at(g, b->kept_scores, j - b->base),
                                          attn_decode_at(g, b->S, j - b->base), V.at, V.dtype, V.ld, b->O);
}

/* Recomputes a row whose O is not finite although keys were dropped: 0 * NaN must not leak. */
static void repeat_nan_safe(const attn_decode_group *g, const attn_decode_block *b, int64_t row)
{
    const attn_walk *w = g->call->walk;
    attn_decode_block one = *b;
    one.S = attn_decode_at(g, b->S, row * g->lds);
    one.kept_scores = attn_decode_at(g, b->kept_scores, row * g->lds);
    one.O = attn_decode_at(g, b->O, row * g->ldo);
    if (!w->kernel.decode->row_not_finite(g->ldo, one.O)) return;
    memset(one.O, 0, (size_t)(g->ldo * g->size));
    attn_decode_pieces(g, &g->values, b->low, b->high, (attn_decode_next){NULL, 0}, value_nan_safe, &one);
}

/* A dropped key has no weight, whatever its value's scale is. */
static void drop_weights(int64_t n, const float *scores, float *weights)
{
    for (int64_t j = 0; j < n; j++) weights[j] = scores[j] == -INFINITY ? 0 : weights[j];
}

/* then: what this worker will read after the block. */
static void run_block(const attn_decode_group *g, attn_decode_block *b, attn_decode_next then)
{
    const attn_decode_walk *plan = g->call->plan;
    const attn_walk *w = g->call->walk;
    const int64_t before = b->low - b->base, n = b->high - b->base;
    unsigned dropped = 0; /* a bit for each row */
    const float *factors;

    prefetch_factors(g, b, 0);
    prefetch_factors(g, b, 1);
    attn_decode_pieces(g, &g->keys, b->low, b->high, (attn_decode_next){&g->values, b->low}, score_piece, b);
    factors = factors_of(g, b, 0);
    for (int64_t k = 0; k < g->heads; k++) {
        for (int64_t i = 0; i < g->queries; i++) {
            const int64_t row = k * g->queries + i;
            void *S = attn_decode_at(g, b->S, row * g->lds);
            if (attn_decode_modify(g, &g->task[k], i, b, factors, attn_decode_at(g, S, before))) dropped |= 1u << row;
            w->kernel.decode->drop_outside(n, S, before, n);
            if (dropped >> row & 1) memcpy(attn_decode_at(g, b->kept_scores, row * g->lds), S, (size_t)(n * g->size));
            w->kernel.decode->exponentiate_row(n, S, attn_decode_at(g, attn_decode_number(g, g->call->shared.m, row), b->number),
                                               attn_decode_at(g, attn_decode_number(g, g->call->shared.l, row), b->number));
        }
    }
    factors = factors_of(g, b, 1);
    for (int64_t row = 0; factors && row < g->rows; row++) {
        void *P = attn_decode_at(g, b->S, row * g->lds + before);
        w->kernel.decode->scale_row(n - before, P, factors);
        if (dropped >> row & 1) drop_weights(n - before, attn_decode_at(g, b->kept_scores, row * g->lds + before), P);
    }
    memset(b->O, 0, (size_t)attn_min(g->O_bytes, attn_ceil_div(g->rows, 4) * 4 * g->ldo * g->size));
    if (plan->integer_values) convert_weights(g, b, n);
    attn_decode_pieces(g, &g->values, b->low, b->high, then, value_piece, b);
    if (plan->integer_values) store_fixed_point_output(g, b);
    for (int64_t row = 0; row < g->rows; row++)
        if (dropped >> row & 1) repeat_nan_safe(g, b, row);
}

/* ---- tasks ---- */

static void pack_queries(const attn_decode_group *g, attn_decode_block *b)
{
    const attn_decode_walk *plan = g->call->plan;
    const attn_walk *w = g->call->walk;
    const attn_resolved *p = &w->problem;
    memset(b->Q, 0, (size_t)plan->scratch.Q_bytes);
    for (int64_t k = 0; k < g->heads; k++) {
        const attn_task *task = &g->task[k];
        const char *q = attn_query_row(task, task->args->q, &p->at.q, 0);
        void *Q = attn_decode_at(g, b->Q, k * g->queries * g->ldq);
        if (w->kernel.decode_pairs) w->kernel.decode_pairs->pack_rows(g->queries, p->shape.dim_qk, q, p->at.q.stride[2], Q, g->ldq);
        else
            w->kernel.decode->pack_rows(g->queries, p->shape.dim_qk, q, p->at.q.dtype, p->at.q.stride[2], attn_task_scale(task),
                                        plan->tile_kv ? w->compute : p->at.k.dtype, Q, g->ldq);
    }
    for (int64_t row = 0; plan->integer_keys && row < attn_ceil_div(g->rows, 4) * 4; row++)
        if (!w->kernel.fixed_point->convert_query(p->shape.dim_qk, attn_decode_at(g, b->Q, row * g->ldq),
                                                  b->integer_queries + row * ATTN_FIXED_POINT_BYTES(p->shape.dim_qk)))
            b->odd_queries |= 1u << row;
}

/* The keys that any of the rows sees. */
static attn_interval keys_of_group(const attn_decode_group *g)
{
    attn_interval all = {INT64_MAX, 0};
    for (int64_t k = 0; k < g->heads; k++) {
        for (int64_t i = 0; i < g->queries; i++) {
            attn_interval seen = attn_keys_of_query(&g->task[k].visibility, i).local;
            if (seen.low == seen.high) continue;
            all.low = attn_min(all.low, seen.low);
            all.high = attn_max(all.high, seen.high);
        }
    }
    if (all.low > all.high) all.low = 0;
    return all;
}

/* A block that no row sees has weight 0. */
static void mark_masked(const attn_decode_group *g, int64_t number)
{
    const attn_walk *w = g->call->walk;
    for (int64_t row = 0; row < g->rows; row++) {
        attn_real_put(attn_decode_number(g, g->call->shared.m, row), w->compute, number, 0);
        attn_real_put(attn_decode_number(g, g->call->shared.l, row), w->compute, number, 0);
    }
}

static void finish_group(const attn_decode_group *g)
{
    const attn_decode_walk *plan = g->call->plan;
    const attn_walk *w = g->call->walk;
    const attn_resolved *p = &w->problem;
    const attn_layout *lse = &p->at.lse;
    for (int64_t k = 0; k < g->heads; k++) {
        const attn_task *task = &g->task[k];
        const int64_t rows = attn_is_packed(p) || task->visibility.of_other_walk ? g->queries : p->shape.len_q;
        for (int64_t i = 0; i < rows; i++) {
            /* A row past its sequence's end has no blocks and no sink. */
            const int in_sequence = i < g->queries;
            if (plan->tile_kv) {
                attn_decode_finish(g, task, in_sequence ? k * g->queries + i : -1, i);
                continue;
            }
            const int64_t row = in_sequence ? k * g->queries + i : 0;
            const double sink = in_sequence ? attn_task_sink(task) : -INFINITY;
            w->kernel.decode->finish_row(in_sequence ? g->blocks : 0, p->shape.dim_v, attn_decode_number(g, g->call->shared.m, row),
                                         attn_decode_number(g, g->call->shared.l, row),
                                         attn_decode_at(g, attn_decode_state(g, 0), row * g->ldo), g->O_bytes / g->size,
                                         p->at.v.dtype, sink, attn_part(g->task, plan->scratch.O),
                                         attn_query_row(task, task->args->o, &p->at.o, i), p->at.o.dtype,
                                         p->has.lse ? attn_query_row(task, task->args->lse, lse, i) : NULL);
        }
    }
}

/* The key head of a task, and its blocks. */
static int64_t find_task(const attn_decode_call *c, int64_t number, int64_t *first, int64_t *count)
{
    const attn_decode_walk *plan = c->plan;
    const int64_t heads_kv = c->walk->problem.shape.heads_kv;
    if (c->args->schedule) {
        const attn_item *item = &c->args->schedule->items[number / heads_kv];
        *first = item->first, *count = item->count;
        return item->entry * heads_kv + number % heads_kv;
    }
    const int64_t of_head = attn_ceil_div(plan->blocks, plan->blocks_of_task), heads = c->walk->tasks / of_head;
    *first = (plan->by_block ? number / heads : number % of_head) * plan->blocks_of_task;
    *count = attn_min(plan->blocks_of_task, plan->blocks - *first);
    return plan->by_block ? number % heads : number / of_head;
}

/* Some blocks of a key head. */
static void run_blocks(const attn_decode_call *c, int64_t worker, int64_t key_head, int64_t first, int64_t count)
{
    const attn_decode_walk *plan = c->plan;
    const attn_walk *w = c->walk;
    attn_decode_group g;
    if (w->problem.skips_others && !attn_has_entry(&w->problem, c->args, key_head / w->problem.shape.heads_kv)) return;
    attn_decode_group_at(&g, c, c->workspace + worker * w->worker_bytes, key_head);
    const attn_interval all = keys_of_group(&g);
    attn_decode_block b = {.Q = attn_part(g.task, plan->scratch.Q),
                           .S = attn_part(g.task, plan->scratch.S),
                           .kept_scores = attn_part(g.task, plan->scratch.kept_scores),
                           .factors = attn_part(g.task, plan->scratch.factors),
                           .integer_queries = attn_part(g.task, plan->scratch.integer_queries),
                           .integer_weights = attn_part(g.task, plan->scratch.integer_weights),
                           .sums = attn_part(g.task, plan->scratch.fixed_point_sums)};
    int packed = 0;
    for (int64_t n = first; n < first + count; n++) {
        const int64_t start = (n == 0 ? 0 : n + g.skipped) * w->block_kv, lanes = w->kernel.decode->shape.lanes;
        b.number = n;
        b.low = attn_max(all.low, start);
        b.high = attn_min(all.high, start + w->block_kv);
        if (b.low >= b.high) {
            if (plan->tile_kv) attn_decode_part_masked(&g, n);
            else mark_masked(&g, n);
            continue;
        }
        if (!packed) pack_queries(&g, &b);
        packed = 1;
        /* The place of a key's score depends only on the key's place in the block. */
        b.base = b.low - (b.low - start) % lanes;
        b.O = attn_decode_state(&g, n);
        const attn_decode_next then = {b.high < all.high && n + 1 < first + count ? &g.keys : NULL, b.high};
        if (plan->tile_kv) attn_decode_part_run(&g, &b, then);
        else run_block(&g, &b, then);
    }
    if (atomic_fetch_sub_explicit(open_tasks(c, g.number), 1, memory_order_acq_rel) == 1) finish_group(&g);
}

static void run_task(void *context, int64_t worker, int64_t number)
{
    const attn_decode_call *c = context;
    const attn_part_schedule *schedule = c->args->schedule;
    const int64_t heads_kv = c->walk->problem.shape.heads_kv;
    int64_t first, count;
    const int64_t key_head = find_task(c, number, &first, &count);
    const attn_item *item = schedule ? &schedule->items[number / heads_kv] : NULL;
    if (!item || item->sharers <= 1) {
        run_blocks(c, worker, key_head, first, count);
        return;
    }
    for (int64_t n = 0; n < item->sharers; n++) { /* after the first, these keys come from the cache */
        const attn_scheduled_entry *entry = &schedule->entries[item->entry + n];
        if (entry->part == schedule->part && first < entry->shared) run_blocks(c, worker, key_head + n * heads_kv, first, count);
    }
}

void attn_decode_run(const attn_walk *walk, const attn_args *args, char *workspace)
{
    const attn_decode_walk *plan = (const attn_decode_walk *)walk;
    attn_args prepared = *args;
    attn_tables_begin(&plan->tables, walk, args, workspace, &prepared);
    attn_decode_call c = {plan, walk, &prepared, workspace + plan->tables.bytes, plan->shared};
    const attn_shape *s = &walk->problem.shape;
    const attn_part_schedule *schedule = args->schedule;
    int64_t unused;
    if (schedule) (void)attn_decode_share(plan, schedule->units * s->heads_kv, 1, &c.shared, &unused);
    for (int64_t n = 0; n < s->batch * s->heads_kv; n++)
        atomic_init(open_tasks(&c, n),
                    schedule ? schedule->entries[n / s->heads_kv].items : attn_ceil_div(plan->blocks, plan->blocks_of_task));
    attn_scheduled_run(walk, args, walk->tasks, s->heads_kv, run_task, &c);
}
