/* SPDX-License-Identifier: MIT
 * parameters.c - counts and initialises a layer's weights, and averages key and value heads into groups. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "draw.h"
#include "layer.h"

static attn_status add_parameters(attn_layer_counts *counts, int64_t rows, int64_t columns, attn_error *error)
{
    CHECK(rows <= (INT64_MAX - counts->parameters) / columns, ATTN_ERR_SHAPE,
          "layer: its parameters are too many: their number overflows 64 bits");
    counts->parameters += rows * columns;
    return ATTN_OK;
}

attn_status attn_layer_count(const attn_layer *given, int64_t batch, int64_t len_q, int64_t len_kv,
                             const attn_layer_weights *weights, attn_layer_counts *counts, attn_error *error)
{
    layer l;
    saved s;
    attn_layer_counts result = {.struct_size = sizeof result};
    TRY(attn_layer_resolve(given, &l, error));
    CHECK(counts, ATTN_ERR_ARGUMENT, "layer: counts is NULL");
    CHECK(batch >= 0 && len_q >= 0 && len_kv >= 0, ATTN_ERR_SHAPE,
          "layer: batch (%" PRId64 "), len_q (%" PRId64 ") or len_kv (%" PRId64 ") is negative", batch, len_q, len_kv);
    if (weights) TRY(attn_layer_bind(&l, "weights", weights, WEIGHTS_COUNTED, error));
    TRY(attn_saved_layout(&l, batch, len_q, len_kv, NULL, &s, error));
    result.flops = 2.0 * (double)batch * (double)l.heads_q * (double)len_q * (double)len_kv * (double)(l.head_dim + l.head_dim_v);
    for (int i = 0; i < PROJECTIONS; i++) {
        const projection *p = &l.projections[i];
        if (p->none) {
            if (p->at.bias) TRY(add_parameters(&result, p->heads * p->dim, 1, error));
            continue;
        }
        const double tokens = (double)batch * (double)(i == KEY || i == VALUE ? len_kv : len_q);
        TRY(add_parameters(&result, p->heads * p->dim, p->model, error));
        const int64_t biases = p->to_model ? p->model : p->heads * p->dim;
        if (p->at.bias) TRY(add_parameters(&result, biases, 1, error));
        result.flops += 2.0 * tokens * (double)(p->heads * p->dim) * (double)p->model;
    }
    if (l.extra_key) TRY(add_parameters(&result, l.heads_kv, l.head_dim + l.head_dim_v, error));
    result.cache_per_token = l.heads_kv * (l.head_dim_k + l.head_dim_v) * l.size;
    result.saved_bytes = s.bytes;
    TRY(struct_write(counts, &result, sizeof result, "attn_layer_counts", error));
    return succeed(error);
}

/* Written weights overlap neither each other nor those they are computed from; made: those of group_heads, or NULL. */
static attn_status check_no_overlap(const layer *l, const layer *made, attn_error *error)
{
    places p = {.size = (size_t)l->size};
    attn_places_add_weights(&p, "weights", l->weights, LAYER_WEIGHTS, !made);
    if (made) { /* keys and values, their biases, the extra key and value */
        attn_places_add_weights(&p, "grouped", &made->weights[KEY], 2, 1);
        attn_places_add_weights(&p, "grouped", &made->weights[PROJECTIONS + KEY], 2, 1);
        attn_places_add_weights(&p, "grouped", &made->weights[EXTRA_KEY], 2, 1);
    }
    return places_check(&p, "layer", error);
}

static double scale_of(const layer *l, const projection *p, attn_init init)
{
    const double width = (double)(p->heads * p->dim), model = (double)p->model;
    if (p->to_model) return draw_scale(init, width, model, model);
    if (init != ATTN_INIT_TORCH) return draw_scale(init, model, width, (double)p->dim);
    const int fused = l->inputs[QUERY] == l->inputs[KEY] && l->inputs[KEY] == l->inputs[VALUE];
    const int64_t rows = l->heads_q * l->head_dim + l->heads_kv * (l->head_dim + l->head_dim_v);
    return draw_scale(ATTN_INIT_XAVIER, model, fused ? (double)rows : width, 0);
}

