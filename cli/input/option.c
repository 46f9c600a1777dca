/* SPDX-License-Identifier: MIT
 *
 * option.c - packed sequences, numbers of each head, and incoming gradients and tangents. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parts.h"
#include "testing/memory/element.h"
#include "testing/text/failure.h"

/* ---- packed sequences ---- */

/* Where the sequences begin, as i64, and the length of the longest of them. */
static attn_status read_begins(attention_input *input, int r, int64_t total, int64_t *longest, attn_error *error)
{
    const input_tensor *used = &input->used[r];
    const attn_archive_tensor *t = used->tensor;
    char shape[SHAPE_TEXT];
    attn_status status = input_check_type(used, t->dtype >= ATTN_I8 && t->dtype <= ATTN_U64, "integers, such as i32", error);
    if (status != ATTN_OK) return status;
    if (t->rank != 1 || t->shape[0] < 1)
        return failure(error, ATTN_ERR_SHAPE, "%.60s: tensor '%.30s' %.60s: expected [sequences + 1] numbers", used->path, t->name,
                       shape_text(shape, t->rank, t->shape));
    int64_t *begin = input_alloc(input, t->shape[0], sizeof *begin), last = 0;
    *longest = 0;
    for (int64_t b = 0; b < t->shape[0]; b++) {
        const int64_t most = b ? total : 0; /* the first is 0 */
        if (!input_integer(t, b, &begin[b]) || begin[b] < last || begin[b] > most)
            return failure(error, ATTN_ERR_ARGUMENT,
                           "%.60s: tensor '%.30s': number %" PRId64 " (%" PRId64 ") is not between %" PRId64 " and %" PRId64,
                           used->path, t->name, b, begin[b], last, most);
        if (begin[b] - last > *longest) *longest = begin[b] - last;
        last = begin[b];
    }
    input_set(input, r, begin, ATTN_I64);
    return ATTN_OK;
}

/* From the tokens of all sequences to a batch of them, as long as the longest. */
attn_status input_read_packed(attention_input *input, attn_error *error)
{
    const input_tensor *q = &input->used[TENSOR(cu_seqlens_q)], *kv = &input->used[TENSOR(cu_seqlens_kv)];
    const input_tensor *one = q->tensor ? q : kv;
    attn_shape *s = &input->spec.shape;
    if (!one->tensor) return ATTN_OK;
    if (!q->tensor || !kv->tensor)
        return failure(error, ATTN_ERR_ARGUMENT,
                       "%.60s: packed sequences need cu_seqlens_q and cu_seqlens_kv; --cu-seqlens-q=%.30s --cu-seqlens-kv=%.30s "
                       "uses one for both",
                       one->path, one->tensor->name, one->tensor->name);
    if (input->leading)
        return failure(error, ATTN_ERR_SHAPE,
                       "%.60s: tensor '%.30s' has %d axes; packed sequences are [head, token, channel], or "
                       "with --layout=bshd [token, head, channel]",
                       input->used[TENSOR(q)].path, input->used[TENSOR(q)].tensor->name, input->used[TENSOR(q)].tensor->rank);
    attn_status status = read_begins(input, TENSOR(cu_seqlens_q), input->total_q, &s->len_q, error);
    if (status == ATTN_OK) status = read_begins(input, TENSOR(cu_seqlens_kv), input->total_kv, &s->len_kv, error);
    if (status != ATTN_OK) return status;
    if (q->tensor->shape[0] != kv->tensor->shape[0])
        return input_mismatch(kv, q, error, "%" PRId64 " and %" PRId64 " sequences", kv->tensor->shape[0] - 1,
                              q->tensor->shape[0] - 1);
    input->spec.packed = 1;
    s->batch = input->lead[0] = q->tensor->shape[0] - 1;
    input->leading = 1;
    return ATTN_OK;
}

void input_lay_packed(attention_input *input)
{
    static const int by_head[4] = {0, 1, 2, 3}, by_token[4] = {0, 2, 1, 3};
    for (int t = 0; t < TENSORS; t++) {
        const int rows = tensors_about(t)->axes[3] == ATTN_AXIS_ONE || tensors_about(t)->axes[3] == ATTN_AXIS_TOPK;
        int64_t shape[4];
        if (!tensors_has(&input->tensors, t) || !tensors_packs(t)) continue;
        tensors_shape(&input->problem, &input->tensors, t, shape);
        shape[0] = 1;
        shape[2] = input_tokens(input, tensors_of_keys(t));
        (void)tensors_lay(tensors_slot(&input->tensors, t), shape, input->spec.order == SPEC_BSHD && !rows ? by_token : by_head, 1);
    }
}

