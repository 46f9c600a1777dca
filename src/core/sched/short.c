/* SPDX-License-Identifier: MIT
 * short.c - the loops of short heads, forward and backward. */
#include "short.h"

#include <string.h>

#include "../base/names.h"
#include "task.h"
#include "threads.h"

/* ---- which problems ---- */

/* Scores of a head of these many queries and keys stay in a level 2 cache beside its rows.  lab/forward and lab/backward have the
 * lengths measured. */
enum { MOST_TOKENS = 256, LEAST_QUERIES = 8, LEAST_LANES = 4 };

/* Forward without a mask: values that stay in a level 1 cache of 32 KB beside the strips of scores that meet them. */
enum { MOST_VALUE_BYTES = 26 << 10 };

static int is_plain_mask(const attn_mask *mask)
{
    return !mask->window && !mask->lengths_q && !mask->lengths_kv && !mask->chunk && !mask->packed && !mask->boolean &&
           !mask->block && !mask->block_lists && mask->empty == ATTN_EMPTY_ZERO && mask->dilation <= 1 && !mask->global_q &&
           !mask->global_kv && !mask->ranges;
}

static int is_plain(const attn_problem *p)
{
    const attn_gradients *g = &p->gradients;
    return p->score.kind == ATTN_SCORE_DOT && p->score.normaliser == ATTN_NORMALISER_SOFTMAX && !(p->score.softcap > 0) &&
           is_plain_mask(&p->mask) && !p->bias.additive && !p->bias.alibi && !p->bias.sink && !p->bias_table.used &&
           !p->modifier.used && !p->relative.keys && !p->relative.values && !attn_drops_weights(p) && !p->paging.paged &&
           !g->bias && !g->slopes && !g->sink && !g->scale && !g->w && !g->bias_table && !g->relative;
}

/* All tensors are of the compute type: the others are brought into tiles anyway. */
static int is_unconverted(const attn_walk *walk)
{
    const attn_problem *p = &walk->problem;
    const attn_gradients *g = &p->gradients;
    const attn_dtype t = walk->compute;
    if (p->q.dtype != t || p->k.dtype != t || p->v.dtype != t || p->o.dtype != t) return 0;
    return p->op == ATTN_FORWARD || (g->grad_o.dtype == t && g->grad_q.dtype == t && g->grad_k.dtype == t && g->grad_v.dtype == t);
}

/* 1 if queries lie in the lanes, tile by tile: forward without a mask. */
static int has_tiles(const attn_walk *walk) { return walk->problem.op == ATTN_FORWARD && !walk->problem.mask.causal; }

int attn_is_short(const attn_walk *walk)
{
    const attn_shape *s = &walk->problem.shape;
    const int64_t lanes = walk->kernel->lanes;
    if (walk->problem.op != ATTN_FORWARD && walk->problem.op != ATTN_BACKWARD) return 0;
    if (lanes < LEAST_LANES || s->dim_qk % lanes || s->dim_v % lanes || s->dim_qk == 0 || s->dim_v == 0) return 0;
    if (s->len_q > MOST_TOKENS || s->len_kv > MOST_TOKENS || s->len_kv == 0) return 0;
    if (has_tiles(walk)) {
        if (s->len_q == 0 || s->len_kv > walk->kernel->block_kv(s->dim_qk, s->dim_v)) return 0;
        if (s->dim_v > MOST_VALUE_BYTES / (s->len_kv * (int64_t)attn_dtype_bytes(walk->compute))) return 0;
    } else if (s->len_q < LEAST_QUERIES || s->len_kv > 2 * s->len_q) {
        return 0; /* keys are transposed here, queries are in tiles: it pays for those of which there are fewer */
    }
    if (walk->problem.op == ATTN_BACKWARD && s->heads_q != s->heads_kv) return 0; /* dK would be a sum over heads */
    return is_plain(&walk->problem) && is_unconverted(walk) && !walk->outputs;
}

