/* SPDX-License-Identifier: MIT
 *
 * backward.inc.c - the backward kernel, written once.  An instantiation (<isa>/bwd_<type>.c) says REAL_BITS, includes the
 * vocabulary of its instruction set and then this file, and defines its table as ATTN_BWD_KERNEL.
 */
#ifdef VF_LANES

/* Some steps of forward are only building blocks here. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"

#include "forward.inc.c"

#pragma GCC diagnostic pop

#include "weight_step.inc.c"

#include "gradient_step.inc.c"

#include "additive_gradient_step.inc.c"

#include "short_gradient_step.inc.c"

#define ATTN_BWD_KERNEL                                                                                                            \
    {                                                                                                                              \
        .pack_rows = step_pack_rows, .rows_not_finite = step_rows_not_finite, .delta = step_delta, .gradient = step_gradient,      \
        .multiply = step_multiply, .add_outer = step_add_outer, .add_outer_careful = step_add_outer_careful,                       \
        .add_values = step_absorb, .add_values_careful = step_absorb_careful, .store_rows = step_store_rows, .add = step_add,      \
        .inner = step_inner, .sum_distances = step_sum_distances, .sum_strip = step_sum_strip, .reduce_pairs = step_reduce_pairs,  \
        .additive = step_additive_gradient, .additive_finish = step_additive_finish, .short_delta = step_short_delta,              \
        .short_gradient = step_short_gradient,                                                                                     \
    }

#endif