/* ---- numbers of each head ---- */

/* 1 if one axis has `count` elements and the others have one. */
static int is_vector(const attn_archive_tensor *t, int64_t count)
{
    int64_t all = 1, found = 0;
    for (int axis = 0; axis < t->rank; axis++) {
        all *= t->shape[axis];
        found |= t->shape[axis] == count;
    }
    return found && all == count;
}

static attn_status read_head_numbers(attention_input *input, int r, int *by_batch, attn_error *error)
{
    const input_tensor *used = &input->used[r];
    const attn_archive_tensor *t = used->tensor;
    const int64_t heads = input->spec.shape.heads_q;
    char shape[SHAPE_TEXT], one[SHAPE_TEXT], both[SHAPE_TEXT + 40] = "";
    attn_status status = input_check_float(used, error);
    if (status != ATTN_OK) return status;
    int64_t full[ATTN_MAX_RANK];
    memcpy(full, input->lead, sizeof full);
    full[input->leading] = heads;
    const int is_full = t->rank == input->leading + 1 && memcmp(t->shape, full, (size_t)t->rank * sizeof *full) == 0;
    if (!is_vector(t, heads) && !(by_batch && is_full)) {
        if (by_batch)
            snprintf(both, sizeof both, ", or for each batch entry and head %.60s", shape_text(one, input->leading + 1, full));
        return failure(error, ATTN_ERR_SHAPE, "%.60s: tensor '%.30s' %.50s: expected a number for each head [%" PRId64 "]%s",
                       used->path, t->name, shape_text(shape, t->rank, t->shape), heads, both);
    }
    if (by_batch) *by_batch = !is_vector(t, heads) || (is_full && input->leading > 0);
    input_set_as(input, r, input_compute_dtype(input));
    return ATTN_OK;
}

/* The slopes of Press et al. 2022, for any number of heads. */
static const void *published_slopes(attention_input *input)
{
    const int64_t heads = input->spec.shape.heads_q;
    const attn_dtype compute = input_compute_dtype(input);
    void *slopes = input_alloc(input, heads, attn_dtype_size(compute));
    (void)attn_alibi_slopes(heads, &(attn_output){slopes, compute, {0, 0, 0, 0}},
                            NULL); /* cannot fail: the type is supported and the memory is large enough */
    return slopes;
}

attn_status input_read_heads(attention_input *input, attn_error *error)
{
    problem_spec *spec = &input->spec;
    attn_status status = ATTN_OK;
    if (input->used[TENSOR(alibi_slopes)].tensor) {
        int by_batch = 0;
        status = read_head_numbers(input, TENSOR(alibi_slopes), &by_batch, error);
        spec->alibi = by_batch ? SPEC_ALIBI_BATCH_HEAD : SPEC_ALIBI_HEAD;
    } else if (spec->alibi) {
        input_set(input, TENSOR(alibi_slopes), published_slopes(input), input_compute_dtype(input));
    }
    if (status == ATTN_OK && input->used[TENSOR(sink)].tensor) {
        spec->sink = 1;
        status = read_head_numbers(input, TENSOR(sink), NULL, error);
    }
    if (status == ATTN_OK && input->used[TENSOR(scale)].tensor) {
        spec->scale_heads = 1;
        spec->has_scale = 0;
        status = read_head_numbers(input, TENSOR(scale), NULL, error);
    }
    return status;
}

/* ---- gradients ---- */

/* An incoming gradient, in the shape of o or lse. */
static attn_status read_flow(attention_input *input, int t, int64_t width, attn_dtype dtype, attn_error *error)
{
    const attn_shape *s = &input->spec.shape;
    const int64_t size[4] = {s->batch, s->heads_q, s->len_q, width};
    int64_t shape[ATTN_MAX_RANK];
    const int rank = input_file_shape(input, t, size, shape);
    attn_status status = input_check_shape(&input->used[t], rank, shape, error);
    if (status == ATTN_OK) input_set_as(input, t, dtype);
    return status;
}

