/* SPDX-License-Identifier: MIT
 *
 * input_whole.c - keys and values as whole numbers of 8 bits: read with their scales, or made of what the file has. */
#include <string.h>

#include "attn/cache.h"
#include "check/element.h"
#include "failure.h"
#include "input_parts.h"

/* A scale for each row of k or v: the same axes but the last, which may be there with size 1. */
static attn_status check_scales(const input_tensor *scales, const input_tensor *rows, attn_error *error)
{
    const attn_tensor *s = scales->tensor, *t = rows->tensor;
    const int same = s->rank == t->rank || s->rank == t->rank - 1;
    char mine[SHAPE_TEXT], expected[SHAPE_TEXT];
    attn_status status = input_check_float(scales, error);
    if (status != ATTN_OK) return status;
    if (same && memcmp(s->shape, t->shape, (size_t)(t->rank - 1) * sizeof *t->shape) == 0 &&
        (s->rank < t->rank || s->shape[t->rank - 1] == 1))
        return ATTN_OK;
    return failure(error, ATTN_ERR_SHAPE, "%.60s: tensor '%.30s' %.60s: expected a number for each row of '%.30s', %.60s",
                   scales->path, s->name, shape_text(mine, s->rank, s->shape), t->name,
                   shape_text(expected, t->rank - 1, t->shape));
}

attn_status input_check_whole(const attention_input *input, tensor_role r, attn_error *error)
{
    const input_tensor *rows = &input->used[r], *scales = &input->used[r == ROLE_K ? ROLE_K_SCALE : ROLE_V_SCALE];
    const char *name = r == ROLE_K ? "k" : "v";
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

/* i8 as numbers of a float type. */
static const void *dequantise(attention_input *input, const attn_tensor *t, const float *scales, attn_dtype dtype)
{
    const int64_t dim = t->shape[t->rank - 1], count = (int64_t)t->bytes, size = (int64_t)attn_dtype_size(dtype);
    char *out = input_own(input, count, (size_t)size);
    for (int64_t k = 0; k < count; k++)
        element_write(dtype, out + k * size, (double)scales[k / dim] * (double)((const int8_t *)t->data)[k]);
    return out;
}

static const void *quantise(attention_input *input, const attn_tensor *t, const void **scales)
{
    const int64_t dim = t->shape[t->rank - 1], rows = dim ? (int64_t)(t->bytes / attn_dtype_size(t->dtype)) / dim : 0;
    int8_t *whole = input_own(input, rows * dim, 1);
    float *scale = input_own(input, rows, sizeof *scale);
    (void)attn_quantise(rows, dim, t->data, t->dtype, dim, whole, scale, NULL); /* sizes and types are those of a sound file */
    *scales = scale;
    return whole;
}

/* Rows of k or v, one behind the other, in the order of the file: so are their scales. */
static void lay_scales(const attn_layout *rows, int64_t width, attn_layout *scales)
{
    const int implied = !rows->stride[0] && !rows->stride[1] && !rows->stride[2] && !rows->stride[3];
    scales->dtype = ATTN_F32;
    for (int axis = 0; axis < 3 && !implied && width > 0; axis++) scales->stride[axis] = rows->stride[axis] / width;
    if (!implied) scales->stride[3] = ATTN_BROADCAST;
}

const void *input_rows(attention_input *input, tensor_role r, int has_dtype, attn_dtype *dtype)
{
    const attn_tensor *t = input->used[r].tensor, *scales = input->used[r == ROLE_K ? ROLE_K_SCALE : ROLE_V_SCALE].tensor;
    const void **to = r == ROLE_K ? &input->args.k_scale : &input->args.v_scale;
    const attn_dtype wanted = has_dtype ? problem_dtype(&input->spec) : t->dtype;
    const int whole = has_dtype && input->spec.dtype == SPEC_INT8;
    *dtype = whole ? ATTN_I8 : wanted;
    if (t->dtype == ATTN_I8) {
        const void *numbers = input_convert(input, scales, ATTN_F32);
        if (*dtype != ATTN_I8) return dequantise(input, t, numbers, *dtype);
        *to = numbers;
        return t->data;
    }
    return whole ? quantise(input, t, to) : input_convert(input, t, wanted);
}

void input_lay_whole(attention_input *input)
{
    attn_problem *p = &input->problem;
    if (p->k.dtype == ATTN_I8) lay_scales(&p->k, p->shape.dim_qk, &p->quantised.k_scale);
    if (p->v.dtype == ATTN_I8) lay_scales(&p->v, p->shape.dim_v, &p->quantised.v_scale);
}
