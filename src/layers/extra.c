/* SPDX-License-Identifier: MIT
 *
 * extra.c - the extra key of a layer.  No mask of the other keys concerns it, so the attention runs over these alone, and the extra
 * key is merged into the result as a part of its own (attn_merge's formula, with one key).  Backward, the attention is given the
 * merged output and lse: its weights and its delta are then those among all keys, and only the extra key's own terms are left.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "layer.h"

attn_status extra_check(const layer *l, const attn_problem *problem, attn_error *error)
{
    const attn_want *w = &problem->want;
    (void)l;
    CHECK(problem->score.kind == ATTN_SCORE_DOT, ATTN_ERR_UNSUPPORTED,
          "layer: an extra key is scored by dot products; attention.score.kind is %d", (int)problem->score.kind);
    CHECK(problem->score.normaliser == ATTN_NORMALISER_SOFTMAX || problem->score.normaliser == ATTN_NORMALISER_SOFTMAX_ONE,
          ATTN_ERR_UNSUPPORTED, "layer: an extra key joins a softmax; attention.score.normaliser is %d",
          (int)problem->score.normaliser);
    CHECK(problem->mask.empty == ATTN_EMPTY_ZERO, ATTN_ERR_ARGUMENT,
          "layer: attention.mask.empty is uniform; with an extra key no query sees none");
    const struct {
        const char *name;
        int wanted;
    } others[] = {{"scores", w->scores}, {"rows", w->rows}, {"topk", w->topk != 0}, {"column_sum", w->column_sum}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        CHECK(!others[i].wanted, ATTN_ERR_UNSUPPORTED, "layer: attention.want.%s is not available with an extra key",
              others[i].name);
    CHECK((!w->entropy && !w->effective_keys) || (!problem->bias.sink && problem->score.normaliser == ATTN_NORMALISER_SOFTMAX),
          ATTN_ERR_UNSUPPORTED, "layer: attention.want.%s is not available with an extra key beside a sink or another normaliser",
          w->entropy ? "entropy" : "effective_keys");
    return ATTN_OK;
}

/* The rows of sequence b: where they begin, and how many are real. */
static int64_t first_of(const extent *e, int64_t b) { return e->packed ? index_at(e->begin_q, e->index_dtype, b) : 0; }

static int64_t real_rows(const extent *e, const attn_problem *problem, const attn_args *core, int64_t b)
{
    if (e->packed) return index_at(e->begin_q, e->index_dtype, b + 1) - first_of(e, b);
    return problem->mask.lengths_q ? index_at(core->lengths_q, problem->mask.index_dtype, b) : e->len_q;
}

/* Token t of the memory, in the order of lse. */
static int64_t place_of(const layer *l, const extent *e, int64_t b, int64_t h, int64_t t)
{
    return ((e->packed ? 0 : b) * l->heads_q + h) * e->tokens_q + t;
}

int64_t extra_row(const layer *l, const extent *e, int64_t b, int64_t h, int64_t i)
{
    if (e->packed && i >= index_at(e->begin_q, e->index_dtype, b + 1) - first_of(e, b)) return -1;
    return place_of(l, e, b, h, first_of(e, b) + i);
}

/* The score of the extra key: scale q.k / temperature under the softcap; *slope is its derivative by scale q.k. */
static double score_of(const layer *l, const attn_problem *problem, const attn_args *core, const void *q, int64_t at, int64_t h,
                       double *product, double *scale, double *slope)
{
    const int64_t g = h / (l->heads_q / l->heads_kv);
    const double temperature = problem->score.temperature > 0 ? problem->score.temperature : 1, cap = problem->score.softcap;
    *scale = problem->score.scale_kind == ATTN_SCALE_VALUE      ? problem->score.scale
             : problem->score.scale_kind == ATTN_SCALE_PER_HEAD ? number_get(l, core->scale, h)
                                                                : 1 / sqrt((double)l->head_dim);
    *product = 0;
    for (int64_t c = 0; c < l->head_dim; c++)
        *product += number_get(l, q, at + c) * number_get(l, l->extra_key, g * l->head_dim + c);
    const double x = *scale * *product / temperature, capped = cap > 0 ? tanh(x / cap) : 0;
    *slope = (1 - capped * capped) / temperature;
    return cap > 0 ? cap * capped : x;
}

