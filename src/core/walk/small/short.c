/* SPDX-License-Identifier: MIT
 * short.c - the loops of short heads, forward and backward. */
#include "short.h"
#include "../walks.h"

#include <string.h>

#include "../../base/names.h"
#include "../../task/task.h"
#include "../../threads/threads.h"

/* ---- which problems ---- */

/* Scores of a head of these many queries and keys stay in a level 2 cache beside its rows.  lab/forward and lab/backward have the
 * lengths measured. */
enum { MOST_TOKENS = 256, LEAST_QUERIES = 8, LEAST_LANES = 4 };

/* Forward without a mask: values that stay in a level 1 cache of 32 KB beside the strips of scores that meet them. */
enum { MOST_VALUE_BYTES = 26 << 10 };

/* All tensors are of the compute type: the others are brought into tiles anyway. */
static int is_unconverted(const attn_resolved *p, attn_dtype t)
{
    const attn_layouts *at = &p->at;
    if (at->q.dtype != t || at->k.dtype != t || at->v.dtype != t || at->o.dtype != t) return 0;
    return p->op == ATTN_FORWARD ||
           (at->grad_o.dtype == t && at->grad_q.dtype == t && at->grad_k.dtype == t && at->grad_v.dtype == t);
}

/* 1 if queries lie in the lanes, tile by tile: forward without a mask. */
static int has_tiles(const attn_resolved *p) { return p->op == ATTN_FORWARD && !p->mask.causal; }

int attn_short_limits(const attn_resolved *p, const attn_kernel_row *row, attn_small *limits)
{
    const attn_shape *s = &p->shape;
    const int64_t lanes = row->forward->lanes, value_bytes = s->dim_v * (int64_t)attn_dtype_bytes(row->compute);
    if (p->op != ATTN_FORWARD && p->op != ATTN_BACKWARD) return 0;
    if (lanes < LEAST_LANES || s->dim_qk % lanes || s->dim_v % lanes || s->dim_qk == 0 || s->dim_v == 0) return 0;
    if (!is_unconverted(p, row->compute)) return 0;
    if (attn_walk_refusal(p->op == ATTN_FORWARD ? ATTN_WALK_SMALL_FORWARD : ATTN_WALK_SMALL_BACKWARD, p)) return 0;
    /* Without tiles keys are transposed here, queries are in tiles: it pays for those of which there are fewer. */
    *limits = (attn_small){LEAST_QUERIES, MOST_TOKENS, MOST_TOKENS, 2};
    if (has_tiles(p)) {
        const int64_t most = attn_min(row->forward->block_kv(s->dim_qk, s->dim_v), MOST_VALUE_BYTES / value_bytes);
        *limits = (attn_small){1, MOST_TOKENS, attn_min(MOST_TOKENS, most), MOST_TOKENS};
    }
    return limits->most_kv > 0;
}

/* 1 if the last queries leave so much of a vector empty that steps of their own are faster. */
static int leaves_four(const attn_walk *walk, int64_t len_q)
{
    const int64_t lanes = walk->kernel->lanes, left = len_q % lanes;
    return walk->kernel->short_heads.four.score && left > 0 && left <= ATTN_SHORT_FOUR;
}

/* Of a sequence. */
static int64_t tiles_of_queries(const attn_walk *walk, int64_t len_q)
{
    const int four = leaves_four(walk, len_q);
    return attn_ceil_div(attn_ceil_div(len_q, walk->kernel->lanes) - four, walk->kernel->vectors) + four;
}

/* The most queries and keys of a sequence. */
static int64_t most_queries(const attn_walk *walk) { return attn_min(walk->problem.shape.len_q, walk->problem.small.most_q); }
static int64_t most_keys(const attn_walk *walk) { return attn_min(walk->problem.shape.len_kv, walk->problem.small.most_kv); }

/* Forward: the queries of a head are dealt to tasks only where heads are few, since each packs the keys for itself.  Their rows do
 * not depend on it. */
static int64_t queries_of_task(const attn_walk *walk, int64_t heads, int threads)
{
    const int64_t len_q = most_queries(walk), least = 32;
    if (walk->problem.op == ATTN_BACKWARD || walk->is_brief || heads == 0 || heads >= 2 * threads) return len_q;
    const int64_t parts = attn_clamp(attn_ceil_div(2 * threads, heads), 1, attn_ceil_div(len_q, least));
    return attn_ceil_div(len_q, parts);
}

