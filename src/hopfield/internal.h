/* SPDX-License-Identifier: MIT
 * internal.h - types and helpers shared by the functions of attn/hopfield.h. */
#ifndef ATTN_HOPFIELD_INTERNAL_H
#define ATTN_HOPFIELD_INTERNAL_H

#include "../common/options.h"
#include "attn/hopfield.h"

/* A checked memory, with its defaults filled in. */
typedef struct hopfield {
    attn_dtype dtype;
    int64_t patterns, dim;
    double beta;
    const void *data;
    attn_options options; /* from options_read */
} hopfield;

/* Also checks the count of states. */
attn_status attn_hopfield_resolve(const attn_hopfield *given, int64_t count, hopfield *memory, attn_error *error);

/* The function that uses the tensors of a call. */
typedef enum hopfield_use { HOPFIELD_UPDATE, HOPFIELD_BACKWARD, HOPFIELD_RETRIEVE, HOPFIELD_CLASSICAL, HOPFIELD_USES } hopfield_use;

/* The arrays of a call; NULL: absent. */
typedef struct hopfield_arrays {
    const void *states;
    void *updated, *energy;
    const void *grad_updated, *grad_energy;
    void *grad_states, *grad_patterns;
    int64_t *iterations;
    double *energies;
} hopfield_arrays;

/* Checks the tensors of a call; most: that of attn_hopfield_retrieve, else 0. */
attn_status attn_hopfield_bind(const hopfield *memory, int64_t count, int64_t most, hopfield_use use,
                               const attn_hopfield_tensors *tensors, hopfield_arrays *arrays, attn_error *error);

/* On dense arrays; updated and energy may be NULL. */
attn_status attn_hopfield_resolved_update(const hopfield *memory, int64_t count, const void *states, void *updated, void *energy,
                                          attn_error *error);
/* Checks the greatest number of updates. */
attn_status attn_hopfield_check_limit(int64_t most, attn_error *error);
attn_status attn_hopfield_resolved_retrieve(const hopfield *memory, int64_t count, int64_t most, double tolerance,
                                            const hopfield_arrays *arrays, attn_error *error);

/* Memory for `count` elements; NULL if memory is short. */
static inline void *hopfield_acquire(const hopfield *m, int64_t count)
{
    return options_acquire(&m->options, (size_t)count * attn_dtype_size(m->dtype));
}
static inline void hopfield_release(const hopfield *m, void *memory) { options_release(&m->options, memory); }

static inline double number_at(attn_dtype dtype, const void *array, int64_t i)
{
    return dtype == ATTN_F64 ? ((const double *)array)[i] : (double)((const float *)array)[i];
}

static inline void put_number(attn_dtype dtype, void *array, int64_t i, double x)
{
    if (dtype == ATTN_F64) ((double *)array)[i] = x;
    else ((float *)array)[i] = (float)x;
}

#endif
