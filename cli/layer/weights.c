/* SPDX-License-Identifier: MIT
 *
 * weights.c - the tensors that were found as the weights of a multi-head layer: where each of them lies.  Numbers are used where
 * they are, by strides; only 16-bit numbers and matrices of grouped heads are copied. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/input/input.h"
#include "layer.h"
#include "testing/text/failure.h"

static const attn_archive_tensor *found(const layer_work *w, weight_role role) { return w->match.found[role]; }

/* ---- places ---- */

attn_status layer_check_weight(const attn_archive_tensor *t, int rank, const int64_t *shape, attn_error *error)
{
    char actual[SHAPE_TEXT], expected[SHAPE_TEXT];
    if (t->rank == rank && memcmp(t->shape, shape, (size_t)rank * sizeof *shape) == 0) return ATTN_OK;
    return failure(error, ATTN_ERR_SHAPE, "layer: tensor '%.90s' has shape %.60s; the layer has %.60s", t->name,
                   shape_text(actual, t->rank, t->shape), shape_text(expected, rank, shape));
}

/* The numbers in the type of x, a copy if the tensor has 16 bits. */
static attn_status convert(const layer_work *w, const attn_archive_tensor *t, const char **data, attn_error *error)
{
    const attn_dtype to = w->x->dtype;
    const int64_t count = (int64_t)(t->bytes / attn_dtype_size(t->dtype));
    const attn_archive_tensor *made = attn_archive_find(w->own, t->name);
    void *copy = NULL;
    *data = t->data;
    if (t->dtype != ATTN_F16 && t->dtype != ATTN_BF16) return ATTN_OK;
    if (made) *data = made->data;
    if (made) return ATTN_OK;
    attn_status status = attn_archive_allocate(w->own, t->name, to, t->rank, t->shape, &copy, error);
    if (status == ATTN_OK && count) status = attn_convert(count, t->data, t->dtype, copy, to, error);
    *data = copy;
    return status;
}

attn_status layer_weight_numbers(const layer_work *w, const attn_archive_tensor *t, const char **data, attn_error *error)
{
    const attn_dtype to = w->x->dtype;
    const int64_t count = (int64_t)(t->bytes / attn_dtype_size(t->dtype));
    if (t->dtype != to && t->dtype != ATTN_F16 && t->dtype != ATTN_BF16)
        return failure(error, ATTN_ERR_UNSUPPORTED, "layer: tensor '%.120s' is %s; the layer is %s", t->name,
                       attn_dtype_name(t->dtype), attn_dtype_name(to));
    const attn_status status = convert(w, t, data, error);
    for (int64_t i = 0; i < count && status == ATTN_OK; i++) {
        const double x =
            to == ATTN_F64 ? ((const double *)(const void *)*data)[i] : (double)((const float *)(const void *)*data)[i];
        if (x != x) return failure(error, ATTN_ERR_ARGUMENT, "layer: tensor '%.120s' has a NaN at element %" PRId64, t->name, i);
    }
    return status;
}

attn_status layer_convert_weights(layer_work *w, attn_error *error)
{
    const attn_archive *file = layer_weights_file(w);
    const size_t length = strlen(w->match.root);
    attn_status status = attn_archive_create(&w->converted, error);
    for (int64_t k = 0; k < attn_archive_count(file) && status == ATTN_OK; k++) {
        const attn_archive_tensor *t = attn_archive_at(file, k);
        const int half = t->dtype == ATTN_F16 || t->dtype == ATTN_BF16;
        const char *data = t->data;
        if (strncmp(t->name, w->match.root, length) != 0) continue;
        if (half) status = convert(w, t, &data, error);
        if (status == ATTN_OK)
            status = attn_archive_add(w->converted, t->name, half ? w->x->dtype : t->dtype, t->rank, t->shape, data, error);
    }
    return status;
}

