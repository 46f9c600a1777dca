/* SPDX-License-Identifier: MIT
 *
 * norm.c - the norms around a layer's projections: of x before them, and of the queries and keys of each head after them.  The mean
 * of the squares, or with a bias, or where the model's file says so, the deviation from the mean, becomes 1. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn/product.h"
#include "layer.h"
#include "testing/text/failure.h"

typedef struct norm {
    int64_t width;
    const char *gain, *bias; /* bias: NULL */
    int centred;
    double epsilon;
} norm;

static double get(const void *from, attn_dtype dtype, int64_t i)
{
    return dtype == ATTN_F64 ? ((const double *)from)[i] : (double)((const float *)from)[i];
}

static void put(void *to, attn_dtype dtype, int64_t i, double x)
{
    if (dtype == ATTN_F64) ((double *)to)[i] = x;
    else ((float *)to)[i] = (float)x;
}

/* to = the normalised rows of `from`; both may be the same. */
static void normalise(const norm *n, attn_dtype dtype, int64_t rows, const void *from, void *to)
{
    for (int64_t r = 0; r < rows; r++) {
        double mean = 0, square = 0;
        const int64_t at = r * n->width;
        for (int64_t i = 0; i < n->width && n->centred; i++) mean += get(from, dtype, at + i);
        mean /= (double)n->width;
        for (int64_t i = 0; i < n->width; i++) {
            const double x = get(from, dtype, at + i) - mean;
            square += x * x;
        }
        const double factor = 1 / sqrt(square / (double)n->width + n->epsilon);
        for (int64_t i = 0; i < n->width; i++) {
            const double bias = n->bias ? get(n->bias, dtype, i) : 0;
            put(to, dtype, at + i, (get(from, dtype, at + i) - mean) * factor * get(n->gain, dtype, i) + bias);
        }
    }
}

static attn_status find_norm(const layer_work *w, weight_role gain, weight_role bias, int64_t width, norm *n, attn_error *error)
{
    const layer_model *m = &w->model;
    const attn_archive_tensor *g = w->match.found[gain], *b = w->match.found[bias];
    attn_status status = layer_check_weight(g, 1, &width, error);
    if (status == ATTN_OK) status = layer_weight_numbers(w, g, &n->gain, error);
    if (status == ATTN_OK && b) status = layer_check_weight(b, 1, &width, error);
    if (status == ATTN_OK && b) status = layer_weight_numbers(w, b, &n->bias, error);
    n->width = width;
    n->centred = b || (!(m->rms_epsilon > 0) && m->layer_epsilon > 0);
    const double told = n->centred ? m->layer_epsilon : m->rms_epsilon, given = w->settings->norm_epsilon;
    n->epsilon = given > 0 ? given : told > 0 ? told : n->centred ? 1e-5 : 1e-6;
    return status;
}

static int64_t rows_of(const attn_archive_tensor *t)
{
    int64_t rows = 1;
    for (int axis = 0; axis + 1 < t->rank; axis++) rows *= t->shape[axis];
    return rows;
}

attn_status layer_norm_input(layer_work *w, attn_error *error)
{
    const attn_archive_tensor *t = w->match.found[WEIGHT_NORM];
    const int by_tokens = w->settings->tokens && !w->settings->plain && t; /* as the model does */
    char text[160];
    norm n = {0};
    if (!w->settings->norm && !by_tokens) return ATTN_OK;
    if (!t) return failure(error, ATTN_ERR_ARGUMENT, "--norm: the file has no norm beside the weights of this layer");
    if (w->settings->backward)
        return failure(error, ATTN_ERR_ARGUMENT, "--backward takes no --norm: it gives gradients of the layer alone");
    const attn_status status = find_norm(w, WEIGHT_NORM, WEIGHT_NORM_BIAS, layer_width(w->x), &n, error);
    if (status != ATTN_OK) return status;
    w->normed[0] = need_memory((int64_t)w->x->bytes, 1);
    normalise(&n, w->x->dtype, rows_of(w->x), w->x->data, w->normed[0]);
    w->args.query.data = w->normed[0];
    (void)snprintf(text, sizeof text, "%s norm of x, epsilon %g", n.centred ? "layer" : "rms", n.epsilon);
    layer_tell(w, text);
    return ATTN_OK;
}

