/* SPDX-License-Identifier: MIT
 *
 * parts.c - helpers shared by the readers of the input: slots, memory, checks of types and shapes. */
#include "parts.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/base/tensor_view.h"
#include "testing/memory/element.h"
#include "testing/text/failure.h"

const char *shape_text(char text[SHAPE_TEXT], int rank, const int64_t *shape)
{
    size_t used = (size_t)snprintf(text, SHAPE_TEXT, "[");
    for (int k = 0; k < rank && used < SHAPE_TEXT - 24; k++)
        used += (size_t)snprintf(text + used, SHAPE_TEXT - used, "%s%" PRId64, k ? ", " : "", shape[k]);
    snprintf(text + used, SHAPE_TEXT - used, "]");
    return text;
}

void input_set(attention_input *input, int t, const void *data, attn_dtype dtype)
{
    attn_output *slot = tensors_slot(&input->tensors, t);
    slot->data = data ? (void *)(uintptr_t)data : ATTN_EMPTY; /* a file's tensor without elements */
    slot->dtype = dtype;
}

void input_set_as(attention_input *input, int t, attn_dtype dtype)
{
    input_set(input, t, input_convert(input, input->used[t].tensor, dtype), dtype);
}

void *input_alloc(attention_input *input, int64_t count, size_t size)
{
    return input->owned[input->owned_count++] = need_memory(count, size);
}

/* ---- checks of a tensor ---- */

attn_status input_mismatch(const input_tensor *t, const input_tensor *other, attn_error *error, const char *format, int64_t a,
                           int64_t b)
{
    char reason[100], one_text[SHAPE_TEXT], other_text[SHAPE_TEXT];
    snprintf(reason, sizeof reason, format, a, b);
    return failure(error, ATTN_ERR_SHAPE, "%.60s: tensor '%.30s' %.60s does not fit '%.30s' %.60s: %s", t->path, t->tensor->name,
                   shape_text(one_text, t->tensor->rank, t->tensor->shape), other->tensor->name,
                   shape_text(other_text, other->tensor->rank, other->tensor->shape), reason);
}

static int is_float(attn_dtype dtype) { return dtype >= ATTN_F32 && dtype <= ATTN_BF16; }

attn_status input_check_type(const input_tensor *t, int fits, const char *expected, attn_error *error)
{
    if (fits) return ATTN_OK;
    return failure(error, ATTN_ERR_ARGUMENT, "%.80s: tensor '%.40s' is %s; expected %s", t->path, t->tensor->name,
                   attn_dtype_name(t->tensor->dtype), expected);
}

attn_status input_check_float(const input_tensor *t, attn_error *error)
{
    return input_check_type(t, is_float(t->tensor->dtype), "f32, f64, f16 or bf16", error);
}

const void *input_convert(attention_input *input, const attn_archive_tensor *t, attn_dtype dtype)
{
    size_t from = attn_dtype_size(t->dtype), to = attn_dtype_size(dtype);
    if (t->dtype == dtype) return t->data;
    int64_t count = (int64_t)(t->bytes / from);
    char *copy = input_alloc(input, count, to);
    for (int64_t k = 0; k < count; k++) element_write(dtype, copy + (size_t)k * to, tensor_view_number(t, k));
    return copy;
}

attn_status input_check_shape(const input_tensor *t, int rank, const int64_t *required, attn_error *error)
{
    char actual_text[SHAPE_TEXT], expected_text[SHAPE_TEXT];
    if (t->tensor->rank == rank && memcmp(t->tensor->shape, required, (size_t)rank * sizeof *required) == 0)
        return input_check_float(t, error);
    return failure(error, ATTN_ERR_SHAPE, "%.60s: tensor '%.30s' %.60s: expected %.60s", t->path, t->tensor->name,
                   shape_text(actual_text, t->tensor->rank, t->tensor->shape), shape_text(expected_text, rank, required));
}

attn_dtype input_compute_dtype(const attention_input *input)
{
    return problem_dtype(&input->spec) == ATTN_F64 ? ATTN_F64 : ATTN_F32;
}

int input_integer(const attn_archive_tensor *t, int64_t k, int64_t *value)
{
    switch (t->dtype) {
    case ATTN_I64:
        *value = ((const int64_t *)t->data)[k];
        return 1;
    case ATTN_U64:
        *value = (int64_t)((const uint64_t *)t->data)[k];
        return *value >= 0;
    default: /* up to 32 bits: a double holds them */
        *value = (int64_t)tensor_view_number(t, k);
        return 1;
    }
}