/* A matrix of its own: [out, in], its transpose, or [head, model, channel] ([head, channel, model] of an output). */
static attn_status place_matrix(const layer_work *w, const attn_archive_tensor *t, int to_model, int64_t heads, int64_t channels,
                                int64_t model, attn_output *slot, attn_error *error)
{
    const int64_t width = heads * channels, first = layer_head_axis(w, to_model);
    const int64_t cube[3] = {first ? model : heads, to_model ? channels : first ? heads : model, to_model ? model : channels};
    const int flip = to_model != layer_is_transposed(w); /* rows of the tensor are of the model */
    const int64_t flat[2] = {flip ? model : width, flip ? width : model};
    const char *data = NULL;
    attn_status status = t->rank == 3 ? layer_check_weight(t, 3, cube, error) : layer_check_weight(t, 2, flat, error);
    if (status == ATTN_OK) status = layer_weight_numbers(w, t, &data, error);
    if (status != ATTN_OK) return status;
    const int64_t by_channel = t->rank == 3 ? (to_model ? model : 1)
                               : flip       ? 1
                                            : model,
                  by_model = t->rank == 3 ? (to_model ? 1
                                             : first  ? width
                                                      : channels)
                             : flip       ? width
                                          : 1,
                  by_head = t->rank == 3 ? (first ? channels : model * channels) : channels * by_channel;
    *slot = attn_saved(data);
    const int64_t weight[4] = {0, by_head, by_channel, by_model}, output[4] = {0, by_model, by_head, by_channel};
    memcpy(slot->stride, to_model ? output : weight, sizeof weight);
    return ATTN_OK;
}

/* A vector of all heads, perhaps with leading axes of size 1, or [head, channel]. */
static attn_status place_vector(const layer_work *w, const attn_archive_tensor *t, int64_t heads, int64_t channels,
                                attn_output *slot, attn_error *error)
{
    const int64_t flat[1] = {heads * channels}, square[2] = {heads, channels};
    attn_archive_tensor plain = *t;
    const char *data = NULL;
    while (plain.rank > 1 && plain.shape[0] == 1) memmove(plain.shape, plain.shape + 1, (size_t)--plain.rank * sizeof *plain.shape);
    const int is_square = plain.rank == 2 && plain.shape[0] == heads && plain.shape[1] == channels;
    attn_status status = layer_check_weight(&plain, is_square ? 2 : 1, is_square ? square : flat, error);
    if (status == ATTN_OK) status = layer_weight_numbers(w, t, &data, error);
    if (status == ATTN_OK) *slot = attn_saved(data);
    return status;
}

/* ---- queries, keys and values in one tensor ---- */

enum { OF_QUERY, OF_KEY, OF_VALUE, PARTS };

typedef struct part {
    int64_t heads, channels;
    attn_output *slot;
} part;

/* The row in a fused matrix of channel c of head h. */
static int64_t row_of(const layer_work *w, const part *parts, int p, int64_t h, int64_t c)
{
    const int64_t group = parts[OF_QUERY].heads / parts[OF_KEY].heads, dim = parts[OF_QUERY].channels;
    int64_t before = 0;
    if (w->match.family->fused == FAMILY_PARTS) {
        for (int n = 0; n < p; n++) before += parts[n].heads * parts[n].channels;
        return before + h * parts[p].channels + c;
    }
    const int64_t g = p == OF_QUERY ? h / group : h, rows = (group + 1) * dim + parts[OF_VALUE].channels;
    return g * rows + (p == OF_QUERY ? h % group : group + (p == OF_VALUE)) * dim + c;
}

