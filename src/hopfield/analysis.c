/* SPDX-License-Identifier: MIT
 * analysis.c - separation, energy along an axis, and basins of attraction under noise. */
#include <inttypes.h>
#include <math.h>

#include "../common/places.h"
#include "attn/linear.h"
#include "internal.h"

/* Distance between row a of x and row b of y. */
static double distance(const hopfield *m, const void *x, int64_t a, const void *y, int64_t b)
{
    double sum = 0;
    for (int64_t c = 0; c < m->dim; c++) {
        const double d = number_at(m->dtype, x, a * m->dim + c) - number_at(m->dtype, y, b * m->dim + c);
        sum += d * d;
    }
    return sqrt(sum);
}

attn_status attn_hopfield_separation(const attn_hopfield *memory, double *separation, attn_error *error)
{
    hopfield m;
    double least = INFINITY, lengths = 0;
    TRY(attn_hopfield_resolve(memory, 0, &m, error));
    CHECK(separation, ATTN_ERR_ARGUMENT, "hopfield: separation is NULL");
    for (int64_t a = 0; a < m.patterns; a++) {
        double square = 0;
        for (int64_t b = 0; b < a; b++) least = fmin(least, distance(&m, m.data, a, m.data, b));
        for (int64_t c = 0; c < m.dim; c++)
            square += number_at(m.dtype, m.data, a * m.dim + c) * number_at(m.dtype, m.data, a * m.dim + c);
        lengths += sqrt(square);
    }
    *separation = least / (lengths / (double)m.patterns);
    return succeed(error);
}

attn_status attn_hopfield_landscape(const attn_hopfield *memory, int64_t axis, int64_t points, double low, double high, double *x,
                                    double *energy, attn_error *error)
{
    hopfield m;
    CHECK(points >= 2, ATTN_ERR_ARGUMENT, "hopfield: points is %" PRId64 "; it must be at least 2", points);
    TRY(attn_hopfield_resolve(memory, points, &m, error));
    CHECK(axis >= 0 && axis < m.dim, ATTN_ERR_ARGUMENT, "hopfield: axis (%" PRId64 ") is not between 0 and %" PRId64, axis,
          m.dim - 1);
    CHECK(isfinite(low) && isfinite(high), ATTN_ERR_ARGUMENT, "hopfield: low and high are %g and %g; they must be finite", low,
          high);
    CHECK(x && energy, ATTN_ERR_ARGUMENT, "hopfield: %s is NULL", x ? "energy" : "x");
    places all = {.size = sizeof *x};
    places_add_numbers(&all, "x", x, 1, 1, points, 1);
    places_add_numbers(&all, "energy", energy, 1, 1, points, 1);
    all.size = attn_dtype_size(m.dtype);
    places_add_numbers(&all, "patterns", m.data, 1, m.patterns, m.dim, 0);
    TRY(places_check(&all, "hopfield", error));
    void *states = hopfield_acquire(&m, points * m.dim), *found = hopfield_acquire(&m, points);
    attn_status status;
    if (states) memset(states, 0, (size_t)(points * m.dim) * attn_dtype_size(m.dtype));
    for (int64_t i = 0; states && i < points; i++)
        put_number(m.dtype, states, i * m.dim + axis, low + (double)i * (high - low) / (double)(points - 1));
    if (states && found) status = attn_hopfield_resolved_update(&m, points, states, NULL, found, error);
    else status = fail(error, ATTN_ERR_MEMORY, "hopfield: cannot allocate memory");
    for (int64_t i = 0; status == ATTN_OK && i < points; i++) {
        x[i] = low + (double)i * (high - low) / (double)(points - 1);
        energy[i] = number_at(m.dtype, found, i);
    }
    hopfield_release(&m, states);
    hopfield_release(&m, found);
    return status;
}

static int64_t nearest(const hopfield *m, const void *states, int64_t i)
{
    int64_t best = 0;
    double least = INFINITY;
    for (int64_t k = 0; k < m->patterns; k++) {
        const double d = distance(m, states, i, m->data, k);
        if (d < least) least = d, best = k;
    }
    return best;
}

attn_status attn_hopfield_basin(const attn_hopfield *memory, int64_t index, int64_t samples, double noise, uint64_t seed,
                                int64_t most, double tolerance, double *share, attn_error *error)
{
    hopfield m;
    CHECK(samples >= 1, ATTN_ERR_ARGUMENT, "hopfield: samples is %" PRId64 "; it must be at least 1", samples);
    TRY(attn_hopfield_resolve(memory, samples, &m, error));
    CHECK(index >= 0 && index < m.patterns, ATTN_ERR_ARGUMENT, "hopfield: index (%" PRId64 ") is not between 0 and %" PRId64, index,
          m.patterns - 1);
    CHECK(noise >= 0 && isfinite(noise), ATTN_ERR_ARGUMENT, "hopfield: noise is %g; it must be at least 0 and finite", noise);
    CHECK(share, ATTN_ERR_ARGUMENT, "hopfield: share is NULL");
    TRY(attn_hopfield_check_limit(most, error));
    void *probes = hopfield_acquire(&m, samples * m.dim), *found = hopfield_acquire(&m, samples * m.dim);
    const hopfield_arrays arrays = {.states = probes, .updated = found};
    attn_status status = probes && found ? ATTN_OK : fail(error, ATTN_ERR_MEMORY, "hopfield: cannot allocate memory");
    const attn_output drawn = {probes, m.dtype, {0, 0, 0, 0}};
    if (status == ATTN_OK) status = attn_random_features(ATTN_RANDOM_ROWS_NORMAL, samples, m.dim, seed, 0, &drawn, error);
    for (int64_t i = 0; status == ATTN_OK && i < samples * m.dim; i++)
        put_number(m.dtype, probes, i,
                   number_at(m.dtype, m.data, index * m.dim + i % m.dim) + noise * number_at(m.dtype, probes, i));
    if (status == ATTN_OK) status = attn_hopfield_resolved_retrieve(&m, samples, most, tolerance, &arrays, error);
    int64_t back = 0;
    for (int64_t i = 0; status == ATTN_OK && i < samples; i++) back += nearest(&m, found, i) == index;
    if (status == ATTN_OK) *share = (double)back / (double)samples;
    hopfield_release(&m, probes);
    hopfield_release(&m, found);
    return status;
}
