/* SPDX-License-Identifier: MIT
 *
 * output.c - the tensors that `attn layer` writes. */
#include <stdio.h>
#include <string.h>

#include "layer.h"
#include "testing/problem/tensors.h"
#include "testing/text/failure.h"

attn_status layer_add(layer_work *w, const char *name, int rank, const int64_t *shape, void *to, attn_error *error)
{
    return attn_archive_allocate(w->out, name, w->x->dtype, rank, shape, to, error);
}

/* Allocates a requested output under this name; it may have no elements. */
static attn_status place(layer_work *w, const char *name, int rank, const int64_t *shape, attn_output *slot, attn_error *error)
{
    attn_status status = layer_add(w, name, rank, shape, &slot->data, error);
    if (status == ATTN_OK && !slot->data) slot->data = ATTN_EMPTY;
    return status;
}

static attn_status add_like(layer_work *w, const char *name, const attn_archive_tensor *t, int64_t width, attn_output *to,
                            attn_error *error)
{
    int64_t shape[ATTN_MAX_RANK];
    memcpy(shape, t->shape, sizeof shape);
    shape[t->rank - 1] = width;
    return place(w, name, t->rank, shape, to, error);
}

/* Gradients of the options, in their shapes: reduced where the options broadcast. */
static attn_status add_option_gradients(layer_work *w, attn_error *error)
{
    attn_status status = ATTN_OK;
    for (int t = 0; t < TENSORS && status == ATTN_OK; t++) {
        const int primal = tensors_about(t)->gradient_of;
        if (primal < 0 || tensors_about(t)->role[ATTN_BACKWARD] != ATTN_ROLE_OUTPUT || !tensors_has(&w->tensors, primal)) continue;
        const attn_archive_tensor *like = layer_find_option(w, primal);
        status = place(w, tensors_file_name(t), like->rank, like->shape, tensors_slot(&w->tensors, t), error);
    }
    return status;
}

static attn_status add_input_gradient(layer_work *w, const attn_archive_tensor *input, attn_output *to, attn_error *error)
{
    char name[16];
    (void)snprintf(name, sizeof name, "d%s", input->name);
    return add_like(w, name, input, layer_width(input), to, error);
}

static attn_status add_gradients(layer_work *w, attn_error *error)
{
    const attn_archive_tensor *dy;
    attn_status status = layer_find_rows(w, "dy", w->x->rank, &dy, error);
    if (status == ATTN_OK && (dy->shape[dy->rank - 2] != w->x->shape[w->x->rank - 2] || layer_width(dy) != w->width))
        status = failure(error, ATTN_ERR_SHAPE, "tensor 'dy' does not have the shape of y, %lld tokens of %lld channels",
                         (long long)w->x->shape[w->x->rank - 2], (long long)w->width);
    if (status == ATTN_OK) w->args.grad_output.data = dy->data ? dy->data : ATTN_EMPTY;
    if (status == ATTN_OK) status = add_input_gradient(w, w->x, &w->args.grad_query, error);
    if (status == ATTN_OK && w->context) status = add_input_gradient(w, w->context, &w->args.grad_key, error);
    if (status == ATTN_OK && w->value) status = add_input_gradient(w, w->value, &w->args.grad_value, error);
    if (status == ATTN_OK) status = add_option_gradients(w, error);
    return status == ATTN_OK ? w->kind->add_gradients(w, error) : status;
}

attn_status layer_add_outputs(layer_work *w, attn_error *error)
{
    const layer_settings *s = w->settings;
    const int64_t pairs[4] = {w->batch, w->heads, w->len_q, w->len_kv}, mean[3] = {w->batch, w->len_q, w->len_kv + w->extra};
    const int single = w->x->rank == 2 && !w->tensors.cu_seqlens_q.data; /* packed sequences are a batch of weights */
    attn_status status = attn_archive_create(&w->out, error);
    if (status == ATTN_OK) status = add_like(w, "y", w->x, w->width, &w->args.output, error);
    if (status == ATTN_OK && s->weights) status = place(w, "weights", 4 - single, pairs + single, &w->tensors.weights, error);
    if (status == ATTN_OK && s->weights_mean)
        status = place(w, "weights_mean", 3 - single, mean + single, &w->args.weights_mean, error);
    return status == ATTN_OK && s->backward ? add_gradients(w, error) : status;
}
