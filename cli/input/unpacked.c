/* SPDX-License-Identifier: MIT
 *
 * unpacked.c - packed sequences for commands that read weights by queries: each becomes a batch entry, as long as the longest, with
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
    const input_tensor *const rows[] = {&input->used[TENSOR(k)], &input->used[TENSOR(v)]},
                              *lengths = &input->used[TENSOR(lengths_q)];
    if (!lengths->tensor) lengths = &input->used[TENSOR(lengths_kv)];
    if (lengths->tensor)
        return failure(error, ATTN_ERR_ARGUMENT, "%.60s: tensor '%.30s': packed sequences take their lengths from cu_seqlens",
                       lengths->path, lengths->tensor->name);
    for (size_t n = 0; n < sizeof rows / sizeof *rows; n++)
        if (rows[n]->tensor && rows[n]->tensor->dtype == ATTN_I8)
            return failure(error, ATTN_ERR_UNSUPPORTED, "%.60s: tensor '%.30s': packed %s of i8 are for attn run only",
                           rows[n]->path, rows[n]->tensor->name, n ? "values" : "keys");
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
    const struct {
        attn_input *tensor;
        int64_t channels;
    } rows[] = {{&input->tensors.q, s->dim_qk},
                {&input->tensors.k, problem_dim_k(&input->problem)},
                {&input->tensors.v, s->dim_v},
                {&input->tensors.grad_o, s->dim_v}};
    for (size_t n = 0; n < sizeof rows / sizeof *rows; n++) {
        attn_input *t = rows[n].tensor;
        const size_t row = (size_t)rows[n].channels * attn_dtype_size(t->dtype);
        if (!t->data || !row) continue;
        t->data = t == &input->tensors.k || t == &input->tensors.v
                      ? unpack(input, t->data, input->begins_kv, s->heads_kv, input->total_kv, s->len_kv, row)
                      : unpack(input, t->data, input->begins_q, s->heads_q, input->total_q, s->len_q, row);
    }
}
