/* SPDX-License-Identifier: MIT
 *
 * prepare.c - prepared queries and keys before the walk, and the caller's gradients after it.  prepare.h has the formulas.
 *
 *      begin     w and w^T in the compute type       for each tile of queries: q~       for each block of keys: k~
 *      finish    for each tile of queries: dq        for each block of keys: dk         for each head: dw, in order
 *
 * w is applied by the kernel's own products: a tile of queries is stored transposed, so w q is the "scores" of the rows of w.
 */
#include "prepare.h"

#include <string.h>

#include "../base/element.h"
#include "../base/names.h"
#ifndef ATTN_INFERENCE_ONLY
#include "../gradient/outer.h"
#endif
#include "../task/task.h"
#include "../threads/threads.h"
#include "additive.h"
#include "broadcast_sum.h"

int attn_prepares_keys(const attn_resolved *problem)
{
    return problem->score.kind == ATTN_SCORE_COSINE || problem->score.kind == ATTN_SCORE_DISTANCE;
}

static int is_linear(const attn_resolved *problem)
{
    return problem->score.kind == ATTN_SCORE_GENERAL || problem->score.kind == ATTN_SCORE_METRIC;
}

int attn_dense_rows(attn_layout *layout, int64_t batch, attn_dtype compute, int64_t heads, int64_t tokens, int64_t dim, int packed)
{
    int64_t *stride = layout->stride, rows = tokens;
    layout->dtype = compute;
    if (packed && !attn_mul(rows, batch, &rows)) return 0;
    stride[3] = 1;
    stride[2] = dim;
    if (!attn_mul(rows, dim, &stride[1]) || !attn_mul(stride[1], heads, &stride[0])) return 0;
    if (packed) stride[0] = 0;
    return 1;
}

int attn_prepare_problem(const attn_resolved *problem, attn_resolved *prepared)
{
    const attn_shape *s = &problem->shape;
    const attn_dtype compute = problem->at.q.dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32;
    if (problem->score.kind == ATTN_SCORE_DOT) return 1;
    attn_score *score = &prepared->score;
    if (score->kind == ATTN_SCORE_ADDITIVE) return attn_additive_problem(prepared, compute);
    int64_t *dim = &prepared->shape.dim_qk;
    if (score->dim_k) *dim = score->dim_k;
    if (score->kind == ATTN_SCORE_DISTANCE && !attn_add(s->dim_qk, 2, dim)) return 0;
    if (score->scale_kind == ATTN_SCALE_DEFAULT) score->scale_kind = ATTN_SCALE_VALUE;
    score->kind = ATTN_SCORE_DOT;
    prepared->has.grad_score_matrix = 0;
    if (!attn_dense_rows(&prepared->at.q, s->batch, compute, s->heads_q, s->len_q, *dim, attn_is_packed(problem))) return 0;
    prepared->at.grad_q = prepared->at.q;
    if (!attn_prepares_keys(problem)) return 1;
    if (!attn_dense_rows(&prepared->at.k, s->batch, compute, s->heads_kv, s->len_kv, *dim, attn_keys_are_packed(problem))) return 0;
    prepared->at.grad_k = prepared->at.k;
    return 1;
}

