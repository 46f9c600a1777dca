/* SPDX-License-Identifier: MIT
 * tensors.c - the inputs of an attention problem in a file. */
#include <string.h>

#include "cli/input/roles.h"
#include "make.h"
#include "testing/case/masks.h"
#include "testing/text/failure.h"

int make_leading(const problem_spec *spec)
{
    if (spec->packed) return 1;
    return spec->shape.batch != 1 ? 2 : spec->shape.heads_q != 1;
}

/* The axes of tensor t in a file, outermost first, by their numbers in the library; returns how many. */
static int axes_of(const problem_spec *spec, int t, int axes[4])
{
    const attn_axis *about = tensors_about(t)->axes;
    const int leading = make_leading(spec), of_batch = about[0] != ATTN_AXIS_ONE && about[2] != ATTN_AXIS_ONE;
    const int scales = t == TENSOR(k_scale) || t == TENSOR(v_scale);
    int rank = 0;
    for (int axis = 0; axis < 4; axis++) {
        const int dropped = of_batch && (axis == 0 ? leading < 2 && (!spec->packed || tensors_packs(t)) : axis == 1 && leading < 1);
        if (about[axis] != ATTN_AXIS_ONE && !dropped) axes[rank++] = axis;
    }
    if (spec->order == SPEC_BSHD && tensors_packs(t) && leading > 0 && (scales || about[3] != ATTN_AXIS_ONE)) {
        axes[leading - 1] = 2; /* the token before the head */
        axes[leading] = 1;
    }
    return rank;
}

/* The elements of a tensor in the order of its axes in a file; those of masks become 0 and 1. */
static void copy(const tensor *from, int rank, const int axes[4], const int64_t *shape, char *to)
{
    const size_t size = attn_dtype_size(from->layout.dtype);
    int64_t count = 1;
    for (int axis = 0; axis < rank; axis++) count *= shape[axis];
    for (int64_t n = 0; n < count; n++) {
        int64_t at[4] = {0, 0, 0, 0}, rest = n;
        for (int axis = rank - 1; axis >= 0; axis--) at[axes[axis]] = rest % shape[axis], rest /= shape[axis];
        memcpy(to + (size_t)n * size, tensor_at(from, at[0], at[1], at[2], at[3]), size);
        if (from->layout.dtype == ATTN_BOOL) to[n] = to[n] != 0;
    }
}

static attn_status add(attn_archive *archive, const check_call *call, const problem_spec *spec, int t, attn_error *error)
{
    const tensor *from = &call->in[t];
    int axes[4], first;
    int64_t shape[4];
    void *to;
    const int rank = axes_of(spec, t, axes);
    for (int axis = 0; axis < rank; axis++)
        shape[axis] = tensors_broadcasts(&call->tensors, t, axes[axis]) ? 1 : from->size[axes[axis]];
    first = (t == TENSOR(score_matrix) || t == TENSOR(alibi_slopes)) && shape[0] == 1; /* one for all heads, or all entries */
    const attn_status status =
        attn_archive_allocate(archive, role_name(t), from->layout.dtype, rank - first, shape + first, &to, error);
    if (status == ATTN_OK) copy(from, rank, axes, shape, to);
    return status;
}

/* What a file has no place for, and what `attn run` does not take from one. */
static attn_status check_supported(const check_case *c, attn_error *error)
{
    const problem_spec *s = &c->spec;
    const char *word = s->page ? "page" : s->tree ? "tree" : s->ragged ? "ragged" : NULL;
    const char *of_check = c->memory ? "memory" : c->o_dtype ? "otype" : NULL;
    if (of_check)
        return failure(error, ATTN_ERR_ARGUMENT,
                       "%s is a word of attn check alone: a file has neither a layout in memory nor outputs", of_check);
    if (word)
        return failure(error, ATTN_ERR_UNSUPPORTED,
                       "%s: attn run has no option for %s, so that a file of them would compute another problem", word,
                       s->page   ? "pages"
                       : s->tree ? "trees of drafts"
                                 : "packed queries alone");
    for (int t = TENSOR(k); t <= TENSOR(v); t++)
        if (problem_stored(s, t) > SPEC_STORED_I8)
            return failure(error, ATTN_ERR_UNSUPPORTED, "%ctype: files have no elements of %s", t == TENSOR(k) ? 'k' : 'v',
                           attn_dtype_name(problem_stored_dtype(s, t)));
    return ATTN_OK;
}

static int is_written(const problem_spec *spec, int t)
{
    if (t == TENSOR(offset_q)) return spec->offset_kind != SPEC_OFFSET_VALUE; /* --offset=N */
    if (!spec->sparse[0]) return 1;
    if (t == TENSOR(mask)) return spec->mask; /* the rest is of --sparse */
    return t != TENSOR(ranges) && t != TENSOR(block_starts) && t != TENSOR(block_index);
}

/* Hides in the mask what one by name beside it does, as in the tensors of `attn check`. */
static attn_status hide(check_call *call, const check_case *c, attn_error *error)
{
    sparse_mask mask;
    const attn_status status = sparse_make(&mask, &c->spec, error);
    if (status == ATTN_OK) masks_hide(call, &mask);
    sparse_free(&mask);
    return status;
}

attn_status make_attention(attn_archive *archive, const check_case *c, attn_error *error)
{
    check_call call;
    random_state random;
    attn_status status = check_supported(c, error);
    if (status != ATTN_OK) return status;
    status = c->poison ? check_call_create(&call, c, error) : check_inputs_create(&call, c, &random, error);
    if (status != ATTN_OK) return status;
    if (c->spec.mask && !c->poison) status = hide(&call, c, error);
    for (int t = 0; t < TENSORS && status == ATTN_OK; t++)
        if (call.in[t].base && is_written(&c->spec, t)) status = add(archive, &call, &c->spec, t, error);
    check_call_destroy(&call);
    return status;
}