static attn_status read_gradients(attention_input *input, attn_error *error)
{
    problem_spec *spec = &input->spec;
    spec->dlse = input->used[TENSOR(grad_lse)].tensor != NULL;
    attn_status status = read_flow(input, TENSOR(grad_o), spec->shape.dim_v, problem_dtype(spec), error);
    if (status == ATTN_OK && spec->dlse) status = read_flow(input, TENSOR(grad_lse), 1, input_compute_dtype(input), error);
    if (status != ATTN_OK) return status;
    if (spec->op != SPEC_BACKWARD) return ATTN_OK;
    spec->dbias = input->used[TENSOR(bias)].tensor != NULL && !input->keep.is_added; /* a mask has no gradient */
    spec->dslopes = input->used[TENSOR(alibi_slopes)].tensor != NULL;
    spec->drel = spec->rel[0] != 0;
    spec->dtable = input->used[TENSOR(bias_table)].tensor != NULL;
    spec->dsink = input->used[TENSOR(sink)].tensor != NULL;
    spec->dscale = input->used[TENSOR(scale)].tensor != NULL;
    return ATTN_OK;
}

/* Tangents of q, k and v, in the shapes of these; that of the bias is read with the masks. */
static attn_status read_tangents(attention_input *input, attn_error *error)
{
    int given = input->used[TENSOR(tan_bias)].tensor != NULL;
    for (int t = TENSOR(tan_q); t <= TENSOR(tan_v); t++) {
        const attn_archive_tensor *like = input->used[tensors_about(t)->gradient_of].tensor;
        if (!input->used[t].tensor) continue;
        attn_status status = input_check_shape(&input->used[t], like->rank, like->shape, error);
        if (status != ATTN_OK) return status;
        input_set_as(input, t, problem_dtype(&input->spec));
        given = 1;
    }
    if (given) return ATTN_OK;
    return failure(error, ATTN_ERR_ARGUMENT, "%.80s: no tangent: tan_q, tan_k, tan_v or tan_bias; --tan-q=NAME chooses another",
                   input->path);
}

attn_status input_read_gradients(attention_input *input, attn_error *error)
{
    attn_status status = ATTN_OK;
    if (role_used_by(TENSOR(grad_o), input->spec.op)) status = read_gradients(input, error);
    if (status == ATTN_OK && role_used_by(TENSOR(tan_q), input->spec.op)) status = read_tangents(input, error);
    return status;
}

static int shape_of_rows(const attention_input *input, int t, const int64_t size[4], int64_t shape[ATTN_MAX_RANK])
{
    const attn_archive_tensor *q = input->used[TENSOR(q)].tensor;
    const attn_axis last = tensors_about(t)->axes[3];
    const int packs = tensors_packs(t), like_q = packs && last != ATTN_AXIS_ONE && last != ATTN_AXIS_TOPK;
    int rank = q->rank;
    memcpy(shape, q->shape, sizeof q->shape);
    if ((input->spec.packed && !packs) || input->begins_q) { /* weights and scores keep the batch axis */
        rank = 4;
        shape[0] = size[0];
    }
    shape[rank - 1] = size[3];
    if (like_q) return rank;
    if (rank > 2) shape[rank - 3] = size[1]; /* [head, query, ...] in both layouts */
    shape[rank - 2] = !input->spec.packed || !packs ? size[2] : tensors_of_keys(t) ? input->total_kv : input->total_q;
    return last == ATTN_AXIS_ONE ? rank - 1 : rank;
}

int input_file_shape(const attention_input *input, int t, const int64_t size[4], int64_t shape[ATTN_MAX_RANK])
{
    const attn_axis rows = tensors_about(t)->axes[2];
    const attn_archive_tensor *of = input->used[rows == ATTN_AXIS_KEY ? TENSOR(k) : TENSOR(q)].in_file;
    int rank = shape_of_rows(input, t, size, shape);
    if (!of || of->rank != 1 || (rows != ATTN_AXIS_QUERY && rows != ATTN_AXIS_KEY)) return rank;
    rank--; /* without the axis of the only token, which is the last or the one before */
    if (tensors_about(t)->axes[3] != ATTN_AXIS_ONE) shape[rank - 1] = shape[rank];
    return rank;
}
