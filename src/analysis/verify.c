/* SPDX-License-Identifier: MIT
 * verify.c - gradients against central differences of the forward pass. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "steps.h"

/* <grad_o, O>, or |O|^2 / 2 without grad_o.  *size: the sum of the absolute values of its terms. */
static attn_status loss(const analysis_passes *passes, const double *dO, int64_t n, double *value, double *size, attn_error *error)
{
    TRY(execution_run(&passes->run_forward, &passes->forward, error));
    const double *o = passes->forward.o.data;
    *value = *size = 0;
    for (int64_t i = 0; i < n; i++) {
        double term = dO ? dO[i] * o[i] : o[i] * o[i] / 2;
        *value += term;
        *size += fabs(term);
    }
    return ATTN_OK;
}

/* One of q, k and v: where forward reads it, and the gradient that the core computed for it. */
typedef struct moved {
    const void **place;
    int64_t n;
    const double *gradient;
} moved;

/* Central differences for one tensor; forward reads the perturbed copy x, scratch of m->n elements, meanwhile. */
static attn_status verify_tensor(const analysis_passes *passes, const moved *m, double *x, const double *dO, int64_t outputs,
                                 double step, int64_t most, attn_verification *result, attn_error *error)
{
    const int64_t n = m->n, count = most > 0 && most < n ? most : n;
    const double *given = *m->place, *gradient = m->gradient;
    double norm = 0;
    attn_status status = ATTN_OK;
    for (int64_t i = 0; i < n; i++) norm += gradient[i] * gradient[i] / (double)n;
    if (n > 0) memcpy(x, given, (size_t)n * sizeof *x);
    *m->place = x;
    for (int64_t k = 0; k < count && status == ATTN_OK; k++) {
        const int64_t i = count == n ? k : (int64_t)((double)k * ((double)n / (double)count));
        double up, down, size = 0;
        x[i] = given[i] + step;
        const double above = x[i];
        status = loss(passes, dO, outputs, &up, &size, error);
        x[i] = given[i] - step;
        const double below = x[i];
        if (status == ATTN_OK) status = loss(passes, dO, outputs, &down, &size, error);
        x[i] = given[i];
        if (status != ATTN_OK) break;
        const double off = fabs((up - down) / (above - below) - gradient[i]);
        /* Rounding of two losses divided by the step, plus the truncation error: the third-order term. */
        const double limit = 64 * DBL_EPSILON * (size + 1) / step + 100 * step * step * (size + fabs(gradient[i]) + 1);
        result->checked++;
        if (!(off <= result->max_error)) result->max_error = off;
        if (norm > 0 && !(off / sqrt(norm) <= result->relative_error)) result->relative_error = off / sqrt(norm);
        if (limit > result->limit) result->limit = limit;
    }
    *m->place = given;
    return status;
}

attn_status attn_verify_gradients(const attn_problem *problem, double step, int64_t most, const attn_tensors *tensors,
                                  attn_verification *out, const attn_options *options, attn_error *error)
{
    enum { LSE, GRAD_Q, GRAD_K, GRAD_V, MOVED, ARRAYS };
    analysis_sizes n;
    attn_problem plain;
    attn_tensors t;
    attn_options o;
    TRY(attn_analysis_check(problem, tensors, options, &plain, &t, &o, &n, error));
    TRY(attn_analysis_check_dense(&t, error));
    CHECK(out, ATTN_ERR_ARGUMENT, "result is NULL");
    TRY(struct_writable(out, sizeof *out, "attn_verification", error));
    CHECK(step >= 0 && step < 1, ATTN_ERR_ARGUMENT, "step is %g; it must be above 0 and below 1 (0 for 1e-5)", step);
    CHECK(most >= 0, ATTN_ERR_ARGUMENT, "most is %" PRId64 "; it must be at least 1, or 0 for all elements", most);
    if (step == 0) step = 1e-5;
    const int64_t longest = n.q > n.k ? n.q > n.v ? n.q : n.v : n.k > n.v ? n.k : n.v;
    const int64_t sizes[ARRAYS] = {n.rows, n.q, n.k, n.v, longest};
    double *x[ARRAYS];
    attn_verification result = {0};
    analysis_passes passes = {.run_forward = {.plan = NULL}};
    attn_status status = ATTN_OK;
    for (int i = 0; i < ARRAYS; i++)
        if (!(x[i] = attn_analysis_acquire(&o, sizes[i]))) status = fail(error, ATTN_ERR_MEMORY, "cannot allocate the gradients");
    const int some = longest > 0 || n.o > 0; /* else lse alone would be computed, over any number of keys without channels */
    if (status == ATTN_OK) status = attn_analysis_begin(&passes, &plain, &t, some ? x[LSE] : NULL, NULL, &o, error);
    if (status == ATTN_OK && some) status = attn_analysis_begin_backward(&passes, &t, x[GRAD_Q], x[GRAD_K], x[GRAD_V], &o, error);
    if (status == ATTN_OK) status = execution_run(&passes.run_forward, &passes.forward, error);
    if (status == ATTN_OK && some) status = execution_run(&passes.run_backward, &passes.backward, error);
    attn_tensors *const f = &passes.forward;
    const moved all[] = {{&f->q.data, n.q, x[GRAD_Q]}, {&f->k.data, n.k, x[GRAD_K]}, {&f->v.data, n.v, x[GRAD_V]}};
    for (int i = 0; i < 3 && status == ATTN_OK; i++)
        status = verify_tensor(&passes, &all[i], x[MOVED], t.grad_o.data, n.o, step, most, &result, error);
    if (status == ATTN_OK) status = execution_run(&passes.run_forward, f, error); /* restores tensors->o */
    if (status == ATTN_OK) {
        result.correct = result.max_error <= result.limit;
        struct_fill(out, &result, sizeof result);
    }
    attn_analysis_end(&passes, &o);
    for (int i = 0; i < ARRAYS; i++) options_release(&o, x[i]);
    return status;
}