/* 1 if the last queries leave so much of a vector empty that steps of their own are faster. */
static int leaves_four(const attn_walk *walk)
{
    const int64_t lanes = walk->kernel->lanes, left = walk->problem.shape.len_q % lanes;
    return walk->kernel->short_heads.four.score && left > 0 && left <= ATTN_SHORT_FOUR;
}

/* Forward: the queries of a head are dealt to tasks only where heads are few, since each packs the keys for itself.  Their rows do
 * not depend on it. */
static int64_t queries_of_task(const attn_walk *walk, int64_t heads, int threads)
{
    const int64_t len_q = walk->problem.shape.len_q, least = 32;
    if (walk->problem.op == ATTN_BACKWARD || walk->is_brief || heads == 0 || heads >= 2 * threads) return len_q;
    const int64_t parts = attn_clamp(attn_ceil_div(2 * threads, heads), 1, attn_ceil_div(len_q, least));
    return attn_ceil_div(len_q, parts);
}

int attn_short_init(attn_walk *walk, int64_t heads, int threads)
{
    const attn_shape *shape = &walk->problem.shape;
    const int64_t lanes = walk->kernel->lanes, size = (int64_t)attn_dtype_bytes(walk->compute);
    const int64_t rows = attn_ceil_div(shape->len_q, lanes) * lanes;
    const int backward = walk->problem.op == ATTN_BACKWARD, tiles = has_tiles(walk);
    attn_scratch *s = &walk->scratch;
    walk->block_kv = shape->len_kv;
    walk->group = walk->splits = walk->at_once = walk->parts = 1;
    walk->ld_scores = attn_ceil_div(shape->len_kv, lanes) * lanes;
    if (walk->ld_scores * size % 256 == 0) walk->ld_scores += lanes; /* a column of them is to have all sets of the cache */
    walk->task_q = queries_of_task(walk, heads, threads);
    if (tiles) {
        walk->has_four = leaves_four(walk);
        walk->tiles = attn_ceil_div(rows / lanes - walk->has_four, walk->kernel->vectors) + walk->has_four;
        walk->group = walk->task_q == shape->len_q ? walk->tiles : attn_ceil_div(walk->task_q, walk->tile_q);
    }
    if (!attn_mul(heads, tiles ? attn_ceil_div(walk->tiles, walk->group) : attn_ceil_div(shape->len_q, walk->task_q), &walk->tasks))
        return 0;
    walk->workers = walk->is_brief ? 1 : (int)attn_clamp(walk->tasks, 1, threads);
    const attn_part_of parts[] = {
        {&s->Qt, tiles ? shape->dim_qk : 0, walk->tile_q, (size_t)size},
        {&s->K, tiles ? 0 : shape->dim_qk, walk->tile_q, (size_t)size},
        {&s->V, backward ? shape->dim_v : 0, walk->tile_q, (size_t)size},
        {&s->S, tiles ? shape->len_kv : rows, backward || tiles ? walk->tile_q : walk->ld_scores, (size_t)size},
        {&s->dP, backward ? rows : 0, walk->ld_scores, (size_t)size},
        {&s->m, rows, 1, (size_t)size},
        {&s->l, rows, 1, (size_t)size},
    };
    s->bytes = 0;
    walk->shared.bytes = 0;
    return attn_place(parts, sizeof parts / sizeof *parts, &s->bytes);
}

/* ---- a head ---- */

/* A tile of keys: vectors are dealt evenly. */
typedef struct key_tile {
    int64_t first, rows;
    int width;
} key_tile;

static int64_t tiles_of_keys(const attn_walk *w) { return attn_ceil_div(w->problem.shape.len_kv, w->tile_q); }

static key_tile key_tile_at(const attn_walk *w, int64_t t)
{
    const int64_t len = w->problem.shape.len_kv, lanes = w->kernel->lanes, tiles = tiles_of_keys(w);
    const int64_t vectors = attn_ceil_div(len, lanes), each = vectors / tiles, more = vectors % tiles;
    key_tile tile = {(t * each + attn_min(t, more)) * lanes, 0, (int)(each + (t < more))};
    tile.rows = attn_min(len - tile.first, tile.width * lanes);
    return tile;
}