/* Row t of the memory, head h, as [token, head, channel]. */
static int64_t row_at(const layer *l, const extent *e, int64_t b, int64_t t, int64_t h, int64_t dim)
{
    return (((e->packed ? 0 : b) * e->tokens_q + t) * l->heads_q + h) * dim;
}

attn_status extra_weigh(const layer *l, const attn_layer_args *args, const extent *e, const attn_problem *problem,
                        const attn_args *core, const saved *s, extra *x, attn_error *error)
{
    const int64_t rows = e->entries * l->heads_q * e->tokens_q;
    *x = (extra){0};
    if (!l->extra_key) return ATTN_OK;
    TRY(memory_take(args->options, 3 * rows * (int64_t)sizeof(double), &x->memory, error));
    x->factor = (double *)x->memory;
    x->weight = x->factor + rows;
    x->lse = x->weight + rows;
    for (int64_t n = 0; n < rows; n++) x->factor[n] = 1, x->weight[n] = 0;
    for (int64_t b = 0; b < e->batch; b++)
        for (int64_t i = 0; i < real_rows(e, problem, core, b); i++)
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

/* Multiplies row (b, h, i) of the weights that the caller wants. */
static void scale_weights(const layer *l, const extent *e, const attn_problem *problem, const attn_args *core, int64_t b, int64_t h,
                          int64_t i, double factor)
{
    const attn_layout *at = &problem->want.weights_layout;
    int64_t stride[3] = {at->stride[0], at->stride[1], at->stride[2]};
    if (!stride[0] && !stride[1] && !stride[2] && !at->stride[3])
        stride[2] = e->len_kv, stride[1] = e->len_q * stride[2], stride[0] = l->heads_q * stride[1];
    const attn_dtype dtype = at->dtype ? at->dtype : l->dtype;
    char *row = (char *)core->weights + (b * stride[0] + h * stride[1] + i * stride[2]) * (int64_t)attn_dtype_size(dtype);
    for (int64_t j = 0; j < e->len_kv; j++, row += attn_dtype_size(dtype)) {
        double w;
        attn_convert(&w, ATTN_F64, row, dtype, 1);
        w *= factor;
        attn_convert(row, dtype, &w, ATTN_F64, 1);
    }
}

/* A statistic of row t, which lies like lse; NULL where it is not wanted. */
static char *statistic(const layer *l, const extent *e, int wanted, const attn_layout *layout, void *data, int64_t b, int64_t h,
                       int64_t t)
{
    const int64_t *s = layout->stride;
    const int dense = !s[0] && !s[1] && !s[2] && !s[3];
    const int64_t at = dense ? place_of(l, e, b, h, t) : (e->packed ? 0 : b) * s[0] + h * s[1] + t * s[2];
    return wanted ? (char *)data + at * l->size : NULL;
}

/* The weights of the others are multiplied by f and one more, w, joins them: their entropy H becomes f (H - log f) - w log w. */
static void merge_statistics(const layer *l, const extent *e, const attn_want *want, const attn_args *core, const extra *x,
                             int64_t b, int64_t h, int64_t t)
{
    const int64_t n = place_of(l, e, b, h, t);
    const double f = x->factor[n], w = x->weight[n];
    char *const most = statistic(l, e, want->row_max, &want->row_max_layout, core->row_max, b, h, t),
                *const entropy = statistic(l, e, want->entropy, &want->entropy_layout, core->entropy, b, h, t),
                *const keys = statistic(l, e, want->effective_keys, &want->effective_keys_layout, core->effective_keys, b, h, t);
    if (most) number_put(l, most, 0, fmax(number_get(l, most, 0), x->lse[n] + log(w)));
    if (!entropy && !keys) return;
    const double of_others = f <= 0 ? 0 : f * ((entropy ? number_get(l, entropy, 0) : log(number_get(l, keys, 0))) - log(f)),
                 all = of_others - (w > 0 ? w * log(w) : 0);
    if (entropy) number_put(l, entropy, 0, all);
    if (keys) number_put(l, keys, 0, exp(all));
}

void extra_merge(const layer *l, const extent *e, const attn_problem *problem, const attn_args *core, const saved *s,
                 const extra *x)
{
    for (int64_t b = 0; b < e->batch; b++)
        for (int64_t i = 0; i < real_rows(e, problem, core, b); i++)
            for (int64_t h = 0; h < l->heads_q; h++) {
                const int64_t t = first_of(e, b) + i, n = place_of(l, e, b, h, t), at = row_at(l, e, b, t, h, l->head_dim_v),
                              value = h / (l->heads_q / l->heads_kv) * l->head_dim_v;
                for (int64_t c = 0; c < l->head_dim_v; c++)
                    number_put(l, s->a, at + c,
                               x->factor[n] * number_get(l, s->a, at + c) +
                                   x->weight[n] * number_get(l, l->extra_value, value + c));
                number_put(l, s->lse, n, x->lse[n]);
                merge_statistics(l, e, &problem->want, core, x, b, h, t);
                if (problem->want.weights) scale_weights(l, e, problem, core, b, h, i, x->factor[n]);
            }
}

attn_status extra_backward(const layer *l, const attn_layer_args *args, const extent *e, const attn_problem *problem,
                           const attn_args *core, const saved *s, char *grad_key, char *grad_value, attn_error *error)
{
    const int64_t keys = l->heads_kv * l->head_dim, values = l->heads_kv * l->head_dim_v;
    char *memory;
    if (!l->extra_key) return ATTN_OK;
    TRY(memory_take(args->options, (keys + values + l->heads_q) * (int64_t)sizeof(double), &memory, error));
    double *const dk = (double *)memory, *const dv = dk + keys, *const dscale = dv + values;
    memset(memory, 0, (size_t)(keys + values + l->heads_q) * sizeof(double));
    for (int64_t b = 0; b < e->batch; b++)
        for (int64_t i = 0; i < real_rows(e, problem, core, b); i++)
            for (int64_t h = 0; h < l->heads_q; h++) {
                const int64_t t = first_of(e, b) + i, n = place_of(l, e, b, h, t), g = h / (l->heads_q / l->heads_kv),
                              q = row_at(l, e, b, t, h, l->head_dim), a = row_at(l, e, b, t, h, l->head_dim_v);
                double product, scale, slope, along = 0;
                const double score = score_of(l, problem, core, s->q, q, h, &product, &scale, &slope),
                             weight = exp(score - number_get(l, s->lse, n));
                for (int64_t c = 0; c < l->head_dim_v; c++) {
                    const double up = number_get(l, core->grad_o, a + c);
                    along += up * (number_get(l, l->extra_value, g * l->head_dim_v + c) - number_get(l, s->a, a + c));
                    dv[g * l->head_dim_v + c] += weight * up;
                }
                if (problem->gradients.lse) along += number_get(l, core->grad_lse, n);
                const double dx = weight * along * slope;
                for (int64_t c = 0; c < l->head_dim; c++) {
                    const double moved = dx * scale * number_get(l, l->extra_key, g * l->head_dim + c);
                    dk[g * l->head_dim + c] += dx * scale * number_get(l, s->q, q + c);
                    number_put(l, core->grad_q, q + c, number_get(l, core->grad_q, q + c) + moved);
                }
                dscale[h] += dx * product;
            }
    for (int64_t c = 0; grad_key && c < keys; c++) number_put(l, grad_key, c, dk[c]);
    for (int64_t c = 0; grad_value && c < values; c++) number_put(l, grad_value, c, dv[c]);
    for (int64_t h = 0; problem->gradients.scale && h < l->heads_q; h++)
        number_put(l, core->grad_scale, h, number_get(l, core->grad_scale, h) + dscale[h]);
    memory_give(args->options, memory);
    return ATTN_OK;
}
