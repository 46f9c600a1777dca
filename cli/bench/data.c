/* SPDX-License-Identifier: MIT
 * data.c - draws the tensors that a problem reads and allocates those that it writes. */
#include "data.h"

#include <stdlib.h>
#include <string.h>

#include "cli/measure/draw.h"
#include "cli/measure/lengths.h"
#include "memory.h"
#include "testing/problem/serving.h"
#include "testing/text/failure.h"

void *data_keep(data *d, size_t bytes)
{
    void *memory = fresh_memory(bytes);
    d->block[d->blocks] = memory;
    d->block_bytes[d->blocks++] = bytes;
    d->bytes += (double)bytes;
    return memory;
}

/* Allocates tensor t and sets its slot. */
static void *keep(void *context, int t, size_t bytes)
{
    data *d = context;
    return tensors_slot(&d->tensors, t)->data = data_keep(d, bytes);
}

/* ---- lengths and pages ---- */

/* Gives each sequence the pages that its keys fill, in no order; returns how many. */
static int64_t draw_pages(data *d, const problem_spec *spec, const attn_problem *p, const int64_t *length)
{
    const int64_t size = p->paging.page_size, B = p->shape.batch, of_entry = problem_blocks(p->shape.len_kv, size);
    int64_t *table = keep(d, TENSOR(page_table), (size_t)(B * of_entry) * sizeof *table), unshared = 0;
    for (int64_t b = 0; b < B; b++) unshared += problem_blocks(length ? length[b] : p->shape.len_kv, size);
    if (B > 1) unshared -= (B - 1) * (spec->prefix / size);
    int64_t *order = need_memory(p->paging.pages, sizeof *order);
    for (int64_t n = 0; n < unshared; n++) {
        const int64_t other = random_below(&d->random, n + 1);
        order[n] = order[other], order[other] = n;
    }
    const int64_t count = serving_pages(spec, length, order, table);
    free(order);
    return count;
}

/* A tree of drafts for each sequence; returns the pairs of queries and drafts that see each other, of one head. */
static double draw_trees(data *d, const problem_spec *spec, const attn_problem *p, const batch_lengths *l)
{
    const int64_t words = problem_blocks(spec->tree, 64), tokens = l->total[0] ? l->total[0] : p->shape.batch * p->shape.len_q;
    uint64_t *rows = keep(d, TENSOR(tree), (size_t)(tokens * words) * sizeof *rows);
    double pairs = 0;
    for (int64_t b = 0, at = 0; b < p->shape.batch; b++) {
        const int64_t queries = l->total[0] ? l->q[b] : p->shape.len_q;
        serving_tree(spec->tree, queries, rows + at * words, &d->random);
        at += queries;
    }
    for (int64_t n = 0; n < tokens * words; n++) pairs += __builtin_popcountll(rows[n]);
    return pairs;
}

static void draw_lengths(data *d, const problem_spec *spec, const attn_problem *p, int64_t total[2])
{
    batch_lengths l;
    lengths_draw(&l, spec, p, &d->tensors, &d->random, keep, d);
    if (spec->page) d->pages = draw_pages(d, spec, p, l.kv);
    d->tokens = l.tokens;
    d->pairs = l.pairs;
    if (spec->tree) d->pairs += draw_trees(d, spec, p, &l) * (double)p->shape.heads_q;
    memcpy(total, l.total, sizeof l.total);
    lengths_free(&l);
}

/* ---- tensors ---- */

/* Bytes from the first element to the last; the strides are those of problem_build, none of which is negative. */
static size_t bytes_of(const data *d, const attn_problem *p, int t, const int64_t total[2])
{
    int64_t size[4], stride[4], last = 0;
    tensors_elements(p, &d->tensors, t, size);
    tensors_strides(p, &d->tensors, t, stride);
    if (tensors_are_packed(&d->tensors, t)) size[0] = 1, size[2] = total[tensors_of_keys(t)];
    if (p->paging.page_size && tensors_in_pages(t)) size[0] = d->pages;
    for (int axis = 0; axis < 4; axis++) {
        if (size[axis] == 0) return 0;
        last += (size[axis] - 1) * stride[axis];
    }
    return (size_t)(last + 1) * attn_dtype_size(tensors_dtype(&d->tensors, t));
}

/* ---- all tensors ---- */

/* Tensors that sparse= may have data for. */
static int is_of_mask(int t)
{
    return t == TENSOR(ranges) || t == TENSOR(block_starts) || t == TENSOR(block_index) || t == TENSOR(mask);
}

/* Runs forward, whose outputs the other operations read.  Its workspace is freed before anything is measured. */
static attn_status run_forward(const data *d, const attn_problem *problem, const attn_options *options, attn_error *error)
{
    attn_plan *plan;
    attn_tensors tensors;
    const attn_problem forward = tensors_forward(problem, &d->tensors, &tensors);
    attn_status status = attn_plan_create(&plan, &forward, &tensors, options, error);
    if (status != ATTN_OK) return status;
    const size_t bytes = attn_plan_workspace_size(plan);
    void *workspace = fresh_memory(bytes);
    status = attn_execute(plan, &tensors, workspace, bytes, error);
    fresh_release(workspace, bytes);
    attn_plan_destroy(plan);
    return status;
}

attn_status data_create(data *d, const problem_spec *spec, const attn_problem *problem, const attn_tensors *tensors,
                        const attn_options *options, attn_error *error)
{
    int64_t total[2] = {0, 0};
    *d = (data){.tensors = *tensors, .call.struct_size = sizeof d->call, .random = {2 * spec->seed + 1}};
    d->call.dropout_seed = spec->seed;
    d->tensors.call = &d->call;
    attn_problem same = *problem; /* which has the fields of the mask */
    attn_status status = sparse_make(&d->mask, spec, error);
    if (status == ATTN_OK) status = sparse_put(&d->mask, spec, 0, &same, &d->tensors, error);
    if (status != ATTN_OK) return status;
    draw_lengths(d, spec, problem, total);
    for (int t = 0; t < TENSORS; t++) {
        const void *given = tensors_at(&d->tensors, t)->data;
        if (given && given != ATTN_LATER && given != ATTN_EMPTY && is_of_mask(t))
            d->bytes += (double)bytes_of(d, problem, t, total);
        if (given != ATTN_LATER) continue;
        const size_t bytes = bytes_of(d, problem, t, total);
        void *memory = keep(d, t, bytes);
        if (tensors_reads(&d->tensors, problem->op, t)) draw_tensor(&d->random, spec, problem, &d->tensors, t, memory, bytes);
        else memset(memory, 0xff, bytes); /* touched, so that its pages are not counted as the library's */
        if (t == TENSOR(mask) && d->mask.rows) sparse_hide(&d->mask, problem->shape.len_kv, (int64_t)bytes, memory);
    }
    return problem->op == ATTN_FORWARD ? ATTN_OK : run_forward(d, problem, options, error);
}

void data_destroy(data *d)
{
    for (int k = 0; k < d->blocks; k++) fresh_release(d->block[k], d->block_bytes[k]);
    sparse_free(&d->mask);
    *d = (data){0};
}
