/* SPDX-License-Identifier: MIT
 * named_masks.c - see named_masks.h. */
#include "named_masks.h"

#include <stdlib.h>

#include "testing/text/failure.h"

/* The mask of a file over all queries and keys that the masks' matrix has an axis of. */
static void merge(named_masks *m, const attn_output *own, const int64_t stride[4], const attn_problem *problem, attn_tensors *all)
{
    int64_t extent[4];
    attn_output *slot = tensors_slot(all, TENSOR(mask));
    tensors_extent(problem, all, TENSOR(mask), extent);
    const int64_t count = extent[0] * extent[1] * extent[2] * extent[3];
    unsigned char *to = m->both = need_memory(count > 0 ? count : 1, 1);
    for (int64_t b = 0; b < extent[0]; b++)
        for (int64_t h = 0; h < extent[1]; h++)
            for (int64_t i = 0; i < extent[2]; i++)
                for (int64_t j = 0; j < extent[3]; j++)
                    *to++ = ((const unsigned char *)own->data)[b * stride[0] + h * stride[1] + i * stride[2] + j * stride[3]];
    sparse_hide(&m->mask, problem->shape.len_kv, count, m->both);
    slot->data = m->both;
}

attn_status named_masks_put(named_masks *m, const problem_spec *spec, attn_problem *problem, attn_tensors *all, attn_error *error)
{
    const attn_output own = *tensors_at(all, TENSOR(mask));
    int64_t stride[4];
    *m = (named_masks){.both = NULL};
    attn_status status = sparse_make(&m->mask, spec, error);
    if (status != ATTN_OK) return status;
    tensors_strides(problem, all, TENSOR(mask), stride);
    status = sparse_put(&m->mask, spec, 0, problem, all, error);
    if (status == ATTN_OK && m->mask.rows && spec->mask) merge(m, &own, stride, problem, all);
    return status;
}

void named_masks_free(named_masks *m)
{
    sparse_free(&m->mask);
    free(m->both);
    free(m->block_rows);
    *m = (named_masks){.both = NULL};
}

void named_masks_block_rows(named_masks *m, attn_problem *problem, attn_tensors *all)
{
    const int64_t *starts = m->mask.slots.block_starts.data, *index = m->mask.slots.block_index.data;
    if (!starts) return;
    const int64_t block_q = problem->mask.block_q, len_q = problem->shape.len_q;
    const int same = block_q >= len_q; /* for all queries */
    const int64_t rows = same ? len_q > 0 : len_q;
    const int64_t size[4] = {1, 1, len_q, problem_blocks(problem->shape.len_kv, problem->mask.block_kv)};
    m->block_rows = need_memory(rows * size[3] > 0 ? rows * size[3] : 1, 1);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t n = starts[i / block_q]; n < starts[i / block_q + 1]; n++) m->block_rows[i * size[3] + index[n]] = 1;
    problem->mask.block_q = 1;
    problem->mask.block_entries = 0;
    all->block_starts = all->block_index = (attn_input){0};
    all->block_mask = (attn_input){m->block_rows, ATTN_BOOL, {0}};
    (void)tensors_lay(tensors_slot(all, TENSOR(block_mask)), size, (const int[4]){0, 1, 2, 3},
                      SPEC_ONE_B | SPEC_ONE_H | (same ? SPEC_ONE_Q : 0));
}
