/* SPDX-License-Identifier: MIT
 *
 * input.c - from the tensors of a file to a problem and its arguments. */
#include "input.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "find.h"
#include "needed.h"
#include "parts.h"
#include "testing/memory/element.h"
#include "testing/text/failure.h"

/* ---- shapes ---- */

/* The sizes of q, k or v by their meaning. */
typedef struct sizes {
    int64_t heads, tokens, channels;
} sizes;

static sizes sizes_of(const attn_archive_tensor *t, int order)
{
    const int64_t *end = t->shape + t->rank;
    sizes s = {.heads = t->rank > 2 ? end[-3] : 1, .tokens = end[-2], .channels = end[-1]};
    if (order == SPEC_BSHD && t->rank > 2) s.heads = end[-2], s.tokens = end[-3];
    return s;
}

/* One query, key or value without an axis of tokens becomes one token; outputs have the shape in the file (input_file_shape). */
static void take_vectors(attention_input *input)
{
    static const int rows[] = {TENSOR(q), TENSOR(k), TENSOR(v), TENSOR(tan_q), TENSOR(tan_k), TENSOR(tan_v)};
    for (size_t n = 0; n < sizeof rows / sizeof *rows; n++) {
        input_tensor *used = &input->used[rows[n]];
        attn_archive_tensor *own = &input->own[rows[n]];
        if (!used->tensor || used->tensor->rank != 1) continue;
        *own = *used->tensor;
        own->rank = 2;
        own->shape[1] = own->shape[0];
        own->shape[0] = 1;
        used->tensor = own;
    }
}

static attn_status check_rank(const input_tensor *t, attn_error *error)
{
    char shape[SHAPE_TEXT];
    if (t->tensor->rank >= 2) return ATTN_OK;
    return failure(error, ATTN_ERR_SHAPE, "%.80s: tensor '%.40s' %s: expected [channel], [token, channel] or more axes", t->path,
                   t->tensor->name, shape_text(shape, t->tensor->rank, t->tensor->shape));
}

/* All axes before [head, token, channel] must be the same in q, k and v. */
static attn_status check_leading(const input_tensor *t, const input_tensor *q, attn_error *error)
{
    if (t->tensor->rank != q->tensor->rank)
        return input_mismatch(t, q, error, "ranks %" PRId64 " and %" PRId64, t->tensor->rank, q->tensor->rank);
    for (int k = 0; k < t->tensor->rank - 3; k++)
        if (t->tensor->shape[k] != q->tensor->shape[k])
            return input_mismatch(t, q, error, "batches of %" PRId64 " and %" PRId64, t->tensor->shape[k], q->tensor->shape[k]);
    return ATTN_OK;
}

static attn_status read_shape(attention_input *input, attn_error *error)
{
    const input_tensor *q = &input->used[TENSOR(q)], *k = &input->used[TENSOR(k)], *v = &input->used[TENSOR(v)];
    const input_tensor *all[] = {q, k, v};
    const int count = v->tensor ? 3 : 2; /* input_find has found q and k */
    for (int t = 0; t < count; t++) {
        attn_status status = check_rank(all[t], error);
        if (status == ATTN_OK) status = check_leading(all[t], q, error);
        if (status != ATTN_OK) return status;
    }
    const sizes sq = sizes_of(q->tensor, input->spec.order), sk = sizes_of(k->tensor, input->spec.order);
    const sizes sv = v->tensor ? sizes_of(v->tensor, input->spec.order) : (sizes){sk.heads, sk.tokens, 0};
    if (sq.channels != sk.channels && problem_score_kind(&input->spec) != ATTN_SCORE_GENERAL)
        return input_mismatch(k, q, error, "widths of %" PRId64 " and %" PRId64 "; --score=general takes both", sk.channels,
                              sq.channels);
    if (sk.heads ? sq.heads % sk.heads : sq.heads)
        return input_mismatch(k, q, error, "heads_q (%" PRId64 ") is not a multiple of heads_kv (%" PRId64 ")", sq.heads, sk.heads);
    if (v->tensor && sv.heads != sk.heads)
        return input_mismatch(v, k, error, "%" PRId64 " and %" PRId64 " heads", sv.heads, sk.heads);
    if (v->tensor && sv.tokens != sk.tokens)
        return input_mismatch(v, k, error, "%" PRId64 " and %" PRId64 " tokens", sv.tokens, sk.tokens);

    int64_t batch = 1;
    input->leading = q->tensor->rank > 3 ? q->tensor->rank - 3 : 0;
    for (int a = 0; a < input->leading; a++) {
        input->lead[a] = q->tensor->shape[a];
        batch *= input->lead[a]; /* a factor of a product that libattn_io has checked, or 0 after a zero */
    }
    input->total_q = sq.tokens;
    input->total_kv = sk.tokens;
    input->spec.shape = (attn_shape){batch, sq.heads, sk.heads, sq.tokens, sk.tokens, sq.channels, sv.channels};
    return ATTN_OK;
}

/* ---- types ---- */

static const int spec_of_dtype[] = {[ATTN_F32] = SPEC_F32, [ATTN_F64] = SPEC_F64, [ATTN_F16] = SPEC_F16, [ATTN_BF16] = SPEC_BF16};

