/* SPDX-License-Identifier: MIT
 * data.c - draws the tensors that a problem reads and allocates those that it writes. */
#include "data.h"

#include <stdlib.h>
#include <string.h>

#include "cli/measure/draw.h"
#include "cli/measure/lengths.h"
#include "memory.h"
#include "testing/text/failure.h"

/* Allocates tensor t and sets its slot. */
static void *keep(void *context, int t, size_t bytes)
{
    data *d = context;
    void *memory = fresh_memory(bytes);
    d->block[d->blocks] = memory;
    d->block_bytes[d->blocks++] = bytes;
    d->bytes += (double)bytes;
    return tensors_slot(&d->tensors, t)->data = memory;
}

/* ---- lengths and pages ---- */

/* Gives each sequence the pages that its keys fill, in no order; returns how many. */
static int64_t draw_pages(data *d, const attn_problem *p, const int64_t *lengths)
{
    const int64_t size = p->paging.page_size, B = p->shape.batch, of_entry = problem_blocks(p->shape.len_kv, size);
    int64_t *table = keep(d, TENSOR(page_table), (size_t)p->paging.pages * sizeof *table);
    int64_t *order = need_memory(p->paging.pages, sizeof *order), count = 0, next = 0;
    for (int64_t b = 0; b < B; b++) count += problem_blocks(lengths ? lengths[b] : p->shape.len_kv, size);
    for (int64_t n = 0; n < count; n++) {
        const int64_t other = random_below(&d->random, n + 1);
        order[n] = order[other], order[other] = n;
    }
    for (int64_t b = 0; b < B; b++)
        for (int64_t k = 0; k < of_entry; k++) {
            const int filled = k < problem_blocks(lengths ? lengths[b] : p->shape.len_kv, size);
            table[b * of_entry + k] = filled ? order[next++] : -1; /* -1 is never read */
        }
    free(order);
    return count;
}

static void draw_lengths(data *d, const problem_spec *spec, const attn_problem *p, int64_t total[2])
{
    batch_lengths l;
    lengths_draw(&l, spec, p, &d->tensors, &d->random, keep, d);
    if (spec->page) d->pages = draw_pages(d, p, l.kv);
    d->tokens = l.tokens;
    d->pairs = l.pairs;
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
    draw_lengths(d, spec, problem, total);
    for (int t = 0; t < TENSORS; t++) {
        if (tensors_at(&d->tensors, t)->data != ATTN_LATER) continue;
        const size_t bytes = bytes_of(d, problem, t, total);
        void *memory = keep(d, t, bytes);
        if (tensors_reads(&d->tensors, problem->op, t)) draw_tensor(&d->random, spec, problem, &d->tensors, t, memory, bytes);
        else memset(memory, 0xff, bytes); /* touched, so that its pages are not counted as the library's */
    }
    return problem->op == ATTN_FORWARD ? ATTN_OK : run_forward(d, problem, options, error);
}

void data_destroy(data *d)
{
    for (int k = 0; k < d->blocks; k++) fresh_release(d->block[k], d->block_bytes[k]);
    *d = (data){0};
}
