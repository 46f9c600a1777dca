/* SPDX-License-Identifier: MIT
 * gate.c - what each query makes of a bias by distance: a gate, and its gradient. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../common/slots.h"
#include "attn/position.h"
#include "rows.h"

static attn_status resolve(const attn_bias_gate *given, attn_input *q, attn_bias_gate *rule, attn_error *error)
{
    CHECK(given, ATTN_ERR_ARGUMENT, "bias gate: rule is NULL");
    TRY(struct_read(rule, sizeof *rule, sizeof *rule, given, "attn_bias_gate", error));
    if (rule->dtype == ATTN_DTYPE_DEFAULT) rule->dtype = ATTN_F32;
    CHECK(rule->dtype == ATTN_F32 || rule->dtype == ATTN_F64, ATTN_ERR_UNSUPPORTED, "bias gate: dtype is %s; it must be f32 or f64",
          attn_dtype_name(rule->dtype));
    const struct {
        const char *name;
        int64_t size;
    } sizes[] = {
        {"batch", rule->batch}, {"heads", rule->heads}, {"len_q", rule->len_q}, {"dim", rule->dim}, {"width", rule->width}};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        CHECK(sizes[k].size >= 0, ATTN_ERR_SHAPE, "bias gate: %s (%" PRId64 ") is negative", sizes[k].name, sizes[k].size);
    const int64_t gates[3] = {rule->batch, rule->heads, rule->len_q}, w[2] = {rule->dim, rule->width}, most = INT64_MAX / 64;
    CHECK(rule->heads < most && rule->dim < most && rule->width < most && sizes_fit(8, gates, 3) && sizes_fit(16, w, 2),
          ATTN_ERR_SHAPE, "bias gate: the arrays have more bytes than 64 bits count");
    const int64_t shape[4] = {rule->batch, rule->heads, rule->len_q, rule->dim};
    TRY(slot_resolve(q, "bias gate: q", shape, rule->dtype, error));
    if (rule->dim == 0) memset(q->stride, 0, sizeof q->stride); /* queries without channels are nowhere */
    CHECK(q->dtype == rule->dtype, ATTN_ERR_UNSUPPORTED, "bias gate: q is %s and dtype is %s", attn_dtype_name(q->dtype),
          attn_dtype_name(rule->dtype));
    CHECK(q->data && rule->w && rule->b && rule->a, ATTN_ERR_ARGUMENT, "bias gate: %s is NULL",
          !q->data   ? "q"
          : !rule->w ? "w"
          : !rule->b ? "b"
                     : "a");
    return ATTN_OK;
}

static double sigmoid(double x) { return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x)); }

/* u (which 0) or r (which 1) of the query whose first channel is element `at`. */
static double half_gate(const attn_bias_gate *g, const void *q, int64_t at, int64_t step, int which)
{
    double sum = 0;
    for (int64_t k = which * g->width; k < (which + 1) * g->width; k++) {
        sum += attn_rows_get(g->b, g->dtype, k);
        for (int64_t c = 0; c < g->dim; c++)
            sum += attn_rows_get(q, g->dtype, at + c * step) * attn_rows_get(g->w, g->dtype, c * 2 * g->width + k);
    }
    return sigmoid(sum);
}

/* Element of q at which query n of [batch][heads][len_q] begins. */
static int64_t begin(const attn_bias_gate *g, const int64_t stride[4], int64_t n)
{
    return n / g->len_q / g->heads * stride[0] + n / g->len_q % g->heads * stride[1] + n % g->len_q * stride[2];
}

attn_status attn_bias_gate_forward(const attn_bias_gate *rule, const attn_input *q_slot, void *gates, attn_error *error)
{
    attn_bias_gate g;
    CHECK(q_slot, ATTN_ERR_ARGUMENT, "bias gate: q is NULL");
    attn_input x = *q_slot;
    TRY(resolve(rule, &x, &g, error));
    const void *const q = x.data;
    const int64_t *const stride = x.stride;
    CHECK(gates, ATTN_ERR_ARGUMENT, "bias gate: gates is NULL");
    for (int64_t n = 0; n < g.batch * g.heads * g.len_q; n++) {
        const int64_t at = begin(&g, stride, n);
        const double u = half_gate(&g, q, at, stride[3], 0), r = half_gate(&g, q, at, stride[3], 1);
        attn_rows_put(gates, g.dtype, n, u * (r * attn_rows_get(g.a, g.dtype, n / g.len_q % g.heads) - 1) + 2);
    }
    return succeed(error);
}

attn_status attn_bias_gate_backward(const attn_bias_gate *rule, const attn_input *q_slot, const void *grad_gates, void *grad_q,
                                    void *grad_w, void *grad_b, void *grad_a, attn_error *error)
{
    attn_bias_gate g;
    CHECK(q_slot, ATTN_ERR_ARGUMENT, "bias gate: q is NULL");
    attn_input x = *q_slot;
    TRY(resolve(rule, &x, &g, error));
    const void *const q = x.data;
    const int64_t *const stride = x.stride;
    CHECK(grad_gates, ATTN_ERR_ARGUMENT, "bias gate: grad_gates is NULL");
    /* Every z of a half moves its sum alike: dw and db are one column for each half. */
    const int64_t columns = 2 * g.width, rows = g.batch * g.heads * g.len_q;
    double *sums = calloc((size_t)(2 * (g.dim + 1) + g.heads), sizeof *sums), *db = sums + 2 * g.dim, *da = db + 2;
    CHECK(sums, ATTN_ERR_MEMORY, "bias gate: no memory for %" PRId64 " sums", 2 * (g.dim + 1) + g.heads);
    for (int64_t n = 0; n < rows; n++) {
        const int64_t at = begin(&g, stride, n), h = n / g.len_q % g.heads;
        const double u = half_gate(&g, q, at, stride[3], 0), r = half_gate(&g, q, at, stride[3], 1);
        const double a = attn_rows_get(g.a, g.dtype, h), grad = attn_rows_get(grad_gates, g.dtype, n);
        const double dz[2] = {grad * (r * a - 1) * u * (1 - u), grad * u * a * r * (1 - r)};
        da[h] += grad * u * r;
        for (int half = 0; half < 2; half++) db[half] += dz[half];
        for (int64_t c = 0; c < g.dim; c++) {
            double dq = 0;
            for (int64_t k = 0; k < columns; k++) dq += dz[k >= g.width] * attn_rows_get(g.w, g.dtype, c * columns + k);
            if (grad_q) attn_rows_put(grad_q, g.dtype, n * g.dim + c, dq);
            for (int half = 0; half < 2; half++) sums[2 * c + half] += dz[half] * attn_rows_get(q, g.dtype, at + c * stride[3]);
        }
    }
    for (int64_t k = 0; grad_w && k < g.dim * columns; k++)
        attn_rows_put(grad_w, g.dtype, k, sums[2 * (k / columns) + (k % columns >= g.width)]);
    for (int64_t k = 0; grad_b && k < columns; k++) attn_rows_put(grad_b, g.dtype, k, db[k >= g.width]);
    for (int64_t h = 0; grad_a && h < g.heads; h++) attn_rows_put(grad_a, g.dtype, h, da[h]);
    free(sums);
    return succeed(error);
}