/* One of the three as a dense copy, [head, channel, model], or with model 1 of a vector. */
static attn_status copy_part(layer_work *w, const char *name, const char *data, const part *parts, int p, int64_t model,
                             attn_error *error)
{
    static const char *const words[PARTS] = {"queries", "keys", "values"};
    char own_name[300];
    const size_t size = attn_dtype_size(w->x->dtype), row = (size_t)model * size;
    const int64_t shape[3] = {parts[p].heads, parts[p].channels, model};
    void *copy = NULL;
    (void)snprintf(own_name, sizeof own_name, "%.250s, %s", name, words[p]);
    const attn_status status = attn_archive_allocate(w->own, own_name, w->x->dtype, 3, shape, &copy, error);
    for (int64_t h = 0; status == ATTN_OK && h < parts[p].heads; h++)
        for (int64_t c = 0; c < parts[p].channels; c++)
            memcpy((char *)copy + (size_t)(h * parts[p].channels + c) * row, data + (size_t)row_of(w, parts, p, h, c) * row, row);
    if (status == ATTN_OK) *parts[p].slot = attn_saved(copy);
    return status;
}

/* model 0: a vector. */
static attn_status place_fused(layer_work *w, const attn_archive_tensor *t, const part parts[PARTS], int64_t model,
                               attn_error *error)
{
    int64_t rows = 0;
    const char *data = NULL;
    for (int p = 0; p < PARTS; p++) rows += parts[p].heads * parts[p].channels;
    const int flip = model && layer_is_transposed(w), copies = w->match.family->fused == FAMILY_GROUPS;
    const int64_t shape[2] = {flip ? model : rows, flip ? rows : model};
    attn_status status = layer_check_weight(t, model ? 2 : 1, shape, error);
    if (status == ATTN_OK) status = layer_weight_numbers(w, t, &data, error);
    for (int p = 0; p < PARTS && status == ATTN_OK; p++) {
        const int64_t by_row = flip || !model ? 1 : model;
        if (copies) {
            status = copy_part(w, t->name, data, parts, p, model ? model : 1, error);
            continue;
        }
        *parts[p].slot = attn_saved(data + (size_t)(row_of(w, parts, p, 0, 0) * by_row) * attn_dtype_size(w->x->dtype));
        const int64_t stride[4] = {0, parts[p].channels * by_row, by_row, flip ? rows : 1};
        if (model) memcpy(parts[p].slot->stride, stride, sizeof stride);
    }
    return status;
}

/* ---- all of them ---- */

static attn_status missing(const layer_work *w, weight_role role, attn_error *error)
{
    const char *names = w->match.family ? w->match.family->names[role] : weight_words[role];
    char text[160] = "";
    while (*names) {
        const int size = (int)strcspn(names, "|"), last = !names[size];
        const size_t used = strlen(text);
        (void)snprintf(text + used, sizeof text - used, "%s'%.60s%.*s'",
                       !used  ? ""
                       : last ? " or "
                              : ", ",
                       w->match.root, size, names);
        names += size + !last;
    }
    return failure(error, ATTN_ERR_ARGUMENT, "layer: no tensor %s%s", text,
                   role == WEIGHT_OUTPUT ? "; --no-output leaves the heads side by side" : "; --names=FILE gives other names");
}

