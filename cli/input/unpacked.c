/* SPDX-License-Identifier: MIT
 *
 * unpacked.c - packed sequences for commands that need only the weights: each becomes a batch entry, as long as the longest, with
 * its own length. */
#include <string.h>

#include "parts.h"
#include "testing/text/failure.h"

/* The lengths of sequences that begin at `begins`. */
static const int64_t *lengths_of(attention_input *input, const int64_t *begins)
{
    const int64_t batch = input->spec.shape.batch;
    int64_t *lengths = input_alloc(input, batch, sizeof *lengths);
    for (int64_t b = 0; b < batch; b++) lengths[b] = begins[b + 1] - begins[b];
    return lengths;
}

attn_status input_set_unpacked(attention_input *input, attn_error *error)
{
    const input_tensor *k = &input->used[TENSOR(k)], *lengths = &input->used[TENSOR(lengths_q)];
    if (!lengths->tensor) lengths = &input->used[TENSOR(lengths_kv)];
    if (lengths->tensor)
        return failure(error, ATTN_ERR_ARGUMENT, "%.60s: tensor '%.30s': packed sequences take their lengths from cu_seqlens",
                       lengths->path, lengths->tensor->name);
    if (k->tensor->dtype == ATTN_I8)
        return failure(error, ATTN_ERR_UNSUPPORTED, "%.60s: tensor '%.30s': packed keys of i8 are for attn run only", k->path,
                       k->tensor->name);
    input->begins_q = input->tensors.cu_seqlens_q.data;
    input->begins_kv = input->tensors.cu_seqlens_kv.data;
    input->tensors.cu_seqlens_q = input->tensors.cu_seqlens_kv = (attn_input){0};
    input_set(input, TENSOR(lengths_q), lengths_of(input, input->begins_q), ATTN_I64);
    input_set(input, TENSOR(lengths_kv), lengths_of(input, input->begins_kv), ATTN_I64);
    input->spec.packed = 0;
    input->spec.lengths = SPEC_LENGTHS_BOTH;
    return ATTN_OK;
}

/* [head, token, channel] to [batch, head, longest, channel], or both with token before head. */
static const void *unpack(attention_input *input, const void *packed, const int64_t *begins, int64_t heads, int64_t total,
                          int64_t longest, size_t row)
{
    const int64_t batch = input->spec.shape.batch;
    const int token_first = input->spec.order == SPEC_BSHD;
    char *unpacked = input_alloc(input, batch * heads * longest, row);
    for (int64_t b = 0; b < batch; b++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t i = 0; i < begins[b + 1] - begins[b]; i++) {
                const int64_t from = token_first ? (begins[b] + i) * heads + h : h * total + begins[b] + i;
                const int64_t to = token_first ? (b * longest + i) * heads + h : (b * heads + h) * longest + i;
                memcpy(unpacked + (size_t)to * row, (const char *)packed + (size_t)from * row, row);
            }
    return unpacked;
}

void input_unpack(attention_input *input)
{
    const attn_shape *s = &input->spec.shape;
    const size_t row_q = (size_t)s->dim_qk * attn_dtype_size(input->tensors.q.dtype);
    const size_t row_k = (size_t)problem_dim_k(&input->problem) * attn_dtype_size(input->tensors.k.dtype);
    input->tensors.q.data = unpack(input, input->tensors.q.data, input->begins_q, s->heads_q, input->total_q, s->len_q, row_q);
    input->tensors.k.data = unpack(input, input->tensors.k.data, input->begins_kv, s->heads_kv, input->total_kv, s->len_kv, row_k);
}
