/* SPDX-License-Identifier: MIT
 * file.c - loads and stores weights as named tensors, with PyTorch's names. */
#include <inttypes.h>
#include <string.h>

#include "named.h"

/* Names of a weight and of its bias; the first that exists is used.  Fused matrices take precedence. */
static const char *const weight_names[PROJECTIONS][5] = {
    {"q_proj_weight", "q_proj.weight", "wq", NULL},
    {"k_proj_weight", "k_proj.weight", "wk", NULL},
    {"v_proj_weight", "v_proj.weight", "wv", NULL},
    {"out_proj.weight", "o_proj.weight", "wo", NULL},
};
static const char *const bias_names[PROJECTIONS][4] = {
    {"q_proj.bias", "bq", NULL},
    {"k_proj.bias", "bk", NULL},
    {"v_proj.bias", "bv", NULL},
    {"out_proj.bias", "o_proj.bias", "bo", NULL},
};

static const char *const extra_names[2] = {"bias_k", "bias_v"};

/* *t: the tensor of the first name that exists; NULL if none does. */
static attn_status find(const attn_archive *tensors, const char *prefix, const char *const *names, const attn_archive_tensor **t,
                        attn_error *error)
{
    *t = NULL;
    for (; *names && !*t; names++) {
        char name[NAMED];
        TRY(attn_named_full(name, prefix, *names, error));
        *t = attn_archive_find(tensors, name);
    }
    return ATTN_OK;
}

/* in_proj_weight is possible: all three are projected, from inputs of equal width. */
static int one_matrix(const layer *l)
{
    const projection *p = l->projections;
    return !p[QUERY].none && !p[KEY].none && !p[VALUE].none && l->inputs[QUERY] == l->inputs[KEY] &&
           l->inputs[KEY] == l->inputs[VALUE];
}

static int64_t width_of(const projection *p) { return p->heads * p->dim; }

/* in_proj_weight or in_proj_bias: the rows of query, key and value, concatenated. */
static attn_status load_fused(const layer *l, const attn_archive *tensors, const char *prefix, const char *end, int64_t columns,
                              char *parts[3], attn_error *error)
{
    const char *const names[] = {end, NULL};
    const attn_archive_tensor *t;
    int64_t rows = 0;
    TRY(find(tensors, prefix, names, &t, error));
    if (!t) return ATTN_OK;
    for (int i = QUERY; i <= VALUE; i++) rows += width_of(&l->projections[i]);
    TRY(attn_named_check(l, t, rows, columns, error));
    rows = 0;
    for (int i = QUERY; i <= VALUE; i++) {
        parts[i] = (char *)(uintptr_t)t->data + rows * (columns ? columns : 1) * l->size;
        rows += width_of(&l->projections[i]);
    }
    return ATTN_OK;
}

static attn_status load_separate(const layer *l, const attn_archive *tensors, const char *prefix, int i, char **weight, char **bias,
                                 attn_error *error)
{
    const projection *p = &l->projections[i];
    const attn_archive_tensor *t;
    if (!*weight && !p->none) {
        TRY(find(tensors, prefix, weight_names[i], &t, error));
        CHECK(t, ATTN_ERR_ARGUMENT, "layer: no tensor '%s%s', '%s%s' or '%s%s'", prefix, weight_names[i][0], prefix,
              weight_names[i][1], prefix, weight_names[i][2]);
        TRY(attn_named_check(l, t, p->to_model ? p->model : width_of(p), p->to_model ? width_of(p) : p->model, error));
        *weight = (char *)(uintptr_t)t->data;
    }
    if (*bias) return ATTN_OK;
    TRY(find(tensors, prefix, bias_names[i], &t, error));
    if (!t) return ATTN_OK;
    TRY(attn_named_check(l, t, p->to_model ? p->model : width_of(p), 0, error));
    *bias = (char *)(uintptr_t)t->data;
    return ATTN_OK;
}

/* The extra key and value: [1, 1, channels] as in PyTorch, or [channels]; both or neither. */
static attn_status load_extra(const layer *l, const attn_archive *tensors, const char *prefix, char *parts[2], attn_error *error)
{
    const attn_archive_tensor *t[2];
    for (int i = 0; i < 2; i++) {
        const char *const names[] = {extra_names[i], NULL};
        TRY(find(tensors, prefix, names, &t[i], error));
    }
    CHECK(!t[0] == !t[1], ATTN_ERR_ARGUMENT, "layer: tensor '%s' is present, but %s%s is missing", t[0] ? t[0]->name : t[1]->name,
          prefix, extra_names[t[0] != NULL]);
    for (int i = 0; t[0] && i < 2; i++) {
        attn_archive_tensor flat = *t[i];
        while (flat.rank > 1 && flat.shape[0] == 1) memmove(flat.shape, flat.shape + 1, (size_t)--flat.rank * sizeof *flat.shape);
        TRY(attn_named_check(l, &flat, l->heads_kv * (i ? l->head_dim_v : l->head_dim), 0, error));
        parts[i] = (char *)(uintptr_t)t[i]->data;
    }
    return ATTN_OK;
}

