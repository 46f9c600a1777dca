/* SPDX-License-Identifier: MIT
 * results.c - see results.h. */
#include "results.h"

#include <stdlib.h>
#include <string.h>

#include "cli/output/outputs.h"
#include "cli/output/shared_bias.h"
#include "testing/text/failure.h"

/* ---- memory ---- */

static int64_t product(int rank, const int64_t *shape)
{
    int64_t count = 1;
    for (int axis = 0; axis < rank; axis++) count *= shape[axis];
    return count;
}

attn_status results_take(results *all, const attention_input *input, const char *name, attn_dtype dtype, int rank,
                         const int64_t *shape, const share_layout *layout, attn_archive *out, attn_error *error)
{
    result *one = &all->all[all->count++];
    *one = (result){.is_shared = layout != NULL, .bytes = (size_t)product(rank, shape) * attn_dtype_size(dtype)};
    if (layout) {
        one->layout = *layout;
        one->bytes = (size_t)(layout->outer * share_rows(&input->share, layout)) * layout->row;
    }
    one->own = need_memory((int64_t)one->bytes, 1);
    return out ? attn_archive_allocate(out, name, dtype, rank, shape, &one->whole, error) : ATTN_OK;
}

/* Tensor t in the file, in which it has this type. */
static attn_status add(results *all, const attention_input *input, const attn_problem *problem, attn_tensors *tensors, int t,
                       attn_dtype dtype, attn_archive *out, attn_error *error)
{
    int64_t size[4], shape[ATTN_MAX_RANK];
    share_layout layout;
    tensors_shape(problem, tensors, t, size);
    const int rank = output_shape(input, t, size, shape), is_shared = share_lay(input, t, rank, shape, dtype, &layout);
    return results_take(all, input, tensors_file_name(t), dtype, rank, shape, is_shared ? &layout : NULL, out, error);
}

/* The rows of this rank for a tensor that is not written. */
static void *allocate_rows(const attention_input *input, const attn_problem *problem, const attn_tensors *tensors, int t)
{
    int64_t size[4], shape[ATTN_MAX_RANK];
    share_layout layout;
    tensors_shape(problem, tensors, t, size);
    const int rank = input_file_shape(input, t, size, shape);
    const attn_dtype dtype = tensors_dtype(tensors, t);
    (void)share_lay(input, t, rank, shape, dtype, &layout);
    return need_memory(layout.outer * share_rows(&input->share, &layout), layout.row);
}

void results_prepare(const attention_input *input, attn_tensors *tensors)
{
    for (int t = 0; t < TENSORS; t++)
        if (shared_bias_has(input, tensors, t)) tensors_slot(tensors, t)->dtype = tensors_compute(tensors);
}

attn_status results_add(results *all, const attention_input *input, const attn_problem *problem, attn_tensors *tensors,
                        attn_archive *out, attn_error *error)
{
    attn_status status = ATTN_OK;
    for (int t = 0; t < TENSORS && status == ATTN_OK; t++) {
        attn_output *slot = tensors_slot(tensors, t);
        if ((slot->data != ATTN_LATER && slot->data != ATTN_EMPTY) || !tensors_writes(tensors, problem->op, t)) continue;
        if (t == TENSOR(lse) && !input->spec.lse) {
            slot->data = all->lse = allocate_rows(input, problem, tensors, t);
        } else if (shared_bias_has(input, tensors, t)) {
            all->summed_dtype = input->used[TENSOR(bias)].tensor->dtype;
            status = add(all, input, problem, tensors, t, all->summed_dtype, out, error);
            all->summed = &all->all[all->count - 1];
            slot->data = all->expanded = shared_bias_allocate(input, tensors_compute(tensors));
        } else {
            status = add(all, input, problem, tensors, t, tensors_dtype(tensors, t), out, error);
            slot->data = all->all[all->count - 1].own;
        }
    }
    return status;
}

void results_sum(results *all, const attention_input *input)
{
    if (all->expanded) shared_bias_sum(input, tensors_compute(&input->tensors), all->expanded, all->summed_dtype, all->summed->own);
}

void results_free(results *all)
{
    for (int n = 0; n < all->count; n++) free(all->all[n].own);
    free(all->lse);
    free(all->expanded);
}

/* ---- collecting ---- */

attn_status results_collect(const results *all, const attention_input *input, const ranks *r, const attn_split *split,
                            attn_error *error)
{
    for (int n = 0; n < all->count; n++) {
        const result *one = &all->all[n];
        const share_layout *layout = &one->layout;
        if (!one->is_shared && r->rank == 0 && one->bytes) memcpy(one->whole, one->own, one->bytes);
        if (!one->is_shared) continue;
        const attn_axis axis = layout->keys ? ATTN_AXIS_KEY : ATTN_AXIS_QUERY;
        const int64_t shape[4] = {1, layout->outer, layout->rows, (int64_t)layout->row}; /* of bytes */
        const attn_input own = {one->bytes ? one->own : ATTN_EMPTY, ATTN_U8, {0, 0, 0, 0}};
        const attn_output whole = {product(4, shape) ? one->whole : ATTN_EMPTY, ATTN_U8, {0, 0, 0, 0}};
        const attn_status status = attn_distributed_gather(axis, shape, &own, split, &r->mpi.transport, &whole, error);
        if (ranks_check(r, status, error) != ATTN_OK) return failure_about(error, input->path);
    }
    return ATTN_OK;
}
