/* SPDX-License-Identifier: MIT
 * shared_bias.c - see shared_bias.h. */
#include "shared_bias.h"

#include <stdlib.h>

#include "testing/memory/element.h"
#include "testing/text/failure.h"

/* Elements of the bias in the file, of the rows that are used. */
static int64_t elements_of(const attn_archive_tensor *bias) { return (int64_t)(bias->bytes / attn_dtype_size(bias->dtype)); }

static int64_t entries_of(const attn_archive_tensor *bias)
{
    int64_t entries = 1;
    for (int axis = 0; axis < bias->rank - 3; axis++) entries *= bias->shape[axis];
    return entries;
}

/* Entries of the bias in the library: one, or all. */
static int64_t expanded_entries(const attention_input *input) { return input->spec.bias_one & 1 ? 1 : input->problem.shape.batch; }

int shared_bias_has(const attention_input *input, const attn_tensors *tensors, int t)
{
    const attn_archive_tensor *bias = input->used[TENSOR(bias)].tensor;
    return bias && tensors_writes(tensors, input->problem.op, t) && tensors_about(t)->gradient_of == TENSOR(bias) &&
           entries_of(bias) != expanded_entries(input);
}

void *shared_bias_allocate(const attention_input *input, attn_dtype compute)
{
    const attn_archive_tensor *bias = input->used[TENSOR(bias)].tensor;
    const int64_t entries = entries_of(bias), each = entries ? elements_of(bias) / entries : 0;
    return need_memory(expanded_entries(input) * each, attn_dtype_size(compute));
}

void shared_bias_sum(const attention_input *input, attn_dtype compute, const void *gradient, attn_dtype dtype, void *to)
{
    const attn_archive_tensor *bias = input->used[TENSOR(bias)].tensor;
    const int leading = bias->rank > 3 ? bias->rank - 3 : 0;
    const int64_t count = elements_of(bias), entries = entries_of(bias), each = entries ? count / entries : 0;
    double *sum = need_memory(count, sizeof *sum);
    for (int64_t k = 0; k < count; k++) sum[k] = 0;
    for (int64_t b = 0; b < input->problem.shape.batch; b++) {
        const int64_t entry = input_entry_of(input, leading, bias->shape, b);
        for (int64_t k = 0; k < each; k++)
            sum[entry * each + k] +=
                element_read(compute, (const char *)gradient + (size_t)(b * each + k) * attn_dtype_size(compute));
    }
    for (int64_t k = 0; k < count; k++) element_write(dtype, (char *)to + (size_t)k * attn_dtype_size(dtype), sum[k]);
    free(sum);
}