int attn_short_init(attn_walk *walk, int64_t heads, int threads)
{
    const attn_shape *shape = &walk->problem.shape;
    const int64_t lanes = walk->kernel->lanes, size = (int64_t)attn_dtype_bytes(walk->compute);
    const int64_t len_q = most_queries(walk), len_kv = most_keys(walk), rows = attn_ceil_div(len_q, lanes) * lanes;
    const int backward = walk->problem.op == ATTN_BACKWARD, tiles = has_tiles(&walk->problem);
    const int64_t paged = attn_is_paged(&walk->problem) ? len_kv : 0;
    attn_scratch *s = &walk->scratch;
    walk->block_kv = len_kv;
    walk->group = walk->at_once = walk->parts = 1;
    walk->ld_scores = attn_ceil_div(len_kv, lanes) * lanes;
    if (walk->ld_scores * size % 256 == 0) walk->ld_scores += lanes; /* a column of them is to have all sets of the cache */
    walk->task_q = queries_of_task(walk, heads, threads);
    if (tiles) {
        walk->has_four = leaves_four(walk, len_q);
        walk->tiles = tiles_of_queries(walk, len_q);
        walk->group = walk->task_q == len_q ? walk->tiles : attn_ceil_div(walk->task_q, walk->tile_q);
    }
    if (!attn_mul(heads, tiles ? attn_ceil_div(walk->tiles, walk->group) : attn_ceil_div(len_q, walk->task_q), &walk->tasks))
        return 0;
    walk->workers = walk->is_brief ? 1 : (int)attn_clamp(walk->tasks, 1, threads);
    const attn_part_of parts[] = {
        {&s->Qt, shape->dim_qk, walk->tile_q, (size_t)size}, /* of queries or, in rows, of keys */
        {&s->K, paged, shape->dim_qk, (size_t)size},
        {&s->V, backward ? shape->dim_v : paged, backward ? walk->tile_q : shape->dim_v, (size_t)size},
        {&s->S, tiles ? len_kv : rows, backward || tiles ? walk->tile_q : walk->ld_scores, (size_t)size},
        {&s->dP, backward ? rows : 0, walk->ld_scores, (size_t)size},
        {&s->m, rows, 1, (size_t)size},
        {&s->l, rows, 1, (size_t)size},
    };
    walk->worker_bytes = 0;
    walk->shared_bytes = 0;
    return attn_place(parts, sizeof parts / sizeof *parts, &walk->worker_bytes);
}

/* ---- a head ---- */

/* A tile of keys: vectors are dealt evenly. */
typedef struct key_tile {
    int64_t first, rows;
    int width;
} key_tile;

static int64_t tiles_of_keys(const attn_walk *w, int64_t len_kv) { return attn_ceil_div(len_kv, w->tile_q); }

static key_tile key_tile_at(const attn_walk *w, int64_t len, int64_t t)
{
    const int64_t lanes = w->kernel->lanes, tiles = tiles_of_keys(w, len);
    const int64_t vectors = attn_ceil_div(len, lanes), each = vectors / tiles, more = vectors % tiles;
    key_tile tile = {(t * each + attn_min(t, more)) * lanes, 0, (int)(each + (t < more))};
    tile.rows = attn_min(len - tile.first, tile.width * lanes);
    return tile;
}

/* Query 0 sees the first so many keys; all where nothing is masked. */
static int64_t seen_by_first(const attn_task *task)
{
    const attn_sight *s = &task->sight;
    if (!s->causal) return s->len_q + s->len_kv;
    return attn_clamp(attn_add_saturate(s->offset, 1), -s->len_q, s->len_kv);
}

/* Keys and values of a head, in place or out of their pages. */
typedef struct sources {
    const void *K, *V;
    int64_t ldk, ldv;
} sources;

static const void *gather(const attn_task *task, const void *base, const attn_layout *layout, int64_t dim, char *to)
{
    const attn_walk *w = task->walk;
    for (int64_t j = 0, n; j < task->sight.len_kv; j += n) {
        n = task->sight.len_kv - j;
        const void *run = attn_key_run(task, base, layout, j, &n);
        w->kernel->load_rows(n, dim, run, layout->dtype, layout->stride[2], to + j * dim * (int64_t)attn_dtype_bytes(w->compute),
                             dim);
    }
    return to;
}

