/* SPDX-License-Identifier: MIT
 *
 * hopfield.h - associative memory: patterns are stored, and a state near one of them moves to it.  One update of the modern network
 * is one attention: states are queries, patterns are keys and values.  Conventions of attn.h hold.
 *
 *      attn_hopfield memory = {.struct_size = sizeof memory, .stored = 10, .dim = 64, .beta = 4, .patterns = attn_in(patterns)};
 *      attn_hopfield_tensors t = {.struct_size = sizeof t, .states = attn_in(state), .updated = attn_out(found)};
 *      attn_hopfield_retrieve(&memory, 1, 20, 1e-6, &t, &error);
 */
#ifndef ATTN_HOPFIELD_H
#define ATTN_HOPFIELD_H

#include "attn/attn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The stored patterns, and how to compute with them.  Patterns and options are borrowed. */
typedef struct attn_hopfield {
    size_t struct_size;          /* sizeof(attn_hopfield) */
    attn_dtype dtype;            /* of patterns, states and their gradients: ATTN_F32 (default) or ATTN_F64 */
    int64_t stored;              /* M, the number of patterns, at least 1 */
    int64_t dim;                 /* N, at least 1 */
    double beta;                 /* > 0: how sharp; 0: 1 */
    const attn_options *options; /* threads, instruction set and allocator of all functions with this memory; may be NULL */
    int64_t reserved[4];         /* must be 0 */
    attn_input patterns;         /* [1, 1, stored, dim], dense */
} attn_hopfield;

/*
 * States and results, one slot per tensor, all dense and, except for the last two, of the memory's dtype.  Each function documents
 * which it reads, and which it writes if present.  A tensor that it has no use for is an error.  Outputs share elements with
 * nothing.
 */
typedef struct attn_hopfield_tensors {
    size_t struct_size;        /* sizeof(attn_hopfield_tensors) */
    const attn_call *call;     /* must be NULL */
    attn_input states;         /* [1, 1, count, dim]: needed by all functions */
    attn_output updated;       /* [1, 1, count, dim] */
    attn_output energy;        /* [1, 1, count, 1] */
    attn_input grad_updated;   /* [1, 1, count, dim] */
    attn_input grad_energy;    /* [1, 1, count, 1] */
    attn_output grad_states;   /* [1, 1, count, dim] */
    attn_output grad_patterns; /* [1, 1, stored, dim] */
    attn_output iterations;    /* [1, 1, count, 1] of i64 */
    attn_output energies;      /* [1, 1, count, most + 1] of f64 */
} attn_hopfield_tensors;

/*
 * The modern network (Ramsauer et al. 2020, equations 2 and 3, without the constant terms of the energy), for every state x, with X
 * the patterns as rows:
 *
 *      energy = -log(sum_m exp(beta X_m.x)) / beta + |x|^2 / 2          updated = X^T softmax(beta X x)
 *
 * An update never raises the energy.  Writes updated and energy.  Returns ATTN_ERR_ARGUMENT, ATTN_ERR_SHAPE, ATTN_ERR_STRIDE,
 * ATTN_ERR_UNSUPPORTED or ATTN_ERR_MEMORY with outputs untouched; so do all functions here.
 */
ATTN_API attn_status attn_hopfield_update(const attn_hopfield *memory, int64_t count, const attn_hopfield_tensors *tensors,
                                          attn_error *error);

/* The gradient of attn_hopfield_update: from grad_updated and grad_energy (absent: 0) to grad_states and grad_patterns. */
ATTN_API attn_status attn_hopfield_update_backward(const attn_hopfield *memory, int64_t count, const attn_hopfield_tensors *tensors,
                                                   attn_error *error);

/*
 * Updates every state until none of its components moves by `tolerance` or more, at most `most` times.  updated, which is needed,
 * receives the final states.  iterations counts updates, including one that moved nothing.  energies has the energy before each
 * update and after the last, which is repeated to the end of the row.
 */
ATTN_API attn_status attn_hopfield_retrieve(const attn_hopfield *memory, int64_t count, int64_t most, double tolerance,
                                            const attn_hopfield_tensors *tensors, attn_error *error);

/* How the classical network updates its units: all from the old state, or one after the other, each seeing the earlier updates. */
typedef enum attn_hopfield_order { ATTN_HOPFIELD_ORDER_SYNCHRONOUS = 0, ATTN_HOPFIELD_ORDER_ASYNCHRONOUS = 1 } attn_hopfield_order;

/*
 * The classical network (Hopfield 1982), with W = sum_m X_m X_m^T / dim, its diagonal kept:
 *
 *      energy = -x^T W x / 2          updated = sign(W x), sign(0) = 0
 *
 * Synchronous updates may cycle; asynchronous ones do not raise the energy of states of -1 and 1.  Writes updated and energy.
 */
ATTN_API attn_status attn_hopfield_classical(const attn_hopfield *memory, attn_hopfield_order order, int64_t count,
                                             const attn_hopfield_tensors *tensors, attn_error *error);

/* How many random patterns a network of `dim` units can store: 0.14 dim (classical; Amit et al. 1985), and on the order of exp(dim
 * / 2) (modern; Demircigil et al. 2017); infinity on overflow. */
ATTN_API double attn_hopfield_classical_capacity(int64_t dim);
ATTN_API double attn_hopfield_modern_capacity(int64_t dim);

/* The smallest distance between two patterns, divided by their mean length: 0 for equal ones, infinity for a single pattern; NaN if
 * all are 0. */
ATTN_API attn_status attn_hopfield_separation(const attn_hopfield *memory, double *separation, attn_error *error);

/* The modern energy along one axis: x[i] = low + i (high - low) / (points - 1), all other channels 0.  points >= 2.
 * x and energy share elements with nothing. */
ATTN_API attn_status attn_hopfield_landscape(const attn_hopfield *memory, int64_t axis, int64_t points, double low, double high,
                                             double *x, double *energy, attn_error *error);

/*
 * The share of `samples` probes (pattern number `index` plus normal noise of standard deviation `noise`, from attn_random_features
 * with this seed) whose retrieved state, after at most `most` updates to the tolerance, is nearest to that pattern.  Among equal
 * distances the lowest pattern counts.
 */
ATTN_API attn_status attn_hopfield_basin(const attn_hopfield *memory, int64_t index, int64_t samples, double noise, uint64_t seed,
                                         int64_t most, double tolerance, double *share, attn_error *error);

#ifdef __cplusplus
}
#endif

#endif