attn_status attn_layer_load(const attn_layer *given, const attn_archive *tensors, const char *prefix, attn_layer_weights *weights,
                            attn_error *error)
{
    layer l;
    char *weight[PROJECTIONS] = {NULL}, *bias[PROJECTIONS] = {NULL}, *learned[2] = {NULL};
    TRY(attn_layer_resolve(given, &l, error));
    CHECK(tensors && weights, ATTN_ERR_ARGUMENT, "layer: %s is NULL", tensors ? "weights" : "tensors");
    if (!prefix) prefix = "";
    if (one_matrix(&l)) TRY(load_fused(&l, tensors, prefix, "in_proj_weight", l.inputs[QUERY], weight, error));
    TRY(load_fused(&l, tensors, prefix, "in_proj_bias", 0, bias, error));
    for (int i = 0; i < PROJECTIONS - l.no_output; i++) TRY(load_separate(&l, tensors, prefix, i, &weight[i], &bias[i], error));
    TRY(load_extra(&l, tensors, prefix, learned, error));
    char *const all[LAYER_WEIGHTS] = {weight[QUERY], weight[KEY], weight[VALUE], weight[OUTPUT], bias[QUERY],
                                      bias[KEY],     bias[VALUE], bias[OUTPUT],  learned[0],     learned[1]};
    TRY(attn_weights_write(weights, "attn_layer_weights", all, l.dtype, LAYER_WEIGHTS, error));
    return succeed(error);
}

/* Copies a projection as [out, in]. */
static void write_rows(const layer *l, const projection *p, char *to)
{
    const int64_t width = width_of(p);
    for (int64_t h = 0; h < p->heads; h++)
        for (int64_t c = 0; c < p->dim; c++)
            for (int64_t m = 0; m < p->model; m++) {
                const int64_t at = p->to_model ? m * width + h * p->dim + c : (h * p->dim + c) * p->model + m;
                const char *from = (const char *)p->at.weight +
                                   (h * p->at.stride_head + c * p->at.stride_channel + m * p->at.stride_model) * l->size;
                memcpy(to + at * l->size, from, (size_t)l->size);
            }
}

static attn_status store_weights(const layer *l, named_new *file, attn_error *error)
{
    const projection *p = l->projections;
    const int fused = one_matrix(l);
    char *to = NULL;
    if (fused)
        TRY(attn_named_add(l, file, "in_proj_weight", width_of(&p[QUERY]) + width_of(&p[KEY]) + width_of(&p[VALUE]),
                           l->inputs[QUERY], &to, error));
    for (int i = QUERY; i <= VALUE; i++) {
        if (p[i].none) continue;
        if (!fused) TRY(attn_named_add(l, file, weight_names[i][0], width_of(&p[i]), p[i].model, &to, error));
        write_rows(l, &p[i], to);
        to += width_of(&p[i]) * p[i].model * l->size;
    }
    if (l->no_output) return ATTN_OK;
    TRY(attn_named_add(l, file, weight_names[OUTPUT][0], p[OUTPUT].model, width_of(&p[OUTPUT]), &to, error));
    write_rows(l, &p[OUTPUT], to);
    return ATTN_OK;
}

static attn_status store_biases(const layer *l, named_new *file, attn_error *error)
{
    const projection *p = l->projections;
    const int any = p[QUERY].at.bias || p[KEY].at.bias || p[VALUE].at.bias;
    char *to = NULL;
    if (any)
        TRY(attn_named_add(l, file, "in_proj_bias", width_of(&p[QUERY]) + width_of(&p[KEY]) + width_of(&p[VALUE]), 0, &to, error));
    for (int i = QUERY; any && i <= VALUE; i++) { /* a missing one is 0 */
        if (p[i].at.bias) memcpy(to, p[i].at.bias, (size_t)(width_of(&p[i]) * l->size));
        to += width_of(&p[i]) * l->size;
    }
    if (l->no_output || !p[OUTPUT].at.bias) return ATTN_OK;
    TRY(attn_named_add(l, file, bias_names[OUTPUT][0], p[OUTPUT].model, 0, &to, error));
    memcpy(to, p[OUTPUT].at.bias, (size_t)(p[OUTPUT].model * l->size));
    return ATTN_OK;
}

static attn_status store_extra(const layer *l, named_new *file, attn_error *error)
{
    const char *const from[2] = {l->extra_key, l->extra_value};
    for (int i = 0; from[0] && i < 2; i++) {
        char *to;
        const int64_t shape[3] = {1, 1, l->heads_kv * (i ? l->head_dim_v : l->head_dim)};
        TRY(attn_named_allocate(l, file, extra_names[i], 3, shape, &to, error));
        memcpy(to, from[i], (size_t)(shape[2] * l->size));
    }
    return ATTN_OK;
}

attn_status attn_layer_store(const attn_layer *given, const attn_layer_weights *weights, const char *prefix, attn_archive *tensors,
                             attn_error *error)
{
    layer l;
    TRY(attn_layer_resolve(given, &l, error));
    TRY(attn_layer_bind(&l, "weights", weights, WEIGHTS_READ, error));
    CHECK(tensors, ATTN_ERR_ARGUMENT, "layer: tensors is NULL");
    named_new file = {.tensors = tensors, .prefix = prefix};
    attn_status status = store_weights(&l, &file, error);
    if (status == ATTN_OK) status = store_biases(&l, &file, error);
    if (status == ATTN_OK) status = store_extra(&l, &file, error);
    return attn_named_end(&file, status, error);
}