static sources sources_of(const attn_task *task)
{
    const attn_walk *w = task->walk;
    const attn_resolved *p = &w->problem;
    const attn_args *a = task->args;
    if (!attn_is_paged(p))
        return (sources){attn_key_row(task, a->k, &p->at.k, 0), attn_key_row(task, a->v, &p->at.v, 0), p->at.k.stride[2],
                         p->at.v.stride[2]};
    return (sources){gather(task, a->k, &p->at.k, p->shape.dim_qk, attn_part(task, w->scratch.K)),
                     gather(task, a->v, &p->at.v, p->shape.dim_v, attn_part(task, w->scratch.V)), p->shape.dim_qk, p->shape.dim_v};
}

static void ask_for(attn_soon *soon, const attn_walk *w, const void *at, int64_t rows, int64_t dim, const attn_layout *layout)
{
    const int64_t size = (int64_t)attn_dtype_bytes(w->compute);
    soon->list[soon->count++] = (struct attn_soon_rows){(uintptr_t)at, rows, dim * size, layout->stride[2] * size};
}

/* What the head that this worker most likely takes next reads and writes. */
static attn_soon look_ahead(const attn_task *task, int64_t head)
{
    const attn_walk *w = task->walk;
    const attn_resolved *p = &w->problem;
    const attn_resolved *g = p;
    const attn_args *a = task->args;
    const attn_shape *s = &p->shape;
    attn_soon soon = {0};
    if (head >= s->batch * s->heads_q || w->is_brief) return soon;
    const attn_task next = attn_task_of_head(w, a, task->memory, head);
    const int same_keys = attn_is_paged(p) || (next.b == task->b && next.g == task->g);
    const int64_t len_q = next.sight.len_q, len_kv = next.sight.len_kv;
    if (next.sight.of_others) return soon;
    ask_for(&soon, w, attn_query_row(&next, a->o, &p->at.o, 0), len_q, s->dim_v, &p->at.o);
    if (!same_keys) {
        ask_for(&soon, w, attn_key_row(&next, a->v, &p->at.v, 0), len_kv, s->dim_v, &p->at.v);
        ask_for(&soon, w, attn_key_row(&next, a->k, &p->at.k, 0), len_kv, s->dim_qk, &p->at.k);
    }
    ask_for(&soon, w, attn_query_row(&next, a->q, &p->at.q, 0), len_q, s->dim_qk, &p->at.q);
    if (p->op == ATTN_FORWARD) return soon;
    ask_for(&soon, w, attn_query_row(&next, a->grad_o, &g->at.grad_o, 0), len_q, s->dim_v, &g->at.grad_o);
    ask_for(&soon, w, attn_key_row(&next, a->grad_v, &g->at.grad_v, 0), len_kv, s->dim_v, &g->at.grad_v);
    ask_for(&soon, w, attn_key_row(&next, a->grad_k, &g->at.grad_k, 0), len_kv, s->dim_qk, &g->at.grad_k);
    ask_for(&soon, w, attn_query_row(&next, a->grad_q, &g->at.grad_q, 0), len_q, s->dim_qk, &g->at.grad_q);
    return soon;
}

/* NaN times a weight of 0 is NaN: what came out not finite is done once more from what each row sees alone.  Returns 1 if so. */
static int multiply(const attn_walk *w, const attn_short_product *p, attn_soon *soon)
{
    if (!w->kernel->short_heads.product(p, soon)) return 0;
    w->kernel->short_heads.careful(p);
    return 1;
}

static void *elements(const attn_walk *w, const void *base, int64_t n)
{
    return (void *)((uintptr_t)base + (uintptr_t)(n * (int64_t)attn_dtype_bytes(w->compute)));
}

typedef struct call {
    const attn_walk *walk;
    const attn_args *args;
    char *workspace;
} call;

/* From the end of what comes soon, as many rows as a product of scores walks through on its way.  Where none are left *next and *ld
 * stay as they are; the products with values begin at the other end. */
