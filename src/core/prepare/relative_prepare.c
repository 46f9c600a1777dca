/* SPDX-License-Identifier: MIT
 * relative_prepare.c - before the walk, tables with their ends repeated and the queries q + u and q + v; after it, the gradients
 * of q, u and v. */
#include "relative_prepare.h"

#include <string.h>

#include "../base/names.h"
#include "../task/task.h"
#include "../threads/threads.h"
#include "prepare.h"

int attn_relative_problem(const attn_resolved *problem, attn_resolved *prepared)
{
    const attn_shape *s = &problem->shape;
    const attn_dtype compute = problem->at.q.dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32;
    if (!problem->has.relative_u && !problem->has.relative_v) return 1;
    if (!attn_dense_rows(&prepared->at.q, s->batch, compute, s->heads_q, s->len_q, s->dim_qk, attn_is_packed(problem))) return 0;
    prepared->at.grad_q = prepared->at.q;
    return 1;
}

int attn_relative_init(attn_tile_walk *plan)
{
    const attn_walk *walk = &plan->walk;
    const attn_resolved *p = &walk->problem;
    const attn_relative *g = &p->relative;
    const attn_shape *s = &p->shape;
    const size_t size = attn_dtype_bytes(walk->compute);
    attn_relatives *r = &plan->relative;
    int64_t rows, of_keys, of_values, queries;
    if (!attn_has_relative(p)) return 1;
    const int two = p->has.relative_u || p->has.relative_v, backward = p->op == ATTN_BACKWARD;
    r->two = two;
    r->tables = attn_tables_to_read(p, attn_relative_shared(p));
    r->pad = walk->tile_q;
    if (!attn_mul(s->batch, s->heads_q, &queries) || !attn_mul(queries, s->len_q, &queries)) return 0;
    rows = g->rows + 2 * r->pad;
    if (!attn_mul(rows, s->dim_qk, &of_keys) || !attn_mul(rows, s->dim_v, &of_values)) return 0;
    const attn_part_of parts[] = {
        {&r->keys, p->has.relative_keys ? r->tables : 0, of_keys, size},
        {&r->values, p->has.relative_values ? r->tables : 0, of_values, size},
        {&r->QU, two ? queries : 0, s->dim_qk, size},
        {&r->QV, two ? queries : 0, s->dim_qk, size},
        {&r->dQU, two && backward ? queries : 0, s->dim_qk, size},
        {&r->dQV, two && backward ? queries : 0, s->dim_qk, size},
    };
    return attn_place(parts, sizeof parts / sizeof *parts, &r->bytes);
}

typedef struct call {
    const attn_tile_walk *plan;
    const attn_walk *walk;        /* of it */
    const attn_resolved *problem; /* the caller's */
    const attn_args *args;        /* the caller's */
    const attn_args *prepared;    /* the walk's */
    char *memory;
} call;

/* One table: [first row] * pad, the rows, [last row] * pad. */
static void spell_out(const call *c, int64_t table, int64_t dim, const attn_layout *layout, const void *from, int64_t offset)
{
    const attn_walk *w = c->walk;
    const int64_t rows = w->problem.relative.rows, pad = c->plan->relative.pad, bytes = dim * (int64_t)attn_dtype_bytes(w->compute);
    char *to = c->memory + offset + table * (rows + 2 * pad) * bytes;
    const char *src = (const char *)from + table * layout->stride[1] * (int64_t)attn_dtype_bytes(layout->dtype);
    if (dim == 0) return;
    w->kernel.storage->load_rows(rows, dim, src, layout->dtype, layout->stride[2], to + pad * bytes, dim);
    for (int64_t n = 0; n < pad; n++) {
        memcpy(to + n * bytes, to + pad * bytes, (size_t)bytes);
        memcpy(to + (pad + rows + n) * bytes, to + (pad + rows - 1) * bytes, (size_t)bytes);
    }
}

static void prepare_table(void *context, int64_t worker, int64_t table)
{
    const call *c = context;
    const attn_resolved *p = c->problem;
    (void)worker;
    if (p->has.relative_keys)
        spell_out(c, table, p->shape.dim_qk, &p->at.relative_keys, c->args->relative_keys, c->plan->relative.keys);
    if (p->has.relative_values)
        spell_out(c, table, p->shape.dim_v, &p->at.relative_values, c->args->relative_values, c->plan->relative.values);
}

/* y += x */
static void add_row(attn_dtype compute, int64_t n, const void *x, void *y)
{
    if (compute == ATTN_F32) {
        for (int64_t c = 0; c < n; c++) ((float *)y)[c] += ((const float *)x)[c];
    } else {
        for (int64_t c = 0; c < n; c++) ((double *)y)[c] += ((const double *)x)[c];
    }
}

static const void *of_head(const call *c, const void *array, int64_t h)
{
    return (const char *)array + h * c->problem->shape.dim_qk * (int64_t)attn_dtype_bytes(c->walk->compute);
}