attn_status attn_layer_initialise(const attn_layer *given, attn_init init, uint64_t seed, const attn_layer_weights *weights,
                                  attn_error *error)
{
    layer l;
    TRY(attn_layer_resolve(given, &l, error));
    CHECK(init >= ATTN_INIT_XAVIER && init <= ATTN_INIT_TORCH, ATTN_ERR_ARGUMENT, "layer: init (%d) is not an attn_init",
          (int)init);
    TRY(attn_layer_bind(&l, "weights", weights, WEIGHTS_STARTED, error));
    TRY(check_no_overlap(&l, NULL, error));
    for (int i = 0; i < PROJECTIONS; i++) {
        const projection *p = &l.projections[i];
        const double reach = scale_of(&l, p, init);
        uint64_t counter = (uint64_t)i << 60;
        for (int64_t h = 0; h < p->heads && !p->none; h++)
            for (int64_t c = 0; c < p->dim; c++)
                for (int64_t m = 0; m < p->model; m++, counter++)
                    number_put(&l, p->at.weight, h * p->at.stride_head + c * p->at.stride_channel + m * p->at.stride_model,
                               draw_number(init, reach, seed, counter));
        const int64_t biases = p->to_model ? p->model : p->heads * p->dim;
        for (int64_t c = 0; p->at.bias && c < biases; c++) number_put(&l, p->at.bias, c, 0);
    }
    /* the extra key and value: normal, as in PyTorch, with the standard deviation of Xavier's rule for one row */
    char *const extras[] = {l.extra_key, l.extra_value};
    for (int i = 0; i < 2; i++) {
        const int64_t width = l.heads_kv * (i ? l.head_dim_v : l.head_dim);
        for (int64_t c = 0; extras[i] && c < width; c++)
            number_put(&l, extras[i], c,
                       sqrt(2 / (1 + (double)width)) * draw_normal(seed, ((uint64_t)(PROJECTIONS + i) << 60) + (uint64_t)c));
    }
    return succeed(error);
}

/* Averages the heads of a projection in groups: `to` has fewer heads than `from`. */
static void average_heads(const layer *l, const projection *from, const projection *to)
{
    const int64_t n = from->heads / to->heads;
    for (int64_t g = 0; g < to->heads; g++)
        for (int64_t c = 0; c < from->dim; c++) {
            for (int64_t m = 0; m < from->model; m++) {
                double sum = 0;
                for (int64_t h = g * n; h < g * n + n; h++)
                    sum += number_get(l, from->at.weight,
                                      h * from->at.stride_head + c * from->at.stride_channel + m * from->at.stride_model);
                number_put(l, to->at.weight, g * to->at.stride_head + c * to->at.stride_channel + m * to->at.stride_model,
                           sum / (double)n);
            }
            double sum = 0;
            for (int64_t h = g * n; from->at.bias && h < g * n + n; h++) sum += number_get(l, from->at.bias, h * from->dim + c);
            if (from->at.bias && to->at.bias) number_put(l, to->at.bias, g * from->dim + c, sum / (double)n);
        }
}

/* The same for the extra key or value: from `heads` heads to `groups`. */
static void average_extra(const layer *l, const char *from, char *to, int64_t heads, int64_t groups, int64_t dim)
{
    for (int64_t i = 0; from && to && i < groups * dim; i++) {
        double sum = 0;
        for (int64_t h = 0; h < heads / groups; h++) sum += number_get(l, from, (i / dim * (heads / groups) + h) * dim + i % dim);
        number_put(l, to, i, sum / (double)(heads / groups));
    }
}

attn_status attn_layer_group_heads(const attn_layer *given, int64_t groups, const attn_layer_weights *weights,
                                   const attn_layer_weights *grouped, attn_error *error)
{
    layer from, to;
    TRY(attn_layer_resolve(given, &from, error));
    TRY(attn_layer_bind(&from, "weights", weights, WEIGHTS_READ, error));
    CHECK(groups >= 1 && from.heads_kv % groups == 0, ATTN_ERR_SHAPE,
          "layer: heads_kv (%" PRId64 ") is not a multiple of groups (%" PRId64 ")", from.heads_kv, groups);
    for (int i = KEY; i <= VALUE; i++)
        CHECK(!from.projections[i].none, ATTN_ERR_ARGUMENT, "layer: no_%s is set; there are no heads to average",
              from.projections[i].name);
    to = from;
    to.projections[KEY].heads = to.projections[VALUE].heads = groups;
    TRY(attn_layer_bind(&to, "grouped", grouped, WEIGHTS_OPTIONAL, error));
    for (int i = KEY; i <= VALUE; i++)
        CHECK(to.projections[i].at.weight, ATTN_ERR_ARGUMENT, "layer: grouped.%s is missing", to.projections[i].name);
    TRY(check_no_overlap(&from, &to, error));
    for (int i = KEY; i <= VALUE; i++) average_heads(&from, &from.projections[i], &to.projections[i]);
    average_extra(&from, from.extra_key, to.extra_key, from.heads_kv, groups, from.head_dim);
    average_extra(&from, from.extra_value, to.extra_value, from.heads_kv, groups, from.head_dim_v);
    return succeed(error);
}