int attn_prepare_init(attn_prepare *prepare, const attn_walk *walk)
{
    const attn_resolved *p = &prepare->problem;
    const attn_shape *s = &p->shape;
    const size_t size = attn_dtype_bytes(walk->compute);
    const int64_t dim = walk->problem.shape.dim_qk, tile = walk->tile_q, lanes = walk->kernel.lanes;
    const int kind = p->score.kind != ATTN_SCORE_DOT, keys = attn_prepares_keys(p), linear = is_linear(p);
    const int backward = kind && p->op == ATTN_BACKWARD, sums = p->has.grad_score_matrix,
              metric = p->score.kind == ATTN_SCORE_METRIC;
    int64_t *const at = &prepare->bytes, w_size, queries, key_rows, sum, more_sum;

    *at = 0;
    if (!kind) return 1;
    int64_t w_shape[2];
    attn_problem_matrix_shape(p, w_shape);
    prepare->rows = w_shape[0];
    prepare->columns = w_shape[1];
    if (p->score.kind == ATTN_SCORE_ADDITIVE) {
        prepare->heads = attn_matrix_per_head(p) ? s->heads_q : 1;
        const attn_part_of weights = {&prepare->w, prepare->heads, attn_additive_weights(dim), size};
        return attn_place(&weights, 1, at);
    }
    prepare->heads = !linear ? 0 : attn_matrix_per_head(p) ? s->heads_q : attn_min(s->heads_q, 1);
    prepare->ld_sum = attn_ceil_div(metric ? prepare->rows : s->dim_qk, lanes) * lanes;
    prepare->ld_more_sum = attn_ceil_div(prepare->columns, lanes) * lanes;
    if (!attn_mul(prepare->rows, prepare->columns, &w_size)) return 0;
    if (!attn_mul(s->batch, s->heads_q, &queries) || !attn_mul(queries, s->len_q, &queries)) return 0;
    if (!attn_mul(s->batch, s->heads_kv, &key_rows) || !attn_mul(key_rows, s->len_kv, &key_rows)) return 0;
    if (!attn_mul(prepare->columns, prepare->ld_sum, &sum) || !attn_mul(prepare->rows, prepare->ld_more_sum, &more_sum)) return 0;
    if (sum > INT64_MAX / 8 || more_sum > INT64_MAX / 8) return 0;
    prepare->sum_bytes = sum * (int64_t)size;
    prepare->more_sum_bytes = more_sum * (int64_t)size;

    const attn_part_of parts[] = {
        {&prepare->Q, queries, dim, size},
        {&prepare->dQ, backward ? queries : 0, dim, size},
        {&prepare->K, keys ? key_rows : 0, dim, size},
        {&prepare->dK, keys && backward ? key_rows : 0, dim, size},
        {&prepare->w, prepare->heads, w_size, size},
        {&prepare->wt, prepare->heads, w_size, size},
        {&prepare->sums, sums ? s->heads_q : 0, prepare->sum_bytes, 1},
        {&prepare->more_sums, sums && metric ? s->heads_q : 0, prepare->more_sum_bytes, 1},
    };
    const int64_t widest = attn_max(s->dim_qk, attn_max(prepare->rows, prepare->columns));
    const int64_t block = attn_max(tile, walk->block_kv);
    const attn_part_of of_worker[] = {
        {&prepare->X, linear ? s->dim_qk : 0, tile, size},
        {&prepare->Y, linear ? dim : 0, tile, size},
        {&prepare->Z, metric ? prepare->rows : 0, tile, size},
        {&prepare->lanes, linear, tile, size},
        {&prepare->panels, sums ? attn_ceil_div(widest, tile) * tile : 0, tile, size},
        {&prepare->in, linear ? 0 : s->dim_qk, block, size},
        {&prepare->out,
         metric && sums        ? prepare->rows
         : linear || !backward ? 0
                               : s->dim_qk,
         block, size},
    };
    prepare->worker_bytes = 0;
    if (!attn_place(parts, sizeof parts / sizeof *parts, at)) return 0;
    if (!attn_place(of_worker, sizeof of_worker / sizeof *of_worker, &prepare->worker_bytes)) return 0;
    const attn_part_of workers = {&prepare->workers, prepare->worker_bytes, walk->workers, 1};
    return attn_place(&workers, 1, at);
}

/* ---- context of a task ---- */

typedef struct call {
    const attn_prepare *prepare;
    const attn_walk *walk;
    const attn_args *args; /* the caller's */
    char *workspace;
} call;

static void *part(const call *c, int64_t offset) { return c->workspace + offset; }

static void *of_worker(const call *c, int64_t worker, int64_t offset)
{
    return c->workspace + c->prepare->workers + worker * c->prepare->worker_bytes + offset;
}

static void run(const call *c, int64_t tasks, void (*task)(void *context, int64_t worker, int64_t task))
{
    call copy = *c;
    attn_threads_run(c->walk->parallel_for, c->walk->parallel_context, c->walk->workers, tasks, task, &copy);
}

