/* SPDX-License-Identifier: MIT
 *
 * input.c - from the tensors of a file to a problem and its arguments. */
#include "input.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check/element.h"
#include "failure.h"
#include "input_find.h"

const char *shape_text(char text[SHAPE_TEXT], int rank, const int64_t *shape)
{
    size_t used = (size_t)snprintf(text, SHAPE_TEXT, "[");
    for (int k = 0; k < rank && used < SHAPE_TEXT - 24; k++)
        used += (size_t)snprintf(text + used, SHAPE_TEXT - used, "%s%" PRId64, k ? ", " : "", shape[k]);
    snprintf(text + used, SHAPE_TEXT - used, "]");
    return text;
}

static void *own(attention_input *input, int64_t count, size_t size)
{
    return input->owned[input->owned_count++] = need_memory(count, size);
}

/* ---- shapes ---- */

/* The sizes of q, k or v by their meaning. */
typedef struct sizes {
    int64_t heads, tokens, channels;
} sizes;

static sizes sizes_of(const attn_tensor *t, int order)
{
    const int64_t *end = t->shape + t->rank;
    sizes s = {.heads = t->rank > 2 ? end[-3] : 1, .tokens = end[-2], .channels = end[-1]};
    if (order == SPEC_BSHD && t->rank > 2) s.heads = end[-2], s.tokens = end[-3];
    return s;
}

static attn_status misfit(const input_tensor *t, const input_tensor *other, attn_error *error, const char *format, int64_t a,
                          int64_t b)
{
    char reason[100], mine[SHAPE_TEXT], theirs[SHAPE_TEXT];
    snprintf(reason, sizeof reason, format, a, b);
    return failure(error, ATTN_ERR_SHAPE, "%.60s: tensor '%.30s' %.60s does not fit '%.30s' %.60s: %s", t->path, t->tensor->name,
                   shape_text(mine, t->tensor->rank, t->tensor->shape), other->tensor->name,
                   shape_text(theirs, other->tensor->rank, other->tensor->shape), reason);
}

static attn_status check_rank(const input_tensor *t, attn_error *error)
{
    char shape[SHAPE_TEXT];
    if (t->tensor->rank >= 2) return ATTN_OK;
    return failure(error, ATTN_ERR_SHAPE, "%.80s: tensor '%.40s' %s: expected [token, channel] or more axes", t->path,
                   t->tensor->name, shape_text(shape, t->tensor->rank, t->tensor->shape));
}

/* Everything before [head, token, channel] is the same in q, k and v. */
static attn_status check_leading(const input_tensor *t, const input_tensor *q, attn_error *error)
{
    if (t->tensor->rank != q->tensor->rank)
        return misfit(t, q, error, "ranks %" PRId64 " and %" PRId64, t->tensor->rank, q->tensor->rank);
    for (int k = 0; k < t->tensor->rank - 3; k++)
        if (t->tensor->shape[k] != q->tensor->shape[k])
            return misfit(t, q, error, "batches of %" PRId64 " and %" PRId64, t->tensor->shape[k], q->tensor->shape[k]);
    return ATTN_OK;
}

static attn_status read_shape(attention_input *input, attn_error *error)
{
    const input_tensor *q = &input->used[ROLE_Q], *k = &input->used[ROLE_K], *v = &input->used[ROLE_V];
    const input_tensor *all[] = {q, k, v};
    for (int t = 0; t < 3; t++) {
        if (!all[t]->tensor) continue;
        attn_status status = check_rank(all[t], error);
        if (status == ATTN_OK) status = check_leading(all[t], q, error);
        if (status != ATTN_OK) return status;
    }
    const sizes sq = sizes_of(q->tensor, input->spec.order), sk = sizes_of(k->tensor, input->spec.order);
    const sizes sv = v->tensor ? sizes_of(v->tensor, input->spec.order) : (sizes){sk.heads, sk.tokens, 0};
    if (sq.channels != sk.channels) return misfit(k, q, error, "widths of %" PRId64 " and %" PRId64, sk.channels, sq.channels);
    if (sk.heads ? sq.heads % sk.heads : sq.heads)
        return misfit(k, q, error, "heads_q (%" PRId64 ") is not a multiple of heads_kv (%" PRId64 ")", sq.heads, sk.heads);
    if (sv.heads != sk.heads) return misfit(v, k, error, "%" PRId64 " and %" PRId64 " heads", sv.heads, sk.heads);
    if (sv.tokens != sk.tokens) return misfit(v, k, error, "%" PRId64 " and %" PRId64 " tokens", sv.tokens, sk.tokens);

    int64_t batch = 1;
    input->leading = q->tensor->rank > 3 ? q->tensor->rank - 3 : 0;
    for (int a = 0; a < input->leading; a++) {
        input->lead[a] = q->tensor->shape[a];
        batch *= input->lead[a]; /* a factor of a product that libattn_io has checked, or 0 behind a zero */
    }
    input->spec.shape = (attn_shape){batch, sq.heads, sk.heads, sq.tokens, sk.tokens, sq.channels, sv.channels};
    return ATTN_OK;
}

