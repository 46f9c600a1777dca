/* SPDX-License-Identifier: MIT
 *
 * flow.h - the tensors of gradients, tangents and second gradients, and what ought to stand in them.
 */
#ifndef ATTN_TESTING_BOUND_FLOW_H
#define ATTN_TESTING_BOUND_FLOW_H

#include "compare.h"
#include "expect.h"

/* 1 if the operation reads it, and it flows in: it is no input of forward. */
int flow_in(const attn_tensors *all, attn_op op, int t);

/* Dense doubles of the shapes of tensors_shape, by tensor; NULL: not used. */
typedef struct flows {
    double *in[TENSORS];    /* what flows in */
    double *exact[TENSORS]; /* what ought to be written, */
    double *bound[TENSORS]; /* and how far it may be off before it is stored */
} flows;

/* Reads what flows in, and runs the reference and its bound.  0 where memory is out. */
int flows_create(flows *all, const expectation *e, const attn_problem *problem, const attn_tensors *tensors);
void flows_destroy(flows *all);

/* Enters the output `got` into the comparison. */
void flows_compare(comparison *c, const flows *all, int t, const attn_problem *problem, const attn_tensors *tensors,
                   const double *got);

#endif
