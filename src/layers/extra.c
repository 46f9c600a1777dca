/* SPDX-License-Identifier: MIT
 *
 * extra.c - the extra key of a layer.  No mask applies to it, so the attention runs over the other keys only, and the extra key is
 * merged into the result as a separate part (attn_merge's formula, with one key).  Backward gets the merged output and lse: its
 * weights and delta are then those over all keys, and only the extra key's own terms remain to be added.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "layer.h"

attn_status attn_extra_check(const layer *l, const attn_problem *problem, const attn_tensors *core, attn_error *error)
{
    (void)l;
    CHECK(problem->score.kind == ATTN_SCORE_DOT, ATTN_ERR_UNSUPPORTED,
          "layer: an extra key is scored by dot products; attention.score.kind is %d", (int)problem->score.kind);
    CHECK(problem->score.normaliser == ATTN_NORMALISER_SOFTMAX || problem->score.normaliser == ATTN_NORMALISER_SOFTMAX_ONE,
          ATTN_ERR_UNSUPPORTED, "layer: an extra key joins a softmax; attention.score.normaliser is %d",
          (int)problem->score.normaliser);
    CHECK(problem->mask.empty == ATTN_EMPTY_ZERO, ATTN_ERR_ARGUMENT,
          "layer: attention.mask.empty is uniform; with an extra key, every query sees a key");
    const struct {
        const char *name;
        int there;
    } others[] = {{"scores", core->scores.data != NULL},
                  {"visit_rows", core->call && core->call->visit_rows},
                  {"topk_index", core->topk_index.data != NULL},
                  {"topk_weight", core->topk_weight.data != NULL},
                  {"column_sum", core->column_sum.data != NULL}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        CHECK(!others[i].there, ATTN_ERR_UNSUPPORTED, "layer: attention.%s is not available with an extra key", others[i].name);
    CHECK((!core->entropy.data && !core->effective_keys.data) ||
              (!core->sink.data && problem->score.normaliser == ATTN_NORMALISER_SOFTMAX),
          ATTN_ERR_UNSUPPORTED, "layer: attention.%s is not available with an extra key and a sink or another normaliser",
          core->entropy.data ? "entropy" : "effective_keys");
    return ATTN_OK;
}

/* The rows of sequence b: the first one, and their number without padding. */
static int64_t first_of(const extent *e, int64_t b) { return e->packed ? attn_layer_index_at(e->begin_q, b) : 0; }

/* Those that may have rows. */
static int64_t sequences(const extent *e) { return e->tokens_q > 0 ? e->batch : 0; }

static int64_t real_rows(const extent *e, const attn_tensors *core, int64_t b)
{
    if (e->packed) return attn_layer_index_at(e->begin_q, b + 1) - first_of(e, b);
    return core->lengths_q.data ? attn_layer_index_at(&core->lengths_q, b) : e->len_q;
}

/* The index of token t of the memory in lse. */
static int64_t place_of(const layer *l, const extent *e, int64_t b, int64_t h, int64_t t)
{
    return ((e->packed ? 0 : b) * l->heads_q + h) * e->tokens_q + t;
}

int64_t attn_extra_row(const layer *l, const extent *e, int64_t b, int64_t h, int64_t i)
{
    if (e->packed && i >= attn_layer_index_at(e->begin_q, b + 1) - first_of(e, b)) return -1;
    return place_of(l, e, b, h, first_of(e, b) + i);
}

/* The score of the extra key: scale q.k / temperature, softcapped; *slope: its derivative with respect to scale q.k. */
static double score_of(const layer *l, const attn_problem *problem, const attn_tensors *core, const void *q, int64_t at, int64_t h,
                       double *product, double *scale, double *slope)
{
    const int64_t g = h / (l->heads_q / l->heads_kv);
    const double temperature = problem->score.temperature > 0 ? problem->score.temperature : 1, cap = problem->score.softcap;
    *scale = problem->score.scale_kind == ATTN_SCALE_VALUE ? problem->score.scale
             : core->scale.data                            ? number_get(l, core->scale.data, h)
                                                           : 1 / sqrt((double)l->head_dim);
    *product = 0;
    for (int64_t c = 0; c < l->head_dim; c++)
        *product += number_get(l, q, at + c) * number_get(l, l->extra_key, g * l->head_dim + c);
    const double x = *scale * *product / temperature, capped = cap > 0 ? tanh(x / cap) : 0;
    *slope = (1 - capped * capped) / temperature;
    return cap > 0 ? cap * capped : x;
}