/* A tile of queries; returns 0 if it is empty. */
static int tile_of(const attn_task *task, int64_t number, attn_tile *tile)
{
    *tile = attn_tile_at(task->walk, number);
    if (task->walk->problem.has.cu_seqlens_q) tile->rows = attn_clamp(task->visibility.len_q - tile->first, 0, tile->rows);
    return tile->rows > 0;
}

/* ---- w ---- */

static const void *w_of_head(const call *c, int64_t offset, int64_t h)
{
    const attn_prepare *p = c->prepare;
    return c->workspace + offset + (p->heads > 1 ? h : 0) * p->rows * p->columns * (int64_t)attn_dtype_bytes(c->walk->compute);
}

static void load_w(const call *c)
{
    const attn_prepare *p = c->prepare;
    const attn_layout *layout = &p->problem.at.score_matrix;
    const int64_t *stride = layout->stride;
    for (int64_t h = 0; h < p->heads; h++)
        for (int64_t r = 0; r < p->rows; r++)
            for (int64_t k = 0; k < p->columns; k++) {
                double x = attn_element_get(c->args->score_matrix, layout->dtype, h * stride[1] + r * stride[2] + k * stride[3]);
                attn_real_put(part(c, p->w), c->walk->compute, (h * p->rows + r) * p->columns + k, x);
                attn_real_put(part(c, p->wt), c->walk->compute, (h * p->columns + k) * p->rows + r, x);
            }
}

/* Y = M X for tiles X [columns] and Y [rows]: transposed, as queries are. */
static void apply(const call *c, int64_t worker, int width, int64_t rows, int64_t columns, const void *M, const void *X, void *Y)
{
    if (rows)
        c->walk->kernel.product->score(width, rows, columns, X, M, columns, Y, of_worker(c, worker, c->prepare->lanes), M, columns);
}

/* metric: w q or w dq~ into Z, then w^T Z; general: w^T q, or back: w dq~. */
static void apply_w(const call *c, int64_t worker, const attn_task *task, int width, int back, const void *in, void *out)
{
    const attn_prepare *p = c->prepare;
    const void *w = w_of_head(c, p->w, task->h), *wt = w_of_head(c, p->wt, task->h);
    void *Z = of_worker(c, worker, p->Z);
    if (p->problem.score.kind == ATTN_SCORE_METRIC) {
        apply(c, worker, width, p->rows, p->columns, w, in, Z);
        apply(c, worker, width, p->columns, p->rows, wt, Z, out);
    } else if (back) {
        apply(c, worker, width, p->rows, p->columns, w, in, out);
    } else {
        apply(c, worker, width, p->columns, p->rows, wt, in, out);
    }
}

static void *prepared_row(const attn_task *task, char *base, int64_t t)
{
    return attn_query_row(task, base, &task->walk->problem.at.q, t);
}

static const void *query_row(const call *c, const attn_task *task, int64_t t)
{
    return attn_query_row(task, c->args->q, &c->prepare->problem.at.q, t);
}

static void load_tile(const call *c, const attn_task *task, const attn_tile *tile, void *X)
{
    const attn_resolved *p = &c->prepare->problem;
    c->walk->kernel.storage->pack_query(tile->width, tile->rows, p->shape.dim_qk, query_row(c, task, tile->first), p->at.q.dtype,
                                        p->at.q.stride[2], 1, X);
}

/* ---- queries ---- */

static attn_task task_at(const call *c, int64_t number) { return attn_task_of_head(c->walk, c->args, NULL, number); }

static void prepare_queries(void *context, int64_t worker, int64_t number)
{
    const call *c = context;
    const attn_walk *w = c->walk;
    const attn_resolved *p = &c->prepare->problem;
    const int64_t D = p->shape.dim_qk, dim = w->problem.shape.dim_qk;
    attn_task task = task_at(c, number / w->tiles);
    attn_tile tile;
    if (!tile_of(&task, number % w->tiles, &tile)) return;
    void *to = prepared_row(&task, part(c, c->prepare->Q), tile.first);
    if (is_linear(p)) {
        void *X = of_worker(c, worker, c->prepare->X), *Y = of_worker(c, worker, c->prepare->Y);
        load_tile(c, &task, &tile, X);
        apply_w(c, worker, &task, tile.width, 0, X, Y);
        w->kernel.storage->store_columns(tile.width, tile.rows, dim, 1, Y, to, w->compute, dim);
    } else {
        void *in = of_worker(c, worker, c->prepare->in);
        w->kernel.storage->load_rows(tile.rows, D, query_row(c, &task, tile.first), p->at.q.dtype, p->at.q.stride[2], in, D);
        attn_rows_prepare(p->score.kind, ATTN_SIDE_Q, w->compute, tile.rows, D, in, to);
    }
}