/* ---- types ---- */

static const int spec_of_dtype[] = {[ATTN_F32] = SPEC_F32, [ATTN_F64] = SPEC_F64, [ATTN_F16] = SPEC_F16, [ATTN_BF16] = SPEC_BF16};

static int is_float(attn_dtype dtype) { return dtype >= ATTN_F32 && dtype <= ATTN_BF16; }

static attn_status check_type(const input_tensor *t, int fits, const char *expected, attn_error *error)
{
    if (fits) return ATTN_OK;
    return failure(error, ATTN_ERR_ARGUMENT, "%.80s: tensor '%.40s' is %s; expected %s", t->path, t->tensor->name,
                   attn_dtype_name(t->tensor->dtype), expected);
}

/* The data of q, k or v in the type that is wanted: a copy where it is stored in another. */
static const void *convert(attention_input *input, const attn_tensor *t, attn_dtype dtype)
{
    size_t from = attn_dtype_size(t->dtype), to = attn_dtype_size(dtype);
    if (t->dtype == dtype) return t->data;
    int64_t count = (int64_t)(t->bytes / from);
    char *copy = own(input, count, to);
    for (int64_t k = 0; k < count; k++)
        element_write(dtype, copy + (size_t)k * to, element_read(t->dtype, (const char *)t->data + (size_t)k * from));
    return copy;
}

static attn_status read_types(attention_input *input, int has_dtype, attn_error *error)
{
    const input_tensor *q = &input->used[ROLE_Q];
    for (int r = ROLE_Q; r <= ROLE_V; r++) {
        const input_tensor *t = &input->used[r];
        if (!t->tensor) continue;
        attn_status status = check_type(t, is_float(t->tensor->dtype), "f32, f64, f16 or bf16", error);
        if (status != ATTN_OK) return status;
        if (!has_dtype && (t->tensor->dtype == ATTN_F64) != (q->tensor->dtype == ATTN_F64))
            return failure(error, ATTN_ERR_ARGUMENT,
                           "%.80s: tensor '%.40s' is %s and '%.40s' is %s; --dtype=f64 or f32 makes them one", t->path,
                           t->tensor->name, attn_dtype_name(t->tensor->dtype), q->tensor->name, attn_dtype_name(q->tensor->dtype));
    }
    if (!has_dtype) input->spec.dtype = spec_of_dtype[q->tensor->dtype];
    return ATTN_OK;
}

static void set_data(attention_input *input, int has_dtype)
{
    const void **data[] = {[ROLE_Q] = &input->args.q, [ROLE_K] = &input->args.k, [ROLE_V] = &input->args.v};
    attn_layout *layout[] = {[ROLE_Q] = &input->problem.q, [ROLE_K] = &input->problem.k, [ROLE_V] = &input->problem.v};
    for (int r = ROLE_Q; r <= ROLE_V; r++) {
        const attn_tensor *t = input->used[r].tensor;
        if (!t) continue;
        layout[r]->dtype = has_dtype ? problem_dtype(&input->spec) : t->dtype;
        *data[r] = convert(input, t, layout[r]->dtype);
    }
}

/* ---- broadcasting over the leading axes ---- */

/* 1 if the axes of `shape` are, from the last one, each 1 or the size of the input's leading axis; *full: all are that size. */
static int fits_leading(const attention_input *input, int rank, const int64_t *shape, int *full)
{
    *full = 1;
    for (int back = 1; back <= rank || back <= input->leading; back++) {
        int64_t want = back <= input->leading ? input->lead[input->leading - back] : 1;
        int64_t have = back <= rank ? shape[rank - back] : 1;
        if (have != want && have != 1) return 0;
        *full &= have == want;
    }
    return 1;
}

