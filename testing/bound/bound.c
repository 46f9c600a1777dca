/* SPDX-License-Identifier: MIT
 * bound.c - the error bound of docs/numerics.md; the names of its terms are those of that page. */
#include "bound.h"

#include <float.h>
#include <math.h>

static const double exp_error = 4;     /* exp(d) is accurate to 2 units in the last place, hence to 4 u, */
static const double exp_slope = 1.1;   /* plus 0.05 |d|; and d itself is rounded */
static const double log_error = 4;     /* log: 2 units in the last place */
static const double tanh_error = 16;   /* x / cap, tanh and its product with cap, relative to the capped score */
static const double cut_query = 2.01;  /* half a fixed-point unit: the largest |q_c| has at least 2^22 of them, */
static const double cut_weight = 1.01; /* the largest weight times its scale 2^23 */
static const double lag = 5.5;         /* the running maximum may lag behind the true one by this much */

/* Relative error of n successive roundings. */
static double gamma_of(double n, double unit) { return n * unit < 0.5 ? n * unit / (1 - n * unit) : INFINITY; }

bound_model bound_model_of(attn_dtype compute, int64_t dim_qk, int64_t len_kv, int64_t block_kv)
{
    int wide = compute == ATTN_F64;
    return (bound_model){.unit = wide ? DBL_EPSILON / 2 : (double)FLT_EPSILON / 2,
                         .normal = wide ? DBL_MIN : (double)FLT_MIN,
                         .denormal = wide ? DBL_TRUE_MIN : (double)FLT_TRUE_MIN,
                         .dim_qk = dim_qk,
                         .len_kv = len_kv,
                         .block_kv = block_kv};
}

double bound_lost(const bound_model *model, double scale, double sum_q, double sum_k, double sum_qk)
{
    const double dim = (double)model->dim_qk;
    double lost = model->denormal * ((model->scaled ? sum_q : 0) + sum_k + sum_qk + dim + model->scaled);
    if (model->bf16) lost += model->normal * (sum_q + fabs(scale) * (sum_k + dim)); /* of a factor, and of each intermediate sum */
    return lost;
}

double bound_cut(const bound_model *model, double max_q, double sum_k)
{
    return model->fixed_point ? cut_query * model->unit * max_q * sum_k : 0;
}

double bound_score(const bound_model *model, attn_stage stage, double dot, double lost, double S, double added)
{
    const double u = model->unit, u_ref = DBL_EPSILON / 2;
    const double roundings = (double)(model->dim_qk + 2 + model->scaled);
    double e = (gamma_of(roundings, u) + gamma_of(roundings, u_ref)) * dot + lost;
    if (model->softcap > 0 && stage >= ATTN_STAGE_CAPPED) { /* the slope of tanh is at most 1 */
        e += tanh_error * (u + u_ref) * fmin(dot, model->softcap);
        e = fmin(e, 2 * model->softcap);
    }
    if (stage >= ATTN_STAGE_BIASED) e += model->additions * (u + u_ref) * (fabs(S) + added + e);
    return e;
}

/* The error of a score, in the compute type and in the reference together. */
static double score_error(const bound_model *model, const bound_row *row, int64_t j)
{
    return bound_score(model, ATTN_STAGE_BIASED, row->dot[j], row->lost[j], row->S[j], row->added ? row->added[j] : 0);
}

/* Log-error of the exponential of a score that lies `below` the maximum. */
static double exponent_error(const bound_model *model, double below)
{
    return model->unit * (exp_error + exp_slope * fmax(lag, below)) + DBL_EPSILON / 2 * (exp_error + below);
}

/* The accumulator is rescaled each time the maximum grows by more than the lag, and when parts are merged. */
static double rescale_error(const bound_model *model, double below, double blocks, double parts)
{
    if (blocks <= 1) return 0;
    return model->unit * (exp_error * fmin(blocks - 1, below / lag + 1 + parts) + exp_slope * (below + lag));
}

/* Roundings that a sum over keys applies to one of its terms: within a block, and when blocks are added.  With bands
 * (relative values), the keys beyond an end of the table are summed first, over a block of keys; then the rows of the band of 128
 * keys and a tile of queries are added one by one, in one chain. */
static double roundings_of_sum(const bound_model *model, double visible, double blocks)
{
    const double block = fmin((double)model->block_kv, visible), bands = (double)model->block_kv / 128 + 3;
    return block + 2 * blocks + (model->bands ? block + 256 + bands * blocks : 0);
}

static int is_elementwise(const bound_model *model) { return model->normaliser >= ATTN_NORMALISER_SIGMOID; }

/* The sigmoid: the slope of its logarithm is at most 1, and there are roundings of the shift, of the shifted score, of an
 * exponential, a sum, a quotient and a product.  ReLU has the error of the score.  Neither has a divisor, hence no error of one. */
