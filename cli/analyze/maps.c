/* SPDX-License-Identifier: MIT
 *
 * maps.c - attention rollout, attention flow, and weights times their gradients, as files of weights. */
#include "maps.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/base/progress.h"
#include "cli/base/tensor_view.h"
#include "cli/compute/rollout.h"
#include "cli/compute/weights.h"
#include "testing/text/failure.h"
#include "testing/text/json.h"

attn_status maps_check(const maps_settings *s, const char *steps, attn_error *error)
{
    if ((s->rollout != NULL) + (s->flow != NULL) + (s->gradient != NULL) + (steps != NULL) < 2) return ATTN_OK;
    return failure(error, ATTN_ERR_ARGUMENT,
                   "--rollout, --flow, --gradient-weighted and --steps write a file each; give one of them");
}

/* ---- the file ---- */

/* Adds `weights` in the leading axes of the input, with one layer if `last`, and `heads` heads. */
static attn_status make(const attention_input *input, const labels *l, int64_t heads, int last, attn_archive **out, float **weights,
                        attn_error *error)
{
    const attn_shape *s = &input->problem.shape;
    int64_t shape[ATTN_MAX_RANK];
    int rank = 0;
    char number[LABEL_NUMBER];
    for (; rank < input->leading; rank++) shape[rank] = last && rank == l->layer_axis ? 1 : input->lead[rank];
    shape[rank++] = heads;
    shape[rank++] = s->len_q;
    shape[rank++] = s->len_kv;
    attn_status status = attn_archive_create(out, error);
    if (status == ATTN_OK) status = attn_archive_allocate(*out, "weights", ATTN_F32, rank, shape, (void **)weights, error);
    for (int64_t k = 0; input->file && k < attn_archive_metadata_count(input->file) && status == ATTN_OK; k++) {
        const attn_metadata *from = attn_archive_metadata_at(input->file, k);
        status = attn_archive_set_metadata(*out, from->key, from->value, error);
    }
    if (status == ATTN_OK && input->begins_q && l->lists > 1) status = labels_write(*out, l->list, l->lists, error);
    snprintf(number, sizeof number, "[%" PRId64 "]", l->layer_number[l->layers - 1]);
    if (status == ATTN_OK && last) status = attn_archive_set_metadata(*out, "layers", number, error);
    return status == ATTN_OK ? attn_archive_set_metadata(*out, "attn_version", attn_version(), error) : status;
}

/* ---- rollout and flow ---- */

enum { MAX_FLOW_TOKENS = 256 };

static attn_status check_layers(const attention_input *input, const labels *l, const char *flag, attn_error *error)
{
    const attn_shape *s = &input->problem.shape;
    int64_t offset;
    if (s->len_q != s->len_kv || !labels_aligned(input, 0, &offset))
        return failure(error, ATTN_ERR_ARGUMENT,
                       "%.100s: --%s is for self-attention, from layer to layer; there are %" PRId64 " queries and %" PRId64
                       " keys",
                       input->path, flag, s->len_q, s->len_kv);
    for (int64_t y = 1; y < l->layers; y++)
        if (l->layer_number[y] != l->layer_number[y - 1] + 1)
            return failure(error, ATTN_ERR_ARGUMENT,
                           "%.100s: --%s needs each layer; there is none between %" PRId64 " and %" PRId64, input->path, flag,
                           l->layer_number[y - 1], l->layer_number[y]);
    if (strcmp(flag, "flow") == 0 && s->len_q > MAX_FLOW_TOKENS)
        return failure(error, ATTN_ERR_UNSUPPORTED,
                       "%.100s: --flow has a maximum flow for each pair of tokens, which takes hours for %" PRId64
                       " tokens (at most %d); --rollout takes any number",
                       input->path, s->len_q, MAX_FLOW_TOKENS);
    return ATTN_OK;
}