/* Which entry of an array of this shape belongs to batch entry b. */
static int64_t entry_of(const attention_input *input, int rank, const int64_t *shape, int64_t b)
{
    int64_t entry = 0, step = 1;
    for (int back = 1; back <= input->leading && back <= rank; back++) {
        int64_t want = input->lead[input->leading - back], have = shape[rank - back];
        if (have != 1) entry += b % want * step;
        b /= want;
        step *= have;
    }
    return entry;
}

/* ---- mask and bias ---- */

/* Fills the axes of size 1 and the pointer; copies where some leading axes broadcast and others do not, for which strides have no
 * word. */
static attn_status read_pairs(attention_input *input, tensor_role r, int *one, const void **data, attn_error *error)
{
    const input_tensor *used = &input->used[r];
    const attn_tensor *t = used->tensor;
    const attn_shape *s = &input->spec.shape;
    int64_t want[4] = {s->batch, s->heads_q, s->len_q, s->len_kv}, have[4] = {1, 1, 1, 1};
    char mine[SHAPE_TEXT], theirs[SHAPE_TEXT];
    int fits = t->rank >= 2, full = 1, leading = t->rank > 3 ? t->rank - 3 : 0;
    for (int axis = 1; fits && axis < 4; axis++) {
        if (axis >= 4 - t->rank) have[axis] = t->shape[t->rank - 4 + axis];
        if (have[axis] != want[axis] && have[axis] != 1) fits = 0;
    }
    if (!fits || !fits_leading(input, leading, t->shape, &full))
        return failure(error, ATTN_ERR_SHAPE, "%.60s: tensor '%.30s' %.50s does not broadcast to %.50s (batch, head, query, key)",
                       used->path, t->name, shape_text(mine, t->rank, t->shape), shape_text(theirs, 4, want));

    int64_t entries = 1;
    for (int a = 0; a < leading; a++) entries *= t->shape[a];
    have[0] = full ? s->batch : entries == 1 ? 1 : s->batch;
    *data = t->data;
    if (!full && entries != 1) {
        size_t slice = s->batch && entries ? t->bytes / (size_t)entries : 0;
        char *copy = own(input, s->batch, slice ? slice : 1);
        for (int64_t b = 0; b < s->batch && slice; b++)
            memcpy(copy + (size_t)b * slice, (const char *)t->data + (size_t)entry_of(input, leading, t->shape, b) * slice, slice);
        *data = copy;
    }
    *one = 0;
    for (int axis = 0; axis < 4; axis++)
        if (have[axis] == 1 && want[axis] != 1) *one |= 1 << axis;
    return ATTN_OK;
}

/* The share of zeros, to four digits: it only serves the problem string. */
static double dropped_share(const attn_tensor *t)
{
    const unsigned char *bytes = t->data;
    size_t zeros = 0;
    for (size_t k = 0; k < t->bytes; k++) zeros += !bytes[k];
    return t->bytes ? round((double)zeros / (double)t->bytes * 1e4) / 1e4 : 0;
}

static attn_status read_mask_and_bias(attention_input *input, attn_error *error)
{
    const input_tensor *mask = &input->used[ROLE_MASK], *bias = &input->used[ROLE_BIAS];
    attn_status status = ATTN_OK;
    if (mask->tensor) {
        status = check_type(mask, mask->tensor->dtype == ATTN_BOOL || mask->tensor->dtype == ATTN_U8,
                            "bool or u8 (1 = keep); --bias=NAME adds it", error);
        if (status == ATTN_OK) status = read_pairs(input, ROLE_MASK, &input->spec.mask_one, &input->args.mask, error);
        input->spec.mask = 1;
        input->spec.mask_drop = dropped_share(mask->tensor);
    }
    if (bias->tensor && status == ATTN_OK) {
        status = check_type(bias, is_float(bias->tensor->dtype), "f32, f64, f16 or bf16", error);
        if (status == ATTN_OK) status = read_pairs(input, ROLE_BIAS, &input->spec.bias_one, &input->args.bias, error);
        input->spec.bias = 1;
    }
    return status;
}

/* ---- lengths and offsets ---- */

