/* SPDX-License-Identifier: MIT
 * statistics.c - weights and their statistics, with the results and bounds of ref/. */
#include "test.h"

#include "outcome.h"

#include <math.h>

/* Error bound of weight P of score S, in units of u, for a score's error bound `error`; for ReLU the score's own. */
static double bound_of_weight(const ref_problem *p, double error, double P, double S, double lse)
{
    if (p->normaliser == REF_BY_RELU) return S > -INFINITY ? error * (1 + fabs(S)) * exp(-lse) : 0;
    return P > 0 ? error * P + 0x1p-73 : 0; /* a subnormal weight may be flushed to 0 */
}

/* The results of ref/, and their error bounds. */
typedef struct statistics {
    ref_outputs is, bound; /* bound: row_max has none of its own, topk_index none */
    double *of_weight, *of_score, *kept;
} statistics;

static double *array(int64_t n)
{
    double *memory = calloc((size_t)n + 1, sizeof *memory);
    assert_non_null(memory);
    return memory;
}

static ref_outputs outputs_make(const ref_problem *p, int64_t k)
{
    const int64_t rows = p->B * p->Hq * p->Sq;
    ref_outputs o = {.raw = array(rows * p->Skv), .capped = array(rows * p->Skv), .row_max = array(rows), .k = k, .share = 1};
    o.entropy = array(rows), o.effective_keys = array(rows), o.column_sum = array(p->B * p->Hq * p->Skv);
    o.topk_weight = array(rows * k);
    o.topk_index = calloc((size_t)(rows * k) + 1, sizeof *o.topk_index);
    assert_non_null(o.topk_index);
    return o;
}

static void outputs_free(ref_outputs *o)
{
    free(o->raw), free(o->capped), free(o->row_max), free(o->entropy), free(o->effective_keys), free(o->column_sum);
    free(o->topk_weight), free(o->topk_index);
}

static void bound_row(statistics *s, const ref_problem *p, int64_t row, const double *S, const double *P, double lse, double error)
{
    const int is_mean = p->normaliser < REF_BY_SIGMOID;
    double most = 0, *entropy = &s->bound.entropy[row];
    for (int64_t j = 0; j < p->Skv; j++) {
        const int64_t at = row * p->Skv + j;
        const double bound = bound_of_weight(p, error, P[at], S[at], lse);
        s->of_weight[at] = bound;
        s->of_score[at] = error;
        s->kept[at] = !p->Z || p->Z[at] != 0;
        s->bound.column_sum[row / p->Sq * p->Skv + j] += bound + (double)p->Sq * P[at];
        if (is_mean && P[at] > 0) *entropy += 2 * bound * (1 + fabs(log(P[at])));
        most = fmax(most, bound);
    }
    *entropy += error;
    s->bound.effective_keys[row] = 2 * s->is.effective_keys[row] * *entropy;
    for (int64_t k = 0; k < s->is.k; k++) s->bound.topk_weight[row * s->is.k + k] = most;
}

/* Adds output t with these exact values and this bound, if it is requested. */
static void expect_output(combination *c, outcome *out, int t, tensor got, const double *exact, const double *bound)
{
    const size_t size = (size_t)(got.shape[0] * got.shape[1] * got.shape[2] * got.shape[3]) * sizeof(double);
    if (t == OUTCOME_ROWS ? !c->visits : !outcome_has(c, t)) {
        tensor_free(&got);
        return;
    }
    output *o = outcome_add(c, out, t, got);
    memcpy(o->exact, exact, size), memcpy(o->bound, bound, size);
}

void outcome_expect_statistics(combination *c, outcome *out, const double *S, const double *P, const double *lse,
                               const double *error)
{
    const ref_problem *p = &c->ref;
    const int64_t rows = p->B * p->Hq * p->Sq, topk = c->problem.outputs.topk, pairs[4] = {p->B, p->Hq, p->Sq, p->Skv},
                  columns[4] = {p->B, p->Hq, p->Skv, 1}, top[4] = {p->B, p->Hq, p->Sq, topk};
    const attn_dtype compute = combination_compute(c);
    const tensor *of_row = &c->of[TENSOR(lse)];
    const int64_t *start = c->tensors.cu_seqlens_kv.data ? c->start_kv : NULL;
    statistics s = {outputs_make(p, topk), outputs_make(p, topk), array(rows * p->Skv), array(rows * p->Skv), array(rows * p->Skv)};
    ref_outputs_of(p, S, P, &s.is);
    for (int64_t row = 0; row < rows; row++) bound_row(&s, p, row, S, P, lse[row], error[row]);
    expect_output(c, out, TENSOR(weights), tensor_make(compute, pairs, BY_HEAD, 0, NULL), P, s.of_weight);
    expect_output(c, out, TENSOR(row_max), tensor_like(of_row), s.is.row_max, error);
    expect_output(c, out, TENSOR(column_sum), tensor_make(compute, columns, BY_TOKEN, 0, start), s.is.column_sum,
                  s.bound.column_sum);
    if (p->normaliser < REF_BY_SIGMOID) expect_output(c, out, TENSOR(entropy), tensor_like(of_row), s.is.entropy, s.bound.entropy);
    if (c->chooses) {
        expect_output(c, out, TENSOR(effective_keys), tensor_like(of_row), s.is.effective_keys, s.bound.effective_keys);
        expect_output(c, out, TENSOR(topk_weight), tensor_make(compute, top, BY_TOKEN, 0, of_row->start), s.is.topk_weight,
                      s.bound.topk_weight);
        expect_output(c, out, TENSOR(scores), tensor_make(compute, pairs, BY_HEAD, 0, NULL), S, s.of_score);
        expect_output(c, out, TENSOR(dropout_keep), tensor_make(ATTN_BOOL, pairs, BY_HEAD, 0, NULL), s.kept, s.of_weight);
        expect_output(c, out, OUTCOME_ROWS, tensor_make(compute, pairs, BY_HEAD, 0, NULL), P, s.of_weight);
    }
    outputs_free(&s.is), outputs_free(&s.bound);
    free(s.of_weight), free(s.of_score), free(s.kept);
}