static void take_rows(attn_soon *soon, int64_t rows, int64_t size, const void **next, int64_t *ld)
{
    if (soon->next >= soon->count - 1) return;
    struct attn_soon_rows *last = &soon->list[soon->count - 1];
    *next = (const void *)last->at;
    *ld = last->stride / size;
    last->at += (uintptr_t)(rows * last->stride);
    last->rows -= rows;
    if (last->rows <= 0) soon->count--;
}

/* Rows whose every score is -infinity are 0, even where a value is NaN. */
static void clear_empty(const attn_walk *w, int64_t rows, const void *factors, char *o)
{
    const size_t size = attn_dtype_bytes(w->compute);
    for (int64_t i = 0; i < rows; i++, o += w->problem.at.o.stride[2] * (int64_t)size)
        if (attn_real_at(factors, w->compute, i) == 0) memset(o, 0, (size_t)w->problem.shape.dim_v * size);
}

/* O of some tiles of queries of a head.  Keys and values are read in place, and O is written once. */
static void run_tiles(void *context, int64_t worker, int64_t number)
{
    const call *c = context;
    const attn_walk *w = c->walk;
    const attn_resolved *p = &w->problem;
    const attn_short_kernel *k = &w->kernel->short_heads;
    const attn_layout *lse = &p->at.lse;
    const int64_t groups = w->group == w->tiles ? 1 : attn_ceil_div(w->tiles, w->group), dim_qk = p->shape.dim_qk;
    const int64_t head = groups == 1 ? number : number / groups, group = number - head * groups, first = group * w->group;
    const attn_task task = attn_task_of_head(w, c->args, c->workspace + worker * w->worker_bytes, head);
    if (task.sight.of_others) return;
    const int64_t len_q = task.sight.len_q, len_kv = task.sight.len_kv, tiles = tiles_of_queries(w, len_q);
    const int64_t end = group == groups - 1 ? tiles : attn_min(first + w->group, tiles);
    const int four = leaves_four(w, len_q);
    if (first >= end) return;
    attn_soon soon = look_ahead(&task, head + w->workers);
    void *Qt = attn_part(&task, w->scratch.Qt), *S = attn_part(&task, w->scratch.S), *factors = attn_part(&task, w->scratch.l);
    void *most = attn_part(&task, w->scratch.m);
    const sources from = sources_of(&task);

    for (int64_t t = first; t < end; t++) {
        const attn_tile tile = four ? attn_tile_before_four(w, t, tiles, len_q)
                                    : attn_tile_dealt(w, t, tiles, attn_ceil_div(len_q, w->kernel->lanes), 0, len_q);
        const attn_short_lanes *step = four && t == tiles - 1 ? &k->four : &k->tile;
        w->kernel->pack_query(tile.width, tile.rows, dim_qk, attn_query_row(&task, c->args->q, &p->at.q, tile.first), p->at.q.dtype,
                              p->at.q.stride[2], attn_task_scale(&task), Qt);
        const void *next = from.V;
        int64_t next_ld = from.ldv;
        take_rows(&soon, len_kv, (int64_t)attn_dtype_bytes(w->compute), &next, &next_ld);
        step->score(tile.width, len_kv, dim_qk, Qt, from.K, from.ldk, S, most, next, next_ld);
        char *o = attn_query_row(&task, c->args->o, &p->at.o, tile.first);
        const int empty = step->weigh(tile.width, tile.rows, len_kv, S, most, factors,
                                      p->has.lse ? attn_query_row(&task, c->args->lse, lse, tile.first) : NULL, lse->stride[2]);
        step->values(tile.rows, len_kv, p->shape.dim_v, S, from.V, from.ldv, factors, o, p->at.o.stride[2], &soon);
        if (empty) clear_empty(w, tile.rows, factors, o);
    }
}

