/* SPDX-License-Identifier: MIT
 * rows.c - short heads forward, with a causal mask: rows of queries, keys in the lanes. */
#include <string.h>

#include "../../base/names.h"
#include "../../task/task.h"
#include "../../threads/threads.h"
#include "small.h"

typedef struct attn_small_rows {
    attn_walk walk;
    int64_t task_q;      /* queries of a task */
    int64_t ld_scores;   /* row length of scores */
    int prefetches_next; /* prefetches the data of a worker's next head */
    int64_t Kt, K, V;    /* offsets in a worker's memory: a tile of keys; keys and values gathered from pages */
    int64_t Q;           /* in the order of tiles: scaled queries */
    int64_t block_kv;    /* keys that are summed at once: all, or those of a block of tiles */
    int64_t S;
    int64_t m, l;    /* of each row */
    int64_t factors; /* in the order of tiles: the factor of a row's O of earlier keys */
    int64_t O;       /* of a block of keys, if there are several */
} attn_small_rows;

static int init(attn_walk *walk, const attn_setting *setting)
{
    attn_small_rows *plan = (attn_small_rows *)walk;
    const attn_shape *shape = &walk->problem.shape;
    const size_t size = attn_dtype_bytes(walk->compute);
    const int64_t lanes = walk->kernel.lanes, len_q = attn_small_queries(walk), len_kv = attn_small_keys(walk);
    const int64_t rows = attn_ceil_div(len_q, lanes) * lanes, paged = attn_is_paged(&walk->problem) ? len_kv : 0;
    const int64_t in_order = attn_in_order(&walk->problem) ? rows : 0;
    int64_t heads;
    if (!attn_mul(shape->batch, shape->heads_q, &heads)) return 0;
    plan->prefetches_next = !attn_is_serial(&walk->problem);
    plan->task_q = attn_small_queries_of_task(walk, heads, setting->threads);
    plan->ld_scores = attn_small_row(walk);
    walk->tile_q = lanes * walk->kernel.vectors;
    plan->block_kv =
        attn_in_order(&walk->problem) ? attn_block_of_tiles(&walk->problem, walk->kernel.product) : attn_max(len_kv, 1);
    walk->block_kv = len_kv;
    walk->tiles = attn_ceil_div(shape->len_q, walk->tile_q);
    walk->tiling = ATTN_TILING_EVEN;
    if (!attn_mul(heads, attn_ceil_div(len_q, plan->task_q), &walk->tasks)) return 0;
    const attn_part_of parts[] = {
        {&plan->Kt, shape->dim_qk, walk->tile_q, size},
        {&plan->Q, in_order, shape->dim_qk, size},
        {&plan->K, paged, shape->dim_qk, size},
        {&plan->V, paged, shape->dim_v, size},
        {&plan->S, rows, plan->ld_scores, size},
        {&plan->m, rows, 1, size},
        {&plan->l, rows, 1, size},
        {&plan->factors, in_order, 1, size},
        {&plan->O, len_kv > plan->block_kv ? rows : 0, shape->dim_v, size},
    };
    return attn_place(parts, sizeof parts / sizeof *parts, &walk->worker_bytes) && attn_small_finish(walk, setting->threads);
}

typedef struct call {
    const attn_small_rows *plan;
    const attn_args *args;
    char *workspace;
} call;

/* Queries as operands of the scores, and the scale of the keys. */
typedef struct queries {
    const void *X;
    int64_t ld;
    double key_scale;
} queries;

/* Keys are scaled, since they are packed anyway; but tiles scale queries, and so does this walk in their order. */
static queries queries_of(const attn_small_rows *plan, const attn_task *task, int64_t first, int64_t rows)
{
    const attn_walk *w = &plan->walk;
    const attn_layout *q = &w->problem.at.q;
    const int64_t dim = w->problem.shape.dim_qk;
    const void *X = attn_query_row(task, task->args->q, q, first);
    if (!attn_in_order(&w->problem)) return (queries){X, q->stride[2], attn_task_scale(task)};
    void *Q = attn_part(task, plan->Q);
    w->kernel.decode->pack_rows(rows, dim, X, q->dtype, q->stride[2], attn_task_scale(task), w->compute, Q, dim);
    return (queries){Q, dim, 1};
}

/* Some queries of a head, whose scores are computed. */
typedef struct scored {
    const attn_task *task;
    int64_t rows, seen; /* row i sees the first seen + i keys */
    void *lse;          /* of the first row, or NULL */
    attn_short_product out;
} scored;

/* Weights of all keys at once, and O. */
static void sum_once(const attn_small_rows *plan, const scored *s, attn_prefetch *prefetch)
{
    const attn_walk *w = &plan->walk;
    const attn_small_part *k = w->kernel.small;
    void *m = attn_part(s->task, plan->m), *l = attn_part(s->task, plan->l);
    k->exponentiate(s->rows, s->out.steps, s->seen, attn_part(s->task, plan->S), plan->ld_scores, m, l);
    k->finish(s->rows, m, l, s->lse, w->problem.at.lse.stride[2]);
    if (attn_small_multiply(w, &s->out, prefetch)) attn_small_clear_empty(w, s->rows, l, s->out.C);
}