static int64_t rows_of(const attn_task *task)
{
    const attn_resolved *p = &task->walk->problem;
    return p->has.cu_seqlens_q ? task->visibility.len_q : p->shape.len_q;
}

/* Stores q + array (NULL: just q) of one head in the walk's own rows. */
static void prepare_rows(const call *c, const attn_task *task, const void *array, char *to)
{
    const attn_walk *w = c->walk;
    const int64_t D = c->problem->shape.dim_qk, rows = rows_of(task), bytes = D * (int64_t)attn_dtype_bytes(w->compute);
    const attn_layout *q = &c->problem->at.q;
    w->kernel.storage->load_rows(rows, D, attn_query_row(task, c->args->q, q, 0), q->dtype, q->stride[2], to, D);
    for (int64_t i = 0; array && i < rows; i++) add_row(w->compute, D, of_head(c, array, task->h), to + i * bytes);
}

static void prepare_queries(void *context, int64_t worker, int64_t head)
{
    const call *c = context;
    const attn_presence *has = &c->problem->has;
    const attn_task task = attn_task_of_head(c->walk, c->args, NULL, head);
    const attn_layout *q = &c->walk->problem.at.q;
    (void)worker;
    prepare_rows(c, &task, has->relative_u ? c->args->relative_u : NULL, attn_query_row(&task, c->prepared->q, q, 0));
    prepare_rows(c, &task, has->relative_v ? c->args->relative_v : NULL, attn_query_row(&task, c->prepared->relative_v, q, 0));
}

static void run(const call *c, int64_t tasks, void (*task)(void *context, int64_t worker, int64_t task))
{
    call copy = *c;
    attn_threads_run(c->walk->parallel_for, c->walk->parallel_context, c->walk->workers, tasks, task, &copy);
}

void attn_relative_begin(const attn_tile_walk *plan, const attn_resolved *problem, const attn_args *args, void *memory,
                         attn_args *prepared)
{
    const attn_relatives *r = &plan->relative;
    const call c = {plan, &plan->walk, problem, args, prepared, memory};
    if (!attn_has_relative(problem) || plan->walk.tasks == 0) return;
    prepared->relative_keys = c.memory + r->keys;
    prepared->relative_values = c.memory + r->values;
    run(&c, r->tables, prepare_table);
    if (!r->two) return;
    prepared->q = c.memory + r->QU;
    prepared->relative_v = c.memory + r->QV;
    prepared->grad_q = c.memory + r->dQU;
    prepared->grad_relative_v = c.memory + r->dQV;
    run(&c, problem->shape.batch * problem->shape.heads_q, prepare_queries);
}

#ifndef ATTN_INFERENCE_ONLY

/* One head of all batch entries, in order: du and dv are sums over rows, dq is the sum of both gradients. */
static void finish_head(void *context, int64_t worker, int64_t h)
{
    const call *c = context;
    const attn_walk *w = c->walk;
    const attn_presence *has = &c->problem->has;
    const attn_layout *dq = &c->problem->at.grad_q, *own = &w->problem.at.q;
    const int64_t D = c->problem->shape.dim_qk, bytes = D * (int64_t)attn_dtype_bytes(w->compute);
    void *du = (void *)(uintptr_t)(has->grad_relative_u ? of_head(c, c->args->grad_relative_u, h) : NULL);
    void *dv = (void *)(uintptr_t)(has->grad_relative_v ? of_head(c, c->args->grad_relative_v, h) : NULL);
    (void)worker;
    if (D == 0) return;
    if (du) memset(du, 0, (size_t)bytes);
    if (dv) memset(dv, 0, (size_t)bytes);
    for (int64_t b = 0; b < c->problem->shape.batch && w->tasks > 0; b++) {
        const attn_task task = attn_task_of_head(w, c->args, NULL, b * c->problem->shape.heads_q + h);
        char *QU = attn_query_row(&task, c->prepared->grad_q, own, 0),
             *QV = attn_query_row(&task, c->prepared->grad_relative_v, own, 0);
        const int64_t rows = rows_of(&task);
        for (int64_t i = 0; i < rows; i++) {
            if (du) add_row(w->compute, D, QU + i * bytes, du);
            if (dv) add_row(w->compute, D, QV + i * bytes, dv);
            add_row(w->compute, D, QV + i * bytes, QU + i * bytes);
        }
        w->kernel.storage->store_rows(rows, D, 1, QU, D, attn_query_row(&task, c->args->grad_q, dq, 0), dq->dtype, dq->stride[2]);
    }
}

void attn_relative_finish(const attn_tile_walk *plan, const attn_resolved *problem, const attn_args *args,
                          const attn_args *prepared)
{
    const call c = {plan, &plan->walk, problem, args, prepared, NULL};
    if (!plan->relative.two || problem->op != ATTN_BACKWARD) return;
    run(&c, problem->shape.heads_q, finish_head);
}

#endif
