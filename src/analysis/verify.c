/* SPDX-License-Identifier: MIT
 * verify.c - gradients against central differences of forward. */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../common/slots.h"
#include "steps.h"

/* <grad_o, O>, or |O|^2 / 2 where there is no grad_o.  *size: the sum of the sizes of its terms. */
static attn_status loss(const attn_problem *problem, const attn_tensors *tensors, int64_t n, double *value, double *size,
                        attn_error *error)
{
    attn_tensors forward = *tensors;
    forward.grad_o = (attn_input){NULL, ATTN_DTYPE_DEFAULT, {0, 0, 0, 0}};
    TRY(attn_compute(problem, &forward, error));
    const double *o = tensors->o.data, *dO = tensors->grad_o.data;
    *value = *size = 0;
    for (int64_t i = 0; i < n; i++) {
        double term = dO ? dO[i] * o[i] : o[i] * o[i] / 2;
        *value += term;
        *size += fabs(term);
    }
    return ATTN_OK;
}

/* Differences for one tensor, x of n elements at *place; gradient is what the core says. */
static attn_status verify_tensor(const attn_problem *problem, attn_tensors *tensors, const void **place, int64_t n, int64_t outputs,
                                 const double *gradient, double step, int64_t most, attn_verification *result, attn_error *error)
{
    const int64_t count = most > 0 && most < n ? most : n;
    const double *given = *place;
    double *x = attn_analysis_room(n), norm = 0;
    attn_status status = x ? ATTN_OK : fail(error, ATTN_ERR_MEMORY, "no memory for %" PRId64 " numbers", n);
    for (int64_t i = 0; i < n; i++) norm += gradient[i] * gradient[i] / (double)n;
    if (x && n > 0) memcpy(x, given, (size_t)n * sizeof *x);
    *place = x;
    for (int64_t k = 0; k < count && status == ATTN_OK; k++) {
        const int64_t i = count == n ? k : (int64_t)((double)k * ((double)n / (double)count));
        double up, down, size = 0;
        x[i] = given[i] + step;
        const double above = x[i];
        status = loss(problem, tensors, outputs, &up, &size, error);
        x[i] = given[i] - step;
        const double below = x[i];
        if (status == ATTN_OK) status = loss(problem, tensors, outputs, &down, &size, error);
        x[i] = given[i];
        if (status != ATTN_OK) break;
        const double off = fabs((up - down) / (above - below) - gradient[i]);
        /* Rounding of two losses over the step, and a term of third order. */
        const double limit = 64 * DBL_EPSILON * (size + 1) / step + 100 * step * step * (size + fabs(gradient[i]) + 1);
        result->checked++;
        if (!(off <= result->max_error)) result->max_error = off;
        if (norm > 0 && !(off / sqrt(norm) <= result->relative_error)) result->relative_error = off / sqrt(norm);
        if (limit > result->limit) result->limit = limit;
    }
    *place = given;
    free(x);
    return status;
}

attn_status attn_verify_gradients(const attn_problem *problem, const attn_tensors *tensors, double step, int64_t most,
                                  attn_verification *out, attn_error *error)
{
    analysis_sizes n;
    attn_problem plain;
    attn_tensors t;
    TRY(attn_analysis_check(problem, tensors, &plain, &t, &n, error));
    TRY(attn_analysis_check_dense(&t, error));
    CHECK(out, ATTN_ERR_ARGUMENT, "result is NULL");
    TRY(struct_writable(out, sizeof *out, "attn_verification", error));
    CHECK(step >= 0 && step < 1, ATTN_ERR_ARGUMENT, "step is %g; it is above 0 and below 1 (0 for 1e-5)", step);
    CHECK(most >= 0, ATTN_ERR_ARGUMENT, "most is %" PRId64 "; it is at least 1, or 0 for all elements", most);
    if (step == 0) step = 1e-5;
    attn_verification result = {0};
    double *lse = attn_analysis_room(n.rows), *dq = attn_analysis_room(n.q), *dk = attn_analysis_room(n.k),
           *dv = attn_analysis_room(n.v);
    attn_status status = lse && dq && dk && dv ? ATTN_OK : fail(error, ATTN_ERR_MEMORY, "no memory for the gradients");
    if (status == ATTN_OK) status = attn_analysis_backward(&plain, &t, lse, dq, dk, dv, error);
    const struct {
        const void **place;
        int64_t n;
        const double *gradient;
    } moved[] = {{&t.q.data, n.q, dq}, {&t.k.data, n.k, dk}, {&t.v.data, n.v, dv}};
    for (int i = 0; i < 3 && status == ATTN_OK; i++)
        status = verify_tensor(&plain, &t, moved[i].place, moved[i].n, n.o, moved[i].gradient, step, most, &result, error);
    double value, size;
    if (status == ATTN_OK) status = loss(&plain, &t, n.o, &value, &size, error); /* tensors->o as it was */
    if (status == ATTN_OK) {
        result.correct = result.max_error <= result.limit;
        struct_fill(out, &result, sizeof result);
    }
    free(lse);
    free(dq);
    free(dk);
    free(dv);
    return status;
}
