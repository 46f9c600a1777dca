/* SPDX-License-Identifier: MIT
 * compare.c - compares outputs with the expectation, each number within its own bound. */
#include "compare.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn_bound.h"
#include "bound.h"

static double largest_number(attn_dtype dtype)
{
    switch (dtype) {
    case ATTN_F16:
        return 65504;
    case ATTN_BF16:
        return 0x1.fep127;
    case ATTN_F32:
        return 0x1.fffffep127;
    default:
        return 0x1.fffffffffffffp1023;
    }
}

/* Adds one number to the comparison; bound is that of bound.h. */
static void judge(comparison *c, const char *where, const int64_t at[4], double got, double expected, double bound,
                  attn_dtype dtype)
{
    const double largest = largest_number(dtype);
    const int same_infinity = isinf(got) && signbit(got) == signbit(expected);
    double fraction;
    if (isnan(expected)) {
        fraction = isnan(got) ? 0 : INFINITY;
    } else if (isinf(expected) || fabs(expected) - bound > 2 * largest) {
        fraction = same_infinity ? 0 : INFINITY;
    } else if (same_infinity && fabs(expected) + bound > largest) {
        fraction = 0; /* more than the storage type can hold */
    } else {
        /* The last rounding is known exactly, so it must not use up the bound. */
        const double error = fabs(got - expected), computed = fmax(error - bound_storage(dtype, got), 0);
        fraction = computed == 0 ? 0 : computed / bound;
        if (!(error >= 0)) fraction = INFINITY; /* NaN where a number was expected */
        if (strcmp(where, "lse") != 0 && strcmp(where, "weights") != 0 && error > c->error) c->error = error;
    }
    if (fraction > 1) c->failed = 1;
    if (fraction < c->fraction || (fraction == c->fraction && c->where)) return;
    *c = (comparison){.failed = c->failed,
                      .fraction = fraction,
                      .error = c->error,
                      .where = where,
                      .got = got,
                      .expected = expected,
                      .bound = bound + bound_storage(dtype, expected),
                      .at = {at[0], at[1], at[2], at[3]}};
}

/* A key with a NaN or infinite score makes the whole row NaN or infinite; no bound is computed then. */
static int row_is_finite(const expectation *e, int64_t row)
{
    if (e->ref.normaliser >= REF_BY_SIGMOID) return 1; /* elementwise weights do not depend on each other */
    const double *S = e->S + row * e->ref.Skv;
    for (int64_t j = 0; j < e->ref.Skv; j++)
        if (isnan(S[j]) || S[j] == INFINITY) return 0;
    return !isnan(e->lse[row]);
}

/* The weights of a NaN row must be NaN, too; but one that has underflowed relative to the others may be 0. */
static void compare_nan_weights(comparison *c, const expectation *e, const outputs *got, const int64_t at[4], int64_t first)
{
    const double faded = 80, *S = e->S + first;
    double top = -INFINITY;
    for (int64_t j = 0; j < e->ref.Skv; j++)
        if (S[j] > top) top = S[j];
    for (int64_t j = 0; j < e->ref.Skv; j++) {
        const double expected = S[j] < top - faded && got->P[first + j] == 0 ? 0 : e->P[first + j];
        judge(c, "weights", (int64_t[4]){at[0], at[1], at[2], j}, got->P[first + j], expected, 0, got->weights_dtype);
    }
}

/* A fully masked row with uniform weights (mask.empty uniform). */
static int is_uniform(const expectation *e, int64_t row)
{
    const double *S = e->S + row * e->ref.Skv, *P = e->P + row * e->ref.Skv;
    for (int64_t j = 0; j < e->ref.Skv; j++)
        if (S[j] != -INFINITY) return 0;
    return e->ref.Skv > 0 && P[0] > 0;
}

/* Treats it as a row whose scores are all 0.  scratch: two numbers for each key. */
static void prepare_uniform(const bound_model *model, const expectation *e, int64_t row, bound_weights *weights, double *scratch)
{
    const int64_t n = e->ref.Skv;
    const double *P = e->P + row * n;
    double *zero = scratch + n;
    for (int64_t j = 0; j < n; j++) {
        scratch[j] = P[j] > 0 ? 0 : -INFINITY;
        zero[j] = 0;
    }
    bound_prepare(model, &(bound_row){.S = scratch, .lse = -log(P[0]), .dot = zero, .lost = zero, .sink = -INFINITY}, weights);
}

/* |scale|, |scale| sum_c |q_c| and |scale| max_c |q_c|. */
typedef struct query_size {
    double scale, sum, most;
} query_size;

static query_size size_of_query(const expectation *e, int64_t row)
{
    const ref_problem *r = &e->ref;
    const double scale = r->scale_of_head ? r->scale_of_head[row / r->Sq % r->Hq] : r->scale;
    query_size q = {.scale = fabs(scale) / (r->temperature > 0 ? r->temperature : 1)};
    for (int64_t c = 0; c < r->D; c++) {
        q.sum += q.scale * fabs(e->ref.Q[row * r->D + c]);
        q.most = fmax(q.most, q.scale * fabs(e->ref.Q[row * r->D + c]));
    }
    return q;
}