static void prepare_elementwise(const bound_model *model, const bound_row *row, bound_weights *weights)
{
    const double u = model->unit, u_ref = DBL_EPSILON / 2;
    const int relu = model->normaliser == ATTN_NORMALISER_RELU;
    for (int64_t j = 0; j < model->len_kv; j++) {
        if (row->S[j] == -INFINITY) continue;
        const double e = score_error(model, row, j), x = row->S[j] + model->shift;
        if (relu) {
            weights->P[j] = fmax(row->S[j], 0) / weights->shared;
            weights->low[j] = fmax(row->S[j] - e, 0) / weights->shared;
            weights->high[j] = fmax(row->S[j] + e, 0) / weights->shared;
            weights->own[j] = fmax(e, model->denormal);
            continue;
        }
        weights->own[j] = e + (u + u_ref) * (fabs(x) + fabs(model->shift) + exp_error + exp_slope * fabs(x) + 3);
        weights->P[j] = x > 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x));
        weights->low[j] = weights->P[j] * exp(-weights->own[j]);
        weights->high[j] = fmin(weights->P[j] * exp(weights->own[j]), 1);
    }
}

/* exp(log_weight), exp(log_weight - eps), exp(log_weight + eps): by one exponential where eps is small, as it is for almost all
 * keys. */
static void weigh(double log_weight, double eps, double *weight, double *low, double *high)
{
    *weight = exp(log_weight);
    if (eps < 1e-3 && *weight > 0x1p-1000) {
        const double grown = eps * (1 + eps / 2 * (1 + eps / 3 * (1 + eps / 4 * (1 + eps / 5)))); /* exp(eps) - 1 */
        *low = *weight / (1 + grown);
        *high = *weight + *weight * grown;
    } else {
        *low = exp(log_weight - eps);
        *high = exp(log_weight + eps);
    }
}

void bound_prepare(const bound_model *model, const bound_row *row, bound_weights *weights)
{
    const double u = model->unit, u_ref = DBL_EPSILON / 2;
    const int64_t n = model->len_kv;
    double visible = 0, top = -INFINITY, e_max = 0;
    for (int64_t j = 0; j < n; j++) {
        weights->P[j] = weights->low[j] = weights->high[j] = weights->own[j] = 0;
        if (row->S[j] == -INFINITY) continue;
        visible += 1;
        top = fmax(top, row->S[j]);
        e_max = fmax(e_max, score_error(model, row, j));
    }
    weights->visible = visible;
    weights->shared = model->normaliser == ATTN_NORMALISER_RELU ? visible : 1;
    weights->sum_low = weights->sum_high = weights->log_error = weights->flushed = weights->summing = weights->sink_moved = 0;
    weights->value_scale = row->value_scale;
    weights->max_scaled = 0;
    if (visible == 0) return;
    top = fmax(top, row->sink);

    /* Split-KV: with few queries and 8 blocks or more, blocks may be dealt to parts of 4 or more, whose states are then merged. */
    const double all_blocks = ceil((double)n / (double)model->block_kv), parts = all_blocks >= 8 ? floor(all_blocks / 4) : 0;
    const double blocks = fmin(all_blocks, visible);
    weights->summing = gamma_of(roundings_of_sum(model, visible, blocks), u) + gamma_of(visible + 1, u_ref);
    weights->flushed = model->normal * (visible + 2 * blocks + 2); /* the largest weight is 1 or more */
    if (is_elementwise(model)) {
        prepare_elementwise(model, row, weights);
        return;
    }
    for (int64_t j = 0; j < n; j++) {
        if (row->S[j] == -INFINITY) continue;
        const double below = top - row->S[j] + 2 * e_max; /* distance of the score below the largest one */
        weights->own[j] = score_error(model, row, j) + exponent_error(model, below);
        const double eps = weights->own[j] + rescale_error(model, below, blocks, parts), log_weight = row->S[j] - row->lse;
        weigh(log_weight, eps, &weights->P[j], &weights->low[j], &weights->high[j]);
        weights->sum_low += weights->low[j];
        weights->sum_high += weights->high[j];
        if (weights->high[j] > 0) weights->log_error = fmax(weights->log_error, eps);
        if (row->value_scale) weights->max_scaled = fmax(weights->max_scaled, weights->high[j] * fabs(row->value_scale[j]));
    }
    if (row->sink > -INFINITY) { /* a key with an exact score and the value 0 */
        const double below = top - row->sink + 2 * e_max, log_weight = row->sink - row->lse;
        const double eps = exponent_error(model, below) + rescale_error(model, below, blocks, parts);
        double weight, low, high;
        weigh(log_weight, eps, &weight, &low, &high);
        weights->sink_moved = high - weight;
        weights->sum_low += low;
        weights->sum_high += high;
        weights->log_error = fmax(weights->log_error, eps);
    }
}

double bound_storage(attn_dtype storage, double size)
{
    if (storage == ATTN_F16) return 0x1p-11 * fabs(size) + 0x1p-25;
    if (storage == ATTN_BF16) return 0x1p-8 * fabs(size) + 0x1p-134;
    return 0;
}

