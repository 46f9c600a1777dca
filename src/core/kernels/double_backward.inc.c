/* SPDX-License-Identifier: MIT
 *
 * double_backward.inc.c - the double backward kernel, written once.  An instantiation (<isa>/double_backward_<type>.c) defines
 * REAL_BITS, includes the SIMD layer of its instruction set and then this file, and defines its part as ATTN_DOUBLE_BACKWARD_PART.
 */
#ifdef VF_LANES

/* Of forward's steps only the exponential and dropout are used here. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"

#include "forward.inc.c"

#pragma GCC diagnostic pop

#include "weight_step.inc.c"

#include "double_backward_step.inc.c"

#define ATTN_DOUBLE_BACKWARD_PART                                                                                                  \
    {                                                                                                                              \
        .shape = ATTN_TILE_SHAPE, .dot = step_dot, .score_gradients = step_score_gradients,                                        \
        .through_softcap = step_through_softcap,                                                                                   \
    }

#endif
