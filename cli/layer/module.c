/* SPDX-License-Identifier: MIT
 *
 * module.c - a decoder and what it attends to, with weights under the names of notebooks. */
#include <string.h>

#include "layer.h"
#include "testing/text/failure.h"

/* A weight of this shape, after leading axes of size 1. */
static attn_status place(const layer_work *w, weight_role role, int rank, const int64_t *shape, attn_output *slot,
                         attn_error *error)
{
    attn_archive_tensor plain = *w->match.found[role];
    const char *data = NULL;
    while (plain.rank > rank && plain.shape[0] == 1)
        memmove(plain.shape, plain.shape + 1, (size_t)--plain.rank * sizeof *plain.shape);
    attn_status status = layer_check_weight(&plain, rank, shape, error);
    if (status == ATTN_OK) status = layer_weight_numbers(w, w->match.found[role], &data, error);
    if (status == ATTN_OK) *slot = attn_saved(data);
    return status;
}

/* The bias of the hidden channels is the sum of those of their parts. */
static attn_status place_bias(layer_work *w, attn_error *error)
{
    static const weight_role roles[] = {WEIGHT_BIAS_STATE, WEIGHT_BIAS_MEMORY, WEIGHT_BIAS_BOTH};
    const int64_t hidden = w->module.dim_hidden;
    void *sum = NULL;
    for (int n = 0; n < 3; n++) {
        attn_output one;
        if (!w->match.found[roles[n]]) continue;
        attn_status status = place(w, roles[n], 1, &hidden, &one, error);
        if (status == ATTN_OK && !sum)
            status = attn_archive_allocate(w->own, "sum of the biases", w->x->dtype, 1, &hidden, &sum, error);
        if (status != ATTN_OK) return status;
        for (int64_t i = 0; i < hidden; i++)
            if (w->x->dtype == ATTN_F64) ((double *)sum)[i] += ((const double *)one.data)[i];
            else ((float *)sum)[i] += ((const float *)one.data)[i];
    }
    if (sum) w->module_weights.bias = attn_saved(sum);
    return ATTN_OK;
}

/* [state memory] as one matrix becomes two. */
static attn_status split(layer_work *w, attn_error *error)
{
    const attn_seq2seq *m = &w->module;
    const int64_t shape[2] = {m->dim_hidden, m->dim_state + m->dim_memory}, widths[2] = {m->dim_state, m->dim_memory};
    const size_t size = attn_dtype_size(w->x->dtype);
    attn_output whole, *const slots[2] = {&w->module_weights.state, &w->module_weights.memory};
    attn_status status = place(w, WEIGHT_BOTH, 2, shape, &whole, error);
    for (int n = 0; n < 2 && status == ATTN_OK; n++) {
        const int64_t part[2] = {m->dim_hidden, widths[n]};
        void *copy;
        status =
            attn_archive_allocate(w->own, n ? "columns of the memory" : "columns of the state", w->x->dtype, 2, part, &copy, error);
        for (int64_t i = 0; status == ATTN_OK && i < m->dim_hidden; i++)
            memcpy((char *)copy + (size_t)(i * widths[n]) * size,
                   (const char *)whole.data + (size_t)(i * shape[1] + (n ? widths[0] : 0)) * size, (size_t)widths[n] * size);
        if (status == ATTN_OK) *slots[n] = attn_saved(copy);
    }
    return status;
}

attn_status layer_bind_module(layer_work *w, attn_error *error)
{
    attn_seq2seq *m = &w->module;
    attn_seq2seq_weights *to = &w->module_weights;
    const attn_archive_tensor *const *found = w->match.found;
    const int64_t general[2] = {m->dim_state, m->dim_memory}, combined = m->dim_memory + m->dim_state;
    attn_status status = ATTN_OK;
    *to = (attn_seq2seq_weights){.struct_size = sizeof *to};
    if (m->score == ATTN_SCORE_GENERAL) return place(w, WEIGHT_SCORE, 2, general, &to->w, error);
    const attn_archive_tensor *first = found[WEIGHT_STATE] ? found[WEIGHT_STATE] : found[WEIGHT_BOTH];
    if (!first || !found[WEIGHT_SCORE] || (found[WEIGHT_STATE] && !found[WEIGHT_MEMORY]))
        return failure(error, ATTN_ERR_ARGUMENT, "an additive layer has the weights w, and state and memory or both");
    m->dim_hidden = first->rank == 2 ? first->shape[0] : 1;
    const int64_t state[2] = {m->dim_hidden, m->dim_state}, memory[2] = {m->dim_hidden, m->dim_memory};
    status = place(w, WEIGHT_SCORE, 1, &m->dim_hidden, &to->w, error);
    if (status == ATTN_OK && found[WEIGHT_STATE]) status = place(w, WEIGHT_STATE, 2, state, &to->state, error);
    if (status == ATTN_OK && found[WEIGHT_STATE]) status = place(w, WEIGHT_MEMORY, 2, memory, &to->memory, error);
    if (status == ATTN_OK && !found[WEIGHT_STATE]) status = split(w, error);
    if (status == ATTN_OK) status = place_bias(w, error);
    if (status != ATTN_OK || !found[WEIGHT_COMBINE]) return status;
    m->dim_output = found[WEIGHT_COMBINE]->rank == 2 ? found[WEIGHT_COMBINE]->shape[0] : 1;
    const int64_t combine[2] = {m->dim_output, combined};
    return place(w, WEIGHT_COMBINE, 2, combine, &to->combine, error);
}
