/* SPDX-License-Identifier: MIT
 *
 * product.inc.c - the matrix product kernel, written once.  An instantiation (<isa>/product_<type>.c) defines REAL_BITS, includes
 * the SIMD layer of its instruction set and then this file, and defines its part as ATTN_MATRIX_PART.
 */
#ifdef VF_LANES

/* Of forward's steps only the register tiles are used here. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"

#include "forward.inc.c"

#pragma GCC diagnostic pop

#include "matrix_step.inc.c"

#define ATTN_MATRIX_PART                                                                                                           \
    {                                                                                                                              \
        .lanes = VF_LANES, .vectors = VF_VECTORS, .group = GROUP, .pack = step_pack, .multiply = step_multiply,                    \
        .in_place = step_in_place, .sweep = step_sweep, .join = step_join, .dots = step_dots,                                      \
    }

#endif
