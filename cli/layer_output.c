/* SPDX-License-Identifier: MIT
 *
 * layer_output.c - the tensors that `attn layer` writes. */
#include <string.h>

#include "failure.h"
#include "layer.h"

attn_status layer_add(layer_work *w, const char *name, int rank, const int64_t *shape, void *to, attn_error *error)
{
    return attn_tensors_allocate(w->out, name, w->x->dtype, rank, shape, to, error);
}

static attn_status add_like(layer_work *w, const char *name, const attn_tensor *t, int64_t width, void *to, attn_error *error)
{
    int64_t shape[ATTN_MAX_RANK];
    memcpy(shape, t->shape, sizeof shape);
    shape[t->rank - 1] = width;
    return layer_add(w, name, t->rank, shape, to, error);
}

/* Of the options: as large as they are, reduced where they broadcast. */
static attn_status add_option_gradients(layer_work *w, attn_error *error)
{
    attn_gradients *wanted = &w->attention.gradients;
    attn_args *a = &w->attention_args;
    const struct {
        const char *name, *gradient;
        const void *data;
        int *wanted;
        void *to;
    } all[] = {{"bias", "dbias", a->bias, &wanted->bias, &a->grad_bias},
               {"slopes", "dslopes", a->slopes, &wanted->slopes, &a->grad_slopes},
               {"sink", "dsink", a->sink, &wanted->sink, &a->grad_sink},
               {"scale", "dscale", a->scale, &wanted->scale, &a->grad_scale},
               {"w", "dw", a->w, &wanted->w, &a->grad_w},
               {"bias_table", "dbias_table", a->bias_table, &wanted->bias_table, &a->grad_bias_table},
               {"relative_keys", "drelative_keys", a->relative_keys, &wanted->relative, &a->grad_relative_keys},
               {"relative_values", "drelative_values", a->relative_values, &wanted->relative, &a->grad_relative_values},
               {"relative_u", "drelative_u", a->relative_u, &wanted->relative, &a->grad_relative_u},
               {"relative_v", "drelative_v", a->relative_v, &wanted->relative, &a->grad_relative_v}};
    attn_status status = ATTN_OK;
    for (size_t i = 0; i < sizeof all / sizeof *all && status == ATTN_OK; i++) {
        const attn_tensor *t = attn_tensors_find(w->file, all[i].name);
        if (!all[i].data) continue;
        *all[i].wanted = 1;
        status = layer_add(w, all[i].gradient, t->rank, t->shape, all[i].to, error);
    }
    return status;
}

static attn_status add_gradients(layer_work *w, attn_error *error)
{
    const attn_tensor *dy;
    attn_status status = layer_find_rows(w, "dy", w->x->rank, &dy, error);
    if (status == ATTN_OK && (dy->shape[dy->rank - 2] != w->x->shape[w->x->rank - 2] || layer_width(dy) != w->width))
        status = failure(error, ATTN_ERR_SHAPE, "tensor 'dy' has another shape than y, %lld tokens of %lld channels",
                         (long long)w->x->shape[w->x->rank - 2], (long long)w->width);
    if (status == ATTN_OK) w->args.grad_output.data = (void *)(uintptr_t)dy->data;
    if (status == ATTN_OK) status = add_like(w, "dx", w->x, layer_width(w->x), &w->args.grad_query.data, error);
    if (status == ATTN_OK && w->context)
        status = add_like(w, "dcontext", w->context, layer_width(w->context), &w->args.grad_key.data, error);
    if (status == ATTN_OK) status = add_option_gradients(w, error);
    return status == ATTN_OK ? w->kind->add_gradients(w, error) : status;
}

attn_status layer_add_outputs(layer_work *w, attn_error *error)
{
    const layer_settings *s = w->settings;
    const int64_t pairs[4] = {w->batch, w->heads, w->len_q, w->len_kv}, mean[3] = {w->batch, w->len_q, w->len_kv + w->extra};
    const int single = w->x->rank == 2 && !w->attention.mask.packed; /* packed sequences are a batch of weights */
    attn_status status = attn_tensors_create(&w->out, error);
    if (status == ATTN_OK) status = add_like(w, "y", w->x, w->width, &w->args.output.data, error);
    if (status == ATTN_OK && s->weights)
        status = layer_add(w, "weights", 4 - single, pairs + single, &w->attention_args.weights, error);
    if (status == ATTN_OK && s->weights_mean)
        status = layer_add(w, "weights_mean", 3 - single, mean + single, &w->args.weights_mean, error);
    return status == ATTN_OK && s->backward ? add_gradients(w, error) : status;
}