/* The index of row t of the memory, head h, in [token, head, channel]. */
static int64_t row_at(const layer *l, const extent *e, int64_t b, int64_t t, int64_t h, int64_t dim)
{
    return (((e->packed ? 0 : b) * e->tokens_q + t) * l->heads_q + h) * dim;
}

attn_status attn_extra_weights(const layer *l, const attn_layer_tensors *args, const extent *e, const attn_problem *problem,
                               const attn_tensors *core, const saved *s, extra *x, attn_error *error)
{
    const int64_t rows = e->entries * l->heads_q * e->tokens_q;
    *x = (extra){0};
    if (!l->extra_key) return ATTN_OK;
    TRY(attn_memory_acquire(args->options, 3 * rows * (int64_t)sizeof(double), &x->memory, error));
    x->factor = (double *)x->memory;
    x->weight = x->factor + rows;
    x->lse = x->weight + rows;
    for (int64_t n = 0; n < rows; n++) x->factor[n] = 1, x->weight[n] = 0;
    for (int64_t b = 0; b < sequences(e); b++)
        for (int64_t i = 0; i < real_rows(e, core, b); i++)
            for (int64_t h = 0; h < l->heads_q; h++) {
                const int64_t t = first_of(e, b) + i, n = place_of(l, e, b, h, t);
                double product, scale, slope;
                const double lse = number_get(l, s->lse, n),
                             score =
                                 score_of(l, problem, core, s->q, row_at(l, e, b, t, h, l->head_dim), h, &product, &scale, &slope),
                             largest = fmax(lse, score), all = largest + log(exp(lse - largest) + exp(score - largest));
                x->factor[n] = exp(lse - all);
                x->weight[n] = exp(score - all);
                x->lse[n] = all;
            }
    return ATTN_OK;
}

/* Multiplies row (b, h, i) of the caller's output of weights. */
static void scale_weights(const layer *l, const extent *e, const attn_tensors *core, int64_t b, int64_t h, int64_t i, double factor)
{
    const attn_output *at = &core->weights;
    int64_t stride[3] = {at->stride[0], at->stride[1], at->stride[2]};
    if (!stride[0] && !stride[1] && !stride[2] && !at->stride[3])
        stride[2] = e->len_kv, stride[1] = e->len_q * stride[2], stride[0] = l->heads_q * stride[1];
    const attn_dtype dtype = at->dtype ? at->dtype : l->dtype;
    char *row = (char *)at->data + (b * stride[0] + h * stride[1] + i * stride[2]) * (int64_t)attn_dtype_size(dtype);
    for (int64_t j = 0; j < e->len_kv; j++, row += attn_dtype_size(dtype)) {
        double w;
        (void)attn_convert(1, row, dtype, &w, ATTN_F64, NULL);
        w *= factor;
        (void)attn_convert(1, &w, ATTN_F64, row, dtype, NULL);
    }
}

/* A statistic of row t, laid out like lse; NULL if absent. */
static char *statistic(const layer *l, const extent *e, const attn_output *slot, int64_t b, int64_t h, int64_t t)
{
    const int64_t *s = slot->stride;
    const int dense = !s[0] && !s[1] && !s[2] && !s[3];
    const int64_t at = dense ? place_of(l, e, b, h, t) : (e->packed ? 0 : b) * s[0] + h * s[1] + t * s[2];
    return slot->data ? (char *)slot->data + at * l->size : NULL;
}

/* The weights of the other keys are multiplied by f, and a weight w joins them: the entropy H becomes f (H - log f) - w log w. */
static void merge_statistics(const layer *l, const extent *e, const attn_tensors *core, const extra *x, int64_t b, int64_t h,
                             int64_t t)
{
    const int64_t n = place_of(l, e, b, h, t);
    const double f = x->factor[n], w = x->weight[n];
    char *const most = statistic(l, e, &core->row_max, b, h, t), *const entropy = statistic(l, e, &core->entropy, b, h, t),
                *const keys = statistic(l, e, &core->effective_keys, b, h, t);
    if (most) number_put(l, most, 0, fmax(number_get(l, most, 0), x->lse[n] + log(w)));
    if (!entropy && !keys) return;
    const double of_others = f <= 0 ? 0 : f * ((entropy ? number_get(l, entropy, 0) : log(number_get(l, keys, 0))) - log(f)),
                 all = of_others - (w > 0 ? w * log(w) : 0);
    if (entropy) number_put(l, entropy, 0, all);
    if (keys) number_put(l, keys, 0, exp(all));
}

