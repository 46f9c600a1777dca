/* SPDX-License-Identifier: MIT
 *
 * sweep_options.h - operations of the sweep's cases, and options that drop keys or change scores, one at a time and together. */
#ifndef ATTN_TESTING_CASE_SWEEP_OPTIONS_H
#define ATTN_TESTING_CASE_SWEEP_OPTIONS_H

#include "case.h"
#include "testing/random/random.h"

extern const int sweep_options;

/* Sets option `which` of a case whose sizes are set, with random parameters. */
void sweep_set_option(check_case *c, int64_t which, random_state *r);

/* Sets the operation, with the gradients that its options have. */
void sweep_set_operation(check_case *c, int op, random_state *r);

#endif