/* Query 0 sees the first so many keys; all where nothing is masked. */
static int64_t seen_by_first(const attn_task *task)
{
    const attn_shape *s = &task->walk->problem.shape;
    if (!task->sight.causal) return s->len_q + s->len_kv;
    return attn_clamp(attn_add_saturate(task->sight.offset, 1), -s->len_q, s->len_kv);
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
    const attn_problem *p = &w->problem;
    const attn_gradients *g = &p->gradients;
    const attn_args *a = task->args;
    const attn_shape *s = &p->shape;
    attn_soon soon = {0};
    if (head >= s->batch * s->heads_q || w->is_brief) return soon;
    const attn_task next = attn_task_of_head(w, a, task->memory, head);
    const int same_keys = next.b == task->b && next.g == task->g;
    ask_for(&soon, w, attn_query_row(&next, a->o, &p->o, 0), s->len_q, s->dim_v, &p->o);
    if (!same_keys) {
        ask_for(&soon, w, attn_key_row(&next, a->v, &p->v, 0), s->len_kv, s->dim_v, &p->v);
        ask_for(&soon, w, attn_key_row(&next, a->k, &p->k, 0), s->len_kv, s->dim_qk, &p->k);
    }
    ask_for(&soon, w, attn_query_row(&next, a->q, &p->q, 0), s->len_q, s->dim_qk, &p->q);
    if (p->op == ATTN_FORWARD) return soon;
    ask_for(&soon, w, attn_query_row(&next, a->grad_o, &g->grad_o, 0), s->len_q, s->dim_v, &g->grad_o);
    ask_for(&soon, w, attn_key_row(&next, a->grad_v, &g->grad_v, 0), s->len_kv, s->dim_v, &g->grad_v);
    ask_for(&soon, w, attn_key_row(&next, a->grad_k, &g->grad_k, 0), s->len_kv, s->dim_qk, &g->grad_k);
    ask_for(&soon, w, attn_query_row(&next, a->grad_q, &g->grad_q, 0), s->len_q, s->dim_qk, &g->grad_q);
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
    for (int64_t i = 0; i < rows; i++, o += w->problem.o.stride[2] * (int64_t)size)
        if (attn_real_at(factors, w->compute, i) == 0) memset(o, 0, (size_t)w->problem.shape.dim_v * size);
}

/* O of some tiles of queries of a head.  Keys and values are read in place, and O is written once. */
static void run_tiles(void *context, int64_t worker, int64_t number)
{
    const call *c = context;
    const attn_walk *w = c->walk;
    const attn_problem *p = &w->problem;
    const attn_shape *shape = &p->shape;
    const attn_short_kernel *k = &w->kernel->short_heads;
    const attn_layout *lse = &p->want.lse_layout;
    const int64_t groups = w->group == w->tiles ? 1 : attn_ceil_div(w->tiles, w->group);
    const int64_t head = groups == 1 ? number : number / groups, first = (number - head * groups) * w->group;
    const attn_task task = attn_task_of_head(w, c->args, c->workspace + worker * w->scratch.bytes, head);
    attn_soon soon = look_ahead(&task, head + w->workers);
    void *Qt = attn_part(&task, w->scratch.Qt), *S = attn_part(&task, w->scratch.S), *factors = attn_part(&task, w->scratch.l);
    void *most = attn_part(&task, w->scratch.m);
    const void *K = attn_key_row(&task, c->args->k, &p->k, 0), *V = attn_key_row(&task, c->args->v, &p->v, 0);

    for (int64_t t = first; t < attn_min(first + w->group, w->tiles); t++) {
        const attn_tile tile = attn_tile_at(w, t);
        const attn_short_lanes *step = w->has_four && t == w->tiles - 1 ? &k->four : &k->tile;
        w->kernel->pack_query(tile.width, tile.rows, shape->dim_qk, attn_query_row(&task, c->args->q, &p->q, tile.first),
                              p->q.dtype, p->q.stride[2], attn_task_scale(&task), Qt);
        const void *next = V;
        int64_t next_ld = p->v.stride[2];
        take_rows(&soon, shape->len_kv, (int64_t)attn_dtype_bytes(w->compute), &next, &next_ld);
        step->score(tile.width, shape->len_kv, shape->dim_qk, Qt, K, p->k.stride[2], S, most, next, next_ld);
        char *o = attn_query_row(&task, c->args->o, &p->o, tile.first);
        const int empty = step->weigh(tile.width, tile.rows, shape->len_kv, S, most, factors,
                                      p->want.lse ? attn_query_row(&task, c->args->lse, lse, tile.first) : NULL, lse->stride[2]);
        step->values(tile.rows, shape->len_kv, shape->dim_v, S, V, p->v.stride[2], factors, o, p->o.stride[2], &soon);
        if (empty) clear_empty(w, tile.rows, factors, o);
    }
}