/* ---- keys ---- */

static int64_t blocks_of_keys(const attn_walk *w) { return attn_ceil_div(w->problem.shape.len_kv, w->block_kv); }

/* The task of a key head and its keys low .. high-1, loaded as rows of the compute type; returns 0 if there are none. */
static int open_keys(const call *c, int64_t worker, int64_t number, attn_task *task, attn_interval *keys)
{
    const attn_walk *w = c->walk;
    const attn_resolved *p = &c->prepare->problem;
    const int64_t blocks = blocks_of_keys(w), first = number % blocks * w->block_kv;
    *task = attn_task_of_key_head(c->walk, c->args, NULL, number / blocks);
    keys->low = first;
    keys->high = attn_min(first + w->block_kv, attn_keys_are_packed(p) ? task->visibility.len_kv : p->shape.len_kv);
    if (keys->low >= keys->high) return 0;
    w->kernel.storage->load_rows(keys->high - keys->low, p->shape.dim_qk, attn_key_row(task, c->args->k, &p->at.k, first),
                                 p->at.k.dtype, p->at.k.stride[2], of_worker(c, worker, c->prepare->in), p->shape.dim_qk);
    if (p->has.k_scale)
        w->kernel.storage->scale_rows(keys->high - keys->low, p->shape.dim_qk,
                                      attn_key_row(task, c->args->k_scale, &p->at.k_scale, first), p->at.k_scale.stride[2],
                                      of_worker(c, worker, c->prepare->in), p->shape.dim_qk);
    return 1;
}

static void prepare_keys(void *context, int64_t worker, int64_t number)
{
    const call *c = context;
    const attn_resolved *p = &c->prepare->problem;
    attn_task task;
    attn_interval keys;
    if (!open_keys(c, worker, number, &task, &keys)) return;
    attn_rows_prepare(p->score.kind, ATTN_SIDE_K, c->walk->compute, keys.high - keys.low, p->shape.dim_qk,
                      of_worker(c, worker, c->prepare->in),
                      attn_key_row(&task, part(c, c->prepare->K), &c->walk->problem.at.k, keys.low));
}

#ifndef ATTN_INFERENCE_ONLY

/* ---- gradients of queries and keys ---- */

static void load_gradient(const call *c, const attn_task *task, const attn_tile *tile, void *Y)
{
    const attn_walk *w = c->walk;
    c->walk->kernel.storage->pack_query(tile->width, tile->rows, w->problem.shape.dim_qk,
                                        prepared_row(task, part(c, c->prepare->dQ), tile->first), w->compute,
                                        w->problem.at.q.stride[2], 1, Y);
}

static void finish_queries(void *context, int64_t worker, int64_t number)
{
    const call *c = context;
    const attn_walk *w = c->walk;
    const attn_resolved *p = &c->prepare->problem;
    const attn_layout *dq = &p->at.grad_q;
    const int64_t D = p->shape.dim_qk;
    attn_task task = task_at(c, number / w->tiles);
    attn_tile tile;
    if (!tile_of(&task, number % w->tiles, &tile)) return;
    void *to = attn_query_row(&task, c->args->grad_q, dq, tile.first);
    if (is_linear(p)) {
        void *X = of_worker(c, worker, c->prepare->X), *Y = of_worker(c, worker, c->prepare->Y);
        load_gradient(c, &task, &tile, Y);
        apply_w(c, worker, &task, tile.width, 1, Y, X);
        w->kernel.storage->store_columns(tile.width, tile.rows, D, 1, X, to, dq->dtype, dq->stride[2]);
    } else {
        void *in = of_worker(c, worker, c->prepare->in), *out = of_worker(c, worker, c->prepare->out);
        w->kernel.storage->load_rows(tile.rows, D, query_row(c, &task, tile.first), p->at.q.dtype, p->at.q.stride[2], in, D);
        attn_rows_gradient(p->score.kind, ATTN_SIDE_Q, w->compute, tile.rows, D, in,
                           prepared_row(&task, part(c, c->prepare->dQ), tile.first), out);
        w->kernel.storage->store_rows(tile.rows, D, 1, out, D, to, dq->dtype, dq->stride[2]);
    }
}

