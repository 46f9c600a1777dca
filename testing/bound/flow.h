/* SPDX-License-Identifier: MIT
 *
 * flow.h - tensors of gradients, tangents and double backward, and their expected values.
 */
#ifndef ATTN_TESTING_BOUND_FLOW_H
#define ATTN_TESTING_BOUND_FLOW_H

#include "compare.h"
#include "expect.h"

/* 1 if the operation reads tensor t and forward does not: an incoming gradient or tangent. */
int flow_in(const attn_tensors *all, attn_op op, int t);

/* Dense doubles of the shapes of tensors_shape, by tensor; NULL: not used. */
typedef struct flows {
    double *in[TENSORS];    /* incoming gradients and tangents */
    double *exact[TENSORS]; /* expected outputs */
    double *bound[TENSORS]; /* their error bounds before storage */
} flows;

/* Reads the incoming tensors, and runs the reference and its bound.  Returns 0 if out of memory. */
int flows_create(flows *all, const expectation *e, const attn_problem *problem, const attn_tensors *tensors);
void flows_destroy(flows *all);

/* Adds the output `got` to the comparison. */
void flows_compare(comparison *c, const flows *all, int t, const attn_problem *problem, const attn_tensors *tensors,
                   const double *got);

#endif