/* O of some queries of a head. */
static void run_forward(void *context, int64_t worker, int64_t number)
{
    const call *c = context;
    const attn_walk *w = c->walk;
    const attn_problem *p = &w->problem;
    const attn_shape *shape = &p->shape;
    const attn_short_kernel *k = &w->kernel->short_heads;
    const attn_layout *lse = &p->want.lse_layout;
    const int64_t parts = attn_ceil_div(shape->len_q, w->task_q), head = number / parts, first = number % parts * w->task_q;
    const int64_t rows = attn_min(w->task_q, shape->len_q - first);
    const attn_task task = attn_task_of_head(w, c->args, c->workspace + worker * w->scratch.bytes, head);
    const int64_t seen = seen_by_first(&task) + first;
    attn_soon soon = look_ahead(&task, head + w->workers);
    void *Kt = attn_part(&task, w->scratch.K), *S = attn_part(&task, w->scratch.S), *factors = attn_part(&task, w->scratch.l);

    for (int64_t t = 0; t < tiles_of_keys(w); t++) {
        const key_tile tile = key_tile_at(w, t);
        if (tile.first >= seen + rows) break; /* behind what the last of them sees */
        w->kernel->pack_query(tile.width, tile.rows, shape->dim_qk, attn_key_row(&task, c->args->k, &p->k, tile.first), p->k.dtype,
                              p->k.stride[2], attn_task_scale(&task), Kt);
        k->score(tile.width, rows, shape->dim_qk, attn_query_row(&task, c->args->q, &p->q, first), p->q.stride[2], Kt,
                 seen - tile.first, elements(w, S, tile.first), w->ld_scores, &soon);
    }
    k->weigh(rows, shape->len_kv, seen, S, w->ld_scores, factors,
             p->want.lse ? attn_query_row(&task, c->args->lse, lse, first) : NULL, lse->stride[2]);
    const attn_short_product out = {.rows = rows,
                                    .steps = shape->len_kv,
                                    .dim = shape->dim_v,
                                    .A = S,
                                    .row = w->ld_scores,
                                    .step = 1,
                                    .B = attn_key_row(&task, c->args->v, &p->v, 0),
                                    .ldb = p->v.stride[2],
                                    .from = -shape->len_q,
                                    .to = seen,
                                    .factors = factors,
                                    .factor_step = 1,
                                    .C = attn_query_row(&task, c->args->o, &p->o, first),
                                    .ldc = p->o.stride[2]};
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
    const attn_problem *p = &w->problem;
    const attn_gradients *g = &p->gradients;
    const attn_shape *shape = &p->shape;
    const attn_short_kernel *k = &w->kernel->short_heads;
    const int64_t seen = h->seen - tile->first;
    void *dS = elements(w, h->dS, tile->first);
    w->kernel->pack_query(tile->width, tile->rows, shape->dim_qk, attn_key_row(task, task->args->k, &p->k, tile->first), p->k.dtype,
                          p->k.stride[2], attn_task_scale(task), h->Kt);
    w->kernel->pack_query(tile->width, tile->rows, shape->dim_v, attn_key_row(task, task->args->v, &p->v, tile->first), p->v.dtype,
                          p->v.stride[2], 1, h->Vt);
    k->score(tile->width, shape->len_q, shape->dim_qk, h->Q, p->q.stride[2], h->Kt, seen, h->P, w->tile_q, soon);
    k->score(tile->width, shape->len_q, shape->dim_v, h->dO, g->grad_o.stride[2], h->Vt, seen, dS, w->ld_scores, soon);
    w->backward->short_gradient(tile->width, shape->len_q, seen, h->P, w->tile_q, dS, w->ld_scores, h->lse, h->delta);

    attn_short_product dV = {.rows = tile->rows,
                             .steps = shape->len_q,
                             .dim = shape->dim_v,
                             .A = h->P,
                             .row = 1,
                             .step = w->tile_q,
                             .B = h->dO,
                             .ldb = g->grad_o.stride[2],
                             .from = 1 - seen, /* the first query that sees key m */
                             .to = shape->len_q,
                             .factors = h->one,
                             .C = attn_key_row(task, task->args->grad_v, &g->grad_v, tile->first),
                             .ldc = g->grad_v.stride[2]};
    (void)multiply(w, &dV, soon);
    attn_short_product dK = dV;
    dK.dim = shape->dim_qk;
    dK.A = dS;
    dK.step = w->ld_scores;
    dK.B = h->Q;
    dK.ldb = p->q.stride[2];
    dK.factors = h->scale;
    dK.C = attn_key_row(task, task->args->grad_k, &g->grad_k, tile->first);
    dK.ldc = g->grad_k.stride[2];
    (void)multiply(w, &dK, soon);
}