/* What the score of a key may lose by underflow; sum_qk is sum_c |q_c k_jc|. */
static double lost_of(const bound_model *model, const query_size *q, double sum_k, double sum_qk)
{
    return bound_lost(model, q->scale, q->sum, sum_k, sum_qk);
}

/* The relative part of the value of key j for a query; NULL: none. */
static const double *relative_value(const ref_problem *r, const int64_t at[4], int64_t j)
{
    if (!r->relative_values) return NULL;
    int64_t t = at[2] + (r->offset ? r->offset[at[0]] : 0) - j - r->relative_first;
    t = t < 0 ? 0 : t >= r->relative_rows ? r->relative_rows - 1 : t;
    return r->relative_values + ((r->relative_of_each_head ? at[1] * r->relative_rows : 0) + t) * r->Dv;
}

/* Sums over the keys that the query sees, whose values may have a relative part and dropout's factor z.  sizes: |V|. */
static void sum_values(const expectation *e, const bound_model *model, const bound_weights *weights, const double *sizes,
                       bound_sums *sums, const int64_t at[4])
{
    const ref_problem *r = &e->ref;
    const int64_t row = (at[0] * r->Hq + at[1]) * r->Sq + at[2];
    const int64_t first = (at[0] * r->Hkv + at[1] / (r->Hq / r->Hkv)) * r->Skv * r->Dv;
    double *value = sums->integers + r->Dv, *size = value + r->Dv;
    bound_begin_sums(model, e->O + row * r->Dv, sums);
    for (int64_t j = 0; j < r->Skv; j++) {
        const double z = r->Z ? r->Z[row * r->Skv + j] : 1, *table = relative_value(r, at, j);
        const double *V = e->ref.V + first + j * r->Dv, *size_of_v = sizes + first + j * r->Dv;
        if (!table && z == 1) {
            bound_add_key(model, weights, j, V, size_of_v, sums);
            continue;
        }
        for (int64_t c = 0; c < r->Dv; c++) {
            value[c] = z == 0 ? 0 : z * (V[c] + (table ? table[c] : 0)); /* (0 even if V[c] is not finite) */
            size[c] = z == 0 ? 0 : z * (size_of_v[c] + (table ? fabs(table[c]) : 0));
        }
        bound_add_key(model, weights, j, value, size, sums);
    }
}

static void compare_row(comparison *c, const expectation *e, const outputs *got, const bound_model *model, bound_weights *weights,
                        const double *sizes, bound_sums *sums, double *lost, const int64_t at[4])
{
    const ref_problem *r = &e->ref;
    const int64_t b = at[0], h = at[1], i = at[2], g = h / (r->Hq / r->Hkv);
    const int64_t row = (b * r->Hq + h) * r->Sq + i;
    const double *sum_k = e->sum_k + (b * r->Hkv + g) * r->Skv;
    const int finite = row_is_finite(e, row);
    const query_size q = size_of_query(e, row);
    const int64_t first = row * r->Skv;

    if (finite) {
        for (int64_t j = 0; j < r->Skv; j++)
            lost[j] = e->S[first + j] == -INFINITY
                          ? 0
                          : lost_of(model, &q, sum_k[j], e->sum_qk[first + j]) + bound_cut(model, q.most, sum_k[j]);
        const bound_row data = {
            .S = e->S + first,
            .lse = e->lse[row],
            .dot = e->dot + first,
            .lost = lost,
            .added = e->added ? e->added + first : NULL,
            .sink = r->normaliser == REF_BY_SOFTMAX_ONE ? 0
                    : e->ref.sink                       ? e->ref.sink[h]
                                                        : -INFINITY,
            .value_scale = model->fixed_point && e->fixed_values ? e->in[TENSOR(v_scale)] + (b * r->Hkv + g) * r->Skv : NULL};
        if (is_uniform(e, row)) prepare_uniform(model, e, row, weights, lost + r->Skv);
        else bound_prepare(model, &data, weights);
    }

    if (finite) sum_values(e, model, weights, sizes, sums, at);
    for (int64_t col = 0; col < r->Dv; col++) {
        const double o = e->O[row * r->Dv + col];
        const double bound = finite && isfinite(o) ? bound_output(model, weights, sums, col, o) : 0;
        judge(c, "o", (int64_t[4]){b, h, i, col}, got->O[row * r->Dv + col], o, bound, got->o_dtype);
    }
    if (got->lse)
        judge(c, "lse", (int64_t[4]){b, h, i, 0}, got->lse[row], e->lse[row],
              finite && isfinite(e->lse[row]) ? bound_lse(model, weights, e->lse[row]) : 0, e->compute);
    if (got->P && !finite) compare_nan_weights(c, e, got, at, first);
    for (int64_t j = 0; got->P && finite && j < r->Skv; j++)
        judge(c, "weights", (int64_t[4]){b, h, i, j}, got->P[first + j], e->P[first + j], bound_weight(model, weights, j),
              got->weights_dtype);
}