attn_status layer_bind_weights(layer_work *w, attn_error *error)
{
    const attn_layer *l = &w->layer;
    attn_layer_weights *to = &w->weights;
    const int64_t key_in = l->dim_key ? l->dim_key : l->dim_model, value_in = l->dim_value ? l->dim_value : key_in,
                  key_dim = w->attention.score.dim_k ? w->attention.score.dim_k : l->head_dim;
    const struct {
        weight_role weight, bias;
        int64_t heads, channels, model;
        attn_output *slot, *bias_slot;
    } all[] = {{WEIGHT_QUERY, WEIGHT_BIAS_QUERY, l->heads_q, l->head_dim, l->dim_model, &to->query, &to->query_bias},
               {WEIGHT_KEY, WEIGHT_BIAS_KEY, l->heads_kv, key_dim, key_in, &to->key, &to->key_bias},
               {WEIGHT_VALUE, WEIGHT_BIAS_VALUE, l->heads_kv, l->head_dim_v, value_in, &to->value, &to->value_bias},
               {WEIGHT_OUTPUT, WEIGHT_BIAS_OUTPUT, l->heads_q, l->head_dim_v, w->width, &to->output, &to->output_bias}};
    const part parts[PARTS] = {{l->heads_q, l->head_dim, &to->query},
                               {l->heads_kv, key_dim, &to->key},
                               {l->heads_kv, l->head_dim_v, &to->value}},
               biases[PARTS] = {{l->heads_q, l->head_dim, &to->query_bias},
                                {l->heads_kv, key_dim, &to->key_bias},
                                {l->heads_kv, l->head_dim_v, &to->value_bias}};
    const attn_archive_tensor *fused = found(w, WEIGHT_QKV), *fused_bias = found(w, WEIGHT_BIAS_QKV);
    attn_status status = ATTN_OK;
    *to = (attn_layer_weights){.struct_size = sizeof *to};
    if (fused && (key_in != l->dim_model || value_in != l->dim_model))
        return failure(error, ATTN_ERR_SHAPE,
                       "tensor '%.80s' projects queries, keys and values of one width, and they have %" PRId64 ", %" PRId64
                       " and %" PRId64 " channels",
                       fused->name, l->dim_model, key_in, value_in);
    if (fused) status = place_fused(w, fused, parts, l->dim_model, error);
    if (status == ATTN_OK && fused_bias) status = place_fused(w, fused_bias, biases, 0, error);
    for (int n = 0; n < 4 - l->no_output && status == ATTN_OK; n++) {
        const attn_archive_tensor *t = found(w, all[n].weight), *bias = found(w, all[n].bias);
        const int to_model = all[n].weight == WEIGHT_OUTPUT;
        if (!all[n].slot->data && !t) return missing(w, all[n].weight, error);
        if (!all[n].slot->data)
            status = place_matrix(w, t, to_model, all[n].heads, all[n].channels, all[n].model, all[n].slot, error);
        if (status == ATTN_OK && bias && !all[n].bias_slot->data)
            status =
                place_vector(w, bias, to_model ? 1 : all[n].heads, to_model ? w->width : all[n].channels, all[n].bias_slot, error);
    }
    const attn_archive_tensor *k = found(w, WEIGHT_EXTRA_KEY), *v = found(w, WEIGHT_EXTRA_VALUE);
    if (status == ATTN_OK && !k != !v)
        return failure(error, ATTN_ERR_ARGUMENT, "layer: tensor '%s' is present, but %s%s is missing", k ? k->name : v->name,
                       w->match.root, weight_words[k ? WEIGHT_EXTRA_VALUE : WEIGHT_EXTRA_KEY]);
    if (status == ATTN_OK && k) status = place_vector(w, k, l->heads_kv, l->head_dim, &to->extra_key, error);
    return status == ATTN_OK && v ? place_vector(w, v, l->heads_kv, l->head_dim_v, &to->extra_value, error) : status;
}

attn_status layer_place_table(layer_work *w, attn_error *error)
{
    const attn_archive_tensor *t = layer_table(w);
    const char *data = NULL;
    void *copy = NULL;
    if (!t || t->rank != 2 || !w->sizes.heads) return ATTN_OK;
    const int64_t buckets = t->shape[0], heads = w->sizes.heads, stored[2] = {buckets, heads}, shape[2] = {heads, buckets};
    const size_t size = attn_dtype_size(w->x->dtype);
    attn_status status = layer_check_weight(t, 2, stored, error);
    if (status == ATTN_OK) status = layer_weight_numbers(w, t, &data, error);
    if (status == ATTN_OK) status = attn_archive_allocate(w->own, "bias_table", w->x->dtype, 2, shape, &copy, error);
    for (int64_t n = 0; status == ATTN_OK && n < buckets; n++)
        for (int64_t h = 0; h < heads; h++)
            memcpy((char *)copy + (size_t)(h * buckets + n) * size, data + (size_t)(n * heads + h) * size, size);
    if (status == ATTN_OK) w->table = attn_archive_find(w->own, "bias_table");
    if (status == ATTN_OK) w->match.found[WEIGHT_TABLE] = t;
    return status;
}