/* to [rows][heads * channels] = from [rows][model] projected, a head at a time. */
static attn_status project(const layer_work *w, const void *from, int64_t rows, int64_t model, int64_t heads, int64_t channels,
                           const attn_output *weight, const attn_output *bias, void *to, attn_error *error)
{
    const attn_dtype dtype = w->x->dtype;
    const size_t size = attn_dtype_size(dtype);
    const attn_product_problem p = {.struct_size = sizeof p, .dtype = dtype, .rows = rows, .columns = channels, .inner = model};
    attn_status status = ATTN_OK;
    for (int64_t h = 0; h < heads && status == ATTN_OK; h++) {
        attn_product_tensors t = {.struct_size = sizeof t, .a = attn_in(from)};
        t.b = (attn_input){.data = (const char *)weight->data + (size_t)(h * weight->stride[1]) * size,
                           .stride = {0, 0, weight->stride[3], weight->stride[2]}};
        t.c = (attn_output){.data = (char *)to + (size_t)(h * channels) * size, .stride = {0, 0, heads * channels, 1}};
        status = attn_product(&p, &t, &w->options, error);
    }
    for (int64_t i = 0; bias->data && status == ATTN_OK && i < rows * heads * channels; i++)
        put(to, dtype, i, get(to, dtype, i) + get(bias->data, dtype, i % (heads * channels)));
    return status;
}

/* The norms of each head, or of all heads of a token together, by the width of their gains. */
static attn_status project_and_norm(layer_work *w, weight_role role, int buffer, const attn_archive_tensor *rows, const void *data,
                                    int64_t heads, const attn_output *weight, const attn_output *bias, attn_error *error)
{
    const attn_layer *l = &w->layer;
    const attn_archive_tensor *gain = w->match.found[role];
    const int64_t all = heads * l->head_dim, count = rows_of(rows);
    norm n = {0};
    void *to = w->normed[buffer] = need_memory(count * all + 1, attn_dtype_size(w->x->dtype));
    attn_status status = project(w, data, count, layer_width(rows), heads, l->head_dim, weight, bias, to, error);
    if (status != ATTN_OK || !gain) return status;
    status = find_norm(w, role, role == WEIGHT_NORM_QUERY ? WEIGHT_NORM_BIAS_QUERY : WEIGHT_NORM_BIAS_KEY,
                       gain->rank == 1 && gain->shape[0] == all ? all : l->head_dim, &n, error);
    if (status == ATTN_OK) normalise(&n, w->x->dtype, count * (all / n.width), to, to);
    return status;
}

attn_status layer_norm_heads(layer_work *w, attn_error *error)
{
    attn_layer *l = &w->layer;
    const layer_settings *s = w->settings;
    const attn_archive_tensor *q = w->match.found[WEIGHT_NORM_QUERY], *k = w->match.found[WEIGHT_NORM_KEY];
    if ((!q && !k) || !w->kind->takes_scores || s->plain) return ATTN_OK;
    const attn_archive_tensor *z = w->context ? w->context : w->x, *v = w->value ? w->value : z;
    const void *const from = w->context ? w->args.key.data : w->args.query.data;
    if (s->backward || s->decode)
        return failure(error, ATTN_ERR_UNSUPPORTED,
                       "--%s is not for layers with norms of queries and keys ('%.80s'); --plain leaves them out",
                       s->backward ? "backward" : "decode", q ? q->name : k->name);
    attn_status status = project_and_norm(w, WEIGHT_NORM_QUERY, 1, w->x, w->args.query.data, l->heads_q, &w->weights.query,
                                          &w->weights.query_bias, error);
    if (status == ATTN_OK)
        status = project_and_norm(w, WEIGHT_NORM_KEY, 2, z, from, l->heads_kv, &w->weights.key, &w->weights.key_bias, error);
    if (status != ATTN_OK) return status;
    if (!w->args.value.data) w->args.value.data = from;
    w->args.query.data = w->normed[1];
    w->args.key.data = w->normed[2];
    w->weights.query = w->weights.key = w->weights.query_bias = w->weights.key_bias = (attn_output){0};
    l->no_query = l->no_key = 1;
    l->dim_output = l->no_output ? 0 : w->width;
    l->dim_model = l->heads_q * l->head_dim;
    l->dim_key = l->heads_kv * l->head_dim;
    l->dim_value = layer_width(v);
    layer_tell(w, "norms of queries and keys");
    return ATTN_OK;
}