/* The mixed weights of all layers of an entry, [layers][n][n]. */
static attn_status read_mixed(weight_reader *reader, const labels *l, int64_t entry, double *mixed, attn_error *error)
{
    const attn_shape *s = &reader->input->problem.shape;
    const int64_t n = s->len_q;
    float *weights = need_memory(s->heads_q * n * n, sizeof *weights);
    attn_status status = ATTN_OK;
    for (int64_t y = 0; y < l->layers && status == ATTN_OK; y++) {
        status = weights_read(reader, labels_batch(l, y, entry), 0, weights, error);
        if (status == ATTN_OK) rollout_mix(s->heads_q, n, weights, mixed + y * n * n);
    }
    free(weights);
    return status;
}

static void write_rollout(const labels *l, int64_t entry, int64_t n, const double *mixed, float *to)
{
    double *product = need_memory(n * n, sizeof *product), *next = need_memory(n * n, sizeof *next);
    for (int64_t i = 0; i < n; i++) product[i * n + i] = 1;
    for (int64_t y = 0; y < l->layers; y++) {
        float *map = to + labels_batch(l, y, entry) * n * n;
        double *const last = product;
        rollout_multiply(n, mixed + y * n * n, product, next);
        product = next, next = last;
        for (int64_t k = 0; k < n * n; k++) map[k] = (float)product[k];
    }
    free(product), free(next);
}

/* Flows of a token, which share its edges, are divided by their sum. */
static void write_flow(const labels *l, int64_t n, const double *mixed, float *to, const common_settings *common)
{
    flow_network *f = flow_network_make(l->layers, n, mixed);
    double *row = need_memory(n, sizeof *row);
    progress bar;
    progress_begin(&bar, "flow", common->quiet);
    for (int64_t i = 0; i < n; i++) {
        double sum = 0;
        for (int64_t j = 0; j < n; j++) sum += row[j] = flow_between(f, i, j);
        for (int64_t j = 0; j < n; j++) to[i * n + j] = (float)(row[j] / sum);
        progress_show(&bar, i + 1, n);
    }
    progress_end(&bar);
    free(row);
    flow_network_free(f);
}

static attn_status over_layers(const attention_input *input, const labels *l, int flow, const common_settings *common,
                               attn_archive **out, attn_error *error)
{
    const int64_t n = input->problem.shape.len_q;
    float *to = NULL;
    double *mixed = NULL;
    weight_reader reader = {.input = input};
    attn_status status = check_layers(input, l, flow ? "flow" : "rollout", error);
    if (status == ATTN_OK) status = make(input, l, 1, flow, out, &to, error);
    if (status == ATTN_OK) status = weights_begin(&reader, input, n, common, error);
    if (status == ATTN_OK) mixed = need_memory(l->layers * n * n, sizeof *mixed);
    for (int64_t e = 0; e < l->entries && status == ATTN_OK; e++) {
        status = read_mixed(&reader, l, e, mixed, error);
        if (status != ATTN_OK) break;
        if (flow) write_flow(l, n, mixed, to + e * n * n, common);
        else write_rollout(l, e, n, mixed, to);
    }
    free(mixed);
    weights_end(&reader);
    return status;
}

/* ---- weights times their gradients ---- */

/* Gradients of the weights of a batch entry, [heads][queries][keys]: of the file, or from those of the outputs and the values. */
static void read_gradients(const attention_input *input, const attn_archive_tensor *given, const double *grad_o, const double *v,
                           int64_t b, double *to)
{
    const attn_shape *s = &input->problem.shape;
    const int64_t pairs = s->heads_q * s->len_q * s->len_kv, group = s->heads_kv ? s->heads_q / s->heads_kv : 1;
    for (int64_t k = 0; given && k < pairs; k++) to[k] = tensor_view_number(given, b * pairs + k);
    for (int64_t r = 0; !given && r < s->heads_q * s->len_q; r++)
        for (int64_t j = 0; j < s->len_kv; j++) {
            const double *row = grad_o + (b * s->heads_q * s->len_q + r) * s->dim_v,
                         *value = v + ((b * s->heads_kv + r / s->len_q / group) * s->len_kv + j) * s->dim_v;
            double sum = 0;
            for (int64_t c = 0; c < s->dim_v; c++) sum += row[c] * value[c];
            to[r * s->len_kv + j] = sum;
        }
}

