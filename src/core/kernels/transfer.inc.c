/* SPDX-License-Identifier: MIT
 *
 * transfer.inc.c - the kernel of rows on their way, written once.  An instantiation (<isa>/transfer_f64.c) defines REAL_BITS as 64,
 * includes the SIMD layer of its instruction set and then this file, and defines its part as ATTN_TRANSFER_PART.
 */
#ifdef VF_LANES

/* Of forward's steps only loads and stores are used here. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"

#include "forward.inc.c"

#pragma GCC diagnostic pop

#include "transfer_step.inc.c"

#define ATTN_TRANSFER_PART                                                                                                         \
    {                                                                                                                              \
        .angles = step_angles, .rotate = step_rotate, .convert = step_convert, .quantise = step_quantise,                          \
    }

#endif
