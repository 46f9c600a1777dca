/* SPDX-License-Identifier: MIT
 *
 * weights.c - the weights of some queries, computed from q and k: memory for these queries only. */
#include "weights.h"

#include <stdlib.h>

#include "testing/text/failure.h"

attn_status weights_begin(weight_reader *reader, const attention_input *input, int64_t rows, const common_settings *common,
                          attn_error *error)
{
    *reader = (weight_reader){.rows = rows};
    attn_problem whole = input->problem;
    whole.outputs = (attn_outputs){0};
    whole.dropout.probability = 0; /* the weights are taken before dropout */
    attn_tensors all = input->tensors, tensors;
    for (int t = 0; t < TENSORS; t++)
        if (t != TENSOR(o) && tensors_writes(&all, whole.op, t)) *tensors_slot(&all, t) = (attn_output){0};
    slicer_init(&reader->slicer, &whole, &all);
    const attn_problem part = slicer_problem(&reader->slicer, rows, &tensors);
    const attn_shape *shape = &part.shape;
    tensors.weights.data = ATTN_LATER; /* dense */
    if (all.q.dtype == ATTN_F64) reader->wide = need_memory(shape->heads_q * rows * shape->len_kv, sizeof *reader->wide);
    return computation_begin(&reader->computation, &part, &tensors, common, error);
}

attn_status weights_read(weight_reader *reader, int64_t b, int64_t first, float *weights, attn_error *error)
{
    const attn_shape *shape = &reader->slicer.whole.shape;
    slice now;
    slicer_take(&reader->slicer, b, first, reader->rows, &now);
    now.tensors.weights = attn_out(reader->wide ? (void *)reader->wide : weights);
    attn_status status = computation_run(&reader->computation, &now.tensors, error);
    const int64_t count = shape->heads_q * reader->rows * shape->len_kv;
    for (int64_t k = 0; reader->wide && status == ATTN_OK && k < count; k++) weights[k] = (float)reader->wide[k];
    return status;
}

void weights_end(weight_reader *reader)
{
    computation_end(&reader->computation);
    free(reader->wide);
}
