/* SPDX-License-Identifier: MIT
 *
 * int8.c - int8 keys and values: read with their scales, or quantised from what the file has. */
#include <string.h>

#include "attn/cache.h"
#include "parts.h"
#include "testing/memory/element.h"
#include "testing/text/failure.h"

/* A scale for each row of k or v: the same axes without the last, which may be there with size 1. */
static attn_status check_scales(const input_tensor *scales, const input_tensor *rows, attn_error *error)
{
    const attn_archive_tensor *s = scales->tensor, *t = rows->tensor;
    const int same = s->rank == t->rank || s->rank == t->rank - 1;
    char actual_text[SHAPE_TEXT], expected[SHAPE_TEXT];
    attn_status status = input_check_float(scales, error);
    if (status != ATTN_OK) return status;
    if (same && memcmp(s->shape, t->shape, (size_t)(t->rank - 1) * sizeof *t->shape) == 0 &&
        (s->rank < t->rank || s->shape[t->rank - 1] == 1))
        return ATTN_OK;
    return failure(error, ATTN_ERR_SHAPE, "%.60s: tensor '%.30s' %.60s: expected a number for each row of '%.30s', %.60s",
                   scales->path, s->name, shape_text(actual_text, s->rank, s->shape), t->name,
                   shape_text(expected, t->rank - 1, t->shape));
}

attn_status input_check_int8(const attention_input *input, int r, attn_error *error)
{
    const input_tensor *rows = &input->used[r], *scales = &input->used[r == TENSOR(k) ? TENSOR(k_scale) : TENSOR(v_scale)];
    const char *name = r == TENSOR(k) ? "k" : "v";
    if (rows->tensor->dtype != ATTN_I8) {
        if (!scales->tensor) return input_check_float(rows, error);
        return failure(error, ATTN_ERR_ARGUMENT, "%.80s: tensor '%.40s' is the scale of '%.40s', which is %s and not i8",
                       scales->path, scales->tensor->name, rows->tensor->name, attn_dtype_name(rows->tensor->dtype));
    }
    if (!scales->tensor)
        return failure(error, ATTN_ERR_ARGUMENT,
                       "%.80s: tensor '%.40s' is i8 and has no scale: no tensor '%s_scale'; --%s-scale=NAME "
                       "chooses another",
                       rows->path, rows->tensor->name, name, name);
    return check_scales(scales, rows, error);
}

/* i8 converted to a float type. */
static const void *dequantise(attention_input *input, const attn_archive_tensor *t, const float *scales, attn_dtype dtype)
{
    const int64_t dim = t->shape[t->rank - 1], count = (int64_t)t->bytes, size = (int64_t)attn_dtype_size(dtype);
    char *out = input_alloc(input, count, (size_t)size);
    for (int64_t k = 0; k < count; k++)
        element_write(dtype, out + k * size, (double)scales[k / dim] * (double)((const int8_t *)t->data)[k]);
    return out;
}

static const void *quantise(attention_input *input, const attn_archive_tensor *t, const void **scales)
{
    const int64_t dim = t->shape[t->rank - 1], rows = dim ? (int64_t)(t->bytes / attn_dtype_size(t->dtype)) / dim : 0;
    int8_t *quantised = input_alloc(input, rows * dim, 1);
    float *scale = input_alloc(input, rows, sizeof *scale);
    const attn_input from = {t->data, t->dtype, {0, 0, 0, 0}};
    const attn_output to = attn_out(quantised), scales_to = attn_out(scale);
    if (rows * dim > 0)
        (void)attn_quantise(rows, dim, &from, &to, &scales_to, NULL); /* cannot fail: libattn_io has checked sizes and types */
    *scales = scale;
    return quantised;
}

void input_rows(attention_input *input, int r, int has_dtype)
{
    const int of_scales = r == TENSOR(k) ? TENSOR(k_scale) : TENSOR(v_scale);
    const attn_archive_tensor *t = input->used[r].tensor, *scales = input->used[of_scales].tensor;
    const attn_dtype requested = has_dtype ? problem_dtype(&input->spec) : t->dtype;
    const int quantises = has_dtype && input->spec.dtype == SPEC_INT8;
    const void *numbers = t->dtype == ATTN_I8 ? input_convert(input, scales, ATTN_F32) : NULL;
    if (t->dtype == ATTN_I8 && !quantises && requested != ATTN_I8) {
        input_set(input, r, dequantise(input, t, numbers, requested), requested);
    } else if (t->dtype == ATTN_I8 || quantises) {
        const void *rows = numbers ? t->data : quantise(input, t, &numbers);
        input_set(input, r, rows, ATTN_I8);
        input_set(input, of_scales, numbers, ATTN_F32);
    } else {
        input_set_as(input, r, requested);
    }
}

/* Scales lie like the rows of k or v: one after the other, in the order of the file. */
static void lay_scales(attention_input *input, int r, int of_scales)
{
    const int64_t *rows = tensors_at(&input->tensors, r)->stride;
    attn_output *slot = tensors_slot(&input->tensors, of_scales);
    const int64_t width = r == TENSOR(k) ? input->problem.shape.dim_qk : input->problem.shape.dim_v;
    const int implied = !rows[0] && !rows[1] && !rows[2] && !rows[3];
    if (!slot->data || implied) return;
    for (int axis = 0; axis < 3 && width > 0; axis++) slot->stride[axis] = rows[axis] / width;
    slot->stride[3] = ATTN_BROADCAST;
}

void input_lay_int8(attention_input *input)
{
    lay_scales(input, TENSOR(k), TENSOR(k_scale));
    lay_scales(input, TENSOR(v), TENSOR(v_scale));
}