static bound_model model_of(const expectation *e, int64_t block_kv)
{
    bound_model model = bound_model_of(e->compute, ref_score_roundings(&e->ref), e->ref.Skv, block_kv > 0 ? block_kv : 1);
    model.additions = (e->ref.bias != NULL) + (e->ref.slopes != NULL) + (e->ref.bias_table != NULL);
    model.bands = e->ref.relative_values != NULL;
    model.normaliser = (attn_normaliser)e->ref.normaliser;
    model.shift = e->ref.shift;
    model.softcap = e->ref.softcap;
    model.dropout = e->ref.Z != NULL;
    model.scaled = e->scaled;
    model.bf16 = e->bf16;
    return model;
}

int compare_outputs(comparison *c, const expectation *e, const outputs *got, int64_t block_kv)
{
    const ref_problem *r = &e->ref;
    bound_model model = model_of(e, block_kv);
    model.fixed_point = (e->fixed_keys || e->fixed_values) && got->decoded;
    const int64_t values = r->B * r->Hkv * r->Skv * r->Dv;
    double *scratch = calloc((size_t)(r->Skv * 7 + r->Dv * 8 + values) + 1, sizeof *scratch);
    *c = (comparison){0};
    if (!scratch) return 0;
    bound_weights weights = {.P = scratch, .low = scratch + r->Skv, .high = scratch + 2 * r->Skv, .own = scratch + 3 * r->Skv};
    double *lost = scratch + 4 * r->Skv, *first = lost + 3 * r->Skv;
    bound_sums sums = {r->Dv, first, first + r->Dv, first + 2 * r->Dv, first + 3 * r->Dv, first + 4 * r->Dv, first + 5 * r->Dv};
    double *sizes = first + 8 * r->Dv;
    for (int64_t n = 0; n < values; n++) sizes[n] = fabs(r->V[n]);
    for (int64_t b = 0; b < r->B; b++)
        for (int64_t h = 0; h < r->Hq; h++)
            for (int64_t i = 0; i < r->Sq; i++)
                compare_row(c, e, got, &model, &weights, sizes, &sums, lost, (int64_t[4]){b, h, i, 0});
    free(scratch);
    return 1;
}

/* The scores before masking; all outputs but `raw` and `capped` are discarded. */
static int undropped_scores(const expectation *e, double *raw, double *capped)
{
    const int64_t rows = e->ref.B * e->ref.Hq * e->ref.Sq;
    double *other = calloc((size_t)rows * 3 + 1, sizeof *other);
    if (!other) return 0;
    ref_outputs_of(
        &e->ref, e->S, e->P,
        &(ref_outputs){
            .raw = raw, .capped = capped, .row_max = other, .entropy = other + rows, .effective_keys = other + 2 * rows});
    free(other);
    return 1;
}

int expected_scores(const expectation *e, attn_stage stage, double *exact, double *bound)
{
    const ref_problem *r = &e->ref;
    const bound_model model = model_of(e, 1);
    const int64_t scores = r->B * r->Hq * r->Sq * r->Skv;
    double *spare = calloc((size_t)scores + 1, sizeof *spare);
    int ok = spare && undropped_scores(e, stage == ATTN_STAGE_RAW ? exact : spare, stage == ATTN_STAGE_RAW ? spare : exact);
    for (int64_t n = 0; ok && n < scores; n++) {
        const int64_t row = n / r->Skv, head = row / r->Sq, j = n % r->Skv, b = head / r->Hq, h = head % r->Hq;
        const int64_t key = (head / r->Hq * r->Hkv + head % r->Hq / (r->Hq / r->Hkv)) * r->Skv + j;
        const double sum = ref_score_size(&e->sizes, b, h, row % r->Sq, j);
        const query_size q = size_of_query(e, row);
        if (stage == ATTN_STAGE_BIASED) exact[n] = e->S[n];
        bound[n] = isfinite(exact[n]) ? bound_score(&model, stage, q.scale * sum, lost_of(&model, &q, e->sum_k[key], sum), exact[n],
                                                    e->added ? e->added[n] : 0)
                                      : 0;
    }
    free(spare);
    return ok;
}

void compare_numbers(comparison *c, const char *where, const int64_t size[4], const double *got, const double *expected,
                     const double *bound, attn_dtype dtype)
{
    int64_t n = 0;
    for (int64_t b = 0; b < size[0]; b++)
        for (int64_t h = 0; h < size[1]; h++)
            for (int64_t i = 0; i < size[2]; i++)
                for (int64_t j = 0; j < size[3]; j++, n++)
                    judge(c, where, (int64_t[4]){b, h, i, j}, got[n], expected[n], isfinite(expected[n]) ? bound[n] : 0, dtype);
}

void comparison_describe(const comparison *c, char *text, size_t size)
{
    if (!c->where) {
        snprintf(text, size, "no numbers");
        return;
    }
    char last[32] = "";
    if (c->where[0] != 'l') snprintf(last, sizeof last, ",%" PRId64, c->at[3]);
    snprintf(text, size, "%s[%" PRId64 ",%" PRId64 ",%" PRId64 "%s] = %.9g, expected %.9g +- %.3g", c->where, c->at[0], c->at[1],
             c->at[2], last, c->got, c->expected, c->bound);
}
