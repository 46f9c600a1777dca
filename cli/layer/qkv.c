/* SPDX-License-Identifier: MIT
 *
 * qkv.c - `attn layer --qkv`: the queries, keys and values that the layer's attention reads, [head, token, channel], with the
 * tensors of options beside them, so that the output is an input of the commands that work on q, k and v.
 *
 * A cache has the keys and values of a layer, projected and rotated; queries are the keys of a layer that projects keys so. */
#include <stdlib.h>
#include <string.h>

#include "cli/input/needed.h"
#include "layer.h"
#include "testing/problem/tensors.h"
#include "testing/text/failure.h"

attn_status layer_check_qkv(const layer_work *w, attn_error *error)
{
    if (!w->kind->takes_scores)
        return failure(error, ATTN_ERR_ARGUMENT, "--qkv is for multi-head layers; the kind of this one is %s", w->kind->name);
    if (w->weights.extra_key.data)
        return failure(error, ATTN_ERR_ARGUMENT,
                       "--qkv is for layers without bias_k and bias_v: their learned key is not among those of the tokens");
    return ATTN_OK;
}

static attn_status add_heads(layer_work *w, const char *name, const attn_archive_tensor *rows, int64_t heads, int64_t dim,
                             attn_output *to, attn_error *error)
{
    const int64_t shape[4] = {rows->shape[0], heads, rows->shape[rows->rank - 2], dim};
    const int single = rows->rank == 2;
    attn_status status = layer_add(w, name, 4 - single, shape + single, &to->data, error);
    to->dtype = rows->dtype;
    if (status == ATTN_OK && !to->data) to->data = ATTN_EMPTY;
    return status;
}

/* Positions within each of the packed sequences; NULL: they are those of the rows. */
static int64_t *positions_of(const layer_work *w, const int64_t *begins, int64_t tokens)
{
    int64_t *positions = begins && w->rotates ? need_memory(tokens, sizeof *positions) : NULL;
    for (int64_t b = 0; positions && b < w->batch; b++)
        for (int64_t i = begins[b]; i < begins[b + 1]; i++) positions[i] = i - begins[b];
    return positions;
}

/* What a projection of rows to heads is, and where its results go. */
typedef struct projected {
    const void *rows;
    int64_t width; /* of a row */
    int done;      /* the rows have the heads side by side already */
    attn_output weight, bias, to;
    int64_t dim;
} projected;

/* Rows as keys and values of a layer that has these two projections and nothing else; `like` has their axes. */
static attn_status project(const layer_work *w, const attn_archive_tensor *like, const int64_t *begins, int64_t heads,
                           const projected *key, const projected *value, attn_error *error)
{
    const int64_t batch = like->rank == 3 ? like->shape[0] : 1, tokens = like->shape[like->rank - 2];
    int64_t *lengths = need_memory(batch, sizeof *lengths), *positions = positions_of(w, begins, tokens);
    const attn_layer layer = {.struct_size = sizeof layer,
                              .dtype = like->dtype,
                              .dim_model = key->width,
                              .dim_value = value->width,
                              .heads_q = heads,
                              .head_dim = key->dim,
                              .head_dim_v = value->dim,
                              .no_query = key->done,
                              .no_key = key->done,
                              .no_value = value->done,
                              .no_output = 1,
                              .rope = w->layer.rope};
    const attn_layer_weights weights = {.struct_size = sizeof weights,
                                        .query = key->weight, /* not used, but a layer has it */
                                        .key = key->weight,
                                        .key_bias = key->bias,
                                        .value = value->weight,
                                        .value_bias = value->bias};
    const attn_cache cache = {.struct_size = sizeof cache,
                              .batch = batch,
                              .heads_kv = heads,
                              .capacity = tokens,
                              .dim_qk = key->dim,
                              .dim_v = value->dim,
                              .k = key->to,
                              .v = value->to,
                              .lengths = attn_out(lengths)};
    const attn_layer_tensors args = {.struct_size = sizeof args,
                                     .batch = batch,
                                     .len_kv = tokens,
                                     .options = &w->options,
                                     .key = attn_in(key->rows),
                                     .value = attn_in(value->rows),
                                     .positions_kv.data = positions};
    const attn_status status = attn_layer_decode(&layer, &weights, &cache, &args, error);
    free(lengths);
    free(positions);
    return status;
}

/* The tensors that the layer's attention reads beside q, k and v, under their own names.  Of a mask what it means: numbers to be
 * added, or bytes, 1 = keep, with the axes that it has. */
