/* SPDX-License-Identifier: MIT
 * rotate.c - see rotate.h. */
#include "rotate.h"

#include "plan.h"

int attn_tile_can_rotate(const attn_walk *walk)
{
    const attn_resolved *p = &walk->problem;
    return p->score.kind == ATTN_SCORE_DOT && !attn_has_relative(p) &&
           p->shape.dim_qk <= walk->block_kv * (int64_t)(attn_dtype_bytes(walk->compute) / attn_dtype_bytes(p->at.q.dtype));
}

static attn_transfer_rows rows_from(attn_transfer_rows rows, int64_t row, int64_t channel)
{
    const uintptr_t elements = (uintptr_t)row * (uintptr_t)rows.stride + (uintptr_t)channel;
    rows.data = (void *)((uintptr_t)rows.data + elements * attn_dtype_bytes(rows.dtype));
    return rows;
}

const void *attn_tile_rotate(const attn_task *task, const attn_tile *tile)
{
    const attn_rotation *r = task->args->rotation;
    const attn_layout *q = &task->walk->problem.at.q;
    const int64_t dim = task->walk->problem.shape.dim_qk, known = attn_clamp(task->visibility.len_q - tile->first, 0, tile->rows);
    const attn_transfer_rows from = {attn_query_row(task, task->args->q, q, tile->first), q->dtype, q->stride[2]},
                             to = {attn_part(task, attn_tiles_of(task->walk)->scratch.S), q->dtype, dim};
    for (int64_t i = 0; i < known; i++) {
        const double *cosines = r->angles + (task->b * r->queries + tile->first + i) * 2 * r->pairs;
        r->kernel->rotate(1, r->pairs, r->apart, cosines, cosines + r->pairs, rows_from(from, i, 0), rows_from(to, i, 0));
    }
    if (2 * r->pairs < dim)
        r->kernel->convert(known, dim - 2 * r->pairs, rows_from(from, 0, 2 * r->pairs), rows_from(to, 0, 2 * r->pairs));
    if (known < tile->rows) r->kernel->convert(tile->rows - known, dim, rows_from(from, known, 0), rows_from(to, known, 0));
    return to.data;
}