static attn_status find_gradients(const attention_input *input, const attn_archive_tensor **given, attn_error *error)
{
    const attn_shape *s = &input->problem.shape;
    char have[SHAPE_TEXT], need[SHAPE_TEXT];
    const int64_t size[4] = {s->batch, s->heads_q, s->len_q, s->len_kv};
    int64_t shape[ATTN_MAX_RANK];
    const attn_archive_tensor *t = *given = input->file ? attn_archive_find(input->file, "dweights") : NULL;
    if (!t) return ATTN_OK;
    int rank = input->leading, fits = t->dtype >= ATTN_F32 && t->dtype <= ATTN_BF16;
    for (int a = 0; a < rank; a++) shape[a] = input->lead[a];
    for (int a = input->used[TENSOR(q)].tensor->rank > 2 ? 1 : 2; a < 4; a++) shape[rank++] = size[a];
    fits &= t->rank == rank;
    for (int a = 0; fits && a < rank; a++) fits = t->shape[a] == shape[a];
    if (fits) return ATTN_OK;
    return failure(error, ATTN_ERR_SHAPE, "%.80s: tensor 'dweights' is %s %.80s; expected floats %.80s, as weights", input->path,
                   attn_dtype_name(t->dtype), shape_text(have, t->rank, t->shape), shape_text(need, rank, shape));
}

/* Dense doubles of an input that is tensor t of the problem. */
static double *read_dense(const attention_input *input, int t, const attn_input *from)
{
    int64_t shape[4];
    attn_tensors all = input->tensors;
    *tensors_slot(&all, t) = (attn_output){(void *)(uintptr_t)from->data, from->dtype, {0, 0, 0, 0}};
    memcpy(tensors_slot(&all, t)->stride, from->stride, sizeof from->stride);
    tensors_shape(&input->problem, &all, t, shape);
    double *to = need_memory(shape[0] * shape[1] * shape[2] * shape[3], sizeof *to);
    tensors_read(&input->problem, &all, t, shape, NULL, to);
    return to;
}

static attn_status gradient_weighted(const attention_input *input, const labels *l, const attn_input *grad_o,
                                     const common_settings *common, attn_archive **out, attn_error *error)
{
    const attn_shape *s = &input->problem.shape;
    const int64_t pairs = s->heads_q * s->len_q * s->len_kv;
    const attn_archive_tensor *given;
    double *of_o = NULL, *v = NULL, *gradients = NULL;
    float *to = NULL;
    weight_reader reader = {.input = input};
    attn_status status = find_gradients(input, &given, error);
    if (status == ATTN_OK && !given && !grad_o->data)
        status =
            failure(error, ATTN_ERR_ARGUMENT,
                    "%.100s: --gradient-weighted needs gradients: dweights [head, query, key], or do, v, q and k", input->path);
    if (status == ATTN_OK) status = make(input, l, s->heads_q, 0, out, &to, error);
    if (status == ATTN_OK) status = weights_begin(&reader, input, s->len_q, common, error);
    if (status == ATTN_OK) gradients = need_memory(pairs, sizeof *gradients);
    if (status == ATTN_OK && !given)
        of_o = read_dense(input, TENSOR(grad_o), grad_o), v = read_dense(input, TENSOR(v), &input->tensors.v);
    for (int64_t b = 0; b < s->batch && status == ATTN_OK; b++) {
        float *map = to + b * pairs;
        status = weights_read(&reader, b, 0, map, error);
        if (status != ATTN_OK) break;
        read_gradients(input, given, of_o, v, b, gradients);
        for (int64_t k = 0; k < pairs; k++) map[k] = (float)fmax(0, (double)map[k] * gradients[k]);
    }
    weights_end(&reader);
    free(gradients), free(of_o), free(v);
    return status;
}

attn_status analyze_maps(const attention_input *input, const labels *l, const maps_settings *settings, const attn_input *grad_o,
                         const common_settings *common, attn_archive **out, attn_error *error)
{
    if (settings->gradient) return gradient_weighted(input, l, grad_o, common, out, error);
    return over_layers(input, l, settings->flow != NULL, common, out, error);
}