/* As tiles do: m, l and O absorb block after block. */
static void sum_in_order(const attn_small_rows *plan, const scored *s, attn_prefetch *prefetch)
{
    const attn_walk *w = &plan->walk;
    const attn_small_part *k = w->kernel.small;
    const int64_t len_kv = attn_min(s->out.steps, s->seen + s->rows - 1), size = (int64_t)attn_dtype_bytes(w->compute);
    void *m = attn_part(s->task, plan->m), *l = attn_part(s->task, plan->l), *factors = attn_part(s->task, plan->factors);
    double one;
    int bad = 0;
    attn_real_put(&one, w->compute, 0, 1);
    k->begin(s->rows, m, l);
    for (int64_t low = 0, high; low == 0 || low < len_kv; low = high) {
        high = attn_min(s->out.steps, low + plan->block_kv);
        const int is_first = low == 0, is_last = high >= len_kv;
        void *S = attn_small_element(w, attn_part(s->task, plan->S), low);
        attn_short_product of_block = s->out;
        k->absorb(s->rows, high - low, s->seen - low, S, plan->ld_scores, m, l, factors);
        if (is_last) k->finish(s->rows, m, l, s->lse, w->problem.at.lse.stride[2]);
        of_block.A = S;
        of_block.steps = high - low;
        of_block.to = s->seen - low;
        of_block.B = (const char *)s->out.B + low * s->out.ldb * size;
        if (!is_first || !is_last) {
            of_block.factors = &one;
            of_block.factor_step = 0;
        }
        if (!is_first) {
            of_block.C = attn_part(s->task, plan->O);
            of_block.ldc = s->out.dim;
        }
        bad |= attn_small_multiply(w, &of_block, prefetch);
        if (!is_first) k->join(s->rows, s->out.dim, factors, is_last ? l : NULL, of_block.C, of_block.ldc, s->out.C, s->out.ldc);
    }
    if (bad) attn_small_clear_empty(w, s->rows, l, s->out.C);
}

/* O of some queries of a head. */
static void run_task(void *context, int64_t worker, int64_t task_number)
{
    const call *c = context;
    const attn_small_rows *plan = c->plan;
    const attn_walk *w = &plan->walk;
    const int64_t number = attn_scheduled_number(c->args, task_number, attn_small_cut.tasks(w));
    const attn_resolved *p = &w->problem;
    const attn_layout *lse = &p->at.lse;
    const int64_t parts = attn_ceil_div(attn_small_queries(w), plan->task_q), head = number / parts,
                  first = number % parts * plan->task_q;
    const attn_task task = attn_task_of_head(w, c->args, c->workspace + worker * w->worker_bytes, head);
    const int64_t len_q = task.visibility.len_q, len_kv = task.visibility.len_kv, dim_qk = p->shape.dim_qk;
    const int64_t rows = attn_min(plan->task_q, len_q - first), seen = attn_seen_by_first(&task) + first;
    if (task.visibility.of_other_walk || rows <= 0) return;
    attn_prefetch prefetch = plan->prefetches_next ? attn_small_prefetch(&task, head + w->workers) : (attn_prefetch){0};
    void *Kt = attn_part(&task, plan->Kt), *S = attn_part(&task, plan->S);
    const attn_small_sources from = attn_small_sources_of(&task, plan->K, plan->V);
    const queries source = queries_of(plan, &task, first, rows);

    void (*score)(int, int64_t, int64_t, const void *, int64_t, const void *, int64_t, void *, int64_t, attn_prefetch *) =
        p->invariant ? w->kernel.small->score_in_order : w->kernel.small->score;

    for (int64_t t = 0; t < attn_key_tiles(w, len_kv); t++) {
        const attn_key_tile tile = attn_key_tile_at(w, len_kv, t);
        if (tile.first >= seen + rows) break; /* past the keys that the last query sees */
        const char *K = (const char *)from.K + tile.first * from.ldk * (int64_t)attn_dtype_bytes(w->compute);
        w->kernel.storage->pack_query(tile.width, tile.rows, dim_qk, K, p->at.k.dtype, from.ldk, source.key_scale, Kt);
        score(tile.width, rows, dim_qk, source.X, source.ld, Kt, seen - tile.first, attn_small_element(w, S, tile.first),
              plan->ld_scores, &prefetch);
    }
    const scored s = {.task = &task,
                      .rows = rows,
                      .seen = seen,
                      .lse = p->has.lse ? attn_query_row(&task, c->args->lse, lse, first) : NULL,
                      .out = {.rows = rows,
                              .steps = len_kv,
                              .dim = p->shape.dim_v,
                              .A = S,
                              .row = plan->ld_scores,
                              .step = 1,
                              .B = from.V,
                              .ldb = from.ldv,
                              .from = -len_q,
                              .to = seen,
                              .factors = attn_part(&task, plan->l),
                              .factor_step = 1,
                              .C = attn_query_row(&task, c->args->o, &p->at.o, first),
                              .ldc = p->at.o.stride[2]}};
    if (attn_in_order(p)) sum_in_order(plan, &s, &prefetch);
    else sum_once(plan, &s, &prefetch);
}

static void run(const attn_walk *walk, const attn_args *args, char *workspace)
{
    call c = {(const attn_small_rows *)walk, args, workspace};
    attn_scheduled_run(walk, args, walk->tasks, attn_small_cut.tasks(walk), run_task, &c);
}

static int limits(const attn_resolved *p, const attn_kernel_row *row, attn_walk_limits *to)
{
    return p->mask.causal && attn_small_limits(p, row, to);
}

const attn_walk_type attn_walk_small_rows = {
    .name = "small rows",
    .op = ATTN_FORWARD,
    .supported = ATTN_USES(CAUSAL) | ATTN_USES(ALIGNED) | ATTN_USES(ORIGIN) | ATTN_USES(LENGTHS) | ATTN_USES(PACKED) |
                 ATTN_USES(RAGGED) | ATTN_USES(PAGED) | ATTN_USES(SCALES) | ATTN_USES(GROUPS) | ATTN_USES(INVARIANT) |
                 ATTN_USES(REPRODUCIBLE),
    .why = "a whole head at once, since it is short",
    .limits = limits,
    .size = sizeof(attn_small_rows),
    .init = init,
    .run = run,
    .cut = &attn_small_cut,
};
