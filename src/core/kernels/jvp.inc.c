/* SPDX-License-Identifier: MIT
 *
 * jvp.inc.c - the forward-mode kernel, written once.  An instantiation (<isa>/jvp_<type>.c) defines REAL_BITS, includes the SIMD
 * layer of its instruction set and then this file, and defines its part as ATTN_TANGENT_PART.
 */
#ifdef VF_LANES

/* Of forward's steps only the exponential and dropout are used here. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"

#include "forward.inc.c"

#pragma GCC diagnostic pop

#include "tangent_step.inc.c"

#define ATTN_TANGENT_PART                                                                                                          \
    {                                                                                                                              \
        .shape = ATTN_TILE_SHAPE, .add_tangents = step_add_tangents, .tangent = step_tangent, .center = step_center,               \
    }

#endif
