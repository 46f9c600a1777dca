/* SPDX-License-Identifier: MIT
 *
 * weights.c - the weights of some queries, computed from q and k: memory for these queries only; or those that the file has. */
#include "weights.h"

#include <math.h>
#include <stdlib.h>

#include "cli/base/tensor_view.h"
#include "cli/input/labels.h"
#include "testing/text/failure.h"

/* ---- given weights ---- */

static void infer_mask(weight_reader *reader)
{
    const attention_input *input = reader->input;
    const attn_shape *s = &input->problem.shape;
    int64_t k = 0;
    reader->given_keys = need_memory(s->batch, sizeof *reader->given_keys);
    reader->causal = labels_aligned(input, 0, &reader->offset);
    for (int64_t b = 0; b < s->batch; b++) {
        int64_t last = 0;
        for (int64_t i = 0; i < s->heads_q * s->len_q; i++)
            for (int64_t j = 0; j < s->len_kv; j++) {
                if (tensor_view_number(input->weights, k++) == 0) continue;
                if (j > last) last = j;
                if (j > i % s->len_q + reader->offset) reader->causal = 0;
            }
        reader->given_keys[b] = last ? last + 1 : s->len_kv;
    }
}

int weights_are_distributions(const attention_input *input)
{
    const attn_problem *p = &input->problem;
    const int64_t rows = p->shape.batch * p->shape.heads_q * p->shape.len_q;
    if (!input->weights) return p->score.normaliser == ATTN_NORMALISER_SOFTMAX && !input->tensors.sink.data;
    for (int64_t i = 0, k = 0; i < rows; i++) {
        double sum = 0;
        for (int64_t j = 0; j < p->shape.len_kv; j++) sum += tensor_view_number(input->weights, k++);
        /* rounded to bf16, and in f16 the smallest are lost */
        if (sum != 0 && !(fabs(sum - 1) <= 0x1p-8 + 0x1p-24 * (double)p->shape.len_kv)) return 0;
    }
    return 1;
}

static void read_given(const weight_reader *reader, int64_t b, int64_t first, float *weights)
{
    const attn_shape *s = &reader->input->problem.shape;
    const int64_t count = reader->rows * s->len_kv;
    for (int64_t h = 0; h < s->heads_q; h++) {
        const int64_t from = ((b * s->heads_q + h) * s->len_q + first) * s->len_kv;
        for (int64_t k = 0; k < count; k++) *weights++ = (float)tensor_view_number(reader->input->weights, from + k);
    }
}

/* ---- computed ones ---- */

static attn_status begin(weight_reader *reader, const attention_input *input, int64_t rows, int visible,
                         const common_settings *common, attn_error *error)
{
    *reader = (weight_reader){.input = input, .rows = rows};
    if (input->weights && visible) infer_mask(reader);
    if (input->weights) return ATTN_OK;
    attn_problem whole = input->problem;
    whole.outputs = (attn_outputs){.scores_stage = ATTN_STAGE_BIASED};
    whole.dropout.probability = 0; /* the weights are taken before dropout */
    whole.shape.dim_v = 0;         /* and need no values */
    attn_tensors all = input->tensors, tensors;
    for (int t = 0; t < TENSORS; t++)
        if (t != TENSOR(o) && tensors_writes(&all, whole.op, t)) *tensors_slot(&all, t) = (attn_output){0};
    slicer_init(&reader->slicer, &whole, &all);
    const attn_problem part = slicer_problem(&reader->slicer, rows, &tensors);
    const attn_shape *shape = &part.shape;
    const int64_t count = shape->heads_q * rows * shape->len_kv;
    tensors.weights.data = ATTN_LATER; /* dense */
    if (visible) tensors.scores.data = ATTN_LATER;
    if (all.q.dtype == ATTN_F64) reader->wide = need_memory(count, sizeof *reader->wide);
    if (visible) reader->scores = need_memory(count, all.q.dtype == ATTN_F64 ? sizeof(double) : sizeof(float));
    return computation_begin(&reader->computation, &part, &tensors, common, error);
}

attn_status weights_begin(weight_reader *reader, const attention_input *input, int64_t rows, const common_settings *common,
                          attn_error *error)
{
    return begin(reader, input, rows, 0, common, error);
}

attn_status weights_begin_visible(weight_reader *reader, const attention_input *input, int64_t rows, const common_settings *common,
                                  attn_error *error)
{
    return begin(reader, input, rows, 1, common, error);
}

attn_status weights_read(weight_reader *reader, int64_t b, int64_t first, float *weights, attn_error *error)
{
    const attn_shape *shape = &reader->slicer.whole.shape;
    slice now;
    if (reader->input->weights) {
        read_given(reader, b, first, weights);
        return ATTN_OK;
    }
    slicer_take(&reader->slicer, b, first, reader->rows, &now);
    now.tensors.weights = attn_out(reader->wide ? (void *)reader->wide : weights);
    if (reader->scores) now.tensors.scores = attn_out(reader->scores);
    attn_status status = computation_run(&reader->computation, &now.tensors, error);
    const int64_t count = shape->heads_q * reader->rows * shape->len_kv;
    for (int64_t k = 0; reader->wide && status == ATTN_OK && k < count; k++) weights[k] = (float)reader->wide[k];
    return status;
}

static int is_visible(const weight_reader *reader, int64_t b, int64_t place, int64_t j, int64_t k)
{
    if (reader->input->weights) return j < reader->given_keys[b] && !(reader->causal && j > place);
    return (reader->wide ? ((const double *)reader->scores)[k] : (double)((const float *)reader->scores)[k]) != -INFINITY;
}

void weights_visible(const weight_reader *reader, int64_t b, int64_t first, uint8_t *visible)
{
    const attn_shape *s = &reader->input->problem.shape;
    for (int64_t n = 0, k = 0; n < s->heads_q * reader->rows; n++)
        for (int64_t j = 0; j < s->len_kv; j++, k++)
            visible[k] = (uint8_t)is_visible(reader, b, first + n % reader->rows + reader->offset, j, k);
}

void weights_end(weight_reader *reader)
{
    computation_end(&reader->computation);
    free(reader->wide);
    free(reader->scores);
    free(reader->given_keys);
}
