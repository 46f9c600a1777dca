/* SPDX-License-Identifier: MIT
 * statistics.c - weights and their statistics, beside what ref/ says of them. */
#include "test.h"

#include "outcome.h"

#include <math.h>

static double *array(int64_t n)
{
    double *memory = calloc((size_t)n + 1, sizeof *memory);
    assert_non_null(memory);
    return memory;
}

/* Of weight P of a score S, in units of u, where a score may be off by `error`; ReLU has the error of the score itself. */
static double bound_of_weight(const ref_problem *p, double error, double P, double S, double lse)
{
    if (p->normaliser == REF_BY_RELU) return S > -INFINITY ? error * (1 + fabs(S)) * exp(-lse) : 0;
    return P > 0 ? error * P + 0x1p-73 : 0; /* a weight below the smallest normal number may become 0 */
}

void outcome_want_statistics(combination *c, outcome *out, const double *S, const double *P, const double *lse, const double *error)
{
    const ref_problem *p = &c->ref;
    const int64_t rows = p->B * p->Hq * p->Sq, pairs[4] = {p->B, p->Hq, p->Sq, p->Skv}, columns[4] = {p->B, p->Hq, p->Skv, 1};
    const attn_dtype compute = combination_compute(c);
    const int is_mean = p->normaliser < REF_BY_SIGMOID;
    double *other = array(rows * (2 * p->Skv + 1));
    const int64_t *start = c->tensors.cu_seqlens_kv.data ? c->start_kv : NULL;
    output *weights = outcome_add(c, out, TENSOR(weights), tensor_make(compute, pairs, BY_HEAD, 0, NULL));
    output *row_max = outcome_add(c, out, TENSOR(row_max), combination_like(&c->of[TENSOR(lse)]));
    output *sums = outcome_add(c, out, TENSOR(column_sum), tensor_make(compute, columns, BY_TOKEN, 0, start));
    output *entropy = is_mean ? outcome_add(c, out, TENSOR(entropy), combination_like(&c->of[TENSOR(lse)])) : NULL;
    double *unused = array(rows);
    ref_outputs_of(p, S, P,
                   &(ref_outputs){.raw = other,
                                  .capped = other + rows * p->Skv,
                                  .row_max = row_max->exact,
                                  .entropy = is_mean ? entropy->exact : unused,
                                  .effective_keys = other + 2 * rows * p->Skv,
                                  .share = 1,
                                  .column_sum = sums->exact});
    for (int64_t row = 0; row < rows; row++) {
        row_max->bound[row] = error[row];
        for (int64_t j = 0; j < p->Skv; j++) {
            const int64_t at = row * p->Skv + j;
            const double bound = bound_of_weight(p, error[row], P[at], S[at], lse[row]);
            weights->exact[at] = P[at];
            weights->bound[at] = bound;
            sums->bound[row / p->Sq * p->Skv + j] += bound + (double)p->Sq * P[at];
            if (is_mean && P[at] > 0) entropy->bound[row] += 2 * bound * (1 + fabs(log(P[at])));
        }
        if (is_mean) entropy->bound[row] += error[row];
    }
    free(other), free(unused);
}