void bound_begin_sums(const bound_model *model, const double *o, bound_sums *sums)
{
    for (int64_t c = 0; c < sums->dim; c++) {
        sums->centre[c] = is_elementwise(model) ? 0 : o[c];
        sums->moved[c] = sums->mass[c] = sums->farthest[c] = sums->largest[c] = sums->integers[c] = 0;
    }
}

void bound_add_key(const bound_model *model, const bound_weights *weights, int64_t j, const double *v, const double *size,
                   bound_sums *sums)
{
    if (weights->own[j] == 0) return; /* not visible */
    const double high = weights->high[j], up = high - weights->P[j], down = weights->P[j] - weights->low[j];
    const double step = is_elementwise(model) ? fmax(up, down) : up;
    const double *restrict centre = sums->centre;
    double *restrict moved = sums->moved, *restrict mass = sums->mass;
    double *restrict farthest = sums->farthest, *restrict largest = sums->largest;
    for (int64_t c = 0; c < sums->dim; c++) {
        const double away = fabs(v[c] - centre[c]);
        moved[c] += step * away;
        mass[c] += high * size[c];
        farthest[c] = away > farthest[c] ? away : farthest[c];
        largest[c] = size[c] > largest[c] ? size[c] : largest[c];
    }
    if (weights->max_scaled > 0)
        for (int64_t c = 0; c < sums->dim; c++)
            if (v[c] != 0) sums->integers[c] += fabs(v[c] / weights->value_scale[j]);
}

/* A sum over keys, divided by a number of keys, which is exact. */
static double output_elementwise(const bound_model *model, const bound_weights *weights, const bound_sums *sums, int64_t c)
{
    const double divide = gamma_of(2 + model->dropout + model->scaled, model->unit) + gamma_of(2, DBL_EPSILON / 2);
    return sums->moved[c] + (weights->summing + divide) * (1 + weights->summing) * sums->mass[c] +
           2 * weights->flushed * sums->largest[c] + model->denormal * (2 * weights->visible + 5);
}

double bound_output(const bound_model *model, const bound_weights *weights, const bound_sums *sums, int64_t c, double o)
{
    if (weights->visible == 0) return 0;
    if (is_elementwise(model)) return output_elementwise(model, weights, sums, c);
    double moved = sums->moved[c], mass = sums->mass[c], farthest = sums->farthest[c];
    if (weights->sink_moved > 0) {
        moved += weights->sink_moved * fabs(o);
        farthest = fmax(farthest, fabs(o));
    }
    /* Whatever the weights are, the output is a mean of the values and stays within their range. */
    moved /= weights->sum_low;
    mass /= weights->sum_low;
    if (!(moved < farthest)) moved = farthest;
    if (!(mass < sums->largest[c])) mass = sums->largest[c];

    const double divide = gamma_of(2 + model->dropout + model->scaled, model->unit) + gamma_of(1, DBL_EPSILON / 2);
    double bound = moved + (2 * weights->summing + divide) * (1 + 2 * weights->summing) * mass;
    /* The product of a weight and a scale may be off by half the smallest number; that error is then multiplied by up to 127. */
    const double lost = model->denormal * ((model->scaled ? 66 : 2) * weights->visible + 5);
    const double cut =
        cut_weight * model->unit * weights->max_scaled / weights->sum_low * (1 + 2 * weights->summing) * sums->integers[c];
    return bound + 2 * weights->flushed * sums->largest[c] + lost + cut;
}

double bound_lse(const bound_model *model, const bound_weights *weights, double lse)
{
    if (weights->visible == 0) return 0;
    const double u = model->unit, u_ref = DBL_EPSILON / 2;
    if (is_elementwise(model))
        return (u + u_ref) * log_error * (lse > 0 ? fmax(1, lse) : 0); /* log of a number of keys; log 1 is exact */
    double weight_error = fmax(log(weights->sum_high), -log(weights->sum_low));
    if (!(weight_error < weights->log_error)) weight_error = weights->log_error;
    const double last = log_error * fmax(1, log(weights->visible) + lag) + fabs(lse); /* log(l), and m + log(l) */
    return weight_error + 2 * weights->summing + weights->flushed + (u + u_ref) * last;
}

double bound_weight(const bound_model *model, const bound_weights *weights, int64_t j)
{
    if (weights->own[j] == 0) return 0;
    if (is_elementwise(model)) {
        const double weight = weights->P[j], away = fmax(weights->high[j] - weight, weight - weights->low[j]);
        return away + gamma_of(2, model->unit) * weights->high[j] + 2 * weights->flushed + 2 * model->denormal;
    }
    const double P = weights->P[j], sums = 1 + 2 * weights->summing;
    const double up = P * exp(weights->own[j]) / weights->sum_low * sums;
    const double down = P * exp(-weights->own[j]) / weights->sum_high / sums;
    double bound = fmax(up - P, P - down);
    if (!(bound < fmax(P, 1 - P))) bound = fmax(P, 1 - P); /* a weight is always within [0, 1] */
    return bound + gamma_of(2, model->unit) * (P + bound) + 2 * weights->flushed + 2 * model->denormal;
}
