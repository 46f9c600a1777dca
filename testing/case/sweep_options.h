/* SPDX-License-Identifier: MIT
 *
 * sweep_options.h - the options that cases of the sweep have: what drops keys or changes scores, one at a time and together, and
 * the operations. */
#ifndef ATTN_TESTING_CASE_SWEEP_OPTIONS_H
#define ATTN_TESTING_CASE_SWEEP_OPTIONS_H

#include "case.h"
#include "testing/random/random.h"

extern const int sweep_options;

/* Sets option `which` of a case whose sizes are known, with numbers at random. */
void sweep_set_option(check_case *c, int64_t which, random_state *r);

/* Sets the operation, with all the gradients that there are. */
void sweep_set_operation(check_case *c, int op, random_state *r);

#endif
