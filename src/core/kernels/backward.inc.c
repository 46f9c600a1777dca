/* SPDX-License-Identifier: MIT
 *
 * backward.inc.c - the backward kernel, written once.  An instantiation (<isa>/bwd_<type>.c) defines REAL_BITS, includes the SIMD
 * layer of its instruction set and then this file, and defines its parts as ATTN_BACKWARD_PARTS.
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

#define ATTN_BACKWARD_PARTS                                                                                                        \
    {                                                                                                                              \
        .outer = {.shape = ATTN_TILE_SHAPE,                                                                                        \
                  .pack_rows = step_pack_rows,                                                                                     \
                  .rows_not_finite = step_rows_not_finite,                                                                         \
                  .add_outer = step_add_outer,                                                                                     \
                  .add_outer_nan_safe = step_add_outer_nan_safe,                                                                   \
                  .add = step_add},                                                                                                \
        .gradient = {.shape = ATTN_TILE_SHAPE,                                                                                     \
                     .delta = step_delta,                                                                                          \
                     .gradient = step_gradient,                                                                                    \
                     .multiply = step_multiply,                                                                                    \
                     .inner = step_inner,                                                                                          \
                     .sum_distances = step_sum_distances,                                                                          \
                     .sum_diagonals = step_sum_diagonals,                                                                          \
                     .reduce_pairs = step_reduce_pairs},                                                                           \
        .additive = {ATTN_TILE_SHAPE, step_additive_gradient, step_additive_finish},                                               \
        .small = {ATTN_TILE_SHAPE, step_short_delta, step_short_gradient},                                                         \
    }

#endif