static attn_status read_types(attention_input *input, int has_dtype, attn_error *error)
{
    const input_tensor *q = &input->used[TENSOR(q)];
    for (int r = TENSOR(q); r <= TENSOR(v); r++) {
        const input_tensor *t = &input->used[r];
        if (!t->tensor) continue;
        attn_status status = r == TENSOR(q) ? input_check_float(t, error) : input_check_int8(input, r, error);
        if (status != ATTN_OK) return status;
        if (t->tensor->dtype == ATTN_I8 && q->tensor->dtype != ATTN_F64) continue;
        if (!has_dtype && (t->tensor->dtype == ATTN_F64) != (q->tensor->dtype == ATTN_F64))
            return failure(error, ATTN_ERR_ARGUMENT,
                           "%.80s: tensor '%.40s' is %s and '%.40s' is %s; --dtype=f64 or f32 makes them one", t->path,
                           t->tensor->name, attn_dtype_name(t->tensor->dtype), q->tensor->name, attn_dtype_name(q->tensor->dtype));
    }
    if (!has_dtype) input->spec.dtype = spec_of_dtype[q->tensor->dtype];
    const attn_archive_tensor *k = input->used[TENSOR(k)].tensor, *v = input->used[TENSOR(v)].tensor;
    if (!has_dtype && input->spec.dtype == SPEC_F32 && k->dtype == ATTN_I8 && v && v->dtype == ATTN_I8)
        input->spec.dtype = SPEC_INT8;
    return ATTN_OK;
}

static void set_data(attention_input *input, int has_dtype)
{
    input_set_as(input, TENSOR(q), has_dtype ? problem_dtype(&input->spec) : input->used[TENSOR(q)].tensor->dtype);
    input_rows(input, TENSOR(k), has_dtype);
    if (input->used[TENSOR(v)].tensor) input_rows(input, TENSOR(v), has_dtype);
    else input_set(input, TENSOR(v), NULL, problem_dtype(&input->spec)); /* values of width 0 */
}

/* Builds the problem of the options, with the data and types that were read.  Inputs of the operation that were not given
 * (tangents) stay absent; the output of values of width 0 is empty. */
static attn_status build(attention_input *input, attn_error *error)
{
    const attn_tensors given = input->tensors;
    problem_spec plain = input->spec;
    plain.rope = 0; /* the queries and keys of the problem are already rotated */
    plain.sparse[0] = 0;
    attn_status status = problem_build(&plain, &input->problem, &input->tensors, error);
    for (int t = 0; t < TENSORS && status == ATTN_OK; t++) {
        const attn_output *from = tensors_at(&given, t);
        attn_output *slot = tensors_slot(&input->tensors, t);
        if (!from->data && tensors_reads(&input->tensors, input->problem.op, t)) *slot = (attn_output){0};
        if (!from->data) continue;
        slot->data = from->data;
        if (from->dtype) slot->dtype = from->dtype;
        if (from->stride[3]) memcpy(slot->stride, from->stride, sizeof slot->stride);
    }
    if (input->spec.shape.dim_v == 0) input->tensors.o.data = ATTN_EMPTY;
    if (status == ATTN_OK) status = named_masks_put(&input->masks, &input->spec, &input->problem, &input->tensors, error);
    if (status == ATTN_OK && input->is_shared) status = sparse_check_fields(&input->spec, error);
    return status;
}

/* ---- loading ---- */

attn_status input_load(attention_input *input, const char *path, const input_settings *settings, int value, attn_error *error)
{
    *input = (attention_input){.spec = settings->spec, .tokens = settings->tokens, .call.struct_size = sizeof input->call};
    attn_status status = input_find(input, path, settings, value, error);
    for (int r = 0; r < ROLES; r++) input->used[r].in_file = input->used[r].tensor;
    take_vectors(input);
    if (status == ATTN_OK) status = read_shape(input, error);
    if (status == ATTN_OK) status = read_types(input, settings->has_dtype, error);
    if (status == ATTN_OK) status = input_read_packed(input, error);
    if (status == ATTN_OK) status = input_take_share(input, settings, error);
    if (status == ATTN_OK) status = input_read_masks(input, settings->mask_drop, error);
    if (status == ATTN_OK) status = input_read_indices(input, error);
    if (status == ATTN_OK) status = input_read_heads(input, error);
    if (status == ATTN_OK) status = input_read_terms(input, error);
    if (status == ATTN_OK) status = input_read_gradients(input, error);
    if (status == ATTN_OK && input->spec.packed && value != INPUT_VALUE) status = input_set_unpacked(input, error);
    if (status != ATTN_OK) return status;
    set_data(input, settings->has_dtype);
    status = build(input, error);
    if (status == ATTN_OK) status = problem_check(&input->spec, error);
    if (status != ATTN_OK) return failure_about(error, input->path);
    const int offset = settings->spec.offset_kind || settings->chosen[TENSOR(offset_q)];
    if (!settings->spec.linear) /* which has neither flag */
        status = input_check_positions(&input->spec,
                                       settings->spec.align ? "align"
                                       : offset             ? "offset"
                                                            : NULL,
                                       input->spec.rope && !input->used[ROLE_POSITIONS_Q].tensor, error);
    if (status != ATTN_OK) return status;
    if (input->begins_q) input_unpack(input);
    input->call.dropout_seed = input->spec.seed;
    input->tensors.call = &input->call;
    if (input->spec.packed) input_lay_packed(input);
    input_lay_share(input);
    status = input_rotate(input, settings, error);
    if (status != ATTN_OK) return status;
    input_lay_int8(input);
    if (input->spec.block && value != INPUT_VALUE) input_block_rows(input);
    if (value != INPUT_VALUE) named_masks_block_rows(&input->masks, &input->problem, &input->tensors);
    needed_warn(input);
    return ATTN_OK;
}

void input_free(attention_input *input)
{
    for (int k = 0; k < input->owned_count; k++) free(input->owned[k]);
    named_masks_free(&input->masks);
    free(input->keep.bytes);
    for (int r = 0; r < ROLES; r++) attn_archive_destroy(input->single[r]);
    attn_archive_destroy(input->file);
}