/* O of some queries of a head. */
static void run_forward(void *context, int64_t worker, int64_t number)
{
    const call *c = context;
    const attn_walk *w = c->walk;
    const attn_resolved *p = &w->problem;
    const attn_short_kernel *k = &w->kernel->short_heads;
    const attn_layout *lse = &p->at.lse;
    const int64_t parts = attn_ceil_div(most_queries(w), w->task_q), head = number / parts, first = number % parts * w->task_q;
    const attn_task task = attn_task_of_head(w, c->args, c->workspace + worker * w->worker_bytes, head);
    const int64_t len_q = task.sight.len_q, len_kv = task.sight.len_kv, dim_qk = p->shape.dim_qk;
    const int64_t rows = attn_min(w->task_q, len_q - first), seen = seen_by_first(&task) + first;
    if (task.sight.of_others || rows <= 0) return;
    attn_soon soon = look_ahead(&task, head + w->workers);
    void *Kt = attn_part(&task, w->scratch.Qt), *S = attn_part(&task, w->scratch.S), *factors = attn_part(&task, w->scratch.l);
    const sources from = sources_of(&task);

    for (int64_t t = 0; t < tiles_of_keys(w, len_kv); t++) {
        const key_tile tile = key_tile_at(w, len_kv, t);
        if (tile.first >= seen + rows) break; /* after what the last of them sees */
        const char *K = (const char *)from.K + tile.first * from.ldk * (int64_t)attn_dtype_bytes(w->compute);
        w->kernel->pack_query(tile.width, tile.rows, dim_qk, K, p->at.k.dtype, from.ldk, attn_task_scale(&task), Kt);
        k->score(tile.width, rows, dim_qk, attn_query_row(&task, c->args->q, &p->at.q, first), p->at.q.stride[2], Kt,
                 seen - tile.first, elements(w, S, tile.first), w->ld_scores, &soon);
    }
    k->weigh(rows, len_kv, seen, S, w->ld_scores, factors, p->has.lse ? attn_query_row(&task, c->args->lse, lse, first) : NULL,
             lse->stride[2]);
    const attn_short_product out = {.rows = rows,
                                    .steps = len_kv,
                                    .dim = p->shape.dim_v,
                                    .A = S,
                                    .row = w->ld_scores,
                                    .step = 1,
                                    .B = from.V,
                                    .ldb = from.ldv,
                                    .from = -len_q,
                                    .to = seen,
                                    .factors = factors,
                                    .factor_step = 1,
                                    .C = attn_query_row(&task, c->args->o, &p->at.o, first),
                                    .ldc = p->at.o.stride[2]};
    if (multiply(w, &out, &soon)) clear_empty(w, rows, factors, out.C);
}

/* What backward knows of a head. */
typedef struct gradient_head {
    const attn_task *task;
    const void *Q, *dO;
    void *Kt, *Vt, *P, *dS; /* dS of all keys, the others of the tile at hand */
    void *lse, *delta;
    const void *scale, *one;
    int64_t seen;
} gradient_head;

/* P and dS of a tile of keys, and their dV and dK. */
static void run_keys(const gradient_head *h, const key_tile *tile, attn_soon *soon)
{
    const attn_task *task = h->task;
    const attn_walk *w = task->walk;
    const attn_resolved *p = &w->problem;
    const attn_resolved *g = p;
    const attn_shape *shape = &p->shape;
    const attn_short_kernel *k = &w->kernel->short_heads;
    const int64_t seen = h->seen - tile->first, len_q = task->sight.len_q;
    void *dS = elements(w, h->dS, tile->first);
    w->kernel->pack_query(tile->width, tile->rows, shape->dim_qk, attn_key_row(task, task->args->k, &p->at.k, tile->first),
                          p->at.k.dtype, p->at.k.stride[2], attn_task_scale(task), h->Kt);
    w->kernel->pack_query(tile->width, tile->rows, shape->dim_v, attn_key_row(task, task->args->v, &p->at.v, tile->first),
                          p->at.v.dtype, p->at.v.stride[2], 1, h->Vt);
    k->score(tile->width, len_q, shape->dim_qk, h->Q, p->at.q.stride[2], h->Kt, seen, h->P, w->tile_q, soon);
    k->score(tile->width, len_q, shape->dim_v, h->dO, g->at.grad_o.stride[2], h->Vt, seen, dS, w->ld_scores, soon);
    w->backward->short_gradient(tile->width, len_q, seen, h->P, w->tile_q, dS, w->ld_scores, h->lse, h->delta);

    attn_short_product dV = {.rows = tile->rows,
                             .steps = len_q,
                             .dim = shape->dim_v,
                             .A = h->P,
                             .row = 1,
                             .step = w->tile_q,
                             .B = h->dO,
                             .ldb = g->at.grad_o.stride[2],
                             .from = 1 - seen, /* the first query that sees key m */
                             .to = len_q,
                             .factors = h->one,
                             .C = attn_key_row(task, task->args->grad_v, &g->at.grad_v, tile->first),
                             .ldc = g->at.grad_v.stride[2]};
    (void)multiply(w, &dV, soon);
    attn_short_product dK = dV;
    dK.dim = shape->dim_qk;
    dK.A = dS;
    dK.step = w->ld_scores;
    dK.B = h->Q;
    dK.ldb = p->at.q.stride[2];
    dK.factors = h->scale;
    dK.C = attn_key_row(task, task->args->grad_k, &g->at.grad_k, tile->first);
    dK.ldc = g->at.grad_k.stride[2];
    (void)multiply(w, &dK, soon);
}

