/* SPDX-License-Identifier: MIT
 * classical.c - the classical Hopfield network; W is never formed: W x = sum_m X_m (X_m.x) / dim. */
#include "internal.h"

/* overlaps[m] = X_m.x */
static void overlap(const hopfield *m, const double *x, double *overlaps)
{
    for (int64_t k = 0; k < m->patterns; k++) {
        overlaps[k] = 0;
        for (int64_t c = 0; c < m->dim; c++) overlaps[k] += number_at(m->dtype, m->data, k * m->dim + c) * x[c];
    }
}

static double sign_of_field(const hopfield *m, const double *overlaps, int64_t c)
{
    double field = 0;
    for (int64_t k = 0; k < m->patterns; k++) field += number_at(m->dtype, m->data, k * m->dim + c) * overlaps[k];
    return field > 0 ? 1 : field < 0 ? -1 : 0;
}

/* Updates one unit, and the overlaps with it. */
static void move_unit(const hopfield *m, double *x, double *overlaps, int64_t c)
{
    const double to = sign_of_field(m, overlaps, c), by = to - x[c];
    for (int64_t k = 0; by != 0 && k < m->patterns; k++) overlaps[k] += by * number_at(m->dtype, m->data, k * m->dim + c);
    x[c] = to;
}

attn_status attn_hopfield_classical(const attn_hopfield *memory, attn_hopfield_order order, int64_t count,
                                    const attn_hopfield_tensors *tensors, attn_error *error)
{
    hopfield m;
    hopfield_arrays a;
    TRY(attn_hopfield_resolve(memory, count, &m, error));
    CHECK(order == ATTN_HOPFIELD_ORDER_SYNCHRONOUS || order == ATTN_HOPFIELD_ORDER_ASYNCHRONOUS, ATTN_ERR_ARGUMENT,
          "hopfield: order is %d; known: 0 (synchronous), 1 (asynchronous)", (int)order);
    TRY(attn_hopfield_bind(&m, count, 0, HOPFIELD_CLASSICAL, tensors, &a, error));
    double *x = options_acquire(&m.options, (size_t)(m.dim + m.patterns) * sizeof *x), *overlaps = x ? x + m.dim : NULL;
    CHECK(x, ATTN_ERR_MEMORY, "hopfield: cannot allocate memory");
    for (int64_t i = 0; i < count; i++) {
        double sum = 0;
        for (int64_t c = 0; c < m.dim; c++) x[c] = number_at(m.dtype, a.states, i * m.dim + c);
        overlap(&m, x, overlaps);
        for (int64_t k = 0; k < m.patterns; k++) sum += overlaps[k] * overlaps[k];
        if (a.energy) put_number(m.dtype, a.energy, i, -sum / (2 * (double)m.dim));
        for (int64_t c = 0; a.updated && c < m.dim; c++) {
            if (order == ATTN_HOPFIELD_ORDER_ASYNCHRONOUS) move_unit(&m, x, overlaps, c);
            put_number(m.dtype, a.updated, i * m.dim + c,
                       order == ATTN_HOPFIELD_ORDER_ASYNCHRONOUS ? x[c] : sign_of_field(&m, overlaps, c));
        }
    }
    hopfield_release(&m, x);
    return succeed(error);
}