static void finish_keys(void *context, int64_t worker, int64_t number)
{
    const call *c = context;
    const attn_resolved *p = &c->prepare->problem;
    const attn_layout *dk = &p->at.grad_k;
    attn_task task;
    attn_interval keys;
    if (!open_keys(c, worker, number, &task, &keys)) return;
    const int64_t n = keys.high - keys.low, D = p->shape.dim_qk;
    void *out = of_worker(c, worker, c->prepare->out);
    attn_rows_gradient(p->score.kind, ATTN_SIDE_K, c->walk->compute, n, D, of_worker(c, worker, c->prepare->in),
                       attn_key_row(&task, part(c, c->prepare->dK), &c->walk->problem.at.k, keys.low), out);
    c->walk->kernel.storage->store_rows(n, D, 1, out, D, attn_key_row(&task, c->args->grad_k, dk, keys.low), dk->dtype,
                                        dk->stride[2]);
}

/* ---- the gradient of w ---- */

/* Rows of B for add_product: of `dtype`, at `stride`. */
typedef struct rows {
    const void *first;
    attn_dtype dtype;
    int64_t stride, dim;
} rows;

/* sum[a][b] += sum_i A[a][i] B[i][b] for n rows a: A is a tile.  Where B is not finite, its rows for which A is 0 are not read. */
static void add_product(const call *c, int64_t worker, const attn_tile *tile, int64_t n, const void *A, rows B, void *sum,
                        int64_t ld)
{
    const attn_kernel *k = &c->walk->kernel;
    void *panels = of_worker(c, worker, c->prepare->panels);
    attn_prefetch nothing = {0};
    int finite = k->outer->pack_rows(tile->rows, B.dim, B.first, B.dtype, B.stride, 1, panels);
    const attn_outer outer = {.walk = c->walk, .first = tile->first, .rows = tile->rows, .nan_safe = !finite};
    attn_outer_add_all(outer, n, B.dim, A, panels, sum, ld, &nothing);
}

/*
 * What one tile of queries adds.  general: dw^T += dq~ q^T.  metric, which uses w twice, with u = w q and e = w dq~: dw^T += dq~
 * u^T and dw += e q^T.  Queries whose gradient is 0 are not read.
 */
static void add_tile(const call *c, int64_t worker, const attn_task *task, const attn_tile *tile)
{
    const attn_prepare *p = c->prepare;
    const attn_resolved *problem = &p->problem;
    const attn_walk *w = c->walk;
    const int64_t D = problem->shape.dim_qk, h = task->h;
    const rows q = {query_row(c, task, tile->first), problem->at.q.dtype, problem->at.q.stride[2], D};
    void *X = of_worker(c, worker, p->X), *Y = of_worker(c, worker, p->Y), *Z = of_worker(c, worker, p->Z);
    void *sum = part(c, p->sums + h * p->sum_bytes);
    load_gradient(c, task, tile, Y);
    if (problem->score.kind != ATTN_SCORE_METRIC) {
        add_product(c, worker, tile, p->columns, Y, q, sum, p->ld_sum);
        return;
    }
    const rows u = {of_worker(c, worker, p->out), w->compute, p->rows, p->rows};
    load_tile(c, task, tile, X);
    apply(c, worker, tile->width, p->rows, p->columns, w_of_head(c, p->w, h), X, Z);
    w->kernel.storage->store_columns(tile->width, tile->rows, p->rows, 1, Z, of_worker(c, worker, p->out), w->compute, p->rows);
    add_product(c, worker, tile, p->columns, Y, u, sum, p->ld_sum);
    apply(c, worker, tile->width, p->rows, p->columns, w_of_head(c, p->w, h), Y, Z);
    add_product(c, worker, tile, p->rows, Z, q, part(c, p->more_sums + h * p->more_sum_bytes), p->ld_more_sum);
}