static attn_status copy_options(layer_work *w, const attn_archive *from, attn_error *error)
{
    attn_status status = ATTN_OK;
    for (int64_t n = 0; n < attn_archive_count(from) && status == ATTN_OK; n++) {
        const attn_archive_tensor *t = attn_archive_at(from, n);
        int used = 0;
        for (int slot = 0; slot < TENSORS; slot++)
            used |= tensors_reads(&w->tensors, ATTN_FORWARD, slot) && layer_find_option(w, slot) == t;
        for (int i = 0; i < LAYER_INDICES; i++) used |= w->index_from[i] == t;
        const int masks = w->keep.tensor.name == t->name;
        const char *name = masks ? tensors_file_name(TENSOR(mask)) : t->name;
        if (masks) t = &w->keep.tensor, used = 1;
        void *to;
        if (used) status = attn_archive_allocate(w->out, name, t->dtype, t->rank, t->shape, &to, error);
        if (used && status == ATTN_OK && t->bytes) memcpy(to, t->data, t->bytes);
    }
    return status;
}

/* The value and output projections [out, in], from which `attn analyze --roles` sees whether a head copies. */
static attn_status copy_projections(layer_work *w, attn_error *error)
{
    const attn_layer *l = &w->layer;
    const attn_output *const from[2] = {&w->weights.value, &w->weights.output};
    const int64_t extent[2][3] = {{l->heads_kv, l->head_dim_v,
                                   layer_width(w->value     ? w->value
                                               : w->context ? w->context
                                                            : w->x)},
                                  {w->width, l->heads_q, l->head_dim_v}};
    const size_t size = attn_dtype_size(w->x->dtype);
    attn_status status = ATTN_OK;
    for (int n = 0; n < 2 - l->no_output && status == ATTN_OK; n++) {
        const int64_t *e = extent[n], shape[2] = {n ? e[0] : e[0] * e[1], n ? e[1] * e[2] : e[2]};
        int64_t stride[3] = {e[1] * e[2], e[2], 1};
        void *to;
        if (from[n]->stride[3]) memcpy(stride, from[n]->stride + 1, sizeof stride);
        status = layer_add(w, n ? "wo" : "wv", 2, shape, &to, error);
        for (int64_t i = 0; status == ATTN_OK && i < e[0] * e[1] * e[2]; i++) {
            const int64_t at = i / (e[1] * e[2]) * stride[0] + i / e[2] % e[1] * stride[1] + i % e[2] * stride[2];
            memcpy((char *)to + (size_t)i * size, (const char *)from[n]->data + (size_t)at * size, size);
        }
    }
    return status;
}

attn_status layer_add_qkv(layer_work *w, attn_error *error)
{
    const attn_layer *l = &w->layer;
    const attn_layer_weights *from = &w->weights;
    const attn_layer_tensors *a = &w->args; /* its inputs are normalised ones, or projected */
    const attn_archive_tensor *rows = w->context ? w->context : w->x;
    const void *const key = a->key.data ? a->key.data : a->query.data, *const value = a->value.data ? a->value.data : key;
    const int64_t dim_k = w->attention.score.dim_k ? w->attention.score.dim_k : l->head_dim;
    const int64_t key_width = l->dim_key ? l->dim_key : l->dim_model;
    projected q = {a->query.data, l->dim_model, l->no_query, from->query, from->query_bias, {0}, l->head_dim},
              k = {key, key_width, l->no_key, from->key, from->key_bias, {0}, dim_k},
              v = {value, l->dim_value ? l->dim_value : key_width, 0, from->value, from->value_bias, {0}, l->head_dim_v}, twice = q;
    int64_t count = l->heads_q * l->head_dim;
    for (int axis = 0; axis < w->x->rank - 1; axis++) count *= w->x->shape[axis];
    attn_status status = add_heads(w, "q", w->x, l->heads_q, l->head_dim, &q.to, error);
    if (status == ATTN_OK) status = add_heads(w, "k", rows, l->heads_kv, dim_k, &k.to, error);
    if (status == ATTN_OK) status = add_heads(w, "v", rows, l->heads_kv, l->head_dim_v, &v.to, error);
    if (status == ATTN_OK) status = copy_options(w, w->file, error);
    if (status == ATTN_OK) status = copy_options(w, w->own, error);
    if (status == ATTN_OK) status = copy_projections(w, error);
    if (status == ATTN_OK) status = needed_write(w->out, &w->spec, error);
    if (status != ATTN_OK) return status;
    void *const scratch = need_memory(count, attn_dtype_size(w->x->dtype));
    twice.to = (attn_output){scratch, w->x->dtype, {0, 0, 0, 0}};
    status = project(w, w->x, w->index[2], l->heads_q, &q, &twice, error);
    if (status == ATTN_OK) status = project(w, rows, w->index[3], l->heads_kv, &k, &v, error);
    free(scratch);
    return status;
}