/* 0 if it is a u64 beyond i64. */
static int read_integer(const attn_tensor *t, int64_t k, int64_t *value)
{
    switch (t->dtype) {
    case ATTN_I64:
        *value = ((const int64_t *)t->data)[k];
        return 1;
    case ATTN_U64:
        *value = (int64_t)((const uint64_t *)t->data)[k];
        return *value >= 0;
    default: /* up to 32 bits: a double holds them */
        *value = (int64_t)element_read(t->dtype, (const char *)t->data + (size_t)k * attn_dtype_size(t->dtype));
        return 1;
    }
}

/* One number for each batch entry, as i64. */
static attn_status read_index(attention_input *input, tensor_role r, const void **data, attn_error *error)
{
    const input_tensor *used = &input->used[r];
    const attn_tensor *t = used->tensor;
    char mine[SHAPE_TEXT], theirs[SHAPE_TEXT];
    int full;
    attn_status status = check_type(used, t->dtype >= ATTN_I8 && t->dtype <= ATTN_U64, "whole numbers, such as i64", error);
    if (status != ATTN_OK) return status;
    if (!fits_leading(input, t->rank, t->shape, &full))
        return failure(error, ATTN_ERR_SHAPE, "%.60s: tensor '%.30s' %.60s: expected one number for each batch entry %.60s",
                       used->path, t->name, shape_text(mine, t->rank, t->shape), shape_text(theirs, input->leading, input->lead));
    int64_t *index = own(input, input->spec.shape.batch, sizeof *index);
    for (int64_t b = 0; b < input->spec.shape.batch; b++)
        if (!read_integer(t, entry_of(input, t->rank, t->shape, b), &index[b]))
            return failure(error, ATTN_ERR_ARGUMENT, "%.80s: tensor '%.40s': a number beyond 2^63", used->path, t->name);
    *data = index;
    return ATTN_OK;
}

static attn_status read_indices(attention_input *input, attn_error *error)
{
    attn_status status = ATTN_OK;
    int q = input->used[ROLE_LENGTHS_Q].tensor != NULL, kv = input->used[ROLE_LENGTHS_KV].tensor != NULL;
    if (q) status = read_index(input, ROLE_LENGTHS_Q, &input->args.lengths_q, error);
    if (kv && status == ATTN_OK) status = read_index(input, ROLE_LENGTHS_KV, &input->args.lengths_kv, error);
    input->spec.lengths = q && kv ? SPEC_LENGTHS_BOTH : q ? SPEC_LENGTHS_Q : kv ? SPEC_LENGTHS_KV : SPEC_LENGTHS_NONE;
    if (input->used[ROLE_OFFSET].tensor && status == ATTN_OK) {
        input->spec.offset_kind = SPEC_OFFSET_EACH;
        status = read_index(input, ROLE_OFFSET, &input->args.offset, error);
    } else if (input->spec.offset_kind == SPEC_OFFSET_VALUE && status == ATTN_OK) {
        int64_t *offset = own(input, input->spec.shape.batch, sizeof *offset);
        for (int64_t b = 0; b < input->spec.shape.batch; b++) offset[b] = input->spec.offset;
        input->args.offset = offset;
    }
    return status;
}

/* ---- the whole ---- */

attn_status input_load(attention_input *input, const char *path, const input_settings *settings, int value, attn_error *error)
{
    *input = (attention_input){.spec = settings->spec, .args.struct_size = sizeof input->args};
    attn_status status = input_find(input, path, settings, value, error);
    if (status == ATTN_OK) status = read_shape(input, error);
    if (status == ATTN_OK) status = read_types(input, settings->has_dtype, error);
    if (status == ATTN_OK) status = read_mask_and_bias(input, error);
    if (status == ATTN_OK) status = read_indices(input, error);
    if (status != ATTN_OK) return status;
    status = problem_build(&input->spec, &input->problem, error);
    if (status == ATTN_OK) status = problem_check(&input->spec, error);
    if (status != ATTN_OK) return failure_about(error, input->path);
    if (input->used[ROLE_MASK].tensor) input->problem.mask.mask.dtype = input->used[ROLE_MASK].tensor->dtype;
    if (input->used[ROLE_BIAS].tensor) input->problem.bias.bias.dtype = input->used[ROLE_BIAS].tensor->dtype;
    set_data(input, settings->has_dtype);
    return ATTN_OK;
}

void input_free(attention_input *input)
{
    for (int k = 0; k < input->owned_count; k++) free(input->owned[k]);
    for (int r = 0; r < ROLES; r++) attn_tensors_destroy(input->single[r]);
    attn_tensors_destroy(input->file);
}