/* The sum over the queries of one head, of all batch entries in order. */
static void sum_w(void *context, int64_t worker, int64_t h)
{
    const call *c = context;
    const attn_prepare *p = c->prepare;
    memset(part(c, p->sums + h * p->sum_bytes), 0, (size_t)p->sum_bytes);
    if (p->problem.score.kind == ATTN_SCORE_METRIC)
        memset(part(c, p->more_sums + h * p->more_sum_bytes), 0, (size_t)p->more_sum_bytes);
    for (int64_t b = 0; b < p->problem.shape.batch; b++) {
        attn_task task = task_at(c, b * p->problem.shape.heads_q + h);
        for (int64_t t = 0; t < c->walk->tiles; t++) {
            attn_tile tile;
            if (tile_of(&task, t, &tile)) add_tile(c, worker, &task, &tile);
        }
    }
}

/* The gradient of one element, from one head's sums. */
static double gradient_of_w(const void *context, int64_t h, int64_t r, int64_t k)
{
    const call *c = context;
    const attn_prepare *p = c->prepare;
    double x = attn_real_at(part(c, p->sums + h * p->sum_bytes), c->walk->compute, k * p->ld_sum + r);
    if (p->problem.score.kind == ATTN_SCORE_METRIC)
        x += attn_real_at(part(c, p->more_sums + h * p->more_sum_bytes), c->walk->compute, r * p->ld_more_sum + k);
    return x;
}

static void store_w(const call *c)
{
    const attn_resolved *p = &c->prepare->problem;
    const int64_t size[3] = {p->shape.heads_q, c->prepare->rows, c->prepare->columns};
    attn_broadcast_sum(&p->at.grad_score_matrix, c->args->grad_score_matrix, attn_matrix_per_head(p), size, gradient_of_w, c);
}

/* ---- the two calls ---- */

void attn_prepare_finish(const attn_prepare *prepare, const attn_walk *walk, const attn_args *args, void *workspace)
{
    const call c = {prepare, walk, args, workspace};
    const attn_resolved *p = &prepare->problem;
    if (p->score.kind == ATTN_SCORE_DOT || p->score.kind == ATTN_SCORE_ADDITIVE || p->op != ATTN_BACKWARD) return;
    run(&c, p->shape.batch * p->shape.heads_q * walk->tiles, finish_queries);
    if (attn_prepares_keys(p)) run(&c, p->shape.batch * p->shape.heads_kv * blocks_of_keys(walk), finish_keys);
    if (!p->has.grad_score_matrix) return;
    run(&c, p->shape.heads_q, sum_w);
    store_w(&c);
}

#endif

void attn_prepare_begin(const attn_prepare *prepare, const attn_walk *walk, const attn_args *args, void *workspace,
                        attn_args *prepared)
{
    const call c = {prepare, walk, args, workspace};
    const attn_shape *s = &prepare->problem.shape;
    *prepared = *args;
    if (prepare->problem.score.kind == ATTN_SCORE_DOT) return;
    if (prepare->problem.score.kind == ATTN_SCORE_ADDITIVE) {
        attn_additive_scale_weights(&prepare->problem, walk->compute, args->score_matrix, part(&c, prepare->w));
        prepared->score_matrix = part(&c, prepare->w);
        return;
    }
    prepared->q = part(&c, prepare->Q);
    prepared->grad_q = part(&c, prepare->dQ);
    load_w(&c);
    run(&c, s->batch * s->heads_q * walk->tiles, prepare_queries);
    if (!attn_prepares_keys(&prepare->problem)) return;
    prepared->k = part(&c, prepare->K);
    prepared->grad_k = part(&c, prepare->dK);
    run(&c, s->batch * s->heads_kv * blocks_of_keys(walk), prepare_keys);
}