static void run_backward(void *context, int64_t worker, int64_t head)
{
    const call *c = context;
    const attn_walk *w = c->walk;
    const attn_problem *p = &w->problem;
    const attn_gradients *g = &p->gradients;
    const attn_args *a = c->args;
    const attn_shape *shape = &p->shape;
    const attn_task task = attn_task_of_head(w, a, c->workspace + worker * w->scratch.bytes, head);
    double scale, one; /* of the compute type */
    const gradient_head h = {&task,
                             attn_query_row(&task, a->q, &p->q, 0),
                             attn_query_row(&task, a->grad_o, &g->grad_o, 0),
                             attn_part(&task, w->scratch.K),
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
    const attn_layout *lse = &p->want.lse_layout;
    w->backward->short_delta(shape->len_q, shape->dim_v, h.dO, g->grad_o.stride[2], attn_query_row(&task, a->o, &p->o, 0),
                             p->o.stride[2], attn_query_row(&task, a->lse, lse, 0),
                             g->lse ? attn_query_row(&task, a->grad_lse, lse, 0) : NULL, lse->stride[2], h.delta, h.lse);
    for (int64_t t = 0; t < tiles_of_keys(w); t++) {
        const key_tile tile = key_tile_at(w, t);
        run_keys(&h, &tile, &soon);
    }
    const attn_short_product dQ = {.rows = shape->len_q,
                                   .steps = shape->len_kv,
                                   .dim = shape->dim_qk,
                                   .A = h.dS,
                                   .row = w->ld_scores,
                                   .step = 1,
                                   .B = attn_key_row(&task, a->k, &p->k, 0),
                                   .ldb = p->k.stride[2],
                                   .from = -shape->len_q,
                                   .to = h.seen,
                                   .factors = &scale,
                                   .C = attn_query_row(&task, a->grad_q, &g->grad_q, 0),
                                   .ldc = g->grad_q.stride[2]};
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
    run(walk, args, workspace, has_tiles(walk) ? run_tiles : run_forward);
}

void attn_sched_short_backward(const attn_walk *walk, const attn_args *args, void *workspace)
{
    run(walk, args, workspace, run_backward);
}