static void run_backward(void *context, int64_t worker, int64_t head)
{
    const call *c = context;
    const attn_walk *w = c->walk;
    const attn_resolved *p = &w->problem;
    const attn_resolved *g = p;
    const attn_args *a = c->args;
    const attn_shape *shape = &p->shape;
    const attn_task task = attn_task_of_head(w, a, c->workspace + worker * w->worker_bytes, head);
    const int64_t len_q = task.sight.len_q, len_kv = task.sight.len_kv;
    double scale, one; /* of the compute type */
    if (task.sight.of_others) return;
    const gradient_head h = {&task,
                             attn_query_row(&task, a->q, &p->at.q, 0),
                             attn_query_row(&task, a->grad_o, &g->at.grad_o, 0),
                             attn_part(&task, w->scratch.Qt),
                             attn_part(&task, w->scratch.V),
                             attn_part(&task, w->scratch.S),
                             attn_part(&task, w->scratch.dP),
                             attn_part(&task, w->scratch.m),
                             attn_part(&task, w->scratch.l),
                             &scale,
                             &one,
                             seen_by_first(&task)};
    attn_real_put(&scale, w->compute, 0, attn_task_scale(&task));
    attn_real_put(&one, w->compute, 0, 1);
    attn_soon soon = look_ahead(&task, head + w->workers);
    const attn_layout *lse = &p->at.lse;
    w->backward->short_delta(len_q, shape->dim_v, h.dO, g->at.grad_o.stride[2], attn_query_row(&task, a->o, &p->at.o, 0),
                             p->at.o.stride[2], attn_query_row(&task, a->lse, lse, 0), lse->stride[2],
                             g->has.grad_lse ? attn_query_row(&task, a->grad_lse, &p->at.grad_lse, 0) : NULL,
                             p->at.grad_lse.stride[2], h.delta, h.lse);
    for (int64_t t = 0; t < tiles_of_keys(w, len_kv); t++) {
        const key_tile tile = key_tile_at(w, len_kv, t);
        run_keys(&h, &tile, &soon);
    }
    const attn_short_product dQ = {.rows = len_q,
                                   .steps = len_kv,
                                   .dim = shape->dim_qk,
                                   .A = h.dS,
                                   .row = w->ld_scores,
                                   .step = 1,
                                   .B = attn_key_row(&task, a->k, &p->at.k, 0),
                                   .ldb = p->at.k.stride[2],
                                   .from = -len_q,
                                   .to = h.seen,
                                   .factors = &scale,
                                   .C = attn_query_row(&task, a->grad_q, &g->at.grad_q, 0),
                                   .ldc = g->at.grad_q.stride[2]};
    (void)multiply(w, &dQ, &soon);
}

static void run(const attn_walk *walk, const attn_args *args, void *workspace,
                void (*head)(void *context, int64_t worker, int64_t task))
{
    call c = {walk, args, workspace};
    attn_threads_run(walk->parallel_for, walk->parallel_context, walk->workers, walk->tasks, head, &c);
}

void attn_sched_short_forward(const attn_walk *walk, const attn_args *args, void *workspace)
{
    run(walk, args, workspace, has_tiles(&walk->problem) ? run_tiles : run_forward);
}

void attn_sched_short_backward(const attn_walk *walk, const attn_args *args, void *workspace)
{
    run(walk, args, workspace, run_backward);
}