void attn_extra_merge(const layer *l, const extent *e, const attn_tensors *core, const saved *s, const extra *x)
{
    for (int64_t b = 0; b < sequences(e); b++)
        for (int64_t i = 0; i < real_rows(e, core, b); i++)
            for (int64_t h = 0; h < l->heads_q; h++) {
                const int64_t t = first_of(e, b) + i, n = place_of(l, e, b, h, t), at = row_at(l, e, b, t, h, l->head_dim_v),
                              value = h / (l->heads_q / l->heads_kv) * l->head_dim_v;
                for (int64_t c = 0; c < l->head_dim_v; c++)
                    number_put(l, s->a, at + c,
                               x->factor[n] * number_get(l, s->a, at + c) +
                                   x->weight[n] * number_get(l, l->extra_value, value + c));
                number_put(l, s->lse, n, x->lse[n]);
                merge_statistics(l, e, core, x, b, h, t);
                if (core->weights.data) scale_weights(l, e, core, b, h, i, x->factor[n]);
            }
}

attn_status attn_extra_backward(const layer *l, const attn_layer_tensors *args, const extent *e, const attn_problem *problem,
                                const attn_tensors *core, const saved *s, char *grad_key, char *grad_value, attn_error *error)
{
    const int64_t keys = l->heads_kv * l->head_dim, values = l->heads_kv * l->head_dim_v;
    char *memory;
    if (!l->extra_key) return ATTN_OK;
    TRY(attn_memory_acquire(args->options, (keys + values + l->heads_q) * (int64_t)sizeof(double), &memory, error));
    double *const dk = (double *)memory, *const dv = dk + keys, *const dscale = dv + values;
    memset(memory, 0, (size_t)(keys + values + l->heads_q) * sizeof(double));
    for (int64_t b = 0; b < sequences(e); b++)
        for (int64_t i = 0; i < real_rows(e, core, b); i++)
            for (int64_t h = 0; h < l->heads_q; h++) {
                const int64_t t = first_of(e, b) + i, n = place_of(l, e, b, h, t), g = h / (l->heads_q / l->heads_kv),
                              q = row_at(l, e, b, t, h, l->head_dim), a = row_at(l, e, b, t, h, l->head_dim_v);
                double product, scale, slope, along = 0;
                const double score = score_of(l, problem, core, s->q, q, h, &product, &scale, &slope),
                             weight = exp(score - number_get(l, s->lse, n));
                for (int64_t c = 0; c < l->head_dim_v; c++) {
                    const double up = number_get(l, core->grad_o.data, a + c);
                    along += up * (number_get(l, l->extra_value, g * l->head_dim_v + c) - number_get(l, s->a, a + c));
                    dv[g * l->head_dim_v + c] += weight * up;
                }
                if (core->grad_lse.data) along += number_get(l, core->grad_lse.data, n);
                const double dx = weight * along * slope;
                for (int64_t c = 0; c < l->head_dim; c++) {
                    const double moved = dx * scale * number_get(l, l->extra_key, g * l->head_dim + c);
                    dk[g * l->head_dim + c] += dx * scale * number_get(l, s->q, q + c);
                    number_put(l, core->grad_q.data, q + c, number_get(l, core->grad_q.data, q + c) + moved);
                }
                dscale[h] += dx * product;
            }
    for (int64_t c = 0; grad_key && c < keys; c++) number_put(l, grad_key, c, dk[c]);
    for (int64_t c = 0; grad_value && c < values; c++) number_put(l, grad_value, c, dv[c]);
    for (int64_t h = 0; core->grad_scale.data && h < l->heads_q; h++)
        number_put(l, core->grad_scale.data, h, number_get(l, core->grad_scale.data, h) + dscale[h]);
    attn_memory_release(args->options, memory);
    return ATTN_OK;
}
